"""The picture of a head report: panels on given axes, the same bytes again, no half-written files."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from planted_heads import HEADS, LAYERS, corpus

from hf_seq2seq_attn.probing.head_picture import draw_head_figure, save_head_picture
from hf_seq2seq_attn.probing.head_report import HeadReport, report_heads


@pytest.fixture(scope="module")
def report() -> HeadReport:
    maps, gold = corpus(4, seed=6)
    return report_heads(maps, gold=gold)


def test_a_panel_shows_layers_by_heads_on_the_axes_given(report: HeadReport) -> None:
    axes = Figure().subplots(1, 2)
    drawn = draw_head_figure(report, "confidence", axes[1])
    assert drawn is axes[1]
    assert not axes[0].images
    assert np.array_equal(np.asarray(drawn.images[0].get_array()), report.figures["confidence"])
    assert [each.get_text() for each in drawn.get_xticklabels()] == [str(head) for head in range(HEADS)]
    assert len(drawn.texts) == LAYERS * HEADS
    assert drawn.texts[0].get_text() == f"{report.figures['confidence'][0, 0]:.2g}"
    assert draw_head_figure(report, "distances").images[0].get_array().shape == (12, 12)
    assert draw_head_figure(report, "offset").get_title() == "offset"


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_whole_report_is_one_picture_and_the_same_one_again(
    report: HeadReport, suffix: str, tmp_path: Path
) -> None:
    one, two = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"
    save_head_picture(one, report, "a title")
    save_head_picture(two, report, "a title")
    assert one.read_bytes() == two.read_bytes()
    assert one.stat().st_size > 5000
    if suffix == ".svg":
        drawn = one.read_text()
        for name in (*report.names, "a title", "Jensen-Shannon distance of heads"):
            assert name.replace("_", " ") in drawn


def test_what_cannot_be_drawn_is_refused(report: HeadReport, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"allowed suffixes are \.png"):
        save_head_picture(tmp_path / "heads.gif", report)
    with pytest.raises(ValueError, match="name is 'agreement'; this report has aer"):
        draw_head_figure(report, "agreement")
    assert not list(tmp_path.iterdir())
