"""Measure the aligners to beat: the diagonal, IBM model 1, our `builtin` teacher, those of sil-thot where it is
installed, and eflomal, on every set with manual links.

    python benchmarks/alignment/statistical_aligners.py ../shared/data -o benchmarks/results/statistical_aligners.json

All but the diagonal are trained on the text of all parts (that of the test part too, without its links), lower-cased.
Systems that are not named by --systems keep the figures that the output file has.
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
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
    threshold_links,
)
from hf_seq2seq_attn.training.run_record import hardware, read_metrics, versions, write_metrics
from hf_seq2seq_attn.training.statistical_aligner import StatisticalAligner, directed_links

Sentences = list[list[str]]
SYSTEMS = ("diagonal", "ibm1", "builtin", "thot", "eflomal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder that holds the sets")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--only", help="measure only the sets whose name contains this")
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS)
    parser.add_argument("--repeats", type=int, default=1, help="runs of eflomal, whose sampler is random")
    arguments = parser.parse_args()
    old = read_metrics(arguments.output)["sets"] if arguments.output.exists() else {}
    results: dict[str, Any] = dict(old)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    for gold_set in SETS:
        if arguments.only is None or arguments.only in gold_set.name:
            found = measure(arguments.data, gold_set, arguments.systems, arguments.repeats)
            results[gold_set.name] = old.get(gold_set.name, {}) | found
            print_row(gold_set.name, results[gold_set.name])
            record = {"sets": results, "versions": versions() | aligner_versions(), "hardware": hardware()}
            write_metrics(arguments.output, record)


def measure(data: Path, gold_set: GoldSet, systems: Sequence[str], repeats: int) -> dict[str, Any]:
    """Return the scores of the named aligners on the test part of one set."""
    parts = {part: read_part(data, gold_set, part) for part in gold_set.parts}
    sources = [lowered(words) for part in parts.values() for words in part[0]]
    targets = [lowered(words) for part in parts.values() for words in part[1]]
    gold = read_links(data, gold_set, "test")
    test = slice(len(sources) - len(gold), None)

    found: dict[str, Any] = {"pairs": len(sources), "test_pairs": len(gold)}
    if "diagonal" in systems:
        diagonal = [diagonal_links(len(s), len(t)) for s, t in zip(sources[test], targets[test], strict=True)]
        found["diagonal"] = score(diagonal, gold)
    if "ibm1" in systems:
        models = Ibm1().fit(sources, targets), Ibm1().fit(targets, sources)
        pairs = list(zip(sources[test], targets[test], strict=True))
        forward = [models[0].links(source, target) for source, target in pairs]
        reverse = [reverse_links(models[1].links(target, source)) for source, target in pairs]
        found |= both_directions("ibm1", forward, reverse, gold)
    if "builtin" in systems:
        found |= measure_builtin(sources, targets, gold)
    if "thot" in systems and find_spec("thot") is not None:
        from thot_aligners import thot_links

        for name, (forward, reverse) in thot_links(sources, targets, test.start).items():
            found |= both_directions(name, forward, reverse, gold)
    if "eflomal" in systems:
        found["eflomal_runs"] = [measure_eflomal(sources, targets, gold) for _ in range(repeats)]
    return found


def measure_builtin(sources: Sentences, targets: Sentences, gold: list[Gold]) -> dict[str, Any]:
    """Return the scores of the `builtin` teacher: both directions, and both directions' mean posterior over 0.4."""
    started = time.perf_counter()
    aligner = StatisticalAligner.fit(sources, targets)
    seconds = time.perf_counter() - started
    posteriors = aligner.posteriors(sources[-len(gold) :], targets[-len(gold) :])
    mean = [threshold_links((forward + reverse) / 2, 0.4) for forward, reverse in posteriors]
    return {
        **both_directions("builtin", *directed_links(posteriors), gold),
        "builtin mean over 0.4": score(mean, gold),
        "builtin seconds": round(seconds, 1),
    }


def measure_eflomal(sources: Sentences, targets: Sentences, gold: list[Gold]) -> dict[str, Any]:
    started = time.perf_counter()
    forward, reverse = run_eflomal(sources, targets)
    seconds = time.perf_counter() - started
    test = slice(len(sources) - len(gold), None)
    return both_directions("eflomal", forward[test], reverse[test], gold) | {"seconds": round(seconds, 1)}


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


def aligner_versions() -> dict[str, str]:
    """Return the versions of the other aligners that are installed."""
    found = {}
    for name in ("eflomal", "sil-thot"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def lowered(words: list[str]) -> list[str]:
    return [word.lower() for word in words]


def print_row(name: str, result: dict[str, Any]) -> None:
    systems = {key: value for key, value in result.items() if isinstance(value, dict)}
    systems |= result.get("eflomal_runs", [{}])[0]
    aers = " ".join(f"{key} {value['aer']:.3f};" for key, value in systems.items() if isinstance(value, dict))
    print(f"{name}: {result['pairs']} pairs, {result['test_pairs']} scored; {aers}", flush=True)


if __name__ == "__main__":
    main()
