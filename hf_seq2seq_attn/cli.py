"""The front door: `seq2seq-attn COMMAND`. A room is imported only inside its command, so that none waits for another's
libraries; torch and transformers come with the package itself, a few seconds even for `--help`.

Exit codes: 0 done; 2 bad input, with `FILE:LINE: what, remedy` on stderr; 1 anything else.
Results go to stdout, progress to stderr.
"""

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from .text_files import InputError, check_output_file, check_output_folder

app = typer.Typer(
    name="seq2seq-attn",
    help="Sequence-to-sequence models with attention: train, translate, align, look inside.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# Which extra brings a module that a command may miss.
EXTRA_OF_MODULE = {
    "accelerate": "train",
    "datasets": "train",
    "yaml": "train",
    "sacrebleu": "train",
    "matplotlib": "probe",
    "rich": "probe",
    "bertviz": "bertviz",
}

# What several commands ask for, in the same words.
Model = Annotated[str, typer.Argument(help="Folder or Hub id of any encoder-decoder.")]
Source = Annotated[Path, typer.Argument(help="Source text, one sentence a line.")]
Target = Annotated[Path, typer.Argument(help="Target text, line N belongs to line N of SOURCE.")]
AlignWith = Annotated[str | None, typer.Option(help="Rows: input or output; default: the model's own.")]
Layer = Annotated[int | None, typer.Option(help="Decoder layer; default: the model's own, else the last.")]
Heads = Annotated[str, typer.Option(help="Numbers with commas; auto: the model's own, else their mean.")]
Specials = Annotated[
    str, typer.Option(help="Weight on end tokens and tags: mask, renormalise or null (with threshold:X as mask).")
]
LinksFrom = Annotated[
    str, typer.Option(help="argmax, mutual, threshold:X, relative:X, itermax[:N], match, ot[:X] or hmm[:X].")
]
PairsInBatch = Annotated[int, typer.Option(min=1, help="Sentence pairs in one pass.")]


@app.callback()
def seq2seq_attn() -> None:
    """Sequence-to-sequence models with attention: train, translate, align, look inside."""


@app.command()
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


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped recipe.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE", help="E.g. training.max_steps=100.")
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", callback=check_output_folder, help="The run directory.")
    ] = ...,  # type: ignore[assignment]
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model that is there.")] = False,
) -> None:
    """Train a model by a recipe and leave a folder that AutoModelForSeq2SeqLM loads."""
    from hf_seq2seq_attn.training.recipe import load_recipe
    from hf_seq2seq_attn.training.train import train

    print(train(load_recipe(recipe, overrides or []), output, overwrite=overwrite).run_dir)


@app.command()
def translate(
    model: Model,
    file: Annotated[Path | None, typer.Argument(help="Text, one sentence a line; default: stdin.")] = None,
    beams: Annotated[int, typer.Option(min=1, help="1 is greedy.")] = 4,
    n_best: Annotated[int, typer.Option(min=1, help="Above 1: Moses lines, `id ||| text ||| score`.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences in one pass.")] = 32,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="After a tab: links of source and target words, Pharaoh form.")
    ] = False,
) -> None:
    """Translate line by line to stdout: N lines in, N lines out, blank ones kept.

    A translation has at most twice the tokens of its source (of the longest in its batch) plus 10; lines that this
    limit cuts off are counted on stderr.
    """
    from hf_seq2seq_attn.translation import Align, translate_file

    aligner: Align | None = None
    if alignments:
        from hf_seq2seq_attn.probing import align as aligner
    translate_file(model, file, num_beams=beams, n_best=n_best, batch_size=batch_size, align=aligner)


@app.command()
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


@app.command()
def align(
    model: Model,
    source: Source,
    target: Target,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", callback=check_output_file, help="Pharaoh file; default: stdout."),
    ] = None,
    align_with: AlignWith = None,
    specials: Specials = "mask",
    subwords: Annotated[str, typer.Option(help="From sub-words to words: matrix or links.")] = "matrix",
    layer: Layer = None,
    heads: Heads = "auto",
    links: LinksFrom = "argmax",
    batch_size: PairsInBatch = 32,
) -> None:
    """Align words by a model's cross-attention: N lines in, N lines of links out."""
    from hf_seq2seq_attn.probing.commands import align_files

    align_files(
        model,
        source,
        target,
        output,
        align_with=align_with,
        specials=specials,
        subwords=subwords,
        layer=layer,
        heads=heads,
        links=links,
        batch_size=batch_size,
    )


@app.command()
def score(
    links: Annotated[Path, typer.Argument(help="Links to score, of any format (see convert), or matrices (.npz).")],
    gold: Annotated[Path, typer.Argument(help="Manual links: i-j sure, ipj possible, or another format.")],
    links_base: Annotated[
        int | None, typer.Option(min=0, max=1, help="What LINKS counts from; default: found.")
    ] = None,
    gold_base: Annotated[int | None, typer.Option(min=0, max=1, help="What GOLD counts from; default: found.")] = None,
    against: Annotated[Path | None, typer.Option(help="Links of another system: test the difference.")] = None,
    against_base: Annotated[
        int | None, typer.Option(min=0, max=1, help="What AGAINST counts from; default: found.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Source words: with --target, scores of parts too.")] = None,
    target: Annotated[Path | None, typer.Option(help="Target words, line N belongs to line N of the source.")] = None,
    alpha: Annotated[float, typer.Option(help="Weight of precision in F(alpha), 0 to 1.")] = 0.5,
    extraction: Annotated[str, typer.Option("--links", help="How to read links off matrices, as in align.")] = "argmax",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score links against manual ones: AER with a 95% interval, precision, recall, F.

    --against gives a paired test on the same sentences; --source and --target give scores by sentence length, by
    number of gold links of a word, and without punctuation.
    """
    from hf_seq2seq_attn.probing.link_commands import score_files

    score_files(
        links,
        gold,
        links_base=links_base,
        gold_base=gold_base,
        against=against,
        against_base=against_base,
        source=source,
        target=target,
        alpha=alpha,
        extraction=extraction,
        as_json=as_json,
    )


@app.command()
def symmetrize(
    forward: Annotated[Path, typer.Argument(help="Links of the source-to-target model, of any format.")],
    reverse: Annotated[Path, typer.Argument(help="Links of the target-to-source model, source word first.")],
    method: Annotated[
        str,
        typer.Option(
            "-m",
            "--method",
            help="intersection, union, grow-diag-moses, grow-diag-lilt, grow-diag-final-moses, grow-diag-final-lilt "
            "or grow-diag-final-and-moses.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", callback=check_output_file, help="File, format by its suffix; default: Pharaoh to stdout."
        ),
    ] = None,
    flip_reverse: Annotated[bool, typer.Option("--flip-reverse", help="REVERSE has the target word first.")] = False,
    forward_base: Annotated[
        int | None, typer.Option(min=0, max=1, help="What FORWARD counts from; default: found.")
    ] = None,
    reverse_base: Annotated[
        int | None, typer.Option(min=0, max=1, help="What REVERSE counts from; default: found.")
    ] = None,
) -> None:
    """Combine the links of two directions."""
    from hf_seq2seq_attn.probing.link_commands import symmetrize_files

    symmetrize_files(
        forward,
        reverse,
        method,
        output,
        flip_reverse=flip_reverse,
        forward_base=forward_base,
        reverse_base=reverse_base,
    )


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(help="An alignment file, or matrices (.npz).")],
    output: Annotated[
        Path, typer.Argument(callback=check_output_file, help="The new file; .gz at the end compresses.")
    ],
    from_format: Annotated[
        str | None,
        typer.Option("--from", help="pharaoh, pharaoh-p, talp, naacl, a3, jsonl or npz; default: by the suffix."),
    ] = None,
    to_format: Annotated[
        str | None,
        typer.Option("--to", help="pharaoh, pharaoh-p, talp, naacl or jsonl; default: by the suffix."),
    ] = None,
    base: Annotated[int | None, typer.Option(min=0, max=1, help="What FILE counts from; default: found.")] = None,
    extraction: Annotated[str, typer.Option("--links", help="How to read links off matrices, as in align.")] = "argmax",
) -> None:
    """Turn an alignment file into another format, and say what is lost.

    Suffixes: .align and any other Pharaoh; .talp; .pharaoh-p and .prob Pharaoh with probabilities (0-1:0.93); .naacl,
    .wpt and .wa; .A3 and .A3.final of GIZA++ (read only); .jsonl; .npz (read only).
    """
    from hf_seq2seq_attn.probing.link_commands import convert_file

    convert_file(file, output, from_format=from_format, to_format=to_format, base=base, extraction=extraction)


@app.command()
def view(
    model: Model,
    source: Source,
    target: Target,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", callback=check_output_file, help=".html for every pair; .svg, .png, .pdf for one."
        ),
    ],
    gold: Annotated[Path | None, typer.Option(help="Manual links to draw over the map.")] = None,
    sentence: Annotated[int, typer.Option(min=1, help="Which line a picture shows.")] = 1,
    align_with: AlignWith = None,
    specials: Specials = "mask",
    layer: Layer = None,
    heads: Heads = "auto",
    links: LinksFrom = "argmax",
    batch_size: PairsInBatch = 32,
) -> None:
    """Draw what each target word looks at, as one offline HTML page or as a picture."""
    from hf_seq2seq_attn.probing.commands import view_files

    view_files(
        model,
        source,
        target,
        output,
        gold=gold,
        sentence=sentence,
        align_with=align_with,
        specials=specials,
        layer=layer,
        heads=heads,
        links=links,
        batch_size=batch_size,
    )


@app.command()
def explain(
    model: Annotated[str | None, typer.Argument(help="Folder or Hub id of a model of this package.")] = None,
    source: Annotated[str | None, typer.Argument(help="A source sentence.")] = None,
    target: Annotated[str | None, typer.Argument(help="Its target sentence.")] = None,
    example: Annotated[bool, typer.Option("--example", help="The worked example: I love cats -> 喜.")] = False,
    state: Annotated[str, typer.Option(help="Decoder state of the example.")] = "0.6,0.4",
    encoder: Annotated[str, typer.Option(help="Encoder outputs of the example.")] = "0.9,0.1 0.3,0.7 0.1,0.9",
    step: Annotated[int, typer.Option(min=0, help="Decoder step, from 0, which reads the start token.")] = 0,
    layer: Layer = None,
    head: Annotated[int | None, typer.Option(help="Head; default: the model's own, else 0.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", callback=check_output_file, help="HTML page of a model's walk."),
    ] = None,
) -> None:
    """Show every number of one decoder step: of the worked example, or of a trained model and a sentence pair."""
    from hf_seq2seq_attn.probing.commands import explain_example, explain_model

    if example:
        if model or output:
            raise typer.BadParameter("--example is printed and knows its sentence; leave out MODEL and -o")
        print(explain_example(state, encoder))
    elif model and source and target and output:
        explain_model(model, source, target, output, step=step, layer=layer, head=head)
    else:
        raise typer.BadParameter("give --example, or MODEL SOURCE TARGET and -o PAGE.html")


def main() -> None:
    """Run the command line; turn bad input and missing extras into one line on stderr and exit code 2."""
    # Results may be in any script, whatever encoding the terminal names.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        app()
    except InputError as error:
        sys.exit(_refuse(str(error)))
    except ModuleNotFoundError as error:
        extra = EXTRA_OF_MODULE.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        sys.exit(_refuse(f"this command needs {error.name}: pip install 'hf-seq2seq-attn[{extra}]'"))


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
