"""The Trainer of this package: Hugging Face's, guided, with its evaluation mended for several processes."""

import inspect
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import Seq2SeqTrainer, TrainingArguments
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import seed_worker
from transformers.training_args import ParallelMode

from hf_seq2seq_attn.text_files import InputError

from .averaging import unfilled
from .bpe_dropout import RecutRows
from .collation import IGNORED_LABEL
from .guided_attention import GuidedAttentionMixin
from .loop_recipe import BatchingRecipe
from .resumption import ResumableMixin
from .sampling import LengthGroupedBatches, TokenBatches, token_lengths
from .schedules import vaswani_peak, vaswani_schedule


class Seq2SeqAttnTrainer(ResumableMixin, GuidedAttentionMixin, Seq2SeqTrainer):
    """A `Seq2SeqTrainer` with guided attention and whole checkpoints, for any HF encoder-decoder.

    Unlike the base class it counts each evaluation example once on several processes, takes the mean of the evaluation
    loss over tokens, whatever the batches are, and without label smoothing, so that exp(loss) is the perplexity,
    shuffles its length-grouped batches (`sampling`), and writes no pickle of its arguments into the folders it saves.

    Args:
        batching: batches by tokens (`sampling.TokenBatches`), for which the dataset is one with a length and holds
            `input_ids` and `labels`. None: by sentences, as the arguments say.
        vaswani_factor: the learning rate of Vaswani et al. 2017 (`schedules`) with this factor, for which
            `warmup_steps` is set. None: that of the arguments.
        validator: called as validator(model, rank, processes) at each evaluation of the eval dataset; what it returns
            joins the metrics, e.g. `validation.Validator`.
    """

    target_tokens_seen: torch.Tensor | int = 0
    """Target tokens trained on, of all processes; a tensor, so that counting never waits for the device."""
    evaluation_seconds: float = 0.0
    """Spent in `evaluate` so far."""

    def __init__(
        self,
        *args: Any,
        batching: BatchingRecipe | None = None,
        vaswani_factor: float | None = None,
        validator: Callable[[Any, int, int], dict[str, float]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.batching = batching
        self.vaswani_factor = vaswani_factor
        self.validator = validator
        # Our models smooth labels without holding all logits, for which the Trainer's own smoother asks.
        forward = inspect.signature(self.accelerator.unwrap_model(self.model).forward)
        self._smooths_itself = {"smoothing", "skip_logits"} <= forward.parameters.keys()
        if self._smooths_itself:
            self.label_smoother = None
        self._sampler: Any = None
        self._validating = self._predicting = False
        self._loss_and_tokens = torch.zeros(2)
        self._last_loss = torch.zeros(())

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate; on the trainer's own eval dataset the metrics hold the validator's too."""
        started = time.monotonic()
        self._validating = eval_dataset is None
        try:
            return super().evaluate(eval_dataset, *args, **kwargs)
        finally:
            self._validating = False
            self.evaluation_seconds += time.monotonic() - started

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate; samples that only fill up the last round of the processes are dropped."""
        # Seq2SeqTrainer.evaluate and .predict set a plain gather, which keeps those samples.
        self.gather_function = self.accelerator.gather_for_metrics
        self._loss_and_tokens = torch.zeros(2, dtype=torch.float64)
        output = super().evaluation_loop(*args, **kwargs)
        prefix = kwargs.get("metric_key_prefix", "eval")
        sums = self.accelerator.gather(self._loss_and_tokens.to(self.args.device, torch.float32).unsqueeze(0))
        total, tokens = sums.double().sum(dim=0).tolist()
        if tokens and f"{prefix}_loss" in output.metrics:
            output.metrics[f"{prefix}_loss"] = total / tokens
        if self._validating and self.validator is not None:
            model = self.accelerator.unwrap_model(self.model)
            found = self.validator(model, self.accelerator.process_index, self.accelerator.num_processes)
            output.metrics.update({f"{prefix}_{name}": value for name, value in found.items()})
        return output

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """Return the loss; a model that smooths labels by itself is told to in training, and to show what it gives."""
        if self._smooths_itself and "labels" in inputs:
            smoothing = self.args.label_smoothing_factor if model.training else 0.0
            inputs = {**inputs, "smoothing": smoothing, "skip_logits": not return_outputs}
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def prediction_step(
        self, model: torch.nn.Module, inputs: dict[str, Any], prediction_loss_only: bool, *args: Any, **kwargs: Any
    ) -> Any:
        """Predict; the loss of what only fills up the last round of the processes does not count."""
        labels = inputs.get("labels")
        if labels is None:
            return super().prediction_step(model, inputs, prediction_loss_only, *args, **kwargs)
        labels = labels.clone()
        labels[self._examples_of_last_round(len(labels)) :] = IGNORED_LABEL
        tokens = labels.ne(IGNORED_LABEL).sum().to(self.args.device)
        inputs = {**inputs, "labels": labels}
        self._predicting = True
        smoother, self.label_smoother = self.label_smoother, None
        try:
            found = super().prediction_step(model, inputs, prediction_loss_only, *args, **kwargs)
        finally:
            self._predicting, self.label_smoother = False, smoother
        if found[0] is not None:
            # The model's mean over no token is NaN.
            total = torch.where(tokens > 0, found[0].detach().float() * tokens, 0)
            self._loss_and_tokens = self._loss_and_tokens.to(total.device) + torch.stack([total, tokens])
        return found

    def _get_num_items_in_batch(self, *args: Any, **kwargs: Any) -> torch.Tensor | int | None:
        # While predicting, the loss shall be the mean over the tokens of this batch, not a share of all processes'.
        return None if self._predicting else super()._get_num_items_in_batch(*args, **kwargs)

    def _examples_of_last_round(self, size: int) -> int:
        """Return how many examples of this process's batch are not there for the second time."""
        state = self.accelerator.gradient_state
        if self.args.world_size == 1 or not state.end_of_dataloader or state.remainder <= 0:
            return size
        return min(max(state.remainder - self.args.process_index * size, 0), size)

    def get_train_dataloader(self) -> DataLoader:
        """Return the loader of this process; with `batching`, of batches by tokens, as many on each process."""
        if self.batching is None:
            return super().get_train_dataloader()
        dataset: Any = self.train_dataset
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise ValueError(
                "batching by tokens needs to know all lengths beforehand, and streamed data do not tell them; "
                "leave the batching section out, or the streaming"
            )
        self._sampler = TokenBatches(
            *token_lengths(_measured(dataset)),
            tokens=self.batching.tokens,
            count=self.batching.count,
            sentences=self.batching.sentences,
            seed=self._data_seed(),
            multiple_of=self.args.world_size,
        )
        workers = self.args.dataloader_num_workers
        loader = DataLoader(
            dataset,
            batch_sampler=self._sampler,
            collate_fn=self.data_collator,
            num_workers=workers,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=self.args.dataloader_persistent_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            worker_init_fn=partial(seed_worker, num_workers=workers, rank=self.args.process_index),
        )
        return self.accelerator.prepare(loader)

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        """Return the sentence pairs of one optimiser step; with `batching` the mean."""
        if not isinstance(self._sampler, TokenBatches):
            return super().get_total_train_batch_size(args)
        batches = args.gradient_accumulation_steps * args.world_size
        return max(round(sum(self._sampler.sizes) / len(self._sampler) * batches), 1)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Return the learning-rate schedule of the arguments, or that of Vaswani et al. 2017 (`vaswani_factor`)."""
        if self.vaswani_factor is None or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        optimizer = self.optimizer if optimizer is None else optimizer
        warmup = self.args.get_warmup_steps(num_training_steps)
        config = self.accelerator.unwrap_model(self.model).config
        width = getattr(config, "d_model", None) or config.hidden_size
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] = vaswani_peak(width, warmup, self.vaswani_factor)
        self.lr_scheduler = vaswani_schedule(optimizer, warmup)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        # The library counts tied weights, of which a file holds one, as missing.
        missing = unfilled(self.accelerator.unwrap_model(self.model), load_result.missing_keys)
        super()._issue_warnings_after_load(type(load_result)(missing, load_result.unexpected_keys))

    def _data_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        dataset: Any = _measured(self.train_dataset if train_dataset is None else train_dataset)
        column = self.args.length_column_name
        grouped = self.args.train_sampling_strategy == "group_by_length"
        if not grouped or column not in getattr(dataset, "column_names", ()):
            return super()._get_train_sampler(train_dataset)
        step_size = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        self._sampler = LengthGroupedBatches(dataset[column][:], step_size, self._data_seed())
        return self._sampler

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], torch.Tensor | int | None]:
        """Fetch the micro-batches of one optimiser step, and count their target tokens."""
        samples, items = super().get_batch_samples(*args, **kwargs)
        if items is not None and self.args.average_tokens_across_devices:
            self.target_tokens_seen = self.target_tokens_seen + items
        else:
            # Of this process; the others have about as many.
            own = sum(batch["labels"].ne(IGNORED_LABEL).sum() for batch in samples if "labels" in batch)
            self.target_tokens_seen = self.target_tokens_seen + own * self.args.world_size
        return samples, items

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Do a step, and keep its loss for the next log to look at."""
        self._last_loss = super().training_step(*args, **kwargs)
        return self._last_loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log; end a run whose loss or weights have become NaN or infinite: the library's logs pass over such losses.

        Raises:
            InputError: with what to change in the recipe.
        """
        if "loss" in logs or "train_loss" in logs:
            looked_at: list[Any] = [self._last_loss, *self.accelerator.unwrap_model(self.model).parameters()]
            # Of a weight that is dealt out over processes, the part that is here.
            parts = (tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in looked_at)
            if not all(part.isfinite().all() for part in parts):
                raise InputError(
                    f"step {self.state.global_step}: the loss or the weights have become NaN or infinite; lower "
                    "training.learning_rate, lengthen training.warmup_steps or set training.max_grad_norm=1, then "
                    "start anew by --overwrite"
                )
        super().log(logs, *args, **kwargs)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        folder = self.args.output_dir if output_dir is None else output_dir
        if folder is not None:
            (Path(folder) / TRAINING_ARGS_NAME).unlink(missing_ok=True)


def _measured(dataset: Any) -> Any:
    """Return the rows whose lengths decide what stands in a batch together: each epoch the same."""
    return dataset.rows if isinstance(dataset, RecutRows) else dataset


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
    """Raise an InputError where a launcher was asked for several processes that do not train together."""
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if launched != args.world_size:
        raise InputError(
            f"the launcher started {launched} processes, but the Trainer sees {args.world_size}; "
            "set training.use_cpu=true if they run on CPUs"
        )
    # What `accelerate launch` leaves behind when it was asked for several processes and started one.
    if args.world_size == 1 and {"ACCELERATE_USE_CPU", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        if "WORLD_SIZE" in os.environ:
            return
        raise InputError(
            "accelerate launch was asked for several processes on the CPU, but started one, as it does with --cpu or "
            "MULTI_CPU; use torchrun --nproc-per-node N -m hf_seq2seq_attn.training.train ..., or "
            "ACCELERATE_USE_CPU=true accelerate launch --multi_gpu --num_processes N "
            "-m hf_seq2seq_attn.training.train ..."
        )


def check_sharding(args: TrainingArguments) -> None:
    """Raise an InputError where FSDP was asked for, but each process would train a whole copy without a word."""
    asked = bool(args.fsdp) or os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true")
    if asked and (args.device.type == "cpu" or args.parallel_mode != ParallelMode.DISTRIBUTED):
        raise InputError(
            "FSDP was asked for (training.fsdp or accelerate's configuration), but accelerate shards only on several "
            "processes with accelerators; leave it out here, each process then holds the whole model"
        )
