"""From planted sub-word attention to words and links, by hand."""

from pathlib import Path

import numpy as np
import pytest
from every_tokenizer import EVERY_KIND
from probes import planted

from hf_seq2seq_attn.probing import AttentionMaps, to_word_links, to_words
from hf_seq2seq_attn.probing.tokens import tokenize

# Source: [un, ##der] = word 0, stand = word 1, </s>. Target: a = word 0, [b, ##b] = word 1, </s>.
SOURCE, TARGET = [0, 0, 1, None], [0, 1, 1, None]
WEIGHTS = [
    [0.2, 0.2, 0.3, 0.3],
    [0.1, 0.1, 0.2, 0.6],
    [0.0, 0.1, 0.6, 0.3],
    [0.0, 0.0, 0.9, 0.1],
]


def test_sum_over_source_pieces_mean_over_target_pieces() -> None:
    words = to_words(planted(WEIGHTS, SOURCE, TARGET))
    np.testing.assert_allclose(words.weights, [[0.4, 0.3], [0.15, 0.4]], atol=1e-6)
    assert words.null is None
    # The heaviest single piece of row 0 is in word 1; the sum makes it word 0.
    assert to_word_links(planted(WEIGHTS, SOURCE, TARGET)) == {(0, 0), (1, 1)}


def test_links_between_tokens_carried_to_words() -> None:
    # Tokens: a -> stand, b -> stand, ##b -> stand; the end token's row links nothing.
    assert to_word_links(planted(WEIGHTS, SOURCE, TARGET), subwords="links") == {(1, 0), (1, 1)}


def test_any_linked_piece_links_the_words() -> None:
    weights = [[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0, 0, 1.0]]
    assert to_word_links(planted(weights, [0, 1, None], [0, 0, None]), subwords="links") == {(0, 0), (1, 0)}
    assert to_word_links(planted(weights, [0, 1, None], [0, 0, None])) == {(0, 0)}


def test_sinks_masked_renormalised_or_null() -> None:
    maps = planted(WEIGHTS, SOURCE, TARGET)
    renormalised = to_words(maps, specials="renormalise")
    np.testing.assert_allclose(
        renormalised.weights, [[4 / 7, 3 / 7], [(0.5 + 1 / 7) / 2, (0.5 + 6 / 7) / 2]], atol=1e-6
    )
    null = to_words(maps, specials="null")
    np.testing.assert_allclose(null.weights, to_words(maps).weights)
    assert null.null is not None
    np.testing.assert_allclose(null.null, [0.3, 0.45], atol=1e-6)
    # Word 1 of the target looks at the end token more than at any word.
    assert to_word_links(maps, specials="null") == {(0, 0)}
    assert to_word_links(maps, specials="null", subwords="links") == {(1, 1)}


def test_null_takes_the_heaviest_structural_token_not_their_sum() -> None:
    maps = planted([[0.3, 0.4, 0.3], [0.5, 0.2, 0.3]], [None, 0, None], [0, None])
    assert to_word_links(maps, specials="null") == {(0, 0)}


def test_null_counts_what_a_null_key_takes() -> None:
    # 0.7 of row 0 and 0.1 of row 1 went to the NULL key.
    weights = [[0.2, 0.1], [0.8, 0.1], [0.0, 1.0]]
    maps = planted(weights, [0, None], [0, 1, None])
    null = to_words(maps, specials="null").null
    assert null is not None
    np.testing.assert_allclose(null, [0.7, 0.1], atol=1e-6)
    for subwords in ("matrix", "links"):
        assert to_word_links(maps, specials="null", subwords=subwords) == {(0, 1)}
        assert to_word_links(maps, subwords=subwords) == {(0, 0), (0, 1)}
    # A threshold looks at each cell by itself.
    assert to_word_links(maps, specials="null", links="threshold:0.2") == {(0, 0), (0, 1)}


def test_a_row_on_structural_tokens_alone_links_nothing() -> None:
    maps = planted([[0.0, 1.0], [1.0, 0.0]], [0, None], [0, None])
    for specials in ("mask", "renormalise", "null"):
        for subwords in ("matrix", "links"):
            assert to_word_links(maps, specials=specials, subwords=subwords) == frozenset()


def test_words_without_tokens_and_blank_sides() -> None:
    maps = planted([[0.5, 0.5], [0.5, 0.5]], [0, 2], [1, None])
    assert to_words(maps).weights.shape == (2, 3)
    assert to_word_links(maps) == {(0, 1)}
    blank = planted([[1.0]], [None], [None])
    assert to_words(blank).weights.shape == (0, 0)
    for subwords in ("matrix", "links"):
        assert to_word_links(blank, subwords=subwords) == frozenset()


@pytest.mark.parametrize("choice", [{"specials": "drop"}, {"subwords": "max"}, {"links": "best"}])
def test_unknown_choices_are_refused(choice: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(choice))} is '{next(iter(choice.values()))}'; allowed are"):
        to_word_links(planted(WEIGHTS, SOURCE, TARGET), **choice)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_words_of_every_kind_of_tokenizer_both_ways(kind: str, given: bool, tmp_path: Path) -> None:
    """Each token looks at itself: words must link to themselves, in any script and whatever the pieces."""
    words = ["the", "cats", "don't", "today.", "日本語", "שָׁלוֹם", "😀", "σήμερα", "today", "."]
    (side,) = tokenize(EVERY_KIND[kind](tmp_path), [words if given else " ".join(words)])
    size = len(side.ids)
    maps = AttentionMaps(np.eye(size, dtype=np.float32)[None, None], side, side, "input", (0,), (0,))
    for subwords in ("matrix", "links"):
        assert to_word_links(maps, subwords=subwords) == {(i, i) for i in range(len(words))}
    matrix = to_words(maps).weights
    # Sums over source pieces and means over target pieces: all of a word's weight lies on the word.
    np.testing.assert_allclose(matrix, np.eye(len(words)), atol=1e-6)
