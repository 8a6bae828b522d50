"""Put the model cards of the final runs, one for each recipe, into `model_cards`, with the files that they name.

python benchmarks/quality/cards.py -w runs/quality [-o model_cards]
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from runs import MAIN

from hf_seq2seq_attn.probing import CHOICE_FILE
from hf_seq2seq_attn.training.run_record import ATTENTION_FILE, CARD_FILE, CURVE_FILE, METRICS_FILE, RECIPE_FILE

CARDS = Path(__file__).parents[2] / "model_cards"
FILES = (CARD_FILE, ATTENTION_FILE, CURVE_FILE, METRICS_FILE, RECIPE_FILE)
OPTIONAL = (CHOICE_FILE,)


def copy_cards(work: Path, cards: Path) -> list[str]:
    """Copy the card of each recipe's first finished run, in the order of the queue; return the recipes' names.

    A run of the recipe as it is goes before one with overrides. A run is finished when it has been scored: then its
    card holds what the table shows.
    """
    copied: list[str] = []
    for run in sorted(MAIN, key=lambda run: bool(run.overrides)):
        metrics = work / run.name / METRICS_FILE
        if run.recipe in copied or not metrics.exists() or '"quality"' not in metrics.read_text(encoding="utf-8"):
            continue
        target = cards / run.recipe
        target.mkdir(parents=True, exist_ok=True)
        for name in FILES + OPTIONAL:
            (target / name).unlink(missing_ok=True)
            if name in FILES or (work / run.name / name).exists():
                shutil.copyfile(work / run.name / name, target / name)
        copied.append(run.recipe)
    return copied


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-w", "--work", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, default=CARDS)
    chosen = parser.parse_args(words)
    print(f"cards: {', '.join(copy_cards(chosen.work, chosen.output)) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
