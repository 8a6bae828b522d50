"""One matrix from many maps: a layer, several layers, all of them; chosen heads."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from families import family_model
from probes import subword_tokenizer

from hf_seq2seq_attn.probing import AttentionMaps, align, alignment_heads, extract, to_word_links, to_words
from hf_seq2seq_attn.probing.choices import describe_layer, layers_to_extract

TOKENIZER = subword_tokenizer()
SOURCES, TARGETS = ["the cats love today.", "I love cats"], ["love cats.", "you don't"]


def maps_of(weights: str = "attention", **choice: Any) -> AttentionMaps:
    model = family_model("m2m_100", "sdpa")
    return next(extract(model, TOKENIZER, SOURCES[:1], TARGETS[:1], weights=weights, **choice))


def test_several_layers_are_averaged_whatever_their_order() -> None:
    maps = maps_of()
    np.testing.assert_allclose(maps.matrix([0, 2]), maps.weights[[0, 2]].mean((0, 1)), atol=1e-6)
    np.testing.assert_allclose(maps.matrix((-1, 0), [1]), maps.weights[[2, 0], 1].mean(0), atol=1e-6)
    np.testing.assert_allclose(maps.matrix("all"), maps.weights.mean((0, 1)), atol=1e-6)
    np.testing.assert_allclose(maps.matrix([1]), maps.matrix(1), atol=0)
    np.testing.assert_allclose(maps.matrix(), maps.weights[2].mean(0), atol=1e-6)
    np.testing.assert_allclose(maps.matrix("all").sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("weights", ["norm", "raw_norm"])
def test_layers_of_norms_are_averaged_after_heads_are_joined(weights: str) -> None:
    maps = maps_of(weights)
    expected = np.mean([maps.matrix(layer, [0, 2]) for layer in (1, 2)], axis=0)
    np.testing.assert_allclose(maps.matrix([2, 1], [2, 0]), expected, atol=1e-6)
    if weights == "norm":
        np.testing.assert_allclose(maps.matrix("all").sum(1), 1, atol=1e-5)


def test_layers_and_heads_that_are_not_held_are_refused() -> None:
    maps = maps_of(layers=[2, 0], heads=[1, 2])
    # Negative numbers count from the end of those held.
    np.testing.assert_array_equal(maps.matrix(-1), maps.matrix(0))
    np.testing.assert_array_equal(maps.matrix("all"), maps.matrix([0, 2]))
    for layer in (1, [0, 1], -3):
        with pytest.raises(ValueError, match=r"these maps hold the layers \[2, 0\]"):
            maps.matrix(layer)
    with pytest.raises(ValueError, match="layer is empty"):
        maps.matrix([])
    with pytest.raises(ValueError, match="layer is 'last'; give a number, several numbers, or 'all'"):
        maps.matrix("last")
    with pytest.raises(ValueError, match=r"heads is \[0\]; these maps hold the heads \[1, 2\]"):
        maps.matrix("all", [0])


def test_norms_need_what_they_are_made_of() -> None:
    maps = replace(maps_of("norm"), norms=None)
    np.testing.assert_array_equal(maps.matrix(0, [1]), maps.weights[0, 1])
    with pytest.raises(ValueError, match="kind 'norm' without the `norms`"):
        maps.matrix(0)
    # Maps whose weights were replaced, as those of a mean of heads, are read as they are.
    other = replace(maps_of("norm"), weights=maps.weights[:1, :1] * 0.5, layers=(0,), heads=(0,))
    np.testing.assert_array_equal(other.matrix(), maps.weights[0, 0] * 0.5)


def test_words_and_links_of_several_layers() -> None:
    maps = maps_of()
    joined = replace(maps, weights=maps.weights[[0, 1]].mean((0, 1), keepdims=True), layers=(0,), heads=(0,))
    for specials in ("mask", "null", "renormalise+punctuation"):
        one, other = to_words(maps, layer=[1, 0], specials=specials), to_words(joined, specials=specials)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
        assert (one.null is None) == (other.null is None)
    assert to_word_links(maps, layer=[0, 1], subwords="links") == to_word_links(joined, subwords="links")


@pytest.mark.parametrize("layer", [[0, -1], "all", (1,)])
def test_align_by_several_layers(layer: Any) -> None:
    model = family_model("m2m_100", "sdpa")
    expected = [to_word_links(maps, layer=layer) for maps in extract(model, TOKENIZER, SOURCES, TARGETS)]
    assert align(model, TOKENIZER, SOURCES, TARGETS, layer=layer) == expected


def test_a_choice_of_layers_and_the_configs_heads() -> None:
    config = family_model("bart").config
    config.alignment_layer, config.alignment_heads = 1, [2]
    assert alignment_heads(config) == (1, [2])
    # The config's heads are those of its own layer.
    assert alignment_heads(config, [0, 1]) == ([0, 1], None)
    assert alignment_heads(config, "all") == ("all", None)
    assert layers_to_extract("all") is None
    assert layers_to_extract((0, 2)) == [0, 2]
    assert layers_to_extract(3) == [3]
    with pytest.raises(ValueError, match="layer is 'every'"):
        layers_to_extract("every")
    assert [describe_layer(layer) for layer in (None, 2, [0, -1], "all")] == ["-1", "2", "mean of 0,-1", "mean of all"]
