"""`--suggest`: the lines to align by hand next, as a table on stdout and beside the aligner."""

import sys
from collections.abc import Collection
from pathlib import Path

from hf_seq2seq_attn.probing import write_atomically

from .aligner_corpus import AlignerText
from .aligner_inference import soft_links
from .suggestions import Suggestion, suggest_pairs

SUGGESTIONS_FILE = "suggestions.tsv"
COLUMNS = ("line", "verse", "doubt", "words", "source", "target")


def write_suggestions(folder: Path, text: AlignerText, count: int, annotated: Collection[int]) -> list[Suggestion]:
    """Choose lines by what the finished aligner in `folder` says about them, and write `suggestions.tsv` there."""
    found = suggest_pairs(text.source, text.target, soft_links(folder, text), count, annotated=annotated)
    write_atomically(folder / SUGGESTIONS_FILE, _table(text, found))
    return found


def print_suggestions(text: AlignerText, found: list[Suggestion]) -> None:
    """Print the table; lines count from 1."""
    sys.stdout.writelines(_table(text, found))


def _table(text: AlignerText, found: list[Suggestion]) -> list[str]:
    rows = [COLUMNS]
    for each in found:
        verse = text.verses[each.pair]
        rows.append(
            (
                str(verse.line),
                " ".join((verse.verse_id or "").split()),
                f"{each.uncertainty:.3f}",
                " ".join(each.words),
                " ".join(text.source[each.pair]),
                " ".join(text.target[each.pair]),
            )
        )
    return ["\t".join(row) + "\n" for row in rows]
