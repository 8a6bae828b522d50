"""The HTML view: one self-contained page with the maps of every sentence pair, readable offline, in any script."""

import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

from .formats import write_atomically
from .heatmap_svg import HEATMAP_CSS, SentenceView, drawable, legend_svg
from .pair_view import PairView
from .view_packing import ViewPacker

PAGE_LIMIT = 5_000_000
_PAGES = Path(__file__).with_name("pages")
_LEGEND = (
    ("heat", "attention 0 to 1"),
    ("sure", "sure gold"),
    ("possible", "possible gold"),
    ("hit", "hit"),
    ("false", "false link"),
    ("miss", "missed"),
)
_LEGEND_WITHOUT_GOLD = (("heat", "attention 0 to 1"), ("link", "link"))


def write_view(
    path: str | Path,
    sentences: Iterable[SentenceView | PairView],
    *,
    title: str = "Word alignment",
    note: str | None = None,
    limit: int = PAGE_LIMIT,
) -> str:
    """Write one HTML page with the maps of sentence pairs, to be chosen by pair, layer, head and level; it loads
    nothing from anywhere.

    Any text is safe in it: the page's script only ever sets words as text, and the page forbids itself the network.

    Args:
        sentences: taken one after the other, and not beyond what fits into the page.
        note: a line under the title, e.g. the model and which rows the maps show.
        limit: bytes of the page; what is dropped to keep within it is the rule of `view_packing`, which the page
            states.

    Returns:
        What had to be dropped, in words; empty if nothing was.

    Raises:
        InputError: the folder does not exist or cannot be written.
        ValueError: not even one pair fits.
    """
    files = {name: (_PAGES / name).read_text(encoding="utf-8") for name in _FILES}
    packer = ViewPacker(limit - sum(map(len, files.values())) - _OTHER_BYTES)
    has_gold = False
    for sentence in sentences:
        pair = PairView.of_sentence(sentence) if isinstance(sentence, SentenceView) else sentence
        if not packer.add(pair):
            break
        has_gold |= pair.gold is not None
    legend = (
        f"<span>{legend_svg(kind)}{text}</span>" for kind, text in (_LEGEND if has_gold else _LEGEND_WITHOUT_GOLD)
    )
    counted = f"{len(packer)} sentence pair{'' if len(packer) == 1 else 's'}"
    reduced = packer.reduced()
    page = _fill(
        files["view.html"],
        title=escape(drawable(title)),
        note=escape(drawable(counted if note is None else f"{counted}; {note}")),
        reduced=f'<p class="reduced">To stay under {limit / 1e6:.1f} MB, {escape(reduced)}.</p>' if reduced else "",
        css=files["view.css"],
        heatmap_css=HEATMAP_CSS,
        legend="".join(legend),
        rule=escape(packer.rule()),
        data=packer.data(),
        script=files["view_map.js"] + files["view.js"],
    )
    write_atomically(path, [page])
    return reduced


_FILES = ("view.html", "view.css", "view_map.js", "view.js")
# Legend, style of the legend, title and rule.
_OTHER_BYTES = 20_000


def _fill(frame: str, **values: str) -> str:
    # One pass, so that a value that holds "{{name}}" stays as it is.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], frame)
