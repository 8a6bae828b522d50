"""Text metrics with 95% intervals, by bootstrap over sentences (Koehn 2004), and scores of single sentences to rank by.

BLEU and chrF are resampled by sacrebleu, with its own seed (12345, or SACREBLEU_SEED), so that its signature says how.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.probing import RESAMPLES, bootstrap_totals

from .scoring import (
    TEXT_METRICS,
    edit_counts,
    exact_matches,
    reference_choices,
    reference_columns,
    sacrebleu_metrics,
    score_translations,
)

# sacrebleu holds the sums of all resamples at once.
_SENTENCES_AT_ONCE = 3_000_000
_FEWEST_RESAMPLES = 100


@dataclass(frozen=True)
class TextScore:
    """A metric over a corpus.

    Attributes:
        value: as of `score_translations`.
        ci95: 95% interval, within the metric's bounds.
        resamples: that the interval comes from.
        signature: sacrebleu's, for BLEU and chrF.
    """

    value: float
    ci95: tuple[float, float]
    resamples: int
    signature: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        shown = {"value": self.value, "ci95": list(self.ci95), "resamples": self.resamples}
        return shown if self.signature is None else {**shown, "signature": self.signature}


def score_with_intervals(
    hypotheses: Sequence[str],
    references: Sequence[str | Sequence[str]],
    metrics: Iterable[str] = ("bleu", "chrf"),
    bleu_tokenize: str = "none",
    seed: int = 0,
    *,
    bleu_lowercase: bool = False,
) -> dict[str, TextScore]:
    """Return the text metrics of `metrics`, in the order of `TEXT_METRICS`, each with its interval.

    Args:
        hypotheses, references, metrics, bleu_tokenize: as in `score_translations`.
        seed: of the resamples of wer, per, exact_match and word_error_rate.
        bleu_lowercase: compare lower-cased texts, as sacrebleu's `-lc`; BLEU alone.

    Raises:
        ValueError: no sentence, unequal numbers of hypotheses and references, or a metric that is not of texts.
    """
    wanted = set(metrics)
    if not wanted or wanted - set(TEXT_METRICS):
        raise UnusableError(f"metrics is {sorted(wanted)}; allowed are {', '.join(TEXT_METRICS)}")
    if not hypotheses:
        raise UnusableError("no sentence to score; give at least one")
    choices = reference_choices(hypotheses, references)
    values = score_translations(hypotheses, choices, wanted - {"bleu", "chrf"})
    scores: dict[str, TextScore] = {}
    for name, metric in sacrebleu_metrics(bleu_tokenize, bleu_lowercase).items():
        if name in wanted:
            scores[name] = _by_sacrebleu(metric, hypotheses, choices)
    if wanted & {"wer", "per"}:
        totals = bootstrap_totals(np.array(edit_counts(hypotheses, choices)), seed, RESAMPLES)
        interval = _interval(totals[:, 0] / np.maximum(totals[:, 1], 1))
        scores |= {name: TextScore(values[name], interval, RESAMPLES) for name in ("wer", "per") if name in wanted}
    if wanted & {"exact_match", "word_error_rate"}:
        matches = np.array(exact_matches(hypotheses, choices), dtype=np.float64)[:, None]
        shares = bootstrap_totals(matches, seed, RESAMPLES)[:, 0] / len(matches)
        for name, drawn in (("exact_match", shares), ("word_error_rate", 1 - shares)):
            if name in wanted:
                scores[name] = TextScore(values[name], _interval(drawn), RESAMPLES)
    return {name: scores[name] for name in TEXT_METRICS if name in scores}


def sentence_scores(hypotheses: Sequence[str], references: Sequence[str | Sequence[str]]) -> list[float]:
    """Return the chrF of each sentence, 0..100, against the best of its references."""
    metric = sacrebleu_metrics()["chrf"]
    choices = reference_choices(hypotheses, references)
    return [
        float(metric.sentence_score(hypothesis, several).score)
        for hypothesis, several in zip(hypotheses, choices, strict=True)
    ]


def _by_sacrebleu(metric: Any, hypotheses: Sequence[str], choices: Sequence[Sequence[str]]) -> TextScore:
    resamples = min(RESAMPLES, max(_FEWEST_RESAMPLES, _SENTENCES_AT_ONCE // len(hypotheses)))
    compute = metric._compute_score_from_stats

    def with_plain_number(stats: Any) -> Any:
        score = compute(stats)
        score.score = float(score.score)
        return score

    # A resample that scores 0 gives a float, others numpy's float32, and sacrebleu's mean of the two raises.
    metric._compute_score_from_stats = with_plain_number
    found = metric.corpus_score(list(hypotheses), reference_columns(choices), n_bootstrap=resamples)
    # It knows the middle of its interval and half of its width.
    middle, half = found._mean, found._ci
    interval = (round(max(0.0, middle - half), 3), round(min(100.0, middle + half), 3))
    return TextScore(round(found.score, 3), interval, resamples, str(metric.get_signature()))


def _interval(drawn: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return round(float(low), 5), round(float(high), 5)
