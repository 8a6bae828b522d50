"""Change what a model's cross-attention passes on, on a private copy that shares the model's weights.

What a layer's output projection reads are the heads' contexts side by side, c_h[t] = sum_s a[h, t, s] v[h, s]. A hook
that changes them there works under any attention backend: to silence a head, multiply its context by 0; to give it
other weights, put other sums there.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hf_seq2seq_attn.errors import UnusableError

from .attention_layers import AttentionLayer, find_attention_layers
from .capture import check_model, private_copy


@dataclass(frozen=True)
class LayerCall:
    """One call of a decoder layer's cross-attention.

    Attributes:
        layer: number of the layer.
        context: (B, H, T, W), of the rows of this call.
        values: (B, H, S, W), of the source positions.
        null_value: (B, H, 1, W), of the NULL key, or None where there is none.
        first_row: number of the call's first row: a recurrent decoder may attend row by row.
    """

    layer: int
    context: Tensor
    values: Tensor
    null_value: Tensor | None
    first_row: int

    @property
    def rows(self) -> slice:
        """The rows of this call."""
        return slice(self.first_row, self.first_row + self.context.shape[2])

    def context_of(self, weights: Tensor) -> Tensor:
        """Return the contexts (B, H, T, W) that weights (B, H, T, S) give; what a row lacks to 1 goes to the NULL
        key."""
        context = weights.to(self.values) @ self.values
        if self.null_value is None:
            return context
        return context + (1 - weights.sum(-1, keepdim=True)).to(self.values) * self.null_value


Change = Callable[[LayerCall], Tensor]


class ChangeableModel:
    """A model whose cross-attention can be changed for a block of code; the given model is left alone.

    Args:
        model: any encoder-decoder. The copy shares its weights, is in eval mode, and must be run with
            `use_cache=False`.
        heads: H, the number of heads of every cross-attention.

    Attributes:
        model: the copy to run.
        layers: number of decoder layers.

    Raises:
        ValueError: no encoder-decoder, or one whose cross-attention cannot be reached.
    """

    def __init__(self, model: Any, heads: int) -> None:
        check_model(model)
        self.model = private_copy(model)
        for module in self.model.modules():
            # CUDA gives no gradient through recurrent layers in eval mode; without dropout the modes are the same.
            if isinstance(module, nn.RNNBase) and not module.dropout:
                module.training = True
        self.heads = heads
        self._name = type(model).__name__
        self._change: Change | None = None
        self._reached: set[int] = set()
        found = find_attention_layers(self.model)
        if not found:
            raise UnusableError(
                f"the cross-attention of {self._name} ({model.config.model_type!r}) has a form that cannot be changed "
                "from outside: none of its modules has a known name; heads and align can still read its maps"
            )
        self.layers = len(found)
        is_ours = model.config.model_type == "seq2seq_attn"
        for number, layer in enumerate(found):
            self._watch(number, layer, is_ours)

    @contextmanager
    def changed(self, change: Change) -> Iterator[None]:
        """Within the block, replace every layer's head contexts by what `change` returns for them.

        Args:
            change: called in each forward pass once for each layer, or once for each row of a recurrent decoder that
                attends row by row; returns (B, H, T, W). Gradients flow through it.

        Raises:
            ValueError: at the end of the block, if a forward pass did not go through the hooks.
        """
        self._change, self._reached = change, set()
        try:
            yield
        finally:
            self._change = None
        if len(self._reached) < self.layers:
            raise UnusableError(
                f"layer {min(set(range(self.layers)) - self._reached)} of {self._name} never called its cross-"
                "attention where it can be changed"
            )

    def check_sums(self, run: Callable[[], object], weights: Sequence[Tensor]) -> None:
        """Raise a ValueError unless each head's context is the sum of its values by its weights.

        A family with known names that lays out its heads in another way would otherwise give wrong results in
        silence.

        Args:
            run: runs a forward pass of `model`.
            weights: (B, H, T, S) of every layer in that pass, 0 on padding.
        """

        def check(call: LayerCall) -> Tensor:
            rows = weights[call.layer][:, :, call.rows]
            if rows.shape[:3] != call.context.shape[:3] or rows.shape[3] != call.values.shape[2]:
                raise UnusableError(self._unlike())
            # Rows of padding have no weights.
            real = (rows.sum(-1, keepdim=True) > 0).to(call.context)
            error = float(((call.context_of(rows) - call.context) * real).abs().max())
            narrow = call.context.dtype in (torch.float16, torch.bfloat16)
            if not error <= (5e-2 if narrow else 1e-3) * max(1.0, float(call.context.abs().max())):
                raise UnusableError(self._unlike())
            return call.context

        with torch.no_grad(), self.changed(check):
            run()

    def _unlike(self) -> str:
        return (
            f"{self._name} does not sum the values of each head by the weights that it reports, so its cross-attention "
            "cannot be changed from outside; heads and align can still read its maps"
        )

    def _watch(self, number: int, layer: AttentionLayer, is_ours: bool) -> None:
        state = _LayerState()

        def changed(context: Tensor) -> Tensor:
            self._reached.add(number)
            if self._change is None or state.values is None:
                return context
            new = self._change(LayerCall(number, context, state.values, state.null_value, state.next_row))
            state.next_row += context.shape[2]
            return new.to(context.dtype)

        def read_values(module: nn.Module, args: tuple, output: Tensor) -> None:
            # Values are projected once in each pass, before the first row attends.
            state.values, state.next_row = layer.split_values(output, self.heads), 0

        def replace_context(module: nn.Module, args: tuple) -> tuple:
            new = changed(layer.split_context(args[0], self.heads)).transpose(1, 2).flatten(2)
            return (new.transpose(0, 1) if layer.sequence_first else new), *args[1:]

        def read_memory(module: nn.Module, args: tuple) -> None:
            values = args[1].values
            if values is not state.memory:
                state.memory, state.next_row = values, 0
            null = int(getattr(module, "null_key", None) is not None)
            state.values, state.null_value = values[:, :, null:], values[:, :, :1] if null else None

        def replace_result(module: nn.Module, args: tuple, output: tuple) -> tuple:
            context, weights = output
            return changed(context[:, None])[:, 0], weights

        if is_ours:
            # forward(query, memory, output_weights): the memory carries the values, of the NULL key too.
            layer.attention.register_forward_pre_hook(read_memory)
            if layer.output is None:
                # One head without projections: its context is the result.
                layer.attention.register_forward_hook(replace_result)
            else:
                layer.output.register_forward_pre_hook(replace_context)
        elif layer.value is not None and layer.output is not None:
            layer.value.register_forward_hook(read_values)
            layer.output.register_forward_pre_hook(replace_context)
        else:
            raise UnusableError(
                f"the cross-attention of {self._name} has no value and output projection of a known name, so it cannot "
                "be changed from outside; heads and align can still read its maps"
            )


@dataclass
class _LayerState:
    """What the hooks of one layer remember within a pass."""

    values: Tensor | None = None
    null_value: Tensor | None = None
    memory: Tensor | None = None
    next_row: int = 0
