"""eole, OpenNMT-py's successor: a recurrent model with `mlp` attention and input feeding, or a Transformer."""

from typing import Any

import pyonmttok
import torch
import torch.nn.functional as F
from contestant import Contestant
from eole.config.models import BaseModelConfig, RnnModelConfig, TransformerModelConfig
from eole.config.training import TrainingConfig
from eole.constants import DefaultTokens
from eole.models.model import EncoderDecoderModel
from torch import Tensor
from workloads import FIRST_WORD, PAD, START, Batch, Recurrent, Transformer

NAME = "eole"


def recurrent(size: Recurrent) -> Contestant:
    """Return eole's GRU model: it queries with the new state and feeds the attention vector."""
    side = dict(layers=1, hidden_size=size.width, rnn_type=size.cell.upper())
    config = RnnModelConfig(
        encoder=dict(side, encoder_type="brnn"),
        decoder=dict(side, decoder_type="rnn", global_attention="mlp"),
        embeddings=dict(word_vec_size=size.width),
        input_feed=1,
    )
    # The configuration makes every recurrent encoder one-directional; this is how to have it back.
    config.encoder.encoder_type = "brnn"
    config.decoder.bidirectional_encoder = True
    function = "queries with the new state, input feeding; its encoder reads padding too"
    return _contestant(config, size.vocabulary, function)


def transformer(size: Transformer) -> Contestant:
    """Return eole's Transformer (pre-norm, the only kind it has) with one table for both sides and the output."""
    config = TransformerModelConfig(
        layers=size.layers,
        hidden_size=size.width,
        heads=size.heads,
        transformer_ff=size.inner,
        add_qkvbias=True,
        add_ffnbias=True,
        add_final_linear_bias=True,
        mlp_activation_fn="relu",
        share_embeddings=True,
        share_decoder_embeddings=True,
        embeddings=dict(word_vec_size=size.width, position_encoding_type="SinusoidalInterleaved"),
    )
    return _contestant(config, size.vocabulary, "pre-norm")


def _contestant(config: BaseModelConfig, words: int, function: str) -> Contestant:
    model = EncoderDecoderModel.for_training(config, _vocabularies(words), _settings())

    def loss(prepared: dict[str, Tensor]) -> Tensor:
        output = model(prepared["src"], prepared["tgt"], prepared["srclen"]).dec_out
        target = prepared["tgt"][:, 1:].reshape(-1)
        # As eole.utils.loss.LossCompute does it, without its statistics.
        scores = model.generator(output.reshape(-1, output.shape[-1])).float()
        return F.cross_entropy(scores, target, ignore_index=PAD, reduction="sum") / prepared["tokens"]

    return Contestant(NAME, model, _prepare, loss, fused_adam=False, function=function)


def _settings() -> TrainingConfig:
    return TrainingConfig(
        dropout=[0.0], attention_dropout=[0.0], optim="adam", param_init_method="xavier_uniform", use_amp=False
    )


def _vocabularies(words: int) -> dict[str, Any]:
    marks = [DefaultTokens.UNK, DefaultTokens.PAD, DefaultTokens.BOS, DefaultTokens.EOS]
    tokens = pyonmttok.build_vocab_from_tokens([*marks, *(f"w{index}" for index in range(FIRST_WORD, words))])
    names = dict(pad_token=marks[1], unk_token=marks[0], eos_token=marks[3], bos_token=marks[2])
    return dict(src=tokens, tgt=tokens, specials=names, decoder_start_token=marks[2])


def _prepare(batch: Batch) -> dict[str, Any]:
    target = torch.cat([torch.full((len(batch.target), 1), START), batch.target], dim=1)
    return dict(src=batch.source, tgt=target, srclen=batch.source_lengths, tokens=batch.tokens)
