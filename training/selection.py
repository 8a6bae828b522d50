"""Which weights a run leaves: what a recipe's sections mean to the Trainer's arguments and callbacks."""

import dataclasses
import importlib.util
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import EarlyStoppingCallback, TrainerCallback, TrainingArguments

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer

from .averaging import KEPT_FOLDER, KeepWeights, average_kept
from .data import ParallelCorpus
from .loop_recipe import SelectionRecipe, ValidationRecipe
from .recipe import Recipe
from .run_record import TENSORBOARD_FOLDER
from .scoring import DEFAULT_METRICS, METRICS
from .trainer import Seq2SeqAttnTrainer
from .validation import Validator

logger = logging.getLogger(__name__)


def loop_arguments(
    selection: SelectionRecipe | None, defaults: Mapping[str, Any], training: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of Seq2SeqTrainingArguments of a run: `defaults`, what the selection needs, the recipe's own.

    To select or average, checkpoints are written at each validation, or every `save_steps` where there is none, and the
    Trainer keeps the last and the best; what the recipe says of that in `training` holds.
    """
    settings = {**defaults, **training}
    if selection is None:
        return settings
    needed: dict[str, Any] = {"save_total_limit": 2}
    validated = settings.get("eval_strategy", "no")
    if selection.metric is not None or settings.get("save_strategy", "no") == "no":
        needed["save_strategy"] = validated if validated != "no" else "steps"
        if validated == "steps":
            needed["save_steps"] = settings.get("eval_steps") or settings["logging_steps"]
    forced: dict[str, Any] = {}
    if selection.metric is not None:
        greater = greater_is_better(selection)
        needed["restore_callback_states_from_checkpoint"] = True
        forced = {
            "load_best_model_at_end": True,
            "metric_for_best_model": f"eval_{selection.metric}",
            "greater_is_better": greater,
        }
        if settings.get("lr_scheduler_type") in ("reduce_lr_on_plateau", "greedy"):
            # Left alone they follow a metric that falls.
            mode = {"mode": "max" if greater else "min"}
            forced["lr_scheduler_kwargs"] = mode | dict(settings.get("lr_scheduler_kwargs") or {})
    return {**defaults, **needed, **training, **forced}


def greater_is_better(selection: SelectionRecipe) -> bool:
    """Return the direction of the selection's metric, as told or as its name tells."""
    told = selection.greater_is_better
    return METRICS[selection.metric or "loss"] if told is None else told


def selection_callbacks(selection: SelectionRecipe | None, arguments: TrainingArguments) -> list[TrainerCallback]:
    """Return the callbacks that stop early and that keep weights to average."""
    callbacks: list[TrainerCallback] = []
    if selection is not None and selection.patience is not None:
        callbacks.append(EarlyStoppingCallback(selection.patience, selection.min_delta))
    if selection is not None and selection.average is not None:
        best = selection.average_of == "best"
        callbacks.append(
            KeepWeights(
                Path(str(arguments.output_dir)) / KEPT_FOLDER,
                selection.average,
                f"eval_{selection.metric}" if best else None,
                greater_is_better(selection) if best else None,
            )
        )
    return callbacks


def average_selected(
    recipe: Recipe, trainer: Seq2SeqAttnTrainer, dev: ParallelCorpus | None, tokenizer: AnyTokenizer
) -> dict[str, Any] | None:
    """Put the average that the recipe asks for into the trained model, on every process; return its record.

    The record: `of` (last | best), `steps` that were averaged, and `unaveraged`: the metrics of the whole dev part
    without the average, of the weights that the run would have left. None without `selection.average`.
    """
    # Its count of validations without a gain is over.
    trainer.remove_callback(EarlyStoppingCallback)
    keepers = [one for one in trainer.callback_handler.callbacks if isinstance(one, KeepWeights)]
    if not keepers or recipe.selection is None or trainer.state.global_step == 0:
        return None
    # One process writes what is kept.
    trainer.accelerator.wait_for_everyone()
    record: dict[str, Any] = {"of": recipe.selection.average_of, "steps": []}
    if dev is not None:
        settings = recipe.validation or ValidationRecipe(list(DEFAULT_METRICS))
        trainer.validator = Validator(dev, tokenizer, dataclasses.replace(settings, limit=None))
        found = trainer.evaluate(metric_key_prefix="unaveraged")
        record["unaveraged"] = {name: found[f"unaveraged_{name}"] for name in METRICS if f"unaveraged_{name}" in found}
    record["steps"] = average_kept(keepers[0], trainer.accelerator.unwrap_model(trainer.model))
    logger.info("averaged the weights of steps %s", record["steps"])
    return record


def check_reports(arguments: TrainingArguments) -> None:
    """Refuse to report to what is not installed.

    Raises:
        InputError: for TensorBoard with the line that installs it.
    """
    from transformers.integrations import get_available_reporting_integrations

    if "tensorboard" in (arguments.report_to or ()) and importlib.util.find_spec("tensorboard") is None:
        raise InputError(
            "training.report_to=tensorboard: tensorboard is not installed; "
            "run: pip install 'hf-seq2seq-attn[tensorboard]'"
        )
    there = get_available_reporting_integrations()
    for name in arguments.report_to or ():
        if name not in there:
            raise InputError(
                f"training.report_to={name}: not installed, or not known; install it, or choose one of "
                f"{', '.join([*there, 'none'])}"
            )


def direct_tensorboard(callbacks: list[TrainerCallback], run_dir: Path) -> None:
    """Let TensorBoard's event files lie in the run directory: below the checkpoints they would go with these."""
    from transformers.integrations import TensorBoardCallback

    for callback in callbacks:
        # TENSORBOARD_LOGGING_DIR, if the user has set it, is heeded by the callback itself.
        if isinstance(callback, TensorBoardCallback) and callback.logging_dir is None:
            callback.logging_dir = str(run_dir / TENSORBOARD_FOLDER)
