"""How much does a model's output depend on a cross-attention head?

With x a sentence pair and L(x) the mean negative log-likelihood of its target tokens, end token included, in nats:
- gradient: I_h = mean over x of |dL(x) / d xi_h| where xi_h = 1 multiplies the head's context before the output
  projection (Michel et al. 2019, eq. 2). First order: how the loss would begin to move.
- ablation: the rise of the corpus's mean loss per token when the head's context is 0. Heads can stand in for each
  other, so that two heads which matter together may look idle one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_seq2seq_attn.errors import UnusableError

from .attention_maps import AttentionMaps
from .interventions import ChangeableModel, LayerCall
from .teacher_forcing import IGNORED, Batch, encode, make_batch, next_token_logits, token_losses


@dataclass(frozen=True)
class Importance:
    """The importance of every layer and head.

    Attributes:
        gradient: (L, H) float64, at least 0.
        ablation: (L, H) float64, in nats per token; below 0 the head does harm.
        loss: mean loss per token of the whole model, in nats.
        tokens, pairs: how many it was measured on.
    """

    gradient: np.ndarray
    ablation: np.ndarray
    loss: float
    tokens: int
    pairs: int


def head_importance(
    model: Any,
    maps: Sequence[AttentionMaps],
    *,
    batch_size: int = 16,
    progress: Callable[[int, int], None] | None = None,
) -> Importance:
    """Measure the importance of every cross-attention head by gradient and by ablation.

    The encoder runs once for each batch; the decoder once for each head more.

    Args:
        model: the model that the maps are of; left as it is.
        maps: of the sentence pairs to measure on, "output" rows, all layers and heads.
        batch_size: sentence pairs in one pass.
        progress: called as progress(done, total) after each batch, in pairs.

    Raises:
        ValueError: no pairs, maps without some layer or head or of other rows, or a model whose cross-attention
            cannot be changed.
    """
    changeable = changeable_model(model, maps)
    layers, heads = changeable.layers, changeable.heads
    gradient = np.zeros((layers, heads))
    rises = np.zeros((layers, heads))
    total = 0.0
    tokens = 0
    for start in range(0, len(maps), batch_size):
        some = maps[start : start + batch_size]
        batch = make_batch(changeable.model, some)
        with torch.no_grad():
            states = encode(changeable.model, batch)
            base = _loss_sum(changeable.model, batch, states)
        if start == 0:
            changeable.check_sums(
                lambda batch=batch, states=states: next_token_logits(changeable.model, batch, states),  # type: ignore[misc]
                padded_weights(some, batch),
            )
        gradient += _gradients(changeable, batch, states)
        rises += _ablations(changeable, batch, states) - base
        total += base
        tokens += int((batch.labels != IGNORED).sum())
        if progress is not None:
            progress(min(start + batch_size, len(maps)), len(maps))
    return Importance(gradient / len(maps), rises / tokens, total / tokens, tokens, len(maps))


def changeable_model(model: Any, maps: Sequence[AttentionMaps]) -> ChangeableModel:
    """Return a changeable copy of the model, for pairs whose maps cover all that it computes.

    Raises:
        ValueError: see `head_importance`.
    """
    if not maps:
        raise UnusableError("there is no sentence pair to measure on; give at least one")
    first = maps[0]
    if first.align_with != "output" or first.weight_kind != "attention":
        raise UnusableError(
            f"the maps are {first.weight_kind} of {first.align_with} rows; attention of output rows is needed, of the "
            "rows that make the predictions: extract(..., align_with='output')"
        )
    changeable = ChangeableModel(model, len(first.heads))
    if first.layers != tuple(range(changeable.layers)) or first.heads != tuple(range(len(first.heads))):
        raise UnusableError(
            f"the maps hold the layers {list(first.layers)} and heads {list(first.heads)}; all of the model's are "
            "needed, in order: leave layers and heads out of extract"
        )
    return changeable


def padded_weights(maps: Sequence[AttentionMaps], batch: Batch) -> list[Tensor]:
    """Return the weights of each layer as the batch's passes compute them, (B, H, T, S) float32, 0 on padding."""
    (rows, columns), device = (batch.labels.shape[1], batch.input_ids.shape[1]), batch.labels.device
    layers, heads = maps[0].weights.shape[:2]
    padded = np.zeros((len(maps), layers, heads, rows, columns), dtype=np.float32)
    for place, pair in enumerate(maps):
        padded[place, :, :, : pair.weights.shape[2], : pair.weights.shape[3]] = pair.weights
    return list(torch.from_numpy(padded).to(device).unbind(1))


def _loss_sum(model: Any, batch: Batch, states: Tensor) -> float:
    return float(token_losses(next_token_logits(model, batch, states), batch.labels).sum(dtype=torch.float64))


def _gradients(changeable: ChangeableModel, batch: Batch, states: Tensor) -> np.ndarray:
    """Return the sum over the pairs of |dL(x) / d xi|, (L, H)."""
    shape = (len(batch.labels), changeable.layers, changeable.heads)
    # One gate for each pair: pairs do not touch each other, so one backward pass gives each its own gradient.
    gates = torch.ones(shape, device=states.device, requires_grad=True)

    def gate(call: LayerCall) -> Tensor:
        return call.context * gates[:, call.layer, :, None, None].to(call.context.device)

    with torch.enable_grad(), changeable.changed(gate):
        losses = token_losses(next_token_logits(changeable.model, batch, states), batch.labels)
        lengths = (batch.labels != IGNORED).sum(1).to(losses.device)
        (gradient,) = torch.autograd.grad((losses.sum(1) / lengths).sum(), gates)
    return gradient.abs().sum(0).double().cpu().numpy()


@torch.no_grad()
def _ablations(changeable: ChangeableModel, batch: Batch, states: Tensor) -> np.ndarray:
    """Return the summed loss of the batch with each head silenced, (L, H)."""
    losses = np.zeros((changeable.layers, changeable.heads))
    for layer, head in np.ndindex(*losses.shape):

        def silence(call: LayerCall, layer: int = layer, head: int = head) -> Tensor:
            if call.layer != layer:
                return call.context
            silenced = call.context.clone()
            silenced[:, head] = 0
            return silenced

        with changeable.changed(silence):
            losses[layer, head] = _loss_sum(changeable.model, batch, states)
    return losses
