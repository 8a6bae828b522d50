"""Verse-aligned text as Bible translators keep it: one verse a line in each file, a further file that names the
verses, blank lines for verses without text, and `<range>` lines.

`<range>` stands where a verse has no text of its own because it was translated together with the verse above. Such
lines are merged upward for reading, in every file at once, so that what is read together belongs together; results are
written back with a blank line for each line that was merged. A file without `<range>` is an ordinary one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from hf_seq2seq_attn.text_files import InputError, iterate_lines

RANGE = "<range>"
T = TypeVar("T")


@dataclass(frozen=True)
class Verse:
    """One verse, or several that were translated together, of files that belong together line by line.

    Attributes:
        line: where it begins in the files, from 1.
        texts: one for each file; texts of merged lines are joined by spaces, blank where there is none.
        verse_id: the name of its first line; None without a file of names.
        lines: how many lines of the files it takes.
    """

    line: int
    texts: tuple[str, ...]
    verse_id: str | None = None
    lines: int = 1

    @property
    def place(self) -> str:
        """Return where it is, for messages: `12`, or `12 (MAT 1:2)`."""
        return str(self.line) if self.verse_id is None else f"{self.line} ({self.verse_id})"


def iterate_verses(*paths: str | Path, ids: str | Path | None = None) -> Iterator[Verse]:
    """Yield the verses of several files, plain or `.gz`, one at a time; ordinary lines are verses too.

    Args:
        paths: files with as many lines each.
        ids: a file with the name of each line's verse, e.g. `MAT 1:2`.

    Raises:
        InputError: a file that cannot be read, one with fewer lines than another, `<range>` on the first line, a line
            of `ids` without a name; says which line, and which verse.
    """
    columns = [*paths] if ids is None else [*paths, ids]
    verse: Verse | None = None
    for number, row in enumerate(zip_longest(*map(iterate_lines, columns)), start=1):
        if None in row:
            raise _uneven(columns, row, number)
        texts, name = (row, None) if ids is None else (row[:-1], row[-1].strip())
        if name == "":
            raise InputError(f"{ids}:{number}: no name of a verse; every line must have one, e.g. MAT 1:2")
        if RANGE not in (stripped := [text.strip() for text in texts]):
            if verse is not None:
                yield verse
            verse = Verse(number, texts, name)
        elif verse is None:
            raise InputError(
                f"{paths[stripped.index(RANGE)]}:{number}: {RANGE} on the first line has no verse above to belong to; "
                "leave the line blank"
            )
        else:
            joined = (_joined(above, text) for above, text in zip(verse.texts, stripped, strict=True))
            verse = Verse(verse.line, tuple(joined), verse.verse_id, verse.lines + 1)
    if verse is not None:
        yield verse


def unmerged(verses: Iterable[Verse], results: Iterable[T], blank: T) -> Iterator[T]:
    """Yield one result for each line of the files: the verse's on its first line, `blank` on those merged into it.

    Raises:
        ValueError: not as many results as verses.
    """
    for verse, result in zip(verses, results, strict=True):
        yield result
        for _ in range(verse.lines - 1):
            yield blank


def _joined(above: str, text: str) -> str:
    return " ".join(part for part in (above, "" if text == RANGE else text) if part.strip())


def _uneven(paths: list[str | Path], texts: tuple[str | None, ...], number: int) -> InputError:
    ended = paths[texts.index(None)]
    longer = next(path for path, text in zip(paths, texts, strict=True) if text is not None)
    return InputError(
        f"{ended}:{number}: {number - 1} lines, but {longer} has more; line N of one file must belong to line N of the "
        "other"
    )
