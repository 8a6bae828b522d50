"""The maps that alignments are read from: arguments > choice saved with the model > its config > last layer, all heads.

A saved choice is read as a whole: its heads belong to its rows. Naming a layer, heads or other rows sets it aside.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .attention_maps import AttentionMaps, LayerChoice
from .capture import NoSuchNumberError
from .choices import alignment_heads, describe_layer, layers_to_extract
from .extraction import default_rows, extract
from .head_fit import HeadFit
from .head_words import mean_of_heads
from .saved_choice import AlignmentChoice, saved_choice
from .tokens import Sentence, TokenizedText

# Instead of numbers of heads: the logistic combination that was saved with the model.
FITTED = "fitted"
HeadsChoice = Sequence[int] | str | None


def choice_in_use(
    model: Any, align_with: str | None = None, layer: LayerChoice = None, heads: HeadsChoice = None
) -> AlignmentChoice | None:
    """Return the saved choice of a model if nothing else was asked for, else None.

    Args:
        model: a model, or the folder or Hub id that one is loaded from.
        align_with, layer, heads: as asked for; `heads` may be "fitted".

    Raises:
        ValueError: fitted heads were asked for and there are none, or together with a layer or other rows.
    """
    if isinstance(heads, str) and heads != FITTED:
        raise UnusableError(f"heads is {heads!r}; allowed are numbers, {FITTED!r} and None")
    if heads != FITTED and (heads is not None or layer is not None):
        return None
    choice = saved_choice(model)
    if heads == FITTED:
        if choice is None or choice.fit is None:
            raise UnusableError(
                f"heads is {FITTED!r}, but no fit was saved with the model; make one: heads MODEL SOURCE TARGET --gold "
                "DEV --fit --save"
            )
        if layer is not None or align_with is not None:
            raise UnusableError("fitted heads are of all layers and of their own rows; leave layer and align_with out")
        return choice
    if choice is None or align_with is None:
        return choice
    rows = (choice.align_with,) if choice.fit is None else choice.fit.rows
    return choice if rows == (align_with,) else None


def extract_chosen(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Sentence],
    targets: Sequence[Sentence] | None = None,
    *,
    align_with: str | None = None,
    layer: LayerChoice = None,
    heads: HeadsChoice = None,
    weights: str = "attention",
    **arguments: Any,
) -> Iterator[AttentionMaps]:
    """Yield the maps that alignments are read from, one for each pair; read them with `layer="all"`.

    Of a choice of heads from several layers they hold the mean alone; of a fit, the probability of every link of words,
    with words for tokens.

    Args:
        align_with, layer, heads: None = those saved with the model, else the config's, else the default; "fitted" for
            the saved fit.
        weights: as in `extract`; a fit has its own.
        arguments: the others of `extract`.

    Raises:
        ValueError: see `extract` and `choice_in_use`; or a fit without targets.
    """
    choice = choice_in_use(model, align_with, layer, heads)
    if choice is None:
        own_layer, own_heads = alignment_heads(model.config, layer, heads)  # type: ignore[arg-type]
        return extract(
            model,
            tokenizer,
            sources,
            targets,
            align_with=align_with,
            layers=layers_to_extract(own_layer),
            heads=own_heads,
            weights=weights,
            **arguments,
        )
    if choice.fit is not None:
        if targets is None:
            raise UnusableError("fitted heads are read in two passes over the same targets; give targets")
        maps = _fitted(model, tokenizer, sources, targets, choice, choice.fit, arguments)
    else:
        with _of_this_model(choice):
            maps = _of_heads(model, tokenizer, sources, targets, choice, weights, arguments)
    return _checked(maps, choice)


def extract_chosen_tokens(
    model: Any, tokenizer: Any, sources: Sequence[Sentence], targets: Sequence[Sentence], **arguments: Any
) -> Iterator[AttentionMaps]:
    """Yield what `extract_chosen` does, always token by token: a saved fit, which is of words, is set aside.

    Args:
        arguments: the others of `extract`.
    """
    choice = choice_in_use(model)
    if choice is None or choice.fit is None:
        return extract_chosen(model, tokenizer, sources, targets, **arguments)
    layer, heads = alignment_heads(model.config)
    return extract(model, tokenizer, sources, targets, layers=layers_to_extract(layer), heads=heads, **arguments)


def _checked(maps: Iterator[AttentionMaps], choice: AlignmentChoice) -> Iterator[AttentionMaps]:
    with _of_this_model(choice):
        yield from maps


@contextmanager
def _of_this_model(choice: AlignmentChoice) -> Iterator[None]:
    """Say of numbers that nobody asked for where they come from."""
    try:
        yield
    except NoSuchNumberError as error:
        raise UnusableError(
            f"the choice that was saved with the model, heads {choice.name}, is of another model: {error}. Choose anew "
            "(heads --save), or remove its alignment.json"
        ) from error


def describe_heads(
    model: Any, align_with: str | None = None, layer: LayerChoice = None, heads: HeadsChoice = None
) -> str:
    """Return in words which rows, layers and heads `extract_chosen` reads."""
    return ", ".join(f"{name} {value}" for name, value in name_heads(model, align_with, layer, heads).items())


def name_heads(
    model: Any, align_with: str | None = None, layer: LayerChoice = None, heads: HeadsChoice = None
) -> dict[str, str]:
    """Return the words of `describe_heads` under "rows", "layer" (not of a saved choice) and "heads"."""
    choice = choice_in_use(model, align_with, layer, heads)
    if choice is not None and choice.fit is not None:
        specials = "" if choice.fit.specials == "mask" else f" on specials {choice.fit.specials}"
        return {"rows": " and ".join(choice.fit.rows), "heads": f"{choice.name}{specials} (saved with the model)"}
    if choice is not None:
        return {"rows": choice.align_with, "heads": f"{choice.name} (saved with the model)"}
    own_layer, own_heads = alignment_heads(model.config, layer, heads)  # type: ignore[arg-type]
    name = "mean of all" if own_heads is None else ",".join(map(str, own_heads))
    return {"rows": align_with or default_rows(model.config), "layer": describe_layer(own_layer), "heads": name}


def _of_heads(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Sentence],
    targets: Sequence[Sentence] | None,
    choice: AlignmentChoice,
    weights: str,
    arguments: dict[str, Any],
) -> Iterator[AttentionMaps]:
    layers, heads = (sorted(set(numbers)) for numbers in zip(*choice.heads, strict=True))
    if weights != "attention" and len(layers) > 1:
        raise UnusableError(
            f"weights is {weights!r}, but the heads saved with the model, {choice.name}, are of several layers, whose "
            f"norms have no common scale; read weights='attention', or name a layer, the heads and the rows "
            f"(align_with={choice.align_with!r} is that of the saved heads)"
        )
    maps_of_pairs = extract(
        model,
        tokenizer,
        sources,
        targets,
        align_with=choice.align_with,
        layers=layers,
        heads=heads,
        weights=weights,
        **arguments,
    )
    # A rectangle of one layer is what the other functions average by themselves.
    if len(layers) == 1:
        return maps_of_pairs
    return (mean_of_heads(maps, choice.heads) for maps in maps_of_pairs)


def _fitted(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Sentence],
    targets: Sequence[Sentence],
    choice: AlignmentChoice,
    fit: HeadFit,
    arguments: dict[str, Any],
) -> Iterator[AttentionMaps]:
    passes = [
        extract(
            model,
            tokenizer,
            sources,
            targets,
            align_with=rows,
            layers=fit.layers,
            heads=fit.heads,
            weights=choice.weights,
            **arguments,
        )
        for rows in fit.rows
    ]
    for maps in zip(*passes, strict=True):
        probabilities = fit.probabilities(dict(zip(fit.rows, maps, strict=True)))
        yield _maps_of_words(maps[0], probabilities)


def _maps_of_words(maps: AttentionMaps, matrix: np.ndarray) -> AttentionMaps:
    """Return a matrix of words (T, S) as maps whose tokens are the words."""
    return AttentionMaps(
        weights=matrix[None, None],
        source=_words_as_tokens(maps.source),
        target=_words_as_tokens(maps.target),
        align_with=maps.align_with,
        layers=(0,),
        heads=(0,),
    )


def _words_as_tokens(text: TokenizedText) -> TokenizedText:
    count = len(text.words)
    return TokenizedText(
        text.text, list(range(count)), list(text.words), [None] * count, list(text.words), list(range(count))
    )
