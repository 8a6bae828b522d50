"""What each cross-attention head does, in numbers: one report over a corpus, for every layer and head.

Figures of weights are means over the rows of target words (the end token's row is left out), rows as they are: sinks
and a NULL key keep their share. Figures of links are of words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .aligned_pair import Gold
from .attention_maps import AttentionMaps
from .head_choice import agreements, error_rates
from .head_words import link_masks, stack_words
from .importance import Importance

# What each figure means; the keys are the report's, in its order.
FIGURES = {
    "aer": "alignment error rate of the head's links; lower is better",
    "agreement": "2 |F & R| / (|F| + |R|) with the links of the reverse model's best head; higher is better",
    "entropy": "of a row's weights, a NULL key counted as one more place, in nats",
    "relative_entropy": "entropy over that of a uniform row; 0 is one place, 1 is everywhere alike",
    "confidence": "largest weight of a row (Voita et al. 2019)",
    "coverage": "share of source words that some target word is linked to",
    "coverage_deviation": "mean over source words of |sum of their weight over all target words - 1|",
    "sink_mass": "weight on structural tokens (end of sentence, language codes) and the NULL key",
    "fixed_offset": "largest share of links with the same distance j - i of target and source word: near 1 the head "
    "looks at a position, whatever stands there",
    "offset": "that distance",
    "gradient": "importance |dL / d xi| (Michel et al. 2019), see `importance`",
    "ablation": "rise of the loss per token, in nats, when the head is silenced",
}
# Rows of so many pairs are enough to tell how far heads are apart.
PAIRS_FOR_DISTANCES = 50
_ROUNDING = 1e-4


@dataclass(frozen=True)
class HeadReport:
    """The figures of every layer and head.

    Attributes:
        figures: by the names of `FIGURES`, each (L, H) float64; those that were not asked for are missing.
        distances: (L * H, L * H) float64, the Jensen-Shannon distance of two heads: the square root of the divergence
            of their rows in bits (Endres and Schindelin 2003), mean over rows; 0 the same, 1 nothing in common.
        by_source_tag: for each part of speech the weight that its words get from a row, (L, H), and in `tag_share` its
            share of the source words; empty without tags.
        by_target_tag: for each part of speech the confidence of its rows, (L, H).
        layers, heads: the model's numbers.
        align_with, specials, links: how links were read.
        pairs: number of sentence pairs.
    """

    figures: dict[str, np.ndarray]
    distances: np.ndarray
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    align_with: str
    specials: str
    links: str
    pairs: int
    by_source_tag: dict[str, np.ndarray] = field(default_factory=dict)
    by_target_tag: dict[str, np.ndarray] = field(default_factory=dict)
    tag_share: dict[str, float] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The figures that were measured, in the order of `FIGURES`."""
        return [name for name in FIGURES if name in self.figures]

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values: a list of heads, each with its figures."""
        places = list(np.ndindex(len(self.layers), len(self.heads)))
        return {
            "align_with": self.align_with,
            "specials": self.specials,
            "links": self.links,
            "pairs": self.pairs,
            "definitions": {name: FIGURES[name] for name in self.names},
            "heads": [
                {
                    "layer": self.layers[layer],
                    "head": self.heads[head],
                    **{name: float(self.figures[name][layer, head]) for name in self.names},
                    **{
                        name: {tag: float(values[layer, head]) for tag, values in tags.items()}
                        for name, tags in (("by_source_tag", self.by_source_tag), ("by_target_tag", self.by_target_tag))
                        if tags
                    },
                }
                for layer, head in places
            ],
            "tag_share": self.tag_share,
            "distances": {
                "definition": "Jensen-Shannon distance of two heads' rows, mean over rows, 0 to 1; rows and columns in "
                "the order of `heads`",
                "matrix": self.distances.round(6).tolist(),
            },
        }


def report_heads(
    maps: Sequence[AttentionMaps],
    *,
    gold: Sequence[Gold] | None = None,
    reverse: Sequence[AttentionMaps] | None = None,
    importance: Importance | None = None,
    source_tags: Sequence[Sequence[str]] | None = None,
    target_tags: Sequence[Sequence[str]] | None = None,
    specials: str = "mask",
    links: str = "argmax",
) -> HeadReport:
    """Describe every layer and head over a corpus.

    Args:
        maps: of the sentence pairs, all layers and heads, one kind of rows.
        gold: manual links, for `aer`.
        reverse: maps of the target-to-source model on the same pairs, for `agreement`.
        importance: of the same model, for `gradient` and `ablation`.
        source_tags, target_tags: parts of speech, one for each word.
        specials, links: how links are read, as in `to_word_links`.

    Raises:
        ValueError: no pairs, raw norms, or other numbers of gold, reverse pairs or tags than of pairs or words.
    """
    if not maps:
        raise UnusableError("there is no sentence pair to report on; give at least one")
    if maps[0].weight_kind == "raw_norm":
        raise UnusableError("raw norms are no shares of a row, which the figures are of; report on attention or norm")
    for name, given in (
        ("gold", gold),
        ("reverse", reverse),
        ("source_tags", source_tags),
        ("target_tags", target_tags),
    ):
        if given is not None and len(given) != len(maps):
            raise UnusableError(
                f"{len(maps)} sentence pairs but {len(given)} of {name}; N of one must be N of the other"
            )
    first, shape = maps[0], maps[0].weights.shape[:2]
    stacks = [stack_words(each, each.weights.reshape(-1, *each.weights.shape[2:]), specials) for each in maps]
    masks = link_masks(stacks, links)
    figures: dict[str, np.ndarray] = {}
    if gold is not None:
        figures["aer"] = error_rates(masks, gold)
    if reverse is not None:
        figures["agreement"] = _agreement(masks, reverse, specials, links)
    figures |= _weight_figures(maps) | _link_figures(masks, [stack.weights for stack in stacks])
    figures |= {} if importance is None else {"gradient": importance.gradient, "ablation": importance.ablation}
    source_mass, shares = _by_source_tag(maps, [stack.weights for stack in stacks], source_tags)
    return HeadReport(
        figures={name: np.asarray(values, dtype=np.float64).reshape(shape) for name, values in figures.items()},
        distances=head_distances(maps[:PAIRS_FOR_DISTANCES]),
        layers=first.layers,
        heads=first.heads,
        align_with=first.align_with,
        specials=specials,
        links=links,
        pairs=len(maps),
        by_source_tag=source_mass,
        by_target_tag=_by_target_tag(maps, target_tags),
        tag_share=shares,
    )


def head_distances(maps: Sequence[AttentionMaps]) -> np.ndarray:
    """Return the Jensen-Shannon distance of every two heads, (L * H, L * H) float64; see `HeadReport`."""
    count = maps[0].weights.shape[0] * maps[0].weights.shape[1]
    total, rows = np.zeros((count, count)), 0
    for pair in maps:
        places = _with_null(_word_rows(pair))
        own = _entropy(places)
        for head in range(count):
            mixture = (places[head] + places[head:]) / 2
            divergence = (_entropy(mixture) - (own[head] + own[head:]) / 2) / np.log(2)
            total[head, head:] += np.sqrt(np.clip(divergence, 0, 1)).sum(axis=1)
        rows += places.shape[1]
    total = np.triu(total, 1)
    return (total + total.T) / max(1, rows)


def _agreement(masks: Sequence[np.ndarray], reverse: Sequence[AttentionMaps], specials: str, links: str) -> np.ndarray:
    stacks = [stack_words(each, each.weights.reshape(-1, *each.weights.shape[2:]), specials) for each in reverse]
    return agreements(masks, [mask.transpose(0, 2, 1) for mask in link_masks(stacks, links)]).max(axis=1)


def _word_rows(pair: AttentionMaps) -> np.ndarray:
    """Return the rows of target words, (L * H, rows, S) float64."""
    inside = ~np.array(pair.target.structural, dtype=bool)
    return pair.weights.reshape(-1, *pair.weights.shape[2:])[:, inside].astype(np.float64)


def _with_null(rows: np.ndarray) -> np.ndarray:
    """Append what a row lacks to 1, the share of a NULL key."""
    return np.concatenate([rows, np.clip(1 - rows.sum(axis=2, keepdims=True), 0, None)], axis=2)


def _entropy(rows: np.ndarray) -> np.ndarray:
    """Return the entropy of the last axis in nats."""
    return -(rows * np.log(np.where(rows > 0, rows, 1))).sum(axis=-1)


def _weight_figures(maps: Sequence[AttentionMaps]) -> dict[str, np.ndarray]:
    names = ("entropy", "relative_entropy", "confidence", "sink_mass")
    totals = {name: np.zeros(maps[0].weights.shape[0] * maps[0].weights.shape[1]) for name in names}
    rows = 0
    for pair in maps:
        places = _with_null(_word_rows(pair))
        entropy = _entropy(places)
        structural = np.append(np.array(pair.source.structural, dtype=bool), True)
        # Rounding alone leaves some 1e-7 of a row over; a NULL key takes more than that of some row.
        count = pair.weights.shape[3] + bool((places[:, :, -1] > _ROUNDING).any())
        totals["entropy"] += entropy.sum(axis=1)
        totals["relative_entropy"] += entropy.sum(axis=1) / max(np.log(count), 1e-12)
        totals["confidence"] += places[:, :, :-1].max(axis=2, initial=0).sum(axis=1)
        totals["sink_mass"] += places[:, :, structural].sum(axis=(1, 2))
        rows += places.shape[1]
    return {name: total / max(1, rows) for name, total in totals.items()}


def _link_figures(masks: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    count = masks[0].shape[0]
    covered, deviation, words = np.zeros(count), np.zeros(count), 0
    widest = max(max(mask.shape[1:]) for mask in masks)
    offsets = np.zeros((count, 2 * widest + 1), dtype=np.int64)
    for mask, words_weights in zip(masks, weights, strict=True):
        covered += mask.any(axis=1).sum(axis=1)
        deviation += np.abs(words_weights.sum(axis=1) - 1).sum(axis=1)
        words += mask.shape[2]
        heads, targets, sources = np.nonzero(mask)
        np.add.at(offsets, (heads, targets - sources + widest), 1)
    links = offsets.sum(axis=1)
    return {
        "coverage": covered / max(1, words),
        "coverage_deviation": deviation / max(1, words),
        "fixed_offset": offsets.max(axis=1) / np.maximum(links, 1),
        "offset": offsets.argmax(axis=1) - widest,
    }


def _by_source_tag(
    maps: Sequence[AttentionMaps], weights: Sequence[np.ndarray], tags: Sequence[Sequence[str]] | None
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Return the mean weight per target word on the words of each tag, and each tag's share of the source words."""
    if tags is None:
        return {}, {}
    shape = maps[0].weights.shape[:2]
    mass: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}
    rows = 0
    for number, (pair, matrix, of_words) in enumerate(zip(maps, weights, tags, strict=True), start=1):
        _check_tags("source", number, of_words, pair.source_words)
        names = np.array(of_words, dtype=object)
        for tag in set(of_words):
            mass[tag] = mass.get(tag, 0) + matrix[:, :, names == tag].sum(axis=(1, 2), dtype=np.float64)
            counts[tag] = counts.get(tag, 0) + int((names == tag).sum())
        rows += matrix.shape[1]
    words = sum(counts.values())
    return (
        {tag: (mass[tag] / max(1, rows)).reshape(shape) for tag in sorted(mass)},
        {tag: counts[tag] / words for tag in sorted(counts)},
    )


def _by_target_tag(maps: Sequence[AttentionMaps], tags: Sequence[Sequence[str]] | None) -> dict[str, np.ndarray]:
    """Return the mean confidence of the rows of each tag's words."""
    totals: dict[str, np.ndarray] = {}
    rows: dict[str, int] = {}
    for number, (pair, of_words) in enumerate(zip(maps, tags or (), strict=tags is not None), start=1):
        _check_tags("target", number, of_words, pair.target_words)
        owners = np.array([None if word is None else of_words[word] for word in pair.target.word_of], dtype=object)
        largest = pair.weights.max(axis=3, initial=0)
        for tag in set(of_words):
            inside = owners == tag
            totals[tag] = totals.get(tag, 0) + largest[:, :, inside].sum(axis=2, dtype=np.float64)
            rows[tag] = rows.get(tag, 0) + int(inside.sum())
    return {tag: totals[tag] / max(1, rows[tag]) for tag in sorted(totals)}


def _check_tags(side: str, number: int, tags: Sequence[str], words: Sequence[str]) -> None:
    if len(tags) != len(words):
        raise UnusableError(
            f"{side} tags of sentence {number}: {len(tags)} tags for {len(words)} words; give one tag for each word"
        )
