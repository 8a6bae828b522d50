"""Steps 2 to 5 of attention, for one query and one head, as numbers read from a module of ours.

1 encode the source, h_1..h_S; 2 Q from the decoder state, K and V from h; 3 score; 4 softmax; 5 context
c = sum_i a_i V_i; 6 fuse c with the state and predict. Steps 1 and 6 belong to the model around the attention.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_seq2seq_attn.errors import UnusableError

# Weights recomputed in float64 from the module's own vectors must agree with what its forward returned: to this, or to
# what rounding of the scores in the module's own dtype makes of them.
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


@torch.no_grad()
def attention_steps(attention: Any, state: Tensor, memory: Any, head: int = 0) -> AttentionSteps:
    """Read the steps of one decoder state (query_dim,) from an attention module and its memory (batch of one).

    Queries, keys and values come from the module; scores, softmax and sum are done again in float64 and compared
    with the weights that the module's own forward returns.

    Raises:
        ValueError: the recomputed weights differ from the module's by more than 1e-4 and than rounding in its dtype
            explains.
    """
    attention_of_one = state.reshape(1, 1, -1)
    query = attention.q_proj(attention_of_one)[0, 0].unflatten(0, (attention.heads, -1))[head]
    keys, values = memory.keys[0, head], memory.values[0, head]
    readable = np.ones(len(keys), dtype=bool) if memory.readable is None else memory.readable[0, 0, 0].cpu().numpy()
    q, k, v = (part.detach().double().cpu().numpy() for part in (query, keys, values))
    vector = getattr(attention, "score_vector", None)
    if vector is None:
        hidden, raw, scale, vector64 = None, k @ q, attention.scale, None
        terms = np.abs(k) @ np.abs(q) * scale
    else:
        vector64 = vector[head].detach().double().cpu().numpy()
        hidden = np.tanh(q + k)
        raw, scale = hidden @ vector64, 1.0
        terms = np.abs(hidden) @ np.abs(vector64)
    scores = raw * scale
    highest = float(scores[readable].max())
    shift = highest if abs(highest) > LARGEST_EXPONENT else 0.0
    exponentials = np.exp(np.where(readable, scores - shift, -np.inf))
    total = float(exponentials.sum())
    weights = exponentials / total
    weighted = weights[:, None] * v
    rounding = torch.finfo(attention.q_proj.weight.dtype).eps * (1 + terms.max())
    _check(attention, attention_of_one, memory, head, weights, max(TOLERANCE, 2 * rounding))
    return AttentionSteps(
        query=q, keys=k, values=v, hidden=hidden, score_vector=vector64, raw=raw, scale=scale, scores=scores,
        shift=shift, exponentials=exponentials, total=total, weights=weights, weighted=weighted,
        context=weighted.sum(0), readable=readable,
    )  # fmt: skip


def _check(attention: Any, query: Tensor, memory: Any, head: int, weights: np.ndarray, tolerance: float) -> None:
    _, returned = attention(query, memory, output_weights=True)
    theirs = returned[0, head, 0].double().cpu().numpy()
    difference = float(np.abs(theirs - weights[len(weights) - len(theirs) :]).max())
    if not difference < tolerance:
        raise UnusableError(f"the weights recomputed step by step differ from the model's by {difference:.2g}")
