"""Heat maps as pictures for papers: PNG, SVG, PDF, without a display, in any script."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .fonts import drawable_text, families, undrawable
from .formats import Gold, write_bytes_atomically
from .link_types import Link, Links

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
# A cell's side; of long sentences it is less, so that the picture stays within a printer's and a viewer's means.
_CELL_INCHES = 0.3
_LONGEST_SIDE_INCHES = 20
_LABEL_POINTS, _MARK_AREA = 9.0, 26.0
_GOLD_COLOUR, _LINK_COLOUR, _WRONG_COLOUR = "#b07d00", "#0b7a3b", "#c92a2a"


def draw_heatmap(
    matrix: np.ndarray,
    source: Sequence[str],
    target: Sequence[str],
    gold: Gold | None = None,
    ax: "Axes | None" = None,
    *,
    links: Iterable[Link] | None = None,
) -> "Axes":
    """Draw how much each target word (row) looks at each source word (column), and return the axes.

    Sure gold links are solid squares, possible ones dashed; `links` are dots, crosses where gold has no link.
    A character that no installed font has is shown as its code point, and a line under the picture says so (see
    `fonts`).

    Args:
        matrix: (T, S) float between 0 and 1.
        ax: axes to draw on; None makes a figure of fitting size (`ax.figure`).

    Raises:
        ValueError: matrix and words differ in size.
    """
    from matplotlib.figure import Figure

    matrix = check_heatmap(matrix, source, target)
    size = 1.0
    if ax is None:
        longest = max((len(word) for word in (*source, *target)), default=1)
        cell = min(_CELL_INCHES, _LONGEST_SIDE_INCHES / max(len(source), len(target), 1))
        size = cell / _CELL_INCHES
        width, height = (1.2 + 0.09 * min(longest, 24) + cell * max(count, 1) for count in (len(source), len(target)))
        ax = Figure(figsize=(width, height), layout="constrained").add_subplot()
    # An empty side still gets an empty picture.
    ax.imshow(
        matrix if matrix.size else np.zeros((1, 1)),
        cmap="Blues",
        vmin=0,
        vmax=1,
        aspect="equal",
        interpolation="nearest",
    )
    _label(ax, source, target, size)
    if gold is not None:
        _outline(ax, gold.possible - gold.sure, _GOLD_COLOUR, "dashed", size)
        _outline(ax, gold.sure, _GOLD_COLOUR, "solid", size)
    wrong = frozenset(links or ()) - gold.possible if gold is not None else frozenset()
    _mark(ax, frozenset(links or ()) - wrong, _LINK_COLOUR, "o", size)
    _mark(ax, wrong, _WRONG_COLOUR, "X", size)
    return ax


def save_heatmap(
    path: str | Path,
    matrix: np.ndarray,
    source: Sequence[str],
    target: Sequence[str],
    gold: Gold | None = None,
    *,
    links: Links | None = None,
    title: str | None = None,
) -> None:
    """Write one heat map as `.png`, `.svg` or `.pdf`; arguments as in `draw_heatmap`.

    The same input gives the same bytes.

    Raises:
        ValueError: another suffix.
        InputError: a place that cannot be written.
    """
    import matplotlib

    path = Path(path)
    if path.suffix not in PICTURE_SUFFIXES:
        raise ValueError(f"path is {str(path)!r}; allowed suffixes are {', '.join(PICTURE_SUFFIXES)}")
    # Text stays text in SVG and PDF; a fixed salt and no date make the files reproducible.
    with matplotlib.rc_context({"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "heatmap"}):
        ax = draw_heatmap(matrix, source, target, gold, links=links)
        figure = ax.get_figure(root=True)
        assert figure is not None
        if title:
            figure.suptitle(drawable_text(title), fontsize=10, fontfamily=families(title), parse_math=False)
        metadata = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[path.suffix]
        kind = path.suffix.removeprefix(".")
        write_bytes_atomically(
            path, lambda temporary: figure.savefig(temporary, dpi=200, format=kind, metadata=metadata)
        )


def check_heatmap(matrix: np.ndarray, source: Sequence[str], target: Sequence[str]) -> np.ndarray:
    """Return `matrix` as float array (T, S), or raise a ValueError if it does not fit the words."""
    matrix = np.asarray(matrix, dtype=float)
    if matrix.shape != (len(target), len(source)):
        raise ValueError(
            f"matrix has shape {matrix.shape}, but there are {len(target)} target and {len(source)} source words; "
            "one row for each target word, one column for each source word"
        )
    if not np.isfinite(matrix).all():
        raise ValueError("matrix holds NaN or infinite weights; the model that made it is broken")
    return matrix


def _label(ax: "Axes", source: Sequence[str], target: Sequence[str], size: float) -> None:
    from matplotlib.ticker import NullLocator

    ax.xaxis.tick_top()
    # A label is as high as 0.85 of its cell at most.
    points = min(_LABEL_POINTS, 0.85 * 72 * _CELL_INCHES * size)
    for axis, words in ((ax.xaxis, source), (ax.yaxis, target)):
        axis.set_ticks(range(len(words)), [drawable_text(word) for word in words], fontsize=points, parse_math=False)
        axis.set_minor_locator(NullLocator())
        for tick, word in zip(axis.get_major_ticks(), words, strict=True):
            # Label 2 is the one at the top.
            tick.label1.set_fontfamily(families(word))
            tick.label2.set_fontfamily(families(word))
    for tick in ax.xaxis.get_major_ticks():
        tick.label2.set(rotation=55, ha="left", va="bottom", rotation_mode="anchor")
    ax.tick_params(length=0, pad=3)
    for side in ax.spines.values():
        side.set_color("#c9ced6")
    ax.set_xticks(np.arange(1, len(source)) - 0.5, minor=True)
    ax.set_yticks(np.arange(1, len(target)) - 0.5, minor=True)
    ax.grid(which="minor", color="#eceff3", linewidth=0.6 * size)
    ax.tick_params(which="minor", length=0)
    lost = undrawable([*source, *target])
    if lost:
        ax.set_xlabel(f"no installed font has {lost}: install Noto fonts, or use the HTML view", fontsize=7)


def _mark(ax: "Axes", links: Links, colour: str, marker: str, size: float) -> None:
    if links:
        columns, rows = zip(*sorted(links), strict=True)
        area = _MARK_AREA * size**2
        ax.scatter(
            columns, rows, s=area, marker=marker, color=colour, edgecolors="white", linewidths=0.7 * size, zorder=3
        )


def _outline(ax: "Axes", links: Iterable[Link], colour: str, style: str, size: float) -> None:
    from matplotlib.patches import Rectangle

    look: dict[str, Any] = dict(fill=False, edgecolor=colour, linewidth=1.5 * size, linestyle=style, zorder=2)
    for i, j in sorted(links):
        ax.add_patch(Rectangle((i - 0.42, j - 0.42), 0.84, 0.84, **look))
