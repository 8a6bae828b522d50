"""The translation loss over a whole optimiser step, for models that only know the mean over their own batch.

transformers 5.24 takes a model whose `forward` has `**kwargs` for one that divides its summed loss by
`num_items_in_batch`, and scales nothing itself. Marian, BART, M2M100, T5 and most other encoder-decoders swallow that
number and return the mean of each micro-batch: with n micro-batches, or n processes, their loss is n times too large,
against a guided loss too. Given this function as `compute_loss_func`, the Trainer asks them for logits alone.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from .collation import IGNORED_LABEL


def swallows_item_count(model: PreTrainedModel) -> bool:
    """Tell whether `model.forward` takes `num_items_in_batch` without heeding it.

    A model heeds it if its class says so (`accepts_loss_kwargs`), names it as an argument, or hands its `**kwargs` to
    the library's `loss_function`.
    """
    if hasattr(model, "accepts_loss_kwargs"):
        return False
    parameters = inspect.signature(model.forward).parameters
    swallows = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    forward = inspect.unwrap(type(model).forward)
    return swallows and "num_items_in_batch" not in parameters and "loss_function" not in forward.__code__.co_names


def has_router_loss(model: PreTrainedModel) -> bool:
    """Tell whether the model's loss has parts beside the cross-entropy, as mixtures of experts have."""
    return getattr(model.config, "router_aux_loss_coef", None) is not None


def mean_cross_entropy(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
    """Return the summed cross-entropy of labels divided by the labels of the whole step, in nats; float32 scalar.

    Args:
        outputs: with `logits` (B, T or longer, V), any float dtype.
        labels: (B, T) int64, -100 = padding.
        num_items_in_batch: labels of all micro-batches and processes of the step. None: those given here.
    """
    logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs[0]
    logits = logits[:, : labels.shape[1]].flatten(0, 1).float()
    total = F.cross_entropy(logits, labels.flatten().to(logits.device), ignore_index=IGNORED_LABEL, reduction="sum")
    if num_items_in_batch is None:
        num_items_in_batch = labels.ne(IGNORED_LABEL).sum()
    if isinstance(num_items_in_batch, Tensor):
        num_items_in_batch = num_items_in_batch.to(total.device).clamp(min=1)
    return total / num_items_in_batch
