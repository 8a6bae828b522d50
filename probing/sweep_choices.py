"""Which choices read the best alignments off a model? Score all of them on hand-aligned pairs, report one on others.

The model runs once for each kind of rows: weights, sinks, layers, heads, sub-words, links and what two directions do
with each other are all read off the same maps. The choice is made on the development pairs alone; its score there is
too good, because it is the best of many, so that only a score on other pairs can be reported. A test set that shares a
pair with the development set is refused.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hf_seq2seq_attn.errors import UnusableError

from .aligned_pair import Gold
from .attention_maps import AttentionMaps
from .directions import (
    Aligner,
    DirectionMatrices,
    ModelAndTokenizer,
    Reading,
    combined_matrix,
    direction_matrices,
    learned_jumps,
    sides_swapped,
)
from .extraction import ROWS, SentenceError, check_weights, extract
from .link_types import Links, reverse_links
from .links import extract_corpus_links
from .scores import AlignmentScore, count_links, f_measure, score_links, score_ratios
from .symmetrization import symmetrize
from .words import SPECIALS, SUBWORDS

MEAN = "mean"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class SweepGrid:
    """What is tried: every combination of these.

    Attributes:
        align_with, weights, specials, subwords, links: as in `align`.
        layers: the model's numbers; None = all.
        heads: "mean" of a layer's heads, or numbers of single heads.
        symmetrize, combine: with two directions, beside the forward model alone.
    """

    align_with: tuple[str, ...] = ROWS
    weights: tuple[str, ...] = ("attention", "norm")
    specials: tuple[str, ...] = SPECIALS
    layers: tuple[int, ...] | None = None
    heads: tuple[int | str, ...] = (MEAN,)
    subwords: tuple[str, ...] = SUBWORDS
    links: tuple[str, ...] = ("argmax", "mutual", "itermax")
    symmetrize: tuple[str, ...] = ("intersection", "union", "grow-diag-moses", "grow-diag-final-and-moses")
    combine: tuple[str, ...] = ("mean", "product", "harmonic")

    def checked(self) -> "SweepGrid":
        """Return the grid, or raise a ValueError for a choice that is unknown or missing."""
        for name in ("align_with", "weights", "specials", "heads", "subwords", "links"):
            if not getattr(self, name):
                raise UnusableError(f"{name} is empty; give at least one value")
        for weights in self.weights:
            check_weights(weights)
        for links in self.links:
            for one in self.symmetrize:
                Reading(links=links, symmetrize=one).checked(True)
            for one in self.combine:
                Reading(links=links, combine=one).checked(True)
            for rows in self.align_with:
                for specials in self.specials:
                    for subwords in self.subwords:
                        Reading(align_with=rows, specials=specials, subwords=subwords, links=links).checked(False)
        return self


@dataclass(frozen=True)
class GoldText:
    """Hand-aligned sentence pairs.

    Attributes:
        sources, targets: raw text, words between white space.
        gold: the manual links.
    """

    sources: Sequence[str]
    targets: Sequence[str]
    gold: Sequence[Gold]

    def __post_init__(self) -> None:
        if not len(self.sources) == len(self.targets) == len(self.gold):
            raise UnusableError(
                f"{len(self.sources)} sources, {len(self.targets)} targets and {len(self.gold)} sentences of gold; "
                "N of one must belong to N of the others"
            )

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the words of each pair, single spaces between them."""
        for source, target in zip(self.sources, self.targets, strict=True):
            yield " ".join(source.split()), " ".join(target.split())


@dataclass(frozen=True)
class SweepPoint:
    """One combination of choices and its score on the development pairs.

    Attributes:
        reading: the choices; `align` finds the same links with them.
        heads: "mean" or the number of the head, as in the grid.
        aer, precision, recall, f1, links: on the development pairs; without an interval, as one of many.
    """

    reading: Reading
    heads: int | str
    aer: float
    precision: float
    recall: float
    f1: float
    links: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        own = {name: value for name, value in asdict(self).items() if name != "reading"}
        reading = asdict(self.reading)
        # Links are the way they are read in the one and their number in the other.
        return {**reading, **own, "links": reading["links"], "found": self.links}


@dataclass(frozen=True)
class SweepResult:
    """All points and the one that was chosen.

    Attributes:
        points: best first; among equals the earlier one of the grid.
        dev: the chosen point's score on the development pairs, which is too good: the best of many.
        test: its score on the test pairs, which had no part in the choice; None without test pairs.
        skipped: what could not be tried, and why.
    """

    points: tuple[SweepPoint, ...]
    dev: AlignmentScore
    test: AlignmentScore | None
    skipped: tuple[str, ...]

    @property
    def chosen(self) -> SweepPoint:
        """The point with the lowest AER on the development pairs."""
        return self.points[0]


def sweep(
    forward: ModelAndTokenizer,
    dev: GoldText,
    *,
    reverse: ModelAndTokenizer | None = None,
    test: GoldText | None = None,
    grid: SweepGrid | None = None,
    base: Reading | None = None,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> SweepResult:
    """Score every combination of the grid on `dev`, and the best one on `test`.

    The same choices hold for both directions, as in `align`; layers that only one model has are left out, and
    `skipped` names them.

    Args:
        forward, reverse: model and tokenizer of each direction; `reverse` adds symmetrised links and combined matrices.
        dev, test: hand-aligned pairs, without a pair in common.
        base: what all points share: prefixes and languages of the pair.
        progress: called as progress(done, total), in points.

    Raises:
        ValueError: an unknown choice, no pairs, or a pair that is in both sets.
        SentenceError: a sentence that a model cannot read.
    """
    grid = (grid or SweepGrid()).checked()
    if not dev.gold:
        raise UnusableError("there are no development pairs to choose on")
    if test is not None:
        shared = shared_pair(dev, test)
        if shared is not None:
            raise UnusableError(
                f"pair {shared[1] + 1} of the test set is pair {shared[0] + 1} of the development set too; choose on "
                "pairs that are not tested on"
            )
    sweeper = _Sweeper(forward, reverse, dev, grid, base or Reading(), batch_size, progress)
    points = sorted(sweeper.points(), key=lambda point: point.aer)
    best = points[0].reading
    return SweepResult(
        points=tuple(points),
        dev=score_reading(forward, reverse, best, dev, batch_size),
        test=None if test is None else score_reading(forward, reverse, best, test, batch_size),
        skipped=tuple(sweeper.skipped),
    )


def shared_pair(dev: GoldText, test: GoldText) -> tuple[int, int] | None:
    """Return where a pair of both sets is in each, from 0; None if there is none. Blank pairs do not count."""
    known: dict[tuple[str, str], int] = {}
    for number, pair in enumerate(dev.pairs()):
        known.setdefault(pair, number)
    for number, pair in enumerate(test.pairs()):
        if all(pair) and pair in known:
            return known[pair], number
    return None


def score_reading(
    forward: ModelAndTokenizer,
    reverse: ModelAndTokenizer | None,
    reading: Reading,
    text: GoldText,
    batch_size: int = 32,
) -> AlignmentScore:
    """Align anew with one reading alone, as `align` does, and score; `reverse` runs only if the reading joins two."""
    two = reverse if reading.symmetrize or reading.combine else None
    aligner = Aligner(forward, two, reading, batch_size)
    jumps = aligner.learn(text.sources, text.targets)
    found = [each.pair.gold.sure for each in aligner.align(text.sources, text.targets, jumps)]
    return score_links(found, text.gold)


class _Sweeper:
    """Reads all points of a grid off the maps of the development pairs."""

    def __init__(
        self,
        forward: ModelAndTokenizer,
        reverse: ModelAndTokenizer | None,
        dev: GoldText,
        grid: SweepGrid,
        base: Reading,
        batch_size: int,
        progress: Progress | None,
    ) -> None:
        self.forward, self.reverse, self.dev, self.grid = forward, reverse, dev, grid
        self.base = base
        self.batch_size, self.progress = batch_size, progress
        self.skipped: list[str] = []
        self.done = 0

    def points(self) -> Iterator[SweepPoint]:
        """Yield every point with its score."""
        grid = self.grid
        for rows in grid.align_with:
            ours = self._maps(self.forward, self.dev.sources, self.dev.targets, rows, self.base.source_prefix)
            theirs = None
            if self.reverse is not None:
                with sides_swapped():
                    theirs = self._maps(
                        self.reverse, self.dev.targets, self.dev.sources, rows, self.base.reverse_prefix, swapped=True
                    )
            for kind in grid.weights:
                if kind not in ours or (theirs is not None and kind not in theirs):
                    continue
                maps, reverse_maps = ours[kind], None if theirs is None else theirs[kind]
                places = self._places(maps, reverse_maps)
                total = len(places) * len(grid.align_with) * len(grid.weights) * self._points_of_a_place()
                for layer, heads, name in places:
                    reading = replace(self.base, align_with=rows, weights=kind, layer=layer, heads=heads)
                    for point in self._read(reading, name, maps, reverse_maps):
                        yield point
                        self.done += 1
                        if self.progress is not None:
                            self.progress(self.done, total)

    def _maps(
        self,
        side: ModelAndTokenizer,
        sources: Sequence[str],
        targets: Sequence[str],
        rows: str,
        prefix: str,
        swapped: bool = False,
    ) -> dict[str, list[AttentionMaps]]:
        """Run the model once; return the maps of each kind of weights that it can give."""
        kinds = self.grid.weights
        norms = [kind for kind in kinds if kind != "attention"]
        languages = self.base.source_language, self.base.target_language
        choices = dict(
            align_with=rows,
            batch_size=self.batch_size,
            layers=self.grid.layers,
            source_prefix=prefix,
            source_language=languages[int(swapped)],
            target_language=languages[int(not swapped)],
        )
        if norms:
            try:
                found = list(extract(*side, sources, targets, weights=norms[0], **choices))  # type: ignore[arg-type]
            except SentenceError:
                raise
            except UnusableError as error:
                if "attention" not in kinds:
                    raise
                self._skip(f"weights {', '.join(norms)}: {error}")
            else:
                return {kind: [maps.of_kind(kind) for maps in found] for kind in kinds}
        return {"attention": list(extract(*side, sources, targets, **choices))}  # type: ignore[arg-type]

    def _skip(self, reason: str) -> None:
        if reason not in self.skipped:
            self.skipped.append(reason)

    def _places(
        self, maps: Sequence[AttentionMaps], reverse_maps: Sequence[AttentionMaps] | None
    ) -> list[tuple[int, tuple[int, ...], int | str]]:
        """Return layer, heads and the heads' name in the grid, of all that are tried and that both models have."""
        both = [maps[0], *([] if reverse_maps is None else [reverse_maps[0]])]
        layers = [layer for layer in maps[0].layers if all(layer in each.layers for each in both)]
        alone = sorted({layer for each in both for layer in each.layers} - set(layers))
        if alone:
            self._skip(f"layers {', '.join(map(str, alone))}: only one of the two models has them")
        own = [head for head in maps[0].heads if all(head in each.heads for each in both)]
        heads: list[tuple[tuple[int, ...], int | str]] = []
        for name in self.grid.heads:
            if name == MEAN:
                if any(each.heads != maps[0].heads for each in both):
                    raise UnusableError("the two models have unequal numbers of heads; choose single heads")
                heads.append((maps[0].heads, MEAN))
            elif name in own:
                heads.append(((int(name),), name))
            else:
                raise UnusableError(f"head {name} does not exist; these models have the heads {own}")
        return [(layer, *each) for layer in layers for each in heads]

    def _points_of_a_place(self) -> int:
        grid = self.grid
        ways = len(grid.subwords) * (1 + (len(grid.symmetrize) if self.reverse else 0))
        if self.reverse and "matrix" in grid.subwords:
            ways += len(grid.combine)
        return len(grid.specials) * len(grid.links) * ways

    def _read(
        self,
        reading: Reading,
        name: int | str,
        maps: Sequence[AttentionMaps],
        reverse_maps: Sequence[AttentionMaps] | None,
    ) -> Iterator[SweepPoint]:
        for specials in self.grid.specials:
            for subwords in self.grid.subwords:
                chosen = replace(reading, specials=specials, subwords=subwords)
                ours = _matrices(maps, chosen)
                theirs = None if reverse_maps is None else _matrices(reverse_maps, chosen)
                for links in self.grid.links:
                    for point, found in _links_of(replace(chosen, links=links), ours, theirs, self.grid):
                        counts = count_links(found, self.dev.gold)
                        aer, precision, recall = score_ratios(counts)
                        f1 = f_measure(precision, recall)
                        yield SweepPoint(point, name, aer, precision, recall, f1, int(counts[:, 0].sum()))


def _matrices(maps: Sequence[AttentionMaps], reading: Reading) -> list[DirectionMatrices]:
    assert not isinstance(reading.heads, str), "the grid names heads by their numbers"
    return [direction_matrices(each, reading.specials, reading.subwords, reading.layer, reading.heads) for each in maps]


def _links_of(
    reading: Reading, ours: Sequence[DirectionMatrices], theirs: Sequence[DirectionMatrices] | None, grid: SweepGrid
) -> Iterator[tuple[Reading, list[Links]]]:
    """Yield the links of the forward direction, then those of every way to join two."""
    forward = _corpus_links(ours, reading.links)
    yield replace(reading, reverse_prefix=""), forward
    if theirs is None:
        return
    reverse = [reverse_links(links) for links in _corpus_links(theirs, reading.links)]
    for method in grid.symmetrize:
        joined = [symmetrize(one, other, method) for one, other in zip(forward, reverse, strict=True)]
        yield replace(reading, symmetrize=method), joined
    if reading.subwords == "matrix":
        for how in grid.combine:
            matrices = [combined_matrix(one, other, how) for one, other in zip(ours, theirs, strict=True)]
            yield replace(reading, combine=how), extract_corpus_links(matrices, reading.links)


def _corpus_links(matrices: Sequence[DirectionMatrices], how: str) -> list[Links]:
    jumps = learned_jumps(matrices, how)
    return [each.links(how, jumps) for each in matrices]
