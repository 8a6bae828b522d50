"""The words of a bitext as numbers, and every pair of words that stand in one sentence pair, in batches of cells.

Both directions of a statistical aligner read the same cells: a probability table holds one number for each different
pair of words that ever stand together, so that it is as large as the text allows and never vocabulary by vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

CELLS_IN_BATCH = 200_000
UNKNOWN = -1


@dataclass(frozen=True)
class PairBatch:
    """Sentence pairs of like lengths, padded: B pairs, S source words, T target words at most.

    Attributes:
        rows: (B,) int, which pairs of the text.
        source_lengths, target_lengths: (B,) int, at least 1.
        sources: (B, S) int, numbers of the source words; `UNKNOWN` for padding and for words never seen.
        targets: (B, T) int, likewise.
        cells: (B, T, S) int32, the place of each word pair in the table of pairs; its length for padding and for pairs
            never seen together.
    """

    rows: np.ndarray
    source_lengths: np.ndarray
    target_lengths: np.ndarray
    sources: np.ndarray
    targets: np.ndarray
    cells: np.ndarray

    @property
    def source_mask(self) -> np.ndarray:
        """Return (B, S) bool, True at words."""
        return np.arange(self.sources.shape[1]) < self.source_lengths[:, None]

    @property
    def target_mask(self) -> np.ndarray:
        """Return (B, T) bool, True at words."""
        return np.arange(self.targets.shape[1]) < self.target_lengths[:, None]

    @property
    def mask(self) -> np.ndarray:
        """Return (B, T, S) bool, True at pairs of words."""
        return self.target_mask[:, :, None] & self.source_mask[:, None, :]


class WordPairs:
    """The vocabularies of two sides and the pairs of words that stand together in some sentence pair.

    Attributes:
        source_words, target_words: word -> number.
        codes: (P,) int64, sorted: source number * number of target words + target number.
    """

    def __init__(self, source_words: dict[str, int], target_words: dict[str, int], codes: np.ndarray) -> None:
        self.source_words, self.target_words, self.codes = source_words, target_words, codes

    @classmethod
    def of(cls, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> "WordPairs":
        """Return the pairs of a text, given as words of each sentence."""
        source_words = _numbered(sources)
        target_words = _numbered(targets)
        found = cls(source_words, target_words, np.zeros(0, dtype=np.int64))
        parts = [found.codes]
        for batch in found.batches(sources, targets):
            parts.append(_distinct(found._codes(batch.sources, batch.targets)[batch.mask]))
        return cls(source_words, target_words, _distinct(np.concatenate(parts)))

    @property
    def source_of(self) -> np.ndarray:
        """Return (P,) int, the source word of each pair."""
        return self.codes // max(len(self.target_words), 1)

    @property
    def target_of(self) -> np.ndarray:
        """Return (P,) int, the target word of each pair."""
        return self.codes % max(len(self.target_words), 1)

    def batches(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> Iterator[PairBatch]:
        """Yield the pairs of a text in batches of like lengths; pairs with a blank side are left out.

        Raises:
            ValueError: not as many source as target sentences.
        """
        if len(sources) != len(targets):
            raise ValueError(f"{len(sources)} source and {len(targets)} target sentences; they must belong together")
        lengths = np.array([(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]).reshape(-1, 2)
        filled = np.flatnonzero(lengths.min(axis=1) > 0)
        order = filled[np.lexsort((filled, lengths[filled, 1], lengths[filled, 0] // 4))]
        first = 0
        while first < len(order):
            last, widest, tallest = first, 0, 0
            while last < len(order):
                width, height = lengths[order[last]]
                widest, tallest = max(widest, width), max(tallest, height)
                if last > first and (last - first + 1) * widest * tallest > CELLS_IN_BATCH:
                    break
                last += 1
            yield self._batch(order[first:last], sources, targets)
            first = last

    def place(self, codes: np.ndarray) -> np.ndarray:
        """Return where codes stand in the table of pairs; its length for those that are not there."""
        if not len(self.codes):
            return np.zeros(codes.shape, dtype=np.int64)
        found = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        return np.where(self.codes[found] == codes, found, len(self.codes))

    def _batch(self, rows: np.ndarray, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> PairBatch:
        source_ids, source_lengths = _padded([sources[row] for row in rows], self.source_words)
        target_ids, target_lengths = _padded([targets[row] for row in rows], self.target_words)
        cells = self.place(self._codes(source_ids, target_ids)).astype(np.int32)
        return PairBatch(rows, source_lengths, target_lengths, source_ids, target_ids, cells)

    def _codes(self, source_ids: np.ndarray, target_ids: np.ndarray) -> np.ndarray:
        codes = source_ids[:, None, :] * max(len(self.target_words), 1) + target_ids[:, :, None]
        return np.where((source_ids[:, None, :] < 0) | (target_ids[:, :, None] < 0), -1, codes)


def _numbered(sentences: Sequence[Sequence[str]]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for words in sentences:
        for word in words:
            numbers.setdefault(word, len(numbers))
    return numbers


def _distinct(values: np.ndarray) -> np.ndarray:
    """Return the different values, sorted; several times faster than `np.unique`, which hashes."""
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)]]


def _padded(sentences: list[Sequence[str]], numbers: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(words) for words in sentences], dtype=np.int64)
    ids = np.full((len(sentences), int(lengths.max())), UNKNOWN, dtype=np.int64)
    for row, words in enumerate(sentences):
        ids[row, : len(words)] = [numbers.get(word, UNKNOWN) for word in words]
    return ids, lengths
