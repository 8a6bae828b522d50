"""The choices that decide an alignment: which are allowed, and what those that nobody made come to."""

from collections.abc import Sequence
from typing import Any, overload

from hf_seq2seq_attn.errors import UnusableError

from .attention_maps import WEIGHTS, LayerChoice
from .extraction import ROWS
from .links import check_extraction
from .words import SPECIALS, SUBWORDS


def fill_choices(choice: Any, **choices: str | None) -> dict[str, str]:
    """Return choices with those that are None filled in: from the saved `choice` of heads if one is read, else with
    the defaults "attention", "mask", "matrix" and "argmax".

    Args:
        choice: an `AlignmentChoice` or None.
        choices: by their names in `align`; None or "" = not chosen.

    Raises:
        ValueError: other weights, specials or sub-words than those of a saved fit.
    """
    if getattr(choice, "fit", None) is not None:
        for name in ("weights", "specials", "subwords"):
            if choices.get(name) not in (None, "", getattr(choice, name)):
                raise UnusableError(
                    f"{name} is {choices[name]!r}, but the fit that was saved with the model has its own; leave {name} "
                    "out, or name a layer or heads to read them instead of the fit"
                )
    defaults = {"weights": "attention", "specials": "mask", "subwords": "matrix", "links": "argmax"}
    return {name: str(value or getattr(choice, name, defaults[name])) for name, value in choices.items()}


def layers_to_extract(layer: LayerChoice) -> Sequence[int] | None:
    """Return the `layers` of `extract` that hold a choice of layers; None = all. Read them with `layer="all"`.

    Raises:
        ValueError: a name other than "all".
    """
    if isinstance(layer, str):
        if layer != "all":
            raise UnusableError(f"layer is {layer!r}; give a number, several numbers, or 'all'")
        return None
    return [-1] if layer is None else [layer] if isinstance(layer, int) else list(layer)


def describe_layer(layer: LayerChoice) -> str:
    """Return a choice of layers in words, e.g. `-1` or `mean of 0,2`."""
    if layer is None or isinstance(layer, int):
        return str(-1 if layer is None else layer)
    return "mean of " + (layer if isinstance(layer, str) else ",".join(map(str, layer)))


@overload
def alignment_heads(
    config: Any, layer: int | None = None, heads: Sequence[int] | None = None
) -> tuple[int, Sequence[int] | None]: ...


@overload
def alignment_heads(
    config: Any, layer: LayerChoice = None, heads: Sequence[int] | None = None
) -> tuple[int | Sequence[int] | str, Sequence[int] | None]: ...


def alignment_heads(
    config: Any, layer: LayerChoice = None, heads: Sequence[int] | None = None
) -> tuple[Any, Sequence[int] | None]:
    """Return the layer and heads to read alignments from: those given, else the config's, else the last layer, all
    heads.

    The config's heads belong to the config's layer: another layer is read with all its heads unless heads are given.
    """
    own_layer = getattr(config, "alignment_layer", None)
    own_layer = -1 if own_layer is None else own_layer
    if heads is None and (layer is None or _is_same_layer(config, layer, own_layer)):
        heads = getattr(config, "alignment_heads", None)
    return own_layer if layer is None else layer, heads


def _is_same_layer(config: Any, layer: LayerChoice, own: int) -> bool:
    """Say whether two numbers, from the start or from the end, name one layer of attention."""
    count = 1 if getattr(config, "decoder_is_recurrent", False) else getattr(config, "decoder_layers", None)
    if not isinstance(layer, int) or not count:
        return layer == own
    return layer % count == own % count


def check_choices(align_with: str | None, specials: str, subwords: str, links: str, weights: str = "attention") -> None:
    """Raise a ValueError unless each choice is one that `align` knows."""
    for name, value, allowed in (
        ("align_with", align_with, (None, *ROWS)),
        ("specials", specials, SPECIALS),
        ("subwords", subwords, SUBWORDS),
        ("weights", weights, WEIGHTS),
    ):
        if value not in allowed:
            raise UnusableError(f"{name} is {value!r}; allowed are {', '.join(str(each) for each in allowed if each)}")
    check_extraction(links)
