"""This project's models, through nothing but their public face: `model(**batch).loss` and `generate`."""

import dataclasses
from typing import Any

from contestant import Contestant
from hugging_face import IDS, contestant
from torch import Tensor
from workloads import Recurrent, Transformer

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration, plain_forms


def recurrent(size: Recurrent, name: str = "ours", plain: bool = False, **fields: Any) -> Contestant:
    """Return a recurrent encoder-decoder; `fields` say how it attends. Source, target and output have own tables.

    `plain` trains it by the formulas as they stand, without any of the fast paths.
    """
    config = Seq2SeqAttnConfig(
        vocab_size=size.vocabulary,
        d_model=size.width,
        encoder_type=size.cell,
        decoder_type=size.cell,
        encoder_layers=1,
        decoder_layers=1,
        share_encoder_decoder_embeddings=False,
        tie_word_embeddings=False,
        dropout=0.0,
        **IDS,
        **fields,
    )
    made = contestant(name, Seq2SeqAttnForConditionalGeneration(config))
    return _by_plain_forms(made) if plain else made


def transformer(size: Transformer, name: str = "ours", plain: bool = False) -> Contestant:
    """Return a post-norm Transformer of this size with one table for both sides and the output."""
    config = Seq2SeqAttnConfig(
        vocab_size=size.vocabulary,
        d_model=size.width,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        encoder_ffn_dim=size.inner,
        decoder_ffn_dim=size.inner,
        dropout=0.0,
        **IDS,
    )
    made = contestant(name, Seq2SeqAttnForConditionalGeneration(config))
    return _by_plain_forms(made) if plain else made


def _by_plain_forms(made: Contestant) -> Contestant:
    def loss(inputs: dict[str, Tensor]) -> Tensor:
        with plain_forms():
            return made.loss(inputs)

    return dataclasses.replace(made, loss=loss)
