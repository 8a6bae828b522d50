"""Which heads hold the word alignment? Chosen without gold by the agreement of two directions, or by AER on a
development set.

- agreement (Chen et al. 2020, for layers; here for heads too): links F of a source-to-target model and R of a
  target-to-source model on the same bitext, 2 |F & R| / (|F| + |R|). Two models that were trained apart have little
  reason to make the same mistakes, except by position: heads that look at a constant offset agree without
  reading, so look at the fixed-offset share of the head report before trusting a choice that rests on few words.
- aer: alignment error rate on hand-aligned pairs. They must not be the test set: the best of many heads on a set is
  better there than elsewhere.

Candidates are the mean of each layer and each head, on output rows and on input rows, always with "last layer, head 0,
output rows": OPUS-MT models were trained with a guided alignment head there. From the best head a set grows: the head
that raises the score most joins the mean, while one does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .aligned_pair import Gold
from .attention_maps import AttentionMaps
from .extraction import ROWS
from .head_words import Head, WordStack, link_masks, stack_heads, stack_words

CRITERIA = ("agreement", "aer")
# A head joins the set only if it raises the score by this much.
MIN_GAIN = 0.001
MAX_HEADS = 8

# For each kind of rows, the maps of the sentence pairs with all layers and heads.
MapsByRows = Mapping[str, Sequence[AttentionMaps]]


@dataclass(frozen=True)
class Candidate:
    """Heads to average and the rows to read them on.

    Attributes:
        align_with: "output" or "input", see `extract`.
        heads: (layer, head) pairs, the model's numbers.
        name: in words.
    """

    align_with: str
    heads: tuple[Head, ...]
    name: str = field(compare=False)


@dataclass(frozen=True)
class ScoredCandidate:
    """A candidate and its score: agreement (higher is better) or AER (lower is better)."""

    candidate: Candidate
    score: float

    def as_dict(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "name": self.candidate.name,
            "align_with": self.candidate.align_with,
            "heads": [list(head) for head in self.candidate.heads],
            "score": self.score,
        }


@dataclass(frozen=True)
class HeadChoice:
    """The heads that were chosen, and all that were tried.

    Attributes:
        best: the heads to read alignments from.
        criterion: "agreement" or "aer".
        pairs: number of sentence pairs that it rests on.
        tried: every single head and layer mean with its score, best first; under "agreement" the score is that with
            the best partner in the other direction.
        reverse: under "agreement", the heads of the reverse model that agree with `best`; else None.
        specials, links: how links were read.
    """

    best: ScoredCandidate
    criterion: str
    pairs: int
    tried: tuple[ScoredCandidate, ...]
    reverse: Candidate | None
    specials: str
    links: str

    def as_dict(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "criterion": self.criterion,
            "better": "higher" if self.criterion == "agreement" else "lower",
            "score": self.best.score,
            "align_with": self.best.candidate.align_with,
            "heads": [list(head) for head in self.best.candidate.heads],
            "name": self.best.candidate.name,
            "pairs": self.pairs,
            "specials": self.specials,
            "links": self.links,
            "reverse": None
            if self.reverse is None
            else {
                "name": self.reverse.name,
                "align_with": self.reverse.align_with,
                "heads": [list(head) for head in self.reverse.heads],
            },
            "tried": [each.as_dict() for each in self.tried],
        }


def choose_by_agreement(
    forward: MapsByRows,
    reverse: MapsByRows,
    *,
    specials: str = "mask",
    links: str = "argmax",
    max_heads: int = MAX_HEADS,
) -> HeadChoice:
    """Choose the heads whose links agree best with those of a model of the other direction, without any gold.

    Every candidate of one model is compared with every one of the other; from the best pair of heads the sets of both
    models grow in turn.

    Args:
        forward: for "output" and "input" rows, or one of them, the maps of the source-to-target model.
        reverse: the maps of the target-to-source model on the same pairs; its sources are the targets.
        specials, links: how links are read, as in `to_word_links`.
        max_heads: the most heads in a set; 1 = no sets. Of norms there are no sets.

    Raises:
        ValueError: no pairs, or maps of the two directions that do not belong to the same words.
    """
    one, other = _Direction(forward, specials, links), _Direction(reverse, specials, links, transposed=True)
    _check_sides(one, other)
    masks, other_masks = one.masks(), other.masks()
    scores = agreements(masks, other_masks)
    first, second = _best_pair(scores)
    best = ScoredCandidate(one.candidates[first], float(scores[first, second]))
    partner = other.candidates[second]
    sets, other_sets, score = _grow_together(one, other, scores, max_heads)
    if score > best.score:
        best, partner = ScoredCandidate(one.name(sets), score), other.name(other_sets)
    tried = [ScoredCandidate(each, float(row.max())) for each, row in zip(one.candidates, scores, strict=True)]
    return HeadChoice(best, "agreement", one.pairs, _ranked(tried, reverse=True), partner, specials, links)


def choose_by_aer(
    maps: MapsByRows,
    dev: Sequence[Gold],
    *,
    specials: str = "mask",
    links: str = "argmax",
    max_heads: int = MAX_HEADS,
) -> HeadChoice:
    """Choose the heads with the lowest AER on a development set.

    Args:
        maps: for "output" and "input" rows, or one of them, the maps of the pairs.
        dev: their manual links; never those of the test set that is reported later.
        specials, links, max_heads: as in `choose_by_agreement`.

    Raises:
        ValueError: no pairs, other numbers of pairs than of gold, or gold without a link.
    """
    direction = _Direction(maps, specials, links)
    if len(dev) != direction.pairs:
        raise UnusableError(f"{direction.pairs} sentence pairs but {len(dev)} of dev; N of one must be N of the other")
    if not any(manual.possible for manual in dev):
        raise UnusableError("dev has no link in any sentence, so it cannot tell heads apart; check the file")
    scores = error_rates(direction.masks(), dev)
    first = int(scores.argmin())
    best = ScoredCandidate(direction.candidates[first], float(scores[first]))
    heads, score = _grow(direction, direction.best_head(-scores), max_heads, lambda masks: -error_rates(masks, dev))
    if -score < best.score:
        best = ScoredCandidate(direction.name(heads), -score)
    tried = [ScoredCandidate(each, float(one)) for each, one in zip(direction.candidates, scores, strict=True)]
    return HeadChoice(best, "aer", direction.pairs, _ranked(tried, reverse=False), None, specials, links)


def agreements(forward: Sequence[np.ndarray], reverse: Sequence[np.ndarray]) -> np.ndarray:
    """Return 2 |F & R| / (|F| + |R|) over the corpus for every pair of candidates, (C, D) float64; 0 without links.

    Args:
        forward: for each sentence pair the cells that each candidate links, (C, T, S) bool.
        reverse: the same of the other direction, (D, T, S) bool, transposed already.
    """
    both = np.zeros((forward[0].shape[0], reverse[0].shape[0]))
    total = np.zeros_like(both)
    for one, other in zip(forward, reverse, strict=True):
        flat, other_flat = (each.reshape(len(each), -1).astype(np.float32) for each in (one, other))
        both += flat @ other_flat.T
        total += flat.sum(axis=1)[:, None] + other_flat.sum(axis=1)[None]
    return np.divide(2 * both, total, out=np.zeros_like(both), where=total > 0)


def error_rates(masks: Sequence[np.ndarray], gold: Sequence[Gold]) -> np.ndarray:
    """Return each candidate's corpus-level AER, (C,) float64; definitions as in `score_links`.

    Args:
        masks: for each sentence pair the cells that each candidate links, (C, T, S) bool.

    Raises:
        ValueError: a gold link outside its sentence.
    """
    hits, total = np.zeros(masks[0].shape[0]), np.zeros(masks[0].shape[0])
    for number, (mask, manual) in enumerate(zip(masks, gold, strict=True), start=1):
        for links in (manual.sure, manual.possible):
            hits += mask[:, gold_mask(links, mask.shape[1:], number)].sum(axis=1)
        total += mask.sum(axis=(1, 2)) + len(manual.sure)
    return 1 - np.divide(hits, total, out=np.ones_like(hits), where=total > 0)


def gold_mask(links: frozenset[tuple[int, int]], shape: tuple[int, ...], number: int) -> np.ndarray:
    """Return the cells (T, S) bool of manual links; `number` names the sentence in errors, from 1."""
    mask = np.zeros(shape, dtype=bool)
    if links:
        sources, targets = np.array(sorted(links)).T
        if sources.max() >= shape[1] or targets.max() >= shape[0]:
            raise UnusableError(
                f"sentence {number}: gold goes beyond its {shape[1]} source and {shape[0]} target words; the gold must "
                "belong to these files, words split at white space"
            )
        mask[targets, sources] = True
    return mask


class _Direction:
    """All candidates of one model on the same sentence pairs."""

    def __init__(self, maps: MapsByRows, specials: str, links: str, *, transposed: bool = False) -> None:
        self.maps, self.specials, self.links, self.transposed = maps, specials, links, transposed
        sizes = {len(pairs) for pairs in maps.values()}
        if not maps or not set(maps) <= set(ROWS) or len(sizes) != 1:
            raise UnusableError(
                f"maps has the rows {list(maps)} with {sorted(sizes)} pairs; give the same pairs for each of "
                f"{', '.join(ROWS)}, or for one of them"
            )
        self.pairs = sizes.pop()
        if not self.pairs:
            raise UnusableError("no sentence pair to choose heads on; give at least one")
        first = next(iter(maps.values()))[0]
        self.layers, self.heads = first.layers, first.heads
        if first.weight_kind == "raw_norm":
            raise UnusableError("raw norms of several heads have no common scale; choose on attention or norm")
        # Norms of heads do not add up to the norm of their sum, so that sets grow on attention only.
        self.grows = first.weight_kind == "attention"
        self.candidates = [each for rows in self._rows() for each in self._of_rows(rows)]

    def _rows(self) -> list[str]:
        # Output rows first: of candidates with equal scores the first is chosen.
        return [rows for rows in ROWS if rows in self.maps]

    def _of_rows(self, rows: str) -> Iterator[Candidate]:
        """Yield the heads from the last layer, head 0 on, then the layer means."""
        for layer in reversed(self.layers):
            for head in self.heads:
                yield Candidate(rows, ((layer, head),), f"layer {layer}, head {head}, {rows} rows")
        if len(self.heads) > 1:
            for layer in reversed(self.layers):
                heads = tuple((layer, head) for head in self.heads)
                yield Candidate(rows, heads, f"layer {layer}, mean of {len(self.heads)} heads, {rows} rows")

    def name(self, chosen: tuple[str, tuple[Head, ...]]) -> Candidate:
        """Return the set of heads on these rows as a candidate."""
        rows, heads = chosen
        listed = ", ".join(f"{layer}.{head}" for layer, head in heads)
        return Candidate(rows, tuple(sorted(heads)), f"mean of the heads {listed} (layer.head), {rows} rows")

    def best_head(self, scores: np.ndarray) -> tuple[str, tuple[Head, ...]]:
        """Return the single head with the highest of the candidates' scores."""
        single = np.array([len(each.heads) == 1 for each in self.candidates])
        best = self.candidates[int(np.where(single, scores, -np.inf).argmax())]
        return best.align_with, best.heads

    def masks(self) -> list[np.ndarray]:
        """Return the cells that each candidate links, (C, T, S) bool for each pair."""
        parts = [self._masks_of_rows(rows) for rows in self._rows()]
        return [np.concatenate(of_pair) for of_pair in zip(*parts, strict=True)]

    def _masks_of_rows(self, rows: str) -> list[np.ndarray]:
        stacks = []
        for maps in self.maps[rows]:
            weights = maps.weights[::-1]
            stack = weights.reshape(-1, *weights.shape[2:])
            if len(self.heads) > 1:
                means = np.stack([maps.matrix(layer) for layer in reversed(self.layers)])
                stack = np.concatenate([stack, means])
            stacks.append(stack_words(maps, stack, self.specials))
        return self._linked(stacks)

    def set_masks(self, rows: str, heads: tuple[Head, ...], more: Sequence[Head]) -> list[np.ndarray]:
        """Return the links of the mean of `heads` and one of `more`, (len(more), T, S) bool for each pair; without
        `more`, of the mean of `heads`."""
        stacks: list[WordStack] = []
        for maps in self.maps[rows]:
            total = stack_heads(maps, heads).sum(axis=0, dtype=np.float32)[None]
            if more:
                total = total + stack_heads(maps, more)
            stacks.append(stack_words(maps, total / (len(heads) + bool(more)), self.specials))
        return self._linked(stacks)

    def others(self, heads: tuple[Head, ...]) -> list[Head]:
        """Return the heads that are not among `heads`, the last layer's first."""
        return [(layer, head) for layer in reversed(self.layers) for head in self.heads if (layer, head) not in heads]

    def _linked(self, stacks: Sequence[WordStack]) -> list[np.ndarray]:
        masks = link_masks(stacks, self.links)
        return [mask.transpose(0, 2, 1) for mask in masks] if self.transposed else masks


def _check_sides(one: _Direction, other: _Direction) -> None:
    if one.pairs != other.pairs:
        raise UnusableError(
            f"{one.pairs} forward pairs but {other.pairs} reverse pairs; both models must read the same pairs"
        )
    for number, (maps, back) in enumerate(
        zip(next(iter(one.maps.values())), next(iter(other.maps.values())), strict=True), start=1
    ):
        if (maps.source_words, maps.target_words) != (back.target_words, back.source_words):
            raise UnusableError(
                f"pair {number}: the reverse model's source must be the forward model's target, word by word, and the "
                "other way round"
            )


def _best_pair(scores: np.ndarray) -> tuple[int, int]:
    first, second = np.unravel_index(int(scores.argmax()), scores.shape)
    return int(first), int(second)


def _grow_together(
    one: _Direction, other: _Direction, scores: np.ndarray, max_heads: int
) -> tuple[tuple[str, tuple[Head, ...]], tuple[str, tuple[Head, ...]], float]:
    """Let the heads of both directions grow in turn, each against the other's links, until neither gains."""
    singles, other_singles = (
        np.array([len(each.heads) == 1 for each in direction.candidates]) for direction in (one, other)
    )
    first, second = _best_pair(np.where(singles[:, None] & other_singles[None], scores, -1.0))
    chosen = [(each.align_with, each.heads) for each in (one.candidates[first], other.candidates[second])]
    score, before = float(scores[first, second]), -1.0
    while score > before:
        before = score
        for turn, (direction, partner) in enumerate(((one, other), (other, one))):
            fixed = partner.set_masks(*chosen[1 - turn], ())

            def against(masks: list[np.ndarray], fixed: list[np.ndarray] = fixed) -> np.ndarray:
                return agreements(masks, fixed)[:, 0]

            heads, score = _grow(direction, chosen[turn], max_heads, against, score)
            chosen[turn] = heads
    return chosen[0], chosen[1], score


def _grow(
    direction: _Direction,
    start: tuple[str, tuple[Head, ...]],
    max_heads: int,
    score_of: Callable[[list[np.ndarray]], np.ndarray],
    score: float | None = None,
) -> tuple[tuple[str, tuple[Head, ...]], float]:
    """Add the head that raises the score most, while one raises it by `MIN_GAIN`; higher is better."""
    rows, heads = start
    if score is None:
        score = float(score_of(direction.set_masks(rows, heads, ()))[0])
    while direction.grows and len(heads) < max_heads and (more := direction.others(heads)):
        scores = score_of(direction.set_masks(rows, heads, more))
        best = int(scores.argmax())
        if scores[best] < score + MIN_GAIN:
            break
        heads, score = (*heads, more[best]), float(scores[best])
    return (rows, heads), score


def _ranked(tried: list[ScoredCandidate], *, reverse: bool) -> tuple[ScoredCandidate, ...]:
    return tuple(sorted(tried, key=lambda each: each.score, reverse=reverse))
