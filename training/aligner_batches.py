"""Sentence pairs as batches for the aligner: features, teacher's views, hand-made links."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hf_seq2seq_attn.probing import Gold, Links

from .aligner_data import LinkWeights, Sentences
from .aligner_model import Features
from .aligner_text import FeatureIndex, Lexemes, gather, stripped

_MOST_KEYS = 2**31


class Batch(NamedTuple):
    """Pairs padded to one size.

    Attributes:
        places: (B,) which pairs of the text.
        source, target: their words.
        views: (B, M, 2, T, S) what each of the M runs of the teacher says, forward and reverse.
        gold: (B, T, S) sure hand-made links; has_gold: (B,) bool.
        possible: (B, T, S) 1 where a link is not wrong though not sure, which nothing is learnt from.
        fixed: (B, T, S) links that are right, in pairs of which the others are not known.
        same: (B, T, S) 1 where both words are the same, or the lexicon joins them.
    """

    places: np.ndarray
    source: Features
    target: Features
    views: Tensor
    gold: Tensor
    has_gold: Tensor
    possible: Tensor
    fixed: Tensor
    same: Tensor


@dataclass
class SideText:
    """One side of a text: its types with their features, and each sentence as type numbers."""

    forms: Lexemes
    ngrams: Lexemes
    rows: list[np.ndarray]
    keys: np.ndarray

    @classmethod
    def of(
        cls, index: FeatureIndex, sentences: Sentences, lemmas: Sentences | None, shared: dict[str, int]
    ) -> "SideText":
        """Number a text; `shared` numbers the bare forms of both sides, so that equal ones are seen."""
        forms, ngrams, rows = index.lexemes(sentences, lemmas)
        keys = [-1] + [shared.setdefault(stripped(word), len(shared)) for word, _ in forms.ids]
        return cls(forms, ngrams, rows, np.array(keys, dtype=np.int64))

    def features(self, places: np.ndarray) -> tuple[Features, np.ndarray]:
        """Return the features of the sentences at `places`, and the bare-form keys (B, L), -1 at padding."""
        longest = max(len(self.rows[place]) for place in places)
        tokens = np.zeros((len(places), longest), dtype=np.int64)
        for row, place in enumerate(places):
            tokens[row, : len(self.rows[place])] = self.rows[place]
        types, inverse = np.unique(tokens, return_inverse=True)
        local = inverse.reshape(tokens.shape) + (types[0] != 0)
        types = types[types != 0]
        forms, form_offsets = gather(self.forms, types)
        ngrams, ngram_offsets = gather(self.ngrams, types)
        arrays = (forms, form_offsets, ngrams, ngram_offsets, local)
        return Features(*(torch.from_numpy(array) for array in arrays)), self.keys[tokens]


class PairedText:
    """A bitext ready to be cut into batches."""

    def __init__(
        self,
        source: SideText,
        target: SideText,
        views: Sequence[tuple[Sequence[LinkWeights], Sequence[LinkWeights]]] = (),
        gold: Mapping[int, Gold] | None = None,
        fixed: Mapping[int, Links] | None = None,
        lexicon: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        self.source = source
        self.target = target
        self.gold = dict(gold or {})
        self.own_links: Mapping[int, Links] = {}
        """Of pairs without hand-made links: what a network has found there, to be taught like those."""
        self._lexicon = np.array([one * _MOST_KEYS + other for one, other in sorted(lexicon)], dtype=np.int64)
        self.fixed = dict(fixed or {})
        self.view_count = len(views)
        lengths = [(len(one), len(other)) for one, other in zip(source.rows, target.rows, strict=True)]
        self.lengths = np.array(lengths, dtype=np.int64).reshape(-1, 2)
        self.places = np.flatnonzero((self.lengths > 0).all(1))
        """Of the pairs with words on both sides."""
        self._views = [self._sparse(place, views) for place in range(len(lengths))]

    def batch(self, places: np.ndarray) -> Batch:
        """Return the pairs at `places`."""
        source, source_keys = self.source.features(places)
        target, target_keys = self.target.features(places)
        rows, columns = target.tokens.shape[1], source.tokens.shape[1]
        views = np.zeros((len(places), self.view_count, 2, rows, columns), dtype=np.float32)
        gold, possible, fixed = np.zeros((3, len(places), rows, columns), dtype=np.float32)
        for row, place in enumerate(places):
            index, weights = self._views[place]
            views[row][tuple(index)] = weights
            if place in self.gold:
                mark_links(gold[row], self.gold[place].sure)
                mark_links(possible[row], self.gold[place].possible - self.gold[place].sure)
            elif place in self.own_links:
                mark_links(gold[row], self.own_links[place])
            mark_links(fixed[row], self.fixed.get(int(place), frozenset()))
        same = (target_keys[:, :, None] == source_keys[:, None, :]) & (target_keys[:, :, None] >= 0)
        if len(self._lexicon):
            codes = source_keys[:, None, :] * _MOST_KEYS + target_keys[:, :, None]
            same |= np.isin(codes, self._lexicon) & (source_keys[:, None, :] >= 0) & (target_keys[:, :, None] >= 0)
        has_gold = torch.tensor([int(place) in self.gold or int(place) in self.own_links for place in places])
        grids = (torch.from_numpy(grid) for grid in (possible, fixed, same.astype(np.float32)))
        return Batch(places, source, target, torch.from_numpy(views), torch.from_numpy(gold), has_gold, *grids)

    def cut(self, places: np.ndarray, cells: int, generator: np.random.Generator | None) -> Iterator[np.ndarray]:
        """Cut `places` into batches of pairs of about equal length, `cells` of the grid each, in random order."""
        noise = np.zeros(len(places)) if generator is None else generator.random(len(places))
        order = places[np.argsort(self.lengths[places].sum(1) * (1 + 0.1 * noise) + noise, kind="stable")]
        batches: list[np.ndarray] = []
        start, tallest, widest = 0, 0, 0
        for place, (columns, rows) in enumerate(self.lengths[order]):
            tallest, widest = max(tallest, rows), max(widest, columns)
            if place > start and (place + 1 - start) * tallest * widest > cells:
                batches.append(order[start:place])
                start, tallest, widest = place, rows, columns
        if start < len(order):
            batches.append(order[start:])
        if generator is not None:
            generator.shuffle(batches)
        yield from batches

    @staticmethod
    def _sparse(
        place: int, views: Sequence[tuple[Sequence[LinkWeights], Sequence[LinkWeights]]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices (view, direction, j, i) and the weights of all runs for one pair."""
        entries = [
            (view, direction, j, i, weight)
            for view, both in enumerate(views)
            for direction, links in enumerate(both)
            for (i, j), weight in links[place].items()
        ]
        if not entries:
            return np.zeros((4, 0), dtype=np.int16), np.zeros(0, dtype=np.float32)
        table = np.array(entries, dtype=np.float32)
        return table[:, :4].T.astype(np.int16), table[:, 4]


def mark_links(grid: np.ndarray, links: Links) -> None:
    """Write 1 into the cells of (T, S) that are links."""
    for i, j in links:
        grid[j, i] = 1
