"""Measure the aligners to beat: the diagonal, IBM model 1 and eflomal, on every set with manual links.

    python benchmarks/alignment/statistical_aligners.py ../shared/data -o benchmarks/results/statistical_aligners.json

eflomal and IBM 1 are trained on the text of all parts (that of the test part too, without its links), lower-cased.
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import eflomal
from gold_sets import SETS, GoldSet, read_links, read_part

from hf_seq2seq_attn.probing import (
    SYMMETRIZATIONS,
    Gold,
    Ibm1,
    Links,
    diagonal_links,
    read_link_file,
    reverse_links,
    score_links,
    symmetrize,
)
from hf_seq2seq_attn.training.run_record import hardware, versions, write_metrics

Sentences = list[list[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder that holds the sets")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--only", help="measure only the sets whose name contains this")
    parser.add_argument("--repeats", type=int, default=1, help="runs of eflomal, whose sampler is random")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for gold_set in SETS:
        if arguments.only is None or arguments.only in gold_set.name:
            results[gold_set.name] = measure(arguments.data, gold_set, arguments.repeats)
            print_row(gold_set.name, results[gold_set.name])
    record = {"sets": results, "versions": versions() | {"eflomal": "2.0.0"}, "hardware": hardware()}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_metrics(arguments.output, record)


def measure(data: Path, gold_set: GoldSet, repeats: int) -> dict[str, Any]:
    """Return the scores of all aligners on the test part of one set."""
    parts = {part: read_part(data, gold_set, part) for part in gold_set.parts}
    sources = [lowered(words) for part in parts.values() for words in part[0]]
    targets = [lowered(words) for part in parts.values() for words in part[1]]
    gold = read_links(data, gold_set, "test")
    test = slice(len(sources) - len(gold), None)

    diagonal = [diagonal_links(len(s), len(t)) for s, t in zip(sources[test], targets[test], strict=True)]
    systems = {"diagonal": score(diagonal, gold)}
    models = Ibm1().fit(sources, targets), Ibm1().fit(targets, sources)
    pairs = list(zip(sources[test], targets[test], strict=True))
    forward = [models[0].links(source, target) for source, target in pairs]
    reverse = [reverse_links(models[1].links(target, source)) for source, target in pairs]
    systems |= both_directions("ibm1", forward, reverse, gold)
    runs = []
    for _ in range(repeats):
        started = time.perf_counter()
        forward, reverse = run_eflomal(sources, targets)
        seconds = time.perf_counter() - started
        runs.append(both_directions("eflomal", forward[test], reverse[test], gold) | {"seconds": round(seconds, 1)})
    return {"pairs": len(sources), "test_pairs": len(gold), **systems, "eflomal_runs": runs}


def both_directions(name: str, forward: list[Links], reverse: list[Links], gold: list[Gold]) -> dict[str, Any]:
    """Return the scores of both directions and of every symmetrisation."""
    scores = {f"{name} forward": score(forward, gold), f"{name} reverse": score(reverse, gold)}
    for method in SYMMETRIZATIONS:
        both = [symmetrize(one, other, method) for one, other in zip(forward, reverse, strict=True)]
        scores[f"{name} {method}"] = score(both, gold)
    return scores


def score(links: list[Links], gold: list[Gold]) -> dict[str, Any]:
    found = score_links(links, gold)
    return {"aer": round(found.aer, 4), "precision": round(found.precision, 4), "recall": round(found.recall, 4)}


def run_eflomal(sources: Sentences, targets: Sentences) -> tuple[list[Links], list[Links]]:
    """Return eflomal's links of both directions, source word first."""
    with TemporaryDirectory() as folder:
        forward, reverse = Path(folder, "forward"), Path(folder, "reverse")
        eflomal.Aligner().align(
            [" ".join(words) + "\n" for words in sources],
            [" ".join(words) + "\n" for words in targets],
            links_filename_fwd=str(forward),
            links_filename_rev=str(reverse),
        )
        one, other = ([pair.sure for pair in read_link_file(path).sentences] for path in (forward, reverse))
    return one, other


def lowered(words: list[str]) -> list[str]:
    return [word.lower() for word in words]


def print_row(name: str, result: dict[str, Any]) -> None:
    systems = {key: value for key, value in result.items() if isinstance(value, dict)} | result["eflomal_runs"][0]
    aers = " ".join(f"{key} {value['aer']:.3f};" for key, value in systems.items() if isinstance(value, dict))
    print(f"{name}: {result['pairs']} pairs, {result['test_pairs']} scored; {aers}", flush=True)


if __name__ == "__main__":
    main()
