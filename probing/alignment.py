"""The pipeline: a model and sentence pairs -> word links."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .attention_maps import AttentionMaps, LayerChoice
from .choices import check_choices, fill_choices
from .chosen_maps import choice_in_use, extract_chosen
from .directions import DirectionMatrices, direction_matrices, learned_jumps
from .link_types import Links
from .links import learns_jumps
from .sinks import SinkTally
from .tokens import Sentence


def align(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Sentence],
    targets: Sequence[Sentence] | None = None,
    *,
    align_with: str | None = None,
    layer: LayerChoice = None,
    heads: Sequence[int] | str | None = None,
    weights: str | None = None,
    specials: str | None = None,
    subwords: str | None = None,
    links: str | None = None,
    source_prefix: str = "",
    source_language: str | None = None,
    target_language: str | None = None,
    batch_size: int = 32,
    sinks: SinkTally | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Links]:
    """Return the word links of sentence pairs, read off a model's cross-attention.

    As many results as pairs, in input order; a blank side gives no links; every index lies within its sentence.

    Args:
        sources, targets: raw strings (words are split at white space) or lists of words; without targets the model
            generates them.
        align_with: rows, "output" or "input"; None = those of the choice saved with the model, else the config's
            `alignment_rows`, else "input" for Transformer decoders and "output" for recurrent ones.
        layer, heads: None = those saved with the model (`save_choice`), else the config's `alignment_layer` and
            `alignment_heads`, else the last layer and the mean of all its heads. Negative numbers count from the end;
            several layers, or "all", are averaged. Heads "fitted" are the logistic combination saved with the model.
        weights, source_prefix, source_language, target_language: as in `extract`.
        specials, subwords, links: how sinks, sub-words and link extraction are handled, see `to_word_links`. None, for
            `weights` too, = as saved with the heads that are read, else "attention", "mask", "matrix", "argmax". `hmm`
            learns its jumps from these pairs, whose maps are all held meanwhile.
        sinks: counts what share of the weight rests on end tokens, tags and final punctuation.
        progress: called as progress(done, total) after each pair.

    Raises:
        ValueError: an unknown choice, or a model or sentence that cannot be probed (see `extract`).
    """
    choice = choice_in_use(model, align_with, layer, heads)
    how = fill_choices(choice, weights=weights, specials=specials, subwords=subwords, links=links)
    check_choices(align_with, **how)
    maps_of_pairs = extract_chosen(
        model,
        tokenizer,
        sources,
        targets,
        align_with=align_with,
        batch_size=batch_size,
        layer=layer,
        heads=heads,
        weights=how["weights"],
        source_prefix=source_prefix,
        source_language=source_language,
        target_language=target_language,
    )
    # A fit's maps are of words alone: nothing rests on sinks.
    counted = sinks if choice is None or choice.fit is None else None
    matrices = _matrices(maps_of_pairs, how, counted, progress, len(sources))
    if not learns_jumps(how["links"]):
        return [each.links(how["links"], None) for each in matrices]
    held = list(matrices)
    jumps = learned_jumps(held, how["links"])
    return [each.links(how["links"], jumps) for each in held]


def _matrices(
    maps_of_pairs: Iterable[AttentionMaps],
    how: dict[str, str],
    sinks: SinkTally | None,
    progress: Callable[[int, int], None] | None,
    total: int,
) -> Iterator[DirectionMatrices]:
    for done, maps in enumerate(maps_of_pairs, start=1):
        yield direction_matrices(maps, how["specials"], how["subwords"], layer="all")
        if sinks is not None:
            sinks.add(maps, layer="all")
        if progress is not None:
            progress(done, total)
