"""Alignments as JSON lines: one object for each sentence pair, which can hold all that any other format can.

    {"links": [[0, 0, 0.93], [1, 2]], "possible": [[1, 1]], "null_source": [2], "null_target": [],
     "source": ["a", "b", "c"], "target": ["x", "y", "z"]}

Only `links` (sure ones) is required. Everything counts from 0; a link's third number is its probability.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.text_files import InputError, iterate_lines

from .aligned_pair import AlignedPair, Gold
from .link_types import Link


def iterate_json_lines(path: Path, base: int = 0) -> Iterator[AlignedPair]:
    """Yield the pair of each line.

    Raises:
        InputError: a line that is no such object; names the line and the field.
    """
    for number, line in enumerate(iterate_lines(path), start=1):
        try:
            content = json.loads(line)
            if not isinstance(content, dict) or "links" not in content:
                raise ValueError("no object with the field links")
            yield _pair(content, base, number)
        except ValueError as error:
            raise InputError(f'{path}:{number}: {error}; write e.g. {{"links": [[0, 0, 0.9], [1, 2]]}}') from error


def _pair(content: dict[str, Any], base: int, number: int) -> AlignedPair:
    probabilities: dict[Link, float] = {}
    sure = _links(content, "links", base, probabilities)
    possible = _links(content, "possible", base, probabilities)
    return AlignedPair(
        Gold(sure, sure | possible),
        probabilities,
        _indices(content, "null_source", base),
        _indices(content, "null_target", base),
        _words(content, "source"),
        _words(content, "target"),
        line=number,
    )


def _links(content: dict[str, Any], name: str, base: int, probabilities: dict[Link, float]) -> frozenset[Link]:
    links = []
    for entry in _list(content, name):
        if not isinstance(entry, list) or len(entry) not in (2, 3):
            raise ValueError(f"{name} holds {entry!r}, which is neither [i, j] nor [i, j, probability]")
        link = (_index(entry[0], name, base), _index(entry[1], name, base))
        links.append(link)
        if len(entry) == 3:
            if isinstance(entry[2], bool) or not isinstance(entry[2], int | float) or not 0 <= entry[2] <= 1:
                raise ValueError(f"{name} holds the probability {entry[2]!r}; it must be from 0 to 1")
            probabilities[link] = float(entry[2])
    return frozenset(links)


def _indices(content: dict[str, Any], name: str, base: int) -> frozenset[int]:
    return frozenset(_index(entry, name, base) for entry in _list(content, name))


def _index(value: Any, name: str, base: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < base:
        raise ValueError(f"{name} holds the index {value!r}; indices are whole numbers from {base}")
    return value - base


def _words(content: dict[str, Any], name: str) -> tuple[str, ...] | None:
    if content.get(name) is None:
        return None
    words = _list(content, name)
    if not all(isinstance(word, str) for word in words):
        raise ValueError(f"{name} must be a list of words")
    return tuple(words)


def _list(content: dict[str, Any], name: str) -> list[Any]:
    value = content.get(name, [])
    if not isinstance(value, list):
        raise ValueError(f"{name} is {value!r}, not a list")
    return value


def format_json_line(pair: AlignedPair) -> str:
    """Write one pair as a line of JSON; fields without content are left out."""
    content: dict[str, Any] = {"links": _entries(pair, pair.gold.sure)}
    if pair.gold.possible != pair.gold.sure:
        content["possible"] = _entries(pair, pair.gold.possible - pair.gold.sure)
    for name, indices in (("null_source", pair.null_sources), ("null_target", pair.null_targets)):
        if indices:
            content[name] = sorted(indices)
    for name, words in (("source", pair.source), ("target", pair.target)):
        if words is not None:
            content[name] = list(words)
    return json.dumps(content, ensure_ascii=False)


def _entries(pair: AlignedPair, links: frozenset[Link]) -> list[list[int | float]]:
    return [[i, j, pair.probabilities[i, j]] if (i, j) in pair.probabilities else [i, j] for i, j in sorted(links)]
