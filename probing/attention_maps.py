"""The cross-attention of one sentence pair, of the layers and heads that were asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .tokens import TokenizedText
from .value_norms import ValueNorms

WEIGHTS = ("attention", "norm", "raw_norm")
# A layer by its number, several to average, "all" that are held, or None = the last one held.
LayerChoice = int | Sequence[int] | str | None


@dataclass(frozen=True)
class AttentionMaps:
    """The cross-attention of one sentence pair.

    Attributes:
        weights: (L, H, T, S) float32. Row t is the row of target token t, so rows are labelled by the token they
            align; each sums to 1 over S (less the share of a NULL key), except under "raw_norm".
        source, target: the two sides as tokens and words; T and S count tokens, special ones included.
        align_with: what a row means, "output" or "input" (see `extraction`).
        layers, heads: which of the model's layers and heads these are.
        weight_kind: what the weights are: "attention", "norm" or "raw_norm" (see `value_norms`).
        norms: what norms of several heads at once are computed from; None for attention.
        start: id of the token that the decoder read before target token 0; None = the config's start token.
    """

    weights: np.ndarray
    source: TokenizedText
    target: TokenizedText
    align_with: str
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    weight_kind: str = "attention"
    norms: ValueNorms | None = None
    start: int | None = None

    @property
    def source_tokens(self) -> list[str]:
        return self.source.tokens

    @property
    def target_tokens(self) -> list[str]:
        return self.target.tokens

    @property
    def source_words(self) -> list[str]:
        return self.source.words

    @property
    def target_words(self) -> list[str]:
        return self.target.words

    def matrix(self, layer: LayerChoice = None, heads: Sequence[int] | None = None) -> np.ndarray:
        """Return one map, (T, S) float32: heads averaged (norms: the norm of their sum), then layers averaged.

        Args:
            layer: the model's number of a layer, or several numbers; negative from the end of those held; "all" that
                are held; None = the last one held.
            heads: the model's numbers of the heads; None = all that are held.

        Raises:
            ValueError: a layer or head that is not held.
        """
        return self._joined(layer, heads)[0]

    def of_kind(self, weight_kind: str) -> "AttentionMaps":
        """Return the same maps with another kind of weights, without another pass of the model.

        Args:
            weight_kind: one of `WEIGHTS`; maps of attention alone can become nothing else.

        Raises:
            ValueError: an unknown kind, or one that these maps do not hold.
        """
        if weight_kind == self.weight_kind:
            return self
        if weight_kind not in WEIGHTS or self.norms is None:
            held = WEIGHTS if self.norms is not None else (self.weight_kind,)
            raise UnusableError(f"weights is {weight_kind!r}; these maps hold {', '.join(held)}")
        if weight_kind == "attention":
            attention = self.norms.attention[..., int(self.norms.has_null) :]
            return replace(self, weights=attention, weight_kind=weight_kind, norms=None)
        return replace(self, weights=self.norms.per_head(weight_kind == "norm"), weight_kind=weight_kind)

    def null_weights(self, layer: LayerChoice = None, heads: Sequence[int] | None = None) -> np.ndarray:
        """Return what a NULL key takes in each row of `matrix(layer, heads)`, (T,) float32; 0 without a NULL key."""
        return self._joined(layer, heads)[1]

    def save(self, path: str | Path, *, model: Any = None) -> None:
        """Write these maps to an NPZ file, with the model's name and revision; many pairs: `write_maps`.

        Args:
            model: the model that gave them, or its folder or Hub id.
        """
        from .maps_files import write_maps

        write_maps(path, [self], model=model)

    @staticmethod
    def load(path: str | Path) -> "list[AttentionMaps]":
        """Return all maps of a file that `save` or `write_maps` wrote; one after the other: `iterate_maps`.

        Raises:
            InputError: no such file, another kind of file, or one that is torn.
        """
        from .maps_files import iterate_maps

        return list(iterate_maps(path))

    def _joined(self, layer: LayerChoice, heads: Sequence[int] | None) -> tuple[np.ndarray, np.ndarray]:
        layers, columns = self._layers(layer), self._heads(heads)
        if self.weight_kind == "attention":
            chosen = self.weights[layers][:, columns]
            # One mean after the other keeps the sums of a single layer as they always were.
            joined = chosen.mean(axis=1)
            matrix = joined[0] if len(layers) == 1 else joined.mean(axis=0)
            return matrix, np.clip(1 - matrix.sum(axis=1), 0, None)
        parts = [self._norms(index, columns) for index in layers]
        return np.mean([part for part, _ in parts], axis=0), np.mean([null for _, null in parts], axis=0)

    def _norms(self, layer: int, heads: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the norms of some heads of a layer, by their positions, and those of the NULL key."""
        normalized = self.weight_kind == "norm"
        if len(heads) == 1 and normalized:
            matrix = self.weights[layer, heads[0]]
            return matrix, np.clip(1 - matrix.sum(axis=1), 0, None)
        if self.norms is None or self.norms.attention.shape[:2] != self.weights.shape[:2]:
            raise UnusableError(
                f"these maps hold weights of the kind {self.weight_kind!r} without the `norms` of the same layers and "
                "heads, from which norms of several heads are computed; extract them again"
            )
        return self.norms.joined(layer, heads, normalized)

    def _layers(self, layer: LayerChoice) -> list[int]:
        """Return the positions of the chosen layers in `weights`."""
        if isinstance(layer, str):
            if layer != "all":
                raise UnusableError(f"layer is {layer!r}; give a number, several numbers, or 'all'")
            return list(range(len(self.layers)))
        wanted = [self.layers[-1]] if layer is None else [layer] if isinstance(layer, int) else list(layer)
        if not wanted:
            raise UnusableError(f"layer is empty; these maps hold the layers {list(self.layers)}")
        positions = []
        for number in wanted:
            if number not in self.layers and -len(self.layers) <= number < 0:
                number = self.layers[number]
            if number not in self.layers:
                raise UnusableError(f"layer is {number}; these maps hold the layers {list(self.layers)}")
            positions.append(self.layers.index(number))
        return positions

    def _heads(self, heads: Sequence[int] | None) -> list[int]:
        chosen = self.heads if heads is None else tuple(heads)
        if not chosen or not set(chosen) <= set(self.heads):
            raise UnusableError(f"heads is {list(chosen)}; these maps hold the heads {list(self.heads)}")
        return [self.heads.index(head) for head in chosen]
