"""Links as a path through the source: a hidden Markov model whose emissions are the weights of a matrix.

Vogel, Ney and Tillmann 1996: the links a_1..a_T of the target words are the states of a Markov chain,
    score(a) = prod_t  p(a_t | a_{t-1}) * W[t, a_t],    p(i | i') = s(i - i') / sum_l s(l - i'),
so that a word's link depends on how far it jumps from the link before it, whatever the place in the sentence. Unlike
the paper, whose emission is a translation probability p(target word | source word), W is a row of attention: a
probability of source words given the target word, which differs by the factor p(source word), taken as constant.
NULL as in Och and Ney 2003: with probability p0 a target word has no source word; the next jump counts
from the last word that had one. The first link may fall anywhere with equal probability.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .link_types import Links, checked_matrix, checked_null

# A cell without weight costs this much instead of forbidding the path; shares of a row sum to 1.
_SMALLEST_SHARE = 1e-6
# Jumps that never occurred keep this share of the most frequent jump's weight.
_SMALLEST_JUMP = 1e-4
_LONGEST_JUMP = 40


@dataclass(frozen=True)
class JumpModel:
    """How the links of neighbouring target words follow each other.

    Attributes:
        weights: (2 n + 1,) float, s(d) above 0 for jumps d = -n..n; a longer jump counts as the longest. Their scale
            means nothing.
        null: p0, the probability that a target word has no source word, at least 0 and below 1.
    """

    weights: np.ndarray
    null: float

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.ndim != 1 or len(weights) % 2 == 0 or not (np.isfinite(weights) & (weights > 0)).all():
            raise ValueError("weights must be 2 n + 1 finite numbers above 0, one for each jump -n..n")
        if not 0 <= self.null < 1:
            raise ValueError(f"null is {self.null!r}; it must be at least 0 and below 1")
        object.__setattr__(self, "weights", weights)

    def with_null(self, null: float) -> "JumpModel":
        """Return the same jumps with another probability of no source word."""
        return replace(self, null=null)

    def buckets(self, sources: int) -> np.ndarray:
        """Return (S, S) int: which entry of `weights` the jump from row i' to column i uses."""
        longest = len(self.weights) // 2
        place = np.arange(sources)
        return np.clip(place[None, :] - place[:, None], -longest, longest) + longest

    def transitions(self, sources: int) -> np.ndarray:
        """Return p(i | i') as (S, S) float, rows i' sum to 1."""
        weights = self.weights[self.buckets(sources)]
        return weights / weights.sum(axis=1, keepdims=True)


def _default_jumps() -> JumpModel:
    distance = np.abs(np.arange(-_LONGEST_JUMP, _LONGEST_JUMP + 1) - 1)
    return JumpModel(np.exp(-distance / 2) + 0.01, null=0.2)


# Falls off by e every two words on either side of the step to the next word, with a floor for long jumps.
DEFAULT_JUMPS = _default_jumps()


def hmm_links(matrix: np.ndarray, null: np.ndarray | None = None, *, jumps: JumpModel = DEFAULT_JUMPS) -> Links:
    """Link the target words along the most probable path (Viterbi); words on NULL stay unlinked.

    A row without any positive weight stays unlinked. Time T * S * S.

    Args:
        matrix: (T, S) float, one row for each target word.
        null: (T,) float, the weight of "no source word" in each row; None = the mean of the row's weights, so that
            NULL wins where the row prefers nothing.
    """
    shares, null_shares, live = _emissions(matrix, null)
    if not len(shares):
        return frozenset()
    sources = shares.shape[1]
    with np.errstate(divide="ignore"):
        step = np.log(jumps.transitions(sources))
        to_source = np.log(shares) + np.log1p(-jumps.null)
        to_null = np.log(null_shares) + np.log(jumps.null)
    # best[i]: the best path whose last source word is i; unstarted: the path of NULLs only.
    best, unstarted = np.full(sources, -np.inf), 0.0
    came_from = np.empty(shares.shape, dtype=np.int64)
    is_link = np.empty(shares.shape, dtype=bool)
    for t in range(len(shares)):
        paths = best[:, None] + step
        came_from[t] = paths.argmax(axis=0)
        arrived = paths[came_from[t], np.arange(sources)]
        start = unstarted - np.log(sources)
        came_from[t, start > arrived] = -1
        linked = np.maximum(arrived, start) + to_source[t]
        waited = best + to_null[t]
        is_link[t] = linked >= waited
        best = np.maximum(linked, waited)
        unstarted += to_null[t]
    links = _trace(came_from, is_link, int(best.argmax()) if best.max() >= unstarted else -1)
    return frozenset((i, int(live[t])) for i, t in links)


def _trace(came_from: np.ndarray, is_link: np.ndarray, source: int) -> Iterator[tuple[int, int]]:
    for t in range(len(is_link) - 1, -1, -1):
        if source < 0:
            return
        if is_link[t, source]:
            yield source, t
            source = int(came_from[t, source])


def hmm_posteriors(
    matrix: np.ndarray, null: np.ndarray | None = None, *, jumps: JumpModel = DEFAULT_JUMPS
) -> tuple[np.ndarray, np.ndarray]:
    """Return each link's and each NULL's probability over all paths (forward-backward).

    Args:
        matrix, null: as in `hmm_links`.

    Returns:
        (T, S) and (T,) float; a row and its NULL sum to 1. A row without weight is NULL for certain.
    """
    shares, null_shares, live = _emissions(matrix, null)
    targets, sources = np.asarray(matrix).shape
    links, nulls = np.zeros((targets, sources)), np.ones(targets)
    if len(shares):
        links[live] = _ForwardBackward(shares, null_shares, jumps).links
        nulls[live] = np.maximum(0, 1 - links[live].sum(axis=1))
    return links, nulls


def learn_jumps(
    matrices: Sequence[np.ndarray],
    nulls: Sequence[np.ndarray | None] | None = None,
    *,
    iterations: int = 5,
    start: JumpModel = DEFAULT_JUMPS,
    learn_null: bool = False,
) -> JumpModel:
    """Learn the jumps of a corpus from its matrices alone, by EM (Baum-Welch).

    The M step of s(d), which sits inside a normalisation over each sentence's places, divides the expected jumps by
    the expected chances to make them (the minorise-maximise step of Hunter 2004 for Plackett-Luce models): every
    round raises the likelihood, and short sentences, in which long jumps are impossible, do not make them look rare.

    Args:
        matrices: (T, S) float each.
        nulls: (T,) float or None each, as in `hmm_links`.
        iterations: rounds over the corpus, at least 1.
        learn_null: learn p0 too; otherwise it stays as in `start`. Likelihood likes to link nearly every word, and
            annotators do not, so a fixed p0 often aligns better.
    """
    if iterations < 1:
        raise ValueError(f"iterations is {iterations}; it must be at least 1")
    corpus = [
        (shares, null_shares)
        for shares, null_shares, _ in map(_emissions, matrices, [None] * len(matrices) if nulls is None else nulls)
        if len(shares)
    ]
    jumps = start
    for _ in range(iterations):
        learned = _maximised(jumps, corpus)
        jumps = learned if learn_null else learned.with_null(start.null)
    return jumps


def _maximised(jumps: JumpModel, corpus: Iterable[tuple[np.ndarray, np.ndarray]]) -> JumpModel:
    size = len(jumps.weights)
    made, chances = np.zeros(size), np.zeros(size)
    words = linked = 0.0
    for shares, null_shares in corpus:
        passed = _ForwardBackward(shares, null_shares, jumps)
        buckets = jumps.buckets(shares.shape[1])
        normaliser = jumps.weights[buckets].sum(axis=1)
        made += np.bincount(buckets.ravel(), passed.jumps.ravel(), size)
        tried = np.broadcast_to((passed.jumps.sum(axis=1) / normaliser)[:, None], buckets.shape)
        chances += np.bincount(buckets.ravel(), tried.ravel(), size)
        words += len(shares)
        linked += passed.links.sum()
    if made.sum() == 0:
        return jumps
    weights = np.divide(made, chances, out=np.zeros(size), where=chances > 0)
    weights /= weights.max()
    null = min(max(1 - linked / words, 0.0), 1 - _SMALLEST_SHARE)
    return JumpModel(np.maximum(weights, _SMALLEST_JUMP), null)


class _ForwardBackward:
    """The expected links and jumps of one pair.

    A path's future depends only on its last source word, NULLs or not; `_before[t]` holds the probability of each,
    the last entry that of no source word so far.

    Attributes:
        links: (T, S) float, probability of each link.
        jumps: (S, S) float, expected number of jumps from row i' to column i.
        log_likelihood: of the pair.
    """

    def __init__(self, shares: np.ndarray, null_shares: np.ndarray, jumps: JumpModel) -> None:
        targets, sources = shares.shape
        step = np.vstack([jumps.transitions(sources), np.full(sources, 1 / sources)])
        to_source = shares * (1 - jumps.null)
        to_null = null_shares * jumps.null
        before = np.zeros((targets + 1, sources + 1))
        before[0, -1] = 1
        scale = np.empty(targets)
        for t in range(targets):
            after = before[t] * to_null[t]
            after[:-1] += (before[t] @ step) * to_source[t]
            scale[t] = after.sum()
            before[t + 1] = after / scale[t]
        # onward[t, i]: weight of a link to i at t and of all that follows.
        onward = np.empty(shares.shape)
        future = np.ones(sources + 1)
        for t in range(targets - 1, -1, -1):
            onward[t] = to_source[t] * future[:-1] / scale[t]
            future = step @ onward[t] + to_null[t] * future / scale[t]
        self.links = (before[:-1] @ step) * onward
        self.jumps = (before[:-1, :-1].T @ onward) * step[:-1]
        self.log_likelihood = float(np.log(scale).sum())


def _emissions(matrix: np.ndarray, null: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the shares (T', S) of the rows that have weight, their NULL shares (T',), and which rows these are."""
    matrix = checked_matrix(matrix).astype(np.float64)
    live = np.flatnonzero(matrix.sum(axis=1) > 0) if matrix.size else np.zeros(0, dtype=np.int64)
    weights = matrix[live]
    nothing = weights.mean(axis=1) if null is None and len(live) else checked_null(matrix, null)[live]
    total = weights.sum(axis=1) + (0 if null is None else nothing)
    shares = np.maximum(weights / total[:, None], _SMALLEST_SHARE)
    return shares, nothing / total, live
