"""All attention of one sentence pair, for viewers that show more than the cross-attention: encoder, decoder, cross."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hf_seq2seq_attn.errors import UnusableError

from .attention_maps import AttentionMaps
from .capture import attend_eagerly, private_copy
from .extraction import extract
from .pair_view import token_labels
from .teacher_forcing import make_batch
from .tokens import Sentence

KINDS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class PairAttentions:
    """The attention of one sentence pair, each kind with layers and heads of its own number.

    Attributes:
        encoder: (L, H, S, S) float32, self-attention of the source; None = the encoder has none (recurrent).
        decoder: (L, H, T, T) float32, self-attention of what the decoder reads; None likewise.
        cross: the cross-attention, (L, H, T, S), and what its rows mean.
        source_tokens: S labels.
        decoder_tokens: T labels of what the decoder reads, start token first.
        target_tokens: T labels of what the rows of `cross` align.
    """

    encoder: np.ndarray | None
    decoder: np.ndarray | None
    cross: AttentionMaps
    source_tokens: list[str]
    decoder_tokens: list[str]
    target_tokens: list[str]


def pair_attentions(
    model: Any,
    tokenizer: Any,
    source: Sentence,
    target: Sentence | None = None,
    *,
    align_with: str | None = None,
    **extraction: Any,
) -> PairAttentions:
    """Return all attention of one sentence pair; a target that is not given is generated first.

    Args:
        model: any Hugging Face encoder-decoder with cross-attention.
        align_with, extraction: as for `extract`.

    Raises:
        ValueError: see `extract`.
    """
    targets = None if target is None else [target]
    (maps,) = extract(model, tokenizer, [source], targets, align_with=align_with, **extraction)
    source_tokens, target_tokens = token_labels(maps.source), token_labels(maps.target)
    batch = make_batch(model, [maps])
    start = int(batch.decoder_input_ids[0, 0])
    encoder, decoder = _self_attentions(model, batch)
    return PairAttentions(
        encoder=encoder,
        decoder=decoder,
        cross=maps,
        source_tokens=source_tokens,
        decoder_tokens=[_name_of(tokenizer, start), *target_tokens[:-1]],
        target_tokens=target_tokens,
    )


@torch.no_grad()
def _self_attentions(model: Any, batch: Any) -> tuple[np.ndarray | None, np.ndarray | None]:
    copied = private_copy(model)
    attend_eagerly(copied)
    outputs = copied(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        decoder_input_ids=batch.decoder_input_ids,
        output_attentions=True,
        use_cache=False,
        return_dict=True,
    )
    lengths = batch.input_ids.shape[1], batch.decoder_input_ids.shape[1]
    names = ("encoder_attentions", "decoder_attentions")
    return tuple(  # type: ignore[return-value]
        _square(getattr(outputs, name, None), length) for name, length in zip(names, lengths, strict=True)
    )


def _square(layers: Sequence[Any] | None, length: int) -> np.ndarray | None:
    """Return a model's maps of one sentence as (L, H, length, length), None where it has none.

    Raises:
        ValueError: maps of another form, e.g. of local attention, which no viewer of tokens by tokens can show.
    """
    if not layers or any(each is None for each in layers):
        return None
    shapes = {tuple(each.shape) for each in layers}
    if len(shapes) > 1 or any(shape[0] != 1 or shape[2:] != (length, length) for shape in shapes):
        raise UnusableError(
            f"the model reports self-attention of the shapes {sorted(shapes)}, not of {length} by {length} tokens, "
            "which alone can be shown token by token"
        )
    return torch.stack([each[0].float().cpu() for each in layers]).numpy()


def _name_of(tokenizer: Any, token_id: int) -> str:
    from hf_seq2seq_attn.tokenizer_pair import sides

    return str(sides(tokenizer)[1].convert_ids_to_tokens(token_id))
