"""Pieces of text, and spans of characters carried over by links."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.probing.attention_maps import AttentionMaps
from hf_seq2seq_attn.probing.pieces import cut
from hf_seq2seq_attn.probing.spans import all_runs, best_run, pieces_of_maps, transfer
from hf_seq2seq_attn.probing.tokens import TokenizedText

Span = tuple[int, int]


def pieces(text: str) -> list[str]:
    return [text[piece.start : piece.end] for piece in cut(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't go, well-known 3.14 1,000.", ["Don't", "go", ",", "well-known", "3.14", "1,000", "."]),
        ("a.b 5% x_1", ["a", ".", "b", "5", "%", "x_1"]),
        ("שָׁלוֹם नमस्ते", ["שָׁלוֹם", "नमस्ते"]),
        ("日本go語。ไทยนี้", ["日", "本", "go", "語", "。", "ไ", "ท", "ย", "นี้"]),
        ("👩‍👧 👍🏽! 🇬🇷🇩🇪", ["👩‍👧", "👍🏽", "!", "🇬🇷", "🇩🇪"]),
        ("{name}s %1$s %(n)s {{ x y }} 100% sure", ["{name}", "s", "%1$s", "%(n)s", "{{ x y }}", "100", "%", "sure"]),
        ("see https://x.org/a?b=c.", ["see", "https://x.org/a?b=c", "."]),
        (" - 'quoted' end-", ["-", "'", "quoted", "'", "end", "-"]),
    ],
)
def test_pieces(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected
    assert [piece.is_word for piece in cut("a , 語 %s")] == [True, False, True, True]


@given(st.text())
def test_pieces_hold_all_but_white_space_in_order(text: str) -> None:
    found = cut(text)
    assert all(one.end <= other.start for one, other in pairwise(found))
    covered = {place for piece in found for place in range(piece.start, piece.end)}
    assert all(character.isspace() for place, character in enumerate(text) if place not in covered)


SOURCE = "Hello big world, again."
TARGET = "Wieder, grosse weite Welt hallo."


def spans_of(text: str, *words: str) -> list[Span]:
    return [(text.index(word), text.index(word) + len(word)) for word in words]


def test_a_span_follows_its_words_and_leaves_punctuation_behind() -> None:
    links = [(0, 4), (1, 1), (2, 3), (3, 0)]
    found = transfer([(0, 5), (6, 15), (17, 23), (10, 11), (3, 3)], links, SOURCE, TARGET)
    big_world = (TARGET.index("grosse"), TARGET.index("Welt") + 4)
    # "weite" has no link and stands between; a span inside a word takes the word; an empty one is nowhere.
    assert found == [spans_of(TARGET, "hallo"), [big_world], [(0, 7)], spans_of(TARGET, "Welt"), []]


def test_a_span_that_comes_apart() -> None:
    source, target, links = "call up you", "rufe dich bitte an", [(0, 0), (1, 3), (2, 1)]
    assert transfer([(0, 7)], links, source, target) == [spans_of(target, "rufe", "an")]
    assert transfer([(0, 7)], links, source, target, split="best") == [[(0, len(target))]]
    assert transfer([(0, 7)], [(2, 1)], source, target) == [[]]


def test_words_given_as_lists() -> None:
    assert transfer([(4, 9)], [(1, 0)], ["the", "house", "."], ["maison", "."]) == [[(0, 6)]]


def test_half_of_the_links_are_enough_and_less_is_not() -> None:
    links = [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1)]
    assert transfer([(0, 1)], links, "a b c", "x y") == [[(0, 1)]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([(0, 9)], [], "abc", "x"), r"span \(0, 9\) lies outside a source text of 3"),
        (([(2, 1)], [], "abc", "x"), r"span \(2, 1\)"),
        (([], [(1, 0)], "abc", "x"), "link 1-0 lies outside 1 source and 1 target words"),
        (([], [(0, 0)]), "give source and target"),
    ],
)
def test_bad_arguments(arguments: tuple, message: str) -> None:
    with pytest.raises(UnusableError, match=message):
        transfer(*arguments)
    with pytest.raises(UnusableError, match="split is 'some'; allowed are all, best"):
        transfer([], [], "a", "b", split="some")


def side(text: str, *tokens: str) -> TokenizedText:
    """Return a text with these tokens, found from left to right, and a structural one at the end."""
    spans: list[Span | None] = []
    position = 0
    for token in tokens:
        start = text.index(token, position)
        position = start + len(token)
        spans.append((start, position))
    return TokenizedText(text, list(range(len(tokens) + 1)), [*tokens, "</s>"], [*spans, None], text.split(), [])


def test_maps_link_pieces_by_their_tokens() -> None:
    # The words are "Hi," and "you."; their tokens tell the comma from the word.
    source, target = side("Hi, you.", "Hi", ",", " yo", "u", "."), side("Du, hallo.", "Du", ",", " hal", "lo", ".")
    weights = np.full((6, 6), 0.01, dtype=np.float32)
    for t, s in enumerate((2, 1, 0, 0, 4, 5)):
        weights[t, s] = 0.9
    # The end token draws the most, and is no piece.
    weights[:, 5] = 2.0
    maps = AttentionMaps(weights[None, None], source, target, "input", (0,), (0,))
    assert pieces_of_maps(maps).sources_of == [[2], [1], [0], [3]]
    # The full stop belongs to the second span and went with it, but not beside it.
    assert transfer([(0, 2), (4, 8), (2, 3)], maps) == [[(4, 9)], [(0, 2), (9, 10)], [(2, 3)]]
    with pytest.raises(UnusableError, match="maps know their texts"):
        transfer([], maps, "a", "b")


VOTES = st.lists(st.sampled_from([-(10**6), -1, 0, 1]), max_size=9)


@given(VOTES)
def test_best_run_is_the_best_of_all(votes: list[int]) -> None:
    bounds = [
        (first, last)
        for first, last in product(range(len(votes)), range(1, len(votes) + 1))
        if first < last and votes[first] == votes[last - 1] == 1
    ]
    best = max(bounds, key=lambda run: (sum(votes[slice(*run)]), run[1] - run[0], -run[0]), default=None)
    assert best_run(votes) == best


@given(VOTES)
def test_all_runs_hold_every_vote_for_the_span_and_none_against(votes: list[int]) -> None:
    runs = all_runs(votes)
    held = {place for first, last in runs for place in range(first, last)}
    assert {place for place, vote in enumerate(votes) if vote == 1} <= held
    assert not any(votes[place] < 0 for place in held)
    assert all(votes[first] == votes[last - 1] == 1 for first, last in runs)
