"""The maps are the model's own, under any backend, in input order, and the model stays as it was."""

import threading
from typing import Any

import numpy as np
import pytest
import torch
from probes import EOS, PAD, SENTENCES, foreign_model, subword_tokenizer, word_tokenizer
from torch import nn
from transformers import (
    BertConfig,
    BertLMHeadModel,
    GPT2Config,
    GPT2LMHeadModel,
)
from variants import tiny_model

from hf_seq2seq_attn.probing import AttentionMaps, SentenceError, extract, extraction, to_word_links

FAMILIES = ("marian", "bart", "m2m_100", "t5")
TOKENIZER = subword_tokenizer()
SOURCES = ["the cats love", ["I", "love", "cats,"], "", "understand  this unloved day today."]
TARGETS = [["love", "cats"], "you don't", "this", "the cats today"]


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def teacher_forced(model: Any, maps: AttentionMaps, decoder_ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        outputs = model(
            input_ids=torch.tensor([maps.source.ids]),
            decoder_input_ids=torch.tensor([decoder_ids]),
            output_attentions=True,
        )
    return torch.cat(outputs.cross_attentions).numpy()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("align_with", ["output", "input"])
def test_equal_to_the_eager_model_one_by_one(family: str, align_with: str) -> None:
    eager = foreign_model(family)
    found = list(
        extract(foreign_model(family, "sdpa"), TOKENIZER, SOURCES, TARGETS, align_with=align_with, batch_size=3)
    )
    assert len(found) == len(SOURCES)
    offset = int(align_with == "input")
    for maps, source in zip(found, SOURCES, strict=True):
        assert maps.source.text == (source if isinstance(source, str) else " ".join(source))
        assert maps.weights.dtype == np.float32
        whole = teacher_forced(eager, maps, [eager.config.decoder_start_token_id, *maps.target.ids])
        rows = len(maps.target.ids)
        np.testing.assert_allclose(maps.weights, whole[:, :, offset : offset + rows], atol=1e-5)
        np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-5)
    # Under eager the same, by the model's own outputs.
    for one, other in zip(found, extract(eager, TOKENIZER, SOURCES, TARGETS, align_with=align_with), strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_chosen_layers_and_heads(backend: str) -> None:
    model = foreign_model("bart", backend)
    (whole,) = extract(model, TOKENIZER, SOURCES[:1], TARGETS[:1])
    (part,) = extract(model, TOKENIZER, SOURCES[:1], TARGETS[:1], layers=[-1, 0], heads=[2])
    assert (part.layers, part.heads) == ((2, 0), (2,))
    np.testing.assert_array_equal(part.weights, whole.weights[[2, 0]][:, [2]])
    np.testing.assert_array_equal(part.matrix(0), whole.weights[0, 2])
    np.testing.assert_allclose(whole.matrix(heads=[0, 2]), whole.weights[2, [0, 2]].mean(0))
    np.testing.assert_allclose(whole.matrix(-3), whole.weights[0].mean(0))
    with pytest.raises(ValueError, match=r"layer is 1; these maps hold the layers \[2, 0\]"):
        part.matrix(1)
    with pytest.raises(ValueError, match=r"heads is \[0\]"):
        part.matrix(0, [0])
    for wrong in (dict(layers=[3]), dict(heads=[-4]), dict(layers=[])):
        with pytest.raises(ValueError, match="numbered from 0"):
            list(extract(model, TOKENIZER, SOURCES[:1], TARGETS[:1], **wrong))


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_the_model_stays_as_it_was_and_dropout_is_off(backend: str) -> None:
    model = foreign_model("marian", backend)
    expected = [maps.weights for maps in extract(model, TOKENIZER, SOURCES, TARGETS)]
    model.train()
    model.model.encoder.eval()
    modes = [module.training for module in model.modules()]
    before, count = model.config.to_dict(), hooks(model)
    for maps, weights in zip(extract(model, TOKENIZER, SOURCES, TARGETS), expected, strict=True):
        np.testing.assert_allclose(maps.weights, weights, atol=1e-6)
        # Also between two results, where other code runs.
        assert [module.training for module in model.modules()] == modes
    assert model.config.to_dict() == before
    assert model.config._attn_implementation == backend
    assert hooks(model) == count
    with pytest.raises(SentenceError):
        list(extract(model, TOKENIZER, ["cats " * 60], ["x"]))
    assert [module.training for module in model.modules()] == modes
    assert hooks(model) == count
    assert all(parameter.grad is None for parameter in model.parameters())


def test_another_thread_generates_undisturbed_while_this_one_probes() -> None:
    model = foreign_model("bart", "sdpa")
    inputs = TOKENIZER(SENTENCES[:3], return_tensors="pt", padding=True)
    settings = dict(max_new_tokens=12, max_length=None, do_sample=False)
    alone = model.generate(**inputs, **settings)
    maps_alone = [maps.weights for maps in extract(model, TOKENIZER, SOURCES, TARGETS)]
    found: list[torch.Tensor] = []
    generating = threading.Thread(target=lambda: found.extend(model.generate(**inputs, **settings) for _ in range(5)))
    generating.start()
    while generating.is_alive():
        for maps, weights in zip(extract(model, TOKENIZER, SOURCES, TARGETS), maps_alone, strict=True):
            np.testing.assert_allclose(maps.weights, weights, atol=1e-6)
    generating.join()
    assert len(found) == 5
    assert all(torch.equal(tokens, alone) for tokens in found)


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("family", ["marian", "t5", "ours"])
def test_without_targets_the_maps_are_those_of_the_generated_ids(family: str, beams: int) -> None:
    model = tiny_model(decoder_type="gru", vocab_size=73) if family == "ours" else foreign_model(family, "sdpa")
    settings = dict(num_beams=beams, max_new_tokens=9)
    sources = ["the cats love", "understand this day"]
    found = list(extract(model, TOKENIZER, sources, align_with="output", generate_kwargs=settings))
    eager = model if family == "ours" else foreign_model(family)
    for source, maps in zip(sources, found, strict=True):
        sequence = eager.generate(**TOKENIZER(source, return_tensors="pt"), **settings)[0].tolist()
        ids = sequence[1:]
        ids = ids[: ids.index(EOS) + 1] if EOS in ids else [*ids, EOS]
        assert maps.target.ids == ids
        assert maps.weights.shape[2:] == (len(maps.target_tokens), len(maps.source_tokens))
        whole = teacher_forced(eager, maps, [sequence[0], *ids])
        np.testing.assert_allclose(maps.weights, whole[:, :, : len(ids)], atol=1e-5)


def test_the_length_of_generation_is_not_the_librarys_twenty_tokens() -> None:
    model = foreign_model("marian")
    model.config.eos_token_id = model.generation_config.eos_token_id = 72
    with torch.no_grad():
        model.final_logits_bias[:, 72] = -1e9
    (maps,) = extract(model, TOKENIZER, [SENTENCES[0]])
    assert len(maps.target.ids) > 21


def test_our_models_give_true_maps_under_any_backend() -> None:
    for fields in (dict(), dict(decoder_type="lstm", cross_attention_type="additive")):
        model = tiny_model(vocab_size=73, **fields)
        model.set_attn_implementation("eager")
        eager = [maps.weights for maps in extract(model, TOKENIZER, SOURCES, TARGETS, batch_size=2)]
        model.set_attn_implementation("sdpa")
        for maps, weights in zip(extract(model, TOKENIZER, SOURCES, TARGETS), eager, strict=True):
            np.testing.assert_allclose(maps.weights, weights, atol=1e-5)


def test_models_that_cannot_be_probed_are_refused_in_words() -> None:
    decoder = GPT2LMHeadModel(GPT2Config(vocab_size=73, n_embd=12, n_layer=1, n_head=3))
    with pytest.raises(ValueError, match="not an encoder-decoder"):
        extract(decoder, TOKENIZER, ["a"], ["b"])
    bert = BertConfig(vocab_size=73, hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=9)
    with pytest.raises(ValueError, match="not an encoder-decoder"):
        extract(BertLMHeadModel(bert), TOKENIZER, ["a"], ["b"])
    with pytest.raises(ValueError, match="cross_attention_type='none'"):
        extract(tiny_model(decoder_type="gru", cross_attention_type="none"), TOKENIZER, ["a"], ["b"])
    with pytest.raises(ValueError, match="has no config"):
        extract(nn.Linear(2, 2), TOKENIZER, ["a"], ["b"])
    with pytest.raises(ValueError, match="cannot generate; give targets"):
        extract(foreign_model("bart").model, TOKENIZER, ["a"])


def test_bad_arguments_are_refused_at_once() -> None:
    model = foreign_model("marian")
    with pytest.raises(ValueError, match="align_with is 'both'; allowed are output, input"):
        extract(model, TOKENIZER, ["a"], ["b"], align_with="both")
    with pytest.raises(ValueError, match="2 sources but 1 targets"):
        extract(model, TOKENIZER, ["a", "b"], ["b"])
    with pytest.raises(ValueError, match="batch_size is 0"):
        extract(model, TOKENIZER, ["a"], ["b"], batch_size=0)


def test_sentences_that_the_model_cannot_hold_are_named() -> None:
    model = foreign_model("bart")
    with pytest.raises(SentenceError, match=r"target sentence 2: .* max_position_embeddings=40") as caught:
        list(extract(model, TOKENIZER, ["cats", "cats"], ["the", "cats " * 45]))
    assert (caught.value.side, caught.value.number) == ("target", 2)
    with pytest.raises(SentenceError, match=r"source sentence 1: token id .* vocabulary of 5"):
        list(extract(foreign_model("t5", vocabulary=5), TOKENIZER, ["cats"], ["cats"]))
    # Relative and recurrent positions have no such limit.
    list(extract(foreign_model("t5"), TOKENIZER, ["cats " * 60], ["cats " * 60]))
    recurrent = tiny_model(encoder_type="gru", decoder_type="gru", vocab_size=73, max_position_embeddings=8)
    list(extract(recurrent, TOKENIZER, ["cats " * 9], ["cats " * 9]))


def test_targets_alone_get_an_end_token_that_their_tokenizer_does_not_add() -> None:
    tokenizer, model = word_tokenizer(), foreign_model("marian")
    tokenizer.backend_tokenizer.post_processor = None  # type: ignore[assignment]
    (maps,) = extract(model, tokenizer, ["w5 w6"], ["w7"], align_with="output")
    # The encoder reads what it does everywhere else.
    assert maps.source_tokens == ["w5", "w6"]
    assert maps.target_tokens == ["w7", "</s>"]
    inputs = tokenizer(["w5 w6"], return_tensors="pt", return_token_type_ids=False)
    output = model(**inputs, decoder_input_ids=torch.tensor([[PAD, 7]]), output_attentions=True)
    np.testing.assert_allclose(maps.weights, torch.cat(output.cross_attentions).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize(("end", "source", "target"), [(EOS, ["</s>"], ["</s>"]), (None, ["<pad>"], [])])
@pytest.mark.parametrize("align_with", ["output", "input"])
def test_blank_lines_of_a_tokenizer_that_writes_nothing(
    end: int | None, source: list[str], target: list[str], align_with: str
) -> None:
    tokenizer, model = word_tokenizer(), foreign_model("marian")
    tokenizer.backend_tokenizer.post_processor = None  # type: ignore[assignment]
    model.config.eos_token_id = model.generation_config.eos_token_id = end
    blank, *others = extract(model, tokenizer, ["", "w5 w6", ""], ["", "", "w7"], align_with=align_with)
    assert (blank.source_tokens, blank.target_tokens) == (source, target)
    for maps in (blank, *others):
        assert maps.weights.shape == (3, 3, len(maps.target_tokens), len(maps.source_tokens))
        assert to_word_links(maps) == frozenset()
    assert not np.isnan(blank.weights).any()


def test_results_come_in_input_order_over_many_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_seq2seq_attn.probing.extraction._BATCHES_SORTED_TOGETHER", 2)
    generator = np.random.default_rng(3)
    sources = [" ".join(f"w{n}" for n in generator.integers(4, 22, generator.integers(0, 9))) for _ in range(17)]
    model = tiny_model(vocab_size=23)
    for source, maps in zip(
        sources, extract(model, word_tokenizer(), sources, sources[::-1], batch_size=3), strict=True
    ):
        assert maps.source.text == source


def test_few_maps_wait_where_all_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(4)
    sources = [" ".join(f"w{n}" for n in generator.integers(4, 22, generator.integers(1, 9))) for _ in range(23)]
    model = tiny_model(vocab_size=23)
    expected = [maps.weights for maps in extract(model, word_tokenizer(), sources, sources[::-1], batch_size=3)]
    runs: list[int] = []
    run = extraction._Extractor.run
    monkeypatch.setattr(extraction._Extractor, "run", lambda self, pairs: runs.append(len(pairs)) or run(self, pairs))
    # A pair of 7 + 7 tokens has 2 x 3 x 49 numbers.
    monkeypatch.setattr(extraction, "_NUMBERS_WAITING", 1200)
    found = extract(model, word_tokenizer(), sources, sources[::-1], batch_size=3)
    next(found)
    assert sum(runs) < 12
    assert max(runs) == 3
    rest = [maps.weights for maps in found]
    assert sum(runs) == len(sources) == len(rest) + 1
    for one, other in zip(rest, expected[1:], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_broken_model_is_refused_by_the_sentence_that_shows_it() -> None:
    model = tiny_model(vocab_size=23, decoder_type="gru")
    with torch.no_grad():
        model.get_encoder().embed_tokens.weight[9] = torch.nan
    with pytest.raises(SentenceError, match=r"source sentence 2: .* not a number"):
        list(extract(model, word_tokenizer(), ["w5", "w9", "w6"], ["w4", "w4", "w4"]))
