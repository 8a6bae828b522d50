"""fairseq: an LSTM model with dot attention and input feeding, its only recurrent kind."""

import argparse
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from contestant import Contestant
from fairseq.data import Dictionary
from fairseq.models.lstm import LSTMModel
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor
from workloads import END, FIRST_WORD, NEW_TOKENS, PAD, START, Batch, Recurrent

NAME = "fairseq"
# fairseq starts and ends sentences with one mark, number 2 of its dictionaries; 3 is its unknown word.
MARK = START


def recurrent(size: Recurrent) -> Contestant:
    """Return fairseq's bidirectional LSTM of this width."""
    fields = argparse.Namespace(
        dropout=0.0,
        encoder_embed_dim=size.width,
        encoder_hidden_size=size.width // 2,
        encoder_bidirectional=True,
        decoder_embed_dim=size.width,
        decoder_hidden_size=size.width,
        decoder_out_embed_dim=size.width,
        criterion="cross_entropy",
    )
    dictionary = Dictionary()
    for index in range(FIRST_WORD, size.vocabulary):
        dictionary.add_symbol(f"w{index}")
    model = LSTMModel.build_model(fields, SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary))

    def loss(prepared: dict[str, Any]) -> Tensor:
        output = model(**prepared["net_input"])
        # As fairseq.criterions.cross_entropy does it.
        logs = model.get_normalized_probs(output, log_probs=True)
        target = prepared["target"].reshape(-1)
        total = F.nll_loss(logs.reshape(-1, logs.shape[-1]), target, ignore_index=PAD, reduction="sum")
        return total / prepared["ntokens"]

    def decode(batch: Batch, beams: int) -> Tensor:
        return _decode(model, dictionary, batch, beams)

    function = "LSTM, dot attention, input feeding"
    return Contestant(NAME, model, _prepare, loss, fused_adam=False, decode=decode, function=function)


def _prepare(batch: Batch) -> dict[str, Any]:
    net_input = dict(
        src_tokens=batch.source.masked_fill(batch.source == END, MARK),
        src_lengths=batch.source_lengths,
        prev_output_tokens=batch.target_inputs,
    )
    return dict(net_input=net_input, target=batch.target.masked_fill(batch.target == END, MARK), ntokens=batch.tokens)


def _decode(model: LSTMModel, dictionary: Dictionary, batch: Batch, beams: int) -> Tensor:
    """Return NEW_TOKENS tokens, the last of which is the end mark that fairseq forces in an own step."""
    generator = SequenceGenerator(
        [model], dictionary, beam_size=beams, max_len_a=0, max_len_b=NEW_TOKENS - 1, min_len=NEW_TOKENS - 1
    )
    net_input = {name: value for name, value in _prepare(batch)["net_input"].items() if name.startswith("src")}
    found = generator.forward(dict(net_input=net_input))
    return torch.stack([hypotheses[0]["tokens"] for hypotheses in found])
