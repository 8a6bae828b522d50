"""Tiny random encoder-decoders of many families, to probe."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from probes import BOS, EOS, PAD

VOCABULARY = 73
_IDS = dict(pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=PAD)
_BART = dict(
    **_IDS,
    vocab_size=VOCABULARY,
    d_model=18,
    encoder_layers=2,
    decoder_layers=3,
    encoder_attention_heads=3,
    decoder_attention_heads=3,
    encoder_ffn_dim=10,
    decoder_ffn_dim=14,
    forced_eos_token_id=None,
    dropout=0.5,
)
# Unequal numbers of layers break T5's cache in transformers 5.24.
_T5 = dict(**_IDS, vocab_size=VOCABULARY, d_model=18, d_kv=5, d_ff=10, num_layers=3, num_heads=3)
_BERT = dict(vocab_size=VOCABULARY, hidden_size=18, num_hidden_layers=2, num_attention_heads=3, intermediate_size=10)


def _composed(decoder: Any) -> Any:
    config = hf.EncoderDecoderConfig.from_encoder_decoder_configs(
        hf.BertConfig(**_BERT, max_position_embeddings=40), decoder
    )
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = BOS, PAD, EOS
    return hf.EncoderDecoderModel(config=config)


def _fsmt() -> Any:
    # Its decoder takes a start token that is padding for padding.
    sizes = {name: value for name, value in _BART.items() if name != "vocab_size"} | {"decoder_start_token_id": EOS}
    config = hf.FSMTConfig(
        langs=["en", "de"], src_vocab_size=VOCABULARY, tgt_vocab_size=VOCABULARY, max_position_embeddings=60, **sizes
    )
    return hf.FSMTForConditionalGeneration(config)


FAMILIES: dict[str, Callable[[], Any]] = {
    "marian": lambda: hf.MarianMTModel(hf.MarianConfig(**_BART, max_position_embeddings=40)),
    "bart": lambda: hf.BartForConditionalGeneration(hf.BartConfig(**_BART, max_position_embeddings=40)),
    "mbart": lambda: hf.MBartForConditionalGeneration(hf.MBartConfig(**_BART, max_position_embeddings=40)),
    "m2m_100": lambda: hf.M2M100ForConditionalGeneration(hf.M2M100Config(**_BART, max_position_embeddings=40)),
    "pegasus": lambda: hf.PegasusForConditionalGeneration(hf.PegasusConfig(**_BART, max_position_embeddings=40)),
    "t5": lambda: hf.T5ForConditionalGeneration(hf.T5Config(**_T5)),
    "bert2bert": lambda: _composed(hf.BertConfig(**_BERT, max_position_embeddings=40)),
    "bert2gpt2": lambda: _composed(
        hf.GPT2Config(vocab_size=VOCABULARY, n_embd=18, n_layer=2, n_head=3, n_positions=40, resid_pdrop=0.3)
    ),
    "bigbird_pegasus": lambda: hf.BigBirdPegasusForConditionalGeneration(
        hf.BigBirdPegasusConfig(**_BART, attention_type="original_full", max_position_embeddings=40)
    ),
    "led": lambda: hf.LEDForConditionalGeneration(
        hf.LEDConfig(
            **_BART, attention_window=4, max_encoder_position_embeddings=60, max_decoder_position_embeddings=40
        )
    ),
    "fsmt": _fsmt,
    "longt5": lambda: hf.LongT5ForConditionalGeneration(hf.LongT5Config(**_T5, local_radius=3)),
    "switch": lambda: hf.SwitchTransformersForConditionalGeneration(
        hf.SwitchTransformersConfig(**_T5, num_decoder_layers=3, num_experts=2, expert_capacity=200)
    ),
    "blenderbot": lambda: hf.BlenderbotForConditionalGeneration(
        hf.BlenderbotConfig(**_BART, max_position_embeddings=40)
    ),
    "prophetnet": lambda: hf.ProphetNetForConditionalGeneration(
        hf.ProphetNetConfig(
            **_IDS,
            vocab_size=VOCABULARY,
            hidden_size=18,
            encoder_ffn_dim=10,
            decoder_ffn_dim=14,
            num_encoder_layers=2,
            num_decoder_layers=2,
            num_encoder_attention_heads=3,
            num_decoder_attention_heads=3,
            max_position_embeddings=40,
        )
    ),
}
"""Every family that the tests probe; those after `bert2gpt2` differ from the rest, and from each other, in how they
return their weights."""


def family_model(name: str, backend: str = "eager", sharp: float = 0.6) -> Any:
    """Return a tiny random model of a family in eval mode, with sharp weights; backend "own" = as it comes."""
    torch.manual_seed(5)
    model = FAMILIES[name]().eval()
    if backend != "own":
        model.set_attn_implementation(backend)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=sharp)
    return model
