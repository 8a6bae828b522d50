"""Score links against manual ones: alignment error rate, precision, recall, F, with a confidence interval.

All figures come from sums over the corpus, never from means of sentence scores (Och and Ney 2003, section 5):
with links A, sure links S and possible links P (P holds S),
    precision = |A & P| / |A|,  recall = |A & S| / |S|,  AER = 1 - (|A & S| + |A & P|) / (|A| + |S|).
A ratio of nothing to nothing counts as 1: no link where none is wanted is right, so AER is 0 there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from .aligned_pair import Gold
from .link_types import Link, checked_matrix
from .resampling import aer_of, bootstrap_sums, bootstrap_totals, halves_of


@dataclass(frozen=True)
class AlignmentScore:
    """Corpus-level scores of links against gold.

    Attributes:
        aer, precision, recall, f1: fractions; lower AER is better.
        links, sure, possible: number of links scored, of sure and of possible gold links (possible holds sure).
        sentences: number of sentence pairs.
        base: what each file counted from, when the links came from files.
        ci95: 95% interval of the AER, bootstrap over sentences (1000 resamples, fixed seed).
        alpha, f_alpha: the F measure with that weight of precision, see `f_measure`.
    """

    aer: float
    precision: float
    recall: float
    f1: float
    links: int
    sure: int
    possible: int
    sentences: int
    base: Mapping[str, int] | None
    ci95: tuple[float, float]
    alpha: float
    f_alpha: float

    def as_dict(self) -> dict[str, object]:
        """Return the scores as plain JSON values."""
        return {**asdict(self), "ci95": list(self.ci95)}


def score_links(
    links: Sequence[Iterable[Link]],
    gold: Sequence[Gold],
    *,
    base: Mapping[str, int] | None = None,
    seed: int = 0,
    alpha: float = 0.5,
) -> AlignmentScore:
    """Score the links of each sentence against gold.

    Args:
        links, gold: one entry for each sentence pair, 0-based.
        base: carried into the result, for the record.
        seed: of the bootstrap.
        alpha: weight of precision in `f_alpha`, 0..1.

    Raises:
        ValueError: unequal numbers of sentences, or an alpha outside 0..1.
    """
    return score_counts(count_links(links, gold), base=base, seed=seed, alpha=alpha)


def alignment_error_rate(links: Sequence[Iterable[Link]], gold: Sequence[Gold]) -> float:
    """Return the AER alone, without an interval: for loops over many choices. Arguments as in `score_links`."""
    return float(aer_of(halves_of(count_links(links, gold)).sum(axis=0)[None])[0])


def count_links(links: Sequence[Iterable[Link]], gold: Sequence[Gold]) -> np.ndarray:
    """Return |A|, |S|, |P|, |A & S|, |A & P| of each sentence, (sentences, 5) int64.

    Raises:
        ValueError: unequal numbers of sentences.
    """
    if len(links) != len(gold):
        raise ValueError(
            f"{len(links)} sentences of links but {len(gold)} of gold; sentence N of one must be N of the other"
        )
    counts = [_count(frozenset(ours), manual) for ours, manual in zip(links, gold, strict=True)]
    return np.array(counts, dtype=np.int64).reshape(len(links), 5)


def _count(ours: frozenset[Link], gold: Gold) -> tuple[int, int, int, int, int]:
    return len(ours), len(gold.sure), len(gold.possible), len(ours & gold.sure), len(ours & gold.possible)


def score_counts(
    counts: np.ndarray, *, base: Mapping[str, int] | None = None, seed: int = 0, alpha: float = 0.5
) -> AlignmentScore:
    """Return the scores of the counts that `count_links` makes; arguments as in `score_links`."""
    found, sure, possible, _, _ = (int(total) for total in counts.sum(axis=0))
    aer, precision, recall = score_ratios(counts)
    return AlignmentScore(
        aer=aer,
        precision=precision,
        recall=recall,
        f1=f_measure(precision, recall),
        links=found,
        sure=sure,
        possible=possible,
        sentences=len(counts),
        base=base,
        ci95=_interval(counts, seed),
        alpha=alpha,
        f_alpha=f_measure(precision, recall, alpha),
    )


def score_ratios(counts: np.ndarray) -> tuple[float, float, float]:
    """Return AER, precision and recall of the counts that `count_links` makes, without the cost of an interval."""
    found, sure, _, found_sure, found_possible = (int(total) for total in counts.sum(axis=0))
    aer = 1 - _ratio(found_sure + found_possible, found + sure)
    return aer, _ratio(found_possible, found), _ratio(found_sure, sure)


def score_intervals(
    links: Sequence[Iterable[Link]], gold: Sequence[Gold], seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return the 95% intervals of `aer`, `precision`, `recall` and `f1`: quantiles over resamples of the sentences.

    All four come from the same resamples, and the AER's interval is the `ci95` of `score_links`. Arguments as there.

    Raises:
        ValueError: no sentence, or unequal numbers of them.
    """
    counts = count_links(links, gold)
    if not len(counts):
        raise ValueError("no sentence to draw from; give at least one")
    totals = bootstrap_totals(counts, seed)
    found, sure, _, found_sure, found_possible = totals.T
    precision, recall = _ratios(found_possible, found), _ratios(found_sure, sure)
    drawn = {
        "aer": aer_of(halves_of(totals)),
        "precision": precision,
        "recall": recall,
        "f1": np.divide(
            2 * precision * recall, precision + recall, out=np.zeros(len(recall)), where=precision * recall > 0
        ),
    }
    quantiles = {name: np.quantile(values, [0.025, 0.975]) for name, values in drawn.items()}
    return {name: (float(low), float(high)) for name, (low, high) in quantiles.items()}


def f_measure(precision: float, recall: float, alpha: float = 0.5) -> float:
    """Return F = 1 / (alpha / precision + (1 - alpha) / recall) (Fraser and Marcu 2007).

    Alpha 1 is precision, 0 is recall, 0.5 is F1. 0 if a part that has weight is 0.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha!r}; it must be from 0 (recall) to 1 (precision)")
    parts = [(weight, value) for weight, value in ((alpha, precision), (1 - alpha, recall)) if weight]
    if any(value == 0 for _, value in parts):
        return 0.0
    return 1 / sum(weight / value for weight, value in parts)


def soft_aer(matrices: Sequence[np.ndarray], gold: Sequence[Gold]) -> float:
    """Return the soft alignment error rate of matrices (SAER, Tu et al. 2016), as sums over the corpus.

    SAER = 1 - (|M * S| + |M * P|) / (|M| + |S|), where |M * S| is the weight that M puts on sure links: of a matrix of
    zeros and ones this is the AER of its links. It judges the whole distribution, with no choice of links, and is
    fair only between matrices of the same total, such as rows that sum to 1. 0 if there is neither weight nor a sure
    link.

    Args:
        matrices: (T, S) float each, weights of at least 0.

    Raises:
        ValueError: unequal numbers of sentences, or a gold link outside its matrix (naming the sentence, from 1).
    """
    if len(matrices) != len(gold):
        raise ValueError(f"{len(matrices)} matrices but {len(gold)} sentences of gold; N of one must be N of the other")
    hit = total = 0.0
    for number, (matrix, manual) in enumerate(zip(matrices, gold, strict=True), start=1):
        matrix = checked_matrix(matrix)
        total += float(matrix.sum(dtype=np.float64)) + len(manual.sure)
        for links in (manual.sure, manual.possible):
            if links:
                sources, targets = np.array(sorted(links)).T
                if sources.max() >= matrix.shape[1] or targets.max() >= matrix.shape[0]:
                    raise ValueError(f"sentence {number}: gold goes beyond a matrix of shape {matrix.shape}")
                hit += float(matrix[targets, sources].sum(dtype=np.float64))
    return 1 - (hit / total if total else 1.0)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def _ratios(parts: np.ndarray, wholes: np.ndarray) -> np.ndarray:
    return np.divide(parts, wholes, out=np.ones(len(parts)), where=wholes > 0)


def _interval(counts: np.ndarray, seed: int) -> tuple[float, float]:
    """Return the 2.5% and 97.5% quantiles of the AER over resamples of the sentences."""
    if len(counts) == 0:
        return (0.0, 0.0)
    low, high = np.quantile(aer_of(bootstrap_sums(counts, seed)), [0.025, 0.975])
    return (float(low), float(high))
