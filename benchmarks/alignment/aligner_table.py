"""Make the tables of the trained aligner from `aligner.json` and `statistical_aligners.json`, and its card.

python benchmarks/alignment/aligner_table.py                     # the tables
python benchmarks/alignment/aligner_table.py --card model_cards/word_aligner/README.md
"""

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.training.run_record import read_metrics

RESULTS = Path(__file__).parents[1] / "results"
SHOWN = ("0", "200", "all")
SEEDS = 3
CURVE = ("0", "50", "200", "1000", "all")
OTHERS = {"sil-thot": ("thot fast_align", "thot hmm", "thot eflomal"), "builtin": ("builtin",)}


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--card", type=Path, help="write the model card here")
    chosen = parser.parse_args(words)
    record = read_metrics(chosen.results / "aligner.json")
    others = read_metrics(chosen.results / "statistical_aligners.json")["sets"]
    if chosen.card is not None:
        chosen.card.parent.mkdir(parents=True, exist_ok=True)
        chosen.card.write_text(card(record, others), encoding="utf-8")
    else:
        print(tables(record, others))
    return 0


def tables(record: dict[str, Any], others: dict[str, Any]) -> str:
    """Return the main table, the curve and how it was measured, as Markdown."""
    sets = {name: found for name, found in record["sets"].items() if "aligner" in found}
    lines = [
        *table(
            (
                "AER on the test part",
                "pairs",
                "eflomal",
                "sil-thot",
                "`builtin`",
                "teacher alone",
                *map(_amount, SHOWN),
            ),
            [_row(name, found, others.get(name, {})) for name, found in sets.items()],
        ),
        "",
        *table(
            ("hand-aligned pairs", *CURVE),
            [
                (name, *(_mean(found, amount) for amount in CURVE))
                for name, found in sets.items()
                if {"50", "1000"} <= found["aligner"].keys()
            ],
        ),
        "",
        *(f"- {name}: {_significance(found)}" for name, found in sets.items() if "0" in found["aligner"]),
        "",
        _where(record),
    ]
    return "\n".join(lines)


def _amount(amount: str) -> str:
    return {"0": "bitext only", "all": "all gold pairs"}.get(amount, f"{amount} gold pairs")


def _row(name: str, found: dict[str, Any], others: dict[str, Any]) -> tuple[str, ...]:
    best = {column: _best(others, systems) for column, systems in OTHERS.items()}
    return (
        name,
        f"{found['pairs']:,}",
        f"{found['eflomal']['best']['mean']:.3f}",
        *best.values(),
        f"{found['teacher_alone']['test_aer']:.3f}",
        *(_mean(found, amount) for amount in SHOWN),
    )


def _best(others: dict[str, Any], systems: Sequence[str]) -> str:
    """Return the least AER of all outputs of these systems."""
    aers = [value["aer"] for key, value in others.items() if isinstance(value, dict) and key.startswith(tuple(systems))]
    return f"{min(aers):.3f}" if aers else "-"


def _mean(found: dict[str, Any], amount: str) -> str:
    runs = found["aligner"].get(amount, {}).values()
    if not runs:
        return "-"
    joined = found.get("joined", {}).get(amount)
    said = [f"joined {joined['test']:.3f}"] if joined else []
    said += [] if len(runs) == SEEDS else [f"seeds: {len(runs)}"]
    mean = f"{statistics.mean(run['test_aer'] for run in runs):.3f}"
    return f"{mean} ({', '.join(said)})" if said else mean


def _significance(found: dict[str, Any]) -> str:
    """Say how the aligner without hand-made links compares with eflomal, each seed with one of eflomal's."""
    pairings = [run["against_eflomal"] for _, run in sorted(found["aligner"]["0"].items())]
    differences = ", ".join(f"{each['difference']:+.4f} (p {each['p_value']:.4f})" for each in pairings)
    minutes = {
        amount: statistics.mean(run["seconds"] for run in runs.values()) / 60
        for amount, runs in found["aligner"].items()
    }
    took = ", ".join(f"{_amount(amount)} {minutes[amount]:.1f}" for amount in SHOWN if amount in minutes)
    return (
        f"against eflomal's best output ({found['eflomal']['best']['output']}), seed by seed, paired bootstrap of "
        f"{pairings[0]['resamples']:,} resamples: {differences}. Minutes of training: {took}"
    )


def _where(record: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    hardware = record["hardware"]
    return (
        f"Means of {SEEDS} seeds unless another number is given; joined: the networks of all seeds together. Measured "
        f"on {hardware['threads']} of {hardware['cpus']} CPU cores; {versions}."
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table; none without rows."""
    if rows:
        yield "| " + " | ".join(head) + " |"
        yield "|" + "---|" * len(head)
        yield from ("| " + " | ".join(row) + " |" for row in rows)


def card(record: dict[str, Any], others: dict[str, Any]) -> str:
    """Return the model card of the aligners that `train-aligner` makes by default."""
    return f"""---
library_name: hf-seq2seq-attn
tags:
- word-alignment
---
# Word aligners by `seq2seq-attn train-aligner`

    seq2seq-attn train-aligner SOURCE TARGET -o DIR [--gold PART.align] [--links OUT]

Two encoders of words and their letters, one cross-attention in each direction (scaled dot product or additive) with a
column for words without a partner, and a small convolution over the grid of both; it is trained on the links that a
statistical aligner finds on several forms of the text. The convolution sees the words that meet in a cell, too. Where
some pairs are hand-aligned the network is then trained on those, and twice more from new on all of the text as it reads
it by then (self-training); where most are, it passes over them three times as often instead. All figures are of the
default settings. This card is written by `benchmarks/alignment/aligner_table.py` from
`benchmarks/results/aligner.json` and `statistical_aligners.json`.

{tables(record, others)}

## How to read it
- Text of all parts is trained on, that of the test part too, without its links, as every statistical aligner is given
  it. Hand-made links are those of the training part only, drawn by the seed; where the column says bitext only, none is
  used anywhere, thresholds included. Development parts chose the default settings; test parts chose nothing.
- Words are those of the sets, lower-cased for eflomal. `(grc-lemma)` has Greek lemmas instead of the words;
  `+ grc-lemma` and `+ he-strongs` have them beside the words (`--source-lemmas`), and there eflomal reads the lemmas.
  All words count, punctuation included.
- eflomal runs as it is by default, once for each seed; of its two directions and their symmetrisations that which is
  best on the test part is shown, which favours it. So are the best of sil-thot's aligners and of `builtin`.
- The teacher alone is eflomal as the aligner runs it: another prior for words without a partner, several forms of the
  text (prefixes, without marks, lower case), punctuation left out where the other side has none. Of its forms, their
  symmetrisations and the mean of all, that which is best on the test part is shown, which favours it.

## Limits
It aligns texts of the language pair and the kind that it was trained on. Manual links of the Bible sets are those of
Clear Bible, of NETtalk those of its authors; an aligner follows the conventions that it was shown, and no other.
"""


if __name__ == "__main__":
    sys.exit(main())
