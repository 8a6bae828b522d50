"""Quality against source length: what a single vector forgets of a long sentence, and attention does not.

The picture is figure 2 of Bahdanau, Cho and Bengio 2015: BLEU of test sentences by their length, one line for each
model.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hf_seq2seq_attn.errors import UnusableError

from .scoring import METRICS, TEXT_METRICS, score_translations

BOUNDS = (5, 10, 15, 20, 25, 30, 35, 40, 50, 60)
_MARKERS = "os^Dvx*P"


@dataclass(frozen=True)
class LengthScore:
    """The quality of the sentences whose sources have `first` to `last` words.

    Attributes:
        last: None = no end.
        sentences: how many there are. mean_length: of their sources, in words.
        scores: as of `score_translations`.
    """

    first: int
    last: int | None
    sentences: int
    mean_length: float
    scores: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain JSON values."""
        return asdict(self)


def score_by_source_length(
    hypotheses: Sequence[str],
    references: Sequence[str | Sequence[str]],
    sources: Sequence[str],
    bounds: Sequence[int] = BOUNDS,
    *,
    lengths: Sequence[int] | None = None,
    metrics: Iterable[str] = ("bleu", "chrf"),
    bleu_tokenize: str = "none",
) -> list[LengthScore]:
    """Score the sentences of each range of source lengths apart; a range without sentences is left out.

    Args:
        references: for each hypothesis its reference, or several.
        bounds: the last length of each range, rising; `(10, 20)` gives 0-10, 11-20 and all above.
        lengths: of each source; None = its words between blanks. Give them for a language without blanks.
        metrics: text metrics of `scoring.METRICS`; BLEU and chrF are those of sacrebleu over the whole range.
        bleu_tokenize: as in `score_translations`.

    Raises:
        ValueError: columns of different lengths, bounds that do not rise, or a metric that is not of texts.
    """
    if lengths is None:
        lengths = [len(source.split()) for source in sources]
    if not len(hypotheses) == len(references) == len(sources) == len(lengths):
        raise UnusableError(
            f"{len(hypotheses)} hypotheses, {len(references)} references, {len(sources)} sources and {len(lengths)} "
            "lengths; give one of each for a sentence"
        )
    if not bounds or list(bounds) != sorted(set(bounds)) or bounds[0] < 0:
        raise UnusableError(f"bounds is {list(bounds)}; they must rise from 0 or more, e.g. {BOUNDS}")
    metrics = tuple(metrics)
    if not metrics or set(metrics) - set(TEXT_METRICS):
        raise UnusableError(f"metrics is {list(metrics)}; allowed are {', '.join(TEXT_METRICS)}")
    ranges = [*zip([0, *(bound + 1 for bound in bounds)], [*bounds, None], strict=True)]
    members: list[list[int]] = [[] for _ in ranges]
    for sentence, length in enumerate(lengths):
        members[bisect_left(bounds, length)].append(sentence)
    return [
        LengthScore(
            first=first,
            last=last,
            sentences=len(inside),
            mean_length=sum(lengths[i] for i in inside) / len(inside),
            scores=score_translations(
                [hypotheses[i] for i in inside], [references[i] for i in inside], metrics, bleu_tokenize
            ),
        )
        for (first, last), inside in zip(ranges, members, strict=True)
        if inside
    ]


def draw_quality_by_length(curves: Mapping[str, Sequence[LengthScore]], metric: str = "bleu", ax: Any = None) -> Any:
    """Draw a metric against source length, one line for each model; return the matplotlib axes.

    Each point stands at the mean length of its range. The numbers above the axis say how many sentences the ranges
    hold; where models were scored on different sentences, they are those of the first.

    Args:
        curves: the model's name -> what `score_by_source_length` returned.
        ax: the axes to draw on; None = those of a new figure.

    Raises:
        ValueError: nothing to draw, or a metric that was not scored.
    """
    from matplotlib.figure import Figure

    rows = [row for curve in curves.values() for row in curve]
    if not rows or any(metric not in row.scores for row in rows):
        scored = sorted(set(rows[0].scores) & set(METRICS)) if rows else []
        raise UnusableError(f"metric is {metric!r}; scored were {', '.join(scored) or 'no sentences at all'}")
    if ax is None:
        ax = Figure(figsize=(6.4, 4), layout="constrained").subplots()
    for marker, (name, curve) in zip(_MARKERS * len(curves), curves.items(), strict=False):
        x, y = [row.mean_length for row in curve], [row.scores[metric] for row in curve]
        ax.plot(x, y, marker=marker, markersize=5, label=name)
    for row in next(iter(curves.values())):
        ax.annotate(
            f"n={row.sentences}", (row.mean_length, 1), xycoords=("data", "axes fraction"), xytext=(0, 2),
            textcoords="offset points", ha="center", fontsize=7, color="gray",
        )  # fmt: skip
    labels = {"bleu": "BLEU", "chrf": "chrF", "exact_match": "exact match"}
    ax.set(xlabel="source length in words", ylabel=labels.get(metric, metric))
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax
