"""What an alignment file holds about one sentence pair."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .link_types import Link, Links

_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Gold:
    """The manual links of one sentence pair.

    Attributes:
        sure: links that every annotator would draw.
        possible: links that are not wrong; holds the sure ones too.
    """

    sure: Links
    possible: Links

    def __post_init__(self) -> None:
        if not self.sure <= self.possible:
            object.__setattr__(self, "possible", self.possible | self.sure)


@dataclass(frozen=True)
class AlignedPair:
    """One sentence pair of an alignment file; all indices count from 0.

    Attributes:
        gold: its links, sure and possible; a file without that distinction has sure links only.
        probabilities: of those links that have one, 0..1.
        null_sources, null_targets: words that the file says have no partner. A word without a link need not be one.
        source, target: the words, in formats that carry them.
        line: where the pair begins in its file, from 1; 0 = not from a file.
    """

    gold: Gold
    probabilities: Mapping[Link, float] = field(default_factory=dict)
    null_sources: frozenset[int] = _NONE
    null_targets: frozenset[int] = _NONE
    source: tuple[str, ...] | None = None
    target: tuple[str, ...] | None = None
    line: int = field(default=0, compare=False)
