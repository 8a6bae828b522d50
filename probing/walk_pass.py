"""One decoder row as the model computes it, and the same done again in NumPy's float64 from its weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hf_seq2seq_attn.errors import UnusableError

from .attention_layers import AttentionLayer
from .attention_maps import AttentionMaps
from .attention_parts import AttentionParts, projection
from .attention_steps import TOLERANCE, AttentionSteps, attention_steps, check_same, joined_context
from .teacher_forcing import make_batch

# Rows of an output layer that are made float64 at a time.
_ROWS_TOGETHER = 8192


@dataclass(frozen=True)
class ComputedRow:
    """What the model computed at one decoder row, as float64.

    Attributes:
        decoder_ids: all decoder inputs, the start token first.
        encoder_states: (S, D). state: (D,) what the layer's attention was asked with. context: (D,) its answer.
        weights: (H, S) the weights it returned.
        fused: (D,) the layer's output; of the last layer, what the output layer reads.
        read_by_output: (D,) what the output layer reads. logits: (V,) what it returned.
        recurrent: (state, readout) that a recurrent decoder fused the context with and got; None for others.
    """

    decoder_ids: list[int]
    encoder_states: np.ndarray
    state: np.ndarray
    context: np.ndarray
    weights: np.ndarray
    fused: np.ndarray
    read_by_output: np.ndarray
    logits: np.ndarray
    recurrent: tuple[np.ndarray, np.ndarray] | None


@dataclass(frozen=True)
class RedoneRow:
    """The same row done again: the steps of every head, the joined context, the next token's distribution (V,).

    `largest_difference` is that of weights, context, readout and logits from the model's own.
    """

    steps: list[AttentionSteps]
    context: np.ndarray
    probabilities: np.ndarray
    largest_difference: float


@torch.no_grad()
def run_row(model: Any, layers: Sequence[AttentionLayer], number: int, maps: AttentionMaps, row: int) -> ComputedRow:
    """Run the pair of `maps` through a private copy of a model, and keep what happens at one row and layer.

    Raises:
        ValueError: the layer does not return its weights, or the model has no output layer.
    """
    batch = make_batch(model, [maps])
    decoder_ids = torch.cat([batch.decoder_input_ids, batch.labels[:, -1:]], dim=1)
    seen = _Seen(model, layers[number])
    output = model(
        batch.input_ids,
        attention_mask=batch.attention_mask,
        decoder_input_ids=decoder_ids,
        use_cache=False,
        output_hidden_states=True,
        return_dict=True,
    )
    seen.remove()
    read_by_output = seen.row("read_by_output", row)
    is_top = number == len(layers) - 1
    recurrent = (seen.row("fused_state", row), seen.row("readout", row)) if seen.rows["readout"] else None
    return ComputedRow(
        decoder_ids=decoder_ids[0].tolist(),
        encoder_states=_numbers(output.encoder_last_hidden_state[0]),
        state=seen.row("state", row),
        context=seen.row("context", row),
        weights=seen.row("weights", row),
        fused=read_by_output if is_top else _numbers(output.decoder_hidden_states[number + 1][0, row]),
        read_by_output=read_by_output,
        logits=_numbers(output.logits[0, row]),
        recurrent=recurrent,
    )


@torch.no_grad()
def run_rows(
    model: Any, layers: Sequence[AttentionLayer], number: int, maps: AttentionMaps
) -> tuple[np.ndarray, np.ndarray]:
    """Run the pair of `maps`; return what a layer's attention was asked with at each row (T, D), and h (S, D)."""
    batch = make_batch(model, [maps])
    seen = _Seen(model, layers[number])
    output = model(
        batch.input_ids,
        attention_mask=batch.attention_mask,
        decoder_input_ids=batch.decoder_input_ids,
        use_cache=False,
        return_dict=True,
    )
    seen.remove()
    return _numbers(torch.cat(seen.rows["state"], dim=1)[0]), _numbers(output.encoder_last_hidden_state[0])


@torch.no_grad()
def redo_row(model: Any, layer: AttentionLayer, parts: AttentionParts, computed: ComputedRow) -> RedoneRow:
    """Do a row again from the weights, and compare every line with the model's own.

    Raises:
        ValueError: weights, context, readout or logits differ by more than rounding in the model's dtype explains.
    """
    steps = attention_steps(parts, computed.state, computed.encoder_states)
    weights = np.stack([each.weights for each in steps])[:, -computed.weights.shape[1] :]
    rounding = max(each.rounding for each in steps)
    differences = [check_same("the weights", weights, computed.weights, rounding)]
    context = joined_context(parts, steps)
    if layer.output is None or layer.output in set(layer.attention.modules()):
        # A weight that is off by `rounding` moves the context by that share of the values, through the projection.
        terms = np.abs(np.concatenate([each.values.max(0) - each.values.min(0) for each in steps]))
        terms = terms if parts.output is None else terms @ np.abs(parts.output.weight)
        tolerance = rounding * (1 + len(computed.encoder_states) * float(terms.max()))
        differences.append(check_same("the context's numbers", context, computed.context, tolerance))
    if computed.recurrent is not None:
        state, readout = computed.recurrent
        redone = _readout(model.get_decoder().context_fusion, state, computed.context)
        differences.append(check_same("the readout's numbers", redone, readout, _tolerance(parts.precision, 1.0)))
    logits, terms_of_logits = _logits(model, computed.read_by_output)
    tolerance = _tolerance(parts.precision, terms_of_logits)
    differences.append(check_same("the logits", logits, computed.logits, tolerance))
    exponentials = np.exp(logits - logits.max())
    return RedoneRow(steps, context, exponentials / exponentials.sum(), max(differences))


class _Seen:
    """Hooks on a private copy that keep what goes through one layer's attention, the fusion and the output layer.

    A recurrent decoder attends once for each step, or once for all; rows follow one another.
    """

    def __init__(self, model: Any, layer: AttentionLayer) -> None:
        self.rows: dict[str, list[Tensor]] = {
            name: [] for name in ("state", "context", "weights", "fused_state", "readout", "read_by_output")
        }
        self._first = layer.sequence_first
        self._hooks: list[Any] = []
        head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        if head is None:
            raise UnusableError(f"{type(model).__name__} has no output layer, so no next token; load it with one")
        if model.config.model_type == "seq2seq_attn":
            # forward(query, memory, output_weights) computes weights if the third is true.
            self._hooks.append(layer.attention.register_forward_pre_hook(lambda module, args: (*args[:2], True)))
            fusion = getattr(model.get_decoder(), "context_fusion", None)
            if fusion is not None:
                self._hooks.append(fusion.register_forward_hook(self._keep_fusion))
        self._hooks.append(layer.attention.register_forward_hook(self._keep_attention, with_kwargs=True))
        self._hooks.append(head.register_forward_pre_hook(lambda module, args: self._keep("read_by_output", args[0])))

    def remove(self) -> None:
        """Take the hooks off, so that the copy can be run again."""
        for hook in self._hooks:
            hook.remove()

    def row(self, name: str, row: int) -> np.ndarray:
        """Return one row: (D,), of the weights (H, S)."""
        if not self.rows[name]:
            raise UnusableError(f"the layer shows no {name.replace('_', ' ')}; this model cannot be walked through")
        along = 2 if name == "weights" else 1
        return _numbers(torch.cat(self.rows[name], dim=along).select(along, row)[0])

    def _keep(self, name: str, states: Tensor) -> None:
        self.rows[name].append(states)

    def _keep_attention(self, module: nn.Module, args: tuple, kwargs: dict[str, Any], output: tuple) -> None:
        query = args[0] if args else next(iter(kwargs.values()))
        maps = [part for part in output if isinstance(part, Tensor) and part.dim() == 4]
        self._keep("state", query.transpose(0, 1) if self._first else query)
        self._keep("context", output[0].transpose(0, 1) if self._first else output[0])
        if maps:
            self._keep("weights", maps[-1])

    def _keep_fusion(self, module: nn.Module, args: tuple, output: Tensor) -> None:
        self._keep("fused_state", args[0])
        self._keep("readout", output)


def _readout(fusion: Any, state: np.ndarray, context: np.ndarray) -> np.ndarray:
    """Return tanh(W_r . combine(s, c)), see `ContextFusion`."""
    both = np.concatenate([state, context])
    combined: dict[str, Callable[[], np.ndarray]] = {
        "concat": lambda: both,
        "add": lambda: state + context,
        "gate": lambda: _gated(1 / (1 + np.exp(-projection(fusion.gate_proj)(both))), state, context),
    }
    return np.tanh(projection(fusion.readout_proj)(combined[fusion.kind]()))


def _gated(gate: np.ndarray, state: np.ndarray, context: np.ndarray) -> np.ndarray:
    return gate * state + (1 - gate) * context


def _logits(model: Any, states: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the output layer's numbers (V,) for states (D,), and the largest sum of terms in one of them."""
    head = model.get_output_embeddings()
    parts, largest = [], 0.0
    for rows in head.weight.split(_ROWS_TOGETHER):
        weight = _numbers(rows)
        parts.append(weight @ states)
        largest = max(largest, float((np.abs(weight) @ np.abs(states)).max()))
    logits = np.concatenate(parts)
    # Marian, BART and their kin add a bias of their own to what the output layer returns.
    for bias in (getattr(head, "bias", None), getattr(model, "final_logits_bias", None)):
        if isinstance(bias, Tensor):
            logits = logits + _numbers(bias).reshape(-1)
    return logits, largest


def _tolerance(precision: float, terms: float) -> float:
    return max(TOLERANCE, 4 * precision * (1 + terms))


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()
