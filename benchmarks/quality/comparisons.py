"""What is measured across finished runs: how fast two of them decode, and quality by sentence length.

    python benchmarks/quality/comparisons.py --data ../shared/data -w runs/quality

`run_all.py` does the same at its end. What is there already, or lacks one of its runs, is passed over.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runs import DE_EN, EN_DE, ablation_name
from scores import BEAMS

from hf_seq2seq_attn.probing import library_versions, write_atomically
from hf_seq2seq_attn.text_files import read_lines
from hf_seq2seq_attn.training.run_record import METRICS_FILE, hardware, read_metrics
from hf_seq2seq_attn.translation import load_seq2seq, translate

SPEED_FILE, LENGTH_FILE, LENGTH_PICTURE = "decoding.json", "by_length.json", "by_length.png"
SPEED_RUNS = {"hybrid": "en_de_hybrid", "transformer": "en_de_transformer_wide"}
LENGTH_RUNS = {
    "fixed vector": ablation_name("none"), "additive": ablation_name("additive"), "dot product": ablation_name("dot"),
}  # fmt: skip
LENGTH_TESTS = DE_EN.tests[:2]
"""Those of Flickr: the third test set has other sentences and other lengths, which should not be mixed up."""
# Last length of each range, in words, so that each has more than a hundred sentences; the longest has 39.
BOUNDS = "7,9,11,13,16,40"


def compare_all(data: Path, work: Path, results: Path) -> list[str]:
    """Measure what can be measured and is not there yet; return the names of the files written."""
    written = []
    if _ready(SPEED_RUNS, work) and not _is_of(SPEED_RUNS, work, results / SPEED_FILE):
        source, _ = EN_DE.files(EN_DE.tests[0], data, work)
        folders = {name: work / run for name, run in SPEED_RUNS.items()}
        record = compare_decoding(folders, read_lines(source)[:256]) | {"runs": _identity(SPEED_RUNS, work)}
        write_atomically(results / SPEED_FILE, [json.dumps(record, indent=1) + "\n"])
        written.append(SPEED_FILE)
    if _ready(LENGTH_RUNS, work) and not _is_of(LENGTH_RUNS, work, results / LENGTH_FILE):
        draw_by_length(data, work, results)
        record = read_metrics(results / LENGTH_FILE) | {"runs": _identity(LENGTH_RUNS, work)}
        write_atomically(results / LENGTH_FILE, [json.dumps(record, indent=1) + "\n"])
        written.append(LENGTH_FILE)
    return written


def compare_decoding(
    folders: dict[str, Path], sentences: Sequence[str], rounds: int = 5, batch_size: int = 32
) -> dict[str, Any]:
    """Translate the same sentences by each model in turn, `rounds` times after a first one that is not counted.

    Returns:
        seconds: name -> median CPU seconds of this process; ratios: of the last model's time to each other's, the
        median of the rounds' ratios, so that a machine whose speed changes between rounds changes them little.
    """
    loaded = {name: load_seq2seq(folder) for name, folder in folders.items()}
    seconds: dict[str, list[float]] = {name: [] for name in folders}
    for number in range(rounds + 1):
        for name, (model, tokenizer) in loaded.items():
            started = time.process_time()
            translate(model, tokenizer, sentences, num_beams=BEAMS, batch_size=batch_size)
            if number:
                seconds[name].append(time.process_time() - started)
    *others, last = folders
    ratios = {
        name: statistics.median(b / a for a, b in zip(seconds[name], seconds[last], strict=True)) for name in others
    }
    return {
        "sentences": len(sentences),
        "num_beams": BEAMS,
        "batch_size": batch_size,
        "rounds": rounds,
        "seconds": {name: round(statistics.median(values), 3) for name, values in seconds.items()},
        "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "versions": library_versions(),
        "hardware": hardware(),
    }


def draw_by_length(data: Path, work: Path, results: Path) -> None:
    """Score the three models of the ablation by source length on both Flickr test sets together, and draw it.

    By cased BLEU and with no length penalty (1.0 in the library's terms): all three alike, and unlike the other tables.
    """
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from quality_by_length import main as by_length

    texts = []
    for side in (0, 1):
        parts = [DE_EN.files(name, data, work)[side] for name in LENGTH_TESTS]
        path = work / f"all_tests.{(DE_EN.source, DE_EN.target)[side]}"
        write_atomically(path, (line + "\n" for part in parts for line in read_lines(part)))
        texts.append(str(path))
    code = by_length([
        "--runs", *(f"{name}={work / run}" for name, run in LENGTH_RUNS.items()),
        "--source", texts[0], "--reference", texts[1], "--bleu-tokenize", "13a", "--num-beams", str(BEAMS),
        "--bounds", BOUNDS, "-o", str(results / LENGTH_FILE), "--picture", str(results / LENGTH_PICTURE),
    ])  # fmt: skip
    if code != 0:
        raise RuntimeError("quality_by_length.py failed; what it said stands above")


def _identity(runs: dict[str, str], work: Path) -> dict[str, str]:
    """Return for each run its name and when it began: one that was trained anew is another."""
    return {name: f"{run}, {read_metrics(work / run / METRICS_FILE)['started']}" for name, run in runs.items()}


def _is_of(runs: dict[str, str], work: Path, path: Path) -> bool:
    """Tell whether a file of results was measured of these very runs."""
    return path.exists() and read_metrics(path).get("runs") == _identity(runs, work)


def _ready(runs: dict[str, str], work: Path) -> bool:
    return all((work / run / METRICS_FILE).exists() for run in runs.values())


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return 0."""
    from run_all import RESULTS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("-w", "--work", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args(words)
    chosen.results.mkdir(parents=True, exist_ok=True)
    written = compare_all(chosen.data.resolve(), chosen.work.resolve(), chosen.results.resolve())
    print(f"written: {', '.join(written) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
