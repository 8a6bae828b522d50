"""Train a model by a recipe: corpus in, Hub-ready folder out.

    python -m hf_seq2seq_attn.training.train RECIPE [field=value ...] -o DIR

The same line works under `torchrun` and `accelerate launch -m`.
"""

import argparse
import dataclasses
import logging
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transformers import (
    PreTrainedModel,
    PrinterCallback,
    Seq2SeqTrainingArguments,
    set_seed,
)

from hf_seq2seq_attn.text_files import InputError, check_output_folder
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer

from .card import write_card
from .collation import GUIDE, Seq2SeqCollator
from .data import ParallelCorpus, encode_corpus, read_corpus
from .guided_attention import GuidedAttention, settle
from .model_setup import make_model, make_tokenizer
from .pictures import choose_example, draw_attention, draw_curve
from .recipe import Recipe, load_recipe, save_recipe
from .run_record import (
    ATTENTION_FILE,
    CURVE_FILE,
    METRICS_FILE,
    RECIPE_FILE,
    hardware,
    versions,
    write_metrics,
)
from .scoring import score_corpus
from .trainer import ProgressReport, Seq2SeqAttnTrainer, check_world_size, default_training_arguments

logger = logging.getLogger(__name__)

WEIGHTS_FILE = "model.safetensors"


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

    Raises:
        InputError: bad files, recipe values that clash, or a folder that cannot be made or holds a model already
            (unless `overwrite`).
    """
    run_dir = check_output_folder(Path(output_dir))
    if (run_dir / WEIGHTS_FILE).exists() and not overwrite:
        raise InputError(f"{run_dir}: already holds a model; choose another folder, or overwrite it by --overwrite")
    arguments = _training_arguments(recipe, run_dir)
    check_world_size(arguments)
    # Before the tokenizer and the weights are made, not only before the batches are drawn.
    set_seed(arguments.seed)
    corpora = {part: read_corpus(files) for part, files in _parts(recipe)}
    with _section("tokenizer"):
        tokenizer = make_tokenizer(recipe, corpora["train"])
    with _section("model"):
        model = make_model(recipe, tokenizer)
    trainer, data_record = _make_trainer(recipe, arguments, corpora, tokenizer, model)
    # It prints every log as a dict on stdout, where results go.
    trainer.remove_callback(PrinterCallback)
    if progress:
        trainer.add_callback(ProgressReport(trainer))

    started, clock = datetime.now(UTC), time.perf_counter()
    # To Hugging Face's Trainer 0 steps mean "no limit".
    if arguments.max_steps != 0:
        trainer.train()
    seconds = time.perf_counter() - clock
    dev_losses = trainer.evaluate() if trainer.eval_dataset is not None else {}

    metrics: dict[str, Any] = {
        "name": recipe.name,
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "steps": trainer.state.global_step,
        "epochs": round(trainer.state.epoch or 0.0, 3),
        "seed": arguments.seed,
        "processes": arguments.world_size,
        "parameters": model.num_parameters(),
        "data": data_record,
        "versions": versions(),
        "hardware": hardware(),
        "history": trainer.state.log_history,
    }
    if trainer.is_world_process_zero():
        _write_run(recipe, run_dir, trainer, metrics, corpora, dev_losses)
    return TrainResult(run_dir, metrics, model, tokenizer)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 when done and 2 on bad input."""
    parser = argparse.ArgumentParser(description="Train a model by a recipe.")
    parser.add_argument("recipe", help="a YAML file, or the name of a shipped recipe")
    parser.add_argument("overrides", nargs="*", metavar="field=value", help="e.g. training.max_steps=100")
    parser.add_argument("-o", "--output", required=True, help="the run directory")
    parser.add_argument("--overwrite", action="store_true", help="replace a model that is there")
    parsed = parser.parse_intermixed_args(arguments)
    try:
        recipe = load_recipe(parsed.recipe, parsed.overrides)
        result = train(recipe, parsed.output, overwrite=parsed.overwrite)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(result.run_dir)
    return 0


@contextmanager
def _section(name: str) -> Iterator[None]:
    """Turn a refusal of a recipe's values into bad input that names the section."""
    try:
        yield
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} section of the recipe: {error}") from error


def _parts(recipe: Recipe) -> list[tuple[str, Any]]:
    parts = [("train", recipe.data.train), ("dev", recipe.data.dev), ("test", recipe.data.test)]
    return [(part, files) for part, files in parts if files is not None]


def _training_arguments(recipe: Recipe, run_dir: Path) -> Seq2SeqTrainingArguments:
    settings = default_training_arguments() | recipe.training
    with _section("training"):
        return Seq2SeqTrainingArguments(
            # Checkpoints hold pickles (optimiser, random states); they stay out of the folder that is shared.
            output_dir=str(run_dir / "checkpoints"),
            remove_unused_columns=False,
            **settings,
        )


def _make_trainer(
    recipe: Recipe,
    arguments: Seq2SeqTrainingArguments,
    corpora: dict[str, ParallelCorpus],
    tokenizer: AnyTokenizer,
    model: PreTrainedModel,
) -> tuple[Seq2SeqAttnTrainer, dict[str, Any]]:
    """Return the trainer, and for the record what became of the pairs of each part."""
    limits = (recipe.data.max_source_length, recipe.data.max_target_length)
    encoded = {}
    record: dict[str, Any] = {}
    for part in ("train", "dev"):
        if part in corpora:
            with _section(f"data.{part}"):
                encoded[part], counts = encode_corpus(corpora[part], tokenizer, *limits)
            record[part] = dataclasses.asdict(counts)
    # A train part with links but no alignment section: nothing to carry through every batch.
    if recipe.alignment is None and GUIDE in encoded["train"].column_names:
        encoded["train"] = encoded["train"].remove_columns(GUIDE)
    guidance = None
    if recipe.alignment is not None:
        with _section("alignment"):
            guidance = GuidedAttention(**dataclasses.asdict(recipe.alignment))
            settle(guidance, model.config)
    trainer = Seq2SeqAttnTrainer(
        model=model,
        args=arguments,
        data_collator=Seq2SeqCollator(tokenizer, model),
        train_dataset=encoded["train"],
        eval_dataset=encoded.get("dev"),
        processing_class=tokenizer,
        guidance=guidance,
    )
    return trainer, record


def _write_run(
    recipe: Recipe,
    run_dir: Path,
    trainer: Seq2SeqAttnTrainer,
    metrics: dict[str, Any],
    corpora: dict[str, ParallelCorpus],
    dev_losses: dict[str, float],
) -> None:
    """Save the model, score it, and write everything else that the folder holds."""
    model: PreTrainedModel = trainer.accelerator.unwrap_model(trainer.model)
    tokenizer: Any = trainer.processing_class
    run_dir.mkdir(parents=True, exist_ok=True)
    # The Trainer switches it off while training.
    model.config.use_cache = True
    model.save_pretrained(run_dir)
    tokenizer.save_pretrained(run_dir)
    save_recipe(recipe, run_dir / RECIPE_FILE)
    beams = getattr(trainer.args, "generation_num_beams", None) or 4
    for part in ("dev", "test"):
        if part in corpora:
            metrics[part] = score_corpus(model, tokenizer, corpora[part], num_beams=beams)
    for key in ("loss", "guided_loss"):
        if f"eval_{key}" in dev_losses:
            metrics["dev"][key] = dev_losses[f"eval_{key}"]
    shown = corpora.get("dev", corpora["train"])
    example = choose_example(shown)
    metrics["example"] = {"source": " ".join(shown.sources[example]), "target": " ".join(shown.targets[example])}
    write_metrics(run_dir / METRICS_FILE, metrics)
    draw_curve(metrics["history"], run_dir / CURVE_FILE)
    if getattr(model.config, "cross_attention_type", None) != "none":
        draw_attention(model, tokenizer, shown, run_dir / ATTENTION_FILE)
    write_card(run_dir)
    shutil.rmtree(run_dir / "checkpoints", ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
