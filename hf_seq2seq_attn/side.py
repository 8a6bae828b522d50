"""What encoders and decoders of every kind share."""

import math

from torch import Tensor, nn

from .configuration_seq2seq_attn import Seq2SeqAttnConfig


class Side(nn.Module):
    """One side of the model: its configuration, token embeddings and dropout."""

    adds_positions = False

    def __init__(self, config: Seq2SeqAttnConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        scaled = self.adds_positions if config.scale_embedding is None else config.scale_embedding
        self.embed_tokens = nn.Embedding(vocab_size, config.d_model, config.pad_token_id)
        self.embed_scale = math.sqrt(config.d_model) if scaled else 1.0
        self.dropout = nn.Dropout(config.dropout)

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
