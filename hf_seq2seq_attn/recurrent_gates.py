"""One step of a GRU's or LSTM's gates, forward and backward, without autograd: what is left beside the matmuls.

Letters: B batch, D width of the state. The gates stand in PyTorch's order: reset, update, new of a GRU; input,
forget, cell, output of an LSTM. Each function runs a compiled kernel where there is one (see `cpu_kernels`) and the
torch operations beside it elsewhere. Tensors (B, width) may be columns of wider ones: rows need not be adjacent.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .cpu_kernels import ONE, TWO, Kernel, bounded, exp, kernel, parts_of

# Beyond it sigmoid is 0 or 1, the hyperbolic tangent -1 or 1, as far as float32 can tell beside 1.
SIGMOID_BOUND, TANH_BOUND = np.float32(80), np.float32(10)
# Numbers of work for one number of a state: each gate costs an exponential.
WORK_OF_A_STATE = 16
# What a kernel takes for one tensor: all its numbers, and the step from row to row.
ROWS = "f4[::1], i8,"


def gru_gates(input_gates: Tensor, hidden_gates: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the new state (B, D) of a GRU (Cho et al. 2014), and what the backward pass needs, (B, 4 D).

    r = sigmoid(i_r + h_r), z = sigmoid(i_z + h_z), n = tanh(i_n + r h_n), state' = n + z (state - n), of input_gates
    and hidden_gates (B, 3 D), biases within. What is kept is r, z, n, h_n.
    """
    batch, width = state.shape
    with torch.no_grad():
        kept = state.new_empty(batch, 4 * width)
        if _fits(_gru_gates, input_gates, hidden_gates, state):
            new_state = state.new_empty(batch, width)
            _run(_gru_gates, input_gates, hidden_gates, state, kept, new_state)
            return new_state, kept
        torch.sigmoid(input_gates[:, : 2 * width] + hidden_gates[:, : 2 * width], out=kept[:, : 2 * width])
        reset, update, new, hidden_new = kept.chunk(4, dim=1)
        hidden_new.copy_(hidden_gates[:, 2 * width :])
        new.copy_(torch.addcmul(input_gates[:, 2 * width :], reset, hidden_new).tanh_())
        return torch.lerp(new, state, update), kept


def gru_gates_backward(
    gradient: Tensor, state: Tensor, kept: Tensor, of_input_gates: Tensor, of_hidden_gates: Tensor
) -> Tensor:
    """Return the gradient of the old state through the gates, (B, D), given that of the new state.

    Those of the gates are written to of_input_gates and of_hidden_gates (B, 3 D), which differ in their last third.
    """
    width = state.shape[1]
    with torch.no_grad():
        if _fits(_gru_gates_backward, gradient, state, kept, of_input_gates, of_hidden_gates):
            of_state = torch.empty_like(state, memory_format=torch.contiguous_format)
            _run(_gru_gates_backward, gradient, state, kept, of_input_gates, of_hidden_gates, of_state)
            return of_state
        reset, update, new, hidden_new = kept.chunk(4, dim=1)
        of_new = gradient * (1 - update) * (1 - new * new)
        of_input_gates[:, :width] = of_new * hidden_new * reset * (1 - reset)
        of_input_gates[:, width : 2 * width] = gradient * (state - new) * update * (1 - update)
        of_input_gates[:, 2 * width :] = of_new
        of_hidden_gates[:, : 2 * width] = of_input_gates[:, : 2 * width]
        of_hidden_gates[:, 2 * width :] = of_new * reset
        return gradient * update


def lstm_gates(input_gates: Tensor, hidden_gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the new state and cell (B, D) of an LSTM, and what the backward pass needs, (B, 5 D).

    i, f, o = sigmoid, g = tanh of input_gates + hidden_gates (B, 4 D), biases within; cell' = f cell + i g,
    state' = o tanh(cell'). What is kept is i, f, g, o, tanh(cell').
    """
    batch, width = cell.shape
    with torch.no_grad():
        kept = cell.new_empty(batch, 5 * width)
        if _fits(_lstm_gates, input_gates, hidden_gates, cell):
            state, new_cell = cell.new_empty(batch, width), cell.new_empty(batch, width)
            _run(_lstm_gates, input_gates, hidden_gates, cell, kept, new_cell, state)
            return state, new_cell, kept
        torch.add(input_gates, hidden_gates, out=kept[:, : 4 * width])
        enter, forget, candidate, leave, squashed = kept.chunk(5, dim=1)
        kept[:, : 2 * width].sigmoid_()
        candidate.tanh_()
        leave.sigmoid_()
        new_cell = torch.addcmul(forget * cell, enter, candidate)
        torch.tanh(new_cell, out=squashed)
        return leave * squashed, new_cell, kept


def lstm_gates_backward(of_state: Tensor, of_new_cell: Tensor, cell: Tensor, kept: Tensor, of_gates: Tensor) -> Tensor:
    """Return the gradient of the old cell (B, D), given those of the new state and of the new cell.

    That of the gates, which input and hidden gates share, is written to of_gates (B, 4 D).
    """
    width = cell.shape[1]
    with torch.no_grad():
        if _fits(_lstm_gates_backward, of_state, of_new_cell, cell, kept, of_gates):
            of_cell = torch.empty_like(cell, memory_format=torch.contiguous_format)
            _run(_lstm_gates_backward, of_state, of_new_cell, cell, kept, of_gates, of_cell)
            return of_cell
        enter, forget, candidate, leave, squashed = kept.chunk(5, dim=1)
        of_all = of_new_cell + of_state * leave * (1 - squashed * squashed)
        of_gates[:, :width] = of_all * candidate * enter * (1 - enter)
        of_gates[:, width : 2 * width] = of_all * cell * forget * (1 - forget)
        of_gates[:, 2 * width : 3 * width] = of_all * enter * (1 - candidate * candidate)
        of_gates[:, 3 * width :] = of_state * squashed * leave * (1 - leave)
        return of_all * forget


def _fits(kernel: Kernel, *tensors: Tensor) -> bool:
    """Say whether the kernel can take these: none empty, each row's numbers adjacent."""
    return kernel.ready_for(*tensors) and all(tensor.numel() and tensor.stride(1) == 1 for tensor in tensors)


def _run(kernel: Kernel, *tensors: Tensor) -> None:
    """Run on tensors (B, width), each as a flat array and the step from row to row; the last one is (B, D)."""
    batch, width = tensors[-1].shape
    arguments: list[Any] = [width]
    for tensor in tensors:
        step = tensor.stride(0)
        flat = tensor.detach().as_strided(((batch - 1) * step + tensor.shape[1],), (1,))
        arguments += [flat.numpy(), step]
    kernel.run(batch, *arguments, of_parts=[()] * parts_of(batch, WORK_OF_A_STATE * batch * width))


@kernel(f"void(i8, {ROWS * 5} i8, i8)")
def _gru_gates(
    width: int,
    inputs: Any,
    input_step: int,
    hiddens: Any,
    hidden_step: int,
    states: Any,
    state_step: int,
    kept: Any,
    kept_step: int,
    new_states: Any,
    new_step: int,
    first: int,
    last: int,
) -> None:
    for b in range(first, last):
        i, h, keep = inputs[b * input_step :], hiddens[b * hidden_step :], kept[b * kept_step :]
        state, new_state = states[b * state_step :], new_states[b * new_step :]
        reset, update, new, hidden_new = keep[:width], keep[width:], keep[2 * width :], keep[3 * width :]
        for w in range(2 * width):
            keep[w] = ONE / (ONE + exp(-bounded(i[w] + h[w], SIGMOID_BOUND)))
        i, h = i[2 * width :], h[2 * width :]
        for w in range(width):
            hidden_new[w] = h[w]
            n = ONE - TWO / (ONE + exp(TWO * bounded(i[w] + reset[w] * h[w], TANH_BOUND)))
            new[w] = n
            new_state[w] = n + update[w] * (state[w] - n)


@kernel(f"void(i8, {ROWS * 6} i8, i8)")
def _gru_gates_backward(
    width: int,
    gradients: Any,
    gradient_step: int,
    states: Any,
    state_step: int,
    kept: Any,
    kept_step: int,
    of_inputs: Any,
    input_step: int,
    of_hiddens: Any,
    hidden_step: int,
    of_states: Any,
    of_state_step: int,
    first: int,
    last: int,
) -> None:
    for b in range(first, last):
        gradient, state = gradients[b * gradient_step :], states[b * state_step :]
        keep, of_state = kept[b * kept_step :], of_states[b * of_state_step :]
        i, h = of_inputs[b * input_step :], of_hiddens[b * hidden_step :]
        for w in range(width):
            r, z, n, hidden_new = keep[w], keep[width + w], keep[2 * width + w], keep[3 * width + w]
            of_new = gradient[w] * (ONE - z) * (ONE - n * n)
            of_reset, of_update = of_new * hidden_new * r * (ONE - r), gradient[w] * (state[w] - n) * z * (ONE - z)
            i[w], i[width + w], i[2 * width + w] = of_reset, of_update, of_new
            h[w], h[width + w], h[2 * width + w] = of_reset, of_update, of_new * r
            of_state[w] = gradient[w] * z


@kernel(f"void(i8, {ROWS * 6} i8, i8)")
def _lstm_gates(
    width: int,
    inputs: Any,
    input_step: int,
    hiddens: Any,
    hidden_step: int,
    cells: Any,
    cell_step: int,
    kept: Any,
    kept_step: int,
    new_cells: Any,
    new_step: int,
    new_states: Any,
    state_step: int,
    first: int,
    last: int,
) -> None:
    for b in range(first, last):
        i, h, keep = inputs[b * input_step :], hiddens[b * hidden_step :], kept[b * kept_step :]
        cell, new_cell, new_state = cells[b * cell_step :], new_cells[b * new_step :], new_states[b * state_step :]
        for w in range(4 * width):
            keep[w] = ONE / (ONE + exp(-bounded(i[w] + h[w], SIGMOID_BOUND)))
        candidate = keep[2 * width :]
        for w in range(width):
            x = bounded(i[2 * width + w] + h[2 * width + w], TANH_BOUND)
            candidate[w] = ONE - TWO / (ONE + exp(TWO * x))
        enter, forget, leave, squashed = keep[:width], keep[width:], keep[3 * width :], keep[4 * width :]
        for w in range(width):
            c = forget[w] * cell[w] + enter[w] * candidate[w]
            squashed[w] = ONE - TWO / (ONE + exp(TWO * bounded(c, TANH_BOUND)))
            new_cell[w] = c
            new_state[w] = leave[w] * squashed[w]


@kernel(f"void(i8, {ROWS * 6} i8, i8)")
def _lstm_gates_backward(
    width: int,
    of_states: Any,
    state_step: int,
    of_new_cells: Any,
    new_step: int,
    cells: Any,
    cell_step: int,
    kept: Any,
    kept_step: int,
    of_gates: Any,
    gate_step: int,
    of_cells: Any,
    of_cell_step: int,
    first: int,
    last: int,
) -> None:
    for b in range(first, last):
        of_state, of_new_cell, cell = of_states[b * state_step :], of_new_cells[b * new_step :], cells[b * cell_step :]
        keep, into, of_cell = kept[b * kept_step :], of_gates[b * gate_step :], of_cells[b * of_cell_step :]
        for w in range(width):
            i, f, g, o, t = keep[w], keep[width + w], keep[2 * width + w], keep[3 * width + w], keep[4 * width + w]
            of_all = of_new_cell[w] + of_state[w] * o * (ONE - t * t)
            into[w], into[width + w] = of_all * g * i * (ONE - i), of_all * cell[w] * f * (ONE - f)
            into[2 * width + w], into[3 * width + w] = of_all * i * (ONE - g * g), of_state[w] * t * o * (ONE - o)
            of_cell[w] = of_all * f
