"""What a page shows of one sentence pair: maps by layer and head, of words and of sub-words, with their links."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .aligned_pair import Gold
from .attention_maps import AttentionMaps, LayerChoice
from .heatmap import check_heatmap
from .heatmap_svg import SentenceView
from .link_types import Links
from .links import extract_links
from .tokens import TokenizedText
from .words import to_tokens, to_word_links, to_words

READING, MEAN, HEAD = "reading", "mean", "head"


@dataclass(frozen=True)
class ViewedMap:
    """One map among those of a sentence pair.

    Attributes:
        kind: "reading" = the one that alignments are read from, "mean" of several heads, or one "head".
        name: what it is called, e.g. `layer 2, head 0`.
        matrix: (T, S) float, at least 0.
        links: those read off the matrix.
        layer, head: the model's numbers; None = the map is of several.
    """

    kind: str
    name: str
    matrix: np.ndarray
    links: Links = frozenset()
    layer: int | None = None
    head: int | None = None

    @property
    def key(self) -> str:
        """Return what tells this map from the others of its pair."""
        return f"{self.kind} {'' if self.layer is None else self.layer} {'' if self.head is None else self.head}"


@dataclass(frozen=True)
class ViewLevel:
    """The maps of one pair between words, or between sub-words.

    Attributes:
        source, target: labels of columns and rows.
        maps: at least one; the first is shown first.
        source_word, target_word: for each sub-word its word, None for a structural token; None on the level of words.
    """

    source: Sequence[str]
    target: Sequence[str]
    maps: Sequence[ViewedMap]
    source_word: Sequence[int | None] | None = None
    target_word: Sequence[int | None] | None = None

    def __post_init__(self) -> None:
        if not self.maps:
            raise ValueError("maps is empty; a level shows at least one map")
        for each in self.maps:
            check_heatmap(each.matrix, self.source, self.target)
            for i, j in each.links:
                if not (0 <= i < len(self.source) and 0 <= j < len(self.target)):
                    raise ValueError(
                        f"link {i}-{j} of {each.name} leaves its map of {len(self.source)} columns and "
                        f"{len(self.target)} rows"
                    )


@dataclass(frozen=True)
class PairView:
    """One sentence pair to look at: its words, its sub-words if they are known, and manual links between words."""

    words: ViewLevel
    tokens: ViewLevel | None = None
    gold: Gold | None = None

    def __post_init__(self) -> None:
        for i, j in self.gold.possible if self.gold else ():
            if not (0 <= i < len(self.words.source) and 0 <= j < len(self.words.target)):
                raise ValueError(
                    f"gold link {i}-{j} leaves its sentence of {len(self.words.source)} source and "
                    f"{len(self.words.target)} target words; check that links and text have the same tokens"
                )

    @classmethod
    def of_sentence(cls, sentence: SentenceView) -> "PairView":
        """Return a pair with the one map of `sentence`."""
        only = ViewedMap(READING, "attention", sentence.matrix, sentence.links)
        return cls(ViewLevel(sentence.source, sentence.target, [only]), None, sentence.gold)


def pair_view(
    reading: AttentionMaps,
    every_head: AttentionMaps | None = None,
    *,
    gold: Gold | None = None,
    name: str = "as alignments are read",
    specials: str = "mask",
    subwords: str = "matrix",
    links: str = "argmax",
) -> PairView:
    """Return what a page shows of one pair.

    Between words the weights on structural tokens are treated as `specials` says; between sub-words every token is
    shown as the model has it, and links join sub-words of words only.

    Args:
        reading: the maps that alignments are read from (`extract_chosen`); read with all their layers and heads.
        every_head: all layers and heads of the same pair, each shown alone, with the means of each layer and of all;
            None = the reading alone.
        name: what the reading is called.
        specials, subwords, links: as in `align`.
    """
    chosen: list[tuple[AttentionMaps, dict[str, Any], LayerChoice, list[int] | None]] = [
        (reading, dict(kind=READING, name=name), "all", None)
    ]
    if every_head is not None:
        chosen += [(every_head, *each) for each in _layers_and_heads(every_head)]

    words, tokens = [], []
    for maps, about, layer, heads in chosen:
        where: dict[str, Any] = dict(layer=layer, heads=heads, specials=specials)
        matrix = to_words(maps, **where).weights
        found = to_word_links(maps, **where, subwords=subwords, links=links)
        words.append(ViewedMap(matrix=matrix, links=found, **about))
        # The maps of a fit have words for tokens.
        if _has_tokens(maps):
            of_tokens = to_tokens(maps, **where)
            found = extract_links(of_tokens.weights, links, of_tokens.null)
            tokens.append(ViewedMap(matrix=maps.matrix(layer, heads), links=found, **about))
    shown = reading if _has_tokens(reading) or every_head is None else every_head
    return PairView(
        ViewLevel(reading.source_words, reading.target_words, words),
        _token_level(shown, tokens) if tokens else None,
        gold,
    )


def _layers_and_heads(maps: AttentionMaps) -> Iterator[tuple[dict[str, Any], LayerChoice, list[int] | None]]:
    """Yield what a map is and which layers and heads make it: the mean of all, then layer by layer."""
    if len(maps.layers) * len(maps.heads) == 1:
        return
    if len(maps.layers) > 1:
        yield dict(kind=MEAN, name="mean of all layers and heads"), "all", None
    for layer in maps.layers:
        if len(maps.heads) > 1:
            yield dict(kind=MEAN, name=f"layer {layer}, mean", layer=layer), layer, None
        for head in maps.heads:
            yield dict(kind=HEAD, name=f"layer {layer}, head {head}", layer=layer, head=head), layer, [head]


def _has_tokens(maps: AttentionMaps) -> bool:
    return any(span is not None for span in (*maps.source.spans, *maps.target.spans))


def _token_level(maps: AttentionMaps, viewed: list[ViewedMap]) -> ViewLevel:
    return ViewLevel(
        token_labels(maps.source), token_labels(maps.target), viewed, maps.source.word_of, maps.target.word_of
    )


def token_labels(text: TokenizedText) -> list[str]:
    """Return each token as a reader knows it: its characters in the text, after `·` where it continues a word; a
    structural token by its name."""
    labels = []
    for index, (token, span, word) in enumerate(zip(text.tokens, text.spans, text.word_of, strict=True)):
        # A lone mark of a word's start covers what the next token does.
        if span is None or token in ("▁", "Ġ"):
            labels.append(token)
            continue
        characters = text.text[span[0] : span[1]].strip()
        continues = index > 0 and word is not None and text.word_of[index - 1] == word
        labels.append("·" + characters if continues else characters)
    return labels
