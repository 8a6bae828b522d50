"""Get the cross-attention weights out of forward passes, and leave the model as it is.

Attention backend, train mode and hooks belong to modules and config, which every thread shares. So a pass runs on a
private copy of the model's Python objects that holds the very same tensors: nothing is written to the model, nothing
of its weights is copied, and what another thread computes with it meanwhile is its own affair. The copy computes
attention eagerly, whatever the model's own backend, and hooks on the chosen layers alone keep their maps.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from hf_seq2seq_attn.errors import UnusableError

from .attention_layers import AttentionLayer, find_attention_layers
from .value_norms import value_products


class NoSuchNumberError(UnusableError):
    """A layer or a head that the model does not have."""


def check_model(model: Any) -> None:
    """Raise a ValueError unless `model` is an encoder-decoder with cross-attention."""
    config = getattr(model, "config", None)
    name = type(model).__name__
    if config is None:
        raise UnusableError(f"{name} has no config; give a Hugging Face model")
    if not getattr(config, "is_encoder_decoder", False):
        raise UnusableError(
            f"{name} (model_type {getattr(config, 'model_type', None)!r}) is not an encoder-decoder; probing reads "
            "the attention between an encoder and a decoder, as in Marian, T5, BART or seq2seq_attn models"
        )
    if getattr(config, "cross_attention_type", None) == "none":
        raise UnusableError(
            f"{name} has cross_attention_type='none': there is no attention to read; train it with an attention"
        )
    decoder = getattr(config, "decoder", None)
    if config.model_type == "encoder-decoder" and not getattr(decoder, "add_cross_attention", False):
        raise UnusableError(
            f"{name}'s decoder has add_cross_attention=False: there is no attention between its encoder and its "
            "decoder to read; build it with EncoderDecoderModel.from_encoder_decoder_pretrained and train it"
        )


def private_copy(model: Any) -> Any:
    """Return a copy of a model's modules and configs, in eval mode, that shares every tensor with the model.

    Modes, hooks and configs of the copy are its own; its weights are the model's, so do not train it. It takes about
    20 ms for 350 modules.
    """
    # torch.compile wraps a module whose compiled code would go past the copy's hooks.
    model = getattr(model, "_orig_mod", model)
    shared: dict[int, Any] = {}
    for module in model.modules():
        for value in (*module._parameters.values(), *module._buffers.values(), *vars(module).values()):
            if isinstance(value, Tensor):
                shared[id(value)] = value
        # Accelerate's hooks hold offloaded weights, and are told the module they work for at each call.
        hook = vars(module).get("_hf_hook")
        if hook is not None:
            shared[id(hook)] = hook
    try:
        copied = copy.deepcopy(model, shared)
    except (TypeError, RuntimeError) as error:
        raise UnusableError(
            f"{type(model).__name__} holds something that cannot be copied ({error}); load the model afresh and probe "
            "it before other tools attach to it"
        ) from error
    for module in copied.modules():
        module.training = False
    return copied


def input_device(model: Any) -> torch.device:
    """Return the device that a model takes its input ids on, also where its weights are kept elsewhere."""
    device: torch.device = model.device
    if device.type != "meta":
        return device
    for module in model.modules():
        device_of_hook = getattr(getattr(module, "_hf_hook", None), "execution_device", None)
        if device_of_hook is not None:
            return torch.device(device_of_hook)
    raise UnusableError(f"{type(model).__name__} has weights on the meta device only; load it with its weights")


@dataclass(frozen=True)
class LayerMaps:
    """One layer's cross-attention to a batch; H counts the heads asked for.

    Attributes:
        weights: (B, H, T, S) float32, without the NULL key.
        products: (B, H, H, N) float32, see `value_products`; N is S, or S + 1 where a NULL key comes first. None if
            they were not asked for.
    """

    weights: Tensor
    products: Tensor | None


@dataclass
class _Caught:
    """What the hooks of one layer see in one pass; recurrent decoders may attend once for each step."""

    weights: list[Tensor] = field(default_factory=list)
    values: Tensor | None = None
    context: Tensor | None = None


class CrossAttentionReader:
    """Read a model's cross-attention, batch after batch.

    Args:
        layers, heads: which to keep, negative from the end; None = all. Maps of other layers and heads are not kept.
        values: whether to compute `LayerMaps.products` too.

    Attributes:
        layers, heads: the numbers of those that are read; known after the first batch.

    Raises:
        ValueError: the model gives no cross-attention, or not in a form whose numbers can be trusted; says what to do.
    """

    def __init__(
        self, model: Any, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None, values: bool = False
    ) -> None:
        check_model(model)
        self.layers: tuple[int, ...] = ()
        self.heads: tuple[int, ...] = ()
        self._name, self._wanted, self._with_values = type(model).__name__, (layers, heads), values
        self._is_ours = model.config.model_type == "seq2seq_attn"
        self._has_null = bool(getattr(model.config, "null_key", False))
        self._head_count = 0
        self._values_were_checked = self._is_ours
        self._model = private_copy(model)
        attend_eagerly(self._model)
        self._found = find_attention_layers(self._model)
        self._must_report = not self._found
        self._caught: dict[int, _Caught] = {}
        if self._found:
            self.layers = choose("layer", layers, len(self._found))
            for number in set(self.layers):
                self._watch(number, self._found[number])

    @torch.no_grad()
    def read(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> list[LayerMaps]:
        """Run one forward pass and return the maps of `layers`, one for each.

        Args:
            input_ids, attention_mask: (B, S) int64; mask 1 = read.
            decoder_input_ids: (B, T) int64, start token first. Padding must be on the right: rows before it do not
                see it.
        """
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "decoder_input_ids": decoder_input_ids}
        shape = (input_ids.shape[0], decoder_input_ids.shape[1], input_ids.shape[1])
        self._caught = {number: _Caught() for number in self.layers}
        weights: list[Tensor] = []
        if not self._must_report:
            self._model(**inputs, use_cache=False, return_dict=True)
            seen = [torch.cat(each.weights, dim=2) for each in self._caught.values() if each.weights]
            self._must_report = len(seen) < len(self._caught) or not all(
                self._are_weights(each, shape) for each in seen
            )
            by_number = dict(zip(self._caught, seen, strict=False))
            weights = [] if self._must_report else [by_number[number] for number in self.layers]
        if self._must_report:
            weights = self._reported(inputs, shape)
        pairs = list(zip(self.layers, weights, strict=True))
        if self._with_values:
            maps = [LayerMaps(each.float(), self._products(number, each)) for number, each in pairs]
        else:
            maps = [LayerMaps(each.float(), None) for _, each in pairs]
        self._values_were_checked, self._caught = True, {}
        return maps

    def _watch(self, number: int, layer: AttentionLayer) -> None:
        """Let hooks on one layer of the private copy keep what it computes."""

        def keep_weights(module: nn.Module, args: tuple, output: Any) -> None:
            maps = [part for part in output if isinstance(part, Tensor) and part.dim() == 4]
            if self._must_report or not maps:
                return
            # T5 returns its position bias before its weights.
            self._count_heads(maps[-1].shape[1])
            # Indexing copies, so that the other heads are let go.
            self._caught[number].weights.append(maps[-1][:, list(self.heads)])

        def keep_memory(module: nn.Module, args: tuple, output: Any) -> None:
            self._caught[number].values = args[1].values

        def keep_values(module: nn.Module, args: tuple, output: Tensor) -> None:
            self._caught[number].values = output

        def keep_context(module: nn.Module, args: tuple) -> None:
            if not self._values_were_checked:
                self._caught[number].context = args[0]

        layer.attention.register_forward_hook(keep_weights)
        if self._is_ours:
            # forward(query, memory, output_weights) computes weights if the third is true.
            layer.attention.register_forward_pre_hook(lambda module, args: (*args[:2], True))
        if not self._with_values:
            return
        if self._is_ours:
            layer.attention.register_forward_hook(keep_memory)
        elif layer.value is not None and layer.output is not None:
            layer.value.register_forward_hook(keep_values)
            layer.output.register_forward_pre_hook(keep_context)

    def _reported(self, inputs: dict[str, Tensor], shape: tuple[int, int, int]) -> list[Tensor]:
        """Return the chosen layers' weights as the model's output names them, where its layers do not show them."""
        outputs = self._model(**inputs, use_cache=False, return_dict=True, output_attentions=True)
        maps = getattr(outputs, "cross_attentions", None)
        if not maps or any(each is None or each.dim() != 4 for each in maps):
            raise UnusableError(
                f"{self._name} returned no cross_attentions; its decoder has no cross-attention layers, or the model "
                "does not report them"
            )
        self.layers = choose("layer", self._wanted[0], len(maps))
        self._count_heads(maps[0].shape[1])
        weights = [maps[number][:, list(self.heads)] for number in self.layers]
        if not all(self._are_weights(each, shape) for each in weights):
            raise UnusableError(
                f"what {self._name} reports as cross_attentions, {tuple(maps[0].shape)}, is not attention of "
                f"{shape[1]} decoder inputs to {shape[2]} source tokens with rows that sum to 1; this model cannot be "
                "probed"
            )
        return weights

    def _count_heads(self, count: int) -> None:
        if count != self._head_count:
            self._head_count, self.heads = count, choose("head", self._wanted[1], count)

    def _are_weights(self, weights: Tensor, shape: tuple[int, int, int]) -> bool:
        """Say whether these are attention weights of (B, T, S); NaN pass, and are the caller's to name."""
        if (weights.shape[0], *weights.shape[2:]) != shape:
            return False
        tolerance = _tolerance(weights)
        sums = weights.float().sum(-1)
        wrong = (sums > 1 + tolerance) | (weights < 0).any(-1)
        if not self._has_null:
            wrong |= sums < 1 - tolerance
        return not bool(wrong.any())

    def _products(self, number: int, weights: Tensor) -> Tensor:
        """Return the `value_products` of the chosen heads of a layer, after a first look whether they are the ones
        that the layer used: its context must be the sum of its values by these weights."""
        caught = self._caught.get(number)
        if caught is None or caught.values is None:
            raise UnusableError(
                f"{self._name} has no cross-attention modules of a known form, so the norms of its values cannot be "
                "computed; use weights='attention'"
            )
        layer, heads = self._found[number], list(self.heads)
        if self._is_ours:
            values = caught.values[:, heads]
        else:
            values = layer.split_values(caught.values, self._head_count)[:, heads]
            if caught.context is not None:
                context = layer.split_context(caught.context, self._head_count)[:, heads]
                self._check_values(weights, values, context)
        rows = layer.output_rows(self._head_count)
        return value_products(values, None if rows is None else rows[heads].to(values.device))

    def _check_values(self, weights: Tensor, values: Tensor, context: Tensor) -> None:
        if values.shape[2] == weights.shape[-1] and context.shape[2] == weights.shape[2]:
            expected = weights.float() @ values.float()
            difference = (context.float() - expected).abs().max()
            if not bool(difference > _tolerance(context) * (1 + expected.abs().max())):
                return
        raise UnusableError(
            f"the values of {self._name} are not combined as softmax(scores) @ values, so their norms would not be "
            "those of Kobayashi et al. (2020); use weights='attention'"
        )


def attend_eagerly(model: nn.Module) -> None:
    """Make a private copy compute attention step by step, which gives its weights."""
    for module in model.modules():
        config = vars(module).get("config")
        if config is not None and hasattr(config, "_attn_implementation_internal"):
            config._attn_implementation_internal = "eager"


def _tolerance(numbers: Tensor) -> float:
    return 1e-3 if numbers.dtype in (torch.float32, torch.float64) else 3e-2


def choose(name: str, wanted: Sequence[int] | None, count: int) -> tuple[int, ...]:
    """Return the wanted numbers of layers or heads, negative ones counted from the end; None = all `count`."""
    if wanted is None:
        return tuple(range(count))
    if not wanted:
        raise UnusableError(f"no {name} was chosen; the model has {count}, numbered from 0")
    for number in wanted:
        if not -count <= number < count:
            raise NoSuchNumberError(
                f"{name} {number} does not exist; the model has {count}, numbered from 0 to {count - 1}"
            )
    return tuple(number % count for number in wanted)
