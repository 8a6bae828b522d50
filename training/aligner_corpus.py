"""Everything that `train-aligner` and `align` read, checked line by line before any work is done.

Texts are verse-aligned files or ordinary ones, see `probing.Verse`: `<range>` lines are merged into the line above, and
results are written back with a blank line for each, so that N lines in are N lines out. Line numbers of links, gold and
fixed links are those of the texts.
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hf_seq2seq_attn.probing import (
    FORMATS,
    LEXICON_COLUMNS,
    BitextLine,
    Gold,
    Links,
    Verse,
    format_of,
    iterate_bitext,
    unmerged,
)
from hf_seq2seq_attn.text_files import InputError, iterate_lines

from .aligner_data import AlignerData, StoredWeights, TeacherLinks, shared_out

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AlignerFiles:
    """The files of a bitext.

    Attributes:
        source, target: a sentence or verse a line, words split by white space.
        ids: the name of each line's verse, for messages.
        source_lemmas, target_lemmas: one lemma for each word.
    """

    source: Path
    target: Path
    ids: Path | None = None
    source_lemmas: Path | None = None
    target_lemmas: Path | None = None

    def by_option(self) -> dict[str, Path | None]:
        """Return the files by what the command line calls them."""
        return {
            "SOURCE": self.source,
            "TARGET": self.target,
            "--ids": self.ids,
            "--source-lemmas": self.source_lemmas,
            "--target-lemmas": self.target_lemmas,
        }


@dataclass(frozen=True)
class AlignerText:
    """A bitext as read; lists have one entry for each verse, which takes one or more lines of the files.

    Attributes:
        files: where it comes from.
        verses: where each stands.
        source, target: words as they are in the files; an empty list where there are none.
        source_lemmas, target_lemmas: one for each word; None without a file of them.
        digest: SHA-256 of the words and lemmas of each line.
    """

    files: AlignerFiles
    verses: list[Verse]
    source: list[list[str]]
    target: list[list[str]]
    source_lemmas: list[list[str]] | None
    target_lemmas: list[list[str]] | None
    digest: str

    @property
    def lines(self) -> int:
        """Return the number of lines of each file."""
        return sum(verse.lines for verse in self.verses)

    def place(self, pair: int) -> str:
        """Return where a pair stands, for messages: `FILE:12 (MAT 1:2)`."""
        return f"{self.files.source}:{self.verses[pair].place}"

    def per_line(self, results: Iterable[T], blank: T) -> Iterator[T]:
        """Yield one result for each line of the files: `blank` on lines that were merged into the one above."""
        return unmerged(self.verses, results, blank)


def read_text(files: AlignerFiles) -> AlignerText:
    """Read a bitext.

    Raises:
        InputError: `FILE:LINE: what; remedy`; names the verse where there is a file of names.
    """
    rows: list[BitextLine] = list(
        iterate_bitext(
            files.source,
            files.target,
            ids=files.ids,
            source_lemmas=files.source_lemmas,
            target_lemmas=files.target_lemmas,
        )
    )
    source, target = [row.source for row in rows], [row.target for row in rows]
    source_lemmas = None if files.source_lemmas is None else [row.source_lemmas or [] for row in rows]
    target_lemmas = None if files.target_lemmas is None else [row.target_lemmas or [] for row in rows]
    digest = hashlib.sha256()
    verses = [row.verse for row in rows]
    for channel in (source, target, source_lemmas, target_lemmas):
        for words, verse in zip([] if channel is None else channel, verses, strict=False):
            # With the ends of merged lines: results go to lines, so the same words on other lines are another text.
            digest.update((" ".join(words) + "\n" * verse.lines).encode())
        digest.update(b"\0")
    return AlignerText(files, verses, source, target, source_lemmas, target_lemmas, digest.hexdigest())


def check_trainable(text: AlignerText) -> None:
    """Raise an InputError unless some pair has words on both sides."""
    if not any(source and target for source, target in zip(text.source, text.target, strict=True)):
        raise InputError(
            f"{text.files.source}: no line has words here and in {text.files.target}; there is nothing to learn from"
        )


def read_gold_links(path: str | Path, text: AlignerText, base: int | None = None) -> dict[int, Gold]:
    """Return the hand-made links of the pairs that have some, by pair number from 0; blank lines are not annotated.

    Args:
        path: of any format that `probing.iterate_pairs` reads, a line for each line of the text.
        base: what the file counts from, if that is not settled by its format; None = found.

    Raises:
        InputError: another number of lines than the text, an index outside its sentence, links on a `<range>` line, no
            link at all.
    """
    rows = _with_links(path, text, base)
    gold = {pair: Gold(row.sure or frozenset(), row.links) for pair, row in enumerate(rows) if row.links}
    if not gold:
        raise InputError(f"{path}: has no link in any line; give a file with links, or leave it out")
    return gold


def read_fixed_links(path: str | Path, text: AlignerText, base: int | None = None) -> dict[int, Links]:
    """Return the links that must come out, by pair number; arguments and errors as in `read_gold_links`."""
    return {pair: gold.possible for pair, gold in read_gold_links(path, text, base).items()}


def read_teacher_links(path: str | Path, text: AlignerText, base: int | None = None) -> TeacherLinks:
    """Return the links of a file as those of both directions, with their probabilities where the file has them.

    The weights of a word with several partners are scaled to a sum of 1, in each direction. Arguments and errors as in
    `read_gold_links`.
    """
    rows = _with_links(path, text, base)
    weights = StoredWeights({link: row.probabilities.get(link, 1.0) for link in row.links or ()} for row in rows)
    return TeacherLinks(*(StoredWeights(shared_out(each, side) for each in weights) for side in (1, 0)))


def read_lexicon(path: str | Path) -> list[tuple[str, str]]:
    """Return the word pairs of a file with a source and a target word a line, between them a tab; further columns,
    such as a count, and blank lines are passed over.

    What the command `lexicon` wrote can be given as it is: its heading, words without a link and renderings of several
    words are passed over; how many is logged.

    Raises:
        InputError: a line with one column, or no pair of words at all.
    """
    pairs, passed = [], 0
    for number, line in enumerate(iterate_lines(path), start=1):
        if not line.strip() or (number == 1 and tuple(line.split("\t")) == LEXICON_COLUMNS):
            continue
        columns = line.split("\t")
        words = [column.split() for column in columns[:2]]
        if len(columns) < 2 or not words[0] or (not words[1] and len(columns) < len(LEXICON_COLUMNS)):
            raise InputError(
                f"{path}:{number}: {line.strip()!r} has no two columns; write SOURCE<tab>TARGET, one word each"
            )
        if len(words[0]) == len(words[1]) == 1:
            pairs.append((words[0][0], words[1][0]))
        else:
            passed += 1
    if not pairs:
        raise InputError(f"{path}: has no pair of single words; write SOURCE<tab>TARGET, one word each")
    if passed:
        logger.warning("%s: %d lines passed over, which do not have one word on each side", path, passed)
    return pairs


def aligner_data(
    text: AlignerText,
    *,
    teachers: Sequence[TeacherLinks] = (),
    gold: dict[int, Gold] | None = None,
    fixed: dict[int, Links] | None = None,
    lexicon: Sequence[tuple[str, str]] = (),
) -> AlignerData:
    """Return a text and what is known about its links in the form that `fit_aligner` takes."""
    return AlignerData(
        text.source,
        text.target,
        text.source_lemmas,
        text.target_lemmas,
        teachers=teachers,
        gold=gold or {},
        fixed=fixed or {},
        lexicon=lexicon,
    )


def _with_links(path: str | Path, text: AlignerText, base: int | None) -> list[BitextLine]:
    """Return the text with links; lemmas have a say in which lines are merged, so they are read again, too."""
    files = text.files
    if FORMATS[format_of(path)].base is not None:
        # One base is given for several files; it is for those whose format leaves it open.
        base = None
    rows = iterate_bitext(
        files.source,
        files.target,
        path,
        ids=files.ids,
        source_lemmas=files.source_lemmas,
        target_lemmas=files.target_lemmas,
        base=base,
    )
    return list(rows)
