"""Output layer and cross-entropy in one, a few tokens at a time: the logits of a whole batch are never held."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .cpu_kernels import EXP_BOUND, ONE, bounded, exp, from_bfloat16, helper, kernel, parts_of, to_bfloat16
from .fast_linear import training_linear
from .plain_forms import first_derivative_only

# Logits in a block, which softmax runs over while the cache holds them, and in a group of blocks, over which gradients
# are one product each: enough for that to run at full speed, and far fewer than B x T x V.
BLOCK = 2**21
GROUP = 2**24


def vocabulary_loss_reference(states: Tensor, weight: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the summed cross-entropy of labels (N,) under logits states (N, D) x weight (V, D)^T, in nats.

    The formula as it stands; with label smoothing e the target is (1 - e) on the label and e / V on every token
    (Szegedy et al. 2016, section 7).
    """
    logits = F.linear(states, weight).float()
    return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)


def vocabulary_loss(states: Tensor, weight: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return what `vocabulary_loss_reference` returns, a float32 scalar, holding `GROUP` logits at most.

    Where a gradient is wanted it is computed along the way, so that nothing is computed twice. It cannot be
    differentiated twice. Under autocast the matrix products run in its type, softmax and sums in float32.

    Raises:
        IndexError: on a CPU, a label outside 0..V-1 (an accelerator asserts it itself).
    """
    # The kernels look nothing up: a label that is no token would have them write beside the logits.
    if labels.is_cpu and labels.numel():
        least, greatest = (int(bound) for bound in torch.aminmax(labels))
        if least < 0 or greatest >= len(weight):
            wrong = least if least < 0 else greatest
            raise IndexError(
                f"labels hold {wrong}; allowed are 0 to {len(weight) - 1} (the target vocabulary), and -100 for what "
                "does not count; do tokenizer and model belong together?"
            )
    device = states.device.type
    compute = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    with torch.autocast(device, enabled=False):
        return _VocabularyLoss.apply(states, weight, labels, smoothing, compute)


class _VocabularyLoss(torch.autograd.Function):
    """`loss_and_gradients` as a function of autograd.

    The gradients are scaled where they lie, as they are as large as the weight; a second backward pass over a graph
    that was kept computes them again.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, compute: torch.dtype
    ) -> Tensor:
        ctx.save_for_backward(states, weight, labels)
        ctx.how = smoothing, compute, ctx.needs_input_grad[:2]
        ctx.dtypes = states.dtype, weight.dtype
        total, ctx.gradients = loss_and_gradients(states, weight, labels, *ctx.how)
        return total

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        parts = ctx.gradients or loss_and_gradients(*ctx.saved_tensors, *ctx.how)[1]
        ctx.gradients = None
        of_states, of_weight = (
            None if part is None else part.mul_(gradient).to(dtype)
            for part, dtype in zip(parts, ctx.dtypes, strict=True)
        )
        return of_states, of_weight, None, None, None


def loss_and_gradients(
    states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, compute: torch.dtype, wanted: tuple[bool, bool]
) -> tuple[Tensor, tuple[Tensor | None, Tensor | None]]:
    """Return the summed loss and its gradients for states and weight, where they are wanted.

    With p = softmax(z), z = W h: d loss / dz = p - target; then dh = dz W and dW = dz^T h.
    """
    wants_states, wants_weight = wanted
    rows, matrix = states.to(compute), weight.to(compute)
    of_states, of_weight = [], None
    total = torch.zeros((), dtype=torch.float32, device=states.device)
    block_rows, group_rows = (max(1, min(size // len(matrix), len(rows))) for size in (BLOCK, GROUP))
    to_logits = training_linear(matrix, None, block_rows, len(rows) // block_rows)
    to_states = training_linear(matrix.T, None, group_rows, len(rows) // group_rows) if wants_states else None
    for group in _slices(len(rows), group_rows):
        members, named = rows[group], labels[group, None]
        slopes = rows.new_empty(len(members), len(matrix))
        for block in _slices(len(members), block_rows):
            total += to_slopes(to_logits(members[block]), named[block], smoothing, out=slopes[block])
        if to_states is not None:
            of_states.append(to_states(slopes))
        if wants_weight:
            of_weight = _add_product(of_weight, slopes.T, members)
    if wants_weight and of_weight is None:
        of_weight = torch.zeros_like(weight, dtype=torch.float32)
    return total, (torch.cat([rows[:0], *of_states]) if wants_states else None, of_weight)


def to_slopes(logits: Tensor, labels: Tensor, smoothing: float, *, out: Tensor) -> Tensor:
    """Return the summed loss of logits (N, V) for labels (N, 1), and put d loss / d logits into `out`."""
    kernel = {torch.float32: _slopes_f32, torch.bfloat16: _slopes_bf16}.get(logits.dtype)
    if kernel is not None and logits.numel() and kernel.ready_for(logits, out, dtype=logits.dtype):
        greatest = logits.amax(dim=-1).float()
        losses = torch.empty_like(greatest)
        # NumPy has no bfloat16: the kernel reads and writes its bits.
        numbers = [each if each.dtype == torch.float32 else each.view(torch.int16) for each in (logits, out)]
        arrays = (part.numpy() for part in (*numbers, greatest, labels[:, 0].contiguous(), losses))
        kernel.run(len(logits), *arrays, np.float32(smoothing), of_parts=[()] * parts_of(len(logits), logits.numel()))
        return losses.sum()
    return to_slopes_by_torch(logits, labels, smoothing, out=out)


def to_slopes_by_torch(logits: Tensor, labels: Tensor, smoothing: float, *, out: Tensor) -> Tensor:
    """Do what `to_slopes` does, with one exponential for each logit."""
    probabilities = torch.softmax(logits, dim=-1, dtype=torch.float32)
    greatest, place = logits.max(dim=-1, keepdim=True)
    # log sum exp(z) = z_j - log p_j for any j; for the greatest, p_j >= 1 / V and nothing underflows.
    normaliser = greatest.float() - probabilities.gather(1, place).log()
    loss = (normaliser - logits.gather(1, labels).float()).sum()
    if smoothing:
        mean = logits.mean(dim=-1, keepdim=True, dtype=torch.float32)
        loss = (1 - smoothing) * loss + smoothing * (normaliser - mean).sum()
        probabilities -= smoothing / logits.shape[-1]
    out.copy_(probabilities.scatter_add_(1, labels, probabilities.new_full(labels.shape, smoothing - 1)))
    return loss


@helper
def row_to_slopes(row: Any, greatest: Any, label: int, smoothing: Any) -> Any:
    """Return the loss of a row of logits, whose greatest is known, and put its slopes in their place."""
    width = np.float32(row.shape[0])
    total, plain, of_label = np.float32(0), np.float32(0), row[label]
    for w in range(row.shape[0]):
        plain += row[w]
        row[w] = exp(bounded(row[w] - greatest, EXP_BOUND))
        total += row[w]
    loss = greatest + np.log(total) - (ONE - smoothing) * of_label
    if smoothing:  # 0 times the mean of logits that hold -inf is no number
        loss -= smoothing * (plain / width)
    for w in range(row.shape[0]):
        row[w] = row[w] / total - smoothing / width
    row[label] -= ONE - smoothing
    return loss


@kernel("void(f4[:,::1], f4[:,::1], f4[::1], i8[::1], f4[::1], f4, i8, i8)")
def _slopes_f32(
    logits: Any, slopes: Any, greatest: Any, labels: Any, losses: Any, smoothing: Any, first: int, last: int
) -> None:
    for n in range(first, last):
        slopes[n] = logits[n]
        losses[n] = row_to_slopes(slopes[n], greatest[n], labels[n], smoothing)


@kernel("void(i2[:,::1], i2[:,::1], f4[::1], i8[::1], f4[::1], f4, i8, i8)")
def _slopes_bf16(
    bits: Any, slopes: Any, greatest: Any, labels: Any, losses: Any, smoothing: Any, first: int, last: int
) -> None:
    row = np.empty(bits.shape[1], np.float32)
    for n in range(first, last):
        for w in range(row.shape[0]):
            row[w] = from_bfloat16(bits[n, w])
        losses[n] = row_to_slopes(row, greatest[n], labels[n], smoothing)
        for w in range(row.shape[0]):
            slopes[n, w] = to_bfloat16(row[w])


def _add_product(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right, added to a float32 total if there is one."""
    if total is None:
        return (left @ right).float()
    return total.addmm_(left, right) if right.dtype == total.dtype else total.add_(left @ right)


def _slices(length: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, length, size))
