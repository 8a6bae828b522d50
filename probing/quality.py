"""Find the lines of a bitext that need a human: what is missing, added, repeated, left untranslated or misplaced.

Signals of a line, each with what makes it bad; n is the number of its content words (those with a letter or digit):

    model_score       low    mean log-probability of a target token (with a model)
    link_probability  low    mean probability of the links (where they have one)
    link_support      low    mean over the links of how usual the pair of words is among all *other* lines' links: the
                             Dice coefficient 2 c(s, t) / (c(s) + c(t)) of linked and of all occurrences
    source_coverage   low    share of the source's content words with a link
    target_coverage   low    the same of the target's
    omitted           many   content words in the longest run of the source without a link
    added             many   the same of the target
    copies            many   share of the target's words of two or more letters that stand in the source
    repetition        much   share of the target's trigrams that repeat an earlier one, less the source's share
    sink_mass         much   mean attention on what is no word (with a model)
    length_ratio      far    log of (target characters + 1) / (source characters + 1), too low or too high

Lines differ in length, and short ones scatter more. So each signal x is compared with its least-squares line over
log(n + 1) (with a ridge of 10 on the slope, so that a few lines of odd length do not explain themselves), and the
residual r, times sqrt(n) for signals that are a mean over words, is divided by its robust standard deviation (1.4826
times the median absolute deviation, or the standard deviation where most residuals are equal): z, with the sign that
makes bad positive. Of the ratio of lengths |z| counts.

Some signals have heavier tails than others. So what counts is how rare a z is: the surprisal -ln(share of the lines
whose z is at least as large). One glaring signal is enough to make a line bad, and several add up:

    badness = (mean over the line's signals of surprisal ** 4) ** (1 / 4)
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .bitext import BitextLine
from .model_signals import ModelSignals

_POWER = 4
_RIDGE = 10.0
_GRAM = 3


@dataclass(frozen=True)
class Signal:
    """A signal: its name, the sign that makes bad positive (0: both ways are bad), whether it is a mean over words."""

    name: str
    sign: int
    is_mean: bool


SIGNALS = (
    Signal("model_score", -1, True),
    Signal("link_probability", -1, True),
    Signal("link_support", -1, True),
    Signal("source_coverage", -1, True),
    Signal("target_coverage", -1, True),
    Signal("omitted", 1, False),
    Signal("added", 1, False),
    Signal("copies", 1, True),
    Signal("repetition", 1, True),
    Signal("sink_mass", 1, True),
    Signal("length_ratio", 0, True),
)


@dataclass(frozen=True)
class LineQuality:
    """The signals of one line, see the module.

    Attributes:
        line, verse_id: where it stands.
        words: content words of both sides, n.
        values: by the name of the signal; a signal that the line does not have is left out.
        z: the same, compared with the corpus; positive is bad, of length_ratio a long target.
        surprisal: how rare each z is among the lines, at least 0.
        reason: the signal with the greatest surprisal; None without signals.
        badness: of all signals; 0 for a line that is blank on both sides.
        omitted_spans, added_spans: the maximal runs without a link, as text, of at least `shortest_span` content words.
        rank: 1 is the worst.
    """

    line: int
    verse_id: str | None
    words: int
    values: dict[str, float]
    omitted_spans: tuple[str, ...] = ()
    added_spans: tuple[str, ...] = ()
    z: dict[str, float] = field(default_factory=dict)
    surprisal: dict[str, float] = field(default_factory=dict)
    reason: str | None = None
    badness: float = 0.0
    rank: int = 0


def measure_quality(
    lines: Iterable[BitextLine],
    signals: Sequence[ModelSignals] | None = None,
    *,
    shortest_span: int = 2,
) -> list[LineQuality]:
    """Return the quality of every line of a corpus, in its order, ranked among its lines.

    Args:
        lines: read twice, so no generator: a list, or a `Bitext`. Lines without links take those of the model.
        signals: what a model says about each line, see `model_signals`.
        shortest_span: content words that make a run of `omitted_spans` and `added_spans`.

    Raises:
        ValueError: `lines` can be read only once, or not as many signals as lines.
    """
    if iter(lines) is lines:
        raise ValueError("lines can be read only once, but are needed twice; give a list or a Bitext")
    support = _Support()
    for line in _with_links(lines, signals):
        support.add(line)
    found = [
        _measure(line, None if signals is None else signals[row], support, shortest_span)
        for row, line in enumerate(_with_links(lines, signals))
    ]
    return _ranked(found)


def by_rank(found: Iterable[LineQuality]) -> list[LineQuality]:
    """Return the lines, worst first."""
    return sorted(found, key=lambda quality: quality.rank)


def _with_links(lines: Iterable[BitextLine], signals: Sequence[ModelSignals] | None) -> Iterator[BitextLine]:
    if signals is None:
        yield from lines
        return
    for line, said in zip(lines, signals, strict=True):
        yield replace(line, links=said.links, probabilities=said.probabilities) if line.links is None else line


class _Support:
    """How usual a link's pair of words is in the rest of the corpus."""

    def __init__(self) -> None:
        self.linked: Counter[tuple[str, str]] = Counter()
        self.source: Counter[str] = Counter()
        self.target: Counter[str] = Counter()

    def add(self, line: BitextLine) -> None:
        source, target = _folded(line)
        self.source.update(source)
        self.target.update(target)
        self.linked.update((source[i], target[j]) for i, j in line.links or ())

    def of(self, line: BitextLine) -> float | None:
        """Return the mean support of a line's links, its own occurrences left out."""
        if not line.links:
            return None
        source, target = _folded(line)
        own = Counter((source[i], target[j]) for i, j in line.links)
        own_source, own_target = Counter(source), Counter(target)
        total = 0.0
        for (s, t), count in own.items():
            occurrences = self.source[s] - own_source[s] + self.target[t] - own_target[t]
            if occurrences:
                total += count * min(1.0, 2 * (self.linked[s, t] - count) / occurrences)
        return total / len(line.links)


def _folded(line: BitextLine) -> tuple[list[str], list[str]]:
    return [word.casefold() for word in line.source], [word.casefold() for word in line.target]


def _measure(line: BitextLine, said: ModelSignals | None, support: _Support, shortest: int) -> LineQuality:
    source, target = _content(line.source), _content(line.target)
    words = sum(source) + sum(target)
    if not words:
        return LineQuality(line.verse.line, line.verse.verse_id, 0, {})
    values: dict[str, float | None] = {
        "copies": _copies(line),
        "repetition": max(0.0, _repetition(line.target) - _repetition(line.source)),
        "length_ratio": math.log((_characters(line.target) + 1) / (_characters(line.source) + 1)),
    }
    spans: list[tuple[str, ...]] = [(), ()]
    if line.links is not None:
        values |= {"link_probability": _mean_probability(line), "link_support": support.of(line)}
        for side, (names, text, content) in enumerate(
            ((("source_coverage", "omitted"), line.source, source), (("target_coverage", "added"), line.target, target))
        ):
            linked = {link[side] for link in line.links}
            runs = unlinked_runs(content, linked)
            values[names[0]] = _share([j in linked for j, is_content in enumerate(content) if is_content])
            values[names[1]] = max((sum(content[first:last]) for first, last in runs), default=0)
            spans[side] = tuple(
                " ".join(text[first:last]) for first, last in runs if sum(content[first:last]) >= shortest
            )
    if said is not None:
        values |= {"model_score": said.score, "sink_mass": said.sink_mass}
    known = {signal.name: float(value) for signal in SIGNALS if (value := values.get(signal.name)) is not None}
    return LineQuality(line.verse.line, line.verse.verse_id, words, known, spans[0], spans[1])


def unlinked_runs(content: Sequence[bool], linked: set[int]) -> list[tuple[int, int]]:
    """Return the maximal runs [first, last) of content words without a link, which a linked word ends; what is no
    content word is passed over, and stands at neither end."""
    runs: list[tuple[int, int]] = []
    first: int | None = None
    last = 0
    for j, is_content in enumerate(content):
        if j in linked:
            if first is not None:
                runs.append((first, last))
            first = None
        elif is_content:
            first = j if first is None else first
            last = j + 1
    if first is not None:
        runs.append((first, last))
    return runs


def _content(words: Sequence[str]) -> list[bool]:
    return [any(map(str.isalnum, word)) for word in words]


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def _characters(words: Sequence[str]) -> int:
    return sum(map(len, words))


def _mean_probability(line: BitextLine) -> float | None:
    known = [line.probabilities[link] for link in line.links or () if link in line.probabilities]
    return sum(known) / len(known) if known else None


def _copies(line: BitextLine) -> float | None:
    source = {word.casefold() for word in line.source}
    words = [word.casefold() for word in line.target if sum(map(str.isalpha, word)) >= 2]
    return _share([word in source for word in words])


def _repetition(words: Sequence[str]) -> float:
    grams = [tuple(words[start : start + _GRAM]) for start in range(len(words) - _GRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _ranked(found: Sequence[LineQuality]) -> list[LineQuality]:
    z: list[dict[str, float]] = [{} for _ in found]
    rarity: list[dict[str, float]] = [{} for _ in found]
    for signal in SIGNALS:
        rows = [row for row, each in enumerate(found) if signal.name in each.values]
        values = np.array([found[row].values[signal.name] for row in rows])
        lengths = np.array([found[row].words for row in rows])
        signed = standardise(values, lengths, signal.is_mean) * (signal.sign or 1)
        rare = surprisals(signed if signal.sign else np.abs(signed))
        for row, value, surprisal in zip(rows, signed.tolist(), rare.tolist(), strict=True):
            z[row][signal.name], rarity[row][signal.name] = value, surprisal
    badness = [
        (sum(value**_POWER for value in each.values()) / len(each)) ** (1 / _POWER) if each else 0.0 for each in rarity
    ]
    order = sorted(range(len(found)), key=lambda row: (-badness[row], row))
    rank = {row: number for number, row in enumerate(order, start=1)}
    return [
        replace(
            each,
            z=z[row],
            surprisal=rarity[row],
            reason=max(rarity[row], key=rarity[row].__getitem__, default=None),
            badness=badness[row],
            rank=rank[row],
        )
        for row, each in enumerate(found)
    ]


def surprisals(values: np.ndarray) -> np.ndarray:
    """Return for each value -ln of the share of all that are at least as large; equal up to rounding counts as equal.

    Args:
        values: (N,) float.
    """
    lowest = np.searchsorted(np.sort(values), values - 1e-9)
    return -np.log((len(values) - lowest) / max(len(values), 1)) + 0.0


def standardise(values: np.ndarray, lengths: np.ndarray, is_mean: bool) -> np.ndarray:
    """Return how far each value lies from what is usual for its length, in robust standard deviations.

    Args:
        values, lengths: (N,) float and int.
        is_mean: the value is a mean over `length` words, so that its scatter goes with 1 / sqrt(length).
    """
    if len(values) == 0:
        return values
    offset = np.log(lengths + 1) - np.log(lengths + 1).mean()
    slope = offset @ values / (offset @ offset + _RIDGE)
    residual = values - values.mean() - slope * offset
    if is_mean:
        residual = residual * np.sqrt(lengths)
    centred = residual - np.median(residual)
    scale = 1.4826 * np.median(np.abs(centred))
    if scale < 1e-9:
        scale = centred.std()
    return centred / scale if scale >= 1e-9 else np.zeros(len(values))
