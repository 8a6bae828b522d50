"""What `seq2seq-attn explain` does: the worked example, or one step of a trained model, in the format asked for."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError

from .explanation import Sentence, Step, number, table
from .explanation_formats import print_steps, to_html, to_latex, to_markdown, to_text
from .formats import write_atomically, write_bytes_atomically
from .playground import playground_page
from .refusals import refused
from .scaling import draw_scaling, model_scaling, random_scaling
from .walk_steps import checked_language, walk_steps, walk_title
from .walkthrough import walk_through
from .worked_example import ENCODER, LARGEST_NUMBER, STATE, worked_example
from .worked_steps import example_steps, example_title
from .worked_updates import update_steps, worked_updates

FORMATS = ("text", "md", "tex", "html", "json")
_SUFFIXES = {".txt": "text", ".html": "html", ".htm": "html", ".md": "md", ".tex": "tex", ".json": "json"}
_STATE = ",".join(map(str, STATE))
_ENCODER = " ".join(",".join(map(str, outputs)) for outputs in ENCODER)
_SCALING = (
    "of q·k for 32 random keys: variance of the scores, entropy of the weights as a share of the uniform one's, and "
    "the size of the gradient that softmax lets through."
)


def explain_example(
    state: str = _STATE,
    encoder: str = _ENCODER,
    updates: int = 5,
    *,
    output: Path | None = None,
    form: str | None = None,
    lang: str = "en",
) -> None:
    """Write the worked example for a state `a,b` and encoder outputs `a,b c,d e,f`, and some steps of learning."""
    form = _format(form, output)
    try:
        checked_language(lang)
        vectors = _vectors(state, encoder)
        example, learning = worked_example(*vectors), worked_updates(*vectors, updates=updates)
    except ValueError as error:
        raise InputError(f"explain --example: {error}") from error
    steps = example_steps(example, lang) + update_steps(learning, lang)
    _write(example_title(lang), steps, {**example.as_dict(), "updates": learning.as_dict()}, output, form, lang)


def explain_interactively(
    state: str = _STATE, encoder: str = _ENCODER, *, output: Path | None, lang: str = "en"
) -> None:
    """Write the worked example as a page whose numbers can be changed."""
    if output is None or _format(None, output) != "html":
        raise InputError(f"explain --interactive writes a page: -o is {output}; name a file.html")
    try:
        page = playground_page(*_vectors(state, encoder), lang=lang)
    except ValueError as error:
        raise InputError(f"explain --example: {error}") from error
    write_atomically(output, [page])


def explain_model(
    model_name: str,
    source: str,
    target: str | None,
    output: Path | None,
    *,
    step: int,
    layer: int | None,
    head: int | None,
    form: str | None = None,
    lang: str = "en",
    **reading: Any,
) -> None:
    """Write all numbers of one decoder step of a trained model; `reading` as in `walk_through`."""
    from hf_seq2seq_attn.translation import load_seq2seq

    form = _format(form, output)
    try:
        checked_language(lang)
        model, tokenizer = load_seq2seq(model_name)
        walk = walk_through(model, tokenizer, source, target, row=step, layer=layer, head=head, **reading)
    except UnusableError as error:
        raise InputError(f"explain {model_name}: {error}") from error
    _write(walk_title(walk, lang), walk_steps(walk, lang), walk.as_dict(), output, form, lang)


def show_scaling(
    model_name: str | None,
    source: Path | None,
    target: Path | None,
    output: Path | None,
    *,
    as_json: bool,
    **reading: Any,
) -> None:
    """Print why scores are scaled, on random vectors and, if there is one, on a trained model; draw it to `output`.

    Args:
        reading: `source_prefix`, `source_language`, `target_language` for the model, as in `extract`.
    """
    from hf_seq2seq_attn.text_files import read_aligned
    from hf_seq2seq_attn.translation import load_seq2seq

    rows = random_scaling()
    if model_name is not None:
        if source is None or target is None:
            raise InputError("scaling: a model needs SOURCE and TARGET texts to be measured on")
        texts = read_aligned(source, target)
        with refused(source, target):
            rows += model_scaling(*load_seq2seq(model_name), *texts, **reading)
    if as_json:
        sys.stdout.write(json.dumps([row.as_dict() for row in rows], indent=1) + "\n")
    else:
        header = ["", "d_k", "scores", "variance", "entropy", "gradient"]
        cells = [
            (row.source, str(row.width), "/ √d_k" if row.scaled else "as they are", number(row.variance),
             number(row.entropy), number(row.gradient))
            for row in rows
        ]  # fmt: skip
        sys.stdout.write(to_text(("Why scores are scaled",), [Step("Softmax", (_SCALING,), table(header, cells))]))
    if output is not None:
        write_bytes_atomically(output, lambda path: draw_scaling(rows).savefig(path, format=output.suffix[1:]))


def _write(
    title: Sentence, steps: Sequence[Step], numbers: dict[str, Any], output: Path | None, form: str, lang: str
) -> None:
    if output is None and form == "text" and sys.stdout.isatty():
        from rich.console import Console

        print_steps(title, steps, Console(highlight=False))
        return
    if form == "json":
        text = json.dumps(numbers, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    elif form == "html":
        text = to_html(title, steps, lang)
    else:
        text = {"text": to_text, "md": to_markdown, "tex": to_latex}[form](title, steps)
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, [text])


def _format(form: str | None, output: Path | None) -> str:
    """Return the format asked for, else the one that the output's suffix names; to standard output text."""
    if form is None:
        if output is None:
            return "text"
        if output.suffix not in _SUFFIXES:
            raise InputError(
                f"explain: {output}: the suffix names no format; allowed are {', '.join(_SUFFIXES)}, or give --format"
            )
        return _SUFFIXES[output.suffix]
    if form not in FORMATS:
        raise InputError(f"explain: format is {form!r}; allowed are {', '.join(FORMATS)}")
    return form


def _vectors(state: str, encoder: str) -> tuple[list[float], list[list[float]]]:
    return _pair(state), [_pair(row) for row in encoder.replace(";", " ").split()]


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
