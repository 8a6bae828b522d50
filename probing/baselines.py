"""Aligners without a neural network, to measure against: the diagonal, and IBM model 1."""

from collections.abc import Sequence

import numpy as np

from .link_types import Links


def diagonal_links(source_length: int, target_length: int) -> Links:
    """Link each target word to the source word at the same relative position."""
    if source_length < 1:
        return frozenset()
    centres = (np.arange(target_length) + 0.5) / max(target_length, 1)
    return frozenset(zip((centres * source_length).astype(int).tolist(), range(target_length), strict=True))


class Ibm1:
    """IBM model 1 (Brown et al. 1993, section 4.1): word translation probabilities p(target | source) by EM.

    Every target word comes from one source word or from NULL, whatever their positions. A link goes to the most
    probable source word; a word that NULL explains best, or that was never seen beside any word of the sentence,
    stays unlinked.

    Memory follows the number of word pairs within sentences: about 50 bytes for each.

    Args:
        iterations: EM passes; few are best, the model over-fits rare words.
        lowercase: compare words by their lower case.
    """

    def __init__(self, iterations: int = 5, lowercase: bool = True) -> None:
        if iterations < 1:
            raise ValueError(f"iterations is {iterations}; it must be at least 1")
        self.iterations = iterations
        self.lowercase = lowercase
        self._source_ids: dict[str, int] = {}
        self._target_ids: dict[str, int] = {}
        self._codes = np.zeros(0, dtype=np.int64)
        self._probabilities = np.zeros(0)

    def fit(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> "Ibm1":
        """Learn from sentence pairs given as lists of words; return self."""
        if len(sources) != len(targets):
            raise ValueError(
                f"{len(sources)} source but {len(targets)} target sentences; they must belong together one by one"
            )
        self._source_ids, source_flat = _index(sources, self.lowercase)
        self._target_ids, target_flat = _index(targets, self.lowercase)
        source_lengths = np.array([len(words) for words in sources], dtype=np.int64)
        target_lengths = np.array([len(words) for words in targets], dtype=np.int64)
        source_of, target_of, row = _cross(source_flat, source_lengths, target_flat, target_lengths)
        codes = source_of * max(len(self._target_ids), 1) + target_of
        self._codes, pair = np.unique(codes, return_inverse=True)
        pair_source = self._codes // max(len(self._target_ids), 1)
        # Flat start: every target word is equally likely, whatever the source word.
        probabilities = np.ones(len(self._codes))
        for _ in range(self.iterations):
            share = probabilities[pair]
            share /= np.bincount(row, weights=share)[row]
            counts = np.bincount(pair, weights=share, minlength=len(self._codes))
            probabilities = counts / np.bincount(pair_source, weights=counts)[pair_source]
        self._probabilities = probabilities
        return self

    def matrix(self, source: Sequence[str], target: Sequence[str]) -> np.ndarray:
        """Return p(target word | source word) as (T, 1 + S) float; column 0 is NULL, a pair never seen together is
        0."""
        source_ids = np.array([0] + [self._source_ids.get(self._key(word), -1) for word in source], dtype=np.int64)
        target_ids = np.array([self._target_ids.get(self._key(word), 0) - 1 for word in target], dtype=np.int64)
        codes = source_ids[None, :] * max(len(self._target_ids), 1) + target_ids[:, None]
        codes[(source_ids[None, :] < 0) | (target_ids[:, None] < 0)] = -1
        if not len(self._codes):
            return np.zeros(codes.shape)
        place = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        return np.where(self._codes[place] == codes, self._probabilities[place], 0.0)

    def links(self, source: Sequence[str], target: Sequence[str]) -> Links:
        """Link each target word to its most probable source word; ties go to the one nearest to the diagonal."""
        if not source or not target:
            return frozenset()
        matrix = self.matrix(source, target)
        words = matrix[:, 1:]
        source_place = (np.arange(len(source)) + 0.5) / len(source)
        target_place = (np.arange(len(target)) + 0.5) / len(target)
        distance = np.abs(source_place[None, :] - target_place[:, None])
        best = np.where(words == words.max(axis=1, keepdims=True), distance, np.inf).argmin(axis=1)
        linked = words.max(axis=1) > matrix[:, 0]
        return frozenset((int(i), j) for j, i in enumerate(best) if linked[j])

    def _key(self, word: str) -> str:
        return word.lower() if self.lowercase else word


def _index(sentences: Sequence[Sequence[str]], lowercase: bool) -> tuple[dict[str, int], np.ndarray]:
    """Number the words from 1 (0 is NULL) and return the numbers of the whole corpus in one array."""
    ids: dict[str, int] = {}
    flat = [
        ids.setdefault(word.lower() if lowercase else word, len(ids) + 1) for sentence in sentences for word in sentence
    ]
    return ids, np.array(flat, dtype=np.int64)


def _cross(
    source_flat: np.ndarray, source_lengths: np.ndarray, target_flat: np.ndarray, target_lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pair every target token with NULL and with every source token of its sentence.

    Returns:
        Three arrays with one entry for each pair: the source word's number (0 for NULL), the target word's number
        less 1, and the index of the target token in the corpus.
    """
    columns = np.repeat(source_lengths + 1, target_lengths)
    row = np.repeat(np.arange(len(columns)), columns)
    place = np.arange(len(row)) - np.repeat(np.cumsum(columns) - columns, columns)
    first = np.repeat(np.cumsum(source_lengths) - source_lengths, target_lengths)[row]
    padded = np.concatenate([source_flat, [0]])
    source_of = np.where(place == 0, 0, padded[np.minimum(first + place - 1, len(padded) - 1)])
    return source_of, target_flat[row] - 1, row
