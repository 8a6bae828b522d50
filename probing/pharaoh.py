"""Pharaoh and TALP: one line for each sentence pair, blank where there is no link, `i-j` sure, `ipj` possible.

The source word comes first. `i-j:0.93` adds a probability. Pharaoh counts from 0, TALP (`*.talp`) from 1; public
files keep to neither, so the base is found from the file, or given.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hf_seq2seq_attn.text_files import InputError, iterate_lines

from .aligned_pair import AlignedPair, Gold
from .link_types import Link

# Nine digits are more than any sentence has words, and Python refuses to read thousands of them.
_LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})(?::([0-9.eE+-]+))?")
_ZERO = re.compile(r"(?<!\S)(?:0+[-p][0-9]|[0-9]+[-p]0+(?![0-9]))")
_TOKENS_KEPT = 100_000


@dataclass(frozen=True)
class Base:
    """What a file counts from.

    Attributes:
        first: 0 or 1.
        evidence: in words, how that was found.
        certain: False when the file's own content does not settle it.
    """

    first: int
    evidence: str
    certain: bool


def find_base(
    path: Path,
    given: int | None = None,
    source_lengths: Sequence[int] | None = None,
    target_lengths: Sequence[int] | None = None,
) -> Base:
    """Find out whether a Pharaoh or TALP file counts from 0 or from 1.

    A file that uses index 0 counts from 0. One that does not, and uses an index equal to the number of words of its
    sentence, is read as counting from 1, as is one named `*.talp`; any other as counting from 0. Only index 0 and the
    name TALP count as certain.

    Raises:
        InputError: index 0 in a file said to count from 1, naming its line.
    """
    if given not in (None, 0, 1):
        raise ValueError(f"base is {given!r}; allowed are 0, 1 and None (detect)")
    if given == 0:
        return Base(0, "as given", True)
    zero = next((number for number, line in enumerate(iterate_lines(path), start=1) if _ZERO.search(line)), None)
    if given == 1:
        if zero is not None:
            raise InputError(f"{path}:{zero}: index 0 in a file said to count from 1; give base 0")
        return Base(1, "as given", True)
    if zero is not None:
        return Base(0, f"index 0 on line {zero}", True)
    reached = _index_equal_to_length(path, source_lengths, target_lengths)
    if reached is not None:
        return Base(1, f"no index 0, and {reached}", is_talp(path))
    if is_talp(path):
        return Base(1, "a TALP file without index 0", True)
    return Base(0, "no index 0 in the file; read as Pharaoh", False)


def _index_equal_to_length(
    path: Path, source_lengths: Sequence[int] | None, target_lengths: Sequence[int] | None
) -> str | None:
    sides = [("source", 1, source_lengths), ("target", 3, target_lengths)]
    for number, line in enumerate(iterate_lines(path), start=1):
        for name, group, lengths in sides:
            if lengths is not None and number <= len(lengths):
                highest = max((int(match[group]) for match in _LINK.finditer(line)), default=0)
                if highest == lengths[number - 1] and highest:
                    return f"{name} index {highest} on line {number} in a sentence of {highest} words"
    return None


def is_talp(path: Path) -> bool:
    """Tell whether a file is named as TALP, compressed or not."""
    return path.name.removesuffix(".gz").lower().endswith(".talp")


def iterate_pharaoh(path: Path, base: int) -> Iterator[AlignedPair]:
    """Yield one pair for each line of a Pharaoh or TALP file that counts from `base`."""
    # The same few tokens make up most of a file: each is taken apart, and its tuple kept in memory, once.
    known: dict[str, tuple[Link, bool]] = {}
    for number, line in enumerate(iterate_lines(path), start=1):
        yield parse_pharaoh(line, base, path, number, known)


def parse_pharaoh(
    line: str, base: int, path: str | Path, number: int, known: dict[str, tuple[Link, bool]] | None = None
) -> AlignedPair:
    """Read one line of Pharaoh or TALP links that count from `base`.

    Args:
        path, number: where the line stands, for errors.
        known: tokens seen before, and what they mean; filled here. It saves time and memory over many lines.

    Raises:
        InputError: a token that is no link, naming path and number.
    """
    known = {} if known is None else known
    sure: list[Link] = []
    possible: list[Link] = []
    probabilities: dict[Link, float] = {}
    for token in line.split():
        entry = known.get(token)
        if entry is None:
            link, is_sure, probability = _parse(token, base, path, number)
            entry = (link, is_sure)
            if probability is not None:
                probabilities[link] = probability
            elif len(known) < _TOKENS_KEPT:
                known[token] = entry
        (sure if entry[1] else possible).append(entry[0])
    certain = frozenset(sure)
    gold = Gold(certain, certain.union(possible) if possible else certain)
    return AlignedPair(gold, probabilities, line=number)


def _parse(token: str, base: int, path: str | Path, number: int) -> tuple[Link, bool, float | None]:
    match = _LINK.fullmatch(token)
    if match is None:
        raise InputError(
            f"{path}:{number}: {token!r} is no link; write i-j (sure) or ipj (possible), source word "
            "first, e.g. 0-0 1p2, with a probability 0-0:0.9"
        )
    link = (int(match[1]) - base, int(match[3]) - base)
    if min(link) < 0:
        raise InputError(f"{path}:{number}: index 0 in a file said to count from 1; give base 0")
    probability = None if match[4] is None else parse_probability(match[4], path, number)
    return link, match[2] == "-", probability


def parse_probability(text: str, path: str | Path, number: int) -> float:
    """Return a probability, or raise an InputError naming the line."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InputError(f"{path}:{number}: {text!r} is no probability; write a number from 0 to 1")
    return value


def format_pharaoh(pair: AlignedPair, base: int = 0, probabilities: bool = False) -> str:
    """Write one pair as a line, links sorted: `0-0 1p2`, with probabilities `0-0:0.9 1p2:0.4`."""
    sure = pair.gold.sure
    return " ".join(
        f"{i + base}{'-' if (i, j) in sure else 'p'}{j + base}"
        + (f":{pair.probabilities[i, j]!r}" if probabilities and (i, j) in pair.probabilities else "")
        for i, j in sorted(pair.gold.possible)
    )
