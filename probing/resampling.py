"""Bootstrap over sentences, for intervals of the AER.

`counts` are those of `count_links`, (sentences, 5): |A|, |S|, |P|, |A & S|, |A & P|. Each resample takes time linear in
the sentences.
"""

import numpy as np

RESAMPLES = 1000


def bootstrap_sums(counts: np.ndarray, seed: int, resamples: int = RESAMPLES) -> np.ndarray:
    """Return (|A & S| + |A & P|, |A| + |S|) of sentences drawn with replacement, (resamples, 2) float."""
    generator = np.random.default_rng(seed)
    halves, sentences = halves_of(counts), len(counts)
    sums = np.empty((resamples, 2))
    for resample in range(resamples):
        times = np.bincount(generator.integers(0, sentences, sentences, dtype=np.int32), minlength=sentences)
        sums[resample] = times @ halves
    return sums


def aer_of(sums: np.ndarray) -> np.ndarray:
    """Return 1 - first / second column; 0 where the second is 0."""
    return 1 - np.divide(sums[:, 0], sums[:, 1], out=np.ones(len(sums)), where=sums[:, 1] > 0)


def halves_of(counts: np.ndarray) -> np.ndarray:
    """Return |A & S| + |A & P| and |A| + |S| of each sentence, (sentences, 2) float."""
    return np.stack([counts[:, 3] + counts[:, 4], counts[:, 0] + counts[:, 1]], axis=1).astype(np.float64)
