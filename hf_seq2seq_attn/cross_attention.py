"""The two attentions: a query asks, keys say what each position offers, values are what is taken.

Notation of the whole model room:
    B batch, S source length, T target length, H attention heads, D `d_model`, A `cross_attention_dim`, V vocabulary.
    d_0 = start token, d_t = y_t: the decoder input at row t; the output of row t predicts y_{t+1}.
    Masks: `attention_mask` (B, S), 1 = read, 0 = padding; inside, `readable` is bool and broadcasts to (B, H, T, S).
    `weights` (B, H, T, S): each row sums to 1 over the readable positions (to 1 - P(NULL) with a null key), padding
    gets exactly 0; a row with nothing to read is all 0 and its context is 0.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.utils.import_utils import is_tracing

from .additive_scores import additive_scores
from .additive_scores import additive_scores_reference as additive_scores_reference
from .plain_forms import takes_fast_path


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
        config: Its `_attn_implementation` says whether scaled dot product may use a fused kernel: `sdpa` (also the
            default) where that is faster, see `fused_is_faster`; `eager` never.
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
        readable, reads = memory.readable, rows_that_read(memory.readable)
        if not output_weights and self._takes_fused_kernel(queries, memory.keys):
            context = self._fused_context(queries, memory, reads)
        else:
            weights = softmax_over(self.score(queries, memory.keys), readable)
            if output_weights and reads is not None:
                weights = weights.masked_fill(~reads, 0.0)
            dropped = F.dropout(weights, self.dropout, self.training)
            context = self._sum_values(dropped, memory.values)
        context = context.transpose(1, 2).flatten(2)
        if self.out_proj is not None:
            context = self.out_proj(context)
        if reads is not None:
            # Nor must the output bias stand in for a context where there was nothing to read.
            context = context * reads.any(1).to(context.dtype)
        if not output_weights or weights is None:
            return context, None
        return context, weights if self.null_key is None else weights[..., 1:]

    def _sum_values(self, weights: Tensor, values: Tensor) -> Tensor:
        return weights.to(values.dtype) @ values

    def _takes_fused_kernel(self, queries: Tensor, keys: Tensor) -> bool:
        return False

    def _fused_context(self, queries: Tensor, memory: Memory, reads: Tensor | None) -> Tensor:
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

    def _takes_fused_kernel(self, queries: Tensor, keys: Tensor) -> bool:
        allowed = getattr(self.config, "_attn_implementation", "eager") == "sdpa"
        return allowed and fused_is_faster(queries, keys, self.training)

    def _fused_context(self, queries: Tensor, memory: Memory, reads: Tensor | None) -> Tensor:
        mask = memory.readable
        if mask is not None and reads is not None:
            # What a kernel returns for a row with nothing to read differs from device to device, NaN among it.
            mask = mask | ~reads
        return F.scaled_dot_product_attention(
            queries,
            memory.keys,
            memory.values,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            scale=self.scale,
        )


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


def fused_is_faster(queries: Tensor, keys: Tensor, training: bool) -> bool:
    """Tell whether `F.scaled_dot_product_attention` beats the formula for queries (B, H, T, W) and keys (B, H, S, W).

    It does everywhere but on a CPU where a gradient is wanted and the sequences are short, since there its backward
    pass is slow. Forward and backward of the fused kernel took, against the formula as it stands here (torch 2.13, one
    thread of an AMD EPYC with AVX512_BF16, padding mask; `benchmarks/speed/choices.py`, speed_choices.json):

        T = S     bfloat16, W 32 / 64     float32, W 32 / 64
        20             6.6 / 6.6             1.7 / 1.2
        64             3.2 / 2.5             1.1 / 1.0
        128                  1.5                   1.0
        192                  1.0                   0.8
        256                  0.8                   0.8
        512                  0.6                   0.6

    In float16 it is 0.6 to 0.8 everywhere. Both give the same function; `attn_implementation="eager"` or asking for
    the weights always takes the formula.
    """
    if torch.compiler.is_compiling():
        return True
    if not takes_fast_path():
        return False
    if not queries.is_cpu or not (training or (torch.is_grad_enabled() and queries.requires_grad)):
        return True
    pairs = queries.shape[2] * keys.shape[2]
    longest = {torch.bfloat16: 192, torch.float32: 64}.get(queries.dtype, 0)
    return pairs > longest * longest


def weigh(scores: Tensor, readable: Tensor | None) -> Tensor:
    """Turn scores (B, H, T, S) into weights: softmax in float32 over the readable positions, exactly 0 elsewhere."""
    weights, reads = softmax_over(scores, readable), rows_that_read(readable)
    return weights if reads is None else weights.masked_fill(~reads, 0.0)


def softmax_over(scores: Tensor, readable: Tensor | None) -> Tensor:
    """Return what `weigh` does, but uniform rows where there is nothing to read."""
    if readable is None:
        return torch.softmax(scores.float(), dim=-1)
    # Added, not filled in: addition needs no work in the backward pass.
    unread = torch.where(readable, 0.0, torch.finfo(torch.float32).min)
    return torch.softmax(scores.float() + unread, dim=-1)


def rows_that_read(readable: Tensor | None) -> Tensor | None:
    """Return bool (B or 1, 1, T or 1, 1): which rows have something to read; None where that is known to be all.

    On a CPU it is looked up; elsewhere looking would wait for the device, and in a traced graph it cannot be.
    """
    if readable is None:
        return None
    reads = readable.any(dim=-1, keepdim=True)
    return None if reads.is_cpu and not is_tracing(reads) and bool(reads.all()) else reads
