"""Operands that every step of a loop uses, with one gradient for all steps together.

Autograd would add up, at each step, a gradient as large as the operand itself: a weight matrix, the keys and values of
a whole batch. Here the steps of the backward pass write down what they saw, and when the first step is through, one
matrix product makes the gradient of them all. The functions are the same; only the order of the sums differs.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from .additive_scores import prepare_keys, score_rows, score_rows_backward
from .fast_linear import training_linear
from .plain_forms import first_derivative_only
from .recurrent_gates import gru_gates, gru_gates_backward, lstm_gates, lstm_gates_backward


class LoopProduct:
    """x @ matrix + bias for each step's x (..., n, K); matrix (..., K, N), computed in `dtype`. A bias: for (K, N).

    With X and G the inputs and the gradients of all steps, joined along n: d matrix = X^T G, d bias = sum of G.
    For many `steps` a matrix (K, N) is rearranged; there may be fewer or more of them.
    """

    def __init__(
        self, matrix: Tensor, bias: Tensor | None = None, dtype: torch.dtype | None = None, steps: int = 1
    ) -> None:
        constant = None if bias is None else bias.detach()
        self._store = _ProductStore(matrix.detach(), constant, dtype or matrix.dtype, steps)
        self._token = _after_all_steps(self._store, matrix, bias)

    def __call__(self, x: Tensor) -> Tensor:
        """Return one step's product, in the dtype of the products."""
        return cast(Tensor, _Step.apply(x.to(self._store.matrix.dtype), self._token, self._store))


class LoopScores:
    """Additive scores (B, H, T, S) of each step's queries (B, H, T, W) against the same keys, in float32 or better."""

    def __init__(self, keys: Tensor, score_vector: Tensor) -> None:
        dtype = torch.promote_types(keys.dtype, torch.float32)
        keys, score_vector = keys.to(dtype), score_vector.to(dtype)
        self._store = _ScoreStore(keys.detach(), score_vector.detach())
        self._token = _after_all_steps(self._store, keys, score_vector)

    def __call__(self, queries: Tensor) -> Tensor:
        """Return one step's scores."""
        return cast(Tensor, _Step.apply(queries.to(self._store.vector.dtype), self._token, self._store))


class _Store:
    """What the backward steps of one operand leave for its gradient."""

    def __init__(self) -> None:
        self.steps = 0
        self._last: int | None = None

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def backward(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient of x, and keep what the operands' gradient needs."""
        raise NotImplementedError

    def gather(self) -> tuple[Tensor | None, ...]:
        """Return the gradients of the operands, of all steps since `clear`."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget what the steps left."""
        raise NotImplementedError

    def enter(self, step: int) -> None:
        """Begin the backward pass of a step. A pass goes back in time: if this one does not, a new one has begun.

        The one before may have ended early, where nobody asked for the operands' gradient.
        """
        if self._last is None or step >= self._last:
            self.clear()
        self._last = step

    def close(self) -> tuple[Tensor | None, ...]:
        """End a backward pass."""
        gradients = self.gather()
        self.clear()
        self._last = None
        return gradients


class _ProductStore(_Store):
    def __init__(self, matrix: Tensor, bias: Tensor | None, dtype: torch.dtype, steps: int) -> None:
        super().__init__()
        self.matrix, self.bias = matrix.to(dtype), None if bias is None else bias.to(dtype)
        self.dtype, self.expected = matrix.dtype, steps
        self.inputs: list[Tensor] = []
        self.gradients: list[Tensor] = []
        # Made by the first step, which shows how many rows there are.
        self._times: Callable[[Tensor], Tensor] | None = None
        self._times_back: Callable[[Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.matrix.dim() > 2:
            return x @ self.matrix
        if self._times is None:
            self._times = training_linear(self.matrix.T, self.bias, len(x), self.expected)
        return self._times(x)

    def backward(self, x: Tensor, gradient: Tensor) -> Tensor:
        self.inputs.append(x)
        self.gradients.append(gradient)
        if self.matrix.dim() > 2:
            return gradient @ self.matrix.mT
        if self._times_back is None:
            self._times_back = training_linear(self.matrix, None, len(x), self.expected)
        return self._times_back(gradient)

    def gather(self) -> tuple[Tensor | None, ...]:
        if not self.inputs:
            return None, None
        inputs, gradients = torch.cat(self.inputs, dim=-2), torch.cat(self.gradients, dim=-2)
        # As the transpose of G^T X: a weight's gradient then lies in memory as the weight does.
        of_matrix = (gradients.mT @ inputs).mT.to(self.dtype)
        return of_matrix, None if self.bias is None else gradients.sum(0, dtype=torch.float32).to(self.dtype)

    def clear(self) -> None:
        self.inputs, self.gradients = [], []


class _ScoreStore(_Store):
    def __init__(self, keys: Tensor, vector: Tensor) -> None:
        super().__init__()
        self.prepared, self.vector = prepare_keys(keys), vector
        self.gradients: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        return score_rows(x, self.prepared, self.vector)

    def backward(self, x: Tensor, gradient: Tensor) -> Tensor:
        if self.gradients is None:
            self.gradients = torch.zeros_like(self.prepared.keys), torch.zeros_like(self.vector)
        return score_rows_backward(x, self.prepared, self.vector, gradient, *self.gradients)

    def gather(self) -> tuple[Tensor | None, ...]:
        return self.gradients or (None, None)

    def clear(self) -> None:
        self.gradients = None


def _after_all_steps(store: _Store, *operands: Tensor | None) -> Tensor:
    return cast(Tensor, _Operands.apply(store, *operands))


class _Operands(torch.autograd.Function):
    """Tie the operands to a token that every step takes, so that their gradient waits for all steps.

    The token is held by the steps and not by the store, which would be a cycle that Python cannot collect.
    """

    @staticmethod
    def forward(ctx: Any, store: _Store, *operands: Tensor | None) -> Tensor:
        ctx.store = store
        return torch.zeros(())

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.store.close()


class _Step(torch.autograd.Function):
    """One step's use of an operand."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, store: _Store) -> Tensor:
        ctx.save_for_backward(x)
        ctx.store, ctx.step = store, store.steps
        store.steps += 1
        return store.forward(x)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        ctx.store.enter(ctx.step)
        return ctx.store.backward(*ctx.saved_tensors, gradient), None, None


def gru_step(of_input: Tensor, of_state: Tensor, state: Tensor) -> Tensor:
    """Return the next state (B, D) of a GRU, given W_ih x + b_ih and W_hh h + b_hh, (B, 3D) each, and h (B, D)."""
    return cast(Tensor, _GruStep.apply(of_input, of_state, state))


def lstm_step(of_input: Tensor, of_state: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next h and cell (B, D) of an LSTM, given W_ih x + b_ih and W_hh h + b_hh, (B, 4D) each, and c."""
    return cast(tuple[Tensor, Tensor], _LstmStep.apply(of_input, of_state, cell))


class _GruStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, of_input: Tensor, of_state: Tensor, state: Tensor) -> Tensor:
        new, kept = gru_gates(of_input, of_state, state)
        ctx.save_for_backward(state, kept)
        return new

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        state, kept = ctx.saved_tensors
        of_input, of_state = (state.new_empty(len(state), 3 * state.shape[1]) for _ in range(2))
        direct = gru_gates_backward(gradient.contiguous(), state, kept, of_input, of_state)
        return of_input, of_state, direct


class _LstmStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, of_input: Tensor, of_state: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        hidden, new_cell, kept = lstm_gates(of_input, of_state, cell)
        ctx.save_for_backward(cell, kept)
        return hidden, new_cell

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, of_hidden: Tensor, of_new_cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        cell, kept = ctx.saved_tensors
        of_gates = cell.new_empty(len(cell), 4 * cell.shape[1])
        of_cell = lstm_gates_backward(of_hidden.contiguous(), of_new_cell.contiguous(), cell, kept, of_gates)
        return of_gates, of_gates, of_cell
