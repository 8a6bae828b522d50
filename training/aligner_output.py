"""What an aligner's links become on disk: one line for each line of the texts, in any format that `convert` writes."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from hf_seq2seq_attn.probing import FORMATS, AlignedPair, Gold, Link, format_of, write_matrices, write_pairs
from hf_seq2seq_attn.text_files import InputError

from .aligner_corpus import AlignerText

_BLANK = AlignedPair(Gold(frozenset(), frozenset()), source=(), target=())


def check_format(path: Path | None, name: str | None) -> str:
    """Return the format's name: the given one, else by the file's suffix, else `pharaoh`.

    Raises:
        InputError: an unknown format, or one that is only read.
    """
    try:
        found = format_of(path or "-", name)
    except ValueError as error:
        raise InputError(str(error)) from error
    if FORMATS[found].write is None:
        raise InputError(
            f"{'--format' if path is None else path}: {found} can be read but not written; choose another format"
        )
    return found


def aligned_pairs(text: AlignerText, links: Sequence[Mapping[Link, float]]) -> Iterator[AlignedPair]:
    """Yield what is written of each line; a line that was merged into the one above has no words and no links.

    Args:
        links: of each verse, with a probability each.
    """
    pairs = (
        _pair(source, target, found) for source, target, found in zip(text.source, text.target, links, strict=True)
    )
    return text.per_line(pairs, _BLANK)


def write_alignment(pairs: Iterable[AlignedPair], path: Path | None, format_name: str) -> None:
    """Write the pairs to a file, whole or not at all, or to stdout."""
    if path is not None:
        write_pairs(path, pairs, format_name=format_name)
        return
    write = FORMATS[format_name].write
    assert write is not None
    sys.stdout.writelines(write(pairs))


def write_soft(text: AlignerText, matrices: Iterable[np.ndarray], path: Path) -> None:
    """Write each line's (T, S) probabilities as NPZ; of a merged line a matrix without cells."""
    write_matrices(path, text.per_line(matrices, np.zeros((0, 0), dtype=np.float32)))


def _pair(source: list[str], target: list[str], found: Mapping[Link, float]) -> AlignedPair:
    links = frozenset(found)
    return AlignedPair(
        Gold(links, links),
        # Four digits: more would promise what no aligner knows.
        {link: round(min(max(probability, 0.0), 1.0), 4) for link, probability in found.items()},
        frozenset(range(len(source))) - {i for i, _ in links},
        frozenset(range(len(target))) - {j for _, j in links},
        tuple(source),
        tuple(target),
    )
