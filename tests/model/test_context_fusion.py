"""The three fusions, by hand."""

import pytest
import torch

from hf_seq2seq_attn import ContextFusion

STATE, CONTEXT = torch.tensor([[0.6, 0.4]]), torch.tensor([[0.45, 0.55]])


def test_concat_and_add_of_the_worked_example() -> None:
    assert torch.allclose(
        ContextFusion("concat", 2, 2, 2).combine(STATE, CONTEXT), torch.tensor([[0.6, 0.4, 0.45, 0.55]])
    )
    assert torch.allclose(ContextFusion("add", 2, 2, 2).combine(STATE, CONTEXT), torch.tensor([[1.05, 0.95]]))


def test_gate_mixes_by_a_sigmoid_of_both() -> None:
    fusion = ContextFusion("gate", 2, 2, 2)
    with torch.no_grad():
        fusion.gate_proj.weight.copy_(torch.tensor([[1.0, 2.0, 3.0, 4.0], [-1.0, 0.5, 0.0, 2.0]]))
        fusion.gate_proj.bias.copy_(torch.tensor([0.1, -0.2]))
    first = 1 / (1 + 2.718281828459045 ** -(0.6 + 0.8 + 1.35 + 2.2 + 0.1))
    second = 1 / (1 + 2.718281828459045 ** -(-0.6 + 0.2 + 0.0 + 1.1 - 0.2))
    expected = torch.tensor([[first * 0.6 + (1 - first) * 0.45, second * 0.4 + (1 - second) * 0.55]])
    assert torch.allclose(fusion.combine(STATE, CONTEXT), expected)


def test_readout_is_a_tanh_layer_of_its_own_width() -> None:
    fusion = ContextFusion("concat", 2, 3, 5)
    state, context = torch.randn(4, 6, 2), torch.randn(4, 6, 3)
    expected = torch.tanh(torch.cat([state, context], -1) @ fusion.readout_proj.weight.T + fusion.readout_proj.bias)
    assert torch.allclose(fusion(state, context), expected)
    assert expected.shape == (4, 6, 5)


@pytest.mark.parametrize("kind", ["add", "gate"])
def test_unequal_widths_need_concat(kind: str) -> None:
    with pytest.raises(ValueError, match="use concat"):
        ContextFusion(kind, 2, 3, 2)


def test_unknown_fusion_is_refused() -> None:
    with pytest.raises(ValueError, match="concat, add, gate"):
        ContextFusion("mean", 2, 2, 2)
