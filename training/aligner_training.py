"""Train a word aligner on a bitext: from a teacher's links, hand-made links where there are some, and the text itself.

Matrices are (T, S): rows are target words, columns source words, as everywhere in this package.
"""

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.probing import Gold, Link, Links

from .aligner_batches import PairedText, SideText
from .aligner_data import AlignerData, LinkWeights, Sentences, StoredWeights
from .aligner_losses import batch_loss
from .aligner_model import AlignerNetwork, NetworkSize
from .aligner_rules import LinkRule, by_rule, default_rule, tuned_rule
from .aligner_settings import AlignerSettings
from .aligner_state import AlignerState
from .aligner_text import FeatureIndex, stripped
from .kept_memory import keep_freed_memory
from .text_kind import TextKind
from .trained_aligner import CELLS, TrainedAligner, known_pairs

logger = logging.getLogger(__name__)

FEWEST_BATCHES = 20
"""Of an epoch: small texts have smaller batches."""
SMALLER_BATCHES = 6
"""Batches of the stage by hand are so many times smaller: there are few pairs, and many steps are better."""
BY_HAND_SHARE = 0.1
"""Of the time, for the stage that goes over the hand-aligned pairs alone."""
WARM_UP = 100
"""Steps in which the learning rate rises."""
MOST_HELD_OUT = 300
"""Hand-aligned pairs that choose the rule, at most: more would be of more use in the training."""


@dataclasses.dataclass(frozen=True)
class AlignerProgress:
    """Where a training stands.

    Attributes:
        stage: "prepare", "train" or "extract".
        done: share of the whole fit, 0..1.
        seconds: since it began, those before a resumption included.
        loss: mean of the last steps; NaN before the first.
    """

    stage: str
    done: float
    seconds: float
    loss: float


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of a training.

    Attributes:
        draw: returns the pairs of a pass, given random numbers for it.
        cells: of the grid in a batch.
        epochs: passes.
        learning_rate: the highest.
        share: of the training's time.
        most_batches: of all passes together; None = as many as they have.
        new_network: the network is new at its beginning: the learning rate rises first, and if there is a budget, the
            stage takes its share of it, however many passes that makes. Without it the passes are the most, the share
            the longest.
    """

    draw: Callable[[np.random.Generator], np.ndarray]
    cells: int
    epochs: int
    learning_rate: float
    share: float
    most_batches: int | None = None
    new_network: bool = True


def fit_aligner(
    data: AlignerData,
    settings: AlignerSettings,
    *,
    seed: int = 0,
    minutes: float | None = None,
    resume_dir: Path | None = None,
    progress: Callable[[AlignerProgress], Any] | None = None,
) -> TrainedAligner:
    """Train an aligner on `data`.

    The text of pairs without hand-made links is trained on as well; there is no other way to learn their words.

    Args:
        minutes: of wall clock for the training; None = `settings.epochs` passes over the text.
        resume_dir: where the state is kept while training; if it holds one of the same data, settings and seed, the
            training goes on there, and ends as it would have without the interruption.
        progress: called about once in two seconds.

    Raises:
        UnusableError: data that do not fit together, or nothing to learn from.
    """
    if minutes is not None and not minutes > 0:
        raise UnusableError(f"minutes is {minutes}; it must be above 0")
    return _Fit(data, settings, seed, minutes, resume_dir, progress or (lambda _: None)).run()


class _Fit:
    """One training: the text as batches, the network, and where it stands."""

    def __init__(
        self,
        data: AlignerData,
        settings: AlignerSettings,
        seed: int,
        minutes: float | None,
        resume_dir: Path | None,
        progress: Callable[[AlignerProgress], Any],
    ) -> None:
        data.check()
        if not data.teachers and not data.gold and not settings.reconstruction:
            raise UnusableError(
                "data has neither teachers nor gold; give one of them, or set reconstruction above 0 to learn from the "
                "text alone"
            )
        self.data, self.settings, self.seed = data, settings, seed
        self.budget = None if minutes is None else minutes * 60
        self.progress = progress
        self.started = time.monotonic()
        progress(AlignerProgress("prepare", 0.0, 0.0, math.nan))
        self.kind = TextKind.of(data.source, data.target)
        self.left_out = self.kind.left_out(data.source, data.target)
        self.indices = [
            FeatureIndex.build(words, lemmas, most=settings.most_features) for words, lemmas in self._sides()
        ]
        self.held_out = self._draw_held_out()
        self.text = self._text()
        if not len(self.text.places):
            raise UnusableError(
                "source and target have no words that can be linked in any pair; there is nothing to train on"
            )
        if not len(self._epoch(np.random.default_rng(seed))):
            raise UnusableError(
                "gold is only of pairs without words that can be linked; there is nothing to learn from"
            )
        cells = int(self.text.lengths.prod(1).sum())
        self.cells = max(1, min(settings.cells, cells // FEWEST_BATCHES))
        self.state = AlignerState.start(self._network, settings, seed, resume_dir, data)

    def run(self) -> TrainedAligner:
        """Train, choose the rule of extraction, and return the aligner."""
        keep_freed_memory()
        settings = self.settings
        losses: list[float] = []
        told = time.monotonic()
        for places, rate, done in self._lessons():
            loss = batch_loss(
                self.state.network.train(),
                self.text.batch(places),
                blind=settings.blind,
                reconstruction=settings.reconstruction,
                agreement=settings.agreement,
            )
            self.state.update(loss, rate)
            losses = [*losses[-99:], float(loss.detach())]
            if time.monotonic() - told > 2:
                told = time.monotonic()
                self.progress(AlignerProgress("train", 0.98 * done, self._seconds(), float(np.mean(losses))))
            self.state.save_now_and_then(self._seconds())
        self.state.save(self._seconds())
        if self.budget is not None and self.state.step < WARM_UP:
            logger.warning(
                "the network took only %d steps in the time that it had; links will be poor: give it more minutes",
                self.state.step,
            )
        self.progress(AlignerProgress("extract", 0.98, self._seconds(), float(np.mean(losses)) if losses else math.nan))
        aligner = self._aligner()
        self.progress(AlignerProgress("extract", 1.0, self._seconds(), float(np.mean(losses)) if losses else math.nan))
        return aligner

    def _seconds(self) -> float:
        return self.state.seconds_before + time.monotonic() - self.started

    def _sides(self) -> list[tuple[Sentences, Sentences | None]]:
        data = self.data
        return [*self.left_out.channels(data.source, data.target, data.source_lemmas, data.target_lemmas)]

    def _draw_held_out(self) -> list[int]:
        source, target = self.left_out.source, self.left_out.target
        gold = sorted(place for place in self.data.gold if source[place] and target[place])
        if len(gold) < self.settings.fewest or not self.settings.held_out:
            return []
        number = max(1, min(MOST_HELD_OUT, round(self.settings.held_out * len(gold))))
        return sorted(np.random.default_rng(self.seed).permutation(gold)[:number].tolist())

    def _text(self) -> PairedText:
        """Return the text as batches; the lexicon's pairs follow the user's as sentences of their own."""
        data, left_out = self.data, self.left_out
        shared: dict[str, int] = {}
        extra = [[one.split() for one, _ in data.lexicon], [other.split() for _, other in data.lexicon]]
        sides = []
        for index, (words, lemmas), entries in zip(self.indices, self._sides(), extra, strict=True):
            more = None if lemmas is None else [*lemmas, *entries]
            sides.append(SideText.of(index, [*words, *entries], more, shared))
        none: list[LinkWeights] = [{}] * len(data.lexicon)
        views = [
            (StoredWeights(chain(forward, none)), StoredWeights(chain(reverse, none)))
            for forward, reverse in ((left_out.reduced(t.forward), left_out.reduced(t.reverse)) for t in data.teachers)
        ]
        pairs = len(data.source)
        gold = {place: self._reduced_gold(place) for place in data.gold if place not in self.held_out}
        for number, (source, target) in enumerate(zip(*extra, strict=True)):
            links = frozenset((i, j) for i in range(len(source)) for j in range(len(target)))
            gold[pairs + number] = Gold(links, links)
        fixed = {place: self._reduced(place, links) for place, links in data.fixed.items() if place not in gold}
        return PairedText(sides[0], sides[1], views, gold, fixed, known_pairs(self._lexicon(), shared))

    def _reduced_gold(self, place: int) -> Gold:
        gold = self.data.gold[place]
        return Gold(self._reduced(place, gold.sure), self._reduced(place, gold.possible))

    def _reduced(self, place: int, links: Links) -> Links:
        return frozenset(self.left_out.reduced_pair(place, dict.fromkeys(links, 1.0)))

    def _lexicon(self) -> list[tuple[str, str]]:
        return [(stripped(one), stripped(other)) for one, other in self.data.lexicon]

    def _network(self) -> AlignerNetwork:
        settings = self.settings
        source, target = self.indices
        return AlignerNetwork(
            NetworkSize(
                len(source.forms) + 1, len(source.ngrams) + 1, len(target.forms) + 1, len(target.ngrams) + 1,
                settings.width, settings.layers, settings.attention, settings.grid_width, settings.dropout,
                settings.form_dropout,
            )
        )  # fmt: skip

    def _stages(self) -> list[Stage]:
        """Return the stages: the text; then in turn the hand-aligned pairs, and the text as it is read by then."""
        settings, places = self.settings, self.text.places
        known = np.array(sorted(set(self.data.gold) - set(self.held_out)), dtype=np.int64)
        known = np.intersect1d(known, places)
        text = Stage(self._epoch, self.cells, settings.epochs, settings.learning_rate, 1.0)
        if not len(known):
            return [text]
        rounds, longer = settings.self_training, 1
        pairs = int((places < len(self.data.source)).sum())
        if 2 * len(known) > pairs:
            # There is little that self-training could still reach; its time is better spent on what is known.
            rounds, longer = 0, 1 + rounds
        text = dataclasses.replace(text, epochs=longer * settings.epochs, share=(1 - BY_HAND_SHARE) / (1 + rounds))
        by_hand = Stage(
            lambda generator: known,
            max(1, self.cells // SMALLER_BATCHES),
            longer * settings.gold_epochs,
            settings.gold_learning_rate,
            BY_HAND_SHARE / max(1, rounds),
            most_batches=longer * settings.gold_steps,
            new_network=False,
        )
        again = dataclasses.replace(text, draw=lambda generator: places)
        # Not by hand at the end: a network that has read the whole text in the annotators' ways only loses by it.
        return [text, *[by_hand, again] * rounds] if rounds else [text, by_hand]

    def _lessons(self) -> Iterator[tuple[np.ndarray, float, float]]:
        """Yield batches of pairs, each with its learning rate and the share of the training that is done before it."""
        state, stages, passed = self.state, self._stages(), 0.0
        self._teach_own_links()
        for number, stage in enumerate(stages):
            if number > state.stage:
                began = self._seconds()
                if stage.new_network:
                    self._start_anew(number)
                state.begin(number, began)
            if number == state.stage:
                for places, done in self._passes(stage):
                    step = state.step if stage.new_network else WARM_UP
                    rate = stage.learning_rate * learning_rate_factor(step, done)
                    yield places, rate, passed + stage.share * done
            passed += stage.share

    def _passes(self, stage: Stage) -> Iterator[tuple[np.ndarray, float]]:
        """Yield the batches of a stage that are left, and the share of the stage that is done before each."""
        state = self.state
        budget = math.inf if self.budget is None else self.budget * stage.share
        by_time = stage.new_network and budget < math.inf
        while by_time or state.epoch < stage.epochs:
            generator = np.random.default_rng([self.seed, state.stage, state.epoch])
            batches = list(self.text.cut(stage.draw(generator), stage.cells, generator))
            total = min(stage.epochs * len(batches), stage.most_batches or stage.epochs * len(batches))
            while state.batch < len(batches):
                passes = (state.epoch * len(batches) + state.batch) / total
                spent = (self._seconds() - state.began) / budget
                # A stage that goes on with the network has enough of its passes, even where there is time for more.
                done = spent if by_time else max(passes, spent)
                if done >= 1:
                    return
                state.batch += 1
                yield batches[state.batch - 1], done
            state.epoch, state.batch = state.epoch + 1, 0

    def _start_anew(self, number: int) -> None:
        """Let the network say what it sees in all pairs that are not hand-aligned, and begin a new one to learn it."""
        rule, found = self._rule(), []
        for places in self.text.cut(self.text.places, CELLS, None):
            batch = self.text.batch(places)
            matrices = by_rule(self.state.network, batch, rule)
            for place, matrix in zip(places.tolist(), matrices > rule.threshold, strict=True):
                columns, rows = self.text.lengths[place]
                found += [(place, i, j) for j, i in np.argwhere(matrix[:rows, :columns]).tolist()]
        self.state.own_links = torch.tensor(found, dtype=torch.int32).reshape(-1, 3)
        self._teach_own_links()
        torch.manual_seed(self.seed + 1000 * number)
        self.state.take(self._network())

    def _teach_own_links(self) -> None:
        """Put what an earlier network has found, if there was one, where the text has no hand-made links."""
        if self.state.own_links is None:
            return
        found: dict[int, set[Link]] = {
            place: set(self.text.fixed.get(place, ()))
            for place in self.text.places.tolist()
            if place not in self.text.gold
        }
        for place, i, j in self.state.own_links.tolist():
            if place in found:
                found[place].add((i, j))
        self.text.own_links = {place: frozenset(links) for place, links in found.items()}

    def _epoch(self, generator: np.random.Generator) -> np.ndarray:
        """Return the pairs of one pass: those without hand-made links once, those with them as often as asked for, and
        those of the lexicon once."""
        of_text = self.text.places < len(self.data.source)
        places, entries = self.text.places[of_text], self.text.places[~of_text]
        by_hand = places[[int(place) in self.text.gold for place in places]]
        others = np.setdiff1d(places, by_hand)
        if not self.data.teachers and not self.settings.reconstruction and not self.text.fixed:
            others = others[:0]
        share = self.settings.gold_share
        wanted = max(len(by_hand), round(len(others) * share / (1 - share))) if len(by_hand) else 0
        repeats = [generator.permutation(by_hand) for _ in range(-(-wanted // max(1, len(by_hand))))]
        return np.concatenate([entries, np.concatenate([others, *repeats])[: len(others) + wanted]])

    def _aligner(self) -> TrainedAligner:
        source, target = self.indices
        return TrainedAligner([self.state.network.eval()], source, target, [self._rule()], self.kind, self._lexicon())

    def _rule(self) -> LinkRule:
        if not self.held_out:
            return default_rule(self.settings, self.kind, len(self.data.teachers), bool(self.data.gold))
        gold = {place: self._reduced_gold(place) for place in self.held_out}
        return tuned_rule(self.state.network, self.text, gold, self.settings.cells)


def learning_rate_factor(step: int, done: float) -> float:
    """Return the share of the highest learning rate: a rise over 100 steps, then half a cosine down to 2%."""
    return min(1.0, (step + 1) / WARM_UP) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))
