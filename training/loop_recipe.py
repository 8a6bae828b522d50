"""The recipe's sections about the loop: batches, learning rate, validation, which weights are kept."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hf_seq2seq_attn.text_files import InputError

from .sampling import COUNTS

if TYPE_CHECKING:
    from .recipe import Recipe, Where


@dataclass
class BatchingRecipe:
    """Batches that hold as many sentence pairs as their padded tokens allow; see `sampling.TokenBatches`.

    `training.per_device_train_batch_size` is then not read.
    """

    tokens: int
    """Budget of one batch on one process, padding included."""
    count: str = "both"
    """What the budget counts, a key of `sampling.COUNTS`."""
    sentences: int | None = None
    """At most this many pairs in a batch, however short they are."""


@dataclass
class ScheduleRecipe:
    """The learning rate of Vaswani et al. 2017; Hugging Face's own schedules are `training.lr_scheduler_type`."""

    form: str = "vaswani2017"
    factor: float = 1.0
    """The rate of step t = 1, 2, ... is factor * d_model^-0.5 * min(t^-0.5, t * warmup_steps^-1.5)."""


@dataclass
class ValidationRecipe:
    """What is measured on dev at every `training.eval_steps`, and on dev and test at the end."""

    metrics: list[str] = field(default_factory=lambda: ["chrf", "bleu"])
    """Keys of `scoring.METRICS`; the loss is always there."""
    beams: int = 4
    limit: int | None = None
    """While training only the first so many lines of dev are translated; None = all."""
    batch_size: int = 32
    bleu_tokenize: str = "none"
    """sacrebleu's tokenizer for BLEU: `none` for texts that are tokenised already, `13a` for plain text."""
    several_references: bool = False
    """Lines with the same source are references of one: each source counts once, against the nearest of them."""


@dataclass
class SelectionRecipe:
    """Which weights the run leaves: those of the last step, of the best validation, or a mean of several."""

    metric: str | None = None
    """Keep the checkpoint that was best by this metric of the validation; None = the last step."""
    greater_is_better: bool | None = None
    """None: known from the metric's name."""
    patience: int | None = None
    """Stop after so many validations in a row without a new best; None = never."""
    min_delta: float = 0.0
    """A gain of no more than this is none to `patience`."""
    average: int | None = None
    """Mean of the weights of so many checkpoints; None = no mean."""
    average_of: str = "last"
    """`last` | `best` checkpoints, best by `metric`."""


def check_loop(recipe: "Recipe", where: "Where") -> None:
    """Refuse values of these sections and of `training` that cannot be, or clash with each other.

    Raises:
        InputError: `FILE:LINE: what; remedy`.
    """
    if recipe.batching is not None:
        _check_batching(recipe, where)
    if recipe.schedule is not None:
        _check_schedule(recipe, where)
    if recipe.validation is not None:
        _check_validation(recipe, where)
    if recipe.selection is not None:
        _check_selection(recipe, where)
    for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"):
        if recipe.training.get(name, 1) < 1:
            raise InputError(
                f"{where(('training', name))}: training.{name}={recipe.training[name]}: must be at least 1"
            )
    strategy = recipe.training.get("eval_strategy", "no")
    if strategy != "no" and recipe.data.dev is None:
        raise InputError(
            f"{where(('training', 'eval_strategy'))}: training.eval_strategy={strategy} needs data.dev; name its files"
        )


def _check_batching(recipe: "Recipe", where: "Where") -> None:
    batching: Any = recipe.batching
    _at_least(1, batching, "batching", ("tokens", "sentences"), where)
    _one_of(COUNTS, batching, "batching", "count", where)
    strategy = recipe.training.get("train_sampling_strategy", "group_by_length")
    if strategy != "group_by_length":
        raise InputError(
            f"{where(('training', 'train_sampling_strategy'))}: training.train_sampling_strategy={strategy!r}: "
            "batching puts sentences of like length together; leave one of the two out"
        )
    if recipe.training.get("dataloader_drop_last"):
        raise InputError(
            f"{where(('training', 'dataloader_drop_last'))}: training.dataloader_drop_last: batching drops no "
            "sentence; leave it out"
        )


def _check_schedule(recipe: "Recipe", where: "Where") -> None:
    schedule: Any = recipe.schedule
    _one_of(("vaswani2017",), schedule, "schedule", "form", where)
    if not schedule.factor > 0:
        raise InputError(f"{where(('schedule', 'factor'))}: schedule.factor={schedule.factor}: must be above 0")
    for name in ("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs"):
        if name in recipe.training:
            raise InputError(
                f"{where(('training', name))}: training.{name} is not set beside a schedule section, which decides the "
                "rate; leave one of the two out (schedule=null)"
            )
    if not recipe.training.get("warmup_steps"):
        raise InputError(
            f"{where(('schedule',))}: schedule.form=vaswani2017 rises during training.warmup_steps; set it, e.g. to "
            "4000"
        )


def _check_validation(recipe: "Recipe", where: "Where") -> None:
    from .scoring import BLEU_TOKENIZERS, METRICS

    validation: Any = recipe.validation
    _at_least(1, validation, "validation", ("beams", "limit", "batch_size"), where)
    _one_of(BLEU_TOKENIZERS, validation, "validation", "bleu_tokenize", where)
    if "generation_num_beams" in recipe.training:
        raise InputError(
            f"{where(('training', 'generation_num_beams'))}: training.generation_num_beams is not read beside a "
            "validation section; set validation.beams"
        )
    place = where(("validation", "metrics"))
    for name in validation.metrics:
        if name not in METRICS:
            raise InputError(f"{place}: validation.metrics: no metric {name!r}; known are {', '.join(METRICS)}")
    if recipe.data.dev is None:
        raise InputError(f"{where(('validation',))}: validation needs data.dev; name its files")
    if "aer" in validation.metrics:
        if not _names_links(recipe.data.dev):
            raise InputError(f"{place}: validation.metrics: aer needs gold links; name data.dev.links")
        if recipe.model.get("cross_attention_type") == "none":
            raise InputError(f"{place}: validation.metrics: aer needs a model with attention; leave it out")


def _check_selection(recipe: "Recipe", where: "Where") -> None:
    from .scoring import METRICS

    selection: Any = recipe.selection
    _at_least(1, selection, "selection", ("patience", "average"), where)
    _one_of(("last", "best"), selection, "selection", "average_of", where)
    for name in ("load_best_model_at_end", "metric_for_best_model", "greater_is_better"):
        if name in recipe.training:
            raise InputError(
                f"{where(('training', name))}: training.{name} is not set beside a selection section; "
                "use selection.metric and selection.greater_is_better"
            )
    if recipe.training.get("save_strategy") == "no":
        raise InputError(
            f"{where(('training', 'save_strategy'))}: training.save_strategy=no: a selection is made among "
            "checkpoints; leave it out"
        )
    place = where(("selection", "metric"))
    if selection.metric is None:
        for name in ("patience", "greater_is_better"):
            if getattr(selection, name) is not None:
                raise InputError(f"{where(('selection', name))}: selection.{name} needs selection.metric, e.g. loss")
        if selection.average is None:
            raise InputError(f"{where(('selection',))}: selection selects nothing; set its metric or its average")
        if selection.average_of == "best":
            raise InputError(
                f"{where(('selection', 'average_of'))}: selection.average_of=best needs selection.metric, e.g. loss"
            )
        return
    if selection.metric not in METRICS:
        raise InputError(
            f"{place}: selection.metric={selection.metric!r}: no such metric; known are {', '.join(METRICS)}"
        )
    measured = ["loss", *(recipe.validation.metrics if recipe.validation else [])]
    if recipe.alignment is not None and _names_links(recipe.data.dev):
        measured.append("guided_loss")
    if selection.metric not in measured:
        raise InputError(
            f"{place}: selection.metric={selection.metric!r} is not measured; add it to validation.metrics, or choose "
            f"one of {', '.join(dict.fromkeys(measured))}"
        )
    if recipe.data.dev is None:
        raise InputError(f"{place}: selection.metric needs data.dev; name its files")
    if selection.metric == "aer" and not _names_links(recipe.data.dev):
        raise InputError(f"{place}: selection.metric=aer needs gold links; name data.dev.links")
    if recipe.training.get("eval_strategy", "no") == "no":
        raise InputError(
            f"{place}: selection.metric needs validation during training; set training.eval_strategy=steps and "
            "training.eval_steps"
        )
    saving = recipe.training.get("save_strategy", "best")
    if saving not in ("best", recipe.training["eval_strategy"]):
        raise InputError(
            f"{where(('training', 'save_strategy'))}: training.save_strategy={saving}: selection.metric chooses among "
            f"checkpoints of validations (training.eval_strategy={recipe.training['eval_strategy']}); leave it out"
        )


def _names_links(part: Any) -> bool:
    return any(getattr(part, name, None) is not None for name in ("links", "links_column"))


def _at_least(least: int, section: Any, name: str, fields: tuple[str, ...], where: "Where") -> None:
    for item in fields:
        value = getattr(section, item)
        if value is not None and value < least:
            raise InputError(f"{where((name, item))}: {name}.{item}={value}: must be at least {least}")


def _one_of(allowed: Any, section: Any, name: str, item: str, where: "Where") -> None:
    value = getattr(section, item)
    if value not in allowed:
        raise InputError(f"{where((name, item))}: {name}.{item}={value!r}: choose one of {', '.join(allowed)}")
