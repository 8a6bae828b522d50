"""The HTML view: one self-contained page with the heat map of every sentence pair, readable offline, in any script."""

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from .formats import write_atomically
from .heatmap_svg import HEATMAP_CSS, SentenceView, drawable, heatmap_svg, legend_svg
from .view_page import PAGE

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
    path: str | Path, sentences: Sequence[SentenceView], *, title: str = "Word alignment", note: str | None = None
) -> None:
    """Write one HTML page with a heat map for each sentence pair and a picker; it loads nothing from anywhere.

    Any text is safe in it: words are escaped, and the page's script only ever sets them as text.

    Args:
        note: a line under the title, e.g. the model and which rows the maps show; None = the number of sentence pairs.

    Raises:
        InputError: the folder does not exist or cannot be written.
    """
    views = [heatmap_svg(sentence) if sentence.source and sentence.target else _BLANK for sentence in sentences]
    has_gold = any(sentence.gold is not None for sentence in sentences)
    legend = (
        f"<span>{legend_svg(kind)}{text}</span>" for kind, text in (_LEGEND if has_gold else _LEGEND_WITHOUT_GOLD)
    )
    write_atomically(
        path,
        [
            _fill(
                title=escape(drawable(title)),
                note=escape(drawable(f"{len(sentences)} sentence pairs" if note is None else note)),
                heatmap_css=HEATMAP_CSS,
                options="".join(_option(index, sentence) for index, sentence in enumerate(sentences)),
                first=views[0] if views else _BLANK,
                legend="".join(legend),
                templates="".join(f'<template id="view{index}">{view}</template>' for index, view in enumerate(views)),
                data=_json([_data(sentence) for sentence in sentences]),
            )
        ],
    )


_BLANK = '<p class="blank">A blank line: nothing to show.</p>'


def _fill(**values: str) -> str:
    # One pass, so that a value that holds "{{name}}" stays as it is.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], PAGE)


def _option(index: int, sentence: SentenceView) -> str:
    opening = " ".join(sentence.target)
    shown = opening if len(opening) <= 80 else opening[:79] + "…"
    # The isolate keeps right-to-left text from swallowing the number.
    return f'<option value="{index}">{index + 1} · \u2068{escape(drawable(shown))}\u2069</option>'


def _data(sentence: SentenceView) -> dict[str, object]:
    weights = np.rint(np.asarray(sentence.matrix, dtype=float) * 1000).astype(int)
    kinds = {}
    if sentence.gold is not None:
        kinds = {f"{i}-{j}": "possible gold" for i, j in sentence.gold.possible}
    for kind, links in (
        ("link", sentence.links if sentence.gold is None else ()),
        ("hit", sentence.hits),
        ("false link", sentence.false_links),
        ("missed", sentence.misses),
    ):
        kinds.update({f"{i}-{j}": kind for i, j in links})
    return {
        "source": [drawable(word) for word in sentence.source],
        "target": [drawable(word) for word in sentence.target],
        "weights": weights.tolist(),
        "kinds": dict(sorted(kinds.items())),
        "counts": _counts(sentence),
    }


def _counts(sentence: SentenceView) -> list[tuple[str, int]]:
    if sentence.gold is None:
        return [("links", len(sentence.links))]
    return [("hits", len(sentence.hits)), ("false", len(sentence.false_links)), ("missed", len(sentence.misses))]


def _json(value: object) -> str:
    """Return JSON that is safe inside a script element: no `<` at all, so neither `</script` nor `<!--`."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
