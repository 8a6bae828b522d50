"""Twins of the decoder's parts for one run of many steps: the same functions, with gradients made after the loop.

`RecurrentDecoder.unroll` on the twin of a decoder computes what it computes on the decoder itself, by the very same
`step`; the twins share all weights, live for one call, and only exchange how products and scores are made
(`loop_gradients`). Under autocast the products run in its type; states, scores and softmax stay in float32.
"""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .context_fusion import ContextFusion
from .cross_attention import AdditiveAttention, Attention, Memory, ScaledDotProductAttention
from .loop_gradients import LoopProduct, LoopScores, gru_step, lstm_step
from .plain_forms import is_bare, takes_fast_path

M = TypeVar("M", bound=nn.Module)


class LoopLinear(nn.Module):
    """An nn.Linear that is applied at every one of so many steps."""

    def __init__(self, weight: Tensor, bias: Tensor | None, steps: int) -> None:
        super().__init__()
        self.product = LoopProduct(weight.T, bias, product_dtype(weight), steps)

    def forward(self, x: Tensor) -> Tensor:
        """Return W x + b, (..., N), for x (..., K)."""
        return self.product(x.flatten(0, -2)).unflatten(0, x.shape[:-1])


class LoopCell(nn.Module):
    """One direction of an nn.GRU or nn.LSTM layer, step by step, its state in float32 or better.

    Args:
        steps: how many there will be.
        at_once: whether `run` makes all of them, which needs but one product with the inputs.
    """

    def __init__(self, layer: nn.GRU | nn.LSTM, steps: int, at_once: bool = False, reverse: bool = False) -> None:
        super().__init__()
        suffix = "_l0_reverse" if reverse else "_l0"
        self.of_input, self.of_state = (
            LoopLinear(getattr(layer, f"weight_{name}{suffix}"), getattr(layer, f"bias_{name}{suffix}"), products)
            for name, products in (("ih", 1 if at_once else steps), ("hh", steps))
        )
        self.is_lstm = isinstance(layer, nn.LSTM)
        self.reverse = reverse
        self.dtype = torch.promote_types(next(layer.parameters()).dtype, torch.float32)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read inputs (B, 1, width) from a state (1, B, D), or (h, cell) of such; return h (B, 1, D) and the state."""
        parts = tuple(part[0].to(self.dtype) for part in (state if self.is_lstm else (state,)))
        after = self._step(self.of_input(inputs[:, 0]), parts)
        stacked = tuple(part[None] for part in after)
        return after[0][:, None], stacked if self.is_lstm else stacked[0]

    def run(
        self, inputs: Tensor, state: tuple[Tensor, ...], keep: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Read inputs (B, L, width) from a state of (B, D) tensors; return each h (B, L, D) and the last state.

        Where keep (B, L) is False the state stands still. None = it moves everywhere.
        """
        # All steps' inputs are known: one product, before the loop.
        of_inputs = self.of_input(inputs).unbind(1)
        moves = None if keep is None else keep[..., None].unbind(1)
        order = -1 if self.reverse else 1
        state, hidden = tuple(part.to(self.dtype) for part in state), []
        for t in range(len(of_inputs))[::order]:
            after = self._step(of_inputs[t], state)
            if moves is not None:
                after = tuple(torch.where(moves[t], new, old) for new, old in zip(after, state, strict=True))
            state = after
            hidden.append(state[0])
        return torch.stack(hidden[::order], dim=1), state

    def _step(self, of_input: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        of_state = self.of_state(state[0]).to(self.dtype)
        if self.is_lstm:
            return lstm_step(of_input.to(self.dtype), of_state, state[1])
        return (gru_step(of_input.to(self.dtype), of_state, state[0]),)


def runs_in_loops(layer: nn.Module, inputs: Tensor) -> bool:
    """Tell whether a layer's pass over a whole sequence is faster as a loop of ours: training on CPUs.

    There torch makes each weight's gradient step by step, and over packed sequences, too, a gradient of all inputs at
    each step. On accelerators one fused kernel makes the whole pass.
    """
    trains = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in layer.parameters())
    return trains and inputs.is_cpu and takes_fast_path() and is_bare(layer, nn.GRU, nn.LSTM)


def product_dtype(weight: Tensor) -> torch.dtype:
    """Return what products with a weight are computed in: the type of autocast where it is on, else the weight's."""
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


def attention_twin(attention: Attention, memory: Memory, steps: int) -> Attention:
    """Return a twin that attends to this memory only; of an attention that we do not know, itself."""
    if type(attention) is AdditiveAttention:
        scores: Callable[[Tensor], Tensor] = LoopScores(memory.keys, attention.score_vector)
    elif type(attention) is ScaledDotProductAttention:
        product, scale = LoopProduct(memory.keys.mT, dtype=product_dtype(memory.keys)), attention.scale
        scores = lambda queries: product(queries * scale)  # noqa: E731
    else:
        return attention
    of_values = LoopProduct(memory.values, dtype=product_dtype(memory.values))
    made = twin(attention, q_proj=_linear(attention.q_proj, steps), out_proj=_linear(attention.out_proj, steps))
    made.score = lambda queries, keys: scores(queries)  # type: ignore[method-assign]
    made._sum_values = lambda weights, values: of_values(weights)  # type: ignore[method-assign]
    made._takes_fused_kernel = lambda *_: False  # type: ignore[method-assign]
    return made


def cell_twin(layer: nn.Module, steps: int) -> nn.Module:
    """Return a twin that makes single steps."""
    return LoopCell(layer, steps) if is_bare(layer, nn.GRU, nn.LSTM) else layer  # type: ignore[arg-type]


def fusion_twin(fusion: ContextFusion, steps: int) -> ContextFusion:
    """Return a twin for so many steps."""
    return twin(fusion, gate_proj=_linear(fusion.gate_proj, steps), readout_proj=_linear(fusion.readout_proj, steps))


def twin(module: M, **parts: nn.Module | None) -> M:
    """Return a module that shares everything with another but these parts."""
    made = copy.copy(module)
    made._modules = {**module._modules, **parts}
    return made


def _linear(layer: nn.Module | None, steps: int) -> nn.Module | None:
    if isinstance(layer, nn.Linear) and is_bare(layer, nn.Linear):
        return LoopLinear(layer.weight, layer.bias, steps)
    return layer
