"""Bootstrap over sentences, for intervals of the AER and of other ratios of sums.

`counts` are those of `count_links`, (sentences, 5): |A|, |S|, |P|, |A & S|, |A & P|. Each resample takes time linear in
the sentences.
"""

import numpy as np

RESAMPLES = 1000


def bootstrap_totals(counts: np.ndarray, seed: int, resamples: int = RESAMPLES) -> np.ndarray:
    """Return the sums of each column over sentences drawn with replacement, (resamples, columns) float.

    Args:
        counts: (sentences, columns) of whatever adds up over a corpus.
    """
    generator = np.random.default_rng(seed)
    values, sentences = counts.astype(np.float64), len(counts)
    totals = np.empty((resamples, counts.shape[1]))
    for resample in range(resamples):
        times = np.bincount(generator.integers(0, sentences, sentences, dtype=np.int32), minlength=sentences)
        totals[resample] = times @ values
    return totals


def bootstrap_sums(counts: np.ndarray, seed: int, resamples: int = RESAMPLES) -> np.ndarray:
    """Return (|A & S| + |A & P|, |A| + |S|) of sentences drawn with replacement, (resamples, 2) float."""
    return bootstrap_totals(halves_of(counts), seed, resamples)


def aer_of(sums: np.ndarray) -> np.ndarray:
    """Return 1 - first / second column; 0 where the second is 0."""
    return 1 - np.divide(sums[:, 0], sums[:, 1], out=np.ones(len(sums)), where=sums[:, 1] > 0)


def halves_of(counts: np.ndarray) -> np.ndarray:
    """Return |A & S| + |A & P| and |A| + |S| of each sentence, (sentences, 2) float."""
    return np.stack([counts[:, 3] + counts[:, 4], counts[:, 0] + counts[:, 1]], axis=1).astype(np.float64)
