"""A bilingual lexicon from aligned text: what each source word was rendered by, how often, and where.

The rendering of an occurrence of a source word is all target words that it is linked to, in their order: one word,
several (`kingdom of heaven`), or several with others between (`took … up`). Shared links count for every word that has
them, so an article may be rendered by its noun.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .bitext import BitextLine

GAP = "…"


LEXICON_COLUMNS = (
    "source",
    "target",
    "count",
    "source_count",
    "target_count",
    "p_target_given_source",
    "p_source_given_target",
    "examples",
)
"""Of the table that the command `lexicon` writes."""


@dataclass(frozen=True)
class LexiconEntry:
    """One source word, or lemma, and one rendering.

    Attributes:
        source: the word.
        target: its rendering, words joined by spaces and, where others stand between, by `…`; None for the occurrences
            without a link.
        count: how often it was rendered so.
        source_count: occurrences of the source word, without links too.
        target_count: how often any source word was rendered so; 0 for None.
        examples: places of the first occurrences: names of verses, else numbers of lines.
    """

    source: str
    target: str | None
    count: int
    source_count: int
    target_count: int
    examples: tuple[str, ...]

    @property
    def target_given_source(self) -> float:
        """Return count / source_count: the share of this rendering; those of one word sum to 1."""
        return self.count / self.source_count

    @property
    def source_given_target(self) -> float | None:
        """Return count / target_count; None for words without a link."""
        return None if self.target is None else self.count / self.target_count


class Lexicon:
    """Counts of words and their renderings, gathered line by line.

    Memory grows with the number of different pairs, not with the corpus.

    Args:
        examples: how many places to keep for each pair.
        ignore_case: count `God` and `god` as one, written in lower case.
    """

    def __init__(self, *, examples: int = 3, ignore_case: bool = False) -> None:
        if examples < 0:
            raise ValueError(f"examples is {examples}; it must be at least 0")
        self._examples = examples
        self._ignore_case = ignore_case
        self._pairs: dict[str, dict[str | None, int]] = {}
        self._places: dict[tuple[str, str | None], list[str]] = {}
        self._targets: Counter[str] = Counter()

    def add(self, line: BitextLine) -> None:
        """Count the words of one sentence pair; lemmas stand for the words where the line has them.

        Raises:
            ValueError: a line without links.
        """
        if line.links is None:
            raise ValueError(f"line {line.verse.place} has no links; a lexicon is read off linked words")
        sources = self._written(line.source_lemmas or line.source)
        targets = self._written(line.target_lemmas or line.target)
        linked: list[list[int]] = [[] for _ in sources]
        for i, j in line.links:
            linked[i].append(j)
        place = line.verse.verse_id or str(line.verse.line)
        for source, found in zip(sources, linked, strict=True):
            target = rendering(targets, found) if found else None
            renderings = self._pairs.setdefault(source, {})
            renderings[target] = renderings.get(target, 0) + 1
            if target is not None:
                self._targets[target] += 1
            places = self._places.setdefault((source, target), [])
            if len(places) < self._examples and place not in places:
                places.append(place)

    def entries(
        self, *, min_count: int = 1, top_words: int | None = None, top_targets: int | None = None
    ) -> Iterator[LexiconEntry]:
        """Yield the entries: frequent source words first, then frequent renderings; ties in the order of the alphabet.

        Args:
            min_count: leave out rarer pairs; counts of words stay those of all.
            top_words: only so many source words.
            top_targets: only so many renderings of each, words without a link among them.
        """
        totals = {source: sum(renderings.values()) for source, renderings in self._pairs.items()}
        words = sorted(totals, key=lambda source: (-totals[source], source))
        for source in words[:top_words]:
            renderings = self._pairs[source].items()
            kept = [(-count, target or "", target) for target, count in renderings if count >= min_count]
            best = sorted(kept) if top_targets is None else heapq.nsmallest(top_targets, kept)
            for negative, _, target in best:
                yield LexiconEntry(
                    source,
                    target,
                    -negative,
                    totals[source],
                    0 if target is None else self._targets[target],
                    tuple(self._places[source, target]),
                )

    def _written(self, words: list[str]) -> list[str]:
        return [word.lower() for word in words] if self._ignore_case else words


def build_lexicon(lines: Iterable[BitextLine], *, examples: int = 3, ignore_case: bool = False) -> Lexicon:
    """Return the lexicon of a corpus, read once.

    Args:
        lines: of `iterate_bitext`, with links.
        examples, ignore_case: as in `Lexicon`.
    """
    lexicon = Lexicon(examples=examples, ignore_case=ignore_case)
    for line in lines:
        lexicon.add(line)
    return lexicon


def rendering(words: list[str], chosen: Iterable[int]) -> str:
    """Return the chosen words in their order, `…` where others stand between them."""
    parts: list[str] = []
    last: int | None = None
    for j in sorted(set(chosen)):
        if last is not None and j > last + 1:
            parts.append(GAP)
        parts.append(words[j])
        last = j
    return " ".join(parts)
