"""The gates' steps against PyTorch's own cells, forward and backward."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from hf_seq2seq_attn import cpu_kernels
from hf_seq2seq_attn.cpu_kernels import kernels_switched
from hf_seq2seq_attn.recurrent_gates import gru_gates, gru_gates_backward, lstm_gates, lstm_gates_backward

B, D, INPUT = 3, 5, 4
CASES = [(torch.float64, 1e-12), (torch.float32, 3e-6)]


@pytest.fixture(params=["torch", "kernels", "kernels in two threads"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run every test by the torch form and, where numba is installed, by the kernels."""
    before = torch.get_num_threads()
    if request.param != "torch":
        pytest.importorskip("numba")
    if request.param == "kernels in two threads":
        monkeypatch.setattr(cpu_kernels, "WORK_OF_A_THREAD", 1)
        torch.set_num_threads(2)
    with kernels_switched(request.param != "torch"):
        yield
    torch.set_num_threads(before)


def gates_of(cell: nn.RNNCellBase, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gates of inputs and state, as columns of wider tensors."""
    wide = torch.full((B, cell.weight_ih.shape[0] + 3), torch.nan, dtype=inputs.dtype)
    input_gates, hidden_gates = wide.clone()[:, 1:-2], wide.clone()[:, 3:]
    input_gates.copy_(inputs @ cell.weight_ih.T + cell.bias_ih)
    hidden_gates.copy_(state @ cell.weight_hh.T + cell.bias_hh)
    return input_gates, hidden_gates


@pytest.mark.parametrize("scale", [1.0, 60.0])
@pytest.mark.parametrize(("dtype", "tolerance"), CASES)
def test_gru_gates_equal_the_cell(dtype: torch.dtype, tolerance: float, scale: float) -> None:
    cell = nn.GRUCell(INPUT, D, dtype=torch.float64)
    inputs, state = torch.randn(B, INPUT).double() * scale, torch.randn(B, D).double().requires_grad_()
    gradient = torch.randn(B, D).double()
    expected = cell(inputs, state)
    expected_of_state, of_input_bias, of_hidden_bias = torch.autograd.grad(
        expected, [state, cell.bias_ih, cell.bias_hh], gradient
    )
    with torch.no_grad():
        gates = [tensor.to(dtype) for tensor in gates_of(cell, inputs, state)]
        old = state.to(dtype)
        new_state, kept = gru_gates(*gates, old)
        of_gates = [torch.full((B, 3 * D + 2), torch.nan, dtype=dtype) for _ in range(2)]
        of_inputs, of_hiddens = of_gates[0][:, 2:], of_gates[1][:, :-2]
        of_state = gru_gates_backward(gradient.to(dtype), old, kept, of_inputs, of_hiddens)
        of_state = of_state.double() + of_hiddens.double() @ cell.weight_hh
    assert of_gates[0][:, :2].isnan().all() and of_gates[1][:, -2:].isnan().all()
    for found, right in (
        (new_state, expected),
        (of_state, expected_of_state),
        (of_inputs.sum(0), of_input_bias),
        (of_hiddens.sum(0), of_hidden_bias),
    ):
        torch.testing.assert_close(found.double(), right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scale", [1.0, 60.0])
@pytest.mark.parametrize(("dtype", "tolerance"), CASES)
def test_lstm_gates_equal_the_cell(dtype: torch.dtype, tolerance: float, scale: float) -> None:
    module = nn.LSTMCell(INPUT, D, dtype=torch.float64)
    inputs, state = torch.randn(B, INPUT).double() * scale, torch.randn(B, D).double()
    cell, of_new_state, of_new_cell = (torch.randn(B, D).double() for _ in range(3))
    cell.requires_grad_()
    expected = module(inputs, (state, cell))
    expected_of_cell, of_bias = torch.autograd.grad(expected, [cell, module.bias_ih], [of_new_state, of_new_cell])
    with torch.no_grad():
        gates = [tensor.to(dtype) for tensor in gates_of(module, inputs, state)]
        old = cell.to(dtype)
        new_state, new_cell, kept = lstm_gates(*gates, old)
        of_gates = torch.full((B, 4 * D + 1), torch.nan, dtype=dtype)[:, 1:]
        of_cell = lstm_gates_backward(of_new_state.to(dtype), of_new_cell.to(dtype), old, kept, of_gates)
    for found, right in (
        (new_state, expected[0]),
        (new_cell, expected[1]),
        (of_cell, expected_of_cell),
        (of_gates.sum(0), of_bias),
    ):
        torch.testing.assert_close(found.double(), right, rtol=tolerance, atol=tolerance)


def test_what_is_not_a_number_stays_so() -> None:
    gates = torch.randn(B, 4 * D)
    gates[1, 2] = torch.nan
    state, cell, _ = lstm_gates(gates, torch.zeros(B, 4 * D), torch.zeros(B, D))
    new_state, _ = gru_gates(gates[:, : 3 * D], torch.zeros(B, 3 * D), torch.zeros(B, D))
    for found in (state, cell, new_state):
        assert found[1, 2].isnan() and found.isnan().sum() == 1


def test_an_empty_batch_gives_nothing() -> None:
    empty = torch.zeros(0, 4 * D)
    assert gru_gates(empty[:, : 3 * D], empty[:, : 3 * D], empty[:, :D])[0].shape == (0, D)
    assert lstm_gates(empty, empty, empty[:, :D])[0].shape == (0, D)
