"""Drawings for a page: the page's colours, text as text, nothing that is asked for from outside."""

import re
import xml.etree.ElementTree as ElementTree

from hf_seq2seq_attn.training.pictures import PANELS, draw_panel
from hf_seq2seq_attn.training.svg_figures import SERIES, figure_svg

HISTORY = [{"step": step, "loss": 3 / step, "eval_loss": 4 / step, "guided_loss": 1 / step} for step in (1, 2, 5)]
HOSTILE = '"><script>alert(1)</script>\\1'


def test_colours_are_the_page_s_and_words_are_words() -> None:
    svg = figure_svg(lambda ax: draw_panel(HISTORY, next(iter(PANELS)), ax), HOSTILE)
    root = ElementTree.fromstring(svg.replace("xlink:href", "href"))
    assert root.attrib["aria-label"] == HOSTILE and root.attrib["role"] == "img"
    assert "dev loss" in "".join(root.itertext())
    used = set(re.findall(r"#[0-9a-fA-F]{6}\b", svg))
    assert used <= {"#ffffff"}, used
    assert {"var(--ink)", "var(--soft)", "var(--line)", "var(--series-1)", "var(--series-3)"} <= set(
        re.findall(r"var\(--[a-z0-9-]+\)", svg)
    )
    assert "<style" not in svg and "<script" not in svg
    assert all(address.startswith("#") for address in re.findall(r'href="([^"]*)"', svg))
    assert "http" not in svg


def test_more_lines_than_colours_begin_anew() -> None:
    svg = figure_svg(lambda ax: [ax.plot([0, 1], [n, n]) for n in range(SERIES + 1)], "lines")
    lines = re.findall(r"stroke: var\(--series-(\d)\)", svg)
    assert len(set(lines)) == SERIES and lines.count("1") == 2


def test_the_same_drawing_is_the_same_text() -> None:
    assert len({figure_svg(lambda ax: ax.plot([1, 2], [2, 1]), "same") for _ in range(2)}) == 1
