"""What a side of a model, "source" (encoder) or "target" (decoder), can read: how many tokens, and which ids."""

from typing import Any

# RoBERTa and its relatives count positions from the padding id + 1.
_POSITIONS_AFTER_PADDING = ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "data2vec-text")


def max_positions(config: Any, side: str) -> int | None:
    """Return the number of positions of a side that has a fixed number; None for any other."""
    if config.model_type == "seq2seq_attn":
        kind = config.encoder_type if side == "source" else config.decoder_type
        if kind != "transformer" or config.position_embedding_type == "sinusoidal":
            return None
    own = _of_side(config, side)
    name = f"max_{'encoder' if side == 'source' else 'decoder'}_position_embeddings"
    positions: int | None = getattr(own, name, None) or getattr(own, "max_position_embeddings", None)
    if positions is not None and own.model_type in _POSITIONS_AFTER_PADDING:
        positions -= own.pad_token_id + 1
    return positions


def vocabulary_size(config: Any, side: str) -> int | None:
    """Return the number of token ids that a side knows; None where the config does not say."""
    if side == "source":
        return getattr(config, "src_vocab_size", None) or getattr(_of_side(config, side), "vocab_size", None)
    return getattr(config, "decoder_vocab_size", None) or getattr(_of_side(config, side), "vocab_size", None)


def _of_side(config: Any, side: str) -> Any:
    """Return the side's own config where a model is put together from two (EncoderDecoderModel), else the model's."""
    return getattr(config, "encoder" if side == "source" else "decoder") if _is_composed(config) else config


def _is_composed(config: Any) -> bool:
    return all(hasattr(getattr(config, side, None), "model_type") for side in ("encoder", "decoder"))
