"""Average the weights of checkpoints (Vaswani et al. 2017, section 6.1: the last 5 for the base model)."""

import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_seq2seq_attn.text_files import InputError

from .checkpoints import CHECKPOINT, flush_to_disk

logger = logging.getLogger(__name__)

KEPT_FOLDER = "averaging"
"""Below the checkpoints: a folder `step-N` for each set of weights that will be averaged."""


def average_weights(folders: Sequence[Path]) -> dict[str, torch.Tensor]:
    """Return the mean of the safetensors files of some folders, name by name.

    Floating-point tensors are added up in float32 (float64 stays float64), whatever they are stored in, and come back
    in the type that they are stored in; others (counters, tables of positions) are those of the last folder.

    Raises:
        InputError: a folder without weights, or folders whose weights differ in name or shape.
    """
    sums: dict[str, torch.Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for number, folder in enumerate(folders):
        names = set()
        for file in weight_files(folder):
            with safe_open(file, framework="pt") as stored:
                for name in sorted(stored.keys()):
                    tensor = stored.get_tensor(name)
                    names.add(name)
                    if number and (name not in sums or sums[name].shape != tensor.shape):
                        raise InputError(f"{file}: {name} is not in {folders[0]} in this shape; average one model's")
                    kinds[name] = tensor.dtype
                    if not tensor.is_floating_point():
                        sums[name] = tensor
                    elif number:
                        sums[name] += tensor
                    else:
                        sums[name] = tensor.to(torch.promote_types(tensor.dtype, torch.float32), copy=True)
        if names != sums.keys():
            raise InputError(f"{folder}: has no {min(sums.keys() - names)}, as {folders[0]} has; average one model's")
    return {
        name: (total / len(folders)).to(kinds[name]) if total.is_floating_point() else total
        for name, total in sums.items()
    }


def load_weights(model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Copy weights into a model; tied ones, of which a file holds one, stay tied.

    Raises:
        InputError: weights for a name that the model does not have, or none for one that it has.
    """
    result = model.load_state_dict(weights, strict=False)
    missing = unfilled(model, result.missing_keys)
    if missing or result.unexpected_keys:
        raise InputError(
            f"averaged weights do not fit the model: it lacks {result.unexpected_keys[:3]}, they lack {missing[:3]}"
        )


def unfilled(model: torch.nn.Module, missing: Sequence[str]) -> list[str]:
    """Return the names in `missing` that are not tied to a weight of the model that is not missing."""
    state = model.state_dict()
    filled = {weight.data_ptr() for name, weight in state.items() if name not in missing}
    return [name for name in missing if state[name].data_ptr() not in filled]


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder; raise an InputError if it has none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError(f"{folder}: holds no *.safetensors to average; let the Trainer save whole models")
    return files


class KeepWeights(TrainerCallback):
    """Keep the weights of the last or the best `count` checkpoints, however many the Trainer itself keeps.

    They are hard links to the checkpoints' files where the file system has them, else copies.

    Args:
        folder: where; it is made.
        metric: as logged, e.g. "eval_bleu", for the best; None = the last.
        greater_is_better: of the metric.
    """

    def __init__(
        self, folder: Path, count: int, metric: str | None = None, greater_is_better: bool | None = None
    ) -> None:
        self.folder = folder
        self.count = count
        self.metric = metric
        self.greater_is_better = greater_is_better

    def kept(self) -> list[Path]:
        """Return the folders of the kept weights, in order of steps."""
        return sorted(self.folder.glob("step-*"), key=_step_of)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Forget what an interrupted run kept after the step that this one starts from, and keep what it could not."""
        if state.is_world_process_zero:
            for folder in self.kept():
                if _step_of(folder) > state.global_step:
                    shutil.rmtree(folder)
            if (Path(str(args.output_dir)) / f"{CHECKPOINT}-{state.global_step}").is_dir():
                self.on_save(args, state, control)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Take in the checkpoint just written, and let go of one too many."""
        if not state.is_world_process_zero:
            return
        checkpoint = Path(str(args.output_dir)) / f"{CHECKPOINT}-{state.global_step}"
        # Saved between two steps that the recipe names, against a loss of time only; or not saved, for a full disk.
        if not checkpoint.is_dir():
            return
        target = self.folder / f"step-{state.global_step}"
        partial = self.folder / f"partial-{state.global_step}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for file in weight_files(checkpoint):
            _link_or_copy(file, partial / file.name)
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
        for folder in self._too_many(state):
            shutil.rmtree(folder)

    def _too_many(self, state: TrainerState) -> list[Path]:
        kept = self.kept()
        if self.metric is not None:
            values = {entry["step"]: entry[self.metric] for entry in state.log_history if self.metric in entry}
            sign = 1 if self.greater_is_better else -1
            goodness = {step: sign * value for step, value in values.items()}
            # Of equally good ones the later stays.
            kept.sort(key=lambda folder: (goodness.get(_step_of(folder), float("-inf")), _step_of(folder)))
        return kept[: max(len(kept) - self.count, 0)]


def average_kept(keeper: KeepWeights, model: torch.nn.Module) -> list[int]:
    """Put the mean of the kept weights into the model; return their steps.

    With fewer than two there is nothing to average: the model stays as it is, with a warning.
    """
    folders = keeper.kept()
    steps = [_step_of(folder) for folder in folders]
    if len(folders) < 2:
        logger.warning(
            "selection.average=%d: only %d checkpoint(s) were written, so nothing was averaged; lower "
            "training.save_steps (or eval_steps)",
            keeper.count,
            len(folders),
        )
        return steps
    if len(folders) < keeper.count:
        logger.warning("selection.average=%d: only %d checkpoints were written", keeper.count, len(folders))
    load_weights(model, average_weights(folders))
    return steps


def _step_of(folder: Path) -> int:
    return int(folder.name.partition("-")[2])


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
        flush_to_disk(target)
