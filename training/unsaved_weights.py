"""Weights that a model has but does not save."""

from torch import nn


def freeze_unsaved(model: nn.Module) -> None:
    """Freeze what `save_pretrained` leaves out: it could learn, and the saved model would be another than the trained.

    Marian's sinusoidal positions are such weights, which transformers 5.24 thaws when it loads a model.
    """
    left_out = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    names: dict[nn.Parameter, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, set()).add(name)
    for parameter, own in names.items():
        # Under another of its names a tied table is saved.
        if own <= left_out:
            parameter.requires_grad_(False)
