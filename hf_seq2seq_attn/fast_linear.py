"""Linear maps that a decoding loop repeats many times with the same weights."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Weights of fewer numbers, or products with fewer rows, gain less than packing the weights costs.
PACKED_WEIGHTS = 2**18
PACKED_ROWS = 8


def linear(weight: Tensor, bias: Tensor | None, rows: int) -> Callable[[Tensor], Tensor]:
    """Return a function that gives `F.linear(x, weight, bias)` for x (rows or fewer, width), outside autograd.

    On CPUs the general product rearranges large weights in every call. Where the call will be repeated, they are
    rearranged once, in a copy that lives as long as the function. Measured at 32 rows: 2.9 instead of 4.8 ms for
    8,000 x 512, and 4.6 ms for the copy (`benchmarks/results/speed_choices.json`).
    """
    if weight.is_cpu and rows >= PACKED_ROWS and weight.numel() >= PACKED_WEIGHTS and can_pack():
        kernels: Any = torch.ops.mkldnn
        packed = kernels._reorder_linear_weight(weight.detach(), rows)
        return lambda inputs: kernels._linear_pointwise(inputs, packed, bias, "none", [], "")
    return lambda inputs: F.linear(inputs, weight, bias)


def can_pack() -> bool:
    """Tell whether this build of torch has the kernels for packed weights (those that its compiler uses)."""
    return torch.backends.mkldnn.is_available() and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )
