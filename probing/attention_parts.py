"""One layer's cross-attention taken apart: its projections as float64 matrices, its heads, its scale.

Modules are told apart by their names, as in `attention_layers`; whether they mean what their names say is for the
caller to check, by comparing what comes out with what the module returned.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hf_seq2seq_attn.errors import UnusableError

from .attention_layers import AttentionLayer, find_attention_layers, projection_weight

_QUERY_NAMES = ("q_proj", "q", "query", "query_proj")
_KEY_NAMES = ("k_proj", "k", "key", "key_proj")


@dataclass(frozen=True)
class Projection:
    """An affine map: x @ weight + bias, weight (in, out)."""

    weight: np.ndarray
    bias: np.ndarray

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """Return the projection of states (..., in)."""
        return states @ self.weight + self.bias


@dataclass(frozen=True)
class AttentionParts:
    """What one attention computes with; H heads.

    Attributes:
        query, key: to (A,). value, output: None = the identity.
        heads: H. scale: what q.k is multiplied by.
        score_vector: (H, A/H) of additive attention; None = dot product.
        null_key, null_value: (A,), (D,) of the NULL position, or None.
        precision: the machine epsilon of the weights' dtype.
    """

    query: Projection
    key: Projection
    value: Projection | None
    output: Projection | None
    heads: int
    scale: float
    score_vector: np.ndarray | None
    null_key: np.ndarray | None
    null_value: np.ndarray | None
    precision: float


def named_attention_layers(model: nn.Module) -> list[AttentionLayer]:
    """Return what `find_attention_layers` finds.

    Raises:
        ValueError: it finds nothing.
    """
    layers = find_attention_layers(model)
    if not layers:
        raise UnusableError(
            f"{type(model).__name__}: its cross-attention has no module of a known name; models like Marian, BART, "
            "M2M100, Pegasus and T5, and ours, can be walked through"
        )
    return layers


def attention_parts(layer: AttentionLayer) -> AttentionParts:
    """Read an attention's parts from its module.

    Raises:
        ValueError: the module has no query and key projections of a known name.
    """
    module: Any = layer.attention
    query, key = (_child(module, names) for names in (_QUERY_NAMES, _KEY_NAMES))
    if query is None or key is None or isinstance(getattr(module, "c_attn", None), nn.Module):
        raise UnusableError(
            f"{type(module).__name__} does not keep its query and key projections by a known name, so its steps "
            "cannot be done again; models like Marian, BART, M2M100, Pegasus and T5, and ours, can be walked through"
        )
    projected = projection(query)
    heads = next(
        value
        for name in ("heads", "num_heads", "n_heads", "num_attention_heads", "num_attn_heads")
        if isinstance(value := getattr(module, name, None), int)
    )
    vector = getattr(module, "score_vector", None)
    return AttentionParts(
        query=projected,
        key=projection(key),
        value=None if layer.value is None else projection(layer.value),
        output=None if layer.output is None else projection(layer.output),
        heads=heads,
        scale=1.0 if vector is not None else _scale(module, projected.weight.shape[1] // heads),
        score_vector=None if vector is None else _float64(vector),
        null_key=_optional(getattr(module, "null_key", None)),
        null_value=_optional(getattr(module, "null_value", None)),
        precision=_precision(module),
    )


def _scale(module: Any, width: int) -> float:
    """Return what the module multiplies q.k by; T5 and its kin leave the scores as they are."""
    for name in ("scale", "scaling"):
        value = getattr(module, name, None)
        if isinstance(value, float):
            return value
    return 1.0 if hasattr(module, "relative_attention_num_buckets") else 1 / math.sqrt(width)


def projection(module: nn.Module) -> Projection:
    """Return a linear module as a float64 matrix and bias."""
    weight = _float64(projection_weight(module))
    bias = getattr(module, "bias", None)
    return Projection(weight, _float64(bias) if isinstance(bias, Tensor) else np.zeros(weight.shape[1]))


def _precision(module: nn.Module) -> float:
    floating: Iterator[Tensor] = (each for each in module.parameters() if each.is_floating_point())
    return max(torch.finfo(each.dtype).eps for each in floating)


def _child(module: nn.Module, names: tuple[str, ...]) -> nn.Module | None:
    return next((module._modules[name] for name in names if module._modules.get(name) is not None), None)


def _optional(tensor: Tensor | None) -> np.ndarray | None:
    return None if tensor is None else _float64(tensor)


def _float64(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()
