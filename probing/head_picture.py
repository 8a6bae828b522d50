"""The head report as one picture: a panel for each figure, layers by heads."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .formats import write_bytes_atomically
from .head_report import HeadReport
from .heatmap import PICTURE_SUFFIXES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of these figures low values are the good ones; they are drawn dark.
_LOW_IS_GOOD = ("aer",)
_ENDS_AT_ZERO_AND_ONE = (
    "aer",
    "agreement",
    "relative_entropy",
    "confidence",
    "coverage",
    "sink_mass",
    "fixed_offset",
)
_PANELS_IN_ROW = 4
# With more heads the numbers in the cells would touch.
_HEADS_WITH_NUMBERS = 12


def draw_head_figure(report: HeadReport, name: str, ax: "Axes | None" = None) -> "Axes":
    """Draw one figure of every head, a row for each layer and a column for each head, and return the axes.

    Args:
        name: one of `report.names`, or "distances": how far every two heads are apart.
        ax: axes to draw on; None makes a figure of fitting size (`ax.figure`).

    Raises:
        ValueError: a figure that was not measured.
    """
    from matplotlib.figure import Figure

    if name != "distances" and name not in report.figures:
        raise UnusableError(f"name is {name!r}; this report has {', '.join(report.names)} and distances")
    if ax is None:
        ax = Figure(figsize=_panel_size(report), layout="constrained").add_subplot()
    if name == "distances":
        return _draw_distances(report, ax)
    values = report.figures[name]
    lowest, highest = (0, 1) if name in _ENDS_AT_ZERO_AND_ONE else (None, None)
    image = ax.imshow(
        values,
        cmap="Blues_r" if name in _LOW_IS_GOOD else "Blues",
        aspect="auto",
        interpolation="nearest",
        vmin=lowest,
        vmax=highest,
    )
    ax.set_title(name.replace("_", " "), fontsize=9)
    ax.set_xlabel("head", fontsize=8)
    ax.set_ylabel("layer", fontsize=8)
    _ticks(ax, report.heads, report.layers)
    if len(report.heads) <= _HEADS_WITH_NUMBERS:
        for layer, head in np.ndindex(values.shape):
            dark = np.mean(image.cmap(image.norm(values[layer, head]))[:3]) < 0.55
            text = f"{values[layer, head]:.0f}" if name == "offset" else f"{values[layer, head]:.2g}"
            ax.text(head, layer, text, ha="center", va="center", fontsize=6, color="white" if dark else "black")
    return ax


def save_head_picture(path: str | Path, report: HeadReport, title: str | None = None) -> None:
    """Write the whole report as one picture, `.png`, `.svg` or `.pdf`: a panel for each figure, and the distances.

    The same report gives the same bytes.

    Raises:
        ValueError: another suffix.
        InputError: a place that cannot be written.
    """
    import matplotlib
    from matplotlib.figure import Figure

    path = Path(path)
    if path.suffix not in PICTURE_SUFFIXES:
        raise UnusableError(f"path is {str(path)!r}; allowed suffixes are {', '.join(PICTURE_SUFFIXES)}")
    names = [*report.names, "distances"]
    columns = min(_PANELS_IN_ROW, len(names))
    rows = -(-len(names) // columns)
    width, height = _panel_size(report)
    with matplotlib.rc_context({"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "heads"}):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for name, ax in zip(names, axes, strict=False):
            draw_head_figure(report, name, ax)
        for ax in axes[len(names) :]:
            ax.set_axis_off()
        figure.suptitle(title or f"{report.pairs} sentence pairs, {report.align_with} rows", fontsize=10)
        metadata = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[path.suffix]
        kind = path.suffix.removeprefix(".")
        write_bytes_atomically(
            path, lambda temporary: figure.savefig(temporary, dpi=150, format=kind, metadata=metadata)
        )


def _draw_distances(report: HeadReport, ax: "Axes") -> "Axes":
    names = [f"{layer}.{head}" for layer in report.layers for head in report.heads]
    ax.imshow(report.distances, cmap="Blues", vmin=0, vmax=1, aspect="equal", interpolation="nearest")
    ax.set_title("Jensen-Shannon distance of heads", fontsize=9)
    _ticks(ax, names, names)
    ax.tick_params(axis="x", rotation=90)
    return ax


def _ticks(ax: "Axes", columns: Sequence[object], rows: Sequence[object]) -> None:
    """Label every place, or every few of them if they are many."""
    for axis, names in ((ax.xaxis, columns), (ax.yaxis, rows)):
        step = -(-len(names) // 16)
        axis.set_ticks(range(0, len(names), step), [str(name) for name in names[::step]])
        axis.set_tick_params(labelsize=7)


def _panel_size(report: HeadReport) -> tuple[float, float]:
    return 1.4 + 0.32 * min(len(report.heads), 16), 1.2 + 0.26 * min(len(report.layers), 24)
