"""The maps of many heads at once, from tokens to words: what `to_words` does, for a stack of (T, S) matrices.

A head is named `(layer, head)`. Heads are compared on the very matrices that `align` would read links off.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .attention_maps import AttentionMaps
from .links import extract_corpus_links
from .words import to_words

Head = tuple[int, int]
# The policies that this module applies to a whole stack; others go through `to_words` one matrix at a time.
_STACKED = ("mask", "renormalise", "null")


@dataclass(frozen=True)
class WordStack:
    """Word matrices of one sentence pair, of C heads or means of heads.

    Attributes:
        weights: (C, T, S) float32, words of the target by words of the source.
        null: (C, T) float32 under specials="null", else None; as in `WordMatrix`.
    """

    weights: np.ndarray
    null: np.ndarray | None


def stack_heads(maps: AttentionMaps, heads: Sequence[Head]) -> np.ndarray:
    """Return the token maps of these heads, (len(heads), T, S) float32.

    Raises:
        ValueError: a head that the maps do not hold.
    """
    for layer, head in heads:
        if layer not in maps.layers or head not in maps.heads:
            raise UnusableError(
                f"layer {layer}, head {head} is not held; these maps hold the layers {list(maps.layers)} and the heads "
                f"{list(maps.heads)}"
            )
    return maps.weights[[maps.layers.index(layer) for layer, _ in heads], [maps.heads.index(head) for _, head in heads]]


def mean_of_heads(maps: AttentionMaps, heads: Sequence[Head]) -> AttentionMaps:
    """Return the maps with the mean of these heads as their only layer and head, both numbered 0.

    Norms of several heads of one layer are the norm of their sum, as in `AttentionMaps.matrix`.

    Raises:
        ValueError: a head that the maps do not hold, or norms of heads of several layers.
    """
    stack = stack_heads(maps, heads)
    layers = {layer for layer, _ in heads}
    if maps.weight_kind == "attention" or len(heads) == 1:
        mean = stack.mean(axis=0, dtype=np.float32)
    elif len(layers) == 1:
        mean = maps.matrix(layers.pop(), [head for _, head in heads])
    else:
        raise UnusableError(
            f"norms of heads of several layers ({sorted(layers)}) have no common scale; choose heads of one layer, or "
            "read weights='attention'"
        )
    return alone(maps, mean)


def alone(maps: AttentionMaps, matrix: np.ndarray) -> AttentionMaps:
    """Return the maps with `matrix` (T, S) as their only layer and head, both numbered 0."""
    # Of one head nothing is to be joined, so that its weights may pass for attention of any kind.
    return replace(maps, weights=matrix[None, None], layers=(0,), heads=(0,), weight_kind="attention", norms=None)


def stack_words(maps: AttentionMaps, stack: np.ndarray, specials: str = "mask") -> WordStack:
    """Turn token matrices (C, T, S) on the tokens of `maps` into word matrices; `specials` as in `to_words`."""
    if specials not in _STACKED:
        each = [to_words(alone(maps, one), specials=specials) for one in stack]
        nulls = [one.null for one in each if one.null is not None]
        return WordStack(np.stack([one.weights for one in each]), np.stack(nulls) if nulls else None)
    columns = _membership(maps.source.word_of, len(maps.source_words))
    rows = _membership(maps.target.word_of, len(maps.target_words))
    rows /= np.maximum(rows.sum(axis=0, keepdims=True), 1)
    structural = np.array(maps.source.structural, dtype=bool)
    kept = np.where(structural, np.float32(0), stack)
    if specials == "renormalise":
        total = kept.sum(axis=2, keepdims=True)
        kept = np.divide(kept, total, out=np.zeros_like(kept), where=total > 0)
    weights = rows.T @ (kept @ columns)
    if specials != "null":
        return WordStack(weights, None)
    null_key = np.clip(1 - stack.sum(axis=2, keepdims=True), 0, None)
    sinks = rows.T @ np.concatenate([stack[:, :, structural], null_key], axis=2)
    return WordStack(weights, sinks.max(axis=2, initial=0))


def link_masks(stacks: Sequence[WordStack], links: str = "argmax") -> list[np.ndarray]:
    """Return which cells each head links, one (C, T, S) bool array for each sentence pair.

    Args:
        links: one of `EXTRACTIONS`; a method that learns from the corpus does so for each head.
    """
    if links == "argmax":
        return [_argmax_mask(stack) for stack in stacks]
    masks: list[np.ndarray] = [np.zeros(stack.weights.shape, dtype=bool) for stack in stacks]
    for head in range(masks[0].shape[0] if masks else 0):
        matrices = [stack.weights[head] for stack in stacks]
        nulls = [None if stack.null is None else stack.null[head] for stack in stacks]
        for mask, found in zip(masks, extract_corpus_links(matrices, links, nulls), strict=True):
            if found:
                sources, targets = np.array(sorted(found)).T
                mask[head, targets, sources] = True
    return masks


def _argmax_mask(stack: WordStack) -> np.ndarray:
    """Do what `argmax_links` does."""
    mask: np.ndarray = np.zeros(stack.weights.shape, dtype=bool)
    if not mask.size:
        return mask
    floor = np.float32(0) if stack.null is None else np.maximum(stack.null, 0)
    linked = stack.weights.max(axis=2) > floor
    np.put_along_axis(mask, stack.weights.argmax(axis=2)[..., None], linked[..., None], axis=2)
    return mask


def _membership(word_of: Sequence[int | None], words: int) -> np.ndarray:
    """Return (tokens, words) float32, 1 where the token belongs to the word."""
    owner = np.array([-1 if word is None else word for word in word_of], dtype=np.int64)
    return (owner[:, None] == np.arange(words)).astype(np.float32)
