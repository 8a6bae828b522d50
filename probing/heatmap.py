"""Heat maps as pictures for papers: PNG, SVG, PDF, without a display, in any script."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .formats import Gold
from .link_types import Link, Links

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
_CELL_INCHES = 0.3
_NO_GLYPH = "▯"
# Tried in this order for characters that DejaVu Sans (part of matplotlib) lacks.
_PREFERRED_FONTS = (
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans Hebrew",
    "Noto Naskh Arabic",
    "Noto Sans Arabic",
    "Noto Emoji",
    "Hiragino Sans",
    "PingFang SC",
    "Microsoft YaHei",
    "Arial Unicode MS",
)
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
    Characters that no installed font has are shown as ▯, and a line under the picture says so.

    Args:
        matrix: (T, S) float between 0 and 1.
        ax: axes to draw on; None makes a figure of fitting size (`ax.figure`).

    Raises:
        ValueError: matrix and words differ in size.
    """
    from matplotlib.figure import Figure

    matrix = check_heatmap(matrix, source, target)
    if ax is None:
        longest = max((len(word) for word in (*source, *target)), default=1)
        width, height = (
            1.2 + 0.09 * min(longest, 24) + _CELL_INCHES * max(count, 1) for count in (len(source), len(target))
        )
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
    _label(ax, source, target)
    if gold is not None:
        _outline(ax, gold.possible - gold.sure, _GOLD_COLOUR, "dashed")
        _outline(ax, gold.sure, _GOLD_COLOUR, "solid")
    wrong = frozenset(links or ()) - gold.possible if gold is not None else frozenset()
    _mark(ax, frozenset(links or ()) - wrong, _LINK_COLOUR, "o")
    _mark(ax, wrong, _WRONG_COLOUR, "X")
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
            figure.suptitle(_showable(title)[0], fontsize=10, fontfamily=list(_families(title)), parse_math=False)
        metadata = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[path.suffix]
        figure.savefig(path, dpi=200, metadata=metadata)


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


def _label(ax: "Axes", source: Sequence[str], target: Sequence[str]) -> None:
    from matplotlib.ticker import NullLocator

    ax.xaxis.tick_top()
    lost: set[str] = set()
    for axis, words in ((ax.xaxis, source), (ax.yaxis, target)):
        shown = []
        for word in words:
            text, missing = _showable(word)
            lost |= missing
            shown.append(text)
        axis.set_ticks(range(len(words)), shown, fontsize=9, parse_math=False)
        axis.set_minor_locator(NullLocator())
        for tick, word in zip(axis.get_major_ticks(), words, strict=True):
            # Label 2 is the one at the top.
            tick.label1.set_fontfamily(list(_families(word)))
            tick.label2.set_fontfamily(list(_families(word)))
    for tick in ax.xaxis.get_major_ticks():
        tick.label2.set(rotation=55, ha="left", va="bottom", rotation_mode="anchor")
    ax.tick_params(length=0, pad=3)
    for side in ax.spines.values():
        side.set_color("#c9ced6")
    ax.set_xticks(np.arange(1, len(source)) - 0.5, minor=True)
    ax.set_yticks(np.arange(1, len(target)) - 0.5, minor=True)
    ax.grid(which="minor", color="#eceff3", linewidth=0.6)
    ax.tick_params(which="minor", length=0)
    if lost:
        codes = " ".join(f"U+{ord(character):04X}" for character in sorted(lost)[:6])
        ax.set_xlabel(f"{_NO_GLYPH} no installed font has {codes}; install Noto fonts or use the HTML view", fontsize=7)


def _mark(ax: "Axes", links: Links, colour: str, marker: str) -> None:
    if links:
        columns, rows = zip(*sorted(links), strict=True)
        ax.scatter(columns, rows, s=26, marker=marker, color=colour, edgecolors="white", linewidths=0.7, zorder=3)


def _outline(ax: "Axes", links: Iterable[Link], colour: str, style: str) -> None:
    from matplotlib.patches import Rectangle

    for i, j in sorted(links):
        ax.add_patch(
            Rectangle(
                (i - 0.42, j - 0.42), 0.84, 0.84, fill=False, edgecolor=colour, linewidth=1.5, linestyle=style, zorder=2
            )
        )


def _showable(text: str) -> tuple[str, set[str]]:
    """Return `text` with every character that no font has replaced, and these characters."""
    missing = {character for character in text if _font_of(character) is None}
    return "".join(_NO_GLYPH if character in missing else character for character in text), missing


def _families(text: str) -> tuple[str, ...]:
    """Return the font families that `text` needs, DejaVu Sans first."""
    needed = (_font_of(character) for character in text)
    return tuple(dict.fromkeys(("DejaVu Sans", *(family for family in needed if family))))


@lru_cache(maxsize=8192)
def _font_of(character: str) -> str | None:
    """Return a font family that has the character, None if there is none. Control characters are never drawable."""
    if not character.isprintable():
        return None
    from matplotlib.font_manager import get_font

    for family, path in _fonts():
        if get_font(path).get_char_index(ord(character)):
            return family
    return None


@lru_cache(maxsize=1)
def _fonts() -> tuple[tuple[str, str], ...]:
    """Return (family, file) of the upright regular fonts installed, preferred ones first."""
    from matplotlib.font_manager import fontManager

    files = {
        font.name: str(font.fname)
        for font in fontManager.ttflist
        if font.style == "normal" and font.weight in (400, "normal", "regular") and font.stretch == "normal"
    }
    # matplotlib's own "Last Resort" draws a box with a code in it for every character.
    files = {name: file for name, file in files.items() if not name.startswith("Last Resort")}
    first = [name for name in ("DejaVu Sans", *_PREFERRED_FONTS) if name in files]
    return tuple((name, files[name]) for name in dict.fromkeys((*first, *sorted(files))))
