import itertools

import pytest

from hf_seq2seq_attn.training import aligner_progress
from hf_seq2seq_attn.training.aligner_progress import fraction_bar


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let six seconds pass between two looks at the clock."""
    clock = itertools.count(step=6)
    monkeypatch.setattr(aligner_progress.time, "monotonic", lambda: float(next(clock)))


@pytest.mark.usefixtures("seconds")
def test_without_a_terminal_each_tenth_is_one_line_with_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    with fraction_bar("training") as report:
        for done in (0.0, 0.11, 0.12, 0.5, 1.0):
            report(done, "loss 2")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["0%", "11%", "50%", "100%"]
    assert lines[0] == "training 0% loss 2"
    assert "left" in lines[1] and "left" in lines[2]
    assert lines[3] == "training 100% loss 2"


@pytest.mark.usefixtures("seconds")
def test_the_time_left_counts_this_process_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with fraction_bar("training") as report:
        report(0.8, "resumed")
        report(0.9, "on")
    # A tenth in the seconds since the start: as much again is left.
    assert "s left" in capsys.readouterr().err.splitlines()[1]


def test_what_is_quick_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with fraction_bar("quick") as report:
        for step in range(1, 11):
            report(step / 10, "")
    assert capsys.readouterr().err.splitlines() == ["quick 100%"]
