"""Words with a stroke for each link: where they stand, how dark they are, and that text stays text."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from hf_seq2seq_attn.probing import link_lines_svg

HEBREW = ["בָּרָא", "אֱלֹהִים"]
MATRIX = np.array([[0.9, 0.1, 0.0], [0.25, 0.5, 0.25]])


def strokes(svg: str) -> list[tuple[float, float, float]]:
    """Return for each stroke where it starts and ends, and its opacity."""
    found = re.findall(r'<path opacity="([\d.]+)" d="M([\d.]+) 26C.*? ([\d.]+) 122">', svg)
    return [(float(start), float(end), float(opacity)) for opacity, start, end in found]


def places(svg: str, y: str) -> list[float]:
    return [float(x) for x in re.findall(rf'<text x="([\d.]+)" y="{y}"', svg)]


def test_a_stroke_joins_its_words_and_is_as_dark_as_its_weight() -> None:
    svg = link_lines_svg(["a", "longer", "b"], ["x", "y"], frozenset({(0, 0), (1, 1)}), MATRIX)
    source, target = places(svg, "18"), places(svg, "139")
    assert source == sorted(source) and target == sorted(target)
    assert strokes(svg) == [
        (source[0], target[0], pytest.approx(0.3 + 0.7 * 0.9)),
        (source[1], target[1], pytest.approx(0.3 + 0.7 * 0.5)),
    ]
    assert "<title>a – x: 0.900</title>" in svg
    # The shorter line stands in the middle of the longer one.
    assert sum(target) / 2 == pytest.approx((source[0] + source[2]) / 2, abs=2)
    assert svg.count("hm-quiet") == 1


def test_a_right_to_left_line_runs_from_right_to_left() -> None:
    svg = link_lines_svg(["a", "b", "c"], HEBREW, frozenset({(0, 0)}), MATRIX)
    assert places(svg, "18") == sorted(places(svg, "18"))
    target = places(svg, "139")
    assert target == sorted(target, reverse=True)
    assert strokes(svg)[0][1] == target[0]


def test_any_text_is_text_and_a_side_may_be_empty() -> None:
    hostile = ["<script>alert(1)</script>", "\u202eabc", '"&'] * 3
    svg = link_lines_svg(hostile, ["\x00", "]]>"], frozenset({(8, 1)}), np.ones((2, 9)) * 3)
    root = ElementTree.fromstring(svg)
    assert {element.tag for element in root.iter()} == {"svg", "path", "title", "text"}
    assert strokes(svg)[0][2] == 1
    assert strokes(link_lines_svg(["a"], [], frozenset(), np.ones((0, 1)))) == []
