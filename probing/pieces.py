"""Cut text into pieces between which a tag may stand: words, and every other character by itself.

A word is a run of letters, digits and their marks, with apostrophes, hyphens and, between digits, points and commas
inside it. In scripts without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese) each character with
its marks is a piece. Placeholders and web addresses are pieces as they stand.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

from .placeholders import PLACEHOLDER

_WHOLE = re.compile(rf"(?:{PLACEHOLDER.pattern})|https?://[^\s<>]*[\w/]", re.VERBOSE)
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),
    (0x3040, 0x30FF),  # kana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
_JOINERS = frozenset("'’ʼ-‐‑·")
_DIGIT_JOINERS = frozenset(".,:")
_ZERO_WIDTH_JOINER = "\u200d"


@dataclass(frozen=True)
class Piece:
    """A piece of text: its characters [start, end) and whether it is a word (else punctuation or a symbol)."""

    start: int
    end: int
    is_word: bool


def cut(text: str) -> list[Piece]:
    """Return the pieces of a text from left to right; they hold all of it but white space."""
    pieces: list[Piece] = []
    position = 0
    for match in _WHOLE.finditer(text):
        _cut_between(text, position, match.start(), pieces)
        pieces.append(Piece(match.start(), match.end(), True))
        position = match.end()
    _cut_between(text, position, len(text), pieces)
    return pieces


def _cut_between(text: str, start: int, end: int, pieces: list[Piece]) -> None:
    while start < end:
        kind = _kind(text[start])
        if kind == "space":
            start += 1
            continue
        stop = start + 1
        stop = _end_of_word(text, stop, end) if kind == "word" else _end_of_character(text, stop, end)
        pieces.append(Piece(start, stop, kind in ("word", "unspaced")))
        start = stop


def _end_of_word(text: str, stop: int, end: int) -> int:
    while stop < end:
        if _kind(text[stop]) in ("word", "mark"):
            stop += 1
            continue
        joins = text[stop] in _JOINERS or (text[stop] in _DIGIT_JOINERS and text[stop - 1].isdigit())
        if not joins or stop + 1 == end or _kind(text[stop + 1]) != "word":
            break
        if text[stop] in _DIGIT_JOINERS and not text[stop + 1].isdigit():
            break
        stop += 2
    return stop


def _end_of_character(text: str, stop: int, end: int) -> int:
    """Take in marks and what is joined to an emoji: skin tones, joined emoji, the second half of a flag."""
    if stop < end and _is_half_flag(text[stop - 1]) and _is_half_flag(text[stop]):
        return stop + 1
    while stop < end:
        if text[stop] == _ZERO_WIDTH_JOINER and stop + 1 < end and _kind(text[stop + 1]) == "other":
            stop += 2
        elif _kind(text[stop]) == "mark" or 0x1F3FB <= ord(text[stop]) <= 0x1F3FF:
            stop += 1
        else:
            break
    return stop


def _is_half_flag(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF


@cache
def _kind(character: str) -> str:
    if character.isspace():
        return "space"
    category = unicodedata.category(character)
    # Soft hyphens and (non-)joiners stand inside words.
    if category[0] == "M" or category == "Cf":
        return "mark"
    code = ord(character)
    if any(first <= code <= last for first, last in _UNSPACED) and category[0] in "LN":
        return "unspaced"
    return "word" if character.isalnum() or character == "_" else "other"
