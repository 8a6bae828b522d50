"""Print the tables of the README from the runs' metrics: the results beside what was published, and the ablation.

python benchmarks/quality/table.py [--results benchmarks/results/quality] [--short]
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparisons import SPEED_FILE
from run_all import RESULTS
from runs import FACTORS, ROWS, RUNS, SEEDS, Row, ablation_name

from hf_seq2seq_attn.training.run_record import METRICS_FILE, RECIPE_FILE, read_metrics

HEAD = ("task", "published", "target", "measured", "BLEU, cased", "chrF", "parameters", "CPU minutes", "")
SHORT = ("task", "published", "target", "measured", "parameters", "CPU minutes", "")
ABLATION_HEAD = ("changed", "BLEU on dev", "BLEU on test_2016", "difference", "parameters", "CPU minutes")
DECODING_TARGET = 1.5
Found = dict[str, dict[str, Any]]


def read_results(folder: Path) -> Found:
    """Return the metrics of the runs that are there, by their names; `earlier` in them: the recipe has changed."""
    paths = {name: folder / name / METRICS_FILE for name in RUNS}
    return {
        name: read_metrics(path) | {"earlier": not RUNS[name].is_of(path.with_name(RECIPE_FILE))}
        for name, path in paths.items()
        if path.exists()
    }


def results_row(row: Row, found: Found) -> tuple[str, ...]:
    """Return the cells of a row; a run that is not there leaves them empty."""
    there = [found[name] for name in row.runs if name in found]
    bleu = RUNS[row.runs[0]].corpus.metric == "bleu"
    tests = RUNS[row.runs[0]].corpus.tests
    name = "bleu_lc" if bleu else "word_error_rate"
    targets = wanted(row, found, tests[0], name)
    target = " / ".join(f"{targets[test]:.4g}" for test in tests if test in targets) or "-"
    if len(there) < len(row.runs):
        # The mean of some languages says nothing about the mean of all.
        known = f"{len(there)} of {len(row.runs)} runs" if there else "not run"
        return (row.task, row.anchor, target, known, "", "", "", "", "")
    measured = {test: mean_score(there, test, name) for test in tests}
    verdict = ""
    if targets:
        better = all(measured[test] >= value if bleu else measured[test] <= value for test, value in targets.items())
        verdict = "reached" if better else "**missed**"
    if any(metrics.get("earlier") for metrics in there):
        verdict = f"{verdict}, with an earlier recipe".removeprefix(", ")
    return (
        row.task,
        row.anchor,
        target,
        " / ".join(f"{value:.2f}{_interval(there, test, name)}" for test, value in measured.items()),
        " / ".join(f"{mean_score(there, test, 'bleu'):.2f}" for test in tests) if bleu else "",
        " / ".join(f"{mean_score(there, test, 'chrf'):.1f}" for test in tests) if bleu else "",
        f"{statistics.mean(metrics['parameters'] for metrics in there) / 1e6:.1f} M",
        f"{sum(metrics['cpu_minutes'] for metrics in there):.0f}",
        verdict,
    )


def short_rows(found: Found) -> list[tuple[str, ...]]:
    """Return the cells that the README shows, of the rows whose runs are all there."""
    places = [HEAD.index(name) for name in SHORT]
    rows = [results_row(row, found) for row in ROWS if all(name in found for name in row.runs)]
    return [tuple(cells[place] for place in places) for cells in rows]


def wanted(row: Row, found: Found, first: str, name: str) -> dict[str, float]:
    """Return the figure to reach for each test part; of a row that is to be near another, of the first part."""
    if row.near is None or row.near[0] not in found:
        return row.targets
    other, distance = row.near
    return {first: mean_score([found[other]], first, name) - distance}


def mean_score(there: Sequence[dict[str, Any]], test: str, name: str) -> float:
    """Return the mean of a score over runs; error rates in percent."""
    values = [metrics["quality"]["tests"][test][name]["value"] for metrics in there]
    return statistics.mean(values) * (1 if name in ("bleu", "bleu_lc", "chrf") else 100)


def _interval(there: Sequence[dict[str, Any]], test: str, name: str) -> str:
    """Return the 95% interval of a single run on a test part."""
    if len(there) > 1:
        return ""
    scale = 1 if name == "bleu_lc" else 100
    low, high = there[0]["quality"]["tests"][test][name]["ci95"]
    return f" ({scale * low:.1f} to {scale * high:.1f})"


def ablation_rows(found: Found) -> list[tuple[str, ...]]:
    """Return the cells of each factor whose runs are all there; with several seeds mean and standard deviation.

    The difference is to the baseline's mean on test_2016.
    """
    rows, base = [], None
    for factor, (label, _) in FACTORS.items():
        names = [ablation_name(factor, seed) for seed in SEEDS.get(factor, (1,))]
        if not all(name in found for name in names):
            continue
        there = [found[name] for name in names]
        dev = [metrics["quality"]["dev"]["bleu_lc"]["value"] for metrics in there]
        test = [metrics["quality"]["tests"]["test_2016_flickr"]["bleu_lc"]["value"] for metrics in there]
        if factor == "additive":
            base = statistics.mean(test)
        difference = "" if base is None or factor == "additive" else f"{statistics.mean(test) - base:+.2f}"
        sizes = f"{there[0]['parameters'] / 1e6:.2f} M"
        minutes = f"{statistics.mean(metrics['cpu_minutes'] for metrics in there):.0f}"
        rows.append((label, _spread(dev), _spread(test), difference, sizes, minutes))
    return rows


def _spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f} ({len(values)} seeds)"


def decoding_line(record: dict[str, Any]) -> str:
    """Return what was measured of the hybrid's decoding."""
    seconds, count = record["seconds"], record["sentences"]
    told = ", ".join(f"{name} {count / seconds[name]:.1f} sentences a CPU second" for name in seconds)
    return (
        f"Decoding, beam {record['num_beams']}: {told}; the hybrid is {record['ratios']['hybrid']:.2f} times as fast "
        f"(target {DECODING_TARGET:g}: {'reached' if record['ratios']['hybrid'] >= DECODING_TARGET else '**missed**'})."
    )


def signatures(found: Found) -> list[str]:
    """Return sacrebleu's signatures of the runs, each once."""
    tests = (test for metrics in found.values() for test in metrics["quality"]["tests"].values())
    scores = (score for test in tests for score in test.values() if isinstance(score, dict))
    return sorted({score["signature"] for score in scores if "signature" in score})


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print the tables of the quality runs.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--short", action="store_true", help="the README's: finished rows, fewer columns")
    chosen = parser.parse_args(words)
    folder = chosen.results
    found = read_results(folder)
    if chosen.short:
        print(markdown(SHORT, short_rows(found)))
        return
    print(markdown(HEAD, [results_row(row, found) for row in ROWS]))
    print(
        "\nMeasured: sacreBLEU `-lc -tok 13a` of plain-text output on test_2016_flickr / test_2017_flickr / "
        "test_2017_mscoco, or word error rate in percent, with 95% intervals of the test set; beam 5, everything "
        "chosen on the development sets."
    )
    for signature in signatures(found):
        print(f"- `{signature}`")
    if (folder / SPEED_FILE).exists():
        print(f"\n{decoding_line(json.loads((folder / SPEED_FILE).read_text(encoding='utf-8')))}")
    rows = ablation_rows(found)
    if rows:
        print("\n" + markdown(ABLATION_HEAD, rows))
        print("\nOne seed where no other number is given; the deviations of three seeds say how much of it is chance.")


if __name__ == "__main__":
    main()
