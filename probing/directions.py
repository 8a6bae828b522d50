"""Word alignments of sentence pairs from one model, or from the models of both directions.

Two directions meet in one of two places: their links are symmetrised, or their word matrices are combined before links
are read off. Under specials="null" a combined matrix first loses the cells that NULL outweighs in their own direction,
because the two directions' NULLs speak of different words.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .aligned_pair import AlignedPair, Gold
from .attention_maps import AttentionMaps, LayerChoice
from .choices import check_choices, fill_choices
from .chosen_maps import choice_in_use, describe_heads, extract_chosen
from .extraction import SentenceError
from .hmm import JumpModel
from .link_types import Links, reverse_links
from .links import corpus_jumps, extract_links, learns_jumps, link_probabilities
from .sinks import SinkTally
from .symmetrization import COMBINATIONS, check_symmetrization, combine, symmetrize
from .tokens import Sentence
from .words import WordMatrix, to_tokens, to_words, words_of_links

DEFAULT_SYMMETRIZATION = "grow-diag-final-and-moses"
# Of probabilities as written: more digits than mean anything, few enough to be the same on every machine.
_DIGITS = 6
# What is saved with heads, so that each direction has its own where nothing is said.
_FILLED = {"weights": "weights", "specials": "specials", "subwords": "sub-words", "links": "links"}
ModelAndTokenizer = tuple[Any, Any]


@dataclass(frozen=True)
class Reading:
    """How word alignments are read off cross-attention; the arguments of `align`, and what two directions add.

    Attributes:
        align_with, layer, heads: as in `align`; each model has its own where these say nothing.
        weights, specials, subwords, links: as in `align`; "" = as saved with the heads that are read, of each model its
            own, else the default (see `filled`).
        source_prefix, reverse_prefix: what each model wants before the text that it reads; see `extract`.
        source_language, target_language: of the pair; the reverse model reads the second and writes the first.
        symmetrize: how the links of two directions become one, one of `SYMMETRIZATIONS`.
        combine: how their word matrices become one before links are read off, one of `COMBINATIONS`.
    """

    align_with: str | None = None
    weights: str = ""
    layer: LayerChoice = None
    heads: tuple[int, ...] | str | None = None
    specials: str = ""
    subwords: str = ""
    links: str = ""
    source_prefix: str = ""
    reverse_prefix: str = ""
    source_language: str | None = None
    target_language: str | None = None
    symmetrize: str | None = None
    combine: str | None = None

    def filled(self, model: Any = None) -> "Reading":
        """Return the reading with what is "" as it was saved with the heads that are read, else with the defaults.

        Args:
            model: the model that is read, or the folder or Hub id that it is loaded from; None = nothing saved.
        """
        choice = None if model is None else choice_in_use(model, self.align_with, self.layer, self.heads)
        return replace(self, **fill_choices(choice, **{name: getattr(self, name) for name in _FILLED}))

    def filled_for_reverse(self, model: Any) -> "Reading":
        """Return what `filled` and `checked` give for the reverse model; errors name it."""
        try:
            return self.filled(model).checked(True)
        except UnusableError as error:
            raise UnusableError(f"reverse model: {error}") from error

    def checked(self, two_directions: bool) -> "Reading":
        """Return the reading with `symmetrize` filled in where two directions are given and nothing is said, and what
        is "" with its default.

        Raises:
            ValueError: an unknown choice, or two that do not go together.
        """
        if not (self.weights and self.specials and self.subwords and self.links):
            return self.filled().checked(two_directions)
        check_choices(self.align_with, self.specials, self.subwords, self.links, self.weights)
        if self.symmetrize is not None:
            check_symmetrization(self.symmetrize)
        if self.combine is not None and self.combine not in COMBINATIONS:
            raise UnusableError(f"combine is {self.combine!r}; allowed are {', '.join(COMBINATIONS)}")
        if not two_directions:
            if self.symmetrize or self.combine or self.reverse_prefix:
                raise UnusableError(
                    "symmetrize, combine and reverse_prefix need the model of the other direction; give reverse_model"
                )
            return self
        if self.symmetrize and self.combine:
            raise UnusableError(
                f"symmetrize is {self.symmetrize!r} and combine is {self.combine!r}; links or matrices, give one"
            )
        if self.combine and self.subwords != "matrix":
            raise UnusableError("combine works on matrices of words; leave subwords at 'matrix', or use symmetrize")
        return self if self.symmetrize or self.combine else replace(self, symmetrize=DEFAULT_SYMMETRIZATION)

    def describe(self, *models: Any) -> str:
        """Return the choices in words, with what they come to for these models, one for each direction."""
        parts = [describe_heads(model, self.align_with, self.layer, self.heads) for model in models]
        choices = {shown: getattr(self, name) for name, shown in _FILLED.items()} | {
            "two directions symmetrised by": self.symmetrize,
            "two directions combined by": self.combine,
        }
        read = parts[0] if len(set(parts)) == 1 else "; reverse: ".join(parts)
        return ", ".join([read, *(f"{name} {value}" for name, value in choices.items() if value)])


@dataclass(frozen=True)
class PairAlignment:
    """The alignment of one sentence pair.

    Attributes:
        pair: links with their probabilities, the words of both sides, and those of them that have no link.
        matrix: (T, S) float32, the words' weights: of the one direction, or combined, or for symmetrised links the mean
            of both directions.
    """

    pair: AlignedPair
    matrix: np.ndarray


@dataclass(frozen=True)
class DirectionMatrices:
    """What one direction says about a pair.

    Attributes:
        maps: the maps of this direction.
        words: matrix of words, for probabilities and soft alignments.
        cells: the matrix that links are read off: `words`, or one of tokens.
        fitted: whether the weights of words are probabilities of links, by a fit of all heads.
    """

    maps: AttentionMaps
    words: WordMatrix
    cells: WordMatrix
    fitted: bool = False

    def probabilities(self, links: Links) -> dict[tuple[int, int], float]:
        """Return each link's probability: the fit's, or its share of its row (see `link_probabilities`)."""
        if self.fitted:
            return {(i, j): float(self.words.weights[j, i]) for i, j in links}
        return link_probabilities(self.words.weights, links, self.words.null)

    def links(self, how: str, jumps: JumpModel | None) -> Links:
        """Return the word links, (source, target) of this direction."""
        found = extract_links(self.cells.weights, how, self.cells.null, jumps=jumps)
        return found if self.cells is self.words else words_of_links(self.maps, found)


@contextmanager
def sides_swapped() -> Iterator[None]:
    """Name the sides of a sentence that the reverse model refuses as the pair has them."""
    try:
        yield
    except SentenceError as error:
        side = "target" if error.side == "source" else "source"
        raise SentenceError(side, error.number, f"reverse model: {error.what}") from error


def direction_matrices(
    maps: AttentionMaps, specials: str, subwords: str, layer: LayerChoice = None, heads: Sequence[int] | None = None
) -> DirectionMatrices:
    """Return the matrices of one pair; arguments as in `to_word_links`."""
    words = to_words(maps, layer=layer, heads=heads, specials=specials)
    if subwords == "matrix":
        return DirectionMatrices(maps, words, words)
    return DirectionMatrices(maps, words, to_tokens(maps, layer=layer, heads=heads, specials=specials))


def learned_jumps(matrices: Sequence[DirectionMatrices], how: str) -> JumpModel | None:
    """Return the jumps that `hmm` learns from what one direction says about a corpus; None where `how` needs none."""
    cells = [each.cells for each in matrices]
    return corpus_jumps([each.weights for each in cells], how, [each.null for each in cells])


def combined_matrix(forward: DirectionMatrices, reverse: DirectionMatrices, how: str) -> np.ndarray:
    """Return the combined matrix of words, (T, S), without the cells that NULL outweighs in their own direction."""
    return combine(_above_null(forward.words), _above_null(reverse.words), how)


@dataclass(frozen=True)
class LearnedJumps:
    """The jumps of a corpus: of each direction, or of the combined matrices; None where links need none."""

    forward: JumpModel | None = None
    reverse: JumpModel | None = None


class Aligner:
    """Aligns sentence pairs with the models of one direction or of both.

    Args:
        forward: model and tokenizer of source -> target.
        reverse: model and tokenizer of target -> source.
        reading: the choices; see `Reading`.
        batch_size: sentence pairs in one pass.
        reverse_reading: those of the reverse model, filled in; None = `reading` filled in with what was saved with it.

    Raises:
        ValueError: an unknown choice, or a model that cannot be probed.
    """

    def __init__(
        self,
        forward: ModelAndTokenizer,
        reverse: ModelAndTokenizer | None = None,
        reading: Reading | None = None,
        batch_size: int = 32,
        reverse_reading: Reading | None = None,
    ) -> None:
        self.forward, self.reverse = forward, reverse
        reading = reading or Reading()
        self.reading = reading.filled(forward[0]).checked(reverse is not None)
        if reverse is not None and reverse_reading is None:
            reverse_reading = reading.filled_for_reverse(reverse[0])
        self.reverse_reading = reverse_reading or self.reading
        self.batch_size = batch_size
        self.sinks = SinkTally()
        """The share of weight on sinks in the pairs aligned so far, of both directions together."""

    def describe(self) -> str:
        """Return the choices in words."""
        text = self.reading.describe(*(side[0] for side in (self.forward, self.reverse) if side is not None))
        others = [
            f"{shown} {getattr(self.reverse_reading, name)}"
            for name, shown in _FILLED.items()
            if getattr(self.reverse_reading, name) != getattr(self.reading, name)
        ]
        return "; reverse: ".join([text, ", ".join(others)] if others else [text])

    def align(
        self, sources: Sequence[Sentence], targets: Sequence[Sentence], jumps: LearnedJumps | None = None
    ) -> Iterator[PairAlignment]:
        """Yield the alignment of each pair, in order.

        Args:
            jumps: what `hmm` uses, see `learn`; None = default jumps.

        Raises:
            SentenceError: a sentence that one of the models cannot read; see `extract`. Its side is that of the pair.
        """
        jumps = jumps or LearnedJumps()
        for forward, reverse in self._matrices(sources, targets):
            if reverse is None:
                links = forward.links(self.reading.links, jumps.forward)
                shares = forward.probabilities(links)
                matrix = forward.words.weights
            elif self.reading.combine:
                matrix = combined_matrix(forward, reverse, self.reading.combine)
                links = extract_links(matrix, self.reading.links, jumps=jumps.forward)
                shares = link_probabilities(matrix, links)
            else:
                found = reverse_links(reverse.links(self.reverse_reading.links, jumps.reverse))
                links = symmetrize(
                    forward.links(self.reading.links, jumps.forward), found, str(self.reading.symmetrize)
                )
                shares = _mean_shares(forward, reverse, links)
                matrix = combine(forward.words.weights, reverse.words.weights, "mean")
            yield PairAlignment(_aligned_pair(forward.maps, links, shares), matrix)

    def learn(self, sources: Sequence[Sentence], targets: Sequence[Sentence]) -> LearnedJumps:
        """Return the jumps that `hmm` learns from these pairs; no model runs where links need none."""
        alone = self.reverse is None or self.reading.combine
        readings = [self.reading] if alone else [self.reading, self.reverse_reading]
        if not any(learns_jumps(reading.links) for reading in readings):
            return LearnedJumps()
        both = list(self._matrices(sources, targets))
        if self.reading.combine:
            matrices = [combined_matrix(f, r, self.reading.combine) for f, r in both if r is not None]
            return LearnedJumps(corpus_jumps(matrices, self.reading.links))
        sides = [f for f, _ in both], [r for _, r in both if r is not None]
        return LearnedJumps(
            *(learned_jumps(side, reading.links) for side, reading in zip(sides, readings, strict=False))
        )

    def _matrices(
        self, sources: Sequence[Sentence], targets: Sequence[Sentence]
    ) -> Iterator[tuple[DirectionMatrices, DirectionMatrices | None]]:
        forward = self._direction(self.forward, sources, targets)
        if self.reverse is None:
            yield from ((each, None) for each in forward)
        else:
            yield from zip(forward, self._reverse_direction(self.reverse, sources, targets), strict=True)

    def _reverse_direction(
        self, side: ModelAndTokenizer, sources: Sequence[Sentence], targets: Sequence[Sentence]
    ) -> Iterator[DirectionMatrices]:
        with sides_swapped():
            yield from self._direction(side, targets, sources, is_reverse=True)

    def _direction(
        self,
        side: ModelAndTokenizer,
        sources: Sequence[Sentence],
        targets: Sequence[Sentence],
        is_reverse: bool = False,
    ) -> Iterator[DirectionMatrices]:
        model, tokenizer = side
        reading = self.reverse_reading if is_reverse else self.reading
        choice = choice_in_use(model, reading.align_with, reading.layer, reading.heads)
        fitted = choice is not None and choice.fit is not None
        for maps in extract_chosen(
            model,
            tokenizer,
            sources,
            targets,
            align_with=reading.align_with,
            weights=reading.weights,
            batch_size=self.batch_size,
            layer=reading.layer,
            heads=reading.heads,
            source_prefix=reading.reverse_prefix if is_reverse else reading.source_prefix,
            source_language=reading.target_language if is_reverse else reading.source_language,
            target_language=reading.source_language if is_reverse else reading.target_language,
        ):
            if fitted:
                # A fit's maps are of words alone: nothing rests on sinks, and rows need not sum to 1.
                yield replace(direction_matrices(maps, "mask", "matrix", layer="all"), fitted=True)
            else:
                self.sinks.add(maps, layer="all")
                yield direction_matrices(maps, reading.specials, reading.subwords, layer="all")


def _above_null(words: WordMatrix) -> np.ndarray:
    if words.null is None:
        return words.weights
    return np.where(words.weights > words.null[:, None], words.weights, 0)


def _mean_shares(forward: DirectionMatrices, reverse: DirectionMatrices, links: Links) -> dict[tuple[int, int], float]:
    """Return the mean of the two directions' probabilities of each link."""
    ours, others = forward.probabilities(links), reverse.probabilities(reverse_links(links))
    return {(i, j): (share + others[j, i]) / 2 for (i, j), share in ours.items()}


def _aligned_pair(maps: AttentionMaps, links: Links, shares: dict[tuple[int, int], float]) -> AlignedPair:
    return AlignedPair(
        Gold(links, links),
        {link: round(share, _DIGITS) for link, share in shares.items()},
        _unlinked(len(maps.source_words), (i for i, _ in links)),
        _unlinked(len(maps.target_words), (j for _, j in links)),
        tuple(maps.source_words),
        tuple(maps.target_words),
    )


def _unlinked(words: int, linked: Iterable[int]) -> frozenset[int]:
    return frozenset(range(words)) - frozenset(linked)
