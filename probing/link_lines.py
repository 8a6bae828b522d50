"""Two lines of words with a stroke for each link, as an inline SVG for a page that has `HEATMAP_CSS`."""

import unicodedata
from collections.abc import Sequence
from html import escape

import numpy as np

from .heatmap_svg import drawable, label_html, shortened, text_width
from .link_types import Links

LINK_LINES_CSS = """
.link-lines path { fill: none; stroke: var(--hm-heat); stroke-width: 2.4; stroke-linecap: round; }
.link-lines path:hover { stroke: var(--hm-ink); stroke-width: 4; opacity: 1; }
"""
_GAP, _MARGIN, _BETWEEN = 18.0, 10.0, 96
# The faintest link can still be seen.
_FAINTEST = 0.3


def link_lines_svg(source: Sequence[str], target: Sequence[str], links: Links, matrix: np.ndarray) -> str:
    """Return the source words above, the target words below, and a stroke for each link; the heavier, the darker.

    Words of a right-to-left script run from right to left.

    Args:
        source, target: S and T words.
        links: (i, j), source first; each within the words.
        matrix: (T, S) float, the weights that the strokes are shaded by and say when pointed at.
    """
    rows = [_centres(words) for words in (source, target)]
    width = max(length for _, length in rows)
    upper, lower = (
        [width - x for x in centres] if _is_right_to_left(words) else centres
        for words, centres in ((source, _moved(rows[0], width)), (target, _moved(rows[1], width)))
    )
    top, bottom = 26, 26 + _BETWEEN
    strokes = [
        f'<path opacity="{_FAINTEST + (1 - _FAINTEST) * min(1.0, float(matrix[j, i])):.2f}" '
        f'd="M{upper[i]:.1f} {top}C{upper[i]:.1f} {top + 45} {lower[j]:.1f} {bottom - 45} {lower[j]:.1f} {bottom}">'
        f"<title>{escape(drawable(source[i]))} – {escape(drawable(target[j]))}: {matrix[j, i]:.3f}</title></path>"
        for i, j in sorted(links)
    ]
    linked = {i for i, _ in links}, {j for _, j in links}
    labels = [
        f'<text x="{x:.1f}" y="{y}" text-anchor="middle" class="{"" if place in reached else "hm-quiet"}">'
        f"{label_html(word)}</text>"
        for words, centres, y, reached in ((source, upper, top - 8, linked[0]), (target, lower, bottom + 17, linked[1]))
        for place, (word, x) in enumerate(zip(words, centres, strict=True))
    ]
    height = bottom + 28
    return (
        f'<svg class="heatmap link-lines" role="img" aria-label="{len(links)} links between {len(source)} source and '
        f'{len(target)} target words" width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}">'
        f"{''.join(strokes + labels)}</svg>"
    )


def _centres(words: Sequence[str]) -> tuple[list[float], float]:
    """Return where the middle of each word lies, and how long the line is, in pixels."""
    centres, x = [], _MARGIN
    for word in words:
        width = text_width(shortened(word))
        centres.append(x + width / 2)
        x += width + _GAP
    return centres, x - _GAP * bool(words) + _MARGIN


def _moved(row: tuple[list[float], float], width: float) -> list[float]:
    """Return the centres of a line of words that stands in the middle of `width`."""
    centres, length = row
    return [x + (width - length) / 2 for x in centres]


def _is_right_to_left(words: Sequence[str]) -> bool:
    """Tell whether more letters of the words run from right to left than the other way."""
    kinds = [unicodedata.bidirectional(character) for word in words for character in word]
    return sum(kind in ("R", "AL") for kind in kinds) > kinds.count("L")
