"""Words as features."""

import numpy as np
import pytest

from hf_seq2seq_attn.training.aligner_text import (
    FeatureIndex,
    character_ngrams,
    gather,
    stripped,
)

GREEK = [["καὶ", "Λόγος"], [], ["λόγου", "καὶ", "λόγῳ"]]
ENGLISH = [["and", ",", "Word"], ["-"], ["of", "words", "and", "Words", "!"]]


def test_bare_forms_have_neither_marks_nor_capitals() -> None:
    assert [stripped(word) for word in ("Λόγος", "בְּרֵאשִׁית", "É")] == ["λογος", "בראשית", "e"]
    assert stripped("\u0301") == "\u0301", "a mark alone must not vanish"


@pytest.mark.parametrize(
    "words",
    [("か", "が"), ("は", "ば", "ぱ"), ("का", "की", "के", "को"), ("में", "मैं"), ("กิน", "กัน")],
    ids=["kana", "kana with a round mark", "Hindi", "Hindi nasals", "Thai"],
)
def test_marks_that_are_letters_by_their_use_stay(words: tuple[str, ...]) -> None:
    assert len({stripped(word) for word in words}) == len(words)


def test_bare_forms_are_composed() -> None:
    assert stripped("한국어") == "한국어" and len(stripped("한국어")) == 3


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
