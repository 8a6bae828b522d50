"""Sentence pairs as the tools for translators read them: words, lemmas, links and where they stand, one at a time."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hf_seq2seq_attn.text_files import InputError

from .aligned_pair import AlignedPair, Gold
from .formats import BLANK_ENDS, FORMATS, format_of, settle_base
from .link_types import Link, Links
from .verses import Verse, iterate_verses

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BitextLine:
    """One sentence pair, or several lines that were merged into one (see `verses`).

    Attributes:
        verse: where it stands, with the texts as they are in the files.
        source, target: words, split at white space.
        links: (source word, target word), 0-based, sure and possible alike; None without a file of links.
        probabilities: of the links that have one.
        source_lemmas, target_lemmas: one for each word; None without a file of them.
        sure: those of `links` that are sure, see `Gold`.
    """

    verse: Verse
    source: list[str]
    target: list[str]
    links: Links | None = None
    probabilities: Mapping[Link, float] = field(default_factory=dict)
    source_lemmas: list[str] | None = None
    target_lemmas: list[str] | None = None
    sure: Links | None = None


def iterate_bitext(
    source: str | Path,
    target: str | Path,
    links: str | Path | None = None,
    *,
    ids: str | Path | None = None,
    source_lemmas: str | Path | None = None,
    target_lemmas: str | Path | None = None,
    base: int | None = None,
) -> Iterator[BitextLine]:
    """Yield the sentence pairs of a corpus, in order and in constant memory; every file may be plain or `.gz`.

    Args:
        source, target: text, words separated by white space; `<range>` lines are merged upward, see `verses`.
        links: of any format that `iterate_pairs` reads, a line for each line of the text (blank for a merged one).
        ids: names of the verses.
        source_lemmas, target_lemmas: text with one lemma for each word.
        base: what `links` counts from; None = found.

    Raises:
        InputError: unequal numbers of lines, another number of lemmas than words, an index outside its sentence, links
            on a line that was merged into the one above; names file, line and verse.
    """
    extra = [path for path in (source_lemmas, target_lemmas) if path is not None]
    pairs = None if links is None else _Links(Path(links), base, (source, target))
    for verse in iterate_verses(source, target, *extra, ids=ids):
        source_words, target_words, *lemmas = (text.split() for text in verse.texts)
        found = None if pairs is None else pairs.of(verse, len(source_words), len(target_words))
        yield BitextLine(
            verse,
            source_words,
            target_words,
            None if found is None else found.gold.possible,
            {} if found is None else found.probabilities,
            None if source_lemmas is None else _checked(lemmas[0], source_words, source_lemmas, verse),
            None if target_lemmas is None else _checked(lemmas[-1], target_words, target_lemmas, verse),
            None if found is None else found.gold.sure,
        )
    if pairs is not None:
        pairs.check_end(source)


def _checked(lemmas: list[str], words: list[str], path: str | Path, verse: Verse) -> list[str]:
    if len(lemmas) != len(words):
        raise InputError(
            f"{path}:{verse.place}: {len(lemmas)} lemmas for {len(words)} words; write one for each, e.g. the word "
            "itself where there is none"
        )
    return lemmas


def _lengths(source: str | Path, target: str | Path) -> tuple[list[int], list[int]]:
    """Return the number of words in each line of two files; merged lines have none."""
    lengths: tuple[list[int], list[int]] = ([], [])
    for verse in iterate_verses(source, target):
        for side, text in zip(lengths, verse.texts, strict=True):
            side += [len(text.split()), *[0] * (verse.lines - 1)]
    return lengths


class _Links:
    """The pairs of an alignment file, taken verse by verse."""

    def __init__(self, path: Path, base: int | None, texts: tuple[str | Path, str | Path]) -> None:
        self.path = path
        name = format_of(path)
        found = settle_base(path, name, base)
        if not found.certain:
            found = settle_base(path, name, base, *_lengths(*texts))
        if not found.certain:
            logger.warning(
                "%s: %s, counting from %d; if that is wrong, give the base", path, found.evidence, found.first
            )
        self.pairs = FORMATS[name].read(path, found.first)
        self.may_end_early = BLANK_ENDS not in FORMATS[name].keeps
        self.read = 0

    def of(self, verse: Verse, source_length: int, target_length: int) -> AlignedPair:
        first = self._next(verse)
        for offset in range(1, verse.lines):
            if self._next(verse).gold.possible:
                raise InputError(
                    f"{self.path}:{verse.line + offset}: links on a line that belongs to the verse above, "
                    f"{verse.place}; put them there, counted in the joined text, or align again"
                )
        for side, length, name in ((0, source_length, "source"), (1, target_length, "target")):
            worst = max((link[side] for link in first.gold.possible), default=-1)
            if worst >= length:
                raise InputError(
                    f"{self.path}:{verse.place}: {name} index {worst} (counted from 0), but the sentence has {length} "
                    "words; check that links and text have the same words"
                )
        return first

    def _next(self, verse: Verse) -> AlignedPair:
        pair = next(self.pairs, None)
        self.read += pair is not None
        if pair is None and not self.may_end_early:
            raise InputError(
                f"{self.path}:{self.read + 1}: ends before line {verse.place} of the text; line N of the links must "
                "belong to line N of the text"
            )
        return pair or AlignedPair(Gold(frozenset(), frozenset()))

    def check_end(self, text: str | Path) -> None:
        left = next(self.pairs, None)
        if left is not None:
            raise InputError(
                f"{self.path}:{left.line}: more lines than {text}; line N of the links must belong to line N of the "
                "text"
            )


@dataclass(frozen=True)
class Bitext:
    """A corpus on disk that can be read more than once, each time by `iterate_bitext`, whose arguments it holds."""

    source: str | Path
    target: str | Path
    links: str | Path | None = None
    ids: str | Path | None = None
    source_lemmas: str | Path | None = None
    target_lemmas: str | Path | None = None
    base: int | None = None

    def __iter__(self) -> Iterator[BitextLine]:
        return iterate_bitext(
            self.source,
            self.target,
            self.links,
            ids=self.ids,
            source_lemmas=self.source_lemmas,
            target_lemmas=self.target_lemmas,
            base=self.base,
        )
