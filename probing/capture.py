"""Get the cross-attention weights out of one forward pass, and leave the model as it was.

Models are told apart by `config.model_type` and by the names of their outputs. Where the attention backend returns no
weights (sdpa gives an empty tuple), they are computed from the layer's own queries and keys, caught by hooks that
live for this call and ignore other threads.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from hf_seq2seq_attn.errors import UnusableError

# Families whose cross-attention is softmax(scaling * q k^T), with the names of the module and its projections.
_BART_LIKE = ("bart", "blenderbot", "blenderbot-small", "m2m_100", "marian", "mbart", "pegasus", "plbart")
_T5_LIKE = ("mt5", "t5", "umt5")
_PROJECTIONS = {
    **dict.fromkeys(_BART_LIKE, ("encoder_attn", "q_proj", "k_proj")),
    **dict.fromkeys(_T5_LIKE, ("EncDecAttention", "q", "k")),
}


def check_model(model: Any) -> None:
    """Raise a ValueError unless `model` is an encoder-decoder with cross-attention."""
    config = getattr(model, "config", None)
    name = type(model).__name__
    if config is None:
        raise UnusableError(f"{name} has no config; give a Hugging Face model")
    if not getattr(config, "is_encoder_decoder", False):
        raise UnusableError(
            f"{name} (model_type {config.model_type!r}) is not an encoder-decoder; probing reads the attention between "
            "an encoder and a decoder, as in Marian, T5, BART or seq2seq_attn models"
        )
    if getattr(config, "cross_attention_type", None) == "none":
        raise UnusableError(
            f"{name} has cross_attention_type='none': there is no attention to read; train it with an attention"
        )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off for the call; put every module's mode back afterwards."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def capture_cross_attention(
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    decoder_input_ids: torch.Tensor,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> tuple[list[torch.Tensor], tuple[int, ...], tuple[int, ...]]:
    """Run one forward pass and return the chosen layers' and heads' weights.

    Args:
        input_ids, attention_mask: (B, S) int64; mask 1 = read.
        decoder_input_ids: (B, T) int64, start token first. Padding must be on the right: rows before it do not see
            it.
        layers, heads: which to keep, negative from the end; None = all.

    Returns:
        A (B, heads, T, S) tensor for each layer, then the numbers of the layers and of the heads.

    Raises:
        ValueError: the model gives no cross-attention; says what to do.
    """
    inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "decoder_input_ids": decoder_input_ids}
    if _gives_weights(model.config):
        outputs = model(**inputs, output_attentions=True, use_cache=False, return_dict=True)
        maps = getattr(outputs, "cross_attentions", None)
        if not maps or any(layer is None or layer.dim() != 4 for layer in maps):
            raise UnusableError(
                f"{type(model).__name__} returned no cross_attentions; its decoder has no cross-attention layers, or "
                "the model does not report them"
            )
        chosen_layers = choose("layer", layers, len(maps))
        chosen_heads = choose("head", heads, maps[0].shape[1])
        return [maps[layer][:, list(chosen_heads)] for layer in chosen_layers], chosen_layers, chosen_heads
    return _recompute(model, inputs, layers, heads)


def choose(name: str, wanted: Sequence[int] | None, count: int) -> tuple[int, ...]:
    """Return the wanted numbers of layers or heads, negative ones counted from the end; None = all `count`."""
    if wanted is None:
        return tuple(range(count))
    if not wanted:
        raise UnusableError(f"no {name} was chosen; the model has {count}, numbered from 0")
    for number in wanted:
        if not -count <= number < count:
            raise UnusableError(
                f"{name} {number} does not exist; the model has {count}, numbered from 0 to {count - 1}"
            )
    return tuple(number % count for number in wanted)


def _gives_weights(config: Any) -> bool:
    # Our models give true maps under any backend.
    if config.model_type == "seq2seq_attn":
        return True
    parts = [config, *(getattr(config, part, None) for part in ("encoder", "decoder"))]
    backends = {getattr(part, "_attn_implementation", None) for part in parts if hasattr(part, "model_type")}
    return backends <= {"eager", None}


def _recompute(
    model: Any, inputs: dict[str, torch.Tensor], layers: Sequence[int] | None, heads: Sequence[int] | None
) -> tuple[list[torch.Tensor], tuple[int, ...], tuple[int, ...]]:
    """Run the model and compute the weights from the queries and keys of its cross-attention layers."""
    kind = model.config.model_type
    remedy = "load it with from_pretrained(..., attn_implementation='eager')"
    if kind not in _PROJECTIONS:
        raise UnusableError(f"{kind!r} models give no attention weights under this attention backend; {remedy}")
    suffix, query_name, key_name = _PROJECTIONS[kind]
    modules = [module for name, module in model.named_modules() if name.rpartition(".")[2] == suffix]
    if not modules or any(getattr(module, "has_relative_attention_bias", False) for module in modules):
        raise UnusableError(f"{type(model).__name__} has no {suffix} modules of the usual form; {remedy}")
    chosen_layers = choose("layer", layers, len(modules))
    chosen_heads = choose("head", heads, _head_count(modules[0]))
    caught: dict[tuple[int, str], torch.Tensor] = {}
    thread = threading.get_ident()

    def catch(layer: int, name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: torch.Tensor) -> None:
            if threading.get_ident() == thread:
                caught[layer, name] = output

        return hook

    with ExitStack() as stack:
        for layer in chosen_layers:
            for name in (query_name, key_name):
                handle = getattr(modules[layer], name).register_forward_hook(catch(layer, name))
                stack.callback(handle.remove)
        model(**inputs, use_cache=False, return_dict=True)
    weights = [
        _weights(
            modules[layer], caught[layer, query_name], caught[layer, key_name], inputs["attention_mask"], chosen_heads
        )
        for layer in chosen_layers
    ]
    return weights, chosen_layers, chosen_heads


def _head_count(module: nn.Module) -> int:
    heads: int = getattr(module, "num_heads", 0) or getattr(module, "n_heads", 0)
    return heads


def _weights(
    module: nn.Module, queries: torch.Tensor, keys: torch.Tensor, mask: torch.Tensor, heads: tuple[int, ...]
) -> torch.Tensor:
    """Return softmax(scaling * q k^T) over the readable positions, float32 (B, heads, T, S)."""
    count = _head_count(module)
    queries, keys = (
        states.unflatten(-1, (count, -1))[:, :, list(heads)].transpose(1, 2).float() for states in (queries, keys)
    )
    # T5 has no scaling: it is in the initial weights (Raffel et al. 2020).
    scores = queries @ keys.transpose(-1, -2) * float(getattr(module, "scaling", 1.0))
    readable = mask.to(scores.device)[:, None, None, :].bool()
    return scores.masked_fill(~readable, float("-inf")).softmax(dim=-1)
