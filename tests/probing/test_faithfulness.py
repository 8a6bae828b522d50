"""Faithfulness tests on models whose answer is known, and each figure against a slow, obvious reference."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from planted_heads import lookup_model
from probes import SENTENCES, foreign_model, subword_tokenizer, word_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import AttentionMaps, extract, to_words
from hf_seq2seq_attn.probing.faithfulness import TESTS, kendall_tau, measure_faithfulness
from hf_seq2seq_attn.probing.teacher_forcing import make_batch, next_token_logits, token_losses

SPEAK = 100.0
SOURCE = ["w5 w9 w7 w6 w8", "w12 w10 w13 w11", "w16"]
TARGET = ["w5 w6 w7 w8 w9", "w10 w11 w12 w13", "w17"]


def maps_of(model: Any, tokenizer: Any = None, sources: Any = SOURCE, targets: Any = TARGET) -> list[AttentionMaps]:
    return list(extract(model, tokenizer or word_tokenizer(), sources, targets, align_with="output"))


def test_a_model_that_speaks_through_its_attention_is_found_faithful() -> None:
    model = lookup_model(1, 2, speak=SPEAK)
    found = measure_faithfulness(model, maps_of(model), [(1, 2)], permutations=20)
    assert found.erasure["top"] > 1
    assert abs(found.erasure["random"]) < 0.2 * found.erasure["top"]
    assert found.erasure["ci95"][0] > 0
    assert found.erasure["top_is_larger"] > 0.85
    assert found.leave_one_out["kendall_tau"] > 0.3
    assert found.permutation["chosen"] > 0.5
    # Nothing else speaks.
    assert found.permutation["all"] == pytest.approx(found.permutation["chosen"], abs=1e-5)
    assert found.uniform["chosen"] > found.uniform["loss"] + 0.5
    assert (found.pairs, found.short) == (3, 1)
    assert found.erasure["rows"] == 9


def test_a_head_that_nobody_listens_to_is_found_out() -> None:
    model = lookup_model(1, 2, speak=SPEAK)
    found = measure_faithfulness(model, maps_of(model), [(0, 1)])
    assert found.permutation["chosen"] == pytest.approx(0, abs=1e-6)
    assert found.permutation["all"] > 0.3
    assert found.uniform["chosen"] == pytest.approx(found.uniform["loss"], abs=1e-5)
    assert found.uniform["all"] > found.uniform["loss"] + 0.5
    deaf = lookup_model(1, 2)
    found = measure_faithfulness(deaf, maps_of(deaf), [(1, 2)])
    assert found.erasure["difference"] == pytest.approx(0, abs=1e-4)
    assert found.permutation["chosen"] == pytest.approx(0, abs=1e-6)


@torch.no_grad()
def slow_leave_one_out(model: Any, maps: AttentionMaps) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return drops and distances, (words, rows), one masked word and pass at a time."""
    batch = make_batch(model, [maps])
    base = next_token_logits(model, batch)[0].log_softmax(-1)
    rows = [row for row, word in enumerate(maps.target.word_of) if word is not None]
    drops, distances = [], []
    for word in range(len(maps.source_words)):
        mask = torch.tensor([[int(each != word) for each in maps.source.word_of]])
        logits = model(
            input_ids=batch.input_ids,
            attention_mask=mask,
            decoder_input_ids=batch.decoder_input_ids,
            use_cache=False,
        ).logits[0]
        erased = logits.log_softmax(-1)
        drops.append([float(base[row, batch.labels[0, row]] - erased[row, batch.labels[0, row]]) for row in rows])
        distances.append([float((base[row].exp() - erased[row].exp()).abs().sum() / 2) for row in rows])
    return np.array(drops), np.array(distances), rows


@pytest.mark.parametrize(
    "make", [lambda: foreign_model("m2m_100", "sdpa"), lambda: tiny_model(vocab_size=73, decoder_type="gru")]
)
def test_erasure_and_tau_are_those_of_one_word_at_a_time(make: Any) -> None:
    model, tokenizer = make(), subword_tokenizer()
    maps = maps_of(model, tokenizer, SENTENCES[:2], SENTENCES[1:3])
    layer = maps[0].layers[-1]
    heads = [(layer, head) for head in maps[0].heads]
    found = measure_faithfulness(model, maps, heads, permutations=1, batch_size=3)
    top, random, tau = [], [], []
    for pair in maps:
        drops, distances, rows = slow_leave_one_out(model, pair)
        tokens = pair.matrix(layer)
        for place, row in enumerate(rows):
            words = [
                sum(tokens[row, column] for column, word in enumerate(pair.source.word_of) if word == each)
                for each in range(len(pair.source_words))
            ]
            best = int(np.argmax(words))
            top.append(drops[best, place])
            random.append(np.mean([drop for word, drop in enumerate(drops[:, place]) if word != best]))
            tau.append(slow_tau(words, list(distances[:, place])))
    assert found.erasure["top"] == pytest.approx(np.mean(top), abs=1e-4)
    assert found.erasure["random"] == pytest.approx(np.mean(random), abs=1e-4)
    assert found.erasure["difference"] == pytest.approx(np.mean(top) - np.mean(random), abs=1e-4)
    assert found.leave_one_out["kendall_tau"] == pytest.approx(np.mean(tau), abs=1e-3)
    assert found.erasure["rows"] == len(top)


def slow_tau(first: list[float], second: list[float]) -> float:
    score = ties = other_ties = 0
    for i in range(len(first)):
        for j in range(i):
            one, two = np.sign(first[i] - first[j]), np.sign(second[i] - second[j])
            score += one * two
            ties += one != 0
            other_ties += two != 0
    return score / np.sqrt(ties * other_ties)


def test_kendalls_tau_with_and_without_ties() -> None:
    generator = np.random.default_rng(3)
    first, second = generator.integers(0, 4, (6, 7)), generator.random((6, 7))
    expected = [slow_tau(list(one), list(two)) for one, two in zip(first, second, strict=True)]
    np.testing.assert_allclose(kendall_tau(first, second), expected)
    assert kendall_tau(np.array([[1, 2, 3]]), np.array([[4, 5, 6]])).tolist() == [1]
    assert kendall_tau(np.array([[1, 2, 3]]), np.array([[6, 5, 4]])).tolist() == [-1]
    assert np.isnan(kendall_tau(np.array([[1, 1]]), np.array([[6, 5]]))).all()


@torch.no_grad()
def test_permuted_weights_are_values_permuted_the_other_way() -> None:
    """With one decoder layer, weights in the order o are the same as values in the inverse order."""
    model = tiny_model(vocab_size=73, decoder_layers=1)
    tokenizer = subword_tokenizer()
    maps = maps_of(model, tokenizer, SENTENCES[:1], SENTENCES[1:2])
    count, seed = 3, 5
    found = measure_faithfulness(
        model, maps, [(0, head) for head in range(3)], permutations=count, seed=seed, batch_size=4
    )
    pair = maps[0]
    batch = make_batch(model, maps)
    rows = [row for row, word in enumerate(pair.target.word_of) if word is not None]
    size = len(pair.source.ids)
    orders = np.random.default_rng(seed).random((len(rows), count, size)).argsort(axis=-1)
    base = next_token_logits(model, batch)[0].softmax(-1)
    medians = []
    for place, row in enumerate(rows):
        distances = []
        for order in orders[place]:
            inverse = np.argsort(order)

            def reorder(module: Any, args: Any, output: torch.Tensor, inverse: np.ndarray = inverse) -> torch.Tensor:
                return output[:, torch.from_numpy(inverse)]

            handle = model.model.decoder.layers[0].encoder_attn.v_proj.register_forward_hook(reorder)
            changed = next_token_logits(model, batch)[0, row].softmax(-1)
            handle.remove()
            distances.append(float((base[row] - changed).abs().sum() / 2))
        medians.append(np.median(distances))
    assert found.permutation["chosen"] == pytest.approx(np.mean(medians), abs=1e-5)
    assert found.permutation["all"] == found.permutation["chosen"] > 1e-3


@pytest.mark.parametrize("make", [lambda: foreign_model("t5"), lambda: tiny_model(vocab_size=73)])
def test_batch_sizes_change_nothing_and_seeds_the_permutations_only(make: Any) -> None:
    model, tokenizer = make(), subword_tokenizer()
    maps = maps_of(model, tokenizer, SENTENCES[:2], SENTENCES[1:3])
    one = measure_faithfulness(model, maps, permutations=4, batch_size=1)
    two = measure_faithfulness(model, maps, permutations=4, batch_size=50)
    assert one.permutation["chosen"] == pytest.approx(two.permutation["chosen"], abs=1e-5)
    assert one.erasure["top"] == pytest.approx(two.erasure["top"], abs=1e-4)
    assert measure_faithfulness(model, maps, permutations=4, batch_size=50) == two
    other = measure_faithfulness(model, maps, permutations=4, batch_size=50, seed=1)
    assert other.permutation != two.permutation
    assert other.erasure["top"] == two.erasure["top"]
    assert two.heads == tuple((maps[0].layers[-1], head) for head in maps[0].heads)


def test_a_recurrent_decoder_that_attends_step_by_step_is_permuted_at_its_row() -> None:
    fields = dict(encoder_type="gru", decoder_type="gru", attend_with="previous_state", vocab_size=73)
    model, tokenizer = tiny_model(**fields), subword_tokenizer()
    maps = maps_of(model, tokenizer, SENTENCES[:2], SENTENCES[1:3])
    found = measure_faithfulness(model, maps, permutations=5, batch_size=7)
    assert found.permutation["chosen"] > 1e-3
    # All rows uniform: the same as a query that is always 0.
    silent = tiny_model(**fields)
    with torch.no_grad():
        for name, parameter in silent.named_parameters():
            if "encoder_attn" in name and ("q_proj" in name or "k_proj" in name):
                parameter.zero_()
        batches = [make_batch(silent, [pair]) for pair in maps]
        losses = [token_losses(next_token_logits(silent, batch), batch.labels) for batch in batches]
    expected = sum(float(each.sum()) for each in losses) / sum(each.numel() for each in losses)
    assert found.uniform["chosen"] == pytest.approx(expected, abs=1e-3)
    assert found.uniform["loss"] != pytest.approx(expected, abs=1e-3)


def test_every_figure_comes_with_its_definition_and_caveat() -> None:
    model = lookup_model(0, 0)
    values = json.loads(json.dumps(measure_faithfulness(model, maps_of(model)).as_dict()))
    for name in TESTS:
        assert len(values[name]["definition"]) > 50
        assert len(values[name]["caveat"]) > 50
    assert "plausible" in values["caveat"]
    assert values["align_with"] == "output"
    # Nothing to compare in: null, not NaN.
    short = measure_faithfulness(model, maps_of(model)[2:]).as_dict()
    assert short["erasure"]["top"] is None
    assert short["erasure"]["ci95"] == [None, None]
    assert (short["short"], short["uniform"]["loss"] > 0) == (1, True)
    json.dumps(short, allow_nan=False)


def test_attention_to_words_leaves_structural_tokens_out() -> None:
    model, tokenizer = foreign_model("marian"), subword_tokenizer()
    pair = maps_of(model, tokenizer, SENTENCES[:1], SENTENCES[1:2])[0]
    words = to_words(replace(pair, target=pair.target), layer=2).weights
    assert words.shape == (len(pair.target_words), len(pair.source_words))


def test_what_cannot_be_tested_is_refused() -> None:
    model = lookup_model(0, 0)
    maps = maps_of(model)
    with pytest.raises(ValueError, match="layer 2, head 0 is not held"):
        measure_faithfulness(model, maps, [(2, 0)])
    with pytest.raises(ValueError, match="permutations is 0"):
        measure_faithfulness(model, maps, permutations=0)
    with pytest.raises(ValueError, match="attention of input rows"):
        measure_faithfulness(model, list(extract(model, word_tokenizer(), SOURCE, TARGET, align_with="input")))
