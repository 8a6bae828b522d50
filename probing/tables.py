"""A table of results as LaTeX (booktabs), CSV or JSON, which says where its numbers come from.

CSV repeats the record in columns of its own, so that any reader of CSV takes it; LaTeX has it in comments above the
tabular, which is made to be read in by `\\input`.
"""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.text_files import InputError

from .formats import write_atomically

TABLE_SUFFIXES = (".tex", ".csv", ".json")
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """Rows of named columns, and the record that says what made them.

    Attributes:
        columns: the names, in order.
        rows: one value for each column; None = nothing to say.
        record: models, revisions, versions, choices: JSON values.
        bold: the row that stands out in LaTeX, from 0; None = none.
    """

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    record: Mapping[str, Any]
    bold: int | None = None

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"row {number} has {len(row)} values for {len(self.columns)} columns")

    def as_csv(self) -> str:
        """Return the table as CSV (RFC 4180) with a header; the record is in the last columns, the same in each row."""
        stream = io.StringIO()
        writer = csv.writer(stream)
        record = {f"record.{name}": value for name, value in _flat(self.record)}
        writer.writerow([*self.columns, *record])
        for row in self.rows:
            writer.writerow(["" if value is None else value for value in (*row, *record.values())])
        return stream.getvalue()

    def as_latex(self, digits: int = 4) -> str:
        """Return a booktabs tabular, numbers right-aligned with so many digits, the record in comments above it."""
        numeric = [
            all(isinstance(row[place], int | float | None) and not isinstance(row[place], bool) for row in self.rows)
            for place in range(len(self.columns))
        ]
        lines = [
            "% needs \\usepackage{booktabs}",
            *(f"% {name}: {_one_line(value)}" for name, value in _flat(self.record)),
            rf"\begin{{tabular}}{{{''.join('r' if each else 'l' for each in numeric)}}}",
            r"\toprule",
            " & ".join(map(latex_text, self.columns)) + r" \\",
            r"\midrule",
        ]
        for number, row in enumerate(self.rows):
            cells = [_latex_cell(value, digits) for value in row]
            if number == self.bold:
                cells = [rf"\textbf{{{cell}}}" if cell else cell for cell in cells]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    def as_dict(self) -> dict[str, Any]:
        """Return the rows as objects, beside the record: plain JSON values."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"record": dict(self.record), "rows": rows}


def write_table(path: str | Path, table: Table, content: Mapping[str, Any] | None = None) -> None:
    """Write a table in the form that the suffix names.

    Args:
        content: what a JSON file holds instead of `table.as_dict()`, with more than a table can show.

    Raises:
        InputError: another suffix, or a file that cannot be written.
    """
    path = Path(path)
    check_table_suffix(path)
    if path.suffix == ".json":
        write_atomically(path, [as_json(table.as_dict() if content is None else content) + "\n"])
    elif path.suffix == ".csv":
        write_atomically(path, [table.as_csv()])
    else:
        write_atomically(path, [table.as_latex()])


def check_table_suffix(path: Path) -> None:
    """Raise an InputError unless `write_table` knows the suffix."""
    if path.suffix not in TABLE_SUFFIXES:
        raise InputError(f"{path}: allowed suffixes are {', '.join(TABLE_SUFFIXES)}; rename the output")


def as_json(content: Mapping[str, Any]) -> str:
    """Return JSON without NaN, which JSON does not know."""
    return json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)


def latex_text(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    return "".join(_LATEX.get(character, character) for character in _one_line(text))


def _latex_cell(value: Cell, digits: int) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        if not math.isfinite(value):
            return "--"
        # A hyphen is no minus sign.
        return f"{value:.{digits}f}" if value >= 0 else f"$-${-value:.{digits}f}"
    return latex_text(str(value))


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Cell]]:
    """Yield the values of nested objects under names with dots; lists as JSON."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple) else value


def _one_line(value: object) -> str:
    return " ".join(str(value).split())
