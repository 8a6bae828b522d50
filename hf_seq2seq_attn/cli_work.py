"""Commands that use word links: dictionaries, checks of terms, weak lines.

A room is imported only inside its command, see `cli`.
"""

from pathlib import Path
from typing import Annotated

import typer

from .cli_options import (
    AlignedLinks,
    JsonLines,
    LinksBase,
    PairsInBatch,
    Source,
    SourceLemmas,
    TableOutput,
    Target,
    TargetLemmas,
    VerseIds,
)


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
