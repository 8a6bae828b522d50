"""Train a model by a recipe: corpus in, Hub-ready folder out.

    python -m hf_seq2seq_attn.training.train RECIPE [field=value ...] -o DIR

The same line works under `torchrun` and `accelerate launch -m`.
"""

import argparse
import dataclasses
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import (
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    PrinterCallback,
    Seq2SeqTrainingArguments,
    set_seed,
)
from transformers.utils.logging import disable_progress_bar

from hf_seq2seq_attn.text_files import InputError, check_output_folder
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer, load_tokenizer, load_tokenizer_files

from .alignment_reading import choose_reading, inherited_reading, is_unread
from .bpe_dropout import RecutRows
from .card import write_card
from .checkpoints import step_of
from .collation import Seq2SeqCollator
from .data import ParallelCorpus, read_corpus
from .data_recipe import corpora_of, local_files
from .guided_attention import GuidedAttention, settle
from .kept_memory import keep_freed_memory
from .model_setup import make_model, make_tokenizer
from .pictures import choose_example, draw_attention, draw_curve
from .prepared_corpora import prepare_corpus
from .processes import announce, exchange, from_first, in_turn, is_first_process, report_once, together
from .progress import ProgressReport, Stage, stages
from .recipe import Recipe, load_recipe, save_recipe
from .report_commands import report_run
from .resumption import SaveError, is_of_the_disk, with_saving
from .run_folder import CHECKPOINTS_FOLDER, RunFolder, open_run
from .run_record import (
    ATTENTION_FILE,
    CURVE_FILE,
    METRICS_FILE,
    RECIPE_FILE,
    hardware,
    read_metrics,
    versions,
    write_metrics,
)
from .schedules import check_schedule
from .scoring import score_corpus
from .selection import average_selected, check_reports, direct_tensorboard, loop_arguments, selection_callbacks
from .statistical_links import with_statistical_links
from .trainer import Seq2SeqAttnTrainer, check_sharding, check_world_size, default_training_arguments
from .training_data import LoadedTraining, StreamedTraining, encode_part, open_training_data, streaming_arguments
from .validation import Validator, scoring_settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainResult:
    """A finished run: its folder, its metrics (as in metrics.json), and the model in memory."""

    run_dir: Path
    metrics: dict[str, Any]
    model: PreTrainedModel
    tokenizer: AnyTokenizer


def train(recipe: Recipe, output_dir: str | Path, *, overwrite: bool = False, progress: bool = True) -> TrainResult:
    """Train by `recipe` and leave a folder that `AutoModelForSeq2SeqLM.from_pretrained` loads.

    The folder holds the model, its tokenizer and code, `metrics.json`, `recipe.yaml` as run, `curve.png`,
    `attention.png` and a card. `training.max_steps=0` trains nothing and leaves the model as it was made.
    Links of the dev and test parts are read, if the recipe names them, and used for scoring only.

    A run that was interrupted, at whatever moment, goes on from its last whole checkpoint when it is called again with
    the same recipe, files and number of processes, and ends with the weights of an uninterrupted one.

    Raises:
        InputError: bad files, recipe values that clash, or a folder that cannot be made, holds a model already (unless
            `overwrite`), or holds another unfinished run.
        SaveError: the disk is full; what was saved before is whole.
    """
    with together():
        run_dir = check_output_folder(Path(output_dir))
        arguments = _training_arguments(recipe, run_dir)
        check_world_size(arguments)
        check_sharding(arguments)
    prepared = None
    if recipe.prepare is not None:
        prepare, files = recipe.prepare, _files(recipe)
        prepared = in_turn(lambda: prepare_corpus(prepare.corpus, prepare.folder, files))
    run = open_run(run_dir, recipe, overwrite=overwrite, needs_older=arguments.load_best_model_at_end)
    try:
        if run.is_written:
            return _finish_written(run)
        return _train_in(run, recipe, arguments, {"prepared": prepared} if prepared else {}, progress)
    except InputError:
        run.abandon()
        raise
    finally:
        run.release()


def _train_in(
    run: RunFolder, recipe: Recipe, arguments: Seq2SeqTrainingArguments, record: dict[str, Any], progress: bool
) -> TrainResult:
    """Train in a folder that this run holds; `record` goes into the metrics file."""
    if arguments.device.type == "cpu":
        keep_freed_memory()
    trainer, training_data, corpora, found = _prepare(run, recipe, arguments)
    run.forget_replaced()
    tokenizer: Any = trainer.processing_class
    if progress:
        trainer.add_callback(ProgressReport(trainer))
    model: PreTrainedModel = trainer.accelerator.unwrap_model(trainer.model)

    clock = time.perf_counter()
    # To Hugging Face's Trainer 0 steps mean "no limit".
    if arguments.max_steps != 0:
        trainer.train(resume_from_checkpoint=None if run.checkpoint is None else str(run.checkpoint))
    seconds = trainer.seconds_trained + time.perf_counter() - clock
    averaging = average_selected(recipe, trainer, corpora.get("dev"), tokenizer)
    # What follows is measured on the whole of dev and test, by `score_corpus`.
    trainer.validator = None
    dev_losses = trainer.evaluate() if trainer.eval_dataset is not None else {}

    metrics: dict[str, Any] = {
        "name": recipe.name,
        "started": run.started,
        "seconds": round(seconds, 1),
        **({"continued_from_step": step_of(run.checkpoint)} if run.checkpoint else {}),
        "steps": trainer.state.global_step,
        "epochs": training_data.epochs(trainer.state),
        "target_tokens_seen": int(trainer.target_tokens_seen),
        "seed": arguments.seed,
        "processes": arguments.world_size,
        "parameters": model.num_parameters(),
        **found,
        **record,
        **({"averaging": averaging} if averaging else {}),
        "versions": versions(),
        "hardware": hardware(),
        "history": trainer.state.log_history,
    }
    try:
        _finish(run, recipe, trainer, metrics, corpora, dev_losses, stages(progress))
    except Exception as error:
        if not is_of_the_disk(error):
            raise
        raise SaveError(
            f"{run.run_dir}: the finished model cannot be written ({error}); make room and give the same command: "
            "what was trained is kept"
        ) from error
    return TrainResult(run.run_dir, metrics, model, tokenizer)


def _prepare(
    run: RunFolder, recipe: Recipe, arguments: Seq2SeqTrainingArguments
) -> tuple[Seq2SeqAttnTrainer, LoadedTraining | StreamedTraining, dict[str, ParallelCorpus], dict[str, Any]]:
    """Return the trainer, its data, the corpora to score and to show by their parts, and the record of the data."""
    with together():
        corpora = {part: read_corpus(corpus, recipe.data.cache_dir) for part, corpus in _held_out(recipe)}
        training_data = open_training_data(recipe.data, arguments)
        corpora["train"] = training_data.sample()
    tokenizer = in_turn(lambda: _make_or_reload_tokenizer(recipe, corpora["train"], run))
    # Before the weights are made, not only before the batches are drawn.
    set_seed(arguments.seed)
    with together(), _section("model"):
        model = make_model(recipe, tokenizer)
    record = {}
    if recipe.alignment is not None and recipe.alignment.links is not None:
        # Of a stream the recipe was refused.
        assert isinstance(training_data, LoadedTraining)
        alignment, text = recipe.alignment, training_data.text()
        linked, link_counts = in_turn(lambda: with_statistical_links(text, alignment, run.run_dir))
        training_data.put_links(linked.gold or [])
        record["links"] = dataclasses.asdict(link_counts)
    with together():
        trainer, counts = _make_trainer(recipe, arguments, training_data, corpora, tokenizer, model)
    direct_tensorboard(trainer.callback_handler.callbacks, run.run_dir)
    # It prints every log as a dict on stdout, where results go.
    trainer.remove_callback(PrinterCallback)
    return trainer, training_data, corpora, {"data": counts, **record}


def run_training(recipe: str, overrides: Sequence[str], output: str | Path, *, overwrite: bool = False) -> int:
    """Train as the command does, on one process or several; return its exit code.

    0 done, with the folder printed; 2 bad input and 1 a full disk, each with one line on stderr, from one process.
    """
    # One bar is enough: the library's, at each checkpoint, would break through it.
    disable_progress_bar()
    try:
        with together():
            read = load_recipe(recipe, overrides)
        result = train(read, output, overwrite=overwrite)
    except (InputError, SaveError) as error:
        report_once(error)
        return 2 if isinstance(error, InputError) else 1
    except Exception as error:
        # Whoever waits for this process must not wait on.
        announce(error)
        raise
    if is_first_process():
        print(result.run_dir)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code, as `run_training`."""
    parser = argparse.ArgumentParser(description="Train a model by a recipe.")
    parser.add_argument("recipe", help="a YAML file, or the name of a shipped recipe")
    parser.add_argument("overrides", nargs="*", metavar="field=value", help="e.g. training.max_steps=100")
    parser.add_argument("-o", "--output", required=True, help="the run directory")
    parser.add_argument(
        "--overwrite", action="store_true", help="start anew, whatever is there: a model or an unfinished run"
    )
    parsed = parser.parse_intermixed_args(arguments)
    return run_training(parsed.recipe, parsed.overrides, parsed.output, overwrite=parsed.overwrite)


@contextmanager
def _section(name: str) -> Iterator[None]:
    """Turn a refusal of a recipe's values into bad input that names the section."""
    try:
        yield
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} section of the recipe: {error}") from error


def _make_or_reload_tokenizer(recipe: Recipe, train: ParallelCorpus, run: RunFolder) -> AnyTokenizer:
    """Return the tokenizer that the run began with; it is read back from the first time on."""
    with _section("tokenizer"):
        if "init_from" in recipe.model:
            return make_tokenizer(recipe, train)
        if not run.has_tokenizer():
            run.keep_tokenizer(make_tokenizer(recipe, train))
        return load_tokenizer_files(run.tokenizer)


def _finish_written(run: RunFolder) -> TrainResult:
    """Put the files of a run in place that was ended while it did so."""
    if is_first_process():
        run.finish()
    exchange("")
    model = AutoModelForSeq2SeqLM.from_pretrained(run.run_dir)
    return TrainResult(run.run_dir, read_metrics(run.run_dir / METRICS_FILE), model, load_tokenizer(run.run_dir))


def _held_out(recipe: Recipe) -> list[tuple[str, Any]]:
    parts = [("dev", recipe.data.dev), ("test", recipe.data.test)]
    return [(part, corpus) for part, corpus in parts if corpus is not None]


def _files(recipe: Recipe) -> list[str]:
    """Return the files that the run is going to read."""
    corpora = [*corpora_of(recipe.data), *(corpus for _, corpus in _held_out(recipe))]
    return [str(path) for corpus in corpora for path in local_files(corpus)]


def _training_arguments(recipe: Recipe, run_dir: Path) -> Seq2SeqTrainingArguments:
    settings = loop_arguments(recipe.selection, default_training_arguments(), recipe.training)
    if recipe.data.streaming:
        settings = streaming_arguments(settings)
    settings = with_saving(settings, recipe.training)
    with _section("training"):
        arguments = Seq2SeqTrainingArguments(
            # Checkpoints hold pickles (optimiser, random states); they stay out of the folder that is shared.
            output_dir=str(run_dir / CHECKPOINTS_FOLDER),
            remove_unused_columns=False,
            **settings,
        )
        check_schedule(arguments)
    check_reports(arguments)
    return arguments


def _make_trainer(
    recipe: Recipe,
    arguments: Seq2SeqTrainingArguments,
    training_data: LoadedTraining | StreamedTraining,
    corpora: dict[str, ParallelCorpus],
    tokenizer: AnyTokenizer,
    model: PreTrainedModel,
) -> tuple[Seq2SeqAttnTrainer, dict[str, Any]]:
    """Return the trainer, and for the record what became of the pairs of each part."""
    encoded: dict[str, Any] = {}
    record: dict[str, Any] = {}
    with _section("data.train"):
        # Links without an alignment section: nothing to carry through every batch.
        encoded["train"], record["train"] = training_data.encode(tokenizer, links=recipe.alignment is not None)
    if recipe.tokenizer is not None and recipe.tokenizer.dropout:
        limits = (recipe.data.max_source_length, recipe.data.max_target_length)
        encoded["train"] = RecutRows(encoded["train"], tokenizer, recipe.tokenizer.dropout, limits, training_data.seed)
    if "dev" in corpora:
        with _section("data.dev"):
            encoded["dev"], record["dev"] = encode_part(corpora["dev"], tokenizer, recipe.data)
    guidance = None
    if recipe.alignment is not None:
        with _section("alignment"):
            settings = (item.name for item in dataclasses.fields(GuidedAttention))
            guidance = GuidedAttention(**{name: getattr(recipe.alignment, name) for name in settings})
            settle(guidance, model.config)
    trainer = Seq2SeqAttnTrainer(
        model=model,
        args=arguments,
        data_collator=Seq2SeqCollator(tokenizer, model),
        train_dataset=encoded["train"],
        eval_dataset=encoded.get("dev"),
        processing_class=tokenizer,
        guidance=guidance,
        batching=recipe.batching,
        vaswani_factor=recipe.schedule.factor if recipe.schedule else None,
        validator=Validator(corpora["dev"], tokenizer, recipe.validation) if recipe.validation else None,
        callbacks=selection_callbacks(recipe.selection, arguments),
    )
    # The mean at the end is of the checkpoints.
    trainer.needs_checkpoints |= recipe.selection is not None and recipe.selection.average is not None
    if recipe.batching is not None:
        # Made for nothing, so that what it refuses is refused before the run.
        with _section("batching"):
            trainer.get_train_dataloader()
    return trainer, record


def _finish(
    run: RunFolder,
    recipe: Recipe,
    trainer: Seq2SeqAttnTrainer,
    metrics: dict[str, Any],
    corpora: dict[str, ParallelCorpus],
    dev_losses: dict[str, float],
    stage: Stage,
) -> None:
    """Save the model, which all processes may hold a part of, and let the first write everything else."""
    folder = Path(from_first(lambda: str(run.start_finished())))
    model: PreTrainedModel = trainer.accelerator.unwrap_model(trainer.model)
    # The Trainer switches it off while training.
    model.config.use_cache = True
    trainer.save_model(str(folder))
    if is_first_process():
        if trainer.is_fsdp_enabled:
            model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        _write_run(recipe, folder, model, trainer, metrics, corpora, dev_losses, stage)
        run.finish()
    model.name_or_path = str(run.run_dir)


def _write_run(
    recipe: Recipe,
    run_dir: Path,
    model: PreTrainedModel,
    trainer: Seq2SeqAttnTrainer,
    metrics: dict[str, Any],
    corpora: dict[str, ParallelCorpus],
    dev_losses: dict[str, float],
    stage: Stage,
) -> None:
    """Score the model, and write everything besides it and its tokenizer that the folder holds."""
    tokenizer: Any = trainer.processing_class
    save_recipe(recipe, run_dir / RECIPE_FILE)
    shown = corpora.get("dev", corpora["train"])
    # It is the saved files that say where the alignment is read, not those that training began with.
    model.name_or_path = str(run_dir)
    if recipe.alignment is None and is_unread(model.config):
        with stage("choosing where the alignment is read"):
            reading = choose_reading(run_dir, model, tokenizer, shown, corpora["train"]) or inherited_reading(model)
        metrics |= {"alignment_reading": reading} if reading else {}
    settings = scoring_settings(recipe.validation, getattr(trainer.args, "generation_num_beams", None))
    for part in ("dev", "test"):
        if part in corpora:
            with stage(f"scoring {part}, {len(corpora[part].sources):,} pairs"):
                metrics[part] = score_corpus(model, tokenizer, corpora[part], **settings)
    for key in ("loss", "guided_loss"):
        if f"eval_{key}" in dev_losses:
            metrics["dev"][key] = dev_losses[f"eval_{key}"]
    example = choose_example(shown)
    metrics["example"] = {"source": " ".join(shown.sources[example]), "target": " ".join(shown.targets[example])}
    write_metrics(run_dir / METRICS_FILE, metrics)
    draw_curve(metrics["history"], run_dir / CURVE_FILE, trainer.args.label_smoothing_factor)
    if getattr(model.config, "cross_attention_type", None) != "none":
        draw_attention(model, tokenizer, shown, run_dir / ATTENTION_FILE)
    if recipe.report:
        with stage("writing the report"):
            report_run(run_dir, model, tokenizer, corpora)
    write_card(run_dir)


if __name__ == "__main__":
    sys.exit(main())
