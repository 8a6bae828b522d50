"""The command that trains a word aligner, and what `align` does with the folder of one.

A room is imported only inside its command, see `cli`.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from .cli_options import Source, SourceLemmas, Target, TargetLemmas, VerseIds
from .text_files import InputError, check_output_file, check_output_folder


def train_aligner(
    source: Source,
    target: Target,
    output: Annotated[
        Path, typer.Option("-o", "--output", callback=check_output_folder, help="The aligner's folder.")
    ] = ...,  # type: ignore[assignment]
    links: Annotated[
        Path | None,
        typer.Option(callback=check_output_file, help="Links of this text, a line for each line; format by suffix."),
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option("--format", help="Of --links: pharaoh, pharaoh-p (i-j:probability), talp, naacl or jsonl."),
    ] = None,
    teacher: Annotated[
        list[str] | None,
        typer.Option(
            help="eflomal, builtin, none or a file of links; may be repeated. Default: eflomal, else builtin."
        ),
    ] = None,
    forms: Annotated[
        int | None, typer.Option(min=1, help="The most forms of the text that a teacher is run on; default: all.")
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="Hand-made links to learn from; a blank line is not annotated.")
    ] = None,
    fixed_links: Annotated[Path | None, typer.Option(help="Links that must come out.")] = None,
    lexicon: Annotated[Path | None, typer.Option(help="SOURCE<tab>TARGET words that are translations.")] = None,
    links_base: Annotated[
        int | None,
        typer.Option(min=0, max=1, help="What links in Pharaoh and TALP count from; default: found."),
    ] = None,
    source_lemmas: SourceLemmas = None,
    target_lemmas: TargetLemmas = None,
    ids: VerseIds = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.01, help="For teachers and training, after which the links are read off; default: as needed."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Numbers with commas: a network for each, averaged.")] = "1",
    processes: Annotated[int, typer.Option(min=1, help="How many seeds are trained at once.")] = 1,
    suggest: Annotated[int, typer.Option(min=0, help="Print the N lines whose alignment by hand would help most.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A setting of the network or training.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Take the place of another aligner in the folder.")
    ] = False,
) -> None:
    """Train a word aligner on a bitext, with hand-made links where there are some; `align DIR` then takes new text.

    One sentence or verse a line; blank lines stay blank, a line <range> belongs to the verse above. A run that was
    stopped goes on when the same command is given again.
    """
    from hf_seq2seq_attn.training.train_aligner import AlignerFiles, AlignerRequest, train_aligner

    try:
        numbers = tuple(int(number) for number in seeds.split(","))
    except ValueError as error:
        raise InputError(f"--seeds: {seeds!r} are no whole numbers with commas, e.g. 1,2,3") from error
    record = train_aligner(
        AlignerRequest(
            AlignerFiles(source, target, ids, source_lemmas, target_lemmas),
            output,
            links=links,
            format_name=output_format,
            teachers=tuple(teacher or ()),
            forms=forms,
            gold=gold,
            fixed_links=fixed_links,
            lexicon=lexicon,
            base=links_base,
            minutes=minutes,
            seeds=numbers,
            processes=processes,
            suggest=suggest,
            settings=tuple(settings or ()),
            overwrite=overwrite,
        )
    )
    teachers = ", ".join(record["teachers"]) or "none"
    by_hand = f"; made by hand: {record['gold_links']} links in {record['gold_pairs']} pairs" if gold else ""
    typer.echo(f"{output}: {record['pairs']} pairs, {record['links']} links; teachers: {teachers}{by_hand}", err=True)


def is_aligner(model: str) -> bool:
    """Tell whether `train-aligner` left this folder; raise an InputError if it has not finished yet."""
    if (Path(model) / "aligner.json").is_file():
        return True
    if (Path(model) / ".aligner-training" / "identity.json").is_file():
        raise InputError(f"{model}: an aligner whose training is not finished; repeat the command that began it")
    return False


def align_by_aligner(
    context: typer.Context,
    folder: str,
    source: Path,
    target: Path,
    output: Path | None,
    **options: Any,
) -> None:
    """Do what `align` promises with an aligner in the place of a model.

    Args:
        options: of `align_with_folder`, and the paths `ids`, `source_lemmas`, `target_lemmas`; every other option of
            the command is one of models, and refused where it was given.
    """
    _refuse_other_options(context, folder, {"output", "output_format", *options})
    from hf_seq2seq_attn.training.aligner_inference import AlignerFiles, align_with_folder

    files = AlignerFiles(source, target, options.pop("ids"), options.pop("source_lemmas"), options.pop("target_lemmas"))
    count = align_with_folder(Path(folder), files, output, **options)
    typer.echo(f"{count} links", err=True)


def _refuse_other_options(context: typer.Context, folder: str, understood: Collection[str]) -> None:
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.param_type_name == "option"
        and parameter.name not in understood
        and (source := context.get_parameter_source(str(parameter.name))) is not None
        and source.name == "COMMANDLINE"
    ]
    if given:
        raise InputError(f"{folder}: is an aligner, no translation model; leave out {', '.join(given)}")


def refuse_aligner_options(**given: Any) -> None:
    """Raise an InputError for options that only an aligner understands."""
    found = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]
    if found:
        raise InputError(f"{', '.join(found)}: only for a folder that train-aligner left; leave out for other models")
