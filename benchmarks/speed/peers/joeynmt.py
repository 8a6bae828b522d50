"""JoeyNMT: a recurrent model with `bahdanau` attention and input feeding, or a Transformer."""

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from contestant import Contestant
from joeynmt.batch import Batch as JoeyBatch
from joeynmt.model import Model, build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary
from torch import Tensor
from workloads import END, FIRST_WORD, NEW_TOKENS, PAD, START, UNKNOWN, Batch, Recurrent, Transformer

NAME = "joeynmt"


def recurrent(size: Recurrent) -> Contestant:
    """Return JoeyNMT's GRU model: it queries with the new state and feeds the attention vector."""
    embeddings = dict(embedding_dim=size.width, scale=False, dropout=0.0)
    common = dict(type="recurrent", rnn_type=size.cell, num_layers=1, dropout=0.0, embeddings=embeddings)
    fields = dict(
        initializer="xavier_uniform",
        encoder=dict(common, hidden_size=size.width // 2, bidirectional=True),
        decoder=dict(
            common,
            hidden_size=size.width,
            hidden_dropout=0.0,
            attention="bahdanau",
            init_hidden="bridge",
            input_feeding=True,
        ),
    )
    return _contestant(fields, size.vocabulary, "queries with the new state, input feeding")


def transformer(size: Transformer) -> Contestant:
    """Return JoeyNMT's post-norm Transformer with one table for both sides and the output."""
    embeddings = dict(embedding_dim=size.width, scale=True, dropout=0.0)
    side = dict(
        type="transformer",
        num_layers=size.layers,
        num_heads=size.heads,
        hidden_size=size.width,
        ff_size=size.inner,
        dropout=0.0,
        layer_norm="post",
        embeddings=embeddings,
    )
    fields = dict(
        initializer="xavier_uniform", tied_embeddings=True, tied_softmax=True, encoder=dict(side), decoder=dict(side)
    )
    return _contestant(fields, size.vocabulary, "")


def _contestant(fields: dict[str, Any], words: int, function: str) -> Contestant:
    vocabulary = _vocabulary(words)
    model = build_model(fields, src_vocab=vocabulary, trg_vocab=vocabulary)
    model.loss_function = ("crossentropy", 0.0)

    def loss(batch: JoeyBatch) -> Tensor:
        # As joeynmt.model.Model.forward does it for return_type="loss", without counting correct tokens.
        output, *_ = model._encode_decode(**vars(batch))
        return batch.normalize(model.loss_function(F.log_softmax(output, dim=-1), **vars(batch)), "tokens")

    def decode(batch: Batch, beams: int) -> Tensor:
        return _decode(model, batch, beams)

    return Contestant(NAME, model, _prepare, loss, fused_adam=False, decode=decode, function=function)


def _vocabulary(words: int) -> Vocabulary:
    marks = SimpleNamespace(
        unk_token="<unk>",
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        sep_token=None,
        lang_tags=[],
        unk_id=UNKNOWN,
        pad_id=PAD,
        bos_id=START,
        eos_id=END,
    )
    return Vocabulary([f"w{index}" for index in range(FIRST_WORD, words)], marks)


def _prepare(batch: Batch) -> JoeyBatch:
    """Return the batch as JoeyNMT's collator makes it: target = START, words, END, padded."""
    target = torch.cat([torch.full((len(batch.target), 1), START), batch.target], dim=1)
    return _joey_batch(batch, target)


def _joey_batch(batch: Batch, target: Tensor | None) -> JoeyBatch:
    return JoeyBatch(
        src=batch.source,
        src_length=batch.source_lengths,
        src_prompt_mask=None,
        trg=target,
        trg_prompt_mask=None,
        indices=torch.arange(len(batch.source)),
        device=torch.device("cpu"),
        pad_index=PAD,
        eos_index=END,
        is_train=target is not None,
    )


def _decode(model: Model, batch: Batch, beams: int) -> Tensor:
    tokens, _, _ = search(
        model,
        _joey_batch(batch, None),
        max_output_length=NEW_TOKENS,
        min_output_length=NEW_TOKENS,
        beam_size=beams,
        beam_alpha=-1,
    )
    return torch.as_tensor(tokens)
