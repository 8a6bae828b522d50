"""Probing writes nothing to the model, is not seen by other threads, and keeps what it was asked for."""

import copy
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from families import family_model
from probes import SENTENCES, subword_tokenizer
from torch import nn
from variants import tiny_model

from hf_seq2seq_attn.probing import extract
from hf_seq2seq_attn.probing.capture import CrossAttentionReader, private_copy

TOKENIZER = subword_tokenizer()
SOURCES = ["the cats love", ["I", "love", "cats,"], "", "understand  this unloved day today."]
TARGETS = [["love", "cats"], "you don't", "this", "the cats today"]


def state(model: nn.Module) -> list[Any]:
    """Return everything of a model that another thread could notice, tensors by identity."""
    parts: list[Any] = [repr(getattr(model, "config", None))]
    for module in model.modules():
        values = {name: value for name, value in vars(module).items() if name not in ("_parameters", "_buffers")}
        parts.append({name: id(value) for name, value in values.items()})
        parts.append([(name, id(value)) for name, value in (*module._parameters.items(), *module._buffers.items())])
        parts.append((module.training, len(module._forward_hooks), len(module._forward_pre_hooks)))
    return parts


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("weights", ["attention", "norm"])
@pytest.mark.parametrize("family", ["marian", "ours"])
def test_nothing_is_written_to_the_model(family: str, weights: str, training: bool) -> None:
    model = tiny_model(vocab_size=73) if family == "ours" else family_model(family, "sdpa")
    expected = [maps.weights for maps in extract(model, TOKENIZER, SOURCES, TARGETS, weights=weights)]
    model.train(training)
    before = state(model)
    for maps, own in zip(
        extract(model, TOKENIZER, SOURCES, TARGETS, weights=weights, batch_size=2), expected, strict=True
    ):
        assert state(model) == before
        np.testing.assert_allclose(maps.weights, own, atol=1e-5)
    next(extract(model, TOKENIZER, SOURCES, generate_kwargs=dict(max_new_tokens=3)))
    assert state(model) == before


def test_a_private_copy_shares_every_tensor_and_nothing_else() -> None:
    model = family_model("bart", "sdpa").train()
    copied = private_copy(model)
    for (name, own), (_, other) in zip(model.named_parameters(), copied.named_parameters(), strict=True):
        assert own is other, name
    for own, other in zip(model.buffers(), copied.buffers(), strict=True):
        assert own is other
    assert not set(map(id, model.modules())) & set(map(id, copied.modules()))
    assert copied.config is not model.config
    assert copied.lm_head.weight is copied.model.shared.weight
    assert model.training
    assert not any(module.training for module in copied.modules())


def test_a_model_that_cannot_be_copied_is_refused_in_words() -> None:
    model = family_model("bart")
    model.lock = threading.Lock()
    with pytest.raises(ValueError, match="BartForConditionalGeneration holds something that cannot be copied"):
        extract(model, TOKENIZER, SOURCES, TARGETS)


@pytest.mark.parametrize("choice", [{}, {"layers": [1], "heads": [0, 2], "weights": "norm"}])
@pytest.mark.parametrize("family", ["bart", "t5", "m2m_100"])
def test_another_thread_generates_undisturbed(family: str, choice: dict[str, Any]) -> None:
    model = family_model(family, "sdpa")
    inputs = TOKENIZER(SENTENCES[:3], return_tensors="pt", padding=True)
    settings = dict(max_new_tokens=12, max_length=None, do_sample=False, num_beams=2)
    alone = model.generate(**inputs, **settings)
    maps_alone = [maps.weights for maps in extract(model, TOKENIZER, SOURCES, TARGETS, **choice)]
    with torch.no_grad():
        logits_alone = model(**inputs, decoder_input_ids=alone).logits
    found: list[torch.Tensor] = []
    wrong: list[int] = []

    def generate() -> None:
        for turn in range(4):
            found.append(model.generate(**inputs, **settings))
            with torch.no_grad():
                # Another attention backend would round otherwise.
                if not torch.equal(model(**inputs, decoder_input_ids=alone).logits, logits_alone):
                    wrong.append(turn)

    generating = threading.Thread(target=generate)
    generating.start()
    rounds = 0
    while generating.is_alive() or not rounds:
        rounds += 1
        for maps, own in zip(extract(model, TOKENIZER, SOURCES, TARGETS, **choice), maps_alone, strict=True):
            np.testing.assert_allclose(maps.weights, own, atol=1e-6)
    generating.join()
    assert len(found) == 4
    assert wrong == []
    assert all(torch.equal(tokens, alone) for tokens in found)


def test_two_threads_probe_at_once() -> None:
    model = family_model("marian", "sdpa")
    choices: list[dict[str, Any]] = [{"layers": [0]}, {"layers": [2, 1], "heads": [1], "weights": "norm"}]
    expected = [[m.weights for m in extract(model, TOKENIZER, SOURCES, TARGETS, **choice)] for choice in choices]
    found: dict[int, list[Any]] = {0: [], 1: []}

    def probe(number: int) -> None:
        for _ in range(5):
            found[number].append([m.weights for m in extract(model, TOKENIZER, SOURCES, TARGETS, **choices[number])])

    threads = [threading.Thread(target=probe, args=(number,)) for number in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, runs in found.items():
        assert len(runs) == 5
        for run in runs:
            for one, other in zip(run, expected[number], strict=True):
                np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("family", ["pegasus", "t5", "bert2bert", "ours"])
def test_maps_of_other_layers_and_heads_are_let_go(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a pass, of all maps that softmax made for the decoder only those asked for are alive."""
    model = tiny_model(vocab_size=73) if family == "ours" else family_model(family, "sdpa")
    made: list[weakref.ref[torch.Tensor]] = []
    whole = nn.functional.softmax

    def softmax(*args: Any, **kwargs: Any) -> torch.Tensor:
        result = whole(*args, **kwargs)
        made.append(weakref.ref(result))
        return result

    monkeypatch.setattr(nn.functional, "softmax", softmax)
    monkeypatch.setattr(torch, "softmax", softmax)
    reader = CrossAttentionReader(model, layers=[0], heads=[1])
    ids = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 5, 6, 2]])
    (maps,) = reader.read(ids, torch.ones_like(ids), ids[:, :3])
    gc.collect()
    assert len(made) >= 2
    assert maps.weights.shape == (2, 1, 3, 5)
    alive = [tensor for reference in made if (tensor := reference()) is not None]
    # The one head kept is a copy of its own, so not even its layer's map is alive.
    assert alive == []
    assert maps.weights.untyped_storage().nbytes() == maps.weights.numel() * 4


def test_hooks_are_on_the_chosen_layers_of_the_copy_alone() -> None:
    model = family_model("bart")
    reader = CrossAttentionReader(model, layers=[-1], values=True)
    hooked = {
        name
        for name, module in reader._model.named_modules()
        if module._forward_hooks or module._forward_pre_hooks
    }  # fmt: skip
    attention = "model.decoder.layers.2.encoder_attn"
    assert hooked == {attention, f"{attention}.v_proj", f"{attention}.out_proj"}
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_a_compiled_model_is_read_by_what_it_wraps() -> None:
    model = family_model("marian")
    compiled = torch.compile(copy.deepcopy(model))
    (own,) = extract(model, TOKENIZER, SOURCES[:1], TARGETS[:1])
    (maps,) = extract(compiled, TOKENIZER, SOURCES[:1], TARGETS[:1])
    np.testing.assert_array_equal(maps.weights, own.weights)
