"""matplotlib's drawings as inline SVG for a page: text stays text, colours are the page's own, light and dark."""

import io
import re
from collections.abc import Callable
from html import escape
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

SERIES = 6
# Colours that stand in a drawing for variables of the page's style.
_COLOURS = {"#010101": "--ink", "#020202": "--soft", "#030303": "--line", "#808080": "--soft"}
_COLOURS |= {f"#0{number}0f0f": f"--series-{number}" for number in range(1, SERIES + 1)}
_INK, _SOFT, _LINE = "#010101", "#020202", "#030303"
_UNDATED = {"Date": None, "Creator": None, "Format": None, "Type": None}

FIGURE_CSS = """
.chart { display: block; width: 100%; min-width: 26rem; max-width: 40rem; height: auto; }
.chart * { stroke-linejoin: round; }
"""


def figure_svg(draw: Callable[[Axes], object], label: str, size: tuple[float, float] = (6.4, 3.2)) -> str:
    """Return what `draw` draws on the axes that it is given as an `<svg>` element.

    The page's style must have `FIGURE_CSS` and the variables --ink, --soft, --line and --series-1 to --series-6.

    Args:
        draw: called with new axes; colours that it does not name are the page's, "gray" is the page's --soft.
        label: what the drawing shows, for those who cannot see it.
        size: width and height in inches of 72 pixels.
    """
    series = [colour for colour, name in _COLOURS.items() if name.startswith("--series")]
    settings: dict[Any, Any] = {
        "text.color": _INK,
        **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), _SOFT),
        **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), _LINE),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
        "axes.prop_cycle": f"cycler('color', {series})",
        "font.size": 10,
        "svg.fonttype": "none",
        "svg.hashsalt": label,
    }
    with rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata=_UNDATED)
    return _for_a_page(written.getvalue(), label)


def _for_a_page(text: str, label: str) -> str:
    """Return the element alone, in the page's colours and font."""
    svg = text[text.index("<svg") :]
    # Its style would be the whole page's.
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    for colour, name in _COLOURS.items():
        svg = svg.replace(colour, f"var({name})")
    size = re.search(r'viewBox="[^"]*"', svg)
    assert size is not None
    opening = f'<svg class="chart" role="img" aria-label="{escape(label)}" {size[0]}>'
    svg = opening + svg[svg.index(">") + 1 :]
    # Every drawing names its groups alike; only what is referred to, clips and markers, needs a name.
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r"font-family: [^;\"]*; ?", "", svg)
    return re.sub(r"\s*\n\s*", " ", svg).strip()
