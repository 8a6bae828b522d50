"""Arguments and options that several commands of the command line share, in the same words."""

from pathlib import Path
from typing import Annotated

import typer

from .text_files import check_output_file

Model = Annotated[str, typer.Argument(help="Folder or Hub id of any encoder-decoder.")]
Source = Annotated[Path, typer.Argument(help="Source text, one sentence a line.")]
Target = Annotated[Path, typer.Argument(help="Target text, line N belongs to line N of SOURCE.")]
AlignWith = Annotated[
    str | None, typer.Option(help="Rows: input or output; default: as saved with the heads, else the model's own.")
]
Layer = Annotated[
    int | None, typer.Option(help="Decoder layer; default: saved with the model (see heads), else its own or last.")
]
Layers = Annotated[
    str,
    typer.Option(
        "--layer",
        help="Number; several with commas, or all: their mean; auto: saved with the model (see heads), else its "
        "config's, else the last.",
    ),
]
SourcePrefix = Annotated[str, typer.Option(help="What the model wants before each source, e.g. a T5 task.")]
ReversePrefix = Annotated[str, typer.Option(help="The same for the reverse model's source.")]
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
        help="attention, or of the weighted values (Kobayashi et al. 2020): norm, raw_norm. Default: as saved with the "
        "heads, else attention."
    ),
]
LinksFrom = Annotated[
    str | None,
    typer.Option(
        help="argmax, mutual, threshold:X, relative:X, itermax[:N], match, ot[:X] or hmm[:X]. Default: as saved with "
        "the heads, else argmax."
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
