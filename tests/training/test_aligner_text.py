"""Words as features, words left out, and the forms that a teacher is run on."""

import numpy as np
import pytest

from hf_seq2seq_attn.training.aligner_forms import first_of_doubles, teacher_forms
from hf_seq2seq_attn.training.aligner_text import (
    FeatureIndex,
    character_ngrams,
    droppable_punctuation,
    gather,
    is_punctuation,
    linkable_words,
    stripped,
)

GREEK = [["καὶ", "Λόγος"], [], ["λόγου", "καὶ", "λόγῳ"]]
ENGLISH = [["and", ",", "Word"], ["-"], ["of", "words", "and", "Words", "!"]]


def test_bare_forms_have_neither_marks_nor_capitals() -> None:
    assert [stripped(word) for word in ("Λόγος", "בְּרֵאשִׁית", "É")] == ["λογος", "בראשית", "e"]
    assert stripped("\u0301") == "\u0301", "a mark alone must not vanish"


def test_punctuation_has_neither_letter_nor_digit() -> None:
    assert [is_punctuation(word) for word in ("—", "‘", "a", "3", "o'", "ְ", "")] == [True, True] + [False] * 5


def test_ngrams_of_a_word_are_all_its_pieces_with_boundaries() -> None:
    assert character_ngrams("Ab", 2, 3) == ["<a", "ab", "b>", "<ab", "ab>"]
    assert character_ngrams("a", 2, 5) == ["<a", "a>"]


def test_forms_of_one_lemma_share_ngrams_and_rare_forms_are_unknown() -> None:
    index = FeatureIndex.build(GREEK)
    forms, ngrams, rows = index.lexemes([["λόγον", "καὶ"]])
    kept = {index.ngrams[feature - 1] for feature in gather(ngrams, rows[0][:1])[0]}
    assert {"<λογ", "λογο"} <= kept
    assert gather(forms, rows[0][:1])[0].tolist() == [0], "a form that was never met has the unknown feature only"
    assert {index.forms[feature - 1] for feature in gather(forms, rows[0][1:])[0]} == {"c:καὶ", "l:καὶ", "b:και"}


def test_features_of_chosen_types_lie_one_after_another() -> None:
    index = FeatureIndex.build(ENGLISH, least=1)
    forms, _, rows = index.lexemes(ENGLISH)
    types = np.unique(np.concatenate(rows))[[4, 1, 1]]
    features, offsets = gather(forms, types)
    ends = [*offsets[1:], len(features)]
    for kind, start, end in zip(types, offsets, ends, strict=True):
        assert features[start:end].tolist() == forms.features[forms.starts[kind] : forms.starts[kind + 1]].tolist()


def test_a_lemma_is_a_feature_of_its_words() -> None:
    index = FeatureIndex.build([["went"], ["goes"]], [["go"], ["go"]])
    forms, _, rows = index.lexemes([["gone"]], [["go"]])
    assert [index.forms[feature - 1] for feature in gather(forms, rows[0])[0]] == ["m:go"]


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
