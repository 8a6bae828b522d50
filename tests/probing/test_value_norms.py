"""Norms of weighted values, against the definition written out with loops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from families import family_model
from probes import subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import AttentionMaps, SentenceError, align, extract
from hf_seq2seq_attn.probing.value_norms import ValueNorms

TOKENIZER = subword_tokenizer()
SOURCES = ["the cats love", ["I", "love", "cats,"], "understand  this unloved day today."]
TARGETS = [["love", "cats"], "you don't", "the cats today"]
Parts = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]


def bart_like(model: Any, layer: int) -> Parts:
    attention = model.get_decoder().layers[layer].encoder_attn
    return attention.v_proj.weight.T, attention.v_proj.bias, attention.out_proj.weight.T


def t5_like(model: Any, layer: int) -> Parts:
    attention = model.decoder.block[layer].layer[1].EncDecAttention
    return attention.v.weight.T, None, attention.o.weight.T


def bert(model: Any, layer: int) -> Parts:
    attention = model.decoder.bert.encoder.layer[layer].crossattention
    return attention.self.value.weight.T, attention.self.value.bias, attention.output.dense.weight.T


def gpt2(model: Any, layer: int) -> Parts:
    attention = model.decoder.transformer.h[layer].crossattention
    # Conv1D holds (in, out); keys come first.
    return attention.c_attn.weight[:, 18:], attention.c_attn.bias[18:], attention.c_proj.weight


CASES: dict[str, Callable[[Any, int], Parts]] = {
    **dict.fromkeys(("marian", "bart", "mbart", "m2m_100", "pegasus", "led", "fsmt", "bigbird_pegasus"), bart_like),
    **dict.fromkeys(("t5", "longt5"), t5_like),
    "bert2bert": bert,
    "bert2gpt2": gpt2,
}


def encoder_states(model: Any, maps: AttentionMaps) -> torch.Tensor:
    ids = torch.tensor([maps.source.ids])
    with torch.no_grad():
        outputs = model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            decoder_input_ids=torch.tensor([[1]]),
            output_hidden_states=True,
            use_cache=False,
        )
    return outputs.encoder_last_hidden_state[0]


def vectors(states: torch.Tensor, parts: Parts, heads: int) -> np.ndarray:
    """Return f_h(x_s), (H, S, D): head by head, token by token."""
    w_v, b_v, w_o = (None if part is None else part.detach() for part in parts)
    values = states @ w_v if b_v is None else states @ w_v + b_v
    width = values.shape[1] // heads
    result = []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        result.append(torch.stack([value[part] @ w_o[part] for value in values]))
    return torch.stack(result).numpy()


def norms_by_hand(attention: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Return ||sum_h a f_h(x_s)||, (T, S), for attention (H, T, S) and f (H, S, D), cell by cell."""
    _, rows, columns = attention.shape
    result = np.zeros((rows, columns))
    for t in range(rows):
        for s in range(columns):
            result[t, s] = np.linalg.norm(sum(attention[h, t, s] * f[h, s] for h in range(len(f))))
    return result


@pytest.mark.parametrize("backend", ["eager", "own"])
@pytest.mark.parametrize("family", CASES)
def test_norms_of_every_family(family: str, backend: str) -> None:
    model, reference = family_model(family, backend), family_model(family)
    plain = list(extract(reference, TOKENIZER, SOURCES, TARGETS))
    raw = list(extract(model, TOKENIZER, SOURCES, TARGETS, weights="raw_norm", batch_size=2))
    scaled = list(extract(model, TOKENIZER, SOURCES, TARGETS, weights="norm", batch_size=3))
    for attention, own, by_row in zip(plain, raw, scaled, strict=True):
        states = encoder_states(reference, attention)
        assert (own.weight_kind, by_row.weight_kind, attention.weight_kind) == ("raw_norm", "norm", "attention")
        for layer in range(len(own.layers)):
            f = vectors(states, CASES[family](reference, layer), 3)
            for head in range(3):
                expected = norms_by_hand(attention.weights[layer, [head]], f[[head]])
                np.testing.assert_allclose(own.weights[layer, head], expected, rtol=1e-3, atol=1e-5)
                np.testing.assert_allclose(own.matrix(layer, [head]), expected, rtol=1e-3, atol=1e-5)
                row_sums = expected.sum(axis=1, keepdims=True)
                np.testing.assert_allclose(by_row.weights[layer, head], expected / row_sums, atol=1e-4)
            joined = norms_by_hand(attention.weights[layer], f)
            np.testing.assert_allclose(own.matrix(layer), joined, rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(by_row.matrix(layer), joined / joined.sum(1, keepdims=True), atol=1e-4)
            # It is not the mean of the heads' norms.
            assert np.abs(own.matrix(layer) - own.weights[layer].mean(0)).max() > 1e-4
        assert not own.null_weights().any()


@pytest.mark.parametrize("fields", [
    dict(),
    dict(cross_attention_type="additive", null_key=True),
    dict(decoder_type="lstm", cross_attention_type="additive", cross_attention_heads=1, project_values=False),
    dict(decoder_type="gru", project_values=False, attend_with="previous_state", null_key=True),
    dict(decoder_type="gru", cross_attention_heads=3, project_values=True, input_feeding=True, null_key=True),
])  # fmt: skip
def test_norms_of_our_models(fields: dict[str, Any]) -> None:
    model = tiny_model(vocab_size=73, **fields)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "null" in name:
                parameter.normal_()
    plain = list(extract(model, TOKENIZER, SOURCES, TARGETS))
    raw = list(extract(model, TOKENIZER, SOURCES, TARGETS, weights="raw_norm", batch_size=2))
    scaled = list(extract(model, TOKENIZER, SOURCES, TARGETS, weights="norm", batch_size=2))
    for attention, own, by_row in zip(plain, raw, scaled, strict=True):
        states = encoder_states(model, attention)
        for index in range(len(own.layers)):
            decoder = model.get_decoder()
            module = (decoder if model.config.decoder_is_recurrent else decoder.layers[index]).encoder_attn
            weights, values = attention.weights[index], states
            identity = torch.eye(module.out_proj.out_features if module.out_proj is not None else states.shape[1])
            if module.v_proj is not None:
                values = module.v_proj(states).detach()
            if fields.get("null_key"):
                values = torch.cat([module.null_value.detach()[None], values])
                weights = np.concatenate([1 - weights.sum(-1, keepdims=True), weights], axis=-1)
            w_o = identity if module.out_proj is None else module.out_proj.weight.T
            f = vectors(values, (torch.eye(values.shape[1]), None, w_o), module.heads)
            joined = norms_by_hand(weights, f)
            scaled_by_hand = joined / joined.sum(1, keepdims=True)
            if fields.get("null_key"):
                np.testing.assert_allclose(own.null_weights(index), joined[:, 0], rtol=1e-3, atol=1e-5)
                np.testing.assert_allclose(by_row.null_weights(index), scaled_by_hand[:, 0], atol=1e-4)
                assert joined[:, 0].min() > 1e-3
                joined, scaled_by_hand = joined[:, 1:], scaled_by_hand[:, 1:]
            np.testing.assert_allclose(own.matrix(index), joined, rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(by_row.matrix(index), scaled_by_hand, atol=1e-4)


def test_chosen_heads_are_the_ones_of_all() -> None:
    model = family_model("mbart", "sdpa")
    (whole,) = extract(model, TOKENIZER, SOURCES[:1], TARGETS[:1], weights="raw_norm")
    (part,) = extract(model, TOKENIZER, SOURCES[:1], TARGETS[:1], weights="raw_norm", layers=[2], heads=[2, 0])
    np.testing.assert_allclose(part.weights[0], whole.weights[2, [2, 0]], atol=1e-5)
    np.testing.assert_allclose(part.matrix(), whole.matrix(2, [0, 2]), atol=1e-5)


def test_a_short_value_is_no_sink() -> None:
    """The last source token takes most weight, but its value is short: under norms the first one wins."""
    attention = np.array([[[[0.2, 0.8], [0.1, 0.9]]]], dtype=np.float32)
    lengths = np.array([3.0, 0.1])
    norms = ValueNorms(attention, (lengths**2)[None, None, None], has_null=False)
    np.testing.assert_allclose(norms.per_head(False)[0, 0], [[0.6, 0.08], [0.3, 0.09]], rtol=1e-5)
    np.testing.assert_allclose(norms.joined(0, [0], True)[0], [[0.6 / 0.68, 0.08 / 0.68], [0.3 / 0.39, 0.09 / 0.39]])


def test_heads_that_cancel_contribute_nothing() -> None:
    attention = np.full((1, 2, 1, 1), 0.5, dtype=np.float32)
    products = np.array([[4.0, -4.0], [-4.0, 4.0]])[None, :, :, None]
    norms = ValueNorms(attention, products, has_null=False)
    assert norms.joined(0, [0, 1], False)[0] == 0
    assert norms.joined(0, [0], False)[0] == 1


def test_values_without_length_are_refused() -> None:
    model = family_model("marian")
    with torch.no_grad():
        for parameter in model.model.decoder.layers[1].encoder_attn.v_proj.parameters():
            parameter.zero_()
    with pytest.raises(SentenceError, match=r"source sentence 1: .* layer 1 .* weights='attention'"):
        list(extract(model, TOKENIZER, SOURCES, TARGETS, weights="norm"))
    list(extract(model, TOKENIZER, SOURCES, TARGETS, weights="norm", layers=[2]))


def test_values_that_are_not_combined_by_the_weights_are_refused() -> None:
    model = family_model("bart")
    attention = model.model.decoder.layers[0].encoder_attn
    attention.out_proj.register_forward_pre_hook(lambda module, args: (args[0] * 1.5,))
    with pytest.raises(ValueError, match=r"not combined as softmax\(scores\) @ values"):
        list(extract(model, TOKENIZER, SOURCES[:1], TARGETS[:1], weights="norm"))
    list(extract(model, TOKENIZER, SOURCES[:1], TARGETS[:1], weights="norm", layers=[1]))


def test_unknown_weights_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="weights is 'norms'; allowed are attention, norm, raw_norm"):
        extract(family_model("bart"), TOKENIZER, SOURCES[:1], TARGETS[:1], weights="norms")


def test_half_precision_stays_finite_and_near() -> None:
    model = family_model("m2m_100")
    expected = list(extract(model, TOKENIZER, SOURCES, TARGETS, weights="norm"))
    for maps, own in zip(
        extract(model.to(torch.bfloat16), TOKENIZER, SOURCES, TARGETS, weights="norm"), expected, strict=True
    ):
        assert maps.weights.dtype == np.float32
        np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-4)
        assert np.abs(maps.weights - own.weights).mean() < 0.05


@pytest.mark.parametrize("weights", ["attention", "norm", "raw_norm"])
def test_links_from_each_kind_of_weights(weights: str) -> None:
    model = family_model("pegasus", "sdpa")
    found = align(model, TOKENIZER, SOURCES, TARGETS, weights=weights, layer=0)
    assert [{j for _, j in links} for links in found] == [{0, 1}, {0, 1}, {0, 1, 2}]
