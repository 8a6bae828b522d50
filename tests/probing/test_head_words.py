"""Many heads from tokens to words at once: the same as one by one."""

from dataclasses import replace

import numpy as np
import pytest
from planted_heads import corpus, random_weights

from hf_seq2seq_attn.probing import SPECIALS, AttentionMaps, TokenizedText, extract_corpus_links, to_words
from hf_seq2seq_attn.probing.head_words import (
    WordStack,
    link_masks,
    mean_of_heads,
    stack_heads,
    stack_words,
)


def uneven_maps(seed: int = 0) -> AttentionMaps:
    """Return maps with words of several tokens, a word without any, structural tokens, and rows with a NULL share."""
    generator = np.random.default_rng(seed)
    source_words: list[int | None] = [None, 0, 0, 2, 3, None]
    target_words: list[int | None] = [0, 1, 1, 1, None]
    weights = random_weights(generator, 2, 3, 5, 6) * generator.uniform(0.5, 1, (2, 3, 5, 1)).astype(np.float32)

    def side(word_of: list[int | None], count: int) -> TokenizedText:
        size = len(word_of)
        return TokenizedText("", [0] * size, ["?"] * size, [None] * size, ["word"] * count, word_of)

    return AttentionMaps(weights, side(source_words, 4), side(target_words, 2), "output", (4, 7), (0, 1, 5))


@pytest.mark.parametrize("specials", SPECIALS)
def test_a_stack_gives_what_each_head_gives(specials: str) -> None:
    maps = uneven_maps()
    stack = stack_words(maps, maps.weights.reshape(6, 5, 6), specials)
    places = [(layer, head) for layer in maps.layers for head in maps.heads]
    for place, (layer, head) in enumerate(places):
        alone = to_words(maps, layer=layer, heads=[head], specials=specials)
        np.testing.assert_allclose(stack.weights[place], alone.weights, atol=1e-6)
        assert (stack.null is None) == (alone.null is None)
        if stack.null is not None and alone.null is not None:
            np.testing.assert_allclose(stack.null[place], alone.null, atol=1e-6)


@pytest.mark.parametrize("how", ["argmax", "mutual", "threshold:0.3", "itermax", "hmm"])
@pytest.mark.parametrize("with_null", [False, True])
def test_masks_are_the_links_of_each_head(how: str, with_null: bool) -> None:
    generator = np.random.default_rng(3)
    stacks = []
    for targets, sources in ((3, 4), (2, 5), (0, 2), (4, 0)):
        weights = random_weights(generator, 3, targets, sources) if sources else np.zeros((3, targets, 0))
        null = generator.random((3, targets)) / 2 if with_null else None
        stacks.append(WordStack(weights, null))
    masks = link_masks(stacks, how)
    for head in range(3):
        nulls = [None if stack.null is None else stack.null[head] for stack in stacks]
        expected = extract_corpus_links([stack.weights[head] for stack in stacks], how, nulls)
        for mask, links in zip(masks, expected, strict=True):
            assert {(int(i), int(j)) for j, i in np.argwhere(mask[head])} == set(links)
    assert sum(int(mask.sum()) for mask in masks) > 0


def test_argmax_of_rows_without_weight_links_nothing() -> None:
    weights = np.array([[[0, 0], [0.2, 0.2]]], dtype=np.float32)
    assert link_masks([WordStack(weights, None)])[0].tolist() == [[[False, False], [True, False]]]


def test_the_mean_of_heads_is_their_layers_mean_and_goes_across_layers() -> None:
    maps = uneven_maps(1)
    np.testing.assert_allclose(mean_of_heads(maps, [(7, 0), (7, 5)]).weights[0, 0], maps.matrix(7, [0, 5]), atol=1e-6)
    across = mean_of_heads(maps, [(4, 1), (7, 5)])
    np.testing.assert_allclose(across.weights[0, 0], (maps.weights[0, 1] + maps.weights[1, 2]) / 2, atol=1e-6)
    assert (across.layers, across.heads, across.source) == ((0,), (0,), maps.source)


def test_norms_of_several_heads_of_a_layer_are_the_norm_of_their_sum() -> None:
    from probes import SENTENCES, foreign_model, subword_tokenizer

    from hf_seq2seq_attn.probing import extract

    maps = next(extract(foreign_model("marian"), subword_tokenizer(), SENTENCES[:1], SENTENCES[1:2], weights="norm"))
    joined = mean_of_heads(maps, [(1, 0), (1, 2)])
    np.testing.assert_allclose(joined.weights[0, 0], maps.matrix(1, [0, 2]), atol=1e-6)
    assert np.abs(joined.weights[0, 0] - maps.weights[1, [0, 2]].mean(axis=0)).max() > 1e-3
    with pytest.raises(ValueError, match="norms of heads of several layers"):
        mean_of_heads(maps, [(0, 0), (1, 2)])
    np.testing.assert_allclose(mean_of_heads(maps, [(0, 1)]).weights[0, 0], maps.weights[0, 1], atol=1e-6)


def test_a_head_that_is_not_held_is_named() -> None:
    maps = uneven_maps()
    with pytest.raises(ValueError, match="layer 4, head 2 is not held"):
        stack_heads(maps, [(4, 1), (4, 2)])
    with pytest.raises(ValueError, match=r"hold the layers \[4, 7\]"):
        mean_of_heads(maps, [(0, 0)])


def test_corpora_of_the_tests_have_rows_that_sum_to_one() -> None:
    maps, _ = corpus()
    assert all(np.allclose(pair.weights.sum(axis=-1), 1, atol=1e-5) for pair in maps)
    assert len({pair.weights.shape for pair in maps}) > 2
    assert replace(maps[0], align_with="input").align_with == "input"
