"""Both attentions against NumPy, in float64 and by hand."""

import math

import numpy as np
import pytest
import torch

from hf_seq2seq_attn import AdditiveAttention, ScaledDotProductAttention
from hf_seq2seq_attn.cross_attention import Attention, weigh

B, S, T, H = 2, 7, 5, 3
QUERY, KEY, OUTPUT, A = 4, 6, 9, 15
MASK = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0, 0]])
KINDS = [ScaledDotProductAttention, AdditiveAttention]


def build(kind: type[Attention], **settings: object) -> Attention:
    torch.manual_seed(3)
    attention = kind(QUERY, KEY, OUTPUT, heads=H, attention_dim=A, **settings).eval()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_()
    return attention


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(B, T, QUERY, generator=generator), torch.randn(B, S, KEY, generator=generator)


def by_hand(attention: Attention, query: torch.Tensor, states: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Compute context and weights one number at a time, in float64."""
    p = {name: value.detach().double().numpy() for name, value in attention.named_parameters()}
    q = query.double().numpy() @ p["q_proj.weight"].T + p["q_proj.bias"]
    k = states.double().numpy() @ p["k_proj.weight"].T
    v = states.double().numpy() @ p["v_proj.weight"].T + p["v_proj.bias"]
    weights, contexts = np.zeros((B, H, T, S)), np.zeros((B, T, OUTPUT))
    width, value_width = A // H, OUTPUT // H
    for b in range(B):
        read = [s for s in range(S) if MASK[b, s]]
        for t in range(T):
            for h in range(H):
                mine = slice(h * width, (h + 1) * width)
                scores = []
                for s in read:
                    if isinstance(attention, AdditiveAttention):
                        scores.append(p["score_vector"][h] @ np.tanh(q[b, t, mine] + k[b, s, mine]))
                    else:
                        scores.append(q[b, t, mine] @ k[b, s, mine] / math.sqrt(width))
                exponentials = np.exp(scores)
                weights[b, h, t, read] = exponentials / exponentials.sum()
                values = v[b, :, h * value_width : (h + 1) * value_width]
                contexts[b, t, h * value_width : (h + 1) * value_width] = weights[b, h, t] @ values
    return contexts @ p["out_proj.weight"].T + p["out_proj.bias"], weights


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_formulas(kind: type[Attention]) -> None:
    attention, (query, states) = build(kind), inputs()
    context, weights = attention(query, attention.remember(states, MASK), output_weights=True)
    expected_context, expected_weights = by_hand(attention, query, states)
    assert weights.shape == (B, H, T, S)
    np.testing.assert_allclose(weights.detach().numpy(), expected_weights, atol=2e-6)
    np.testing.assert_allclose(context.detach().numpy(), expected_context, atol=2e-5)


def test_worked_example_of_the_lesson() -> None:
    attention = ScaledDotProductAttention(2, 2, 2).eval()
    with torch.no_grad():
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
            projection.weight.copy_(torch.eye(2))
            if projection.bias is not None:
                projection.bias.zero_()
    state, encoder = torch.tensor([[[0.6, 0.4]]]), torch.tensor([[[0.9, 0.1], [0.3, 0.7], [0.1, 0.9]]])
    memory = attention.remember(encoder)
    scores = attention.score(torch.tensor([[[[0.6, 0.4]]]]), memory.keys)
    context, weights = attention(state, memory, output_weights=True)
    np.testing.assert_allclose(scores.detach().numpy().ravel(), [0.410, 0.325, 0.297], atol=5e-4)
    np.testing.assert_allclose(weights.detach().numpy().ravel(), [0.356, 0.327, 0.318], atol=5e-4)
    np.testing.assert_allclose(context.detach().numpy().ravel(), [0.44987, 0.55013], atol=5e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [False, True])
def test_rows_are_distributions_and_padding_gets_exactly_nothing(kind: type[Attention], training: bool) -> None:
    attention, (query, states) = build(kind, dropout=0.5).train(training), inputs()
    _, weights = attention(query, attention.remember(states, MASK), output_weights=True)
    assert torch.allclose(weights.sum(-1), torch.ones(B, H, T), atol=1e-6)
    assert (weights[1][..., MASK[1] == 0] == 0).all()


def test_dropout_acts_on_the_context_only() -> None:
    attention, (query, states) = build(AdditiveAttention, dropout=0.5), inputs()
    memory = attention.remember(states, MASK)
    calm_context, calm_weights = attention(query, memory, output_weights=True)
    context, weights = attention.train()(query, memory, output_weights=True)
    assert torch.equal(weights, calm_weights)
    assert not torch.allclose(context, calm_context)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("project", [True, False])
def test_nothing_to_read_gives_nothing(kind: type[Attention], project: bool) -> None:
    torch.manual_seed(0)
    attention = kind(QUERY, KEY, KEY, project_values=project)
    query, states = inputs()
    mask = MASK.clone()
    mask[0] = 0
    context, weights = attention(query, attention.remember(states, mask), output_weights=True)
    assert (weights[0] == 0).all() and (context[0] == 0).all()
    assert weights[1].sum() > 0 and (context[1] != 0).any()


def test_null_key_takes_its_share() -> None:
    attention, (query, states) = build(ScaledDotProductAttention, null_key=True), inputs()
    memory = attention.remember(states, MASK)
    _, weights = attention(query, memory, output_weights=True)
    everything = weigh(attention.score(attention._split(attention.q_proj(query)), memory.keys), memory.readable)
    assert weights.shape == (B, H, T, S)
    assert torch.allclose(weights.sum(-1), 1 - everything[..., 0], atol=1e-6)
    assert (weights.sum(-1) < 1).all()
    nothing, no_weights = attention(query, attention.remember(states, MASK * 0), output_weights=True)
    assert (no_weights == 0).all()
    assert torch.allclose(nothing, (attention.out_proj(attention.null_value)).expand_as(nothing), atol=1e-5)


@pytest.mark.parametrize("null_key", [False, True])
def test_fused_kernel_gives_the_same_context_and_gradients(null_key: bool) -> None:
    class Sdpa:
        _attn_implementation = "sdpa"

    query, states = inputs()
    mask = MASK.clone()
    mask[0] = 0
    results = []
    for output_weights in (True, False):
        attention = build(ScaledDotProductAttention, config=Sdpa(), null_key=null_key)
        context, weights = attention(query, attention.remember(states, mask), output_weights=output_weights)
        assert (weights is None) != output_weights
        context.square().sum().backward()
        results.append([context.detach(), *(parameter.grad for parameter in attention.parameters())])
    for explicit, fused in zip(*results, strict=True):
        assert torch.isfinite(fused).all()
        assert (explicit - fused).norm() <= 1e-5 * (explicit.norm() + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_carry_gradients(kind: type[Attention]) -> None:
    attention, (query, states) = build(kind), inputs()
    _, weights = attention(query, attention.remember(states, MASK), output_weights=True)
    weights[:, :, :, 2].sum().backward()
    assert attention.q_proj.weight.grad.abs().max() > 0 and attention.k_proj.weight.grad.abs().max() > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_finite_and_sums_to_one(dtype: torch.dtype) -> None:
    for kind in KINDS:
        attention, (query, states) = build(kind).to(dtype), inputs()
        context, weights = attention(
            query.to(dtype) * 30, attention.remember(states.to(dtype) * 30, MASK), output_weights=True
        )
        assert weights.dtype == torch.float32 and context.dtype == dtype
        assert torch.isfinite(context).all()
        assert torch.allclose(weights.sum(-1), torch.ones(B, H, T), atol=1e-5)


def test_scaling_divides_by_the_root_of_a_head_s_width() -> None:
    scaled, plain = build(ScaledDotProductAttention), build(ScaledDotProductAttention, scale_scores=False)
    keys = torch.randn(B, H, S, A // H)
    queries = torch.randn(B, H, T, A // H)
    assert torch.allclose(scaled.score(queries, keys) * math.sqrt(A // H), plain.score(queries, keys), atol=1e-5)


def test_nothing_is_kept_on_the_module() -> None:
    for kind in KINDS:
        attention, (query, states) = build(kind), inputs()
        before = set(vars(attention))
        attention(query, attention.remember(states, MASK), output_weights=True)
        assert set(vars(attention)) == before
        assert not any(isinstance(value, torch.Tensor) for value in vars(attention).values())


@pytest.mark.parametrize(
    "settings", [{"heads": 2, "attention_dim": 5}, {"heads": 2, "project_values": False}, {"project_values": False}]
)
def test_sizes_that_cannot_be_are_refused(settings: dict) -> None:
    with pytest.raises(ValueError, match=r"heads|project_values"):
        AdditiveAttention(QUERY, KEY, OUTPUT, **settings)
