"""Is one system better than another, or lucky? Paired tests on the same sentences."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from .aligned_pair import Gold
from .link_types import Link
from .resampling import RESAMPLES, aer_of, bootstrap_sums, halves_of
from .scores import count_links


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same gold.

    Attributes:
        aer, other_aer: of the two systems.
        difference: aer - other_aer; below 0 the first system is better.
        ci95: 95% interval of the difference, paired bootstrap over sentences (Koehn 2004).
        better: share of the bootstrap resamples in which the first system has the lower AER, ties counted half.
        p_value: of a difference as large as this in either direction if the systems were interchangeable, approximate
            randomisation (Noreen 1989; Riezler and Maxwell 2005).
        sentences: number of sentence pairs.
        resamples: of each test.
    """

    aer: float
    other_aer: float
    difference: float
    ci95: tuple[float, float]
    better: float
    p_value: float
    sentences: int
    resamples: int

    def as_dict(self) -> dict[str, object]:
        """Return the comparison as plain JSON values."""
        return {**asdict(self), "ci95": list(self.ci95)}


def compare_scores(
    links: Sequence[Iterable[Link]],
    other: Sequence[Iterable[Link]],
    gold: Sequence[Gold],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Test whether two systems differ in AER on the same sentences.

    The bootstrap draws sentences with replacement, the same ones for both systems, and asks how far the difference
    moves. Approximate randomisation swaps the systems' links of each sentence with probability 1/2 and asks how often
    the difference becomes at least as large as the real one: p = (1 + that many) / (1 + resamples). Without sentences
    there is no difference, and p is 1.

    Args:
        links, other, gold: one entry for each sentence pair, 0-based.

    Raises:
        ValueError: unequal numbers of sentences, or fewer than 1 resample.
    """
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; it must be at least 1")
    return compare_counts(count_links(links, gold), count_links(other, gold), seed=seed, resamples=resamples)


def compare_counts(counts: np.ndarray, other: np.ndarray, *, seed: int = 0, resamples: int = RESAMPLES) -> Comparison:
    """Compare the counts of two systems, as `compare_scores`."""
    aer, other_aer = (float(aer_of(halves_of(each).sum(axis=0)[None])[0]) for each in (counts, other))
    if len(counts) == 0:
        return Comparison(aer, other_aer, 0.0, (0.0, 0.0), 0.5, 1.0, 0, resamples)
    # The same seed draws the same sentences for both.
    drawn = aer_of(bootstrap_sums(counts, seed, resamples)) - aer_of(bootstrap_sums(other, seed, resamples))
    low, high = np.quantile(drawn, [0.025, 0.975])
    swapped = _swapped_differences(counts, other, seed + 1, resamples)
    # Sums in another order differ in the last digit; that must not decide.
    as_large = int((np.abs(swapped) >= abs(aer - other_aer) - 1e-12).sum())
    return Comparison(
        aer=aer,
        other_aer=other_aer,
        difference=aer - other_aer,
        ci95=(float(low), float(high)),
        better=float((drawn < 0).mean() + (drawn == 0).mean() / 2),
        p_value=(1 + as_large) / (1 + resamples),
        sentences=len(counts),
        resamples=resamples,
    )


def _swapped_differences(counts: np.ndarray, other: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    halves, other_halves = halves_of(counts), halves_of(other)
    total, gap = halves.sum(axis=0) + other_halves.sum(axis=0), other_halves - halves
    sums = np.empty((resamples, 2))
    for resample in range(resamples):
        swap = generator.random(len(counts), dtype=np.float32) < 0.5
        sums[resample] = halves.sum(axis=0) + swap @ gap
    return aer_of(sums) - aer_of(total - sums)
