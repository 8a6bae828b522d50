"""Encoder, decoder and cross-attention of one pair: the model's own, whatever its backend and its layers."""

import numpy as np
import pytest
import torch
from families import FAMILIES
from probes import foreign_model, subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import extract, pair_attentions

SOURCE, TARGET = "the cats love today.", "I love cats"


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_they_are_what_the_model_computes(backend: str) -> None:
    model, tokenizer = foreign_model("bart", backend), subword_tokenizer()
    pair = pair_attentions(model, tokenizer, SOURCE, TARGET, align_with="output")
    reference = foreign_model("bart", "eager")
    labels = torch.tensor([pair.cross.target.ids])
    outputs = reference(
        input_ids=torch.tensor([pair.cross.source.ids]),
        decoder_input_ids=torch.cat([torch.tensor([[0]]), labels[:, :-1]], dim=1),
        output_attentions=True,
    )
    assert pair.encoder is not None and pair.decoder is not None
    assert (pair.encoder.shape[0], pair.decoder.shape[0]) == (2, 3)
    for found, given in (
        (pair.encoder, outputs.encoder_attentions),
        (pair.decoder, outputs.decoder_attentions),
        (pair.cross.weights, outputs.cross_attentions),
    ):
        np.testing.assert_allclose(found, torch.cat(given).detach().numpy(), atol=1e-5)
    assert pair.decoder_tokens == ["<pad>", *pair.target_tokens[:-1]]
    assert pair.target_tokens[-1] == "</s>"
    assert model.config._attn_implementation == backend


@pytest.mark.parametrize("family", ["t5", "m2m_100", "bert2gpt2"])
def test_of_other_families(family: str) -> None:
    model = FAMILIES[family]()
    pair = pair_attentions(model, subword_tokenizer(), SOURCE, TARGET)
    assert pair.encoder is not None and pair.decoder is not None
    source, target = len(pair.source_tokens), len(pair.target_tokens)
    assert pair.encoder.shape[2:] == (source, source)
    assert pair.decoder.shape[2:] == (target, target) == (len(pair.decoder_tokens),) * 2
    np.testing.assert_allclose(pair.decoder.sum(-1), 1, atol=1e-4)
    assert np.triu(pair.decoder, 1).max() < 1e-6


@pytest.mark.parametrize(
    ("encoder", "decoder", "kinds"),
    [("gru", "lstm", 0b00), ("transformer", "gru", 0b10), ("lstm", "transformer", 0b01)],
)
def test_recurrent_sides_have_no_self_attention(encoder: str, decoder: str, kinds: int) -> None:
    model = tiny_model(encoder_type=encoder, decoder_type=decoder, vocab_size=73)
    pair = pair_attentions(model, subword_tokenizer(), SOURCE, TARGET)
    assert (pair.encoder is not None, pair.decoder is not None) == (bool(kinds & 0b10), bool(kinds & 0b01))
    (maps,) = extract(model, subword_tokenizer(), [SOURCE], [TARGET])
    np.testing.assert_array_equal(pair.cross.weights, maps.weights)


def test_a_target_that_is_not_given_is_generated() -> None:
    model = tiny_model(vocab_size=73, decoder_start_token_id=1, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    pair = pair_attentions(model, subword_tokenizer(), SOURCE)
    assert len(pair.target_tokens) == pair.cross.weights.shape[2] > 0
    assert pair.decoder_tokens[0] == "<s>"
