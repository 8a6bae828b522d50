"""Importance of heads: gradients against finite differences, ablation against models with a head taken out."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from planted_heads import lookup_model
from probes import SENTENCES, foreign_model, subword_tokenizer, word_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import AttentionMaps, extract
from hf_seq2seq_attn.probing.importance import head_importance
from hf_seq2seq_attn.probing.teacher_forcing import make_batch, next_token_logits, token_losses

TOKENIZER = subword_tokenizer()
MODELS = {
    "marian": lambda: foreign_model("marian", "sdpa", sharp=0.3),
    "t5": lambda: foreign_model("t5", sharp=0.3),
    "ours": lambda: tiny_model(vocab_size=73),
    "recurrent": lambda: tiny_model(
        vocab_size=73,
        encoder_type="gru",
        decoder_type="lstm",
        attend_with="previous_state",
        cross_attention_type="additive",
        cross_attention_heads=3,
    ),
}


def maps_of(model: Any) -> list[AttentionMaps]:
    return list(extract(model, TOKENIZER, SENTENCES[:3], SENTENCES[1:4], align_with="output"))


def output_projections(model: Any) -> list[torch.nn.Module]:
    found = []
    for name, module in model.named_modules():
        if name.endswith(("encoder_attn.out_proj", "EncDecAttention.o")):
            found.append(module)
    return found


@torch.no_grad()
def losses(model: Any, maps: list[AttentionMaps], layer: int, head: int, heads: int, gate: float) -> np.ndarray:
    """Return each pair's summed loss when the output projection reads the head `gate` times as strongly."""
    changed = copy.deepcopy(model).double()
    projection = output_projections(changed)[layer]
    width = projection.weight.shape[1] // heads
    projection.weight[:, head * width : (head + 1) * width] *= gate
    sums = []
    for pair in maps:
        batch = make_batch(changed, [pair])
        sums.append(float(token_losses(next_token_logits(changed, batch).double(), batch.labels).sum()))
    return np.array(sums)


@pytest.mark.parametrize("name", MODELS)
def test_gradient_and_ablation_are_what_scaling_the_head_does(name: str) -> None:
    model = MODELS[name]()
    maps = maps_of(model)
    found = head_importance(model, maps, batch_size=2)
    layers, heads = maps[0].weights.shape[:2]
    lengths = np.array([len(pair.target.ids) for pair in maps])
    plain = losses(model, maps, 0, 0, heads, 1.0)
    assert (found.tokens, found.pairs) == (lengths.sum(), 3)
    assert found.loss == pytest.approx(plain.sum() / lengths.sum(), rel=1e-4)
    for layer, head in ((layers - 1, 0), (0, heads - 1)):
        silent = losses(model, maps, layer, head, heads, 0.0)
        assert found.ablation[layer, head] == pytest.approx((silent - plain).sum() / lengths.sum(), abs=1e-4)
        step = 1e-3
        up, down = (losses(model, maps, layer, head, heads, 1 + sign * step) for sign in (1, -1))
        slope = np.abs((up - down) / (2 * step) / lengths).mean()
        assert found.gradient[layer, head] == pytest.approx(slope, rel=0.05, abs=1e-3)
    assert found.gradient.shape == found.ablation.shape == (layers, heads)


def test_the_head_that_the_model_speaks_through_is_the_important_one() -> None:
    model = lookup_model(1, 2, speak=100.0)
    source = ["w5 w9 w7 w6 w8", "w12 w10 w13 w11"]
    target = ["w5 w6 w7 w8 w9", "w10 w11 w12 w13"]
    maps = list(extract(model, word_tokenizer(), source, target, align_with="output"))
    found = head_importance(model, maps)
    assert np.unravel_index(found.ablation.argmax(), (2, 3)) == (1, 2)
    assert np.unravel_index(found.gradient.argmax(), (2, 3)) == (1, 2)
    assert found.ablation[1, 2] > 0.5
    # The other heads write nothing.
    others = np.ones((2, 3), dtype=bool)
    others[1, 2] = False
    assert np.abs(found.ablation[others]).max() < 1e-5
    assert found.gradient[others].max() < 1e-5


def test_batches_padding_and_modes_change_nothing() -> None:
    model = foreign_model("bart", "sdpa")
    maps = maps_of(model)
    alone, together = head_importance(model, maps, batch_size=1), head_importance(model, maps, batch_size=3)
    np.testing.assert_allclose(alone.gradient, together.gradient, atol=1e-5)
    np.testing.assert_allclose(alone.ablation, together.ablation, atol=1e-5)
    model.train()
    assert np.array_equal(head_importance(model, maps, batch_size=3).ablation, together.ablation)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    seen: list[tuple[int, int]] = []
    head_importance(model, maps, batch_size=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 3), (3, 3)]


def test_the_token_that_a_target_starts_with_is_the_one_that_was_read() -> None:
    """A model whose targets start with their language reads another token than the config names."""
    from dataclasses import replace

    model = foreign_model("marian")
    maps = maps_of(model)
    other = [replace(pair, start=7) for pair in maps]
    assert make_batch(model, other).decoder_input_ids[:, 0].tolist() == [7, 7, 7]
    assert make_batch(model, maps).decoder_input_ids[:, 0].tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="does not sum the values"):
        head_importance(model, other)


def test_maps_that_do_not_cover_the_model_are_refused() -> None:
    model = foreign_model("marian")
    with pytest.raises(ValueError, match="no sentence pair"):
        head_importance(model, [])
    for choice, message in (
        ({"layers": [1]}, r"hold the layers \[1\]"),
        ({"heads": [0, 2]}, r"heads \[0, 2\]"),
        ({"align_with": "input"}, "attention of input rows"),
        ({"weights": "norm"}, "norm of output rows"),
    ):
        arguments = {"align_with": "output"} | choice
        maps = list(extract(model, TOKENIZER, SENTENCES[:1], SENTENCES[:1], **arguments))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=message):
            head_importance(model, maps)


def test_a_model_without_an_output_layer_is_refused() -> None:
    bare = foreign_model("marian").model
    maps = list(extract(bare, TOKENIZER, SENTENCES[:1], SENTENCES[:1], align_with="output"))
    with pytest.raises(ValueError, match="no output layer"):
        head_importance(bare, maps)
