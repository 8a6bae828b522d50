import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from hf_seq2seq_attn.training import progress
from hf_seq2seq_attn.training.progress import ProgressReport


def report(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> tuple[ProgressReport, Any, list[float]]:
    """A report of a run that continues at step 40 of 100, on a clock that the test moves."""
    clock = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    # Counted before the interruption.
    trainer: Any = SimpleNamespace(target_tokens_seen=9000, evaluation_seconds=0.0)
    shown = ProgressReport(trainer)
    shown.console = Console(file=io.StringIO(), force_terminal=terminal, width=150)
    state = SimpleNamespace(global_step=40, max_steps=100, is_world_process_zero=True)
    shown.on_train_begin(None, state, None)  # type: ignore[arg-type]
    return shown, state, clock


def advance(shown: ProgressReport, state: Any, clock: list[float]) -> None:
    """Ten steps in 20 seconds, 5 of them for a validation; 300 target tokens."""
    clock[0] += 20
    state.global_step = 50
    shown.trainer.target_tokens_seen += 300
    shown.trainer.evaluation_seconds += 5
    args = SimpleNamespace(metric_for_best_model="eval_bleu")
    logs = {"loss": 3.25, "learning_rate": 0.1}, {"eval_loss": 3.0, "eval_bleu": 12.5, "eval_chrf": 30.0}
    for entry in logs:
        shown.on_log(args, state, None, logs=entry)  # type: ignore[arg-type]
    shown.on_step_end(args, state, None)  # type: ignore[arg-type]


def test_lines_count_from_where_the_run_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, state, clock = report(monkeypatch, terminal=False)
    advance(shown, state, clock)
    written = shown.console.file.getvalue()  # type: ignore[attr-defined]
    # 300 tokens in 15 seconds of training; 50 steps of 2 seconds.
    assert written == "training 50/100 loss 3.250 dev loss 3.000 dev bleu 12.500 20 tokens/s 100 s left\n"


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, state, clock = report(monkeypatch, terminal=True)
    assert shown.bar.tasks[0].completed == 40
    advance(shown, state, clock)
    shown.on_train_end(None, state, None)  # type: ignore[arg-type]
    written = shown.console.file.getvalue()  # type: ignore[attr-defined]
    assert "50/100" in written
    assert "20 tokens/s 100 s left" in written
    assert shown.bar is None


@pytest.mark.parametrize(("terminal", "shown"), [(False, True), (True, True), (False, False)])
def test_what_is_done_after_training(monkeypatch: pytest.MonkeyPatch, terminal: bool, shown: bool) -> None:
    stderr = io.StringIO()
    console = Console(file=stderr, force_terminal=terminal, width=150)
    monkeypatch.setattr("rich.console.Console", lambda **kwargs: console)
    with progress.stages(shown)("scoring dev, 1,014 pairs"):
        at_once = stderr.getvalue()
    if terminal:
        # A spinner, which another thread draws.
        assert "scoring dev, 1,014 pairs" in stderr.getvalue()
    else:
        assert stderr.getvalue() == at_once == ("scoring dev, 1,014 pairs\n" if shown else "")
