"""From sub-word maps to words: sum over a source word's tokens, mean over a target word's (Kobayashi et al. 2020;
Clark et al. 2019), or links between tokens carried over to their words.

What to do with the weight on structural tokens (end of sentence, language codes), the "sinks":
- mask: drop these columns; every target word keeps its best source word.
- renormalise: drop them and scale each row of the rest to sum to 1.
- null: keep them, and what a NULL key takes, as "no source word": a target word that looks at one of them most stays
  unlinked. `threshold:X` compares nothing within a row: under it null is as mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .extraction import AttentionMaps
from .link_types import Links
from .links import extract_links

SPECIALS = ("mask", "renormalise", "null")
SUBWORDS = ("matrix", "links")


@dataclass(frozen=True)
class WordMatrix:
    """How much each target word looks at each source word.

    Attributes:
        weights: (T, S) float32, words of the target by words of the source.
        null: (T,) float32, weight of the heaviest structural token or NULL key in each row under specials="null"; else
            None.
    """

    weights: np.ndarray
    null: np.ndarray | None


def to_words(
    maps: AttentionMaps, *, layer: int | None = None, heads: Sequence[int] | None = None, specials: str = "mask"
) -> WordMatrix:
    """Turn one layer's map, averaged over heads, into a matrix of words.

    Args:
        layer, heads: as in `AttentionMaps.matrix`.
        specials: `mask`, `renormalise` or `null`, see the module.
    """
    tokens, null = _without_sinks(maps, maps.matrix(layer, heads), specials)
    columns = _membership(maps.source.word_of, len(maps.source_words))
    rows = _membership(maps.target.word_of, len(maps.target_words))
    # A word without tokens (nothing the tokenizer reads) keeps a row of zeros.
    rows /= np.maximum(rows.sum(axis=0, keepdims=True), 1)
    weights = rows.T @ tokens @ columns
    return WordMatrix(weights, None if null is None else _heaviest(rows.T @ null))


def to_word_links(
    maps: AttentionMaps,
    *,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    specials: str = "mask",
    subwords: str = "matrix",
    links: str = "argmax",
) -> Links:
    """Return the word links of one sentence pair.

    Args:
        layer, heads, specials: as in `to_words`.
        subwords: `matrix` extracts links from the matrix of words; `links` extracts them between tokens and links two
            words if any of their tokens are linked (more links, higher recall).
        links: one of `EXTRACTIONS`, with its value after a colon, e.g. `threshold:0.2`.
    """
    if subwords not in SUBWORDS:
        raise ValueError(f"subwords is {subwords!r}; allowed are {', '.join(SUBWORDS)}")
    if subwords == "matrix":
        matrix = to_words(maps, layer=layer, heads=heads, specials=specials)
        return extract_links(matrix.weights, links, matrix.null)
    tokens, null = _without_sinks(maps, maps.matrix(layer, heads), specials)
    tokens[np.array(maps.target.structural, dtype=bool)] = 0
    pairs = (
        (maps.source.word_of[i], maps.target.word_of[j])
        for i, j in extract_links(tokens, links, None if null is None else _heaviest(null))
    )
    return frozenset((i, j) for i, j in pairs if i is not None and j is not None)


def _without_sinks(maps: AttentionMaps, tokens: np.ndarray, specials: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the map (T, S) with structural columns 0, and under "null" these columns and the NULL key's."""
    if specials not in SPECIALS:
        raise ValueError(f"specials is {specials!r}; allowed are {', '.join(SPECIALS)}")
    structural = np.array(maps.source.structural, dtype=bool)
    kept = np.where(structural, np.float32(0), tokens)
    if specials == "null":
        # Weights leave out the NULL key, so its share is what a row lacks to 1.
        null_key = np.clip(1 - tokens.sum(axis=1, keepdims=True), 0, None)
        return kept, np.hstack([tokens[:, structural], null_key])
    if specials == "renormalise":
        total = kept.sum(axis=1, keepdims=True)
        kept = np.divide(kept, total, out=np.zeros_like(kept), where=total > 0)
    return kept, None


def _membership(word_of: list[int | None], words: int) -> np.ndarray:
    """Return (tokens, words) float32, 1 where the token belongs to the word."""
    matrix = np.zeros((len(word_of), words), dtype=np.float32)
    for token, word in enumerate(word_of):
        if word is not None:
            matrix[token, word] = 1
    return matrix


def _heaviest(columns: np.ndarray) -> np.ndarray:
    return columns.max(axis=1, initial=0)
