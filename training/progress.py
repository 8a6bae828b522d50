"""Tell how far a training is: a bar where there is a terminal, lines where there is none."""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

if TYPE_CHECKING:
    from .trainer import Seq2SeqAttnTrainer

Stage = Callable[[str], AbstractContextManager[Any]]


def stages(shown: bool) -> Stage:
    """Return a context that tells what is being done while it lasts: a spinner on a terminal's stderr, else a line."""

    def stage(doing: str) -> AbstractContextManager[Any]:
        if not shown:
            return nullcontext()
        from rich.console import Console

        console = Console(file=sys.stderr)
        if console.is_terminal:
            return console.status(doing)
        console.print(doing, highlight=False)
        return nullcontext()

    return stage


class ProgressReport(TrainerCallback):
    """A bar on stderr with the loss, target tokens per second and the time left; lines where there is no terminal.

    Speed and time left are of this process's life: what a resumed run did before it was interrupted does not count.
    The speed is that of training alone; the time left takes in the validations as they were so far.
    """

    LINES = 10

    def __init__(self, trainer: "Seq2SeqAttnTrainer") -> None:
        from rich.console import Console

        self.trainer = trainer
        self.console = Console(file=sys.stderr)
        self.bar: Any = None
        self.task: Any = None
        self.notes: dict[str, str] = {}
        self.started = self.refreshed = 0.0
        self.first_step = self.first_tokens = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.started = time.monotonic()
        self.first_step, self.first_tokens = state.global_step, int(self.trainer.target_tokens_seen)
        if not state.is_world_process_zero or not self.console.is_terminal:
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self.bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )
        self.task = self.bar.add_task("training", total=state.max_steps, completed=state.global_step, note="")
        self.bar.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        now = time.monotonic()
        if self.bar is not None:
            # Reading the counter waits for the device: once a second, not once a step.
            if now - self.refreshed >= 1:
                self.refreshed = now
                self.bar.update(self.task, completed=state.global_step, note=self._note(state, now))
            return
        every = max(state.max_steps // self.LINES, 1)
        if state.global_step % every == 0:
            self.console.print(
                f"training {state.global_step}/{state.max_steps} {self._note(state, now)}", highlight=False
            )

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        shown = {"loss": "loss", "guided_loss": "guided", "eval_loss": "dev loss"}
        # Of the other measures the one that selects.
        chosen = args.metric_for_best_model
        if chosen is not None:
            shown.setdefault(chosen, "dev " + chosen.removeprefix("eval_"))
        for key, label in shown.items():
            if logs and key in logs:
                self.notes[key] = f"{label} {logs[key]:.3f}"

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=state.global_step, note=self._note(state, time.monotonic()))
            self.bar.stop()
            self.bar = None

    def _note(self, state: TrainerState, now: float) -> str:
        notes = list(self.notes.values())
        seconds = now - self.started
        tokens = int(self.trainer.target_tokens_seen) - self.first_tokens
        if tokens:
            notes.append(f"{tokens / max(seconds - self.trainer.evaluation_seconds, 1e-9):,.0f} tokens/s")
        done = max(state.global_step - self.first_step, 1)
        notes.append(f"{seconds / done * (state.max_steps - state.global_step):.0f} s left")
        return " ".join(notes)
