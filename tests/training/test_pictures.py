from pathlib import Path

import pytest
from matplotlib.figure import Figure

from hf_seq2seq_attn.training.pictures import PANELS, draw_curve, draw_panel

HISTORY = [
    {"step": 10, "loss": 5.0, "learning_rate": 1e-3},
    {"step": 10, "eval_loss": 4.0, "eval_bleu": 3.0, "eval_aer": 0.5},
    {"step": 20, "loss": 4.0, "learning_rate": 2e-3},
    {"step": 20, "eval_loss": 3.5, "eval_bleu": 9.0, "eval_aer": 0.4},
]


def text_of(tmp_path: Path, history: list[dict[str, float]]) -> str:
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none"}):
        draw_curve(history, tmp_path / "curve.svg")
    return (tmp_path / "curve.svg").read_text(encoding="utf-8")


def test_each_measure_has_its_panel(tmp_path: Path) -> None:
    drawn = text_of(tmp_path, HISTORY)
    for label in ("training loss", "dev loss", "BLEU", "alignment error rate", "learning rate", "optimiser steps"):
        assert label in drawn
    for label in ("chrF", "phoneme", "guided", "no loss was logged"):
        assert label not in drawn


def test_a_smoothed_loss_is_named_so(tmp_path: Path) -> None:
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none"}):
        draw_curve(HISTORY, tmp_path / "curve.svg", 0.1)
    assert "training loss, smoothed by 0.1" in (tmp_path / "curve.svg").read_text(encoding="utf-8")
    assert "smoothed" not in text_of(tmp_path, HISTORY)


def test_of_one_step_the_first_evaluation_is_drawn(tmp_path: Path) -> None:
    def reaches_80(last: dict[str, float]) -> bool:
        return ">80</text>" in text_of(tmp_path, [*HISTORY, last])

    assert reaches_80({"step": 30, "eval_loss": 99.0})
    assert not reaches_80({"step": 20, "eval_loss": 99.0})


def test_a_run_without_validation_has_fewer_panels(tmp_path: Path) -> None:
    drawn = text_of(tmp_path, [{"step": 1, "loss": 2.0, "guided_loss": 1.0}])
    assert "training loss, guidance included" in drawn
    assert "learning rate" not in drawn
    assert "no loss was logged in this run" in text_of(tmp_path, [])
    assert "no loss was logged in this run" in text_of(tmp_path, [{"step": 1, "learning_rate": 0.1}])


def test_one_panel_on_axes_of_one_s_own() -> None:
    ax = Figure().add_subplot()
    label = "dev score (0 to 100)"
    assert draw_panel(HISTORY, label, ax) is ax
    assert [line.get_ydata().tolist() for line in ax.lines] == [[3.0, 9.0]]
    assert ax.get_ylabel() == label
    assert len(draw_panel(HISTORY, next(iter(PANELS))).lines) == 2
    with pytest.raises(ValueError, match="label is 'bleu'; allowed are loss"):
        draw_panel(HISTORY, "bleu")
