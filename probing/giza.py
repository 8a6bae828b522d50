"""GIZA++'s A3 files: three lines for each sentence pair (Och and Ney 2003's toolkit; also MGIZA).

    # Sentence pair (1) source length 3 target length 4 alignment score : 0.01
    les chats dorment ici
    NULL ({ 4 }) the ({ 1 }) cats ({ 2 }) sleep ({ 3 })

The third line holds the source words, each with the places, from 1, of its words on the second line, the target.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from hf_seq2seq_attn.text_files import InputError, iterate_lines

from .aligned_pair import AlignedPair, Gold

_HEADER = re.compile(r"# Sentence pair \((\d+)\) source length (\d+) target length (\d+) alignment score.*")
_WORD = re.compile(r"(\S+) \(\{((?: \d+)*) \}\)\s*")


def iterate_a3(path: Path) -> Iterator[AlignedPair]:
    """Yield the pairs of an A3 file, with their words and the target words of NULL.

    Raises:
        InputError: lines of another form, lengths that the header contradicts, a place outside the sentence, or pair
            numbers that do not rise one by one (as in MGIZA's parts before they are merged); names the line.
    """
    lines = enumerate(iterate_lines(path), start=1)
    expected = None
    for number, header in lines:
        if not header.strip():
            continue
        match = _HEADER.fullmatch(header.strip())
        if match is None:
            raise InputError(f"{path}:{number}: {header!r} is no A3 header (# Sentence pair (1) source length ...)")
        pair_number, source_length, target_length = map(int, match.groups())
        if expected not in (None, pair_number) or (expected is None and pair_number > 1):
            raise InputError(
                f"{path}:{number}: sentence pair {pair_number} where {expected or 1} should be; "
                "merge and sort the parts first"
            )
        expected = pair_number + 1
        (_, target_line), (_, links_line) = next(lines, (0, None)), next(lines, (0, None))
        if target_line is None or links_line is None:
            raise InputError(f"{path}:{number}: the file ends within this sentence pair; three lines belong to each")
        target = tuple(target_line.split())
        if len(target) != target_length:
            raise InputError(f"{path}:{number + 1}: {len(target)} words, but the header says {target_length}")
        yield _pair(links_line, target, source_length, path, number)


def _pair(line: str, target: tuple[str, ...], source_length: int, path: Path, header: int) -> AlignedPair:
    number = header + 2
    words, place = [], 0
    while match := _WORD.match(line, place):
        words.append((match[1], [int(text) - 1 for text in match[2].split()]))
        place = match.end()
    if place < len(line) or not words or words[0][0] != "NULL":
        raise InputError(f"{path}:{number}: {line[place:] or line!r} is not `NULL ({{ 3 }}) word ({{ 1 2 }}) ...`")
    if len(words) - 1 != source_length:
        raise InputError(f"{path}:{number}: {len(words) - 1} words after NULL, but the header says {source_length}")
    places = [(i, j) for i, (_, targets) in enumerate(words, start=-1) for j in targets]
    outside = next((j for _, j in places if not 0 <= j < len(target)), None)
    if outside is not None:
        raise InputError(f"{path}:{number}: place {outside + 1}, but the line before has {len(target)} words")
    sure = frozenset((i, j) for i, j in places if i >= 0)
    return AlignedPair(
        Gold(sure, sure),
        null_targets=frozenset(j for i, j in places if i < 0),
        source=tuple(word for word, _ in words[1:]),
        target=target,
        line=header,
    )
