"""What the probing commands do with files. Results go to files or stdout, progress and remarks to stderr."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError, read_aligned

from .alignment import align, alignment_heads, check_choices
from .extraction import SentenceError, default_rows, extract
from .formats import Gold, format_links, write_atomically, write_links
from .heatmap import PICTURE_SUFFIXES, save_heatmap
from .heatmap_svg import SentenceView
from .link_commands import read_reported, remark
from .link_types import Links
from .links import extract_links
from .view import write_view
from .walkthrough import walk_page, walk_through
from .words import to_words
from .worked_example import format_example, worked_example

# Of the worked example: products of two such numbers are far from the largest float32.
LARGEST_NUMBER = 1e6


def align_files(
    model_name: str,
    source: Path,
    target: Path,
    output: Path | None,
    *,
    align_with: str | None,
    layer: int | None,
    heads: str,
    specials: str,
    subwords: str,
    links: str,
    batch_size: int,
) -> None:
    """Align two text files and write one line of Pharaoh links for each pair, to `output` or stdout."""
    from hf_seq2seq_attn.translation import load_seq2seq

    sources, targets = read_aligned(source, target)
    chosen = _checked_heads(heads, align_with, specials, subwords, links)
    with _refused(source, target):
        model, tokenizer = load_seq2seq(model_name)
        with _progress("aligning") as progress:
            found = align(
                model,
                tokenizer,
                sources,
                targets,
                align_with=align_with,
                layer=layer,
                heads=chosen,
                specials=specials,
                subwords=subwords,
                links=links,
                batch_size=batch_size,
                progress=progress,
            )
    _write(found, output)
    note = _describe(model, align_with, layer, chosen, specials)
    remark(f"{len(found)} pairs, {sum(map(len, found))} links; {note}, sub-words {subwords}, links {links}")


def view_files(
    model_name: str,
    source: Path,
    target: Path,
    output: Path,
    *,
    gold: Path | None,
    sentence: int,
    align_with: str | None,
    layer: int | None,
    heads: str,
    specials: str,
    links: str,
    batch_size: int,
) -> None:
    """Draw the heat maps of two text files: every pair as one HTML page, or one pair as a picture."""
    from hf_seq2seq_attn.translation import load_seq2seq

    if output.suffix not in (".html", *PICTURE_SUFFIXES):
        raise InputError(f"{output}: allowed suffixes are .html, {', '.join(PICTURE_SUFFIXES)}; rename the output")
    sources, targets = read_aligned(source, target)
    manual: list[Gold | None] = [None] * len(sources)
    if gold is not None:
        texts = [[line.split() for line in lines] for lines in (sources, targets)]
        manual = list(read_reported(gold, None, texts).sentences)
    if output.suffix != ".html":
        if not 1 <= sentence <= len(sources):
            raise InputError(f"{source}: has {len(sources)} lines, so there is no sentence {sentence}; choose another")
        chosen_pair = slice(sentence - 1, sentence)
        sources, targets, manual = sources[chosen_pair], targets[chosen_pair], manual[chosen_pair]
    chosen = _checked_heads(heads, align_with, specials, "matrix", links)
    with _refused(source, target):
        model, tokenizer = load_seq2seq(model_name)
        own_layer, own_heads = alignment_heads(model.config, layer, chosen)
        views = []
        with _progress("reading attention") as progress:
            maps_of_pairs = extract(
                model,
                tokenizer,
                sources,
                targets,
                align_with=align_with,
                batch_size=batch_size,
                layers=[own_layer],
                heads=own_heads,
            )
            for maps, gold_links in zip(maps_of_pairs, manual, strict=True):
                words = to_words(maps, specials=specials)
                found = extract_links(words.weights, links, words.null)
                views.append(SentenceView(maps.source_words, maps.target_words, words.weights, found, gold_links))
                progress(len(views), len(sources))
    note = _describe(model, align_with, layer, chosen, specials)
    if output.suffix == ".html":
        write_view(output, views, title=f"Attention of {model_name}", note=f"{len(views)} sentence pairs; {note}")
    else:
        view = views[0]
        save_heatmap(output, view.matrix, view.source, view.target, view.gold, links=view.links)
    remark(f"{output}: {len(views)} pairs; {note}")


def parse_heads(text: str) -> list[int] | None:
    """Return the head numbers of `0,3`; None for `auto`, the config's heads or the mean of all.

    Raises:
        ValueError: neither.
    """
    if text == "auto":
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"heads is {text!r}; write auto or numbers with commas, e.g. 0,3") from None


def explain_example(state: str, encoder: str) -> str:
    """Return the worked example as text, for a state `a,b` and encoder outputs `a,b c,d e,f`."""
    try:
        return format_example(worked_example(_pair(state), [_pair(row) for row in encoder.replace(";", " ").split()]))
    except ValueError as error:
        raise InputError(f"explain --example: {error}") from error


def explain_model(
    model_name: str, source: str, target: str, output: Path, *, step: int, layer: int | None, head: int | None
) -> None:
    """Write a page with all numbers of one decoder step of a trained model."""
    from hf_seq2seq_attn.translation import load_seq2seq

    model, tokenizer = load_seq2seq(model_name)
    try:
        walk = walk_through(model, tokenizer, source, target, row=step, layer=layer, head=head)
    except UnusableError as error:
        raise InputError(f"explain {model_name}: {error}") from error
    write_atomically(output, [walk_page(walk)])


def _pair(text: str) -> list[float]:
    """Read numbers separated by commas."""
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError as error:
        raise ValueError(f"{text!r} is not numbers separated by commas, as in 0.6,0.4") from error
    # Not a number fails this comparison too.
    if not all(abs(number) <= LARGEST_NUMBER for number in numbers):
        raise ValueError(f"{text!r} has a number that does not lie in -{LARGEST_NUMBER:g}..{LARGEST_NUMBER:g}")
    return numbers


def _describe(model: object, align_with: str | None, layer: int | None, heads: list[int] | None, specials: str) -> str:
    config = model.config  # type: ignore[attr-defined]
    layer, chosen = alignment_heads(config, layer, heads)
    name = "mean of all" if chosen is None else ",".join(map(str, chosen))
    return f"rows {align_with or default_rows(config)}, layer {layer}, heads {name}, specials {specials}"


def _write(found: Sequence[Links], output: Path | None) -> None:
    if output is None:
        sys.stdout.writelines(format_links(links) + "\n" for links in found)
    else:
        write_links(output, found)


def _checked_heads(heads: str, align_with: str | None, specials: str, subwords: str, links: str) -> list[int] | None:
    """Return the head numbers; refuse, before there is a model, what `align` does not know."""
    try:
        check_choices(align_with, specials, subwords, links)
        return parse_heads(heads)
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


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
