"""Additive attention scores, v . tanh(q + k), for every pair of query and key, without holding tanh(q + k).

Letters: B batch, H heads, T queries, S keys, W width of a head. B x H x T x S x W numbers are never in memory at once:
blocks of them go through one buffer that fits the processor's cache, and the backward pass computes them anew.

On CPUs tanh is the dear part, and exponentials that are computed once per query and once per key replace it:

    tanh(q + k) = 1 - 2 r,   1 - tanh(q + k)^2 = 4 (r - r^2),   r = 1 / (1 + exp(2q) exp(2k))

That needs keys within `KEY_BOUND`, where exp(2k) is a normal number of its type. Queries need no bound: one further
than `SATURATION` beyond the keys' bound gives tanh = 1 or -1 to the last bit with each key, and so does the bound
itself. Keys out of bound, and all keys on accelerators (where to ask for the largest would wait for the device, and
tanh is cheap), take the plain form. Nothing here was run on a GPU.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .cpu_kernels import fused_score_rows, fused_score_rows_backward, score_kernels_ready
from .plain_forms import first_derivative_only, takes_fast_path

# |k| up to which exp(2k) is used, by type; and what |q + k| makes tanh(q + k) round to 1 in that type.
KEY_BOUND = {torch.float32: 33.0, torch.float64: 330.0}
SATURATION = {torch.float32: 10.0, torch.float64: 20.0}
# Numbers in the buffer: 1 MiB of float32 on a CPU; on other devices few, large blocks.
BUFFER = 2**18
BUFFER_OF_ACCELERATORS = 2**26


class PreparedKeys(NamedTuple):
    """What all queries of a sentence share: keys (B, H, S, W), contiguous, and exp(2 keys), or None = use tanh."""

    keys: Tensor
    exponentials: Tensor | None


def prepare_keys(keys: Tensor) -> PreparedKeys:
    """Prepare keys (B, H, S, W), float32 or float64, for `score_rows` and `score_rows_backward`; once per sentence."""
    keys = keys.detach().contiguous()
    usable = False
    if keys.is_cpu and keys.numel():
        least, largest = torch.aminmax(keys)
        usable = bool(largest <= KEY_BOUND[keys.dtype]) and bool(least >= -KEY_BOUND[keys.dtype])
    return PreparedKeys(keys, torch.mul(keys, 2).exp_() if usable else None)


def score_rows(queries: Tensor, prepared: PreparedKeys, score_vector: Tensor) -> Tensor:
    """Return v . tanh(q + k), (B, H, T, S), of queries (B, H, T, W) and score_vector (H, W); unseen by autograd.

    All in the dtype of the prepared keys.
    """
    with torch.no_grad():
        exponentials = prepared.exponentials
        if exponentials is not None and queries.numel() and score_kernels_ready(queries, exponentials, score_vector):
            return fused_score_rows(queries, exponentials, score_vector, _bound(queries.dtype))
        scores = queries.new_empty(*queries.shape[:3], prepared.keys.shape[2])
        for head, sentences, rows, block in _blocks(queries, prepared):
            scores[sentences, head, rows] = (block.flatten(0, 2) @ score_vector[head]).view(block.shape[:3])
        if exponentials is not None:
            scores.mul_(-2).add_(score_vector.sum(-1)[:, None, None])
        return scores


def score_rows_backward(
    queries: Tensor,
    prepared: PreparedKeys,
    score_vector: Tensor,
    gradient: Tensor,
    of_keys: Tensor,
    of_vector: Tensor,
) -> Tensor:
    """Return the gradient of the queries (B, H, T, W), given that of the scores (B, H, T, S).

    The gradients of keys and score vector are added in place to of_keys (B, H, S, W) and of_vector (H, W): complete,
    with nothing left to multiply.
    """
    with torch.no_grad():
        exponentials = prepared.exponentials
        tensors = queries, score_vector, gradient, of_keys, of_vector
        if exponentials is not None and queries.numel() and score_kernels_ready(exponentials, *tensors):
            return fused_score_rows_backward(
                queries, exponentials, score_vector, _bound(queries.dtype), gradient, of_keys, of_vector
            )
        of_queries = torch.zeros_like(queries, memory_format=torch.contiguous_format)
        for head, sentences, rows, block in _blocks(queries, prepared):
            part = gradient[sentences, head, rows]
            of_block = part.flatten() @ block.flatten(0, 2)
            # tanh(q + k) = -2 (r - 1/2): taken block by block, large sums do not cancel at the end.
            of_vector[head] += of_block if exponentials is None else part.sum() - 2 * of_block
            # Of r: r - r^2; of the hyperbolic tangent: 1 - tanh^2.
            slope = block.square_().neg_().add_(1) if exponentials is None else block.addcmul_(block, block, value=-1)
            slope.mul_(part[..., None])
            of_queries[sentences, head, rows] = slope.sum(2)
            of_all_rows = slope[:, 0] if slope.shape[1] == 1 else slope.sum(1)
            of_keys[sentences, head].addcmul_(of_all_rows, score_vector[head], value=1 if exponentials is None else 4)
        return of_queries.mul_(score_vector[:, None] * (1 if exponentials is None else 4))


def _bound(dtype: torch.dtype) -> float:
    """Return where a query saturates tanh(q + k) with every usable key, and stays there."""
    return KEY_BOUND[dtype] + SATURATION[dtype]


def _blocks(queries: Tensor, prepared: PreparedKeys) -> Iterator[tuple[int, slice, slice, Tensor]]:
    """Yield a head, slices of the sentences and of the rows, and their block (sentences, rows, S, W).

    A block holds r where there are exponentials, else tanh(q + k). Each lies in the same buffer, for the caller to
    overwrite.
    """
    (batch, heads, length, width), positions = queries.shape, prepared.keys.shape[2]
    if not queries.numel() or not prepared.keys.numel():
        return
    keys = prepared.keys
    if prepared.exponentials is not None:
        bound = _bound(queries.dtype)
        queries, keys = torch.exp(queries.clamp(-bound, bound) * 2), prepared.exponentials
    limit = BUFFER if queries.is_cpu else BUFFER_OF_ACCELERATORS
    row_step = max(1, min(length, limit // (positions * width)))
    step = max(1, min(batch, limit // (positions * width * length))) if row_step == length else 1
    buffer = queries.new_empty(step * row_step * positions * width)
    for head, first, row in itertools.product(range(heads), range(0, batch, step), range(0, length, row_step)):
        sentences, rows = slice(first, first + step), slice(row, row + row_step)
        left, right = queries[sentences, head, rows, None], keys[sentences, head, None]
        shape = torch.broadcast_shapes(left.shape, right.shape)
        block = buffer[: math.prod(shape)].view(shape)
        if prepared.exponentials is None:
            torch.add(left, right, out=block).tanh_()
        else:
            torch.mul(left, right, out=block).add_(1).reciprocal_()
        yield head, sentences, rows, block


def additive_scores_reference(queries: Tensor, keys: Tensor, score_vector: Tensor) -> Tensor:
    """Return v . tanh(q + k), (B, H, T, S), for queries (B, H, T, W), keys (B, H, S, W), score_vector (H, W).

    The formula as it stands; it holds B x H x T x S x W numbers, and autograd keeps them.
    """
    hidden = torch.tanh(queries[:, :, :, None] + keys[:, :, None])
    return (hidden * score_vector[:, None, None]).sum(-1)


def additive_scores(queries: Tensor, keys: Tensor, score_vector: Tensor) -> Tensor:
    """Return what `additive_scores_reference` returns, in float32 or better, without holding all of tanh(q + k).

    Inside `plain_forms` it is the reference, and under torch.compile, which fuses by itself. It cannot be
    differentiated twice.
    """
    dtype = torch.promote_types(queries.dtype, torch.float32)
    queries, keys, score_vector = queries.to(dtype), keys.to(dtype), score_vector.to(dtype)
    with torch.autocast(queries.device.type, enabled=False):
        if not takes_fast_path():
            return additive_scores_reference(queries, keys, score_vector)
        return _AdditiveScores.apply(queries, keys, score_vector)


class _AdditiveScores(torch.autograd.Function):
    """Additive scores whose backward pass computes tanh(q + k) anew."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, score_vector: Tensor) -> Tensor:
        ctx.save_for_backward(queries, keys, score_vector)
        return score_rows(queries, prepare_keys(keys), score_vector)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, score_vector = ctx.saved_tensors
        of_keys = torch.zeros_like(keys, memory_format=torch.contiguous_format)
        of_vector = torch.zeros_like(score_vector, memory_format=torch.contiguous_format)
        of_queries = score_rows_backward(queries, prepare_keys(keys), score_vector, gradient, of_keys, of_vector)
        return of_queries, of_keys, of_vector
