"""OpenNMT-py 3: a recurrent model with `mlp` attention and input feeding, or a Transformer."""

import sys
import types
from typing import Any

import pyonmttok
import torch
import torch.nn.functional as F
from contestant import Contestant
from torch import Tensor
from workloads import FIRST_WORD, PAD, START, Batch, Recurrent, Transformer

# Its data code imports these at once, for transforms that nothing here uses.
for name in ("spacy", "fasttext"):
    sys.modules.setdefault(name, types.ModuleType(name))

from onmt.constants import DefaultTokens  # noqa: E402
from onmt.model_builder import build_model  # noqa: E402
from onmt.opts import train_opts  # noqa: E402
from onmt.utils.parse import ArgumentParser  # noqa: E402

NAME = "OpenNMT-py"


def recurrent(size: Recurrent) -> Contestant:
    """Return OpenNMT-py's GRU model: it queries with the new state and feeds the attention vector."""
    arguments = dict(
        encoder_type="brnn",
        decoder_type="rnn",
        rnn_type=size.cell.upper(),
        layers=1,
        hidden_size=size.width,
        word_vec_size=size.width,
        global_attention="mlp",
        input_feed=1,
    )
    return _contestant(arguments, [], size.vocabulary, "queries with the new state, input feeding")


def transformer(size: Transformer) -> Contestant:
    """Return OpenNMT-py's Transformer (pre-norm, the only kind) with one table for both sides and the output."""
    arguments = dict(
        encoder_type="transformer",
        decoder_type="transformer",
        layers=size.layers,
        hidden_size=size.width,
        word_vec_size=size.width,
        heads=size.heads,
        transformer_ff=size.inner,
        pos_ffn_activation_fn="relu",
    )
    switches = [
        *("-position_encoding", "-share_embeddings", "-share_decoder_embeddings", "-share_vocab"),
        *("-add_qkvbias", "-add_ffnbias"),
    ]
    return _contestant(arguments, switches, size.vocabulary, "pre-norm")


def _contestant(arguments: dict[str, Any], switches: list[str], words: int, function: str) -> Contestant:
    parser = ArgumentParser()
    train_opts(parser)
    given = dict(
        arguments, data="{}", save_model="unused", src_vocab="unused", dropout=0.0, attention_dropout=0.0, optim="adam"
    )
    flat = [text for field, value in given.items() for text in (f"-{field}", str(value))]
    options = parser.parse_args([*flat, *switches, "-param_init", "0", "-param_init_glorot"])
    ArgumentParser.update_model_opts(options)
    vocabulary = _vocabulary(words)
    model = build_model(options, options, dict(src=vocabulary, tgt=vocabulary), None, -1)

    def loss(prepared: dict[str, Tensor]) -> Tensor:
        output, _ = model(prepared["src"], prepared["tgt"], prepared["srclen"])
        target = prepared["tgt"][:, 1:, 0].reshape(-1)
        # As onmt.utils.loss.LossCompute does it, without its statistics.
        scores = model.generator(output.reshape(-1, output.shape[-1])).float()
        return F.cross_entropy(scores, target, ignore_index=PAD, reduction="sum") / prepared["tokens"]

    return Contestant(NAME, model, _prepare, loss, fused_adam=False, function=function)


def _vocabulary(words: int) -> pyonmttok.Vocab:
    marks = [DefaultTokens.UNK, DefaultTokens.PAD, DefaultTokens.BOS, DefaultTokens.EOS]
    return pyonmttok.build_vocab_from_tokens([*marks, *(f"w{index}" for index in range(FIRST_WORD, words))])


def _prepare(batch: Batch) -> dict[str, Any]:
    target = torch.cat([torch.full((len(batch.target), 1), START), batch.target], dim=1)
    return dict(src=batch.source[..., None], tgt=target[..., None], srclen=batch.source_lengths, tokens=batch.tokens)
