"""Print the table of the shipped recipes' runs, from their metrics files in `benchmarks/results/recipes`.

python benchmarks/recipe_table.py            # the table
python benchmarks/recipe_table.py RUN_DIR    # take a finished run's metrics, curve and recipe in first
"""

import shutil
import sys
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.training.run_record import CURVE_FILE, METRICS_FILE, RECIPE_FILE, read_metrics

RESULTS = Path(__file__).parent / "results" / "recipes"
SHOWN = {
    "bleu": "BLEU", "chrf": "chrF", "aer": "AER", "word_error_rate": "word error rate", "per": "phoneme error rate",
}  # fmt: skip
COLUMNS = ("recipe", "parameters", "steps", "epochs", "minutes", "training loss", "test")


def main() -> None:
    for folder in map(Path, sys.argv[1:]):
        target = RESULTS / read_metrics(folder / METRICS_FILE)["name"]
        target.mkdir(parents=True, exist_ok=True)
        for name in (METRICS_FILE, CURVE_FILE, RECIPE_FILE):
            shutil.copyfile(folder / name, target / name)
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    for path in sorted(RESULTS.glob("*/" + METRICS_FILE)):
        print("| " + " | ".join(row(read_metrics(path))) + " |")


def row(metrics: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of one run; the loss is the mean of the first and of the last steps that were logged."""
    losses = [entry["loss"] for entry in metrics["history"] if "loss" in entry]
    test = metrics.get("test", {})
    scores = ", ".join(f"{label} {test[name]:.3g}" for name, label in SHOWN.items() if name in test)
    return (
        f"`{metrics['name']}`",
        f"{metrics['parameters'] / 1e6:.1f} M",
        f"{metrics['steps']:,}",
        f"{metrics['epochs']:.1f}",
        f"{metrics['seconds'] / 60:.0f}",
        f"{losses[0]:.2f} -> {losses[-1]:.2f}",
        scores or "-",
    )


if __name__ == "__main__":
    main()
