"""How a network's probabilities become links: by default, or as the hand-aligned pairs held out say."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch

from hf_seq2seq_attn.probing import Gold, Links

from .aligner_batches import Batch, PairedText, mark_links
from .aligner_links import mixed, tuned_threshold
from .aligner_model import AlignerNetwork
from .aligner_settings import AlignerSettings
from .text_kind import TextKind

MEASURES = ("links", "mean", "harmonic")
"""The cells' own probabilities; the mean or the harmonic mean of both directions' shares."""
_TRIED_WEIGHTS = (0.0, 0.25, 0.5)
"""Of the teacher's own say."""


@dataclass(frozen=True)
class LinkRule:
    """How probabilities become links.

    Attributes:
        measure: which probability: one of `MEASURES`.
        shows_teacher: whether the network sees what the teacher says, where there is one.
        teacher_weight: share of the teacher's own say beside the network's.
        threshold: cells above it are links.
    """

    measure: str
    shows_teacher: bool
    teacher_weight: float
    threshold: float


def default_rule(settings: AlignerSettings, kind: TextKind, runs: int, has_gold: bool) -> LinkRule:
    """Return the rule that is used where there are too few hand-made links to choose one.

    Args:
        runs: of teachers.
    """
    # A single run is what the network has learnt to foretell, never seen: its say is added at the end.
    weight = (0.0, 0.5, settings.teacher_weight)[min(runs, 2)] if not has_gold else 0.0
    if kind.letters:
        # Mostly one to one: both directions must agree.
        threshold = settings.letters_gold_threshold if has_gold else settings.letters_threshold
        return LinkRule("harmonic", False, weight, threshold)
    if has_gold:
        # A network that was taught by hand alone cannot read what the builtin teacher says of a text to come.
        return LinkRule("links", runs > 0, weight, settings.gold_threshold)
    return LinkRule("mean", runs > 1, weight, settings.threshold)


def tuned_rule(network: AlignerNetwork, text: PairedText, gold: Mapping[int, Gold], cells: int) -> LinkRule:
    """Return the rule with the lowest alignment error rate on pairs that the network was not trained on.

    Args:
        gold: their hand-made links, by their places in `text`; all with words on both sides.
        cells: of the grid in a batch.
    """
    found: dict[tuple[str, bool, float], list[np.ndarray]] = defaultdict(list)
    sure: list[np.ndarray] = []
    possible: list[np.ndarray] = []
    has_teacher = text.view_count > 0
    for places in text.cut(np.array(sorted(gold)), cells, None):
        batch = text.batch(places)
        inside = ((batch.target.tokens > 0)[:, :, None] & (batch.source.tokens > 0)[:, None, :]).numpy()
        known = [gold[place] for place in places.tolist()]
        sure.append(_grids([each.sure for each in known], inside.shape)[inside])
        possible.append(_grids([each.possible for each in known], inside.shape)[inside])
        said = said_by_teachers(batch)[inside] if has_teacher else np.zeros(0)
        for measure, shows in product(MEASURES, [True, False] if has_teacher else [False]):
            matrix = measured(network, batch, measure, shows)[inside]
            for weight in _TRIED_WEIGHTS if has_teacher else (0.0,):
                found[measure, shows, weight].append(mixed(matrix, said, weight) if weight else matrix)
    choices = {key: tuned_threshold(matrices, sure, possible) for key, matrices in found.items()}
    # Of equals the first: the cells' own probabilities, with the teacher seen.
    measure, shows, weight = min(choices, key=lambda key: round(choices[key][1], 3))
    return LinkRule(measure, shows, weight, choices[measure, shows, weight][0])


def _grids(links: Sequence[Links], shape: tuple[int, ...]) -> np.ndarray:
    """Return (B, T, S) bool, True where a pair has a link."""
    grids = np.zeros(shape, dtype=bool)
    for grid, each in zip(grids, links, strict=True):
        mark_links(grid, each)
    return grids


def by_rule(network: AlignerNetwork, batch: Batch, rule: LinkRule) -> np.ndarray:
    """Return the probabilities of all cells of a batch, (B, T, S), that the rule's threshold is for.

    Where the batch has no teacher's say, the network goes by the words alone.
    """
    has_teacher = batch.views.shape[1] > 0
    matrices = measured(network, batch, rule.measure, rule.shows_teacher and has_teacher)
    if not has_teacher or not rule.teacher_weight:
        return matrices
    return mixed(matrices, said_by_teachers(batch), rule.teacher_weight)


def said_by_teachers(batch: Batch) -> np.ndarray:
    """Return the mean of all runs and both directions, (B, T, S) float32."""
    said: np.ndarray = batch.views.mean((1, 2)).numpy()
    return said


@torch.no_grad()
def measured(network: AlignerNetwork, batch: Batch, measure: str, shows_teacher: bool) -> np.ndarray:
    """Return the network's probabilities of all cells of a batch, (B, T, S), by one of `MEASURES`."""
    network.eval()
    teacher = batch.views.mean(1) if shows_teacher else None
    maps = network(batch.source, batch.target, teacher, batch.same)
    if measure == "links":
        return maps.links.sigmoid().numpy()
    forward, reverse = maps.forward[..., 1:].exp(), maps.reverse[..., 1:].exp().transpose(1, 2)
    if measure == "mean":
        return ((forward + reverse) / 2).numpy()
    return (2 * forward * reverse / (forward + reverse).clamp(min=1e-12)).numpy()
