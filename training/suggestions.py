"""Which lines to align by hand next: those that teach most about words whose links are unsure, and no two alike.

A line's gain is the sum over its different words of how unsure the word's links are there, times how unsure they are in
the whole text (its square root, so that one frequent word does not decide alone), halved each time that a chosen line
has the word already; over the square root of the line's length, as long lines take longer. Lines are chosen one by one
by the largest gain, the usual greedy choice for a sum with falling returns (Nemhauser, Wolsey and Fisher 1978).
"""

import heapq
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

ALIKE = 0.8
"""Lines that share so much of their words (of both sides, counted; the smaller share of both) are near-duplicates."""
_Word = tuple[int, str]


@dataclass(frozen=True)
class Suggestion:
    """A pair to align by hand.

    Attributes:
        pair: its number, from 0.
        gain: what it was chosen by; only the order means anything.
        uncertainty: mean entropy (in bits) of its words' links.
        words: the words that most of the gain comes from, most first, as they are in the text.
    """

    pair: int
    gain: float
    uncertainty: float
    words: tuple[str, ...]


def suggest_pairs(
    sources: Sequence[Sequence[str]],
    targets: Sequence[Sequence[str]],
    posteriors: Sequence[np.ndarray],
    count: int,
    *,
    annotated: Collection[int] = (),
) -> list[Suggestion]:
    """Return at most `count` pairs, the most helpful first.

    Args:
        posteriors: (T, S) float for each pair, the probability of each link.
        annotated: pairs that are aligned by hand already; none of them, nor of their near-duplicates, is suggested, and
            their words count as seen.
    """
    if count < 1:
        raise ValueError(f"count is {count}; it must be at least 1")
    bags = [_bag(source, target) for source, target in zip(sources, targets, strict=True)]
    doubts = [_doubts(*pair) for pair in zip(sources, targets, posteriors, strict=True)]
    corpus: Counter[_Word] = Counter()
    for each in doubts:
        corpus.update(each)
    chooser = _Chooser(bags, doubts, corpus)
    for pair in sorted(annotated):
        chooser.take(pair)
    found: list[Suggestion] = []
    waiting = [(-chooser.gain(pair), pair) for pair in range(len(bags)) if bags[pair] and pair not in set(annotated)]
    heapq.heapify(waiting)
    while waiting and len(found) < count:
        _, pair = heapq.heappop(waiting)
        gain = chooser.gain(pair)
        # Gains only fall: a pair that is still ahead of the next one's old gain is the best.
        if waiting and -waiting[0][0] > gain:
            heapq.heappush(waiting, (-gain, pair))
            continue
        if gain <= 0:
            break
        if chooser.is_new(pair):
            doubt = sum(doubts[pair].values()) / sum(bags[pair].values())
            found.append(Suggestion(pair, gain, doubt, chooser.reasons(pair, sources[pair], targets[pair])))
            chooser.take(pair)
    return found


class _Chooser:
    """What was chosen so far, and what another pair would add."""

    def __init__(self, bags: list[Counter[_Word]], doubts: list[dict[_Word, float]], corpus: Counter[_Word]) -> None:
        self.bags, self.doubts, self.corpus = bags, doubts, corpus
        self.seen: Counter[_Word] = Counter()
        self.holding: dict[_Word, list[int]] = {}

    def gain(self, pair: int) -> float:
        return sum(self._gains(pair).values()) / max(sum(self.bags[pair].values()), 1) ** 0.5

    def reasons(self, pair: int, source: Sequence[str], target: Sequence[str]) -> tuple[str, ...]:
        gains = self._gains(pair)
        written = {(side, word.lower()): word for side, words in ((1, target), (0, source)) for word in words}
        best = sorted(gains, key=lambda word: (-gains[word], word))[:3]
        return tuple(written[word] for word in best if gains[word] > 0)

    def take(self, pair: int) -> None:
        for word in self.bags[pair]:
            self.seen[word] += 1
            self.holding.setdefault(word, []).append(pair)

    def is_new(self, pair: int) -> bool:
        """Tell whether no chosen pair is a near-duplicate of this one."""
        bag = self.bags[pair]
        shared: Counter[int] = Counter()
        for word, times in bag.items():
            for other in self.holding.get(word, ()):
                shared[other] += min(times, self.bags[other][word])
        size = sum(bag.values())
        return all(both < ALIKE * max(size, sum(self.bags[other].values())) for other, both in shared.items())

    def _gains(self, pair: int) -> dict[_Word, float]:
        return {
            word: doubt * self.corpus[word] ** 0.5 * 0.5 ** self.seen[word] for word, doubt in self.doubts[pair].items()
        }


def _bag(source: Sequence[str], target: Sequence[str]) -> Counter[_Word]:
    return Counter((side, word.lower()) for side, words in enumerate((source, target)) for word in words)


def _doubts(source: Sequence[str], target: Sequence[str], posterior: np.ndarray) -> dict[_Word, float]:
    """Return each different word's uncertainty in one pair: the entropy of its links in bits, of all its tokens."""
    if posterior.shape != (len(target), len(source)):
        raise ValueError(f"posterior has shape {posterior.shape}; the pair has ({len(target)}, {len(source)}) words")
    sure = np.clip(posterior.astype(np.float64), 1e-9, 1 - 1e-9)
    bits = -(sure * np.log2(sure) + (1 - sure) * np.log2(1 - sure))
    doubts: dict[_Word, float] = {}
    for side, (words, each) in enumerate(((source, bits.sum(axis=0)), (target, bits.sum(axis=1)))):
        for word, doubt in zip(words, each.tolist(), strict=True):
            doubts[side, word.lower()] = doubts.get((side, word.lower()), 0.0) + doubt
    return doubts
