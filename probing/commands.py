"""Layers and heads as a command line names them."""

from .attention_maps import LayerChoice
from .chosen_maps import FITTED


def parse_heads(text: str) -> list[int] | str | None:
    """Return the head numbers of `0,3`; None for `auto`, the model's own heads or the mean of all; "fitted" as it is.

    Raises:
        ValueError: none of these.
    """
    if text == "auto":
        return None
    if text == FITTED:
        return text
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"heads is {text!r}; write auto or numbers with commas, e.g. 0,3, or {FITTED}") from None


def parse_layer(text: str | int | None) -> LayerChoice:
    """Return the layer of `2`, the layers of `0,-1`, or "all"; None for `auto`, the config's layer or the last.

    Raises:
        ValueError: none of these.
    """
    if text is None or isinstance(text, int) or text == "all":
        return text
    if text == "auto":
        return None
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"layer is {text!r}; write auto, all, or numbers with commas, e.g. 2 or 0,-1") from None
    return numbers[0] if len(numbers) == 1 else numbers
