"""Read word links off a matrix of weights, in any of the ways that `EXTRACTIONS` names.

Every way is a function of a (T, S) matrix, one row for each target word, weights of at least 0, and optionally of
`null` (T,): the weight of "no source word" in each row. Scaling the whole matrix changes nothing but `threshold`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .hmm import DEFAULT_JUMPS, JumpModel, hmm_links, learn_jumps
from .link_types import Link, Links, as_links, checked_matrix, checked_null
from .matching import itermax_links, match_links, mutual_links
from .transport import THRESHOLD, transport_links


def argmax_links(matrix: np.ndarray, null: np.ndarray | None = None) -> Links:
    """Link each target word to the source word it attends to most.

    Ties go to the first source word. A row without any positive weight gives no link: it says nothing.

    Args:
        matrix: (T, S) float, one row for each target word.
        null: (T,) float, the weight of "no source word" in each row; where it is at least the row's maximum the
            target word stays unlinked.
    """
    matrix = checked_matrix(matrix)
    if matrix.size == 0:
        return frozenset()
    linked = matrix.max(axis=1) > checked_null(matrix, null)
    return as_links(matrix.argmax(axis=1)[linked], np.flatnonzero(linked))


def threshold_links(matrix: np.ndarray, threshold: float) -> Links:
    """Link every cell of `matrix` (T, S) whose weight is at least `threshold`, which must be above 0."""
    if not threshold > 0:
        raise ValueError(f"threshold is {threshold!r}; it must be above 0, e.g. 0.2")
    targets, sources = np.nonzero(checked_matrix(matrix) >= threshold)
    return as_links(sources, targets)


def relative_links(matrix: np.ndarray, share: float, null: np.ndarray | None = None) -> Links:
    """Link every cell whose weight is at least `share` times its row's maximum (Zouhar and Pylypenko 2021, A3).

    At 1 this is argmax with all ties; below it a target word gets every source word that comes near to the best one.
    A cell must also be positive and above `null`, as in `argmax_links`.

    Args:
        matrix: (T, S) float.
        share: above 0, at most 1.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share!r}; it must be above 0 and at most 1, e.g. 0.5")
    matrix = checked_matrix(matrix)
    if matrix.size == 0:
        return frozenset()
    enough = matrix >= share * matrix.max(axis=1, keepdims=True)
    targets, sources = np.nonzero(enough & (matrix > checked_null(matrix, null)[:, None]))
    return as_links(sources, targets)


def link_probabilities(
    matrix: np.ndarray, links: Sequence[Link] | Links, null: np.ndarray | None = None
) -> dict[Link, float]:
    """Return each link's share of its target word's weight: matrix[j, i] / (sum of row j + null[j]).

    A number in 0..1, the same whatever the matrix is scaled by; the shares of one target word sum to at most 1. It is
    what the model puts on this source word, not a calibrated chance that an annotator would draw the link. A row
    without weight gives 0.

    Args:
        matrix: (T, S) float, as for the function that read the links.
        null: (T,) float, weight of "no source word" in each row.

    Raises:
        ValueError: a link outside the matrix.
    """
    matrix = checked_matrix(matrix)
    targets, sources = matrix.shape
    outside = next((link for link in links if not (0 <= link[0] < sources and 0 <= link[1] < targets)), None)
    if outside is not None:
        raise ValueError(f"link {outside} lies outside a matrix of {targets} target and {sources} source words")
    total = matrix.sum(axis=1, dtype=np.float64) + checked_null(matrix, null)
    share = np.divide(matrix, total[:, None], out=np.zeros(matrix.shape), where=total[:, None] > 0)
    return {(i, j): float(share[j, i]) for i, j in links}


@dataclass(frozen=True)
class Extraction:
    """One way to read links off a matrix.

    Attributes:
        read: called as read(matrix, null, value); `value` is what follows the colon, or `default`.
        values: what the value may be, in words; None if the way takes none.
        valid: tells whether a value is allowed.
        default: the value if none is given; None = one must be given.
        whole: the value is a whole number.
    """

    read: Callable[[np.ndarray, np.ndarray | None, float], Links]
    values: str | None = None
    valid: Callable[[float], bool] = lambda value: False
    default: float | None = None
    whole: bool = False

    def describe(self, name: str) -> str:
        """Return how the way is written, e.g. `ot[:X] with X above 0`."""
        if self.values is None:
            return name
        letter = "N" if self.whole else "X"
        written = f"{name}:{letter}" if self.default is None else f"{name}[:{letter}]"
        return f"{written} with {letter} {self.values}"


EXTRACTIONS: dict[str, Extraction] = {
    "argmax": Extraction(lambda matrix, null, _: argmax_links(matrix, null)),
    "mutual": Extraction(lambda matrix, null, _: mutual_links(matrix, null)),
    "threshold": Extraction(
        lambda matrix, _, value: threshold_links(matrix, value), "above 0, e.g. threshold:0.2", lambda value: value > 0
    ),
    "relative": Extraction(
        lambda matrix, null, value: relative_links(matrix, value, null),
        "above 0 and at most 1, e.g. relative:0.5",
        lambda value: 0 < value <= 1,
    ),
    "itermax": Extraction(
        lambda matrix, null, value: itermax_links(matrix, null, rounds=int(value)),
        "at least 1",
        lambda value: value >= 1 and value == int(value),
        default=2,
        whole=True,
    ),
    "match": Extraction(lambda matrix, null, _: match_links(matrix, null)),
    "ot": Extraction(
        lambda matrix, null, value: transport_links(matrix, null, threshold=value),
        "above 0",
        lambda value: value > 0,
        default=THRESHOLD,
    ),
    "hmm": Extraction(
        lambda matrix, null, value: hmm_links(matrix, null, jumps=DEFAULT_JUMPS.with_null(value)),
        "at least 0 and below 1, the probability of no source word",
        lambda value: 0 <= value < 1,
        default=DEFAULT_JUMPS.null,
    ),
}


def extract_links(
    matrix: np.ndarray, how: str = "argmax", null: np.ndarray | None = None, *, jumps: JumpModel | None = None
) -> Links:
    """Read links off `matrix` (T, S) in the way that `how` names: one of `EXTRACTIONS`, a value after a colon.

    Args:
        jumps: what `hmm` uses, from `corpus_jumps`; None = its default jumps. Other ways do not look at it.

    Raises:
        ValueError: `how` is none of these.
    """
    method, value = _parse(how)
    if jumps is not None and method is EXTRACTIONS["hmm"]:
        return hmm_links(matrix, null, jumps=jumps)
    return method.read(matrix, null, value)


def extract_corpus_links(
    matrices: Sequence[np.ndarray], how: str = "argmax", nulls: Sequence[np.ndarray | None] | None = None
) -> list[Links]:
    """Read the links of many sentence pairs; as `extract_links`, but `hmm` first learns the jumps of these pairs.

    Args:
        matrices: (T, S) float each.
        nulls: (T,) float or None each.
    """
    jumps = corpus_jumps(matrices, how, nulls)
    nulls = [None] * len(matrices) if nulls is None else nulls
    return [extract_links(matrix, how, null, jumps=jumps) for matrix, null in zip(matrices, nulls, strict=True)]


def learns_jumps(how: str) -> bool:
    """Tell whether `how` reads a pair in the light of the other pairs of its corpus."""
    return _parse(how)[0] is EXTRACTIONS["hmm"]


def corpus_jumps(
    matrices: Sequence[np.ndarray], how: str, nulls: Sequence[np.ndarray | None] | None = None
) -> JumpModel | None:
    """Return the jumps that `hmm` learns from these pairs; None where `how` is another way.

    Args:
        matrices, nulls: as in `extract_corpus_links`.
    """
    if not learns_jumps(how):
        return None
    return learn_jumps(matrices, nulls, start=DEFAULT_JUMPS.with_null(_parse(how)[1]))


def check_extraction(how: str) -> None:
    """Raise an UnusableError unless `extract_links` knows `how`."""
    _parse(how)


def _parse(how: str) -> tuple[Extraction, float]:
    name, colon, text = how.partition(":")
    method = EXTRACTIONS.get(name)
    if method is not None:
        if not colon and (method.values is None or method.default is not None):
            return method, 0.0 if method.default is None else method.default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if np.isfinite(value) and method.valid(value):
            return method, value
    allowed = "; ".join(method.describe(name) for name, method in EXTRACTIONS.items())
    raise UnusableError(f"links is {how!r}; allowed are {allowed}")
