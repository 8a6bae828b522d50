"""The cross-attention that `generate` used, sorted by the sequences that it returned."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .capture import check_model


def sequence_attentions(model: Any, output: Any, *, eos_token_id: int | Sequence[int] | None = None) -> list[Tensor]:
    """Return for each sequence that `generate` returned its own maps, whatever the number of beams.

    `generate` returns maps step by step for all beams at once, and a returned sequence has wandered between beams:
    this follows it back. Cached and uncached runs give the same.

    Args:
        model: the encoder-decoder that generated, of any Hugging Face family.
        output: what `model.generate(..., return_dict_in_generate=True, output_attentions=True)` returned; greedy,
            sampling, beams, assisted, any `num_return_sequences`, with or without a decoder prompt.
        eos_token_id: the tokens that ended the sequences, where `generate` was given other ones than
            `model.generation_config` names.

    Returns:
        One (L, H, T, S) tensor for each row of `output.sequences`, of the model's own dtype and device. Row t is the
        one that predicted the t-th generated token: prompt tokens have no row, and T counts tokens to the end token,
        so that it differs from sequence to sequence. S is that of the batch; padding has weight 0.

    Raises:
        ValueError: the output holds no maps, or cannot say which beams a sequence went through; says what to do.
    """
    check_model(model)
    steps = _checked_steps(model, output)
    sequences, beams = output.sequences, getattr(output, "beam_indices", None)
    count = len(steps) if beams is None else beams.shape[1]
    generated = sequences[:, sequences.shape[1] - count :]
    if beams is None:
        beams = torch.arange(len(sequences), device=sequences.device)[:, None].expand(-1, count)
        lengths = _lengths(generated, _ends(model, eos_token_id))
    else:
        lengths = (beams >= 0).sum(1).tolist()
    # A run without a cache computes earlier rows again at each step: the last one is the step's own.
    maps = torch.stack(
        [
            torch.stack([layer[beam.clamp(min=0).to(layer.device), :, -1] for layer in step], dim=1)
            for step, beam in zip(steps, beams.long().unbind(1), strict=False)
        ],
        dim=3,
    )
    return [own[:, :, :length] for own, length in zip(maps, lengths, strict=True)]


def _checked_steps(model: Any, output: Any) -> Sequence[Sequence[Tensor]]:
    """Return the maps of each step: for each layer (rows, H, q, S)."""
    name = type(model).__name__
    if not hasattr(output, "sequences"):
        raise ValueError(
            f"output is a {type(output).__name__}; call generate with return_dict_in_generate=True and "
            "output_attentions=True"
        )
    steps = getattr(output, "cross_attentions", None)
    if not steps:
        raise ValueError("output holds no cross_attentions; call generate with output_attentions=True")
    if not steps[0] or any(layer is None for layer in steps[0]):
        raise ValueError(
            f"the cross_attentions of this {name} are empty, as under the attention backend "
            f"{getattr(model.config, '_attn_implementation', None)!r}; load it with "
            "from_pretrained(..., attn_implementation='eager')"
        )
    rows = steps[0][0].shape[0]
    if getattr(output, "beam_indices", None) is None and rows != len(output.sequences):
        raise ValueError(
            f"output has maps of {rows} beams for {len(output.sequences)} sequences, but no beam_indices to tell them "
            "apart; give the whole output of generate"
        )
    return steps


def _ends(model: Any, eos_token_id: int | Sequence[int] | None) -> list[int]:
    ends = model.generation_config.eos_token_id if eos_token_id is None else eos_token_id
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


def _lengths(generated: Tensor, ends: list[int]) -> list[int]:
    """Return for each row of generated (N, T) the number of tokens to its first end token, that included."""
    ended = torch.isin(generated, torch.tensor(ends, dtype=generated.dtype, device=generated.device))
    return [int(row.int().argmax()) + 1 if row.any() else len(row) for row in ended]
