"""Commands that look inside: heat maps, every number of a step, a report, and a page to try a model on.

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


def report(
    model: Model,
    source: Annotated[
        Path | None, typer.Argument(help="Source text, one sentence a line; default: the run's own test set.")
    ] = None,
    target: Annotated[Path | None, typer.Argument(help="Target text, line N belongs to line N of SOURCE.")] = None,
    gold: Annotated[Path | None, typer.Option(help="Manual links of the test set, of any format.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The page, .html; default: report.html in the folder of a run."),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="With commas: bleu, chrf, wer, per, ...; default: the run's, else bleu,chrf.")
    ] = None,
    bleu_tokenize: Annotated[
        str | None, typer.Option(help="sacrebleu's tokenizer: none, 13a, ...; default: the run's, else 13a.")
    ] = None,
    beams: Annotated[int | None, typer.Option(min=1, help="Default: the run's, else 4.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many pairs.")] = None,
    shown: Annotated[int, typer.Option(min=1, max=50, help="Sentences at each end of a ranking.")] = 5,
    head_pairs: Annotated[int, typer.Option(min=0, help="Pairs that heads are measured on; 0: leave it out.")] = 50,
    faithfulness_pairs: Annotated[
        int, typer.Option(min=0, help="Pairs that faithfulness is measured on; 0: leave it out.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of samples and resamples.")] = 0,
    align_with: AlignWith = None,
    specials: Specials = None,
    layer: Layers = "auto",
    heads: Heads = "auto",
    links: LinksFrom = None,
    weights: Weights = None,
    source_prefix: SourcePrefix = "",
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Of each pass; default: the run's, else 32.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All figures of the page as JSON on stdout.")] = False,
) -> None:
    """Report on a model and a test set as one offline page: scores with intervals, sentences, heads, faithfulness.

    Of a run of `train`, MODEL alone is enough: its own test set is read, and its card links the page.
    """
    from hf_seq2seq_attn.training.report_commands import report_files

    report_files(
        model,
        source,
        target,
        output,
        gold=gold,
        limit=limit,
        as_json=as_json,
        metrics=metrics,
        settings=dict(bleu_tokenize=bleu_tokenize, num_beams=beams, shown=shown, seed=seed, batch_size=batch_size)
        | dict(head_pairs=head_pairs, faithfulness_pairs=faithfulness_pairs),
        layer=layer,
        heads=heads,
        reading=dict(align_with=align_with, specials=specials or "", links=links or "", weights=weights or "")
        | dict(source_prefix=source_prefix, source_language=source_language, target_language=target_language),
    )


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


def serve(
    model: Model,
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder or Hub id of its tokenizer; default: beside the model.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; default: this machine alone; 0.0.0.0: for others too.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Default: the first free from 7860.")] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = False,
    lang: Annotated[str, typer.Option(help="Language of the page: en or zh.")] = "en",
    source_prefix: SourcePrefix = "",
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    space: Annotated[
        Path | None,
        typer.Option(help="Serve nothing; write the files of a Space here."),
    ] = None,
    requirement: Annotated[
        str | None, typer.Option(help="What the Space's pip installs, e.g. a wheel's address; default: this release.")
    ] = None,
) -> None:
    """Serve a page: type a sentence; see its translation, links, heat map, and every number of a step.

    With --space it writes app.py, requirements.txt and README.md of a Hugging Face Space for a model on the Hub.
    """
    from hf_seq2seq_attn.probing.serve_commands import serve_model, write_space_files

    if space is None:
        if requirement is not None:
            raise typer.BadParameter("--requirement is of a Space: give --space too")
        serve_model(
            model,
            tokenizer,
            host=host,
            port=port,
            open_browser=open_browser,
            lang=lang,
            source_prefix=source_prefix,
            source_language=source_language,
            target_language=target_language,
        )
        return
    given = {"--tokenizer": tokenizer, "--host": host, "--port": port, "--open": open_browser or None}
    given |= {"--source-prefix": source_prefix or None}
    given |= {"--source-language": source_language, "--target-language": target_language}
    clash = [name for name, value in given.items() if value is not None]
    if clash:
        raise typer.BadParameter(f"a Space's files have no place for {', '.join(clash)}: edit its app.py")
    write_space_files(space, model, lang=lang, requirement=requirement)
