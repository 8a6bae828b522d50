"""Choices, fits, head reports and faithfulness as text for a terminal."""

import io
from collections.abc import Iterator, Sequence
from typing import Any

from .faithfulness import CAVEAT, TESTS, Faithfulness
from .head_choice import HeadChoice
from .head_fit import FitReport
from .head_report import FIGURES, HeadReport

_SHOWN = 10
_WIDTH = 160


def describe_choice(choice: HeadChoice) -> Iterator[str]:
    """Yield what was chosen and the best that were tried."""
    what = "agreement of the two directions" if choice.criterion == "agreement" else "AER on the development set"
    yield f"chosen: {choice.best.candidate.name}"
    yield f"{what} {choice.best.score:.4f} on {choice.pairs} pairs (specials {choice.specials}, links {choice.links})"
    if choice.reverse is not None:
        yield f"reverse model: {choice.reverse.name}"
    if choice.criterion == "aer":
        yield "on these pairs the score is too good: they chose it. Score a test set for the figure to report."
    rows = [(each.candidate.name, f"{each.score:.4f}") for each in choice.tried[:_SHOWN]]
    yield from _table([f"best of {len(choice.tried)} tried", choice.criterion], rows)


def describe_fit(found: FitReport) -> Iterator[str]:
    """Yield how a fit did on held-out pairs."""
    yield (
        f"fitted: {found.fit.weights.size} weights of rows, layers and heads, {found.pairs} pairs, l2 {found.l2:g}; "
        f"on held-out pairs ({found.folds} folds):"
    )
    yield f"AER {found.aer:.4f} with links of probability at least {found.fit.threshold:g}"
    yield (
        f"calibration error {found.ece:.4f} over all cells, {found.ece_links:.4f} over links; log loss "
        f"{found.log_loss:.4f}"
    )
    rows = [(f"{each['probability']:.3f}", f"{each['links']:.3f}", f"{each['cells']}") for each in found.bins]
    yield from _table(["mean probability", "share of links", "cells"], rows)


def report_table(report: HeadReport) -> Iterator[str]:
    """Yield the figures of every head as a table, then what they mean."""
    names = report.names
    rows = []
    for layer, number in enumerate(report.layers):
        for head, head_number in enumerate(report.heads):
            values = [report.figures[name][layer, head] for name in names]
            shown = (_figure(name, value) for name, value in zip(names, values, strict=True))
            rows.append((str(number), str(head_number), *shown))
    yield f"{report.pairs} pairs, {report.align_with} rows, specials {report.specials}, links {report.links}"
    yield from _table(["layer", "head", *(name.replace("_", " ") for name in names)], rows)
    for title, tags in (
        ("weight on source words", report.by_source_tag),
        ("confidence of target words", report.by_target_tag),
    ):
        if tags:
            yield f"{title} by part of speech"
            rows = [
                (str(number), str(head_number), *(f"{tags[tag][layer, head]:.3f}" for tag in tags))
                for layer, number in enumerate(report.layers)
                for head, head_number in enumerate(report.heads)
            ]
            yield from _table(["layer", "head", *tags], rows)
    for name in names:
        yield f"{name.replace('_', ' ')}: {FIGURES[name]}"


def describe_faithfulness(found: Faithfulness) -> Iterator[str]:
    """Yield each test with its figures, definition and caveat."""
    heads = ", ".join(f"{layer}.{head}" for layer, head in found.heads)
    yield f"{found.pairs} pairs, output rows, heads {heads} (layer.head)"
    for name, (definition, caveat) in TESTS.items():
        yield ""
        yield f"{name.replace('_', ' ')}: " + ", ".join(
            f"{key.replace('_', ' ')} {_shown(value)}" for key, value in getattr(found, name).items()
        )
        yield f"  is: {definition}"
        yield f"  but: {caveat}"
    if found.short:
        yield f"{found.short} pairs have fewer than two source words and count in the loss only"
    yield ""
    yield CAVEAT


def _figure(name: str, value: float) -> str:
    return f"{value:.0f}" if name == "offset" else f"{value:.4f}"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(map(_shown, value))
    return "-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def _table(columns: list[str], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    text = io.StringIO()
    # A file or a pipe has no width of its own, and a cut table is of no use.
    width = max(_WIDTH, 12 * len(columns))
    Console(file=text, width=width).print(table)
    yield from (line.rstrip() for line in text.getvalue().splitlines() if line.strip())
