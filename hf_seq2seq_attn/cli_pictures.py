"""Commands that look inside: heat maps, and every number of a step.

A room is imported only inside its command, see `cli`.
"""

from pathlib import Path
from typing import Annotated

import typer

from .cli_options import (
    AlignWith,
    Heads,
    Layer,
    Layers,
    LinksFrom,
    Model,
    PairsInBatch,
    Source,
    SourceLanguage,
    SourcePrefix,
    Specials,
    Target,
    TargetLanguage,
    Weights,
)
from .text_files import check_output_file


def view(
    model: Model,
    source: Source,
    target: Target,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            callback=check_output_file,
            help=".html: all pairs on one page; .svg, .png, .pdf: one pair.",
        ),
    ],
    gold: Annotated[Path | None, typer.Option(help="Manual links to draw over the map.")] = None,
    sentence: Annotated[
        int | None, typer.Option(min=1, help="Show this line alone; default: all on a page, the first as a picture.")
    ] = None,
    every_head: Annotated[
        bool, typer.Option(help="On the page: every layer and head beside the map that alignments are read from.")
    ] = True,
    bertviz: Annotated[
        str | None,
        typer.Option(help="One line as a page by BertViz: head (layer by layer) or model (all heads at once)."),
    ] = None,
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
    from hf_seq2seq_attn.probing.view_commands import view_files

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
        every_head=every_head,
        bertviz=bertviz,
    )


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
    interactive: Annotated[
        bool, typer.Option("--interactive", help="The example as a page whose numbers can be changed: -o FILE.html.")
    ] = False,
    step: Annotated[int | None, typer.Option(min=0, help="Decoder step, from 0, which reads the start token.")] = None,
    layer: Layer = None,
    head: Annotated[
        int | None, typer.Option(help="Head; default: the first of those saved with the model, else its own, else 0.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="text, md, tex, html or json; default: by the suffix of -o.")
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the words: en or zh.")] = "en",
    source_prefix: SourcePrefix = "",
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", callback=check_output_file, help="File; default: standard output.")
    ] = None,
) -> None:
    """Show every number of one decoder step: of the worked example, or of a trained model and a sentence."""
    from hf_seq2seq_attn.probing.explain_commands import explain_example, explain_interactively, explain_model

    given = {"--state": state, "--encoder": encoder, "--updates": updates}
    reading = {
        "source_prefix": source_prefix,
        "source_language": source_language,
        "target_language": target_language,
    }
    of_models = {"MODEL": model, "--step": step, "--layer": layer, "--head": head} | {
        f"--{name.replace('_', '-')}": value or None for name, value in reading.items()
    }
    clash = [name for name, value in (of_models if example else given).items() if value is not None]
    if clash:
        other = "knows its own sentence and model" if example else "is needed for them"
        raise typer.BadParameter(f"--example {other}: leave out {', '.join(clash)}")
    if interactive and not example:
        raise typer.BadParameter("--interactive is of the worked example: give --example too")
    if interactive and (form, updates) != (None, None):
        raise typer.BadParameter("--interactive writes HTML and learns by its buttons: leave out --format, --updates")
    if interactive:
        start = {name: value for name, value in (("state", state), ("encoder", encoder)) if value is not None}
        explain_interactively(**start, output=output, lang=lang)
    elif example:
        chosen = {name[2:]: value for name, value in given.items() if value is not None}
        explain_example(**chosen, output=output, form=form, lang=lang)  # type: ignore[arg-type]
    elif model and source:
        explain_model(
            model, source, target, output, step=step or 0, layer=layer, head=head, form=form, lang=lang, **reading
        )
    else:
        raise typer.BadParameter("give --example, or MODEL SOURCE [TARGET]")


def scaling(
    model: Annotated[str | None, typer.Argument(help="Folder or Hub id of a model with dot-product attention.")] = None,
    source: Annotated[Path | None, typer.Argument(help="Source text for the model.")] = None,
    target: Annotated[Path | None, typer.Argument(help="Target text for the model.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", callback=check_output_file, help="Picture: png, svg or pdf.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Numbers as JSON.")] = False,
    source_prefix: SourcePrefix = "",
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
) -> None:
    """Show why scores are divided by the root of the key's width: variance, entropy and gradient, scaled and not."""
    from hf_seq2seq_attn.probing.explain_commands import show_scaling

    if output is not None and output.suffix not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"{output}: allowed suffixes are .png, .svg, .pdf")
    show_scaling(
        model,
        source,
        target,
        output,
        as_json=as_json,
        source_prefix=source_prefix,
        source_language=source_language,
        target_language=target_language,
    )
