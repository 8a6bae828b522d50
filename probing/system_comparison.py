"""Systems that were trained several times, with other seeds: mean, deviation, interval and paired tests.

- AER of a system: the mean over its seeds; the standard deviation over them (n - 1) tells how much a seed matters.
- Interval: 95%, bootstrap over sentences (Koehn 2004); each resample draws sentences once for all seeds and all systems
  and takes the mean of the seeds' AERs.
- Test between two systems: approximate randomisation over sentences, as in `compare_scores`, of the systems' counts
  averaged over seeds, so that systems may have unequal numbers of seeds; with one seed each it is that test.
- Holm 1979 corrects the p-values for the number of pairs of systems.
The intervals and tests are about these sentences with these trained models: whether other seeds would do the same is
for the deviation to tell.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from .aligned_pair import Gold
from .comparison import compare_counts
from .link_types import Link
from .resampling import RESAMPLES, aer_of, bootstrap_sums, halves_of
from .scores import AlignmentScore, count_links, score_counts


@dataclass(frozen=True)
class SystemScore:
    """One system over its seeds.

    Attributes:
        name: of the system.
        seeds: the score of each seed.
        aer: mean over seeds.
        deviation: standard deviation of the seeds' AERs (n - 1); None with one seed.
        ci95: 95% interval of the mean AER.
        precision, recall, f1: means over seeds.
    """

    name: str
    seeds: tuple[AlignmentScore, ...]
    aer: float
    deviation: float | None
    ci95: tuple[float, float]
    precision: float
    recall: float
    f1: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **asdict(self),
            "ci95": list(self.ci95),
            "seeds": [
                {name: value for name, value in seed.as_dict().items() if name not in ("alpha", "f_alpha", "base")}
                for seed in self.seeds
            ],
        }


@dataclass(frozen=True)
class SystemDifference:
    """Two systems on the same sentences.

    Attributes:
        name, other: the systems.
        difference: mean AER of the first minus that of the other; below 0 the first is better.
        ci95: 95% interval of the difference, paired bootstrap.
        better: share of the resamples in which the first has the lower mean AER, ties counted half.
        p_value: approximate randomisation, two-sided.
        p_holm: the same, corrected for the number of pairs of systems.
    """

    name: str
    other: str
    difference: float
    ci95: tuple[float, float]
    better: float
    p_value: float
    p_holm: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "ci95": list(self.ci95)}


@dataclass(frozen=True)
class SystemComparison:
    """Several systems on one gold.

    Attributes:
        systems: in the order given.
        differences: every pair of systems.
        sentences, sure, possible: of gold.
        resamples: of the bootstrap and of each test.
    """

    systems: tuple[SystemScore, ...]
    differences: tuple[SystemDifference, ...]
    sentences: int
    sure: int
    possible: int
    resamples: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **asdict(self),
            "systems": [system.as_dict() for system in self.systems],
            "differences": [difference.as_dict() for difference in self.differences],
        }


def compare_systems(
    systems: Mapping[str, Sequence[Sequence[Iterable[Link]]]],
    gold: Sequence[Gold],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> SystemComparison:
    """Compare systems, each with the links of one or more seeds, on the same gold.

    Args:
        systems: for each name the links of each seed, one entry for each sentence, 0-based.
        gold: one entry for each sentence.
        seed: of bootstrap and tests.

    Raises:
        ValueError: no system, a system without links, no sentence, or unequal numbers of sentences; names the system.
    """
    if not systems or not gold:
        raise ValueError("nothing to compare: give at least one system and one sentence of gold")
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; it must be at least 1")
    counts = {name: _counts(name, seeds, gold) for name, seeds in systems.items()}
    drawn = {name: _drawn(each, seed, resamples) for name, each in counts.items()}
    scores = [_score(name, each, drawn[name], seed) for name, each in counts.items()]
    pairs = list(combinations(counts, 2))
    p_values = [
        compare_counts(counts[one].mean(axis=0), counts[other].mean(axis=0), seed=seed, resamples=resamples).p_value
        for one, other in pairs
    ]
    differences = [
        _difference(one, other, drawn, counts, p_value, corrected)
        for (one, other), p_value, corrected in zip(pairs, p_values, holm(p_values), strict=True)
    ]
    return SystemComparison(
        systems=tuple(scores),
        differences=tuple(differences),
        sentences=len(gold),
        sure=sum(len(each.sure) for each in gold),
        possible=sum(len(each.possible) for each in gold),
        resamples=resamples,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979, step down): never below the uncorrected, never above 1."""
    corrected = [0.0] * len(p_values)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = least
    return corrected


def _counts(name: str, seeds: Sequence[Sequence[Iterable[Link]]], gold: Sequence[Gold]) -> np.ndarray:
    """Return the counts of `count_links`, (seeds, sentences, 5)."""
    if not seeds:
        raise ValueError(f"system {name!r} has no links; give those of at least one seed")
    try:
        return np.stack([count_links(links, gold) for links in seeds])
    except ValueError as error:
        raise ValueError(f"system {name!r}: {error}") from error


def _drawn(counts: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    """Return the mean AER of each resample, (resamples,); the same seed draws the same sentences for every system."""
    aers = [aer_of(bootstrap_sums(each, seed, resamples)) for each in counts]
    return np.asarray(np.mean(aers, axis=0))


def _aers(counts: np.ndarray) -> np.ndarray:
    return aer_of(np.stack([halves_of(each).sum(axis=0) for each in counts]))


def _score(name: str, counts: np.ndarray, drawn: np.ndarray, seed: int) -> SystemScore:
    seeds = tuple(score_counts(each, seed=seed) for each in counts)
    aers = _aers(counts)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return SystemScore(
        name=name,
        seeds=seeds,
        aer=float(aers.mean()),
        deviation=float(aers.std(ddof=1)) if len(aers) > 1 else None,
        ci95=(float(low), float(high)),
        precision=float(np.mean([each.precision for each in seeds])),
        recall=float(np.mean([each.recall for each in seeds])),
        f1=float(np.mean([each.f1 for each in seeds])),
    )


def _difference(
    one: str,
    other: str,
    drawn: Mapping[str, np.ndarray],
    counts: Mapping[str, np.ndarray],
    p_value: float,
    corrected: float,
) -> SystemDifference:
    apart = drawn[one] - drawn[other]
    low, high = np.quantile(apart, [0.025, 0.975])
    return SystemDifference(
        name=one,
        other=other,
        difference=float(_aers(counts[one]).mean() - _aers(counts[other]).mean()),
        ci95=(float(low), float(high)),
        better=float((apart < 0).mean() + (apart == 0).mean() / 2),
        p_value=p_value,
        p_holm=corrected,
    )
