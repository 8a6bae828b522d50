"""A heat map as an inline SVG: text stays text, colours follow the page, marks differ by shape as well as by
colour."""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from .formats import Gold
from .heatmap import check_heatmap
from .link_types import Link, Links

CELL = 26
_FONT = 13
_LONGEST_LABEL = 24
_ANGLE = math.radians(55)
# A weight paints its cell with opacity weight ** _GAMMA, so that small weights can be seen.
_GAMMA = 0.7
_SHADES = 20
_OVERRIDES = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"

HEATMAP_CSS = """
.heatmap { --hm-ink: #1c2430; --hm-soft: #667085; --hm-line: #e4e7ec; --hm-ground: #ffffff; --hm-heat: #3049c9;
  --hm-gold: #b07d00; --hm-hit: #0b8a47; --hm-false: #d9480f; --hm-miss: #b0226b;
  display: block;
  font: 13px/1.2 system-ui, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", "Noto Sans Hebrew", sans-serif; }
@media (prefers-color-scheme: dark) {
  .heatmap { --hm-ink: #e6e9ef; --hm-soft: #98a2b3; --hm-line: #2c333d; --hm-ground: #171b21; --hm-heat: #8aa2ff;
    --hm-gold: #f0b93a; --hm-hit: #41d98a; --hm-false: #ff8a4c; --hm-miss: #ff7ab8; } }
.heatmap text { fill: var(--hm-ink); }
.heatmap text.hm-quiet { fill: var(--hm-soft); }
.heatmap .hm-board { fill: var(--hm-ground); stroke: var(--hm-line); }
.heatmap .hm-grid { stroke: var(--hm-line); fill: none; shape-rendering: crispEdges; }
.heatmap .hm-heat { fill: var(--hm-heat); }
.heatmap .hm-frame { fill: none; stroke: var(--hm-ground); stroke-width: 3.6; opacity: 0.75; }
.heatmap .hm-sure, .heatmap .hm-possible { fill: none; stroke: var(--hm-gold); stroke-width: 2; }
.heatmap .hm-possible { stroke-dasharray: 3.5 2.5; stroke-width: 1.6; }
.heatmap .hm-hit { fill: var(--hm-hit); stroke: var(--hm-ground); stroke-width: 1.5; }
.heatmap .hm-link { fill: var(--hm-ink); stroke: var(--hm-ground); stroke-width: 1.5; }
.heatmap .hm-false { fill: none; stroke: var(--hm-false); stroke-width: 2.6; stroke-linecap: round; }
.heatmap .hm-halo { fill: none; stroke: var(--hm-ground); stroke-width: 5; stroke-linecap: round; }
.heatmap .hm-miss { fill: var(--hm-ground); stroke: var(--hm-miss); stroke-width: 2; }
.heatmap .hm-cursor { fill: none; stroke: var(--hm-ink); stroke-width: 2; visibility: hidden; pointer-events: none; }
.heatmap text.hm-near { font-weight: 700; }
"""


@dataclass(frozen=True)
class SentenceView:
    """One sentence pair to look at.

    Attributes:
        source, target: words.
        matrix: (T, S) float between 0 and 1, how much each target word looks at each source word.
        links: those read off the matrix.
        gold: manual links, if there are any.
    """

    source: Sequence[str]
    target: Sequence[str]
    matrix: np.ndarray
    links: Links = frozenset()
    gold: Gold | None = None

    def __post_init__(self) -> None:
        check_heatmap(self.matrix, self.source, self.target)
        for i, j in self.links | (self.gold.possible if self.gold else frozenset()):
            if not (0 <= i < len(self.source) and 0 <= j < len(self.target)):
                raise ValueError(
                    f"link {i}-{j} leaves its sentence of {len(self.source)} source and {len(self.target)} target "
                    "words; check that links and text have the same tokens"
                )

    @property
    def hits(self) -> Links:
        """Links that gold has, sure or possible; none without gold."""
        return self.links & self.gold.possible if self.gold else frozenset()

    @property
    def false_links(self) -> Links:
        """Links that gold does not have."""
        return self.links - self.gold.possible if self.gold else frozenset()

    @property
    def misses(self) -> Links:
        """Sure gold links that were not found."""
        return self.gold.sure - self.links if self.gold else frozenset()


def heatmap_svg(sentence: SentenceView) -> str:
    """Return the heat map of one sentence pair as an `<svg>` for an HTML page that has `HEATMAP_CSS` in a style
    element.

    Rows are target words, columns source words. Gold: solid square = sure, dashed = possible. Links: dot = hit,
    cross = false, diamond = sure gold link that was missed.
    """
    columns, rows = len(sentence.source), len(sentence.target)
    left = max((text_width(shortened(word)) for word in sentence.target), default=0) + 14
    overhang = max(
        (CELL * (i + 0.5) + text_width(shortened(word)) * math.cos(_ANGLE) for i, word in enumerate(sentence.source)),
        default=0,
    )
    top = max((text_width(shortened(word)) * math.sin(_ANGLE) for word in sentence.source), default=0) + 22
    width = left + max(columns * CELL, overhang) + 12
    height = top + rows * CELL + 8
    parts = [
        f'<svg class="heatmap" role="img" aria-label="attention of {rows} target words over {columns} source words" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'data-left="{left:.0f}" data-top="{top:.0f}" data-cell="{CELL}">',
        f'<g transform="translate({left:.0f} {top:.0f})">',
        f'<rect class="hm-board" width="{columns * CELL}" height="{rows * CELL}"/>',
        *_heat(sentence.matrix),
        _grid(columns, rows),
        *_labels(sentence),
        *_marks(sentence),
        f'<rect class="hm-cursor" width="{CELL}" height="{CELL}" rx="3"/>',
        "</g></svg>",
    ]
    return "".join(parts)


def legend_svg(kind: str) -> str:
    """Return the small picture of one mark for a legend: heat, sure, possible, hit, link, false or miss."""
    if kind == "heat":
        steps = (0.05, 0.2, 0.4, 0.6, 0.8, 1.0)
        cells = "".join(
            f'<rect class="hm-heat" x="{16 * n}" width="16" height="16" opacity="{weight**_GAMMA:.2f}"/>'
            for n, weight in enumerate(steps)
        )
        return f'<svg class="heatmap" width="{16 * len(steps)}" height="16" aria-hidden="true">{cells}</svg>'
    half = CELL // 2
    return (
        f'<svg class="heatmap" width="{CELL}" height="{CELL}" aria-hidden="true">'
        f'<rect class="hm-board" width="{CELL}" height="{CELL}"/>{_mark(kind, half, half)}</svg>'
    )


def _heat(matrix: np.ndarray) -> list[str]:
    """Return one path for each of twenty shades, which keeps pages with many sentences small."""
    shades = np.rint(np.clip(matrix, 0, 1) ** _GAMMA * _SHADES).astype(int)
    paths = []
    for shade in range(1, _SHADES + 1):
        cells = "".join(
            f"M{i * CELL} {j * CELL}h{CELL}v{CELL}h-{CELL}z" for j, i in zip(*np.nonzero(shades == shade), strict=True)
        )
        if cells:
            paths.append(f'<path class="hm-heat" opacity="{shade / _SHADES:.2f}" d="{cells}"/>')
    return paths


def _grid(columns: int, rows: int) -> str:
    lines = [f"M{i * CELL} 0v{rows * CELL}" for i in range(1, columns)]
    lines += [f"M0 {j * CELL}h{columns * CELL}" for j in range(1, rows)]
    return f'<path class="hm-grid" d="{"".join(lines)}"/>'


def _labels(sentence: SentenceView) -> list[str]:
    linked_sources = {i for i, _ in sentence.links}
    linked_targets = {j for _, j in sentence.links}
    labels = [
        f'<text class="hm-column{"" if i in linked_sources else " hm-quiet"}" '
        f'transform="translate({(i + 0.5) * CELL + 4:.0f} -8) rotate(-55)">{label_html(word)}</text>'
        for i, word in enumerate(sentence.source)
    ]
    labels += [
        f'<text class="hm-row{"" if j in linked_targets else " hm-quiet"}" x="-8" y="{j * CELL + 17.5}" '
        f'text-anchor="end">{label_html(word)}</text>'
        for j, word in enumerate(sentence.target)
    ]
    return labels


def _marks(sentence: SentenceView) -> list[str]:
    kinds: list[tuple[str, Links]] = []
    if sentence.gold is None:
        kinds.append(("link", sentence.links))
    else:
        kinds.append(("possible", sentence.gold.possible - sentence.gold.sure))
        kinds.append(("sure", sentence.gold.sure))
        kinds += [("hit", sentence.hits), ("false", sentence.false_links), ("miss", sentence.misses)]
    return [_mark(kind, *_centre(link)) for kind, links in kinds for link in sorted(links)]


def _centre(link: Link) -> tuple[int, int]:
    return link[0] * CELL + CELL // 2, link[1] * CELL + CELL // 2


def _mark(kind: str, x: int, y: int) -> str:
    if kind in ("sure", "possible"):
        inset = CELL // 2 - 3
        side = 2 * inset
        box = f'x="{x - inset}" y="{y - inset}" width="{side}" height="{side}" rx="3"'
        return f'<rect class="hm-frame" {box}/><rect class="hm-{kind}" {box}/>'
    if kind in ("hit", "link"):
        return f'<circle class="hm-{kind}" cx="{x}" cy="{y}" r="5"/>'
    if kind == "miss":
        return f'<path class="hm-miss" d="M{x} {y - 5}l5 5l-5 5l-5 -5z"/>'
    cross = f"M{x - 4} {y - 4}l8 8m0 -8l-8 8"
    return f'<path class="hm-halo" d="{cross}"/><path class="hm-false" d="{cross}"/>'


def label_html(word: str) -> str:
    """Return a word as the content of an SVG `<text>`."""
    # Isolates keep a right-to-left word and its punctuation in their own order.
    return f"\u2068{escape(drawable(shortened(word)))}\u2069"


def shortened(word: str) -> str:
    """Return a word, or its beginning with an ellipsis where it is too long for a label."""
    return word if len(word) <= _LONGEST_LABEL else word[: _LONGEST_LABEL - 1] + "…"


def drawable(text: str) -> str:
    """Replace what HTML cannot carry or what would reorder the text around it by a visible stand-in: control
    characters, lone surrogates, and the marks of directional embedding and isolation."""
    return "".join(
        "\ufffd" if unicodedata.category(character) in ("Cc", "Cs") or character in _OVERRIDES else character
        for character in text
    )


def text_width(text: str) -> float:
    """Estimate the width of a label in pixels; there is no font to ask."""
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> float:
    if unicodedata.combining(character):
        return 0
    if unicodedata.east_asian_width(character) in "WF":
        return _FONT * 1.05
    if character in "mwMW@%—…":
        return _FONT * 0.88
    return _FONT * (0.68 if character.isupper() else 0.57)
