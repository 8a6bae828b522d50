"""Measure how well `quality` finds faults that were planted in real text: ROC AUC by kind of fault.

    python benchmarks/alignment/planted_faults.py ../shared/data -o benchmarks/results/planted_faults.json

The text is the modern English Greek New Testament set, all parts; eflomal aligns the faulty text itself, lower-cased.
With --model the lines of the dev and test parts alone are judged by a model as well.
"""

import argparse
import time
from pathlib import Path
from typing import Any

from gold_sets import SPLITS, GoldSet, read_part
from statistical_aligners import lowered, run_eflomal

from hf_seq2seq_attn.probing import (
    FAULTS,
    BitextLine,
    LineQuality,
    Links,
    Verse,
    measure_quality,
    model_signals,
    plant_faults,
    roc_auc,
    symmetrize,
)
from hf_seq2seq_attn.probing.quality import SIGNALS
from hf_seq2seq_attn.training.run_record import hardware, versions, write_metrics
from hf_seq2seq_attn.translation import load_seq2seq

TEXT = GoldSet("gold-bible-grc-en-bsb", "grc", "en", SPLITS)
METHODS = ("intersection", "grow-diag-final-and-moses")
MODEL_SHARE = 0.08
Sentences = list[list[str]]
Parts = dict[str, tuple[Sentences, Sentences]]
Areas = dict[str, dict[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder that holds the sets")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1, help="how many times faults are planted")
    parser.add_argument("--share", type=float, default=0.02, help="of the lines, for each kind of fault")
    parser.add_argument("--model", help="an encoder-decoder that judges the dev and test parts")
    arguments = parser.parse_args()
    parts = {part: read_part(arguments.data, TEXT, part) for part in TEXT.parts}
    runs: dict[str, list[Areas]] = {}
    started = time.perf_counter()
    for seed in range(1, arguments.seeds + 1):
        for name, result in by_eflomal(parts, arguments.share, seed).items():
            runs.setdefault(name, []).append(result)
        print(f"seed {seed}: {time.perf_counter() - started:.0f} s", flush=True)
        if arguments.model:
            runs.setdefault("model", []).append(by_model(arguments.model, parts, seed))
    results = {name: mean(each) for name, each in runs.items()}
    for name, result in results.items():
        print_table(name, result)
    record: dict[str, Any] = {"auc": results, "seeds": arguments.seeds, "share": arguments.share}
    record |= {"model_share": MODEL_SHARE, "seconds": round(time.perf_counter() - started, 1)}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_metrics(arguments.output, record | {"versions": versions(), "hardware": hardware()})


def by_eflomal(parts: Parts, share: float, seed: int) -> dict[str, Areas]:
    """Return the areas by eflomal's links of the faulty text, for each symmetrisation."""
    sources = [words for part in parts.values() for words in part[0]]
    planted, faults = plant_faults(sources, [words for part in parts.values() for words in part[1]], share, seed)
    directions = run_eflomal([lowered(words) for words in sources], [lowered(words) for words in planted])
    results = {}
    for method in METHODS:
        links = [symmetrize(*both, method) for both in zip(*directions, strict=True)]
        results[f"eflomal {method}"] = areas(measure_quality(bitext(sources, planted, links)), faults)
    return results


def by_model(name: str, parts: Parts, seed: int) -> Areas:
    """Return the areas by a model's own signals and links, on text that it was not trained on."""
    held_out = [parts[part] for part in ("dev", "test")]
    sources = [words for part in held_out for words in part[0]]
    planted, faults = plant_faults(sources, [words for part in held_out for words in part[1]], MODEL_SHARE, seed)
    lines = bitext(sources, planted, None)
    pairs = [(line.verse.texts[0], line.verse.texts[1]) for line in lines]
    return areas(measure_quality(lines, list(model_signals(*load_seq2seq(name), pairs))), faults)


def mean(runs: list[Areas]) -> Areas:
    """Return the mean of each figure over runs."""
    return {
        kind: {name: round(sum(run[kind][name] for run in runs) / len(runs), 4) for name in runs[0][kind]}
        for kind in runs[0]
    }


def bitext(sources: Sentences, targets: Sentences, links: list[Links] | None) -> list[BitextLine]:
    """Return the lines as a corpus."""
    return [
        BitextLine(
            Verse(row + 1, (" ".join(source), " ".join(target))), source, target, None if links is None else links[row]
        )
        for row, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]


def areas(found: list[LineQuality], faults: list[str | None]) -> Areas:
    """Return for each kind of fault how many lines have it, and the area of the badness and of each signal alone."""
    scores = {"badness": [each.badness for each in found]}
    for signal in SIGNALS:
        if any(signal.name in each.surprisal for each in found):
            scores[signal.name] = [each.surprisal.get(signal.name, 0.0) for each in found]

    def of(name: str, *kinds: str | None) -> list[float]:
        return [score for score, fault in zip(scores[name], faults, strict=True) if fault in kinds]

    result: Areas = {}
    for kind in FAULTS:
        result[kind] = {"lines": faults.count(kind)} | {
            name: roc_auc(of(name, kind), of(name, None)) for name in scores
        }
    planted = sum(fault is not None for fault in faults)
    worst = [fault for each, fault in zip(found, faults, strict=True) if each.rank <= planted]
    result["all"] = {
        "lines": planted,
        "badness": roc_auc(of("badness", *FAULTS), of("badness", None)),
        "precision_at_lines": sum(fault is not None for fault in worst) / planted,
    }
    return result


def print_table(name: str, result: Areas) -> None:
    print(f"\n{name}".ljust(28) + "".join(kind.rjust(10) for kind in result))
    for row in result[FAULTS[0]]:
        cells = (f"{result[kind][row]:10.4g}" if row in result[kind] else " " * 10 for kind in result)
        print(row.ljust(27) + "".join(cells))
    print(f"of the worst {result['all']['lines']:.0f} lines {result['all']['precision_at_lines']:.1%} have a fault")


if __name__ == "__main__":
    main()
