"""Scores of parts of a corpus: by sentence length, by fertility, without punctuation.

The parts of one breakdown are disjoint and complete: their links, sure and possible links add up to the corpus's.
"""

import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from .aligned_pair import Gold
from .link_types import Link, Links
from .scores import AlignmentScore, count_links, score_counts

LENGTHS = (10, 20, 30, 40)
_SIDES = ("source", "target")
_MOST = 3


def score_by_length(
    links: Sequence[Iterable[Link]], gold: Sequence[Gold], lengths: Sequence[int], bounds: Sequence[int] = LENGTHS
) -> dict[str, AlignmentScore]:
    """Score the sentences of each range of lengths apart; a range without sentences is left out.

    Args:
        links, gold: as in `score_links`.
        lengths: words of each sentence, of the side that is asked about.
        bounds: the last length of each range, rising; `(10, 20)` gives 0-10, 11-20 and 21+.
    """
    counts = count_links(links, gold)
    if len(lengths) != len(counts):
        raise ValueError(f"{len(lengths)} lengths but {len(counts)} sentences; give one for each")
    if not bounds or list(bounds) != sorted(set(bounds)):
        raise ValueError(f"bounds is {bounds!r}; they must rise, e.g. {LENGTHS}")
    starts = [0, *(bound + 1 for bound in bounds)]
    names = [f"{start}-{bound}" for start, bound in zip(starts, bounds, strict=False)] + [f"{starts[-1]}+"]
    part = np.array([bisect_left(bounds, length) for length in lengths], dtype=np.int64)
    return {name: score_counts(counts[part == k]) for k, name in enumerate(names) if (part == k).any()}


def score_by_fertility(links: Sequence[Iterable[Link]], gold: Sequence[Gold], side: str) -> dict[str, AlignmentScore]:
    """Score the links of words with 0, 1, 2 and 3 or more possible gold links apart.

    A link belongs to the class of its word on `side`. In class 0 no link is right: its AER is 1 as soon as there is
    one, and `links` counts the links of words that have none in gold.

    Args:
        links, gold: as in `score_links`.
        side: `source` or `target`: whose words are classed.
    """
    if side not in _SIDES:
        raise ValueError(f"side is {side!r}; allowed are {', '.join(_SIDES)}")
    parts = _counts_by_fertility(links, gold, _SIDES.index(side))
    names = [*map(str, range(_MOST)), f"{_MOST}+"]
    return {name: score_counts(part) for name, part in zip(names, parts, strict=True)}


def _counts_by_fertility(links: Sequence[Iterable[Link]], gold: Sequence[Gold], place: int) -> np.ndarray:
    """Return the counts of `count_links` of each class, (classes, sentences, 5)."""
    counts = np.zeros((_MOST + 1, len(gold), 5), dtype=np.int64)
    for number, (ours, manual) in enumerate(zip(links, gold, strict=True)):
        fertility = Counter(link[place] for link in manual.possible)
        cells = [[0] * 5 for _ in range(_MOST + 1)]
        for link in frozenset(ours):
            cell = cells[min(fertility[link[place]], _MOST)]
            cell[0] += 1
            cell[3] += link in manual.sure
            cell[4] += link in manual.possible
        for link in manual.possible:
            cell = cells[min(fertility[link[place]], _MOST)]
            cell[1] += link in manual.sure
            cell[2] += 1
        counts[:, number] = cells
    return counts


@lru_cache(maxsize=100_000)
def is_punctuation(word: str) -> bool:
    """Tell whether a word is made of punctuation only: every character of Unicode category P."""
    return bool(word) and all(unicodedata.category(character).startswith("P") for character in word)


def without_punctuation(
    links: Sequence[Iterable[Link]],
    gold: Sequence[Gold],
    sources: Sequence[Sequence[str]],
    targets: Sequence[Sequence[str]],
) -> tuple[list[Links], list[Gold]]:
    """Drop every link, ours and gold, that has a punctuation word on either side; see `is_punctuation`.

    Args:
        links, gold: as in `score_links`.
        sources, targets: the words that the links count.

    Raises:
        ValueError: unequal numbers of sentences, or a link outside its sentence (naming the sentence, from 1).
    """
    kept_links, kept_gold = [], []
    pairs = enumerate(zip(links, gold, sources, targets, strict=True), start=1)
    for number, (ours, manual, source, target) in pairs:
        marks = [{k for k, word in enumerate(words) if is_punctuation(word)} for words in (source, target)]
        kept = []
        for each in (frozenset(ours), manual.sure, manual.possible):
            if any(i >= len(source) or j >= len(target) for i, j in each):
                raise ValueError(
                    f"sentence {number}: a link goes beyond {len(source)} source or {len(target)} target words"
                )
            kept.append(frozenset((i, j) for i, j in each if i not in marks[0] and j not in marks[1]))
        kept_links.append(kept[0])
        kept_gold.append(Gold(kept[1], kept[2]))
    return kept_links, kept_gold
