"""Scaled dot product by a fused kernel and by the formula: the same function; which one runs is a measured rule."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from variants import tiny_model

from hf_seq2seq_attn import ScaledDotProductAttention, plain_forms, transformer
from hf_seq2seq_attn.cross_attention import fused_is_faster, rows_that_read, weigh

B, S, T, H, WIDTH = 3, 7, 5, 2, 12


class Sdpa:
    _attn_implementation = "sdpa"


class Eager:
    _attn_implementation = "eager"


def masks() -> dict[str, torch.Tensor | None]:
    padding = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0]])
    causal = torch.ones(T, S, dtype=torch.bool).tril(1)
    return {
        "none": None,
        "full": torch.ones(B, 1, 1, S, dtype=torch.bool),
        "padding": padding.bool()[:, None, None],
        "causal": causal[None, None],
        "causal_and_padding": causal & padding.bool()[:, None, None],
    }


def run(monkeypatch: pytest.MonkeyPatch, fused: bool, mask: torch.Tensor | None, dtype: torch.dtype) -> list:
    """Return context and gradients, of queries, states and every parameter, by one of the two paths."""
    torch.manual_seed(3)
    monkeypatch.setattr("hf_seq2seq_attn.cross_attention.fused_is_faster", lambda *_: fused)
    attention = ScaledDotProductAttention(WIDTH, WIDTH, WIDTH, heads=H, config=Sdpa()).train()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_(std=0.5)
    query, states = torch.randn(B, T, WIDTH, requires_grad=True), torch.randn(B, S, WIDTH, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        memory = attention.remember(states)._replace(readable=mask)
        context, weights = attention(query, memory)
    assert weights is None and context.dtype == dtype
    (context.float() * torch.randn(B, T, WIDTH)).sum().backward()
    return [context, query.grad, states.grad, *(parameter.grad for parameter in attention.parameters())]


@pytest.mark.parametrize("mask", masks())
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_both_paths_give_the_same_values_and_gradients(
    mask: str, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    readable = masks()[mask]
    by_formula, by_kernel = (run(monkeypatch, fused, readable, dtype) for fused in (False, True))
    exact = run(monkeypatch, False, readable, torch.float32)
    for one, other, wanted in zip(by_formula, by_kernel, exact, strict=True):
        assert torch.isfinite(other).all()
        for found in (one, other):
            assert (found.float() - wanted).norm() <= tolerance * wanted.norm() + 1e-6
    if mask in ("padding", "causal_and_padding"):
        for context, of_query, of_states, *_ in (by_formula, by_kernel):
            assert (context[2] == 0).all() and (of_query[2] == 0).all() and (of_states[2] == 0).all()
            assert (context[0] != 0).any() and (of_states[0, 5:] == 0).all()


def test_asking_for_the_weights_takes_the_formula_and_gives_the_kernel_s_context() -> None:
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        torch.manual_seed(1)
        attention = ScaledDotProductAttention(WIDTH, WIDTH, WIDTH, heads=H, config=Sdpa()).eval()
        query, states = torch.randn(B, T, WIDTH), torch.randn(B, S, WIDTH)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            memory = attention.remember(states, torch.tensor([[1] * 6 + [0], [0] + [1] * 6, [0] * 7]))
            wanted, _ = attention(query, memory)
            context, weights = attention(query, memory, output_weights=True)
        assert weights is not None and weights.dtype == torch.float32
        assert (context - wanted).norm() <= tolerance * wanted.norm()
        assert (weights[2] == 0).all() and (weights[0, ..., 6] == 0).all() and (weights[1, ..., 0] == 0).all()
        assert torch.allclose(weights[:2].sum(-1), torch.ones(2, H, T), atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "target", "source", "width", "fused"),
    [
        (torch.bfloat16, 20, 20, 64, False),
        (torch.bfloat16, 20, 256, 64, False),
        (torch.bfloat16, 192, 192, 32, False),
        (torch.bfloat16, 256, 256, 64, True),
        (torch.float32, 20, 25, 32, False),
        (torch.float32, 20, 25, 64, False),
        (torch.float32, 64, 64, 32, False),
        (torch.float32, 64, 65, 32, True),
        (torch.float16, 20, 20, 32, True),
        (torch.float64, 20, 20, 32, True),
    ],
)
def test_the_rule_is_the_measured_one(dtype: torch.dtype, target: int, source: int, width: int, fused: bool) -> None:
    queries = torch.zeros(1, 1, target, width, dtype=dtype, requires_grad=True)
    keys = torch.zeros(1, 1, source, width, dtype=dtype)
    assert fused_is_faster(queries, keys, training=True) is fused
    assert fused_is_faster(queries, keys, training=False) is fused
    with torch.no_grad():
        assert fused_is_faster(queries, keys, training=False)
        # As in the first pass of a checkpoint, whose second one has gradients: both must draw the same dropout.
        assert fused_is_faster(queries, keys, training=True) is fused
    assert fused_is_faster(queries.to("meta"), keys.to("meta"), training=True)
    with plain_forms():
        assert not fused_is_faster(queries, keys, training=False)


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
def test_a_model_takes_the_kernel_only_where_it_is_faster(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def spy(*args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(1)
        return kernel(*args, **kwargs)

    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    model = tiny_model()
    model.set_attn_implementation(backend)
    ids = torch.randint(3, 20, (2, 7))
    with torch.autocast("cpu", torch.bfloat16):
        model.train()(ids, labels=ids[:, :5]).loss.backward()
        assert not calls
        with torch.no_grad():
            model.eval()(ids, labels=ids[:, :5])
    layers = model.config.encoder_layers + 2 * model.config.decoder_layers
    assert len(calls) == (layers if backend == "sdpa" else 0)


def test_where_every_row_reads_nothing_is_cleared() -> None:
    assert rows_that_read(None) is None
    assert rows_that_read(masks()["causal"]) is None
    reads = rows_that_read(masks()["padding"])
    assert reads is not None and reads.shape == (B, 1, 1, 1) and reads.flatten().tolist() == [True, True, False]
    on_meta = rows_that_read(torch.ones(B, 1, 1, S, dtype=torch.bool, device="meta"))
    assert on_meta is not None


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_weights_of_padding_are_exactly_nothing_for_scores_of_any_size(scale: float) -> None:
    torch.manual_seed(0)
    scores = torch.randn(B, H, T, S) * scale
    readable = masks()["causal_and_padding"]
    weights = weigh(scores, readable)
    wanted = torch.softmax(scores.double().masked_fill(~readable, -torch.inf), -1).nan_to_num(0.0)
    assert (weights.masked_select(~readable.expand_as(weights)) == 0).all()
    torch.testing.assert_close(weights, wanted.float(), atol=1e-6, rtol=1e-5)


def test_a_compiled_graph_has_no_break() -> None:
    torch._dynamo.reset()
    model = tiny_model(use_cache=False).eval()
    compiled = torch.compile(model.model, backend="eager", fullgraph=True)
    ids = torch.randint(3, 20, (2, 7))
    mask = torch.ones_like(ids)
    mask[1] = 0
    inputs = {"attention_mask": mask, "decoder_input_ids": ids[:, :5]}
    wanted, found = (call(ids, **inputs).last_hidden_state for call in (model.model, compiled))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_states_are_cast_once_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(dropout=0.0).train()
    ids = torch.randint(3, 20, (2, 7))
    results = []
    for cast in (transformer.cast_once, lambda states: states):
        monkeypatch.setattr(transformer, "cast_once", cast)
        with torch.autocast("cpu", torch.bfloat16):
            output = model(ids, labels=ids[:, :5], skip_logits=False)
        output.loss.backward()
        results.append([output.logits.detach(), *(p.grad.clone() for p in model.parameters())])
        model.zero_grad()
    assert torch.equal(results[0][0], results[1][0])
    for one, other in zip(*results, strict=True):
        assert (one - other).norm() <= 1e-2 * other.norm() + 1e-6
    states = torch.randn(2, 3)
    assert transformer.cast_once(states) is states
