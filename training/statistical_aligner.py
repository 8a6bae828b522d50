"""A statistical word aligner without a compiler: IBM model 1 and the hidden Markov model, trained in both directions.

Sources: model 1 (Brown et al. 1993, section 4.1) starts the word translation probabilities; the HMM (Vogel, Ney and
Tillmann 1996; NULL as in Och and Ney 2003) goes on with them and learns the jumps. Unlike in these papers the two
directions are trained to agree, after Liang, Taskar and Klein 2006, whose expected count of a link is the product of
both directions' posteriors p q. That starves words with several candidates, in model 1 above all, so that here it is
sqrt(p q) in model 1 and p q / (p q + (1 - p)(1 - q)), the product normalised over link and no link, in the HMM. Where
directions are trained alone, a sparse Dirichlet prior on the translation probabilities, in its variational estimate
(Riley and Gildea 2012), keeps rare words from collecting links.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.probing import Link, Links, write_atomically, write_bytes_atomically

from .aligner_data import StoredWeights, TeacherLinks
from .jump_chain import ChainExpectations, chain_expectations, first_jumps, new_jumps
from .word_pairs import PairBatch, WordPairs

Progress = Callable[[int, int], None]
TABLES_FILE = "statistical.safetensors"
WORDS_FILE = "statistical.json"
_SMALLEST = 1e-12
_UNSEEN = 1e-7
"""The probability of a pair of words that never stood together."""
_SMALLEST_WEIGHT = 0.01


@dataclass(frozen=True)
class HmmSettings:
    """How the statistical aligner is trained.

    Attributes:
        model1_rounds, hmm_rounds: EM rounds of each model.
        concentration: of the Dirichlet prior of each word's translations; small is sparse, 0 = maximum likelihood.
            0.1 is good without agreement.
        null: p0, the probability that a word has no partner; not learned, as likelihood likes to link every word.
        agreement: train the directions to agree; otherwise each alone.
        longest_jump: longer ones count as this one.
    """

    model1_rounds: int = 5
    hmm_rounds: int = 5
    concentration: float = 0.0
    null: float = 0.2
    agreement: bool = True
    longest_jump: int = 20

    def __post_init__(self) -> None:
        if self.model1_rounds < 1 or self.hmm_rounds < 0 or self.longest_jump < 1:
            raise ValueError(f"{self}: rounds of model 1 and longest_jump must be at least 1, hmm_rounds at least 0")
        if self.concentration < 0 or not 0 < self.null < 1:
            raise ValueError(f"{self}: concentration must be at least 0, null between 0 and 1")


@dataclass
class Direction:
    """One direction's parameters: p(given side's word -> other side's word), from NULL, and the jumps.

    Attributes:
        pairs: (P,) float32, the translation probability of each word pair of `WordPairs`.
        nulls: (V,) float32, p(word | NULL) of each word of the generated side.
        jumps: (2 n + 1,) float32.
        null: p0.
    """

    pairs: np.ndarray
    nulls: np.ndarray
    jumps: np.ndarray
    null: float


class StatisticalAligner:
    """IBM model 1 and HMM in both directions; `fit` learns one from a text.

    Attributes:
        settings: how it was trained.
        words: vocabularies and word pairs.
        forward: generates each target word from a source word; `reverse` each source word from a target word.
        log_likelihoods: of both directions in each round, (rounds, 2); a round's value is that before its update.
    """

    def __init__(self, settings: HmmSettings, words: WordPairs, forward: Direction, reverse: Direction) -> None:
        self.settings, self.words, self.forward, self.reverse = settings, words, forward, reverse
        self.log_likelihoods: list[tuple[float, float]] = []

    @classmethod
    def fit(
        cls,
        sources: Sequence[Sequence[str]],
        targets: Sequence[Sequence[str]],
        settings: HmmSettings | None = None,
        progress: Progress = lambda done, total: None,
    ) -> "StatisticalAligner":
        """Learn from sentence pairs given as words, which are compared as they are; pairs with a blank side are passed
        over.

        Raises:
            ValueError: not as many source as target sentences.
            UnusableError: no pair with words on both sides.
        """
        settings = settings or HmmSettings()
        words = WordPairs.of(sources, targets)
        if not len(words.codes):
            raise UnusableError("there is no sentence pair with words on both sides to learn from")
        aligner = cls(
            settings,
            words,
            _flat(len(words.codes), len(words.target_words), settings),
            _flat(len(words.codes), len(words.source_words), settings),
        )
        batches = list(words.batches(sources, targets))
        total = settings.model1_rounds + settings.hmm_rounds
        for done in range(total):
            aligner._round(batches, hmm=done >= settings.model1_rounds)
            progress(done + 1, total)
        return aligner

    def posteriors(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return each pair's link probabilities in both directions, (T, S) float32 each.

        In the first each target word's row sums to at most 1, in the second each source word's column; what is missing
        is the probability of NULL. A pair with a blank side has a matrix without cells.
        """
        found = [(np.zeros((len(t), len(s)), dtype=np.float32),) * 2 for s, t in zip(sources, targets, strict=True)]
        for batch in self.words.batches(sources, targets):
            forward, reverse = self._expect(batch, hmm=self.settings.hmm_rounds > 0)
            for place, row in enumerate(batch.rows):
                width, height = batch.source_lengths[place], batch.target_lengths[place]
                found[row] = (
                    forward.links[place, :height, :width].copy(),
                    reverse.links[place, :width, :height].T.copy(),
                )
        return found

    def links(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]
    ) -> tuple[list[Links], list[Links]]:
        """Return the links of both directions, source word first; each word's most probable partner or none.

        In the forward direction each target word has at most one link, in the reverse each source word.
        """
        return directed_links(self.posteriors(sources, targets))

    def save(self, folder: str | Path) -> None:
        """Write the tables and the words into a folder, as safetensors and JSON."""
        folder = Path(folder)
        tables = {"codes": self.words.codes}
        record: dict[str, Any] = {
            "settings": dataclasses.asdict(self.settings),
            "source_words": list(self.words.source_words),
            "target_words": list(self.words.target_words),
        }
        for name, direction in (("forward", self.forward), ("reverse", self.reverse)):
            tables |= {f"{name}.{part}": getattr(direction, part) for part in ("pairs", "nulls", "jumps")}
            record[name] = {"null": direction.null}
        write_bytes_atomically(folder / TABLES_FILE, partial(save_file, tables))
        write_atomically(folder / WORDS_FILE, [json.dumps(record, ensure_ascii=False) + "\n"])

    @classmethod
    def load(cls, folder: str | Path) -> "StatisticalAligner":
        """Read what `save` wrote."""
        folder = Path(folder)
        tables = load_file(folder / TABLES_FILE)
        record = json.loads((folder / WORDS_FILE).read_text(encoding="utf-8"))
        source_words, target_words = (
            {word: number for number, word in enumerate(record[side])} for side in ("source_words", "target_words")
        )
        forward, reverse = (
            Direction(tables[f"{name}.pairs"], tables[f"{name}.nulls"], tables[f"{name}.jumps"], record[name]["null"])
            for name in ("forward", "reverse")
        )
        words = WordPairs(source_words, target_words, tables["codes"])
        return cls(HmmSettings(**record["settings"]), words, forward, reverse)

    def _round(self, batches: list[PairBatch], *, hmm: bool) -> None:
        size = len(self.words.codes)
        counts = np.zeros((2, size + 1))
        nulls = np.zeros(len(self.words.target_words) + 1), np.zeros(len(self.words.source_words) + 1)
        jumps = np.zeros((2, 2, len(self.forward.jumps)))
        likelihoods = [0.0, 0.0]
        for batch in batches:
            expected = self._expect(batch, hmm=hmm)
            links = [expected[0].links, expected[1].links.transpose(0, 2, 1)]
            if self.settings.agreement:
                links = [_agreed(*links, hmm=hmm)] * 2
            for side, generated in enumerate((batch.targets, batch.sources)):
                cells = batch.cells.ravel()
                counts[side] += np.bincount(cells, links[side].ravel(), size + 1)
                # Padding is numbered -1: it falls into the last place, which is dropped.
                nulls[side][:] += np.bincount(
                    generated.ravel() % len(nulls[side]), expected[side].nulls.ravel(), len(nulls[side])
                )
                jumps[side] += expected[side].made, expected[side].chances
                likelihoods[side] += expected[side].log_likelihood
        self.log_likelihoods.append((likelihoods[0], likelihoods[1]))
        for side, (direction, given) in enumerate(
            ((self.forward, self.words.source_of), (self.reverse, self.words.target_of))
        ):
            direction.pairs = _estimated(counts[side][:-1], given, self.settings.concentration)
            direction.nulls = _estimated(nulls[side][:-1], np.zeros(len(nulls[side]) - 1, dtype=np.int64), 0.0)
            if hmm:
                direction.jumps = new_jumps(*jumps[side])

    def _expect(self, batch: PairBatch, *, hmm: bool) -> tuple[ChainExpectations, ChainExpectations]:
        """Return the expectations of both directions; the reverse's are (B, S, T)."""
        found = []
        for direction, cells, generated, given, lengths in (
            (self.forward, batch.cells, batch.targets, batch.source_mask, (batch.source_lengths, batch.target_lengths)),
            (
                self.reverse,
                batch.cells.transpose(0, 2, 1),
                batch.sources,
                batch.target_mask,
                (batch.target_lengths, batch.source_lengths),
            ),
        ):
            emissions = np.append(direction.pairs, np.float32(_UNSEEN))[cells] * given[:, None, :]
            nulls = np.append(direction.nulls, np.float32(_UNSEEN))[generated]
            if hmm:
                found.append(chain_expectations(emissions, nulls, *lengths, direction.jumps, direction.null))
            else:
                found.append(_independent(emissions, nulls, *lengths, direction))
        return found[0], found[1]


def directed_links(posteriors: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[list[Links], list[Links]]:
    """Return the links of both directions: each word's most probable partner where it beats NULL.

    Args:
        posteriors: (T, S) of both directions for each pair, as `StatisticalAligner.posteriors` returns them.
    """
    forward, reverse = [], []
    for by_target, by_source in posteriors:
        forward.append(frozenset((i, j) for j, i in _best(by_target)))
        reverse.append(frozenset(_best(by_source.T)))
    return forward, reverse


def teacher_links(posteriors: Sequence[tuple[np.ndarray, np.ndarray]]) -> TeacherLinks:
    """Return link probabilities as a teacher gives them; `posteriors` as in `directed_links`."""
    return TeacherLinks(*(StoredWeights(_weights(pair[side]) for pair in posteriors) for side in (0, 1)))


def _weights(matrix: np.ndarray) -> dict[Link, float]:
    targets, sources = np.nonzero(matrix >= _SMALLEST_WEIGHT)
    weights = matrix[targets, sources].round(4).tolist()
    return dict(zip(zip(sources.tolist(), targets.tolist(), strict=True), weights, strict=True))


def _agreed(forward: np.ndarray, reverse: np.ndarray, *, hmm: bool) -> np.ndarray:
    """Return the expected counts of links in which both directions have a say; all arrays alike."""
    both = forward * reverse
    return both / np.maximum(both + (1 - forward) * (1 - reverse), _SMALLEST) if hmm else np.sqrt(both)


def _best(rows: np.ndarray) -> list[tuple[int, int]]:
    """Return (row, column) of each row's largest entry that is above what the row lacks of 1."""
    if not rows.size:
        return []
    best = rows.argmax(axis=1)
    linked = rows[np.arange(len(rows)), best] > 1 - rows.sum(axis=1)
    return [(row, int(best[row])) for row in np.flatnonzero(linked).tolist()]


def _flat(pairs: int, words: int, settings: HmmSettings) -> Direction:
    """Return a direction that knows nothing: every word is as likely as any other."""
    even = np.float32(1 / words)
    return Direction(np.full(pairs, even), np.full(words, even), first_jumps(settings.longest_jump), settings.null)


def _estimated(counts: np.ndarray, given: np.ndarray, concentration: float) -> np.ndarray:
    """Return (P,) float32 probabilities of pairs among those with the same given word.

    With a concentration a > 0 over the K pairs of a given word: exp(digamma(c + a) - digamma(sum c + K a)), which sums
    to less than 1; with 0 the relative frequencies.
    """
    if concentration == 0:
        total = np.bincount(given, counts)
        return np.maximum(counts / np.maximum(total, _SMALLEST)[given], _SMALLEST).astype(np.float32)
    total = np.bincount(given, counts + concentration)
    logs = _digamma(counts + concentration) - _digamma(total)[given]
    return np.maximum(np.exp(logs), _SMALLEST).astype(np.float32)


def _digamma(values: np.ndarray) -> np.ndarray:
    return torch.special.digamma(torch.from_numpy(np.maximum(values, _SMALLEST))).numpy()


def _independent(
    emissions: np.ndarray,
    null_emissions: np.ndarray,
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    direction: Direction,
) -> ChainExpectations:
    """Return the expectations of model 1, in which no word's link depends on another's; arguments as in the chain."""
    targets = emissions.shape[1]
    live = np.arange(targets) < target_lengths[:, None]
    links = emissions * ((1 - direction.null) / source_lengths).astype(np.float32)[:, None, None]
    nulls = null_emissions * np.float32(direction.null)
    total = links.sum(axis=2) + nulls
    links = np.where(live[:, :, None], links / total[:, :, None], 0).astype(np.float32)
    nulls = np.where(live, nulls / total, 0).astype(np.float32)
    nothing = np.zeros(len(direction.jumps))
    likelihood = float(np.log(total, where=live, out=np.zeros_like(total), dtype=np.float64).sum())
    return ChainExpectations(links, nulls, nothing, nothing, likelihood)
