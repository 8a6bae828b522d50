"""Steps 2 to 5 of attention, for one query, done again in NumPy's float64 from the weights of a module.

1 encode the source, h_1..h_S; 2 Q from the decoder state, K and V from h; 3 score; 4 softmax; 5 context
c = sum_i a_i V_i; 6 fuse c with the state and predict. Steps 1 and 6 belong to the model around the attention.
"""

from dataclasses import dataclass

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .attention_parts import AttentionParts

# Numbers done again in float64 must agree with the model's own: to this, or to what rounding in its dtype makes of
# them.
TOLERANCE = 1e-4
# e^80 is still a number in float32.
LARGEST_EXPONENT = 80.0


@dataclass(frozen=True)
class AttentionSteps:
    """What one query does under one head; W is the head's width, S the positions (NULL first, if there is one).

    Attributes:
        query: (W,) Q. keys: (S, W) K. values: (S, width of the head's context) V.
        hidden: (S, W) tanh(q + k) for additive attention, else None.
        raw: (S,) q.k, or v.tanh(q + k).
        scale: What raw is multiplied by: 1 / sqrt(d_k), or 1.
        scores, exponentials, weights: (S,); `total` is the sum of the exponentials, e^(scores - shift).
        shift: 0, or the highest score where its own exponential would be too large or too small a number.
        weighted: (S, ...) a_i V_i; `context` is their sum.
        readable: (S,) bool, False = padding.
        rounding: how far the weights of a model in its own dtype may be from these.
    """

    query: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    hidden: np.ndarray | None
    score_vector: np.ndarray | None
    raw: np.ndarray
    scale: float
    scores: np.ndarray
    shift: float
    exponentials: np.ndarray
    total: float
    weights: np.ndarray
    weighted: np.ndarray
    context: np.ndarray
    readable: np.ndarray
    rounding: float


def attention_steps(
    parts: AttentionParts, state: np.ndarray, states: np.ndarray, readable: np.ndarray | None = None
) -> list[AttentionSteps]:
    """Return the steps of one decoder state (query_dim,) over encoder states (S, key_dim), for every head.

    Args:
        readable: (S,) bool, False = padding; None = every position. NULL, where there is one, always is.
    """
    query = parts.query(state)
    keys, values = parts.key(states), states if parts.value is None else parts.value(states)
    mask = np.ones(len(states), dtype=bool) if readable is None else readable
    if parts.null_key is not None and parts.null_value is not None:
        keys, values = np.vstack([parts.null_key, keys]), np.vstack([parts.null_value, values])
        mask = np.concatenate([[True], mask])
    split = (np.split(part, parts.heads, axis=-1) for part in (query, keys, values))
    return [_one_head(parts, head, q, k, v, mask) for head, (q, k, v) in enumerate(zip(*split, strict=True))]


def joined_context(parts: AttentionParts, steps: list[AttentionSteps]) -> np.ndarray:
    """Return what the attention hands on, (D,): the heads' contexts side by side, through the output projection."""
    context = np.concatenate([each.context for each in steps])
    if parts.output is None:
        return context
    # With nothing to read there is no context, and the projection's bias must not stand in for one.
    return parts.output(context) if steps[0].readable.any() else np.zeros(parts.output.weight.shape[1])


def check_same(what: str, found: np.ndarray, wanted: np.ndarray, tolerance: float) -> float:
    """Return the largest difference between numbers done again and the model's own.

    Raises:
        ValueError: it is not within `tolerance`.
    """
    difference = float(np.abs(found - wanted).max())
    if not difference <= tolerance:
        raise UnusableError(
            f"{what}, done again step by step, differ from the model's by {difference:.2g}; what this model computes "
            "is not what these steps say, so they are not shown"
        )
    return difference


def _one_head(
    parts: AttentionParts, head: int, q: np.ndarray, k: np.ndarray, v: np.ndarray, readable: np.ndarray
) -> AttentionSteps:
    vector = None if parts.score_vector is None else parts.score_vector[head]
    if vector is None:
        hidden, raw = None, k @ q
        terms = np.abs(k) @ np.abs(q) * parts.scale
    else:
        hidden = np.tanh(q + k)
        raw = hidden @ vector
        terms = np.abs(hidden) @ np.abs(vector)
    scores = raw * parts.scale
    highest = float(scores[readable].max()) if readable.any() else 0.0
    shift = highest if abs(highest) > LARGEST_EXPONENT else 0.0
    exponentials = np.exp(np.where(readable, scores - shift, -np.inf))
    total = float(exponentials.sum())
    weights = exponentials / total if total else exponentials
    weighted = weights[:, None] * v
    return AttentionSteps(
        query=q, keys=k, values=v, hidden=hidden, score_vector=vector, raw=raw, scale=parts.scale, scores=scores,
        shift=shift, exponentials=exponentials, total=total, weights=weights, weighted=weighted,
        context=weighted.sum(0), readable=readable,
        rounding=max(TOLERANCE, 4 * parts.precision * (1 + float(terms.max()))),
    )  # fmt: skip
