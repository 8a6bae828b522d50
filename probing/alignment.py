"""The pipeline: a model and sentence pairs -> word links."""

from collections.abc import Callable, Sequence
from typing import Any

from hf_seq2seq_attn.errors import UnusableError

from .extraction import ROWS, extract
from .links import Links, check_extraction
from .tokens import Sentence
from .words import SPECIALS, SUBWORDS, to_word_links


def align(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Sentence],
    targets: Sequence[Sentence] | None = None,
    *,
    align_with: str | None = None,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    specials: str = "mask",
    subwords: str = "matrix",
    links: str = "argmax",
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> list[Links]:
    """Return the word links of sentence pairs, read off a model's cross-attention.

    As many results as pairs, in input order; a blank side gives no links; every index lies within its sentence.

    Args:
        sources, targets: raw strings (words are split at white space) or lists of words; without targets the model
            generates them.
        align_with: rows, "output" or "input"; None = the config's `alignment_rows`, else "input" for Transformer
            decoders and "output" for recurrent ones.
        layer, heads: None = the config's `alignment_layer` and `alignment_heads`, else the last layer and the mean
            of all its heads. Negative numbers count from the end.
        specials, subwords, links: how sinks, sub-words and link extraction are handled, see `to_word_links`.
        progress: called as progress(done, total) after each pair.

    Raises:
        ValueError: an unknown choice, or a model or sentence that cannot be probed (see `extract`).
    """
    check_choices(align_with, specials, subwords, links)
    layer, heads = alignment_heads(model.config, layer, heads)
    maps_of_pairs = extract(
        model, tokenizer, sources, targets, align_with=align_with, batch_size=batch_size, layers=[layer], heads=heads
    )
    results = []
    for done, maps in enumerate(maps_of_pairs, start=1):
        results.append(to_word_links(maps, specials=specials, subwords=subwords, links=links))
        if progress is not None:
            progress(done, len(sources))
    return results


def alignment_heads(
    config: Any, layer: int | None = None, heads: Sequence[int] | None = None
) -> tuple[int, Sequence[int] | None]:
    """Return the layer and heads to read alignments from: those given, else the config's, else the last layer, all
    heads.

    The config's heads belong to the config's layer: another layer is read with all its heads unless heads are given.
    """
    own_layer = getattr(config, "alignment_layer", None)
    own_layer = -1 if own_layer is None else own_layer
    if heads is None and layer in (None, own_layer):
        heads = getattr(config, "alignment_heads", None)
    return own_layer if layer is None else layer, heads


def check_choices(align_with: str | None, specials: str, subwords: str, links: str) -> None:
    """Raise a ValueError unless each choice is one that `align` knows."""
    for name, value, allowed in (
        ("align_with", align_with, (None, *ROWS)),
        ("specials", specials, SPECIALS),
        ("subwords", subwords, SUBWORDS),
    ):
        if value not in allowed:
            raise UnusableError(f"{name} is {value!r}; allowed are {', '.join(str(each) for each in allowed if each)}")
    check_extraction(links)
