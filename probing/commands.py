"""What the probing commands do with files. Results go to files or stdout, progress and remarks to stderr."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError, read_aligned

from .attention_maps import LayerChoice
from .choices import check_choices, fill_choices
from .chosen_maps import FITTED, choice_in_use, describe_heads, extract_chosen
from .extraction import SentenceError, check_rows
from .formats import Gold
from .heatmap import PICTURE_SUFFIXES, save_heatmap
from .heatmap_svg import SentenceView
from .link_commands import read_reported, remark
from .links import extract_links
from .progress import progress_bar
from .sinks import SinkTally
from .view import write_view
from .words import to_words


def view_files(
    model_name: str,
    source: Path,
    target: Path,
    output: Path,
    *,
    gold: Path | None,
    sentence: int,
    align_with: str | None,
    layer: str | int | None,
    heads: str,
    specials: str | None,
    links: str | None,
    batch_size: int,
    weights: str | None = None,
    source_prefix: str = "",
    source_language: str | None = None,
    target_language: str | None = None,
) -> None:
    """Draw the heat maps of two text files: every pair as one HTML page, or one pair as a picture."""
    from hf_seq2seq_attn.translation import load_seq2seq

    if output.suffix not in (".html", *PICTURE_SUFFIXES):
        raise InputError(f"{output}: allowed suffixes are .html, {', '.join(PICTURE_SUFFIXES)}; rename the output")
    sources, targets, manual = _read_pairs(source, target, gold, None if output.suffix == ".html" else sentence)
    chosen_layer, chosen = _checked_heads(layer, heads, align_with)
    with _refused(source, target):
        choice = choice_in_use(model_name, align_with, chosen_layer, chosen)
        how = fill_choices(choice, weights=weights, specials=specials, links=links)
        check_choices(align_with, subwords="matrix", **how)
        model, tokenizer = load_seq2seq(model_name)
        fitted = choice is not None and choice.fit is not None
        views, sinks = [], SinkTally()
        with progress_bar("reading attention") as progress:
            maps_of_pairs = extract_chosen(
                model,
                tokenizer,
                sources,
                targets,
                align_with=align_with,
                batch_size=batch_size,
                layer=chosen_layer,
                heads=chosen,
                weights=how["weights"],
                source_prefix=source_prefix,
                source_language=source_language,
                target_language=target_language,
            )
            for maps, gold_links in zip(maps_of_pairs, manual, strict=True):
                if not fitted:
                    sinks.add(maps, layer="all")
                words = to_words(maps, layer="all", specials=how["specials"])
                found = extract_links(words.weights, how["links"], words.null)
                views.append(SentenceView(maps.source_words, maps.target_words, words.weights, found, gold_links))
                progress(len(views), len(sources))
    note = f"{describe_heads(model, align_with, chosen_layer, chosen)}, specials {how['specials']}"
    if how["weights"] != "attention":
        note += f", weights {how['weights']}"
    if output.suffix == ".html":
        write_view(output, views, title=f"Attention of {model_name}", note=f"{len(views)} sentence pairs; {note}")
    else:
        view = views[0]
        save_heatmap(output, view.matrix, view.source, view.target, view.gold, links=view.links)
    remark(f"{output}: {len(views)} pairs; {note}")
    if not fitted:
        remark(sinks.describe())


def _read_pairs(
    source: Path, target: Path, gold: Path | None, sentence: int | None
) -> tuple[list[str], list[str], list[Gold | None]]:
    """Return the lines of both sides and their manual links; with `sentence`, counted from 1, of that line only."""
    sources, targets = read_aligned(source, target)
    manual: list[Gold | None] = [None] * len(sources)
    if gold is not None:
        texts = [[line.split() for line in lines] for lines in (sources, targets)]
        manual = list(read_reported(gold, None, texts).sentences)
    if sentence is None:
        return sources, targets, manual
    if not 1 <= sentence <= len(sources):
        raise InputError(f"{source}: has {len(sources)} lines, so there is no sentence {sentence}; choose another")
    one = slice(sentence - 1, sentence)
    return sources[one], targets[one], manual[one]


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


def _checked_heads(
    layer: str | int | None, heads: str, align_with: str | None
) -> tuple[LayerChoice, list[int] | str | None]:
    """Return layers and heads by number; refuse, before there is a model, what nobody knows."""
    try:
        if align_with is not None:
            check_rows(align_with)
        return parse_layer(layer), parse_heads(heads)
    except ValueError as error:
        raise InputError(str(error)) from error


@contextmanager
def _refused(source: Path, target: Path) -> Iterator[None]:
    """Turn what the rooms refuse into bad input, with file and line where a sentence is meant."""
    try:
        yield
    except SentenceError as error:
        raise InputError(f"{source if error.side == 'source' else target}:{error.number}: {error.what}") from error
    except UnusableError as error:
        raise InputError(str(error)) from error
