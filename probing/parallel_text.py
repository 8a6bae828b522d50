"""Two text files that belong together line by line, read as often as needed and never held at once."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

from hf_seq2seq_attn.text_files import InputError, iterate_lines, read_lines


@dataclass(frozen=True)
class Chunk:
    """Neighbouring lines of both files.

    Attributes:
        number: of the chunk, from 0.
        first: the first line, from 0.
        sources, targets: the lines.
    """

    number: int
    first: int
    sources: list[str]
    targets: list[str]


class ParallelText:
    """The lines of a source and a target file, checked in a first pass.

    A file that can be read only once (a pipe) is held in memory.

    Attributes:
        count: number of line pairs.
        digests: sha256 of each side's lines.

    Raises:
        InputError: a file that cannot be read, or two of unequal length.
    """

    def __init__(self, source: Path, target: Path) -> None:
        self.paths = (source, target)
        self._held = [None if path.is_file() else read_lines(path) for path in self.paths]
        hashes = hashlib.sha256(), hashlib.sha256()
        lengths = [0, 0]
        for pair in zip_longest(*self._sides()):
            for side, line in enumerate(pair):
                if line is not None:
                    lengths[side] += 1
                    hashes[side].update(line.encode() + b"\n")
        if lengths[0] != lengths[1]:
            raise InputError(
                f"{target}:{min(lengths) + 1}: {lengths[1]} lines, but {source} has {lengths[0]}; "
                "line N of one file must belong to line N of the other"
            )
        self.count = lengths[0]
        self.digests = (hashes[0].hexdigest(), hashes[1].hexdigest())

    def chunks(self, size: int) -> Iterator[Chunk]:
        """Yield the lines in chunks of `size` pairs, the last one shorter."""
        pairs = zip(*self._sides(), strict=True)
        for number, first in enumerate(range(0, self.count, size)):
            sources, targets = zip(*islice(pairs, size), strict=True)
            yield Chunk(number, first, list(sources), list(targets))

    def sample(self, most: int) -> tuple[list[str], list[str]]:
        """Return at most `most` pairs, spread evenly over the files; all of them if there are no more."""
        step = max(1, -(-self.count // most))
        pairs = list(islice(zip(*self._sides(), strict=True), 0, None, step))
        return [source for source, _ in pairs], [target for _, target in pairs]

    def _sides(self) -> list[Iterator[str]]:
        return [
            iterate_lines(path) if held is None else iter(held)
            for path, held in zip(self.paths, self._held, strict=True)
        ]
