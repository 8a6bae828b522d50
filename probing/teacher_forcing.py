"""Run a model again on sentence pairs whose maps were read: the logits and the loss of each target token.

`AttentionMaps` hold the ids that the model saw; the decoder reads [start, y_1, ..., y_{T-1}], so that row t predicts
target token t and is the row that `align_with="output"` gives it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from hf_seq2seq_attn.errors import UnusableError

from .attention_maps import AttentionMaps
from .capture import input_device

IGNORED = -100


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as tensors, padded on the right.

    Attributes:
        input_ids, attention_mask: (B, S) int64; mask 1 = read.
        decoder_input_ids: (B, T) int64, start token first.
        labels: (B, T) int64, what each row predicts; -100 is padding.
    """

    input_ids: Tensor
    attention_mask: Tensor
    decoder_input_ids: Tensor
    labels: Tensor


def make_batch(model: Any, maps: Sequence[AttentionMaps]) -> Batch:
    """Return the pairs of `maps` as one batch on the model's device."""
    device = input_device(model)
    # Padding is masked or comes after every row that counts; any id serves.
    pad = getattr(model.config, "pad_token_id", None) or 0

    def padded(rows: list[list[int]], value: int) -> Tensor:
        longest = max(map(len, rows))
        return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows], device=device)

    return Batch(
        input_ids=padded([pair.source.ids for pair in maps], pad),
        attention_mask=padded([[1] * len(pair.source.ids) for pair in maps], 0),
        decoder_input_ids=padded([[_start_id(model, pair), *pair.target.ids[:-1]] for pair in maps], pad),
        labels=padded([pair.target.ids for pair in maps], IGNORED),
    )


def encode(model: Any, batch: Batch) -> Tensor:
    """Return the encoder's last states (B, S, D)."""
    output = model.get_encoder()(input_ids=batch.input_ids, attention_mask=batch.attention_mask, return_dict=True)
    states: Tensor = output.last_hidden_state
    return states


def next_token_logits(
    model: Any,
    batch: Batch,
    states: Tensor | None = None,
    rows: Tensor | None = None,
) -> Tensor:
    """Return the logits of a batch, (B, T, V) float32, or with `rows` (B,) those of one row each, (B, V).

    Args:
        model: a private copy (`private_copy`): with `rows` a hook is set on it for the call.
        states: the encoder's last states (B, S, D) from `encode`; None = encode again.
        rows: (B,) int64; the output layer, the dearest part of the pass, then reads one row of each pair only.

    Raises:
        ValueError: a model without an output layer.
    """
    source: dict[str, Any] = (
        {"input_ids": batch.input_ids}
        if states is None
        else {"encoder_outputs": BaseModelOutput(last_hidden_state=states)}
    )
    with _one_row(model, rows):
        outputs = model(
            **source,
            attention_mask=batch.attention_mask,
            decoder_input_ids=batch.decoder_input_ids,
            use_cache=False,
            return_dict=True,
        )
    logits = getattr(outputs, "logits", None)
    if logits is None:
        raise UnusableError(
            f"{type(model).__name__} has no output layer, so it predicts no token; load it as AutoModelForSeq2SeqLM"
        )
    if rows is None:
        return logits.float()
    if logits.shape[1] != 1:
        logits = logits[torch.arange(len(rows), device=logits.device), rows.to(logits.device)][:, None]
    return logits[:, 0].float()


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return -log p of each target token (B, T) float32, 0 where the label is -100."""
    return F.cross_entropy(logits.transpose(1, 2), labels.to(logits.device), ignore_index=IGNORED, reduction="none")


@contextmanager
def _one_row(model: Any, rows: Tensor | None) -> Iterator[None]:
    """Let the output layer see one row of each pair."""
    layer = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if rows is None or not isinstance(layer, nn.Module):
        yield
        return

    def pick(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        states = args[0]
        if states.dim() != 3:
            return None
        return states[torch.arange(len(rows), device=states.device), rows.to(states.device)][:, None], *args[1:]

    handle = layer.register_forward_pre_hook(pick)
    try:
        yield
    finally:
        handle.remove()


def _start_id(model: Any, pair: AttentionMaps) -> int:
    if pair.start is not None:
        return pair.start
    for name in ("decoder_start_token_id", "bos_token_id"):
        for holder in (model.config, getattr(model, "generation_config", None)):
            value = getattr(holder, name, None)
            if value is not None:
                return int(value)
    raise UnusableError("the model's config has no decoder_start_token_id; set model.config.decoder_start_token_id")
