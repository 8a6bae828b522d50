"""What an aligner is trained on: a bitext, a teacher's links, hand-made links, a lexicon."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.probing import Gold, Link, Links

Sentences = Sequence[Sequence[str]]
LinkWeights = Mapping[Link, float]
"""Links of one pair with a weight each, 0..1; a hard link has 1."""


class StoredWeights(Sequence[LinkWeights]):
    """The link weights of every pair, kept in flat arrays: of large texts, dictionaries take ten times the memory."""

    def __init__(self, pairs: Iterable[LinkWeights]) -> None:
        links, weights, ends = array("i"), array("d"), array("q", [0])
        for pair in pairs:
            for link in pair:
                links.extend(link)
            weights.extend(pair.values())
            ends.append(len(weights))
        self._links = np.array(links, dtype=np.int32).reshape(-1, 2)
        self._weights = np.array(weights, dtype=np.float64)
        self._ends = np.array(ends, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, place: int) -> LinkWeights: ...

    @overload
    def __getitem__(self, place: slice) -> list[LinkWeights]: ...

    def __getitem__(self, place: int | slice) -> LinkWeights | list[LinkWeights]:
        if isinstance(place, slice):
            return [self._pair(each) for each in range(len(self))[place]]
        return self._pair(range(len(self))[place])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _pair(self, place: int) -> LinkWeights:
        inside = slice(self._ends[place], self._ends[place + 1])
        links = map(tuple, self._links[inside].tolist())
        return dict(zip(links, self._weights[inside].tolist(), strict=True))


@dataclass
class TeacherLinks:
    """What one run of a statistical aligner says about every pair.

    Attributes:
        forward: of each pair; a target word's weights sum to at most 1, what is missing is NULL's.
        reverse: of each pair; a source word's weights sum to at most 1.
    """

    forward: Sequence[LinkWeights]
    reverse: Sequence[LinkWeights]

    def __post_init__(self) -> None:
        self.forward, self.reverse = (
            each if isinstance(each, StoredWeights) else StoredWeights(each) for each in (self.forward, self.reverse)
        )

    @classmethod
    def hard(cls, forward: Sequence[Links], reverse: Sequence[Links]) -> "TeacherLinks":
        """Give every link the weight 1."""
        return cls(*(StoredWeights(dict.fromkeys(links, 1.0) for links in each) for each in (forward, reverse)))


def shared_out(weights: LinkWeights, side: int) -> dict[Link, float]:
    """Scale the weights so that those of each word on one side (0 source, 1 target) sum to at most 1."""
    totals: dict[int, float] = {}
    for link, weight in weights.items():
        totals[link[side]] = totals.get(link[side], 0.0) + weight
    return {link: weight / max(totals[link[side]], 1.0) for link, weight in weights.items()}


@dataclass
class AlignerData:
    """A bitext and all that is known about its links; lists have one entry for each pair, indices count from 0.

    Attributes:
        source, target: words of each pair as the user gave them (case and marks included); blank pairs are empty lists.
        source_lemmas, target_lemmas: a second channel, as many items in each pair as words; None = none.
        teachers: links of one or several runs. Empty = no teacher.
        gold: hand-made links of the pairs that have them (an entry without links says that there are none).
        fixed: links that must be in the output, whatever else.
        lexicon: (source word, target word) that are translations of each other.
    """

    source: Sentences
    target: Sentences
    source_lemmas: Sentences | None = None
    target_lemmas: Sentences | None = None
    teachers: Sequence[TeacherLinks] = ()
    gold: Mapping[int, Gold] = field(default_factory=dict)
    fixed: Mapping[int, Links] = field(default_factory=dict)
    lexicon: Sequence[tuple[str, str]] = ()

    def check(self) -> None:
        """Raise an UnusableError that names the first thing that does not fit together."""
        pairs = len(self.source)
        for name, sentences in (
            ("target", self.target),
            ("source_lemmas", self.source_lemmas),
            ("target_lemmas", self.target_lemmas),
        ):
            if sentences is not None and len(sentences) != pairs:
                raise UnusableError(f"{name} has {len(sentences)} sentences, source has {pairs}; give one for each")
        for name, words, lemmas in (
            ("source_lemmas", self.source, self.source_lemmas),
            ("target_lemmas", self.target, self.target_lemmas),
        ):
            for place, (one, other) in enumerate(zip(words, lemmas or words, strict=True)):
                if len(one) != len(other):
                    raise UnusableError(f"{name}[{place}] has {len(other)} items for {len(one)} words; give one each")
        for number, teacher in enumerate(self.teachers):
            for name, links in (("forward", teacher.forward), ("reverse", teacher.reverse)):
                if len(links) != pairs:
                    raise UnusableError(f"teachers[{number}].{name} is of {len(links)} pairs, the text has {pairs}")
        for name, known in (
            ("gold", {place: gold.possible for place, gold in self.gold.items()}),
            ("fixed", self.fixed),
        ):
            for place, pair_links in known.items():
                if not 0 <= place < pairs:
                    raise UnusableError(f"{name} names pair {place}; the text has {pairs}, counted from 0")
                self._check_links(name, place, pair_links)

    def _check_links(self, name: str, place: int, links: Links) -> None:
        sources, targets = len(self.source[place]), len(self.target[place])
        for i, j in links:
            if not (0 <= i < sources and 0 <= j < targets):
                raise UnusableError(
                    f"{name}[{place}] has the link {i}-{j}; the pair has {sources} source and {targets} target words, "
                    "counted from 0"
                )
