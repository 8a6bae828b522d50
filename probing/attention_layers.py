"""Where a model's cross-attention is: its modules, told apart by their names, layer after layer.

No family is asked for by its class. Every encoder-decoder of the library calls these modules by one of a few names;
what is read from them is checked against what the layer computed (see `capture`).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# Marian, BART, mBART, M2M100, Pegasus, ours, ... | T5 and its kin | T5Gemma, ProphetNet | BERT, RoBERTa, GPT-2, ...
_ATTENTION_NAMES = ("encoder_attn", "EncDecAttention", "cross_attn", "crossattention")
_VALUE_NAMES = ("v_proj", "v", "value", "value_proj", "c_attn")
_OUTPUT_NAMES = ("out_proj", "o", "o_proj", "c_proj")
# Their decoders work on (T, B, D).
_SEQUENCE_FIRST = ("fsmt",)


@dataclass(frozen=True)
class AttentionLayer:
    """One layer's cross-attention.

    Attributes:
        attention: the module that returns the weights.
        value: the projection that makes the values; None where its name is none of those known.
        output: the projection of the joined heads; None likewise, or where a model of ours has none.
        sequence_first: whether states are (length, B, D) instead of (B, length, D).
    """

    attention: nn.Module
    value: nn.Module | None
    output: nn.Module | None
    sequence_first: bool = False

    def split_values(self, states: Tensor, heads: int) -> Tensor:
        """Return the output of `value` as (B, H, S, W)."""
        states = states.transpose(0, 1) if self.sequence_first else states
        if isinstance(getattr(self.attention, "c_attn", None), nn.Module):
            # GPT-2 makes keys and values in one, keys first.
            states = states.chunk(2, dim=-1)[1]
        return states.unflatten(-1, (heads, -1)).transpose(1, 2)

    def split_context(self, states: Tensor, heads: int) -> Tensor:
        """Return the input of `output` as (B, H, T, W)."""
        states = states.transpose(0, 1) if self.sequence_first else states
        return states.unflatten(-1, (heads, -1)).transpose(1, 2)

    def output_rows(self, heads: int) -> Tensor | None:
        """Return the weight of `output` as (H, W, D), without its bias; None where there is no such projection."""
        return None if self.output is None else projection_weight(self.output).unflatten(0, (heads, -1))


def find_attention_layers(model: nn.Module) -> list[AttentionLayer]:
    """Return the cross-attention of each decoder layer, in order; empty where no module has a known name."""
    first = str(getattr(getattr(model, "config", None), "model_type", "")) in _SEQUENCE_FIRST
    found = []
    for name, module in model.named_modules():
        if name.rpartition(".")[2] not in _ATTENTION_NAMES:
            continue
        # BERT's relatives keep the output projection beside the attention proper.
        inner = module._modules.get("self")
        attention = module if inner is None else inner
        output = _child(attention, _OUTPUT_NAMES)
        if inner is not None:
            output = _child(module._modules.get("output"), ("dense",))
        found.append(AttentionLayer(attention, _child(attention, _VALUE_NAMES), output, first))
    return found


def projection_weight(projection: nn.Module) -> Tensor:
    """Return the matrix (in, out) of a linear module, whatever it is made of (adapters, quantised or offloaded
    weights): what it does to the unit vectors, less what it does to zero."""
    weight = getattr(projection, "weight", None)
    plain = isinstance(weight, Tensor) and not weight.is_meta
    if plain and type(projection) is nn.Linear:
        return projection.weight.T
    if plain and isinstance(weight, Tensor) and type(projection).__name__ == "Conv1D":
        return weight
    parameter = next((each for each in projection.parameters() if each.is_floating_point()), None)
    like: dict[str, Any] = {} if parameter is None else {"dtype": parameter.dtype}
    if parameter is not None and not parameter.is_meta:
        like["device"] = parameter.device
    unit = torch.eye(_input_width(projection), **like)
    zero = projection(torch.zeros_like(unit[:1])).float()
    return projection(unit).float() - zero


def _input_width(projection: nn.Module) -> int:
    """Return how many features a linear module or a wrapper of one reads."""
    for module in (projection, *projection.modules()):
        width = getattr(module, "in_features", None)
        if isinstance(width, int):
            return width
        if type(module).__name__ == "Conv1D" and isinstance(module.weight, Tensor):
            return int(module.weight.shape[0])
    raise TypeError(f"{type(projection).__name__} is not a linear module")


def _child(module: nn.Module | None, names: tuple[str, ...]) -> nn.Module | None:
    children = {} if module is None else module._modules
    return next((children[name] for name in names if children.get(name) is not None), None)
