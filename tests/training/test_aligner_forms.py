"""The forms of a text that a teacher is run on."""

import pytest

from hf_seq2seq_attn.training.aligner_forms import first_of_doubles, teacher_forms
from hf_seq2seq_attn.training.text_kind import linkable_words

GREEK = [["καὶ", "Λόγος"], [], ["λόγου", "καὶ", "λόγῳ"]]
ENGLISH = [["and", ",", "Word"], ["-"], ["of", "words", "and", "Words", "!"]]


def test_signs_of_a_phonetic_alphabet_stay() -> None:
    letters, sounds = [["c", "a", "t"], ["a", "b"]], [["k", "@", "t"], ["@", "b"]]
    assert linkable_words(letters, sounds).target == [[0, 1, 2], [0, 1]]
    forms = teacher_forms(letters, [["k", "@", "T"], ["@", "b"]])
    assert [form.name for form in forms] == ["cased"]
    assert forms[0].target == [["k", "@", "^t"], ["@", "b"]]


def test_forms_differ_and_keep_the_words_places() -> None:
    forms = {form.name: form for form in teacher_forms(GREEK, ENGLISH)}
    assert list(forms) == ["prefixes", "bare-prefixes", "lower"]
    assert forms["prefixes"].source[2] == ["λογο", "και", "λογω"]
    assert forms["bare-prefixes"].source[2] == ["λογου", "και", "λογω"]
    assert forms["lower"].target[2] == ["of", "words", "and", "words"]
    assert forms["prefixes"].target[2] == ["of", "word", "and", "word"]
    restored = forms["lower"].restored([{(0, 1): 1.0}, {}, {}], [{}, {}, {(0, 3): 1.0}])
    assert (restored.forward[0], restored.reverse[2]) == ({(0, 2): 1.0}, {(0, 3): 1.0})


def test_forms_that_do_not_differ_are_given_once() -> None:
    words = [["cat", "dog"], ["cat"]]
    assert [form.name for form in teacher_forms(words, words)] == ["prefixes"]
    assert [form.name for form in teacher_forms(words, words, letters=True)] == ["cased"]
    lemmas = [["feline", "canine"], ["feline"]]
    assert teacher_forms(words, words, lemmas)[0].source == lemmas, "lemmas are given in full"


def test_a_text_to_come_has_all_forms() -> None:
    text = [["ab", "c"]]
    names = [form.name for form in teacher_forms(text, text, distinct=False)]
    assert names == ["prefixes", "bare-prefixes", "lower"]


def test_of_a_double_letter_the_first_takes_the_link() -> None:
    source, target = list("miss"), list("mIs")
    assert first_of_doubles({(0, 0): 1.0, (1, 1): 1.0, (3, 2): 1.0}, source, target) == {
        (0, 0): 1.0, (1, 1): 1.0, (2, 2): 1.0,
    }  # fmt: skip
    both = {(2, 2): 0.4, (3, 2): 0.5}
    assert first_of_doubles(both, source, target) == {(2, 2): 0.9}, "of one sound all goes to the first"
    two_sounds = {(1, 1): 1.0, (2, 2): 1.0}
    assert first_of_doubles(two_sounds, list("moos"), list("mUV")) == two_sounds, "each has a sound of its own"
    assert first_of_doubles({(1, 1): 1.0}, list("ab"), list("tt")) == {(1, 0): 1.0}, "and so on the other side"


def test_the_letter_that_takes_two_letters_links_still_gives_away_one_whole_at_most() -> None:
    form = teacher_forms([list("miss")], [list("mIs")])[0]
    restored = form.restored([{(2, 2): 0.3, (3, 2): 0.6}], [{(2, 2): 0.3, (2, 1): 0.2, (3, 2): 0.9, (0, 0): 0.7}])
    assert restored.forward == [{(2, 2): pytest.approx(0.9)}]
    assert restored.reverse == [
        {(2, 2): pytest.approx(1 / 1.2), (2, 1): pytest.approx(0.2 / 1.2), (0, 0): pytest.approx(0.7)}
    ]


def test_only_texts_of_letters_have_doubles_moved() -> None:
    letters = teacher_forms([list("miss")], [list("mIs")])
    assert letters[0].restored([{(3, 2): 1.0}], [{(3, 2): 1.0}]).forward == [{(2, 2): 1.0}]
    words = teacher_forms([["truly", "truly", "spoken"]], [["wahrlich", "gesagt"]])
    assert words[0].restored([{(1, 0): 1.0}], [{(1, 0): 1.0}]).reverse == [{(1, 0): 1.0}]


def test_prefixes_of_hangul_are_syllables() -> None:
    text = [["한국어", "한국인", "한강"], ["대한민국사람"]]
    assert teacher_forms(text, [["a"], ["b"]])[0].source == [["한국어", "한국인", "한강"], ["대한민국"]]
