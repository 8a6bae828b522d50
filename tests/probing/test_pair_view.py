"""What a page shows of a pair: each layer and head of words and of sub-words, from real maps."""

import numpy as np
import pytest
from probes import foreign_model, planted, subword_tokenizer, word_tokenizer

from hf_seq2seq_attn.probing import (
    AttentionMaps,
    Gold,
    PairView,
    SentenceView,
    ViewedMap,
    ViewLevel,
    extract,
    pair_view,
    to_word_links,
    to_words,
)
from hf_seq2seq_attn.probing.pair_view import token_labels
from hf_seq2seq_attn.probing.tokens import tokenize


@pytest.fixture(scope="module")
def maps() -> AttentionMaps:
    model = foreign_model("marian")
    return next(extract(model, subword_tokenizer(), ["the cats love today."], ["I love cats"]))


def test_every_layer_and_head_and_their_means(maps: AttentionMaps) -> None:
    view = pair_view(maps, maps, specials="renormalise", links="mutual")
    assert [each.name for each in view.words.maps[:4]] == [
        "as alignments are read",
        "mean of all layers and heads",
        "layer 0, mean",
        "layer 0, head 0",
    ]
    assert len(view.words.maps) == 2 + 3 + 9
    assert len({each.key for each in view.words.maps}) == 14
    assert view.tokens is not None
    assert [each.key for each in view.tokens.maps] == [each.key for each in view.words.maps]
    for each in view.words.maps[2:]:
        chosen = dict(layer=each.layer, heads=None if each.head is None else [each.head], specials="renormalise")
        np.testing.assert_array_equal(each.matrix, to_words(maps, **chosen).weights)  # type: ignore[arg-type]
        assert each.links == to_word_links(maps, **chosen, links="mutual")  # type: ignore[arg-type]
    np.testing.assert_array_equal(
        view.words.maps[1].matrix, to_words(maps, layer="all", specials="renormalise").weights
    )


def test_sub_words_are_shown_as_the_model_has_them(maps: AttentionMaps) -> None:
    view = pair_view(maps, maps)
    assert view.tokens is not None
    tokens = view.tokens
    assert len(tokens.source) == len(maps.source_tokens)
    np.testing.assert_array_equal(tokens.maps[-1].matrix, maps.matrix(2, [2]))
    assert tokens.source_word == maps.source.word_of
    structural = {place for place, word in enumerate(maps.source.word_of) if word is None}
    assert structural and tokens.maps[-1].links
    assert all(i not in structural for each in tokens.maps for i, _ in each.links)


def test_the_reading_alone_and_maps_without_tokens(maps: AttentionMaps) -> None:
    assert [each.kind for each in pair_view(maps).words.maps] == ["reading"]
    of_words = planted([[0.5, 0.5]], [0, 1], [0])
    assert pair_view(of_words).tokens is None
    # A reading of words beside heads of sub-words: these alone are shown between sub-words.
    fitted = AttentionMaps(
        to_words(maps, layer="all").weights[None, None], *_words_of(maps), maps.align_with, (0,), (0,)
    )
    view = pair_view(fitted, maps)
    assert view.tokens is not None
    assert view.tokens.maps[0].kind == "mean"
    assert view.words.maps[0].kind == "reading"


def _words_of(maps: AttentionMaps):  # type: ignore[no-untyped-def]
    from hf_seq2seq_attn.probing.chosen_maps import _words_as_tokens

    return _words_as_tokens(maps.source), _words_as_tokens(maps.target)


def test_labels_are_the_text_itself_with_joints() -> None:
    (text,) = tokenize(subword_tokenizer(), ["understand שָׁלוֹם"])
    labels = token_labels(text)
    assert labels[-1] == "</s>"
    assert "".join(label.removeprefix("·") for label in labels[:-1]).replace("▁", "") == "understandשָׁלוֹם"
    assert not labels[0].startswith("·")
    assert any(label.startswith("·") for label in labels)
    (plain,) = tokenize(word_tokenizer(), ["w4 w9"])
    assert token_labels(plain) == ["w4", "w9", "</s>"]


def test_one_map_of_a_sentence_is_a_pair() -> None:
    gold = Gold(frozenset({(0, 0)}), frozenset())
    sentence = SentenceView(["a", "b"], ["x"], np.array([[0.25, 0.75]]), frozenset({(1, 0)}), gold)
    pair = PairView.of_sentence(sentence)
    assert (pair.gold, pair.tokens, pair.words.maps[0].links) == (gold, None, sentence.links)


def test_what_does_not_fit_together_is_refused() -> None:
    only = ViewedMap("reading", "a map", np.ones((1, 2)), frozenset({(2, 0)}))
    with pytest.raises(ValueError, match="link 2-0 of a map leaves its map of 2 columns and 1 rows"):
        ViewLevel(["a", "b"], ["x"], [only])
    with pytest.raises(ValueError, match=r"matrix has shape \(1, 2\)"):
        ViewLevel(["a"], ["x"], [only])
    with pytest.raises(ValueError, match="maps is empty"):
        ViewLevel(["a"], ["x"], [])
    level = ViewLevel(["a", "b"], ["x"], [ViewedMap("reading", "a map", np.ones((1, 2)))])
    with pytest.raises(ValueError, match="gold link 0-3 leaves its sentence"):
        PairView(level, gold=Gold(frozenset({(0, 3)}), frozenset()))
