"""What a model says about sentence pairs, against a plain loop."""

from pathlib import Path
from typing import Any

import pytest
import torch
from probes import foreign_model, subword_tokenizer
from transformers import MarianMTModel
from variants import tiny_model

from hf_seq2seq_attn.probing import AlignmentChoice, align, extract, save_choice
from hf_seq2seq_attn.probing.model_signals import model_signals

PAIRS = [("the cats love", "love cats"), ("", "day"), ("understand this today.", "the day you love"), ("I", " ")]


def models() -> dict[str, Any]:
    return {
        "ours": tiny_model(vocab_size=73, decoder_type="gru", encoder_type="gru"),
        "marian": foreign_model("marian"),
        "t5": foreign_model("t5"),
    }


@pytest.mark.parametrize("family", ["ours", "marian", "t5"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_signals_are_those_of_one_pair_at_a_time(family: str, batch_size: int) -> None:
    model, tokenizer = models()[family], subword_tokenizer()
    found = list(model_signals(model, tokenizer, iter(PAIRS), batch_size=batch_size))
    assert [(each.score, each.links, each.sink_mass) for each in (found[1], found[3])] == [
        (None, frozenset(), None)
    ] * 2
    sources, targets = zip(*PAIRS, strict=True)
    assert [each.links for each in found] == align(model, tokenizer, sources, targets, specials="null")
    for signals, pair in ((found[0], PAIRS[0]), (found[2], PAIRS[2])):
        (maps,) = extract(model, tokenizer, [pair[0]], [pair[1]])
        logits = model(
            input_ids=torch.tensor([maps.source.ids]),
            decoder_input_ids=torch.tensor([[model.config.decoder_start_token_id, *maps.target.ids[:-1]]]),
        ).logits
        chosen = logits[0].log_softmax(-1)[range(len(maps.target.ids)), maps.target.ids]
        assert signals.score == pytest.approx(chosen.mean().item(), abs=1e-5)
        # Of the words' rows, what the end token's column has.
        expected = maps.matrix()[:-1, -1].mean()
        assert signals.sink_mass == pytest.approx(expected, abs=1e-5)
        assert set(signals.probabilities) == signals.links


def test_heads_that_were_saved_with_the_model_are_read(tmp_path: Path) -> None:
    tokenizer = subword_tokenizer()
    model = models()["marian"]
    model.save_pretrained(tmp_path)
    model = MarianMTModel.from_pretrained(tmp_path)
    default = [each.sink_mass for each in model_signals(model, tokenizer, PAIRS[2:3])]
    save_choice(tmp_path, AlignmentChoice(((0, 1), (2, 0)), "output"))
    (found,) = model_signals(model, tokenizer, PAIRS[2:3])
    (maps,) = extract(model, tokenizer, [PAIRS[2][0]], [PAIRS[2][1]], align_with="output")
    mean = (maps.weights[0, 1] + maps.weights[2, 0]) / 2
    # Of the words' rows, what the end token's column has.
    assert found.sink_mass == pytest.approx(mean[:-1, -1].mean(), abs=1e-5) != pytest.approx(default[0], abs=1e-4)


def test_a_model_without_attention_is_refused() -> None:
    blind = tiny_model(vocab_size=73, decoder_type="gru", encoder_type="gru", cross_attention_type="none")
    with pytest.raises(ValueError, match="no attention to read"):
        list(model_signals(blind, subword_tokenizer(), PAIRS))
