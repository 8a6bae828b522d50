"""Tiny random encoder-decoders to guide, of ours and of others, in one vocabulary."""

from typing import Any

import torch
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration

SIZES: dict[str, Any] = {
    "d_model": 12,
    "encoder_layers": 1,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 10,
    "decoder_ffn_dim": 10,
}
_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
# Unequal numbers of layers break T5's cache in transformers 5.24.
_T5 = {"d_model": 12, "d_kv": 4, "num_layers": 3, "num_decoder_layers": 3, "num_heads": 3, "d_ff": 8}

FOREIGN: dict[str, Any] = {
    "bart": (BartForConditionalGeneration, BartConfig, SIZES),
    "m2m_100": (M2M100ForConditionalGeneration, M2M100Config, SIZES),
    "marian": (MarianMTModel, MarianConfig, SIZES),
    "t5": (T5ForConditionalGeneration, T5Config, _T5),
}
OURS: dict[str, dict[str, Any]] = {
    "ours-recurrent": {"encoder_type": "gru", "decoder_type": "gru", "cross_attention_type": "additive"},
    "ours-transformer": {},
}
NAMES = [*sorted(FOREIGN), *OURS]


def guided_model(name: str, vocab_size: int, **fields: Any) -> PreTrainedModel:
    """Return the same small model each time, without dropout, whose attention can be guided."""
    set_seed(0)
    if name in OURS:
        layers = {"decoder_layers": 1} if name == "ours-recurrent" else {}
        config = Seq2SeqAttnConfig(
            vocab_size=vocab_size, **{**SIZES, **OURS[name], **layers, "dropout": 0.0, "init_std": 0.3, **fields}
        )
        return Seq2SeqAttnForConditionalGeneration(config)
    kind, config_kind, sizes = FOREIGN[name]
    still = {"dropout_rate": 0.0} if name == "t5" else dict.fromkeys(("dropout", "encoder_layerdrop"), 0.0)
    still |= (
        dict.fromkeys(("decoder_layerdrop", "attention_dropout", "activation_dropout"), 0.0) if name != "t5" else {}
    )
    still |= {"init_std": 0.3} if name != "t5" else {}
    eager = {"attn_implementation": "eager", "vocab_size": vocab_size}
    return kind(config_kind(**{**sizes, **_IDS, **eager, **still, **fields}))


def flat_weights(model: torch.nn.Module) -> Tensor:
    """Return all weights that are trained, as one vector."""
    return torch.cat([p.detach().float().flatten() for p in model.parameters() if p.requires_grad])
