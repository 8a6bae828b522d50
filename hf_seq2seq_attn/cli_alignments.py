"""Commands from a model to word links, and from links to scores.

A room is imported only inside its command, see `cli`.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from .cli_aligner import align_by_aligner, is_aligner, refuse_aligner_options
from .cli_options import (
    AlignWith,
    Heads,
    Layer,
    Layers,
    LinksFrom,
    Model,
    PairsInBatch,
    ReverseModel,
    ReversePrefix,
    Source,
    SourceLanguage,
    SourceLemmas,
    SourcePrefix,
    Specials,
    Target,
    TargetLanguage,
    TargetLemmas,
    VerseIds,
    Weights,
)
from .text_files import check_output_file


def align(
    context: typer.Context,
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
        str | None,
        typer.Option(help="From sub-words to words: matrix or links. Default: as saved with the heads, else matrix."),
    ] = None,
    layer: Layers = "auto",
    heads: Heads = "auto",
    links: LinksFrom = None,
    source_prefix: SourcePrefix = "",
    reverse_prefix: ReversePrefix = "",
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
    fixed_links: Annotated[Path | None, typer.Option(help="Aligners only: links that must come out.")] = None,
    links_base: Annotated[
        int | None, typer.Option(min=0, max=1, help="What --fixed-links count from; default: found.")
    ] = None,
    source_lemmas: SourceLemmas = None,
    target_lemmas: TargetLemmas = None,
    ids: VerseIds = None,
) -> None:
    """Align words by a model's cross-attention, or by an aligner: N lines in, N lines of links out.

    Words are what white space separates; links count them from 0. A model's run with -o that was stopped goes on when
    the same command is given again, and torchrun or accelerate launch, with -m hf_seq2seq_attn.cli align, share its
    work. MODEL may be a folder that train-aligner left, which aligns a text in one go; lemmas, fixed links and names of
    verses are for those only.
    """
    files: dict[str, Any] = {
        "fixed_links": fixed_links,
        "links_base": links_base,
        "source_lemmas": source_lemmas,
        "target_lemmas": target_lemmas,
        "ids": ids,
    }
    if is_aligner(model):
        align_by_aligner(context, model, source, target, output, format_name=output_format, soft=soft, **files)
        return
    refuse_aligner_options(**files)
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
    reverse_prefix: ReversePrefix = "",
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
    specials: Annotated[str, typer.Option(help="Weight on end tokens and tags, as in align.")] = "mask",
    links: Annotated[str, typer.Option(help="How links are read off each head, as in align.")] = "argmax",
    limit: Annotated[int, typer.Option(min=1, help="Sentence pairs to read, from the first.")] = 500,
    max_heads: Annotated[int, typer.Option(min=1, help="The most heads to average; of norms always one or all.")] = 8,
    source_prefix: SourcePrefix = "",
    reverse_prefix: ReversePrefix = "",
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
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
        specials=specials,
        links=links,
        align_with=align_with,
        limit=limit,
        max_heads=max_heads,
        batch_size=batch_size,
        source_prefix=source_prefix,
        reverse_prefix=reverse_prefix,
        source_language=source_language,
        target_language=target_language,
    )
    heads_files(request, output, as_json=as_json)


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
    source_prefix: SourcePrefix = "",
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Copies of a sentence in one pass.")] = 32,
) -> None:
    """Test whether the model's predictions depend on the source words that its attention points at."""
    from hf_seq2seq_attn.probing.faithfulness_commands import faithfulness_files

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
        source_prefix=source_prefix,
        source_language=source_language,
        target_language=target_language,
    )
