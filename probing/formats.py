"""Alignment files of every format: read them pair by pair or at once, write them, say what a format cannot hold.

Files that end in `.gz` are compressed, in and out.
"""

import gzip
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hf_seq2seq_attn.text_files import InputError

from .aligned_pair import AlignedPair, Gold
from .giza import iterate_a3
from .json_lines import format_json_line, iterate_json_lines
from .link_types import Link, Links
from .naacl import format_naacl, iterate_naacl
from .pharaoh import Base, find_base, format_pharaoh, is_talp, iterate_pharaoh


@dataclass(frozen=True)
class Format:
    """An alignment format.

    Attributes:
        suffixes: of file names, lower case.
        read: called as read(path, base), yields the pairs.
        write: turns pairs into chunks of text; None = read only.
        base: what it counts from by its definition; None = found from the file.
        keeps: what it holds beside sure and possible links: of probabilities, nulls, words, blank lines at the end.
    """

    suffixes: tuple[str, ...]
    read: Callable[[Path, int], Iterator[AlignedPair]]
    write: Callable[[Iterable[AlignedPair]], Iterator[str]] | None
    base: int | None
    keeps: frozenset[str]


def _lines(line_of: Callable[[AlignedPair], str]) -> Callable[[Iterable[AlignedPair]], Iterator[str]]:
    return lambda pairs: (line_of(pair) + "\n" for pair in pairs)


BLANK_ENDS = "blank lines at the end"
FORMATS: dict[str, Format] = {
    "pharaoh": Format((".align", ".pharaoh"), iterate_pharaoh, _lines(format_pharaoh), None, frozenset({BLANK_ENDS})),
    "pharaoh-p": Format(
        (".pharaoh-p", ".prob"),
        iterate_pharaoh,
        _lines(lambda pair: format_pharaoh(pair, probabilities=True)),
        None,
        frozenset({"probabilities", BLANK_ENDS}),
    ),
    "talp": Format(
        (".talp",), iterate_pharaoh, _lines(lambda pair: format_pharaoh(pair, base=1)), None, frozenset({BLANK_ENDS})
    ),
    "naacl": Format(
        (".naacl", ".wpt", ".wa", ".nonullalign"), iterate_naacl, format_naacl, 1, frozenset({"probabilities", "nulls"})
    ),
    "a3": Format(
        (".a3", ".a3.final"), lambda path, _: iterate_a3(path), None, 1, frozenset({"nulls", "words", BLANK_ENDS})
    ),
    "jsonl": Format(
        (".jsonl",),
        iterate_json_lines,
        _lines(format_json_line),
        0,
        frozenset({"probabilities", "nulls", "words", BLANK_ENDS}),
    ),
}


def format_of(path: str | Path, name: str | None = None) -> str:
    """Return the format's name: the given one if known, else by the file's suffix, else `pharaoh`."""
    if name is not None:
        if name not in FORMATS:
            raise ValueError(f"format is {name!r}; allowed are {', '.join(FORMATS)}")
        return name
    file_name = Path(path).name.lower().removesuffix(".gz")
    return next(
        (known for known, format_ in FORMATS.items() if file_name.endswith(format_.suffixes)),
        "pharaoh",
    )


@dataclass(frozen=True)
class LinkFile:
    """An alignment file as read.

    Attributes:
        sentences: one entry for each sentence pair, links 0-based whatever the file counts from.
        base: what the file counts from, 0 or 1.
        evidence: in words, how the base was found.
        certain: False when the file's own content does not settle the base.
    """

    sentences: list[Gold]
    base: int
    evidence: str
    certain: bool


def iterate_pairs(
    path: str | Path, *, format_name: str | None = None, base: int | None = None
) -> Iterator[AlignedPair]:
    """Yield the sentence pairs of an alignment file one by one, in constant memory.

    Args:
        format_name: one of `FORMATS`; None = by the suffix, see `format_of`.
        base: what the file counts from, 0 or 1; None = by the format's definition, in Pharaoh and TALP found by a
            first pass over the file, see `find_base`.

    Raises:
        InputError: `FILE:LINE: what; remedy`.
    """
    path = Path(path)
    name = format_of(path, format_name)
    return FORMATS[name].read(path, settle_base(path, name, base).first)


def settle_base(path: Path, format_name: str, base: int | None = None, *lengths: Sequence[int] | None) -> Base:
    """Return what a file counts from: as given, by the format's definition, or as `find_base` finds it."""
    defined = FORMATS[format_name].base
    if defined is None:
        return find_base(path, base, *lengths)
    if base not in (None, 0, 1):
        raise ValueError(f"base is {base!r}; allowed are 0, 1 and None (detect)")
    if base is None:
        return Base(defined, f"{format_name} always does", True)
    if format_name == "a3" and base == 0:
        raise InputError(f"{path}: an A3 file counts from 1; leave the base out")
    return Base(base, "as given", True)


def read_link_file(
    path: str | Path,
    *,
    base: int | None = None,
    format_name: str | None = None,
    source_lengths: Sequence[int] | None = None,
    target_lengths: Sequence[int] | None = None,
) -> LinkFile:
    """Read an alignment file with sure and possible links.

    Args:
        base, format_name: as in `iterate_pairs`.
        source_lengths, target_lengths: words in each sentence; when given, their number must equal the file's
            sentences, every index must lie within its sentence, and they help to find the base. Formats that cannot
            hold blank lines at the end are filled up to that number.

    Raises:
        InputError: a token that is no link, an index outside its sentence, a base that the file contradicts, or
            another number of lines; names the line.
    """
    path = Path(path)
    name = format_of(path, format_name)
    found = settle_base(path, name, base, source_lengths, target_lengths)
    pairs = FORMATS[name].read(path, found.first)
    sentences = []
    hint = "" if found.certain or found.first == 1 else " or, if the file counts from 1, give base 1"
    sides = [
        (side, name, lengths)
        for side, name, lengths in ((0, "source", source_lengths), (1, "target", target_lengths))
        if lengths is not None
    ]
    for number, pair in enumerate(pairs):
        for side, side_name, lengths in sides:
            if number < len(lengths):
                _check_bounds(path, pair, side, side_name, lengths[number], hint)
        sentences.append(pair.gold)
    for _, side_name, lengths in sides:
        if BLANK_ENDS not in FORMATS[name].keeps:
            sentences += [Gold(frozenset(), frozenset())] * (len(lengths) - len(sentences))
        if len(lengths) != len(sentences):
            raise InputError(
                f"{path}:{min(len(lengths), len(sentences)) + 1}: {len(sentences)} lines of links for {len(lengths)} "
                f"{side_name} sentences; line N of the links must belong to sentence N"
            )
    return LinkFile(sentences, found.first, found.evidence, found.certain)


def _check_bounds(path: Path, pair: AlignedPair, side: int, name: str, length: int, hint: str) -> None:
    worst = max((link[side] for link in pair.gold.possible), default=-1)
    if worst >= length:
        raise InputError(
            f"{path}:{pair.line}: {name} index {worst} (counted from 0), but the sentence has {length} words; "
            f"check that links and text have the same tokens{hint}"
        )


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


def as_pair(links: Iterable[Link] | Gold | AlignedPair) -> AlignedPair:
    """Return links, or sure and possible links, as a pair of an alignment file."""
    if isinstance(links, AlignedPair):
        return links
    if not isinstance(links, Gold):
        found = frozenset(links)
        links = Gold(found, found)
    return AlignedPair(links)


def format_links(links: Iterable[Link] | Gold, base: int = 0) -> str:
    """Write one sentence's links as a line, sorted: `0-0 1p2`."""
    return format_pharaoh(as_pair(links), base)


def write_links(
    path: str | Path, sentences: Iterable[Iterable[Link] | Gold | AlignedPair], *, base: int | None = None
) -> None:
    """Write one line for each sentence, sorted links, counting from 0 (from 1 if the file is named `*.talp`).

    The file appears only when it is complete; an older one of that name is kept until then.
    """
    path = Path(path)
    first = int(is_talp(path)) if base is None else base
    write_atomically(path, (format_pharaoh(as_pair(sentence), first) + "\n" for sentence in sentences))


def write_pairs(
    path: str | Path, pairs: Iterable[AlignedPair], *, format_name: str | None = None
) -> tuple[int, Counter[str]]:
    """Write the pairs to a file; the format is given or told by the suffix.

    Returns:
        How many pairs there were, and what the format could not hold: number of probabilities, nulls, words and blank
        lines at the end that are lost.

    Raises:
        InputError: a format that is only read, or a file that cannot be written.
    """
    name = format_of(path, format_name)
    format_ = FORMATS[name]
    if format_.write is None:
        writable = ", ".join(known for known, each in FORMATS.items() if each.write is not None)
        raise InputError(f"{path}: {name} can be read but not written; allowed are {writable}")
    tally = _Tally(pairs)
    write_atomically(path, format_.write(tally))
    return tally.pairs, Counter({what: n for what, n in tally.held.items() if n and what not in format_.keeps})


class _Tally:
    """Passes pairs on and counts what they hold."""

    def __init__(self, pairs: Iterable[AlignedPair]) -> None:
        self._pairs = pairs
        self.pairs = 0
        self.held: Counter[str] = Counter()

    def __iter__(self) -> Iterator[AlignedPair]:
        for pair in self._pairs:
            self.pairs += 1
            self.held["probabilities"] += len(pair.probabilities)
            nulls = len(pair.null_sources) + len(pair.null_targets)
            self.held["nulls"] += nulls
            self.held["words"] += len(pair.source or ()) + len(pair.target or ())
            self.held[BLANK_ENDS] = 0 if pair.gold.possible or nulls else self.held[BLANK_ENDS] + 1
            yield pair


def write_atomically(path: str | Path, chunks: Iterable[str]) -> None:
    """Write UTF-8 text to a temporary file beside `path`, then move it there; compressed if it ends in `.gz`.

    Raises:
        InputError: the folder does not exist or cannot be written.
    """
    path = Path(path)
    data = (chunk.encode("utf-8") for chunk in chunks)
    write_bytes_atomically(path, lambda temporary: _write_text(temporary, data, compress=path.suffix == ".gz"))


def write_bytes_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it there; errors as in `write_atomically`."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); check the folder") from error
    os.close(descriptor)
    temporary = Path(name)
    try:
        write(temporary)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_text(path: Path, data: Iterable[bytes], *, compress: bool) -> None:
    with path.open("wb") as stream:
        if not compress:
            stream.writelines(data)
            return
        # Without name and time the same links give the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as packed:
            packed.writelines(data)


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
