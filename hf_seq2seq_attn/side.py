"""What encoders and decoders of every kind share."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .configuration_seq2seq_attn import Seq2SeqAttnConfig


class Side(nn.Module):
    """One side of the model: token embeddings, dropout, the switch for gradient checkpointing."""

    _gradient_checkpointing_func: Callable  # set by the library when it turns checkpointing on

    adds_positions = False

    def __init__(self, config: Seq2SeqAttnConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        scaled = self.adds_positions if config.scale_embedding is None else config.scale_embedding
        self.embed_tokens = nn.Embedding(vocab_size, config.d_model, config.pad_token_id)
        self.embed_scale = math.sqrt(config.d_model) if scaled else 1.0
        self.dropout = nn.Dropout(config.dropout)
        self.gradient_checkpointing = False

    def embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        """Return the scaled embeddings (B, L, D) of ids (B, L), or of embeddings given in their place."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(
                f"{type(self).__name__} takes either ids or embeddings: give exactly one of (decoder_)input_ids and "
                f"(decoder_)inputs_embeds, got {'neither' if input_ids is None else 'both'}"
            )
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        return inputs_embeds * self.embed_scale

    def run(self, function: Callable, *args: object) -> object:
        """Call function, recomputing it in the backward pass where gradient checkpointing is on."""
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            return self._gradient_checkpointing_func(function, *args)
        return function(*args)
