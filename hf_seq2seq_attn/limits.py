"""What a side of a model, "source" (encoder) or "target" (decoder), can read: how many tokens, and which ids."""

from typing import Any


def max_positions(config: Any, side: str) -> int | None:
    """Return the number of positions of a side that has a fixed number; None for any other."""
    if config.model_type == "seq2seq_attn":
        kind = config.encoder_type if side == "source" else config.decoder_type
        if kind != "transformer" or config.position_embedding_type == "sinusoidal":
            return None
    return getattr(config, "max_position_embeddings", None)


def vocabulary_size(config: Any, side: str) -> int | None:
    """Return the number of token ids that a side knows; None where the config does not say."""
    size: int | None = getattr(config, "vocab_size", None)
    if side == "target":
        return getattr(config, "decoder_vocab_size", None) or size
    return size
