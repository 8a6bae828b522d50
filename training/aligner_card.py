"""The card of an aligner, written from its record: no number in it was typed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.probing import write_atomically

from .run_record import CARD_FILE


def write_aligner_card(folder: Path, record: Mapping[str, Any]) -> Path:
    """Write the card into the folder; return its path."""
    path = folder / CARD_FILE
    write_atomically(path, [aligner_card(record)])
    return path


def aligner_card(record: Mapping[str, Any]) -> str:
    """Return the card's text, Markdown with a front matter of the Hub's."""
    lemmas = [side for side in ("source", "target") if record["lemmas"][side]]
    options = "".join(f" --{side}-lemmas {side.upper()}_LEMMAS" for side in lemmas)
    rows = [
        ("pairs with words on both sides", f"{record['pairs']} of {record['lines']} lines"),
        ("kind of text", "letters or sounds" if record["letters"] else "words"),
        ("words", f"{record['source_words']} source, {record['target_words']} target"),
        ("teachers", _listed(record["teachers"])),
        ("forms of the text they read", _listed(record["forms"])),
        ("hand-made links", f"{record['gold_links']} in {record['gold_pairs']} pairs"),
        ("fixed links", str(record["fixed_links"])),
        ("pairs of the lexicon", str(record["lexicon_pairs"])),
        ("lemmas", _listed(lemmas)),
        ("seeds", _listed(map(str, record["seeds"]))),
        ("minutes", f"{record['minutes']} on {record['hardware']['device']}, {record['hardware']['threads']} threads"),
        ("links found", str(record["links"])),
        (
            "words with a link",
            f"{_share(record, 'source')} of the source, {_share(record, 'target')} of the target",
        ),
    ]
    table = "".join(f"| {name} | {value} |\n" for name, value in rows)
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return f"""---
library_name: hf-seq2seq-attn
tags:
- word-alignment
---
# A word aligner

Trained by `seq2seq-attn train-aligner` on one bitext. It aligns further text of the same two languages and kind:

    seq2seq-attn align DIR NEW_SOURCE NEW_TARGET -o OUT.align{options}

Links count words from 0, as white space splits them, source first. `{CARD_FILE}`, `aligner.json` (settings, versions,
digests), `network*` (weights and vocabulary), `builtin` (statistical tables for new text) and
`links.pharaoh-p.gz` (the links of the training text, with probabilities) belong together.

| | |
|---|---|
{table}
Its error rate is not known from this run: hand-made links that it was trained on say nothing about others. Score it by
`seq2seq-attn score` on lines whose links it has not seen.

Versions: {versions}.
"""


def _listed(values: Any) -> str:
    return ", ".join(values) or "none"


def _share(record: Mapping[str, Any], side: str) -> str:
    return f"{record[f'linked_{side}_words'] / max(record[f'{side}_words'], 1):.0%}"
