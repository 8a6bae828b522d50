"""From sub-word maps to words: sum over a source word's tokens, mean over a target word's (Kobayashi et al. 2020;
Clark et al. 2019), or links between tokens carried over to their words.

What to do with the weight on structural tokens (end of sentence, language codes), the "sinks":
- mask: drop these columns; every target word keeps its best source word.
- renormalise: drop them and scale each row of the rest to sum to 1.
- null: keep them, and what a NULL key takes, as "no source word": a target word that looks at one of them most stays
  unlinked. `threshold:X` compares nothing within a row: under it null is as mask.
Each of them with `+punctuation`: the source's final punctuation is a sink as well, except for the target's final
punctuation, which looks at nothing else (Chen et al. 2020).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .attention_maps import AttentionMaps, LayerChoice
from .link_types import Links
from .links import extract_links
from .sinks import final_punctuation, pair_final_punctuation

_POLICIES = ("mask", "renormalise", "null")
_PUNCTUATION = "+punctuation"
SPECIALS = (*_POLICIES, *(policy + _PUNCTUATION for policy in _POLICIES))
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
    maps: AttentionMaps, *, layer: LayerChoice = None, heads: Sequence[int] | None = None, specials: str = "mask"
) -> WordMatrix:
    """Turn a map, averaged over heads and layers, into a matrix of words.

    Args:
        layer, heads: as in `AttentionMaps.matrix`.
        specials: one of `SPECIALS`, see the module.
    """
    tokens, null = _without_sinks(maps, layer, heads, specials)
    columns = _membership(maps.source.word_of, len(maps.source_words))
    rows = _membership(maps.target.word_of, len(maps.target_words))
    # A word without tokens (nothing the tokenizer reads) keeps a row of zeros.
    rows /= np.maximum(rows.sum(axis=0, keepdims=True), 1)
    weights = rows.T @ tokens @ columns
    return WordMatrix(weights, None if null is None else _heaviest(rows.T @ null))


def to_word_links(
    maps: AttentionMaps,
    *,
    layer: LayerChoice = None,
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
    tokens = to_tokens(maps, layer=layer, heads=heads, specials=specials)
    return words_of_links(maps, extract_links(tokens.weights, links, tokens.null))


def to_tokens(
    maps: AttentionMaps, *, layer: LayerChoice = None, heads: Sequence[int] | None = None, specials: str = "mask"
) -> WordMatrix:
    """Return the matrix of tokens by tokens that `subwords="links"` reads: rows of structural tokens are 0.

    Args:
        layer, heads, specials: as in `to_words`.
    """
    tokens, null = _without_sinks(maps, layer, heads, specials)
    tokens[np.array(maps.target.structural, dtype=bool)] = 0
    return WordMatrix(tokens, None if null is None else _heaviest(null))


def words_of_links(maps: AttentionMaps, links: Links) -> Links:
    """Link two words if any of their tokens are linked."""
    pairs = ((maps.source.word_of[i], maps.target.word_of[j]) for i, j in links)
    return frozenset((i, j) for i, j in pairs if i is not None and j is not None)


def _without_sinks(
    maps: AttentionMaps, layer: LayerChoice, heads: Sequence[int] | None, specials: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the map (T, S) with the columns of sinks 0, and under "null" what these columns and the NULL key hold."""
    if specials not in SPECIALS:
        raise UnusableError(f"specials is {specials!r}; allowed are {', '.join(SPECIALS)}")
    policy = specials.removesuffix(_PUNCTUATION)
    tokens = maps.matrix(layer, heads)
    structural = np.array(maps.source.structural, dtype=bool)
    sinks = [tokens[:, structural]]
    if policy == "null":
        sinks.append(maps.null_weights(layer, heads)[:, None])
    if policy != specials:
        tokens, taken = pair_final_punctuation(maps, tokens)
        sinks.append(taken)
        # What was forced on the final punctuation is no longer anyone else's.
        forced = final_punctuation(maps.target) & final_punctuation(maps.source).any()
        sinks = [np.where(forced[:, None], np.float32(0), each) for each in sinks]
    kept = np.where(structural, np.float32(0), tokens)
    if policy == "null":
        return kept, np.hstack(sinks)
    if policy == "renormalise":
        total = kept.sum(axis=1, keepdims=True)
        kept = np.divide(kept, total, out=np.zeros_like(kept), where=total > 0)
    return kept, None


def _membership(word_of: list[int | None], words: int) -> np.ndarray:
    """Return (tokens, words) float32, 1 where the token belongs to the word."""
    matrix = np.zeros((len(word_of), words), dtype=np.float32)
    numbers = np.array([-1 if word is None else word for word in word_of], dtype=np.int64)
    tokens = np.flatnonzero(numbers >= 0)
    matrix[tokens, numbers[tokens]] = 1
    return matrix


def _heaviest(columns: np.ndarray) -> np.ndarray:
    return columns.max(axis=1, initial=0)
