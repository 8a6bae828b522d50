"""Linear maps that a loop repeats many times with the same weights, outside autograd."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Weights of fewer numbers are read from the caches; for fewer rows to pack them costs more than it gains.
PACKED_WEIGHTS = 2**18
PACKED_ROWS = 4
# In training, of the rows of all steps together.
PACKED_TRAINING_WEIGHTS = 2**16
PACKED_TRAINING_ROWS = 1024


def training_linear(weight: Tensor, bias: Tensor | None, rows: int, steps: int) -> Callable[[Tensor], Tensor]:
    """Return a function that gives `F.linear(x, weight, bias)` for about so many steps of x (rows, width).

    On CPUs weights are rearranged once where enough rows follow; in float32 the kernel gains even on weights as
    they are. Measured on one thread of an AMD EPYC (`benchmarks/speed/choices.py`,
    `benchmarks/results/speed_choices.json`) with 315 rows and weights of 1,536 x 1,024: 9.4 instead of 11.1 ms in
    float32, 5.5 instead of 5.9 in bfloat16, and 2 ms for the copy; with 262 rows and the loss's 8,000 x 512, 21.7
    instead of 26.9 and 10.5 instead of 11.9.
    """
    if weight.is_cpu and can_pack(weight.dtype):
        if weight.numel() >= PACKED_TRAINING_WEIGHTS and rows * steps >= PACKED_TRAINING_ROWS:
            return _packed(weight.contiguous(), bias, rows)
        if weight.dtype == torch.float32:
            return lambda inputs: _pointwise(inputs, weight, bias)
    return lambda inputs: F.linear(inputs, weight, bias)


def linear(weight: Tensor, bias: Tensor | None, rows: int) -> Callable[[Tensor], Tensor]:
    """Return a function that gives `F.linear(x, weight, bias)` for x (rows or fewer, width), outside autograd.

    With a few rows the time is that of reading the weights, and on CPUs the general product reads large ones slowly.
    For several rows they are rearranged once, in a copy that lives as long as the function. One to three take the
    product the other way round. Measured with weights of 8,000 x 512 that no cache holds, on one thread of an AMD EPYC
    (`benchmarks/speed/choices.py`, `benchmarks/results/speed_choices.json`): for 1 / 3 / 5 / 32 rows 1.0 / 1.4 / 1.1 /
    3.1 ms instead of 1.6 / 5.4 / 3.3 / 6.3, and 10 to 12 ms for the copy.
    """
    large = weight.is_cpu and weight.numel() >= PACKED_WEIGHTS
    if large and rows >= PACKED_ROWS and can_pack(weight.dtype):
        return _packed(weight.detach(), bias, rows)
    if large and rows < PACKED_ROWS and weight.shape[0] >= weight.shape[1]:
        return lambda inputs: _by_columns(inputs, weight, bias)
    return lambda inputs: F.linear(inputs, weight, bias)


def _packed(weight: Tensor, bias: Tensor | None, rows: int) -> Callable[[Tensor], Tensor]:
    kernels: Any = torch.ops.mkldnn
    packed = kernels._reorder_linear_weight(weight, rows)
    return lambda inputs: _pointwise(inputs, packed, bias)


def _pointwise(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `F.linear` by oneDNN's kernel, which on some processors is faster than the general product."""
    kernels: Any = torch.ops.mkldnn
    product: Tensor = kernels._linear_pointwise(inputs, weight, bias, "none", [], "")
    return product


def _by_columns(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `F.linear` as W x^T; a single row twice, since the product with one vector reads weights more slowly."""
    rows = inputs.shape[0]
    columns = (weight @ (inputs if rows > 1 else inputs.repeat(2, 1)).t())[:, :rows]
    product = columns.t().contiguous()
    return product if bias is None else product.add_(bias)


def can_pack(dtype: torch.dtype = torch.float32) -> bool:
    """Tell whether torch has kernels for packed weights of this type here (those that its compiler uses)."""
    names = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
    if not (torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in names)):
        return False
    # Processors without instructions for it have no such product in bfloat16.
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
