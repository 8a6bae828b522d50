"""A walk shows the model's own numbers, and notices when they are not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probes import EOS, foreign_model, subword_tokenizer
from variants import ATTENTIVE, tiny_model

from hf_seq2seq_attn.probing import AlignmentChoice, save_choice, walk_html, walk_page, walk_through, walkthrough
from hf_seq2seq_attn.probing.attention_layers import find_attention_layers
from hf_seq2seq_attn.probing.attention_parts import attention_parts
from hf_seq2seq_attn.probing.attention_steps import attention_steps

SOURCE, TARGET = ["I", "love", "cats,"], ["understand", "the", "day"]


def model_for(tokenizer, **fields: object):
    return tiny_model(
        **{**fields, "vocab_size": len(tokenizer)}
        | ({"decoder_vocab_size": len(tokenizer)} if "decoder_vocab_size" in fields else {})
    )


@pytest.mark.parametrize("fields", ATTENTIVE.values(), ids=ATTENTIVE)
def test_weights_context_and_prediction_are_the_models(fields: dict) -> None:
    tokenizer = subword_tokenizer()
    model = model_for(tokenizer, **fields)
    head = model.config.cross_attention_heads - 1
    walk = walk_through(model, tokenizer, SOURCE, TARGET, row=2, head=head)
    ids = tokenizer(SOURCE, is_split_into_words=True, return_tensors="pt")["input_ids"]
    target = tokenizer(TARGET, is_split_into_words=True)["input_ids"]
    output = model(ids, decoder_input_ids=torch.tensor([[1, *target]]), output_attentions=True)
    maps = output.cross_attentions[-1][0, head, 2].detach().numpy()
    np.testing.assert_allclose(walk.steps.weights[-len(maps) :], maps, atol=1e-5)
    np.testing.assert_allclose(walk.steps.context, walk.steps.weights @ walk.steps.values, atol=1e-9)
    log_probabilities = torch.log_softmax(output.logits[0, 2].double(), -1)
    assert walk.cross_entropy == pytest.approx(-float(log_probabilities[target[2]]), abs=1e-5)
    assert walk.top[0][0] == tokenizer.convert_ids_to_tokens(int(log_probabilities.argmax()))
    assert walk.read == tokenizer.convert_ids_to_tokens([1, *target[:2]])
    if model.config.decoder_is_recurrent:
        logits = model.lm_head(torch.tensor(walk.fused, dtype=torch.float32))
        assert torch.allclose(logits, output.logits[0, 2], atol=1e-4)
    assert not model.get_decoder()._forward_hooks


def test_a_word_is_found_in_the_row_that_aligns_it() -> None:
    tokenizer = subword_tokenizer()
    model = model_for(tokenizer, encoder_type="gru", decoder_type="gru")
    pieces = tokenizer(TARGET, is_split_into_words=True).word_ids()
    assert walk_through(model, tokenizer, SOURCE, TARGET, word=1).row == pieces.index(1)
    assert walk_through(model, tokenizer, SOURCE, TARGET, word=1, align_with="input").row == pieces.index(1) + 1


def test_the_last_row_predicts_nothing_that_is_known() -> None:
    tokenizer = subword_tokenizer()
    length = len(tokenizer(TARGET, is_split_into_words=True)["input_ids"])
    walk = walk_through(model_for(tokenizer), tokenizer, SOURCE, TARGET, row=length)
    assert walk.true_token is None and walk.cross_entropy is None
    assert walk.read[-1] == tokenizer.convert_ids_to_tokens(EOS)


def test_numbers_that_are_not_the_models_are_noticed() -> None:
    """The walk recomputes softmax and scores; a module that scores otherwise must not be explained as if it did not."""
    tokenizer = subword_tokenizer()
    model = model_for(tokenizer, encoder_type="gru", decoder_type="gru")
    attention = model.get_decoder().encoder_attn
    attention.score = lambda queries, keys: 1.5 * (queries @ keys.transpose(-1, -2))
    with pytest.raises(ValueError, match="differ from the model"):
        walk_through(model, tokenizer, SOURCE, TARGET, row=1)


def test_padding_has_no_part_in_the_sum() -> None:
    model = tiny_model(encoder_type="gru", decoder_type="gru", cross_attention_type="additive")
    parts = attention_parts(find_attention_layers(model)[0])
    readable = np.array([True, True, False, True, False])
    states = np.random.default_rng(3).normal(size=(5, 12))
    (steps,) = attention_steps(parts, np.ones(12), states, readable)
    assert steps.weights[[2, 4]].tolist() == [0, 0] and steps.weights.sum() == pytest.approx(1)
    (nothing,) = attention_steps(parts, np.ones(12), states, np.zeros(5, dtype=bool))
    assert not nothing.weights.any() and not nothing.context.any()


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["marian", "bart", "m2m_100", "t5"])
def test_models_of_other_families_are_walked_through(family: str, backend: str) -> None:
    tokenizer = subword_tokenizer()
    model = foreign_model(family, backend, vocabulary=len(tokenizer))
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    walk = walk_through(model, tokenizer, SOURCE, TARGET, row=2, layer=1, head=2)
    eager = foreign_model(family, "eager", vocabulary=len(tokenizer))
    eager.load_state_dict(model.state_dict())
    ids = tokenizer(SOURCE, is_split_into_words=True, return_tensors="pt")["input_ids"]
    target = tokenizer(TARGET, is_split_into_words=True)["input_ids"]
    start = model.config.decoder_start_token_id
    output = eager(
        ids, decoder_input_ids=torch.tensor([[start, *target]]), output_attentions=True, output_hidden_states=True
    )
    np.testing.assert_allclose(walk.steps.weights, output.cross_attentions[1][0, 2, 2].detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(walk.fused, output.decoder_hidden_states[2][0, 2].detach().numpy(), atol=1e-4)
    log_probabilities = torch.log_softmax(output.logits[0, 2].detach().double(), -1)
    assert walk.cross_entropy == pytest.approx(-float(log_probabilities[target[2]]), abs=1e-4)
    assert not walk.is_top_layer and walk.fusion == "residual"
    assert (walk.steps.scale == 1) == (family == "t5"), "T5 does not scale; the others divide by the root of 6"
    assert walk.largest_difference < 1e-3
    assert walk_through(model, tokenizer, SOURCE, TARGET, row=2).is_top_layer


@pytest.mark.parametrize("part", ["q_proj", "k_proj", "v_proj", "out_proj", "lm_head"])
def test_a_weight_that_is_not_the_models_breaks_the_check(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are done again from the weights: another weight than the model ran with is noticed in its line."""
    tokenizer = subword_tokenizer()
    model = foreign_model("marian", vocabulary=len(tokenizer))
    ran = walkthrough.run_row

    def run_then_perturb(copied, *args):
        computed = ran(copied, *args)
        attention = copied.get_decoder().layers[0].encoder_attn
        weight = copied.lm_head.weight if part == "lm_head" else getattr(attention, part).weight
        with torch.no_grad():
            weight[1, 1] += 0.5
        return computed

    def run_then_perturb_parts(copied, layers, number, maps, row):
        computed = run_then_perturb(copied, layers, number, maps, row)
        monkeypatch.setattr(
            walkthrough, "redo_row", lambda m, layer, parts, c: redo(m, layer, attention_parts(layer), c)
        )
        return computed

    redo = walkthrough.redo_row
    monkeypatch.setattr(walkthrough, "run_row", run_then_perturb_parts)
    with pytest.raises(ValueError, match="differ from the model"):
        walk_through(model, tokenizer, SOURCE, TARGET, row=2, layer=0)


def test_without_a_target_the_models_own_translation_is_walked_through() -> None:
    tokenizer = subword_tokenizer()
    model = foreign_model("marian", vocabulary=len(tokenizer))
    walk = walk_through(model, tokenizer, SOURCE, row=0, generate_kwargs={"max_new_tokens": 5})
    ids = tokenizer(SOURCE, is_split_into_words=True, return_tensors="pt")["input_ids"]
    said = model.generate(ids, max_new_tokens=5)[0, 1]
    assert walk.true_token == tokenizer.convert_ids_to_tokens(int(said))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fields", ["add_heads", "previous_state_lstm_heads", "null_key"])
def test_a_model_in_half_precision_is_walked_through(fields: str, dtype: torch.dtype) -> None:
    tokenizer = subword_tokenizer()
    model = model_for(tokenizer, **ATTENTIVE[fields])
    exact = walk_through(model, tokenizer, SOURCE, TARGET, row=2)
    rounded = walk_through(model.to(dtype), tokenizer, SOURCE, TARGET, row=2)
    assert rounded.steps.weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(rounded.steps.weights, exact.steps.weights, atol=0.1)


def test_large_scores_are_shown_less_their_highest() -> None:
    tokenizer = subword_tokenizer()
    model = model_for(tokenizer, encoder_type="gru", decoder_type="gru")
    plain = walk_through(model, tokenizer, SOURCE, TARGET, row=1)
    assert plain.steps.shift == 0
    np.testing.assert_allclose(plain.steps.exponentials, np.exp(plain.steps.scores))
    assert "e<sup>score</sup>" in walk_html(plain)
    with torch.no_grad():
        model.get_decoder().encoder_attn.k_proj.weight.mul_(1e4)
    walk = walk_through(model, tokenizer, SOURCE, TARGET, row=1)
    assert walk.steps.shift == walk.steps.scores.max() > 710, "e^710 is no number"
    np.testing.assert_allclose(walk.steps.exponentials, np.exp(walk.steps.scores - walk.steps.shift))
    assert walk.steps.weights.sum() == pytest.approx(1)
    assert "e<sup>score &minus; highest</sup>" in walk_html(walk)


def test_negative_layers_and_heads_are_reported_by_their_own_numbers() -> None:
    tokenizer = subword_tokenizer()
    model = model_for(tokenizer)
    walk = walk_through(model, tokenizer, SOURCE, TARGET, row=1, layer=-2, head=-1)
    assert (walk.layer, walk.head) == (0, 2)
    same = walk_through(model, tokenizer, SOURCE, TARGET, row=1, layer=0, head=2)
    np.testing.assert_array_equal(walk.steps.weights, same.steps.weights)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({}, "neither"), ({"row": 1, "word": 1}, "both"), ({"row": 99}, "row=99"), ({"word": 3}, "words 0 to 2"),
        ({"row": 1, "head": 7}, "head=7"), ({"word": 0, "align_with": "foo"}, "align_with is 'foo'"),
         ({"row": 1, "layer": 2}, "layer=2"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_refused(choice: dict, words: str) -> None:
    tokenizer = subword_tokenizer()
    with pytest.raises(ValueError, match=words):
        walk_through(model_for(tokenizer), tokenizer, SOURCE, TARGET, **choice)


def test_the_page_is_harmless_and_needs_nothing_from_outside() -> None:
    tokenizer = subword_tokenizer()
    for fields in ({}, {"cross_attention_type": "additive", "null_key": True}):
        walk = walk_through(model_for(tokenizer, **fields), tokenizer, ["<b>cats</b>", "love"], TARGET, row=1)
        page = walk_page(walk)
        assert "http" not in page and "<b>cats" not in page and walk_html(walk) in page
        for step in ("Encode", "Query", "Score", "Softmax", "Context", "Fuse and predict"):
            assert f"<b>{step}" in page


def test_without_a_place_the_walk_is_where_alignments_are_read(tmp_path: Path) -> None:
    tokenizer = subword_tokenizer()

    def place(model: Any, **asked: int) -> tuple[int, int]:
        walk = walk_through(model, tokenizer, SOURCE, TARGET, row=1, **asked)
        return walk.layer, walk.head

    model = model_for(tokenizer, alignment_layer=0, alignment_heads=[2, 1])
    assert [place(model), place(model, layer=-2), place(model, head=1)] == [(0, 2), (0, 2), (0, 1)]
    # The config's heads are of its layer.
    assert place(model, layer=1) == (1, 0)
    model.save_pretrained(tmp_path)
    save_choice(tmp_path, AlignmentChoice(((1, 1), (0, 0)), "input"))
    saved = type(model).from_pretrained(tmp_path)
    assert [place(saved), place(saved, layer=0), place(saved, head=1)] == [(1, 1), (0, 2), (0, 1)]
