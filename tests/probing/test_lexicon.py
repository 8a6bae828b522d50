"""Lexicons read off linked words."""

import random
from collections import Counter

import pytest

from hf_seq2seq_attn.probing.bitext import BitextLine
from hf_seq2seq_attn.probing.lexicon import Lexicon, build_lexicon, rendering
from hf_seq2seq_attn.probing.verses import Verse


def line(number: int, source: str, target: str, links: set[tuple[int, int]] | None, **more: object) -> BitextLine:
    found = None if links is None else frozenset(links)
    verse = Verse(number, (source, target), more.pop("verse_id", None))  # type: ignore[arg-type]
    return BitextLine(verse, source.split(), target.split(), found, **more)  # type: ignore[arg-type]


LINES = [
    line(1, "haus rot haus", "the red house and house", {(0, 0), (0, 2), (1, 1), (2, 4)}),
    line(2, "rot Haus", "house red", {(0, 1), (1, 0)}),
    line(4, "haus blau", "in blue", {(1, 1)}),
]


def test_counts_probabilities_and_places() -> None:
    entries = {(entry.source, entry.target): entry for entry in build_lexicon(LINES).entries()}
    assert list(entries) == [
        # Most frequent words first, then renderings by count and alphabet, without a link under the blank.
        ("haus", None),
        ("haus", "house"),
        ("haus", "the … house"),
        ("rot", "red"),
        ("Haus", "house"),
        ("blau", "blue"),
    ]
    house = entries["haus", "house"]
    assert (house.count, house.source_count, house.target_count, house.examples) == (1, 3, 2, ("1",))
    assert house.target_given_source == pytest.approx(1 / 3)
    assert house.source_given_target == pytest.approx(1 / 2)
    missing = entries["haus", None]
    assert (missing.count, missing.target_count, missing.source_given_target) == (1, 0, None)
    assert entries["rot", "red"].examples == ("1", "2")


def test_case_and_limits() -> None:
    lexicon = build_lexicon(LINES, ignore_case=True, examples=1)
    (best,) = lexicon.entries(min_count=2, top_words=1)
    assert (best.source, best.target, best.count, best.source_count, best.examples) == ("haus", "house", 2, 4, ("1",))
    assert [entry.target for entry in lexicon.entries(top_targets=1)] == ["house", "red", "blue"]
    greek = build_lexicon([line(1, "ΑΥΤΟΣ", "x", {(0, 0)})], ignore_case=True)
    assert next(greek.entries()).source == "αυτος"


def test_lemmas_stand_for_words_and_verses_for_lines() -> None:
    lines = [
        line(1, "went home", "ging heim", {(0, 0)}, source_lemmas=["go", "home"], verse_id="GEN 1:1"),
        line(2, "goes", "gehen wird", {(0, 0), (0, 1)}, source_lemmas=["go"], verse_id="GEN 1:2"),
        line(3, "goes", "gegangen", {(0, 0)}, source_lemmas=["go"], target_lemmas=["gehen"], verse_id="GEN 1:3"),
    ]
    found = [(entry.source, entry.target, entry.examples) for entry in build_lexicon(lines).entries()]
    assert found == [
        ("go", "gehen", ("GEN 1:3",)),
        ("go", "gehen wird", ("GEN 1:2",)),
        ("go", "ging", ("GEN 1:1",)),
        ("home", None, ("GEN 1:1",)),
    ]


def test_rendering() -> None:
    words = list("abcdef")
    assert rendering(words, [4, 1, 0, 4]) == "a b … e"
    assert rendering(words, []) == ""


def test_probabilities_of_a_random_corpus_sum_to_one() -> None:
    chance = random.Random(3)
    lines = []
    for number in range(60):
        source, target = ([chance.choice("abcde") for _ in range(chance.randint(1, 7))] for _ in range(2))
        links = {(chance.randrange(len(source)), chance.randrange(len(target))) for _ in range(6)}
        lines.append(line(number, " ".join(source), " ".join(target), links))
    entries = list(build_lexicon(lines).entries())
    sums: Counter[str] = Counter()
    back: Counter[str] = Counter()
    for entry in entries:
        sums[entry.source] += entry.target_given_source  # type: ignore[assignment]
        if entry.target is not None:
            back[entry.target] += entry.source_given_target  # type: ignore[assignment]
    assert all(total == pytest.approx(1) for total in (*sums.values(), *back.values()))
    assert sum(entry.count for entry in entries) == sum(len(each.source) for each in lines)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="examples is -1"):
        Lexicon(examples=-1)
    with pytest.raises(ValueError, match="line 7 has no links"):
        build_lexicon([line(7, "a", "b", None)])
