"""Hugging Face's Marian Transformer with its default attention (sdpa) or with `eager`."""

from contestant import Contestant
from hugging_face import IDS, contestant
from transformers import MarianConfig, MarianMTModel
from workloads import Transformer

NAME = "HF Marian"


def transformer(size: Transformer, attention: str = "sdpa") -> Contestant:
    """Return Marian of this size: post-norm, sinusoidal positions, one table for both sides and the output."""
    config = MarianConfig(
        vocab_size=size.vocabulary,
        d_model=size.width,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        encoder_ffn_dim=size.inner,
        decoder_ffn_dim=size.inner,
        activation_function="relu",
        scale_embedding=True,
        dropout=0.0,
        forced_eos_token_id=None,
        attn_implementation=attention,
        **IDS,
    )
    name = NAME if attention == "sdpa" else f"{NAME}, {attention}"
    return contestant(name, MarianMTModel(config))
