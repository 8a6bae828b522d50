"""The two attentions: a query asks, keys say what each position offers, values are what is taken.

Notation of the whole model room:
    B batch, S source length, T target length, H attention heads, D `d_model`, A `cross_attention_dim`, V vocabulary.
    d_0 = start token, d_t = y_t: the decoder input at row t; the output of row t predicts y_{t+1}.
    Masks: `attention_mask` (B, S), 1 = read, 0 = padding; inside, `readable` is bool and broadcasts to (B, H, T, S).
    `weights` (B, H, T, S): each row sums to 1 over the readable positions (to 1 - P(NULL) with a null key), padding
    gets exactly 0; a row with nothing to read is all 0 and its context is 0.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Memory(NamedTuple):
    """What attention reads: computed once per sentence, carried by the caller (no module keeps it).

    keys (B, H, S, A/H); values (B, H, S, width of a head's context); readable bool, broadcastable to (B, H, T, S),
    or None = every position. With a null key, position 0 is NULL and S counts it.
    """

    keys: Tensor
    values: Tensor
    readable: Tensor | None


class Attention(nn.Module):
    """Common ground of both attentions: project, score, weigh, sum. Subclasses say how to `score`.

    Args:
        query_dim, key_dim: Widths of the queries and of the states attended to; they may differ.
        output_dim: Width of the context vector.
        heads: H; each head scores with A/H of the width.
        attention_dim: A, the width of queries and keys over all heads; None = `query_dim`.
        project_values: Values get a projection of their own and the joined heads an output projection; False (one
            head only): the values are the states themselves, V = h, as in Bahdanau et al. 2015, eq. 5.
        null_key: Add a learned key and value that mean "no source position".
        dropout: On the weights that sum the values; the weights returned are those before dropout.
        config: Its `_attn_implementation` "eager" switches off the fused kernel where there is one.
    """

    def __init__(
        self,
        query_dim: int,
        key_dim: int,
        output_dim: int,
        heads: int = 1,
        attention_dim: int | None = None,
        project_values: bool = True,
        null_key: bool = False,
        dropout: float = 0.0,
        config: object = None,
    ) -> None:
        super().__init__()
        attention_dim = query_dim if attention_dim is None else attention_dim
        if attention_dim % heads or (project_values and output_dim % heads):
            raise ValueError(f"heads={heads} must divide attention_dim={attention_dim} and output_dim={output_dim}")
        if not project_values and (heads > 1 or key_dim != output_dim):
            raise ValueError(
                f"project_values=False needs heads=1 and key_dim == output_dim, got {heads}, {key_dim}, {output_dim}"
            )
        self.heads = heads
        self.dropout = dropout
        self.config = config
        self.q_proj = nn.Linear(query_dim, attention_dim)
        # No bias: under softmax q.b is the same for every key; in q + k the query's bias already serves.
        self.k_proj = nn.Linear(key_dim, attention_dim, bias=False)
        self.v_proj = nn.Linear(key_dim, output_dim) if project_values else None
        self.out_proj = nn.Linear(output_dim, output_dim) if project_values else None
        self.null_key: nn.Parameter | None = None
        self.null_value: nn.Parameter | None = None
        if null_key:
            self.null_key = nn.Parameter(torch.zeros(attention_dim))
            self.null_value = nn.Parameter(torch.zeros(output_dim))

    def score(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return scores (B, H, T, S) of queries (B, H, T, A/H) against keys (B, H, S, A/H), before masking."""
        raise NotImplementedError

    def remember(self, states: Tensor, attention_mask: Tensor | None = None) -> Memory:
        """Project states (B, S, key_dim) to keys and values, once per sentence; mask (B, S), 1 = read."""
        keys = self.k_proj(states)
        values = states if self.v_proj is None else self.v_proj(states)
        if self.null_key is not None and self.null_value is not None:
            batch = states.shape[0]
            keys = torch.cat([self.null_key.to(keys.dtype).expand(batch, 1, -1), keys], dim=1)
            values = torch.cat([self.null_value.to(values.dtype).expand(batch, 1, -1), values], dim=1)
        return Memory(self._split(keys), self._split(values), self.readable(attention_mask))

    def readable(self, attention_mask: Tensor | None) -> Tensor | None:
        """Return the mask (B, S), 1 = read, as bool (B, 1, 1, S), with NULL always readable; None stays None."""
        if attention_mask is None:
            return None
        readable = attention_mask.bool()
        if self.null_key is not None:
            readable = F.pad(readable, (1, 0), value=True)
        return readable[:, None, None, :]

    def forward(self, query: Tensor, memory: Memory, output_weights: bool = False) -> tuple[Tensor, Tensor | None]:
        """Attend with query (B, T, query_dim).

        Returns:
            context (B, T, output_dim), and the weights (B, H, T, S) in float32 before dropout, or None if not asked
            for. Gradients flow through both.
        """
        queries = self._split(self.q_proj(query))
        weights = None
        if not output_weights and self._has_fused_kernel():
            context = self._fused_context(queries, memory)
        else:
            weights = weigh(self.score(queries, memory.keys), memory.readable)
            dropped = F.dropout(weights, self.dropout, self.training)
            context = dropped.to(memory.values.dtype) @ memory.values
        context = context.transpose(1, 2).flatten(2)
        if self.out_proj is not None:
            context = self.out_proj(context)
            if memory.readable is not None:
                # The output bias must not stand in for a context where there was nothing to read.
                context = context * _has_something_to_read(memory.readable).any(1).to(context.dtype)
        if not output_weights or weights is None:
            return context, None
        return context, weights if self.null_key is None else weights[..., 1:]

    def _has_fused_kernel(self) -> bool:
        return False

    def _fused_context(self, queries: Tensor, memory: Memory) -> Tensor:
        raise NotImplementedError

    def _split(self, projected: Tensor) -> Tensor:
        """Reshape (B, L, H * width) to (B, H, L, width)."""
        return projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class ScaledDotProductAttention(Attention):
    """Score by direction and length: softmax(Q K^T / sqrt(d_k)) V (Vaswani et al. 2017, eq. 1), d_k = A/H.

    Args:
        scale_scores: Divide by sqrt(d_k). False leaves the variance of the scores growing with d_k, which drives
            softmax into the region where its gradient vanishes (same paper, footnote 4).
    """

    def __init__(self, *args: Any, scale_scores: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.scale = 1 / math.sqrt(self.q_proj.out_features // self.heads) if scale_scores else 1.0

    def score(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return q.k / sqrt(d_k)."""
        return (queries * self.scale) @ keys.transpose(-1, -2)

    def _has_fused_kernel(self) -> bool:
        return getattr(self.config, "_attn_implementation", "eager") == "sdpa"

    def _fused_context(self, queries: Tensor, memory: Memory) -> Tensor:
        context = F.scaled_dot_product_attention(
            queries,
            memory.keys,
            memory.values,
            attn_mask=memory.readable,
            dropout_p=self.dropout if self.training else 0.0,
            scale=self.scale,
        )
        if memory.readable is None:
            return context
        # What a kernel returns for a row with nothing to read differs from device to device.
        return torch.where(_has_something_to_read(memory.readable), context, 0.0)


class AdditiveAttention(Attention):
    """Score by a small network: v . tanh(W_q q + W_k k) (Bahdanau et al. 2015, appendix A.1.2).

    Unlike the paper, with H > 1 each head has a score vector v of its own, of width A/H.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.score_vector = nn.Parameter(torch.empty(self.heads, self.q_proj.out_features // self.heads))
        nn.init.uniform_(self.score_vector, -1, 1)

    def score(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return v . tanh(q + k) for every pair of query and key."""
        return additive_scores(queries, keys, self.score_vector)


def additive_scores_reference(queries: Tensor, keys: Tensor, score_vector: Tensor) -> Tensor:
    """Return v . tanh(q + k), (B, H, T, S), for queries (B, H, T, W), keys (B, H, S, W), score_vector (H, W).

    The formula as it stands; it holds B x H x T x S x W numbers, and autograd keeps them.
    """
    hidden = torch.tanh(queries[:, :, :, None] + keys[:, :, None])
    return (hidden * score_vector[:, None, None]).sum(-1)


def additive_scores(queries: Tensor, keys: Tensor, score_vector: Tensor) -> Tensor:
    """Return what `additive_scores_reference` returns, in float32 or better, without holding all of tanh(q + k).

    A few target rows at a time go through one buffer that fits the processor's cache, and the backward pass computes
    them anew. It cannot be differentiated twice.
    """
    dtype = torch.promote_types(queries.dtype, torch.float32)
    queries, keys, score_vector = queries.to(dtype), keys.to(dtype), score_vector.to(dtype)
    with torch.autocast(queries.device.type, enabled=False):
        if torch.compiler.is_compiling():
            return additive_scores_reference(queries, keys, score_vector)
        return _AdditiveScores.apply(queries, keys, score_vector)


class _AdditiveScores(torch.autograd.Function):
    """Additive scores by blocks of rows; with h = tanh(q + k) and e = h . v: de/dq = de/dk = v (1 - h^2), de/dv = h."""

    # Numbers in the buffer: 4 MiB on a CPU; on other devices few, large blocks.
    BUFFER = 2**20
    BUFFER_OF_ACCELERATORS = 2**26

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, score_vector: Tensor) -> Tensor:
        ctx.save_for_backward(queries, keys, score_vector)
        scores = queries.new_empty(*queries.shape[:3], keys.shape[2])
        for rows, hidden in _AdditiveScores._blocks(queries, keys):
            scores[:, :, rows] = (hidden.flatten(2, 3) @ score_vector[:, :, None]).view(scores[:, :, rows].shape)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, score_vector = ctx.saved_tensors
        of_queries, of_keys = torch.empty_like(queries), torch.zeros_like(keys)
        of_vector = torch.zeros_like(score_vector)
        for rows, hidden in _AdditiveScores._blocks(queries, keys):
            block = gradient[:, :, rows]
            of_vector += torch.einsum("bhts,bhtsw->hw", block, hidden)
            slope = hidden.square_().neg_().add_(1).mul_(block[..., None])
            of_queries[:, :, rows] = slope.sum(3)
            of_keys += slope.sum(2)
        return of_queries * score_vector[:, None], of_keys * score_vector[:, None], of_vector

    @staticmethod
    def _blocks(queries: Tensor, keys: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of rows and tanh(q + k) of them, (B, H, rows, S, W), each in the same buffer."""
        (batch, heads, length, width), positions = queries.shape, keys.shape[2]
        limit = _AdditiveScores.BUFFER if queries.is_cpu else _AdditiveScores.BUFFER_OF_ACCELERATORS
        step = max(1, min(length, limit // max(1, batch * heads * positions * width)))
        buffer = queries.new_empty(batch, heads, step, positions, width)
        for start in range(0, length, step):
            rows = slice(start, min(start + step, length))
            part = queries[:, :, rows, None]
            hidden = buffer if part.shape[2] == step else torch.empty_like(buffer[:, :, : part.shape[2]])
            torch.add(part, keys[:, :, None], out=hidden)
            yield rows, hidden.tanh_()


def weigh(scores: Tensor, readable: Tensor | None) -> Tensor:
    """Turn scores (B, H, T, S) into weights: softmax in float32 over the readable positions, exactly 0 elsewhere."""
    scores = scores.float()
    if readable is None:
        return torch.softmax(scores, dim=-1)
    weights = torch.softmax(scores.masked_fill(~readable, torch.finfo(scores.dtype).min), dim=-1)
    # Softmax leaves a row with nothing to read uniform; it must be all 0.
    return weights.masked_fill(~readable, 0.0)


def _has_something_to_read(readable: Tensor) -> Tensor:
    return readable.any(dim=-1, keepdim=True)
