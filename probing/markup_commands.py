"""Translate text with markup: tags out, text through the model, tags back by the model's own alignment."""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.limits import max_positions
from hf_seq2seq_attn.text_files import InputError, read_lines
from hf_seq2seq_attn.tokenizer_pair import sides

from .baselines import diagonal_links
from .chosen_maps import extract_chosen_tokens
from .link_commands import remark
from .markup import MarkedDocument, parse_markup
from .markup_layout import render
from .placeholders import placeholders
from .spans import PieceAlignment, pieces_of_links, pieces_of_maps

Translate = Callable[[list[str]], list[str]]
Align = Callable[[list[str], list[str]], Iterable[PieceAlignment]]


def translate_markup(
    model: Any,
    tokenizer: Any,
    document: str,
    kind: str,
    *,
    num_beams: int = 4,
    batch_size: int = 32,
    name: str = "markup",
    **generation: Any,
) -> str:
    """Translate the text of a document and leave its markup: as many lines, every tag exactly once, byte for byte.

    Each line is a sentence; one without a letter or digit stays as it is. Where the tags go: see `markup`.
    Placeholders (`{name}`, `%s`, `{{ x }}`) are translated as part of the text; where a translation does not have
    them all letter by letter, the line is translated again without them, and they are put back like void elements.

    Args:
        model, tokenizer: as in `translate`; the alignment is read as in `align`.
        kind: `html` or `xml`, see `tokenize_markup`.
        num_beams, batch_size, generation: as in `translate`.
        name: of the document, for messages.

    Raises:
        InputError: XML that is not well formed, naming line and column; a line too long for the model.
        ValueError: as in `translate` and `align`.
    """
    from hf_seq2seq_attn.translation import SentenceTooLongError, translate

    marked = parse_markup(document, kind, name)
    numbers = [line.number for line in marked.lines() if line.is_translatable]

    def translate_lines(texts: list[str], numbers: Sequence[int]) -> list[str]:
        try:
            found = translate(model, tokenizer, texts, num_beams=num_beams, batch_size=batch_size, **generation)
        except SentenceTooLongError as error:
            raise InputError(f"{name}:{numbers[error.number - 1]}: {error}") from error
        return [" ".join(text.split()) for text in found]

    # Of nothing, so that a model without attention is refused before the work.
    list(_align(model, tokenizer, [], [], batch_size))
    first = translate_lines([line.text for line in marked.lines() if line.is_translatable], numbers)
    return transfer_markup(
        marked,
        first,
        lambda texts, at: translate_lines(texts, at),
        lambda sources, targets: _align(model, tokenizer, sources, targets, batch_size),
    )


def transfer_markup(
    marked: MarkedDocument,
    translations: Sequence[str],
    translate_again: Callable[[list[str], Sequence[int]], list[str]],
    align: Align,
) -> str:
    """Put the markup of a document into its translation.

    Args:
        translations: of the text of each translatable line.
        translate_again: called with the texts, less their placeholders, and the numbers of the lines whose translation
            lacks a placeholder.
        align: called with texts and translations; gives the links between their pieces.
    """
    lines = list(marked.lines())
    places = [place for place, line in enumerate(lines) if line.is_translatable]
    found = dict(zip(places, translations, strict=True))
    broken = [place for place in places if placeholders(lines[place].text) != placeholders(found[place])]
    if broken:
        hidden = list(marked.lines(hide_placeholders=True))
        for place in broken:
            lines[place] = hidden[place]
        again = [place for place in broken if lines[place].is_translatable]
        for place in set(broken) - set(again):
            places.remove(place)
        texts = translate_again([lines[place].text for place in again], [lines[place].number for place in again])
        found.update(zip(again, texts, strict=True))
    done = [line.raw for line in lines]
    alignments = align([lines[place].text for place in places], [found[place] for place in places])
    for place, pieces in zip(places, alignments, strict=True):
        done[place] = render(lines[place], pieces)
    return "\n".join(done)


def translate_markup_file(
    model_name: str | Path, path: Path | None, kind: str, *, num_beams: int = 4, batch_size: int = 32
) -> None:
    """Translate a file with markup, or standard input where `path` is None, to standard output; see `translate_markup`.

    Raises:
        InputError: a bad file, markup or model; names line and column.
    """
    from hf_seq2seq_attn.translation import load_seq2seq, read_stdin

    if kind not in ("html", "xml"):
        raise InputError(f"--markup {kind}: allowed are html and xml")
    lines = read_stdin() if path is None else read_lines(path)
    name = str(path or "stdin")
    document = "\n".join(lines)
    parse_markup(document, kind, name)
    model, tokenizer = load_seq2seq(model_name)
    try:
        result = translate_markup(
            model, tokenizer, document, kind, num_beams=num_beams, batch_size=batch_size, name=name
        )
    except UnusableError as error:
        raise InputError(f"{name}: {error}") from error
    if lines:
        sys.stdout.write(result + "\n")


def _align(
    model: Any, tokenizer: Any, sources: list[str], targets: list[str], batch_size: int
) -> Iterable[PieceAlignment]:
    """Yield the links between the pieces of each pair, as the model's attention has them.

    A translation that has more tokens, read anew, than the model has positions is linked along the diagonal.
    """
    positions = max_positions(model.config, "target")
    _, target_tokenizer = sides(tokenizer)
    too_long = {
        row
        for row, text in enumerate(targets)
        if positions is not None and text and len(target_tokenizer(text_target=text)["input_ids"]) + 2 > positions
    }
    if too_long:
        remark(
            f"remark: the tags of {len(too_long)} lines are placed without attention: their translation is longer than "
            f"the model's {positions} positions"
        )
    readable = ["" if row in too_long else text for row, text in enumerate(targets)]
    maps_of_pairs = extract_chosen_tokens(model, tokenizer, sources, readable, batch_size=batch_size)
    for row, maps in enumerate(maps_of_pairs):
        if row in too_long:
            words = sources[row].split(), targets[row].split()
            yield pieces_of_links(diagonal_links(*map(len, words)), sources[row], targets[row])
        else:
            yield pieces_of_maps(maps, layer="all")
