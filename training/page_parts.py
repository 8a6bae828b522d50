"""Parts of the pages that this room writes: a page that needs nothing from outside, tables, legends, texts.

Every function takes plain text and gives HTML in which that text is only ever shown.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from hf_seq2seq_attn.probing import HEATMAP_CSS, SentenceView, drawable, legend_svg

_PAGES = Path(__file__).with_name("pages")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
LONGEST_TEXT = 2000
"""Characters of a sentence that a page shows; where there are more, it says so."""
LINKS_SHOWN = 300
"""Links of a sentence that a list shows."""

GOLD_LEGEND = (
    ("heat", "attention, 0 to 1"),
    ("sure", "manual link"),
    ("possible", "possible manual link"),
    ("hit", "found"),
    ("false", "false link"),
    ("miss", "missed"),
)
LEGEND = (("heat", "attention, 0 to 1"), ("link", "link"))


@dataclass(frozen=True)
class Number:
    """A cell that holds a number.

    Attributes:
        shown: as it is written. value: what rows are sorted by. share: 0..1, how deeply the cell is shaded.
    """

    shown: str
    value: float
    share: float | None = None


Cell = str | Number


def page(title: str, body: Iterable[str], css: str = "", *, script: bool = False) -> str:
    """Return a whole page in the style of this room.

    Args:
        body: HTML.
        css: more style.
        script: whether tables with `sortable` and groups of sentences need the page's script.
    """
    style = (_PAGES / "report.css").read_text(encoding="utf-8") + HEATMAP_CSS + css
    code = f"<script>\n{(_PAGES / 'report.js').read_text(encoding='utf-8')}</script>\n" if script else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + f"\n{code}</body>\n</html>\n"
    )


def text(words: str, longest: int = LONGEST_TEXT) -> str:
    """Return text for a page: escaped, without what would reorder its surroundings, cut, which it says, if too long."""
    cut = f"{words[:longest]}… ({longest:,} of {len(words):,} characters)"
    return escape(drawable(words if len(words) <= longest else cut))


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    caption: str = "",
    sortable: bool = False,
    dense: bool = False,
    marked: int | None = None,
) -> str:
    """Return a table that scrolls by itself where the page is narrow, by keys too.

    Args:
        caption: what it is of, above it.
        sortable: let the page's script sort its rows; every cell must be a number then.
        dense: small print, for many columns.
        marked: number of the row that stands out.
    """
    names = " ".join(name for name, chosen in (("sortable", sortable), ("dense", dense)) if chosen)
    lines = "".join(
        f"<tr{' class=ours' if number == marked else ''}>{''.join(map(_cell, cells))}</tr>"
        for number, cells in enumerate(rows)
    )
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in heads)
    title = f'<p class="caption">{text(caption)}</p>' if caption else ""
    label = text(caption or heads[0] or "table")
    return (
        f'{title}<div class="wide" role="region" tabindex="0" aria-label="{label}">'
        f'<table class="{names}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and what they stand for, each in the direction of its own script."""
    items = (f'<dt>{text(name)}</dt><dd dir="auto">{text(value)}</dd>' for name, value in pairs)
    return f'<dl class="facts">{"".join(items)}</dl>'


def legend(kinds: Sequence[tuple[str, str]]) -> str:
    """Return the legend of heat maps, of the marks in `kinds`: (kind as in `legend_svg`, what it means)."""
    marks = "".join(f"<span>{legend_svg(kind)}{text(name)}</span>" for kind, name in kinds)
    return f'<div class="legend">{marks}</div>'


def link_list(view: SentenceView) -> str:
    """Return the links of a pair as words, told apart by a sign where there is gold."""
    links = view.links | view.misses
    if not links:
        return '<p class="quiet">No links.</p>'
    signs = dict.fromkeys(view.misses, "missed: ") | dict.fromkeys(view.false_links, "false: ")
    items = (
        f"<li>{signs.get((i, j), '')}<bdi>{text(view.source[i], 80)}</bdi> – <bdi>{text(view.target[j], 80)}</bdi></li>"
        for i, j in sorted(links)[:LINKS_SHOWN]
    )
    more = f"<li>and {len(links) - LINKS_SHOWN:,} more</li>" if len(links) > LINKS_SHOWN else ""
    return f'<ul class="links">{"".join(items)}{more}</ul>'


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return f'<td class="words">{text(cell)}</td>'
    shade = "" if cell.share is None else f' class="shade" style="--share:{50 * cell.share:.0f}%"'
    return f'<td data-value="{cell.value:.10g}"{shade}>{text(cell.shown)}</td>'
