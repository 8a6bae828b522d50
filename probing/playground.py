"""The worked example as a page in which every vector can be edited and every step recomputes, offline.

The arithmetic of the page, forward and backward, is `playground_page/steps.js`: the formulas once more, in plain
JavaScript, held by the tests to what the modules compute.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from .playground_phrases import PLAYGROUND_PHRASES
from .walk_steps import checked_language
from .worked_example import (
    ADDITIVE_VECTOR,
    EMBEDDINGS,
    ENCODER,
    FUSIONS,
    LARGEST_NUMBER,
    OUTPUT,
    SOURCE,
    STATE,
    STEP,
    TARGET,
    check_vectors,
)
from .worked_updates import LEARNING_RATE, MATRICES

SCORINGS = ("dot_product", "scaled_dot_product", "additive")
DIGITS = (2, 3, 4, 6)
_ROW_NAMES: dict[str, Sequence[str]] = {
    "state": ("s₂",),
    "encoder": SOURCE,
    "v": ("v",),
    "output": TARGET,
}
_FILES = resources.files(__package__) / "playground_page"


def playground_page(
    state: Sequence[float] = STATE, encoder: Sequence[Sequence[float]] = ENCODER, lang: str = "en"
) -> str:
    """Return the page, whole, in English (`en`) or Chinese (`zh`); it loads nothing from anywhere.

    Args:
        state: the decoder state that the page starts from, 2 numbers.
        encoder: a pair for each source word.

    Raises:
        ValueError: other shapes, a number outside -`LARGEST_NUMBER`..`LARGEST_NUMBER`, or another language.
    """
    say = PLAYGROUND_PHRASES[checked_language(lang)]
    numbers = _numbers(state, encoder)
    scorings, fusions = ({kind: say[kind] for kind in kinds} for kinds in (SCORINGS, FUSIONS))
    data = {
        "numbers": numbers,
        "embeddings": EMBEDDINGS,
        "words": SOURCE,
        "targets": TARGET,
        "scorings": scorings,
        "fusions": fusions,
        "limit": LARGEST_NUMBER,
        "phrases": say,
    }
    parts = {name: escape(text) for name, text in say.items()}
    parts |= {
        f"fields.{name}": _rows(name, numbers[name], say) for name in ("state", "encoder", *MATRICES, "v", "output")
    }
    parts |= {
        "lang": lang,
        "css": _read("style.css"),
        "fields.rate": _field(("rate",), say["rate"]),
        "choices.scoring": _choices("scoring", scorings),
        "choices.fusion": _choices("fusion", fusions),
        "options.truth": _options(enumerate(TARGET)),
        "options.digits": _options(((count, str(count)) for count in DIGITS), chosen=3),
        "headers.weights": "".join(f"<th>a({escape(word)})</th>" for word in SOURCE),
        # No "<" at all, so that no text can end the script element.
        "data": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
        "arithmetic": _read("steps.js"),
        "behaviour": _read("page.js"),
    }
    # One pass, so that a value that holds "{{name}}" stays as it is.
    return re.sub(r"\{\{([\w.]+)\}\}", lambda match: parts[match[1]], _read("page.html"))


def _numbers(state: Sequence[float], encoder: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return what the page starts from, in the names of its script."""
    check_vectors(state, encoder)
    for vector in (state, *encoder):
        # Not a number fails this comparison too.
        if not all(abs(number) <= LARGEST_NUMBER for number in vector):
            raise ValueError(
                f"{list(vector)} has a number that does not lie in -{LARGEST_NUMBER:g}..{LARGEST_NUMBER:g}"
            )
    return {
        "state": [float(number) for number in state],
        "encoder": [[float(number) for number in row] for row in encoder],
        **{name: [[1.0, 0.0], [0.0, 1.0]] for name in MATRICES},
        "v": list(ADDITIVE_VECTOR),
        "output": [list(row) for row in OUTPUT],
        "scoring": "scaled_dot_product",
        "fusion": "concat",
        "truth": STEP,
        "rate": LEARNING_RATE,
    }


def _rows(name: str, values: Sequence[Any], say: Mapping[str, str]) -> str:
    """Return the fields of a vector, or of a matrix row by row; each has a name of its own for a screen reader."""
    is_matrix = isinstance(values[0], list)
    lines = []
    for row, columns in enumerate(values if is_matrix else [values]):
        head = _ROW_NAMES[name][row] if name in _ROW_NAMES else ""
        which = f"{say['field.' + name]} {head or row + 1}"
        fields = [
            _field((name, row, column) if is_matrix else (name, column),
                   say["field"].format(name=which, column=column + 1))
            for column in range(len(columns))
        ]  # fmt: skip
        shown = f"<span>{escape(head)}</span>" if head else ""
        lines.append(f'<div class="row">{shown}{"".join(fields)}</div>')
    return "".join(lines)


def _field(path: Sequence[str | int], label: str) -> str:
    words = [str(part) for part in path]
    return (
        f'<input type="text" inputmode="decimal" id="{"-".join(words)}" data-path="{" ".join(words)}" '
        f'aria-label="{escape(label)}" aria-invalid="false">'
    )


def _choices(name: str, kinds: Mapping[str, str]) -> str:
    return "".join(
        f'<label><input type="radio" name="{name}" id="{name}-{kind}" value="{kind}">{escape(label)}</label>'
        for kind, label in kinds.items()
    )


def _options(choices: Iterable[tuple[int, str]], chosen: int | None = None) -> str:
    return "".join(
        f'<option value="{value}"{" selected" if value == chosen else ""}>{escape(label)}</option>'
        for value, label in choices
    )


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")
