"""Commands from a corpus to a model, and from a model to translations and to the Hub.

A room is imported only inside its command, see `cli`.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from .cli_options import Model
from .text_files import check_output_folder


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", callback=check_output_folder, help="Where everything goes.")
    ] = Path("build/demo"),
    steps: Annotated[
        int | None, typer.Option(min=0, envvar="DEMO_STEPS", help="Optimiser steps; 0 scores an untrained model.")
    ] = None,
    attention: Annotated[
        str, typer.Option(envvar="DEMO_ATTENTION", help="additive or scaled_dot_product.")
    ] = "additive",
    seed: Annotated[int, typer.Option(help="Of weights, batches and dropout.")] = 1,
) -> None:
    """Do the main job on real text: train on the Greek New Testament, align, score, report."""
    from hf_seq2seq_attn.training.demo import STEPS, run_demo

    run_demo(output, STEPS if steps is None else steps, attention, seed)


def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped recipe.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE", help="E.g. training.max_steps=100.")
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", callback=check_output_folder, help="The run directory.")
    ] = ...,  # type: ignore[assignment]
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start anew, whatever is there: a model or an unfinished run.")
    ] = False,
) -> None:
    """Train a model by a recipe and leave a folder that AutoModelForSeq2SeqLM loads.

    A run that was interrupted, even by kill -9, goes on when the same command is given again.
    """
    from hf_seq2seq_attn.training.train import run_training

    code = run_training(recipe, overrides or [], output, overwrite=overwrite)
    if code:
        raise typer.Exit(code)


def translate(
    model: Model,
    file: Annotated[Path | None, typer.Argument(help="Text, one sentence a line; default: stdin.")] = None,
    beams: Annotated[int, typer.Option(min=1, help="1 is greedy.")] = 4,
    n_best: Annotated[int, typer.Option(min=1, help="Above 1: Moses lines, `id ||| text ||| score`.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences in one pass.")] = 32,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="After a tab: links of source and target words, Pharaoh form.")
    ] = False,
    markup: Annotated[
        str | None, typer.Option(help="html or xml: translate the text, put its tags back by alignment.")
    ] = None,
) -> None:
    """Translate line by line to stdout: N lines in, N lines out, blank ones kept.

    A translation has at most twice the tokens of its source (of the longest in its batch) plus 10; lines that this
    limit cuts off are counted on stderr.
    """
    from hf_seq2seq_attn.translation import Align, translate_file

    if markup is not None:
        from hf_seq2seq_attn.probing.markup_commands import translate_markup_file

        if n_best > 1 or alignments:
            raise typer.BadParameter(
                "--markup gives one translation with its tags; leave out --n-best and --alignments"
            )
        translate_markup_file(model, file, markup, num_beams=beams, batch_size=batch_size)
        return
    aligner: Align | None = None
    if alignments:
        from hf_seq2seq_attn.probing import align as aligner
    translate_file(model, file, num_beams=beams, n_best=n_best, batch_size=batch_size, align=aligner)


def export(
    model: Model,
    output: Annotated[
        Path, typer.Option("-o", "--output", callback=check_output_folder, help="A new or empty folder.")
    ] = ...,  # type: ignore[assignment]
    file_format: Annotated[Literal["ctranslate2"], typer.Option("--format", help="The engine that reads it.")] = (
        "ctranslate2"
    ),
    quantization: Annotated[
        str, typer.Option(help="Of the weights: float32, float16, bfloat16, int16, int8, int8_float32, ...")
    ] = "float32",
    compare: Annotated[Path | None, typer.Option(help="Text to translate by both, to count where they agree.")] = None,
    beams: Annotated[int, typer.Option(min=1, help="For --compare; 1 is greedy.")] = 5,
) -> None:
    """Export one of our Transformers to CTranslate2, a fast engine without torch; print how to translate with it."""
    from hf_seq2seq_attn.training.ctranslate2_export import export_folder

    export_folder(model, output, quantization, compare, beams)


def push(
    run_dir: Annotated[Path, typer.Argument(help="A folder with a model, as `train` leaves it.")],
    repo_id: Annotated[str, typer.Argument(help="user/name on the Hub; made if it does not exist.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    revision: Annotated[str | None, typer.Option(help="A branch; made if it does not exist. Default: main.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be uploaded; upload nothing.")] = False,
) -> None:
    """Share a model on the Hugging Face Hub: weights, tokenizer, code and card; never a pickle."""
    from hf_seq2seq_attn.training.hub import push_folder

    push_folder(run_dir, repo_id, private=private, revision=revision, dry_run=dry_run)
