"""Alignment files: Pharaoh and TALP, with sure and possible links.

Both have one line for each sentence pair, blank where there is no link, and write a link as `i-j` (sure) or `ipj`
(possible), source word first. Pharaoh counts from 0, TALP (`*.talp`) from 1; public files keep to neither, so the
base is detected from the file and can be given.
"""

import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hf_seq2seq_attn.text_files import InputError, iterate_lines

from .links import Link, Links

_LINK = re.compile(r"([0-9]+)([-p])([0-9]+)")


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
class LinkFile:
    """An alignment file as read.

    Attributes:
        sentences: one entry for each line, links 0-based whatever the file counts from.
        base: what the file counts from, 0 or 1.
        evidence: in words, how the base was found.
        certain: False when the file's own content does not settle the base.
    """

    sentences: list[Gold]
    base: int
    evidence: str
    certain: bool


def read_link_file(
    path: str | Path,
    *,
    base: int | None = None,
    source_lengths: Sequence[int] | None = None,
    target_lengths: Sequence[int] | None = None,
) -> LinkFile:
    """Read a Pharaoh or TALP file with sure and possible links.

    Args:
        base: 0 or 1; None detects it: a file that uses index 0 counts from 0; one that does not counts from 1 if it
            is named `*.talp`, else from 0.
        source_lengths, target_lengths: words in each sentence; when given, their number must equal the file's lines
            and every index must lie within its sentence.

    Raises:
        InputError: a token that is no link, an index outside its sentence, a base that the file contradicts, or
            another number of lines; names the line.
    """
    path = Path(path)
    lines = [_parse_line(line, path, number) for number, line in enumerate(iterate_lines(path), start=1)]
    zero_line = next((n for n, line in enumerate(lines, start=1) if any(0 in link[:2] for link in line)), None)
    base, evidence, certain = _settle_base(path, base, zero_line)
    sentences = []
    for line in lines:
        sure = frozenset((i - base, j - base) for i, j, is_sure in line if is_sure)
        sentences.append(Gold(sure, frozenset((i - base, j - base) for i, j, _ in line)))
    hint = "" if certain or base == 1 else " or, if the file counts from 1, give base 1"
    for side, lengths in enumerate((source_lengths, target_lengths)):
        if lengths is not None:
            _check_bounds(path, sentences, side, lengths, hint)
    return LinkFile(sentences, base, evidence, certain)


def read_gold(path: str | Path, *, base: int | None = None) -> list[Gold]:
    """Read manual links; arguments and errors as in `read_link_file`."""
    return read_link_file(path, base=base).sentences


def read_links(
    path: str | Path,
    source_lengths: Sequence[int] | None = None,
    target_lengths: Sequence[int] | None = None,
    *,
    base: int | None = None,
) -> list[Links]:
    """Read the links of each sentence pair, sure and possible alike; arguments and errors as in `read_link_file`."""
    read = read_link_file(path, base=base, source_lengths=source_lengths, target_lengths=target_lengths)
    return [sentence.possible for sentence in read.sentences]


def format_links(links: Iterable[Link] | Gold, base: int = 0) -> str:
    """Write one sentence's links as a line, sorted: `0-0 1p2`."""
    if not isinstance(links, Gold):
        links = Gold(frozenset(links), frozenset())
    return " ".join(f"{i + base}{'-' if (i, j) in links.sure else 'p'}{j + base}" for i, j in sorted(links.possible))


def write_links(path: str | Path, sentences: Iterable[Iterable[Link] | Gold], *, base: int | None = None) -> None:
    """Write one line for each sentence, sorted links, counting from 0 (from 1 if the file is named `*.talp`).

    The file appears only when it is complete; an older one of that name is kept until then.
    """
    path = Path(path)
    if base is None:
        base = 1 if _is_talp(path) else 0
    write_atomically(path, (format_links(sentence, base) + "\n" for sentence in sentences))


def write_atomically(path: str | Path, chunks: Iterable[str]) -> None:
    """Write UTF-8 text to a temporary file beside `path`, then move it there.

    Raises:
        InputError: the folder does not exist or cannot be written.
    """
    path = Path(path)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); check the folder") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(chunks)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _is_talp(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".talp")


def _parse_line(line: str, path: Path, number: int) -> list[tuple[int, int, bool]]:
    links = []
    for token in line.split():
        match = _LINK.fullmatch(token)
        if match is None:
            raise InputError(
                f"{path}:{number}: {token!r} is no link; write i-j (sure) or ipj (possible), source word "
                "first, e.g. 0-0 1p2"
            )
        links.append((int(match[1]), int(match[3]), match[2] == "-"))
    return links


def _settle_base(path: Path, base: int | None, zero_line: int | None) -> tuple[int, str, bool]:
    if base not in (None, 0, 1):
        raise ValueError(f"base is {base!r}; allowed are 0, 1 and None (detect)")
    if base == 1 and zero_line is not None:
        raise InputError(f"{path}:{zero_line}: index 0 in a file said to count from 1; give base 0")
    if base is not None:
        return base, "as given", True
    if zero_line is not None:
        return 0, f"index 0 on line {zero_line}", True
    if _is_talp(path):
        return 1, "a TALP file without index 0", True
    return 0, "no index 0 in the file; read as Pharaoh", False


def _check_bounds(path: Path, sentences: list[Gold], side: int, lengths: Sequence[int], hint: str) -> None:
    name = ("source", "target")[side]
    if len(lengths) != len(sentences):
        raise InputError(
            f"{path}:{min(len(lengths), len(sentences)) + 1}: {len(sentences)} lines of links for {len(lengths)} "
            f"{name} sentences; line N of the links must belong to sentence N"
        )
    for number, (sentence, length) in enumerate(zip(sentences, lengths, strict=True), start=1):
        worst = max((link[side] for link in sentence.possible), default=-1)
        if worst >= length:
            raise InputError(
                f"{path}:{number}: {name} index {worst} (counted from 0), but the sentence has {length} words; "
                f"check that links and text have the same tokens{hint}"
            )
