"""A small English-Chinese corpus for the classroom, made by a grammar, so that every word link is known.

    python -m hf_seq2seq_attn.training.classroom_corpus -o build/classroom

Its sentences are of the kind of *I love cats* -> 我 喜 欢 猫, which is one of them. Chinese is split into characters.
Times and places stand at the end in English and before the verb in Chinese, numbers need a measure word, questions end
in 吗, and *do* in a negation has no partner: an alignment here is no diagonal.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hf_seq2seq_attn.probing import Links, format_links, write_atomically
from hf_seq2seq_attn.text_files import InputError, check_output_folder

ATTRIBUTION = "Sentences and word links: made by the grammar of hf_seq2seq_attn.training.classroom_corpus."
PARTS = {"train": 4000, "dev": 200, "test": 200}
COLUMNS = ("en", "zh", "align")
LESSON = "I love cats"
_STAMP = "corpus.json"
_GRAMMAR = 1
"""Counted up when the grammar changes, so that a corpus of an older one is made anew."""

# English words -> Chinese characters; a subject says whether its verb takes an -s.
_SUBJECTS = {
    "I": ("我", False), "you": ("你", False), "we": ("我们", False), "they": ("他们", False), "she": ("她", True),
    "he": ("他", True), "Anna": ("安娜", True), "the teacher": ("老师", True), "my friend": ("我的朋友", True),
}  # fmt: skip
_SUBJECT_LINKS = {"the teacher": ((1, 0), (1, 1)), "my friend": ((0, 0), (0, 1), (1, 2), (1, 3))}
_ANIMALS = {"cats": ("猫", "只"), "dogs": ("狗", "只"), "birds": ("鸟", "只"), "horses": ("马", "匹")}
_FOODS = {"apples": ("苹果", "个"), "oranges": ("橙子", "个"), "cakes": ("蛋糕", "块"), "eggs": ("鸡蛋", "个")}
_THINGS = {"books": ("书", "本"), "flowers": ("花", "朵"), "lamps": ("灯", "盏"), "tables": ("桌子", "张")}
_VERBS = {
    "love": ("喜欢", (_ANIMALS, _FOODS, _THINGS)), "see": ("看见", (_ANIMALS, _THINGS)), "eat": ("吃", (_FOODS,)),
    "buy": ("买", (_ANIMALS, _FOODS, _THINGS)), "draw": ("画", (_ANIMALS, _THINGS)), "need": ("需要", (_THINGS,)),
}  # fmt: skip
_NUMBERS = {"two": "两", "three": "三", "five": "五"}
_ADJECTIVES = {"small": "小", "big": "大", "white": "白", "new": "新"}
_TIMES = {"today": "今天", "every day": "每天", "in the evening": "晚上"}
_TIME_LINKS = {"every day": ((0, 0), (1, 1)), "in the evening": ((2, 0), (2, 1))}
_PLACES = {"in the garden": "在花园里", "at home": "在家"}
_PLACE_LINKS = {"in the garden": ((0, 0), (2, 1), (2, 2), (0, 3)), "at home": ((0, 0), (1, 1))}


@dataclass(frozen=True)
class Piece:
    """Words that belong together, and the links between them; `place` orders the pieces in Chinese."""

    english: tuple[str, ...]
    chinese: str
    links: tuple[tuple[int, int], ...]
    place: int


@dataclass(frozen=True)
class Example:
    """A sentence pair as words and characters, with its links, source word first."""

    english: list[str]
    chinese: list[str]
    links: Links


def examples(seed: int = 0) -> Iterator[Example]:
    """Yield sentences of the grammar without end; the same seed gives the same ones."""
    draw = random.Random(seed)
    while True:
        yield _join(_sentence(draw))


def prepare_classroom_corpus(folder: str | Path) -> dict[str, int]:
    """Write `{train,dev,test}.{en,zh,align}` into `folder`; no sentence is in two parts, and the lesson's is in test.

    A corpus that is there is kept.

    Returns:
        The number of lines in each part.
    """
    folder = Path(folder)
    made_from = {"grammar": _GRAMMAR, "lines": PARTS}
    try:
        if json.loads((folder / _STAMP).read_text(encoding="utf-8")) == made_from:
            return dict(PARTS)
    except (OSError, ValueError):
        pass
    different: dict[str, Example] = {}
    for example in examples():
        different.setdefault(" ".join(example.english), example)
        if len(different) > sum(PARTS.values()):
            break
    lesson = different.pop(LESSON, None) or _lesson()
    drawn = list(different.values())
    check_output_folder(folder).mkdir(parents=True, exist_ok=True)
    first = 0
    for part, count in PARTS.items():
        rows = [lesson] if part == "test" else []
        rows += drawn[first : first + count - len(rows)]
        first += count
        write_atomically(folder / f"{part}.en", (" ".join(row.english) + "\n" for row in rows))
        write_atomically(folder / f"{part}.zh", (" ".join(row.chinese) + "\n" for row in rows))
        write_atomically(folder / f"{part}.align", (format_links(row.links) + "\n" for row in rows))
    # Written last, so that an interrupted run is not taken for a whole one.
    write_atomically(folder / _STAMP, [json.dumps(made_from) + "\n"])
    return dict(PARTS)


def _lesson() -> Example:
    return _join([_subject("I"), _verb("love", third=False), _object("cats", _ANIMALS)])


def _sentence(draw: random.Random) -> list[Piece]:
    """Return the pieces of one sentence in English order."""
    subject = draw.choice(list(_SUBJECTS))
    verb = draw.choice(list(_VERBS))
    nouns = draw.choice(_VERBS[verb][1])
    number = draw.choice([None, None, *_NUMBERS])
    adjective = draw.choice([None, None, *_ADJECTIVES])
    third = _SUBJECTS[subject][1]
    rest = [_object(draw.choice(list(nouns)), nouns, number, adjective)]
    if draw.random() < 0.3:
        place = draw.choice(list(_PLACES))
        rest.append(Piece(tuple(place.split()), _PLACES[place], _PLACE_LINKS[place], 2))
    if draw.random() < 0.4:
        time = draw.choice(list(_TIMES))
        rest.append(Piece(tuple(time.split()), _TIMES[time], _TIME_LINKS.get(time) or _all(1, _TIMES[time]), 1))
    kind = draw.random()
    auxiliary = "does" if third else "do"
    if kind < 0.15:
        asked = Piece((auxiliary,), "吗", ((0, 0),), 7)
        return [asked, _subject(subject), _verb(verb, third=False), *rest, Piece(("?",), "？", ((0, 0),), 8)]
    if kind < 0.35:
        negated = Piece((auxiliary, "not"), "不", ((1, 0),), 3)
        return [_subject(subject), negated, _verb(verb, third=False), *rest]
    return [_subject(subject), _verb(verb, third=third), *rest]


def _subject(english: str) -> Piece:
    chinese = _SUBJECTS[english][0]
    return Piece(tuple(english.split()), chinese, _SUBJECT_LINKS.get(english) or _all(1, chinese), 0)


def _verb(english: str, *, third: bool) -> Piece:
    chinese = _VERBS[english][0]
    return Piece((english + "s" if third else english,), chinese, _all(1, chinese), 4)


def _object(
    noun: str, nouns: dict[str, tuple[str, str]], number: str | None = None, adjective: str | None = None
) -> Piece:
    """Return e.g. `two small cats` -> 两只小猫; the number takes the measure word along."""
    english, chinese, links = [], "", []
    if number is not None:
        links += [(0, 0), (0, 1)]
        english, chinese = [number], _NUMBERS[number] + nouns[noun][1]
    for word, characters in ((adjective, _ADJECTIVES.get(adjective or "")), (noun, nouns[noun][0])):
        if word is not None and characters is not None:
            links += [(len(english), len(chinese) + place) for place in range(len(characters))]
            english.append(word)
            chinese += characters
    return Piece(tuple(english), chinese, tuple(links), 5)


def _all(words: int, characters: str) -> tuple[tuple[int, int], ...]:
    return tuple((word, place) for word in range(words) for place in range(len(characters)))


def _join(pieces: Sequence[Piece]) -> Example:
    starts = {}
    chinese: list[str] = []
    for index in sorted(range(len(pieces)), key=lambda each: pieces[each].place):
        starts[index] = len(chinese)
        chinese += pieces[index].chinese
    english: list[str] = []
    links = set()
    for index, piece in enumerate(pieces):
        links |= {(len(english) + i, starts[index] + j) for i, j in piece.links}
        english += piece.english
    return Example(english, chinese, frozenset(links))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 when done and 2 on bad input."""
    parser = argparse.ArgumentParser(description="Write the classroom's English-Chinese corpus with its word links.")
    parser.add_argument("-o", "--output", required=True, help="the folder for the files")
    try:
        lines = prepare_classroom_corpus(parser.parse_args(arguments).output)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
