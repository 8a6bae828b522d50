"""Train small translation models on the corpora with manual links, both directions, and sweep how links are read off.

    python benchmarks/alignment/attention_models.py ../shared/data -w build/alignment -o benchmarks/results

No manual link is used in training. The choice is made on the dev part's links and reported on the test part. A model or
a sweep that is there already is kept, so that a stopped run goes on.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gold_sets import SETS, GoldSet

from hf_seq2seq_attn.text_files import read_lines
from hf_seq2seq_attn.training.run_record import hardware, read_metrics, versions, write_metrics

COMMON = ["training.per_device_train_batch_size=32", "training.logging_steps=100"]
COMMON += ["training.label_smoothing_factor=0.1", "data.max_source_length=120", "data.max_target_length=120"]
SENTENCES = ["training.max_steps=1000"]
WORDS = ["training.max_steps=1500", "tokenizer.kind=word", "tokenizer.separate=true", "tokenizer.vocab_size=200"]
MODELS: dict[str, list[str]] = {
    "gru-additive": [
        "bahdanau2015", "model.attend_with=current_state", "model.d_model=128", "model.dropout=0.1",
        "tokenizer.vocab_size=4000", "training.learning_rate=3.0e-3", "training.warmup_steps=0.1",
    ],
    "transformer": [
        "transformer_tiny", "model.encoder_layers=3", "model.decoder_layers=3", "model.dropout=0.1",
        "tokenizer.vocab_size=4000", "training.learning_rate=2.0e-3", "training.warmup_steps=300",
    ],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder that holds the sets")
    parser.add_argument("-w", "--work", type=Path, required=True, help="where models and sweeps go")
    parser.add_argument("-o", "--output", type=Path, required=True, help="where attention_models_SET.json go")
    parser.add_argument("--only", nargs="+", help="only the sets of these names")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    arguments = parser.parse_args()
    for gold_set in SETS:
        if "train" in gold_set.parts and (arguments.only is None or gold_set.name in arguments.only):
            measured = {name: measure(arguments.data, gold_set, name, arguments.work) for name in arguments.models}
            record = {"set": gold_set.name, "models": measured, "versions": versions(), "hardware": hardware()}
            arguments.output.mkdir(parents=True, exist_ok=True)
            label = gold_set.name.replace(" (", "-").replace(")", "")
            write_metrics(arguments.output / f"attention_models_{label}.json", record)


def measure(data: Path, gold_set: GoldSet, name: str, work: Path) -> dict[str, Any]:
    """Train both directions of one model on one set, sweep, and return what came out."""
    folder = work / gold_set.name.replace(" ", "").replace("(", "-").replace(")", "") / name
    directions = {"forward": (gold_set.source, gold_set.target), "reverse": (gold_set.target, gold_set.source)}
    for direction, sides in directions.items():
        if not (folder / direction / "metrics.json").exists():
            train(data / gold_set.folder, MODELS[name], sides, folder / direction, words="nettalk" in gold_set.name)
    swept = folder / "sweep.json"
    if not swept.exists():
        suffixes = (gold_set.source, gold_set.target, "align")
        test = [data / gold_set.folder / f"test.{suffix}" for suffix in suffixes]
        dev = [data / gold_set.folder / f"dev.{suffix}" for suffix in suffixes]
        parts = (without_pairs_of(test, dev, folder), test)
        run("sweep", folder / "forward", *parts[0], "--test", *parts[1], "--reverse-model", folder / "reverse",
            "-o", swept)  # fmt: skip
    result = summary(json.loads(swept.read_text(encoding="utf-8")))
    metrics = {direction: read_metrics(folder / direction / "metrics.json") for direction in directions}
    return {
        "seconds": {direction: each["seconds"] for direction, each in metrics.items()},
        "parameters": metrics["forward"]["parameters"],
        "steps": metrics["forward"]["steps"],
        "test_chrf": {direction: each["test"]["chrf"] for direction, each in metrics.items()},
        "sweep": result,
    }


def summary(swept: dict[str, Any], best: int = 20) -> dict[str, Any]:
    """Return a sweep without most of its points: the best ones, and the best AER on dev for each value of a choice."""
    points = swept["points"]
    by_choice: dict[str, dict[str, float]] = {}
    for name in ("align_with", "weights", "specials", "layer", "subwords", "links", "symmetrize", "combine"):
        for point in points:
            # Best first, so that the first of a value is its best.
            by_choice.setdefault(name, {}).setdefault(str(point[name]), round(point["aer"], 4))
    return {**swept, "points": points[:best], "tried": len(points), "best_by_choice": by_choice}


def without_pairs_of(test: list[Path], dev: list[Path], folder: Path) -> list[Path]:
    """Write the dev files without the pairs that are in test too (a Bible repeats formulas); return their paths."""
    lines = [read_lines(path) for path in dev]
    known = set(zip(*(read_lines(path) for path in test[:2]), strict=True))
    kept = [row for row in zip(*lines, strict=True) if row[:2] not in known]
    paths = [folder / path.name for path in dev]
    for column, path in enumerate(paths):
        path.write_text("".join(row[column] + "\n" for row in kept), encoding="utf-8")
    return paths


def train(folder: Path, recipe: list[str], sides: tuple[str, str], output: Path, *, words: bool) -> None:
    files = [
        f"data.{part}.{end}={folder / part}.{side}"
        for part in ("train", "dev", "test")
        for end, side in zip(("source", "target"), sides, strict=True)
    ]
    run("train", *recipe, *COMMON, *(WORDS if words else SENTENCES), *files, "-o", output)


def run(*words: object) -> None:
    """Run one command of ours; what it prints goes on to the terminal."""
    print("seq2seq-attn", *words, flush=True)
    subprocess.run([sys.executable, "-m", "hf_seq2seq_attn.cli", *map(str, words)], check=True)


if __name__ == "__main__":
    main()
