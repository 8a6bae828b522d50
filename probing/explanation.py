"""A text of numbered steps with formulas, tokens, vectors and tables, before it is written in some format.

Every piece knows how it reads as plain text, as TeX and as HTML; `explanation_formats` puts them together. What comes
from a user's text is a `Token`, so that no format can take it for markup.
"""

import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

# Vectors longer than this are folded: the first numbers, then how many there are in all.
NUMBERS_SHOWN = 4


class Formula(NamedTuple):
    """A piece of mathematics; `html` is markup, the other two are not."""

    plain: str
    tex: str
    html: str


class Token(str):
    """Text of the user's."""

    __slots__ = ()


class Share(float):
    """A part of 1, drawn as a bar where the format can."""

    __slots__ = ()


Part = str | Formula | Token | Share
Sentence = tuple[Part, ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells below a header; the first cell of a row names it."""

    header: tuple[Sentence, ...]
    rows: tuple[tuple[Sentence, ...], ...]


@dataclass(frozen=True)
class Step:
    """One numbered step: its title, what is said, numbers in a table or a drawing in letters, what is said after."""

    title: str
    text: Sentence
    table: Table | None = None
    after: Sentence = ()
    drawing: str = ""


def fill(template: str, **parts: Part | Sentence) -> Sentence:
    """Return the template as parts, its `{names}` replaced.

    Raises:
        KeyError: a name without a part.
    """
    pieces: list[Part] = []
    for text, name, _, _ in string.Formatter().parse(template):
        if text:
            pieces.append(text)
        if name is not None:
            part = parts[name]
            # A Formula is a tuple too, but one piece.
            pieces += part if isinstance(part, tuple) and not isinstance(part, Formula) else [part]
    return tuple(pieces)


def formula(plain: str, tex: str | None = None, html: str | None = None) -> Formula:
    """Return a formula; TeX and HTML are the plain form where they are not given."""
    return Formula(plain, plain if tex is None else tex, plain if html is None else html)


def table(header: Iterable[Part | Sentence], rows: Iterable[Iterable[Part | Sentence]]) -> Table:
    """Return a table of cells that are each a part or several."""
    return Table(_cells(header), tuple(_cells(row) for row in rows))


def number(value: float, digits: int = 3) -> Formula:
    """Write a number with `digits` decimals, or three digits in all where it is large."""
    text = f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.3g}"
    return formula(text, html=text.replace("-", "&minus;"))


def vector(values: Sequence[float] | np.ndarray | None, digits: int = 3) -> Formula:
    """Write a vector: all of up to `NUMBERS_SHOWN` numbers, else the first ones and how many there are."""
    if values is None:
        return formula("")
    shown = [number(float(value), digits) for value in values[:NUMBERS_SHOWN]]
    joined = Formula(*(", ".join(form) for form in zip(*shown, strict=True))) if shown else formula("")
    if not is_folded(values):
        return Formula(f"[{joined.plain}]", f"[{joined.tex}]", f"[{joined.html}]")
    return Formula(
        f"[{joined.plain}, … ({len(values)})]",
        rf"[{joined.tex}, \dots\ ({len(values)})]",
        f"[{joined.html}, &hellip; ({len(values)})]",
    )


def is_folded(values: Sequence[float] | np.ndarray) -> bool:
    """Tell whether `vector` shows only the first numbers."""
    return len(values) > NUMBERS_SHOWN


def plain_values(value: Any) -> Any:
    """Return a value as JSON knows it: arrays and tuples as lists, of dictionaries too."""
    if isinstance(value, dict):
        return {name: plain_values(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _cells(cells: Iterable[Part | Sentence]) -> tuple[Sentence, ...]:
    return tuple(cell if isinstance(cell, tuple) and not isinstance(cell, Formula) else (cell,) for cell in cells)
