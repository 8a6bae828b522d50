"""A Trainer mixin: whole checkpoints, and a continued run that ends with the weights of an uninterrupted one.

Beyond what Hugging Face's Trainer saves (weights, optimiser, schedule, random states, its own state) a checkpoint here
holds where in the data the run was, by epoch and batch, and what was counted since the last log, for each process.
Everything is read back with `weights_only=True`.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import IntervalStrategy

from hf_seq2seq_attn.text_files import InputError

from .checkpoints import CHECKPOINT, RESCUE, list_checkpoints, publish, remove, rotate, seal
from .processes import exchange, is_first_process, process_index

logger = logging.getLogger(__name__)

SAVE_STEPS = 500
RESCUE_SECONDS = 600.0
"""A checkpoint after so long without one, looked at whenever the loss is logged, however few steps were done."""


class SaveError(RuntimeError):
    """What a run depends on could not be written; the message says what to do. Commands end with exit code 1."""


def with_saving(settings: Mapping[str, Any], training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the training arguments with what an interrupted run needs to go on, where they say nothing of it.

    A checkpoint every `SAVE_STEPS` steps and the last two kept; where the best one is wanted, at every evaluation.

    Args:
        settings: fields of Seq2SeqTrainingArguments, defaults included.
        training: those that the recipe itself names. `save_strategy: no` there is heeded: no checkpoints, no going on.
    """
    saving: dict[str, Any] = {}
    if settings.get("save_strategy", "no") == "no" and "save_strategy" not in training:
        saving = {"save_strategy": "steps", "save_steps": settings.get("save_steps", SAVE_STEPS)}
        if settings.get("load_best_model_at_end"):
            saving["save_strategy"] = settings.get("eval_strategy", "no")
            saving["save_steps"] = settings.get("eval_steps") or settings.get("logging_steps", SAVE_STEPS)
    return {"save_total_limit": 2, "restore_callback_states_from_checkpoint": True, **settings, **saving}


def is_of_the_disk(error: Exception) -> bool:
    """Tell a failure to write from any other: torch and safetensors raise their own errors for it."""
    if isinstance(error, InputError):
        return False
    # Torch says it in the words of its archive writer.
    by_torch = isinstance(error, RuntimeError) and (
        "PytorchStreamWriter" in str(error) or "inline_container" in str(error)
    )
    return isinstance(error, OSError | SafetensorError) or by_torch


class ResumableMixin:
    """Save checkpoints that are whole or not there, and continue from one to the bit; put it first in the bases.

    `train(resume_from_checkpoint=FOLDER)` continues from a checkpoint of `checkpoints.find_checkpoint`. The arguments
    should have `restore_callback_states_from_checkpoint=True`, or early stopping forgets how long it has waited.

    A checkpoint that cannot be written (a full disk) leaves the older ones as they are. Training then goes on with a
    warning, unless `needs_checkpoints`.
    """

    rescue_seconds: float = RESCUE_SECONDS
    needs_checkpoints: bool = False
    """Whether the weights that the run ends with are read from its checkpoints (the best one, or a mean of several):
    then one that cannot be written raises a SaveError."""
    seconds_trained: float = 0.0
    """Of earlier starts of this run, up to the checkpoint that it continued from."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        trainer: Any = self
        self.needs_checkpoints = bool(trainer.args.load_best_model_at_end)
        self._position = (0, 0)
        self._writing_into: Path | None = None
        self._restored: dict[str, Any] | None = None
        self._is_rescue = False
        self._flow = _CheckpointFlow(self)
        trainer.add_callback(self._flow)

    def checkpoints_to_keep(self) -> set[Path]:
        """Return the checkpoints that no rotation may delete, besides the last two: the best one."""
        trainer: Any = self
        best = trainer.state.best_model_checkpoint
        return set() if best is None else {Path(best)}

    def resumable_state(self) -> dict[str, Any]:
        """Return what this process must remember: tensors and plain values, which `torch.save` writes."""
        trainer: Any = self
        return {
            "epoch": self._position[0],
            "batches": self._position[1],
            "finished": trainer.control.should_training_stop,
            "loss": trainer._tr_loss.cpu(),
            "last_logged": trainer._globalstep_last_logged,
            "target_tokens": int(getattr(self, "target_tokens_seen", 0)),
            "guided_sums": [sums.cpu() for training, sums in getattr(self, "_guided_sums", {}).items() if training],
            "seconds": self.seconds_trained + self._flow.seconds,
        }

    def restore_state(self, state: dict[str, Any]) -> None:
        """Take back what `resumable_state` returned; called when training begins."""
        trainer: Any = self
        trainer._tr_loss = state["loss"].to(trainer.args.device)
        trainer._globalstep_last_logged = state["last_logged"]
        trainer.target_tokens_seen = state["target_tokens"]
        if state["guided_sums"]:
            trainer._guided_sums[True] = state["guided_sums"][0].to(trainer.args.device)
        self.seconds_trained = state["seconds"]

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Fetch the micro-batches of one optimiser step, and count them."""
        samples, items = super().get_batch_samples(*args, **kwargs)  # type: ignore[misc]
        self._position = (self._position[0], self._position[1] + len(samples))
        return samples, items

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Return the epoch and the batch to continue at: what was saved, for epochs need not have equally many."""
        trainer: Any = self
        start: tuple[int, int] = super()._init_training_state(*args, **kwargs)  # type: ignore[misc]
        checkpoint = kwargs.get("resume_from_checkpoint", args[3] if len(args) > 3 else None)
        self._restored = None
        if checkpoint is None or not (path := _state_file(Path(checkpoint))).is_file():
            return start
        self._restored = torch.load(path, map_location="cpu", weights_only=True)
        if trainer.state.best_global_step:
            # The folder may have been moved, or be named from elsewhere.
            best = Path(trainer.args.output_dir) / f"{CHECKPOINT}-{trainer.state.best_global_step}"
            trainer.state.best_model_checkpoint = str(best) if best.is_dir() else None
        return self._restored["epoch"], self._restored["batches"]

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        trainer: Any = self
        continued = self._restored is not None and kwargs["epoch"] == self._restored["epoch"]
        self._position = (kwargs["epoch"], kwargs["steps_trained_in_current_epoch"] if continued else 0)
        if self._restored is not None and self._restored["finished"]:
            # The library would train one step more.
            trainer.control.should_training_stop = True
            return
        _set_epoch(kwargs["train_dataloader"], kwargs["epoch"])
        super()._run_epoch(*args, **kwargs)  # type: ignore[misc]

    def _get_output_dir(self, *args: Any, **kwargs: Any) -> str:
        if self._writing_into is not None:
            return str(self._writing_into)
        return super()._get_output_dir(*args, **kwargs)  # type: ignore[misc]

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint elsewhere, seal it, name it. All processes take part, and hear whether it is whole."""
        trainer: Any = self
        folder, step = Path(trainer.args.output_dir), trainer.state.global_step
        kind = RESCUE if self._is_rescue else CHECKPOINT
        if trainer.state.best_global_step == step and kind == CHECKPOINT:
            trainer.state.best_model_checkpoint = str(folder / f"{CHECKPOINT}-{step}")
        saving = folder / "saving"
        written = saving / f"{CHECKPOINT}-{step}"
        problem = ""
        if is_first_process():
            remove(saving)
        exchange("")
        try:
            with self._redirected(saving):
                super()._save_checkpoint(model, trial)  # type: ignore[misc]
            if trainer.args.should_save:
                # Once more, now that it names the best step.
                trainer.state.save_to_json(str(written / TRAINER_STATE_NAME))
            torch.save(self.resumable_state(), _state_file(written))
        except Exception as error:
            if not is_of_the_disk(error):
                raise
            problem = str(error)
        problem = next(filter(None, exchange(problem)), "")
        if is_first_process() and not problem:
            try:
                seal(written)
                publish(written, folder / f"{kind}-{step}")
            except OSError as error:
                problem = str(error)
        if is_first_process():
            remove(saving)
        problem = exchange(problem)[0]
        if problem:
            self._report_unsaved(step, problem)
        elif is_first_process():
            rotate(folder, trainer.args.save_total_limit, self.checkpoints_to_keep())
        self._flow.saved()

    def _maybe_log_save_evaluate(
        self, tr_loss: Any, grad_norm: Any, model: Any, trial: Any, *args: Any, **kw: Any
    ) -> None:
        trainer: Any = self
        logs, saves = trainer.control.should_log, trainer.control.should_save
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, model, trial, *args, **kw)  # type: ignore[misc]
        # The processes have just waited for each other, to log the mean of their losses.
        if logs and not saves and trainer.args.save_strategy != "no" and exchange(self._flow.overdue())[0]:
            # Past the callbacks: to them only the checkpoints count that the recipe asks for.
            self._is_rescue = True
            try:
                self._save_checkpoint(model, trial)
            finally:
                self._is_rescue = False

    @contextmanager
    def _redirected(self, folder: Path) -> Iterator[None]:
        """Let the library write, and count what to delete, in a folder of its own.

        Without a best step it does not wait for the other processes: one whose disk is full would not come.
        """
        trainer: Any = self
        best, trainer.state.best_global_step = trainer.state.best_global_step, None
        self._writing_into = folder
        try:
            yield
        finally:
            self._writing_into = None
            trainer.state.best_global_step = best

    def _report_unsaved(self, step: int, problem: str) -> None:
        trainer: Any = self
        left = list_checkpoints(Path(trainer.args.output_dir))
        last = f"the last whole one is {left[-1].name}" if left else "there is none yet"
        message = f"checkpoint of step {step} cannot be written ({problem}); {last}"
        if self.needs_checkpoints:
            raise SaveError(f"{message}; make room and give the same command: it goes on from there")
        if is_first_process():
            logger.warning("%s; training goes on", message)


class _CheckpointFlow(TrainerCallback):
    """Note where in the data the run is, and save at the end of an epoch only when nothing else of it is left to do."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self._epoch_has_more = self._postponed = False
        self._began = self._last_saved = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since training began."""
        return time.monotonic() - self._began

    def saved(self) -> None:
        """Note that a checkpoint was dealt with."""
        self._last_saved = time.monotonic()

    def overdue(self) -> str:
        """Return a word if it is long since a checkpoint was written, else nothing."""
        if self._epoch_has_more or time.monotonic() - self._last_saved <= self.trainer.rescue_seconds:
            return ""
        return "overdue"

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._began = self._last_saved = time.monotonic()
        if self.trainer._restored is not None:
            self.trainer.restore_state(self.trainer._restored)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # Exact: the last batch makes it epoch + n / n.
        ends_epoch = state.epoch is not None and float(state.epoch).is_integer()
        if ends_epoch:
            self.trainer._position = (int(state.epoch or 0), 0)
        ends_pass = ends_epoch or control.should_training_stop
        self._epoch_has_more = ends_pass and IntervalStrategy.EPOCH in (args.eval_strategy, args.logging_strategy)
        if control.should_save and self._epoch_has_more:
            control.should_save, self._postponed = False, True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        epoch, batches = self.trainer._position
        self.trainer._position = (epoch + (batches > 0), 0)
        if self._postponed:
            control.should_save, self._postponed = True, False


def _state_file(checkpoint: Path) -> Path:
    return checkpoint / f"run_state_{process_index()}.pt"


def _set_epoch(loader: Any, epoch: int) -> None:
    """Tell the data and every sampler below a loader the epoch: the library reaches only the outermost of them."""
    if hasattr(loader.dataset, "set_epoch"):
        loader.dataset.set_epoch(epoch)
    part = getattr(loader, "batch_sampler", None)
    while part is not None:
        if hasattr(part, "set_epoch"):
            part.set_epoch(epoch)
        part = getattr(part, "batch_sampler", None) or getattr(part, "sampler", None)
