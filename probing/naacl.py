"""The NAACL / WPT form of the shared tasks of 2003 and 2005: one link on a line,
`sentence source target [S|P] [confidence]`.

Sentences and words count from 1, and word 0 is NULL; without S or P a link is sure (Mihalcea and Pedersen 2003).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from hf_seq2seq_attn.text_files import InputError, iterate_lines

from .aligned_pair import AlignedPair, Gold
from .link_types import Link
from .pharaoh import parse_probability


class _Collected:
    """The links of one sentence as they are read."""

    def __init__(self, line: int = 0) -> None:
        self.line = line
        self.sure: set[Link] = set()
        self.possible: set[Link] = set()
        self.probabilities: dict[Link, float] = {}
        self.null_sources: set[int] = set()
        self.null_targets: set[int] = set()

    def add(self, link: Link, sure: bool, probability: float | None) -> None:
        i, j = link
        if i < 0 and j < 0:
            return
        if i < 0:
            self.null_targets.add(j)
        elif j < 0:
            self.null_sources.add(i)
        else:
            (self.sure if sure else self.possible).add(link)
            if probability is not None:
                self.probabilities[link] = probability

    def pair(self) -> AlignedPair:
        sure = frozenset(self.sure)
        return AlignedPair(
            Gold(sure, sure | self.possible),
            self.probabilities,
            frozenset(self.null_sources),
            frozenset(self.null_targets),
            line=self.line,
        )


def iterate_naacl(path: Path, base: int = 1) -> Iterator[AlignedPair]:
    """Yield one pair for each sentence number from 1 to the last; a number without lines is a pair without links.

    Args:
        base: what the words count from; with 0 there is no NULL. Sentences always count from 1.

    Raises:
        InputError: a line of another form, or sentence numbers that fall; names the line.
    """
    current, collected = 1, _Collected()
    for number, line in enumerate(iterate_lines(path), start=1):
        if not line.strip():
            continue
        sentence, link, sure, probability = _parse(line, base, path, number)
        if sentence < current:
            raise InputError(
                f"{path}:{number}: sentence {sentence} after sentence {current}; sort the file, e.g. with sort -n -s"
            )
        while current < sentence:
            yield collected.pair()
            current, collected = current + 1, _Collected(number)
        collected.line = collected.line or number
        collected.add(link, sure, probability)
    if collected.line:
        yield collected.pair()


def _parse(line: str, base: int, path: Path, number: int) -> tuple[int, Link, bool, float | None]:
    fields = line.split()
    wanted = f"{path}:{number}: {line!r} is not `sentence source target [S|P] [confidence]`, e.g. `1 1 2 S`"
    if not 3 <= len(fields) <= 5 or not all(text.isascii() and text.isdigit() for text in fields[:3]):
        raise InputError(wanted)
    sentence, i, j = map(int, fields[:3])
    rest = fields[3:]
    sure = not (rest and rest[0] == "P")
    if rest and rest[0] in ("S", "P"):
        rest = rest[1:]
    if len(rest) > 1:
        raise InputError(wanted)
    if sentence < 1:
        raise InputError(f"{path}:{number}: sentence 0; sentences of this format count from 1")
    return sentence, (i - base, j - base), sure, parse_probability(rest[0], path, number) if rest else None


def format_naacl(pairs: Iterable[AlignedPair]) -> Iterator[str]:
    """Yield the lines of each pair; a pair without links or NULLs has none."""
    for sentence, pair in enumerate(pairs, start=1):
        lines = [
            f"{sentence} {i + 1} {j + 1} {'S' if (i, j) in pair.gold.sure else 'P'}"
            + (f" {pair.probabilities[i, j]!r}" if (i, j) in pair.probabilities else "")
            for i, j in sorted(pair.gold.possible)
        ]
        lines += [f"{sentence} {i + 1} 0 S" for i in sorted(pair.null_sources)]
        lines += [f"{sentence} 0 {j + 1} S" for j in sorted(pair.null_targets)]
        yield "".join(line + "\n" for line in lines)
