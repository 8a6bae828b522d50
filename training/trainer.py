"""The Trainer of this package: Hugging Face's, guided, with its evaluation mended for several processes."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import Seq2SeqTrainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINING_ARGS_NAME

from .guided_attention import GuidedAttentionMixin
from .sampling import LengthGroupedBatches


class Seq2SeqAttnTrainer(GuidedAttentionMixin, Seq2SeqTrainer):
    """A `Seq2SeqTrainer` with guided attention, for any HF encoder-decoder.

    Unlike the base class it counts each evaluation example once on several processes, shuffles its length-grouped
    batches (`sampling`), and writes no pickle of its arguments into the folders it saves.
    """

    target_tokens_seen: torch.Tensor | int = 0
    """Target tokens trained on, of all processes; a tensor, so that counting never waits for the device."""

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate; samples that only fill up the last round of the processes are dropped."""
        # Seq2SeqTrainer.evaluate and .predict set a plain gather, which keeps those samples.
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **kwargs)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        dataset: Any = self.train_dataset if train_dataset is None else train_dataset
        column = self.args.length_column_name
        grouped = self.args.train_sampling_strategy == "group_by_length"
        if not grouped or column not in getattr(dataset, "column_names", ()):
            return super()._get_train_sampler(train_dataset)
        step_size = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return LengthGroupedBatches(dataset[column][:], step_size, seed)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], torch.Tensor | int | None]:
        """Fetch the micro-batches of one optimiser step, and count their target tokens."""
        samples, items = super().get_batch_samples(*args, **kwargs)
        if items is not None:
            self.target_tokens_seen = self.target_tokens_seen + items
        return samples, items

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        folder = self.args.output_dir if output_dir is None else output_dir
        if folder is not None:
            (Path(folder) / TRAINING_ARGS_NAME).unlink(missing_ok=True)


class ProgressReport(TrainerCallback):
    """A bar on stderr with the loss, target tokens per second and the time left; lines where there is no terminal."""

    LINES = 10

    def __init__(self, trainer: Seq2SeqAttnTrainer) -> None:
        from rich.console import Console

        self.trainer = trainer
        self.console = Console(file=sys.stderr)
        self.bar: Any = None
        self.task: Any = None
        self.losses = ""
        self.started = self.refreshed = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.started = time.monotonic()
        if not state.is_world_process_zero or not self.console.is_terminal:
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.task = self.bar.add_task("training", total=state.max_steps, note="")
        self.bar.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        now = time.monotonic()
        if self.bar is not None:
            # Reading the counter waits for the device: once a second, not once a step.
            if now - self.refreshed >= 1:
                self.refreshed = now
                self.bar.update(self.task, completed=state.global_step, note=self._note(now))
            return
        every = max(state.max_steps // self.LINES, 1)
        if state.global_step % every == 0:
            left = (now - self.started) / state.global_step * (state.max_steps - state.global_step)
            self.console.print(
                f"training {state.global_step}/{state.max_steps} {self._note(now)} {left:.0f} s left", highlight=False
            )

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if logs and "loss" in logs:
            self.losses = f"loss {logs['loss']:.3f}"
            if "guided_loss" in logs:
                self.losses += f" guided {logs['guided_loss']:.3f}"

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=state.global_step, note=self._note(time.monotonic()))
            self.bar.stop()
            self.bar = None

    def _note(self, now: float) -> str:
        tokens = int(self.trainer.target_tokens_seen)
        rate = f"{tokens / max(now - self.started, 1e-9):,.0f} tokens/s" if tokens else ""
        return f"{self.losses} {rate}".strip()


def default_training_arguments() -> dict[str, Any]:
    """Return what this package sets differently from Hugging Face; a recipe may change any of it."""
    return {
        "train_sampling_strategy": "group_by_length",
        # Without this, processes started by torchrun on a machine without accelerators each train alone.
        "use_cpu": not torch.accelerator.is_available(),
        "disable_tqdm": True,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 50,
        "per_device_train_batch_size": 32,
        "per_device_eval_batch_size": 32,
    }


def check_world_size(args: TrainingArguments) -> None:
    """Raise a RuntimeError where a launcher started several processes that do not train together."""
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if launched != args.world_size:
        raise RuntimeError(
            f"the launcher started {launched} processes, but the Trainer sees {args.world_size}; "
            "set training.use_cpu=true if they run on CPUs"
        )
