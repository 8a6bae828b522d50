"""Score links against manual ones: alignment error rate, precision, recall, F1, with a confidence interval.

All figures come from sums over the corpus, never from means of sentence scores (Och and Ney 2003, section 5):
with links A, sure links S and possible links P (P holds S),
    precision = |A & P| / |A|,  recall = |A & S| / |S|,  AER = 1 - (|A & S| + |A & P|) / (|A| + |S|).
A ratio of nothing to nothing counts as 1: no link where none is wanted is right, so AER is 0 there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from .formats import Gold
from .links import Link

_RESAMPLES = 1000
_CELLS_AT_ONCE = 8_000_000


@dataclass(frozen=True)
class AlignmentScore:
    """Corpus-level scores of links against gold.

    Attributes:
        aer, precision, recall, f1: fractions; lower AER is better.
        links, sure, possible: number of links scored, of sure and of possible gold links (possible holds sure).
        sentences: number of sentence pairs.
        base: what each file counted from, when the links came from files.
        ci95: 95% interval of the AER, bootstrap over sentences (1000 resamples, fixed seed).
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

    def as_dict(self) -> dict[str, object]:
        """Return the scores as plain JSON values."""
        return {**asdict(self), "ci95": list(self.ci95)}


def score_links(
    links: Sequence[Iterable[Link]], gold: Sequence[Gold], *, base: Mapping[str, int] | None = None, seed: int = 0
) -> AlignmentScore:
    """Score the links of each sentence against gold.

    Args:
        links, gold: one entry for each sentence pair, 0-based.
        base: carried into the result, for the record.
        seed: of the bootstrap.

    Raises:
        ValueError: unequal numbers of sentences.
    """
    if len(links) != len(gold):
        raise ValueError(
            f"{len(links)} sentences of links but {len(gold)} of gold; sentence N of one must be N of the other"
        )
    counts = np.array(
        [_count(frozenset(ours), manual) for ours, manual in zip(links, gold, strict=True)], dtype=np.int64
    ).reshape(len(links), 5)
    found, sure, possible, found_sure, found_possible = (int(total) for total in counts.sum(axis=0))
    precision = _ratio(found_possible, found)
    recall = _ratio(found_sure, sure)
    return AlignmentScore(
        aer=1 - _ratio(found_sure + found_possible, found + sure),
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        links=found,
        sure=sure,
        possible=possible,
        sentences=len(links),
        base=base,
        ci95=_bootstrap(counts, seed),
    )


def _count(ours: frozenset[Link], gold: Gold) -> tuple[int, int, int, int, int]:
    return len(ours), len(gold.sure), len(gold.possible), len(ours & gold.sure), len(ours & gold.possible)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def _bootstrap(counts: np.ndarray, seed: int) -> tuple[float, float]:
    """Return the 2.5% and 97.5% quantiles of the AER over resamples of the sentences; `counts` is (sentences, 5)."""
    sentences = len(counts)
    if sentences == 0:
        return (0.0, 0.0)
    generator = np.random.default_rng(seed)
    halves = np.stack([counts[:, 3] + counts[:, 4], counts[:, 0] + counts[:, 1]], axis=1)
    at_once = max(1, _CELLS_AT_ONCE // sentences)
    sums = np.concatenate(
        [
            generator.multinomial(sentences, np.full(sentences, 1 / sentences), size=min(at_once, _RESAMPLES - done))
            @ halves
            for done in range(0, _RESAMPLES, at_once)
        ]
    )
    agreement = np.divide(sums[:, 0], sums[:, 1], out=np.ones(len(sums)), where=sums[:, 1] > 0)
    low, high = np.quantile(1 - agreement, [0.025, 0.975])
    return (float(low), float(high))
