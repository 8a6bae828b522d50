"""The hidden Markov model of word alignment over whole batches of sentence pairs (Vogel, Ney and Tillmann 1996).

The links a_1..a_T of the target words are the states of a chain:
    p(target, a | source) = prod_t p(a_t | a_{t-1}) p(word_t | source word a_t),
    p(i | i') = s(i - i') / sum_l s(l - i'),
where the chain begins at i' = -1, before the first source word. With probability p0 a target word comes from NULL, and
the next jump counts from the last word that did not (Och and Ney 2003). `probing.hmm` reads links off one matrix of
attention by the same chain; here the emissions are translation probabilities, and a batch is computed at once.
"""

from dataclasses import dataclass

import numpy as np

# Jumps that never occurred keep this share of the most frequent jump's weight.
_SMALLEST_JUMP = 1e-4
_SMALLEST_SCALE = 1e-30


@dataclass(frozen=True)
class ChainExpectations:
    """What forward-backward finds in a batch.

    Attributes:
        links: (B, T, S) float32, the probability of each link over all paths; 0 at padding.
        nulls: (B, T) float32, the probability of NULL; with the links of a word it sums to 1; 0 at padding.
        made: (2 n + 1,) float, expected number of jumps -n..n, a longer one counts as the longest.
        chances: (2 n + 1,) float, what `made` is divided by for new weights, see `new_jumps`.
        log_likelihood: of the batch, natural logarithm.
    """

    links: np.ndarray
    nulls: np.ndarray
    made: np.ndarray
    chances: np.ndarray
    log_likelihood: float


def first_jumps(longest: int) -> np.ndarray:
    """Return (2 n + 1,) float32, weights that fall off by e every two words on either side of the next word."""
    distance = np.abs(np.arange(-longest, longest + 1) - 1)
    return (np.exp(-distance / 2) + 0.01).astype(np.float32)


def new_jumps(made: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Return new weights from the sums of a corpus.

    s(d) sits inside a sum over each sentence's places; expected jumps divided by the expected chances to make them is
    the minorise-maximise step of Hunter 2004, under which the likelihood cannot fall (see `probing.learn_jumps`).
    """
    weights = np.divide(made, chances, out=np.zeros(len(made)), where=chances > 0)
    return np.maximum(weights / max(weights.max(), _SMALLEST_SCALE), _SMALLEST_JUMP).astype(np.float32)


def chain_expectations(
    emissions: np.ndarray,
    null_emissions: np.ndarray,
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    jumps: np.ndarray,
    null: float,
) -> ChainExpectations:
    """Run forward-backward on a batch.

    Args:
        emissions: (B, T, S) float, p(target word | source word); 0 where the source is padding.
        null_emissions: (B, T) float, p(target word | NULL), above 0.
        source_lengths, target_lengths: (B,) int.
        jumps: (2 n + 1,) float, s(-n)..s(n) above 0.
        null: p0, between 0 and 1, both excluded.
    """
    pairs, targets, sources = emissions.shape
    longest = len(jumps) // 2
    # Row i' + 1 of the steps is place i'; row 0 is the start, before the first word.
    distance = np.clip(np.arange(sources)[None, :] - np.arange(-1, sources)[:, None], -longest, longest) + longest
    weights = jumps[distance]
    inside = np.arange(sources) < source_lengths[:, None]
    spread = 1 / (inside.astype(np.float32) @ weights.T)
    live = np.arange(targets) < target_lengths[:, None]
    to_source = np.where(live[:, :, None], emissions * (1 - null), 0).astype(np.float32)
    # Padded target words pass the state on unchanged and cost nothing.
    to_null = np.where(live, null_emissions * null, 1).astype(np.float32)

    before = np.zeros((targets + 1, pairs, sources + 1), dtype=np.float32)
    before[0, :, 0] = 1
    arrived = np.empty((targets, pairs, sources), dtype=np.float32)
    scale = np.empty((targets, pairs), dtype=np.float32)
    for t in range(targets):
        arrived[t] = (before[t] * spread) @ weights
        after = before[t] * to_null[:, t, None]
        after[:, 1:] += arrived[t] * to_source[:, t]
        scale[t] = np.maximum(after.sum(axis=1), _SMALLEST_SCALE)
        before[t + 1] = after / scale[t][:, None]
    onward = np.empty((targets, pairs, sources), dtype=np.float32)
    future = np.ones((pairs, sources + 1), dtype=np.float32)
    for t in range(targets - 1, -1, -1):
        onward[t] = to_source[:, t] * future[:, 1:] / scale[t][:, None]
        future = spread * (onward[t] @ weights.T) + (to_null[:, t] / scale[t])[:, None] * future

    links = arrived * onward
    from_place = before[:-1] * spread
    made = (from_place.reshape(-1, sources + 1).T @ onward.reshape(-1, sources)) * weights
    tried = (from_place * (onward @ weights.T)).sum(axis=0) * spread
    chances = tried.T @ inside.astype(np.float32)
    links = links.transpose(1, 0, 2)
    return ChainExpectations(
        links,
        np.where(live, np.maximum(1 - links.sum(axis=2), 0), 0).astype(np.float32),
        np.bincount(distance.ravel(), made.ravel(), len(jumps)),
        np.bincount(distance.ravel(), chances.ravel(), len(jumps)),
        float(np.log(scale, dtype=np.float64).sum()),
    )
