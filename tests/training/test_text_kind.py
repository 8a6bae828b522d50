"""What kind of text a bitext is, and the words that take part."""

import pytest

from hf_seq2seq_attn.training.text_kind import TextKind, droppable_punctuation, is_punctuation, linkable_words

GREEK = [["καὶ", "Λόγος"], [], ["λόγου", "καὶ", "λόγῳ"]]
ENGLISH = [["and", ",", "Word"], ["-"], ["of", "words", "and", "Words", "!"]]


def test_punctuation_has_neither_letter_nor_digit() -> None:
    assert [is_punctuation(word) for word in ("—", "‘", "a", "3", "o'", "ְ", "")] == [True, True] + [False] * 5


def test_punctuation_is_left_out_where_the_other_side_has_none() -> None:
    assert droppable_punctuation(GREEK, ENGLISH) == (False, True)
    assert droppable_punctuation(ENGLISH, ENGLISH) == (False, False)
    left_out = linkable_words(GREEK, ENGLISH)
    assert left_out.target == [[0, 2], [], [0, 1, 2, 3]]
    assert left_out.source == [[0, 1], [], [0, 1, 2]]
    assert left_out.apply(GREEK, ENGLISH)[1] == [["and", "Word"], [], ["of", "words", "and", "Words"]]


def test_links_come_back_to_their_places() -> None:
    left_out = linkable_words(GREEK, ENGLISH)
    links = [{(0, 0): 1.0, (1, 1): 0.5}, {}, {(2, 3): 0.25}]
    restored = left_out.restored(links)
    assert restored == [{(0, 0): 1.0, (1, 2): 0.5}, {}, {(2, 3): 0.25}]
    assert left_out.reduced(restored) == links
    assert left_out.reduced([{(0, 1): 1.0}, {}, {}]) == [{}, {}, {}], "a link with a word left out is dropped"


@pytest.mark.parametrize(
    ("source", "target", "letters"),
    [
        ("cat", "k@t", True),
        ("ねこ", "neko", True),
        ("我看見他。", "我见到了他。", False),
        ("我见他", "彼を見た", False),
        ("고양이", "ねこ", False),
    ],
    ids=["sounds", "kana and sounds", "Chinese", "Chinese and Japanese", "Hangul and kana"],
)
def test_han_characters_and_syllables_on_both_sides_are_no_letters(source: str, target: str, letters: bool) -> None:
    assert TextKind.of([list(source)], [list(target)]).letters is letters
