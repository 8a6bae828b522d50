"""Alignments of one direction and of two, against the steps done by hand."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from probes import foreign_model, subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import (
    COMBINATIONS,
    Aligner,
    AttentionMaps,
    LearnedJumps,
    PairAlignment,
    Reading,
    SentenceError,
    align,
    combine,
    extract,
    extract_corpus_links,
    extract_links,
    hmm_links,
    learn_jumps,
    link_probabilities,
    reverse_links,
    symmetrize,
    to_word_links,
    to_words,
)

SOURCES = ["the cats love today. I", "", "understand this today.", "I", "cats love the day"]
TARGETS = ["love cats unloved", "day", "the day I understand", "", "this day"]
TOKENIZER = subword_tokenizer()


@pytest.fixture(scope="module")
def forward() -> tuple[Any, Any]:
    return tiny_model(decoder_type="gru", vocab_size=73, encoder_type="gru"), TOKENIZER


@pytest.fixture(scope="module")
def reverse() -> tuple[Any, Any]:
    return foreign_model("marian"), TOKENIZER


def maps_of(side: tuple[Any, Any], sources: list[str], targets: list[str]) -> list[AttentionMaps]:
    return list(extract(*side, sources, targets, layers=[-1]))


def links_of(found: Iterator[PairAlignment]) -> list[frozenset[tuple[int, int]]]:
    return [each.pair.gold.sure for each in found]


@pytest.mark.parametrize("subwords", ["matrix", "links"])
@pytest.mark.parametrize("specials", ["mask", "null"])
def test_one_direction_is_align(forward: tuple[Any, Any], subwords: str, specials: str) -> None:
    reading = Reading(links="relative:0.6", subwords=subwords, specials=specials, layer=0, heads=(0,))
    found = list(Aligner(forward, reading=reading, batch_size=2).align(SOURCES, TARGETS))
    choices = dict(links="relative:0.6", subwords=subwords, specials=specials, layer=0, heads=[0])
    expected = align(*forward, SOURCES, TARGETS, **choices)  # type: ignore[arg-type]
    assert [each.pair.gold.sure for each in found] == expected
    for each, maps in zip(found, maps_of(forward, SOURCES, TARGETS), strict=True):
        words = to_words(maps, specials=specials)
        assert each.matrix == pytest.approx(words.weights, abs=1e-6)
        shares = link_probabilities(words.weights, each.pair.gold.sure, words.null)
        assert each.pair.probabilities == pytest.approx(shares, abs=1e-5)
        assert (each.pair.source, each.pair.target) == (tuple(maps.source_words), tuple(maps.target_words))
        linked = {i for i, _ in each.pair.gold.sure}, {j for _, j in each.pair.gold.sure}
        assert linked[0] | each.pair.null_sources == set(range(len(maps.source_words)))
        assert linked[1] | each.pair.null_targets == set(range(len(maps.target_words)))
        assert not linked[0] & each.pair.null_sources and not linked[1] & each.pair.null_targets


@pytest.mark.parametrize("subwords", ["matrix", "links"])
def test_links_of_two_directions_are_symmetrised(
    forward: tuple[Any, Any], reverse: tuple[Any, Any], subwords: str
) -> None:
    reading = Reading(symmetrize="union", subwords=subwords)
    found = list(Aligner(forward, reverse, reading).align(SOURCES, TARGETS))
    pairs = zip(found, maps_of(forward, SOURCES, TARGETS), maps_of(reverse, TARGETS, SOURCES), strict=True)
    for each, ours, theirs in pairs:
        one, other = to_word_links(ours, subwords=subwords), reverse_links(to_word_links(theirs, subwords=subwords))
        assert each.pair.gold.sure == symmetrize(one, other, "union")
        matrices = to_words(ours).weights, to_words(theirs).weights
        assert each.matrix == pytest.approx((matrices[0] + matrices[1].T) / 2, abs=1e-6)
        for (i, j), share in each.pair.probabilities.items():
            rows = matrices[0][j], matrices[1][i]
            assert share == pytest.approx((rows[0][i] / rows[0].sum() + rows[1][j] / rows[1].sum()) / 2, abs=1e-5)


@pytest.mark.parametrize("how", sorted(COMBINATIONS))
def test_matrices_of_two_directions_are_combined(forward: tuple[Any, Any], reverse: tuple[Any, Any], how: str) -> None:
    found = Aligner(forward, reverse, Reading(combine=how, links="mutual")).align(SOURCES, TARGETS)
    pairs = zip(found, maps_of(forward, SOURCES, TARGETS), maps_of(reverse, TARGETS, SOURCES), strict=True)
    for each, ours, theirs in pairs:
        matrix = combine(to_words(ours).weights, to_words(theirs).weights, how)
        assert each.matrix == pytest.approx(matrix, abs=1e-6)
        assert each.pair.gold.sure == extract_links(matrix, "mutual")


def test_a_combined_matrix_loses_what_null_outweighs(forward: tuple[Any, Any], reverse: tuple[Any, Any]) -> None:
    found = Aligner(forward, reverse, Reading(combine="mean", specials="null")).align(SOURCES, TARGETS)
    pairs = zip(found, maps_of(forward, SOURCES, TARGETS), maps_of(reverse, TARGETS, SOURCES), strict=True)
    lost = 0
    for each, ours, theirs in pairs:
        kept = []
        for words in (to_words(ours, specials="null"), to_words(theirs, specials="null")):
            matrix = words.weights.copy()
            for j, row in enumerate(matrix):
                row[row <= words.null[j]] = 0  # type: ignore[index]
            lost += int((matrix == 0).sum())
            kept.append(matrix)
        assert each.matrix == pytest.approx(combine(*kept, "mean"), abs=1e-6)
    assert lost > 0


@pytest.mark.parametrize("subwords", ["matrix", "links"])
def test_hmm_uses_the_jumps_of_the_corpus(forward: tuple[Any, Any], reverse: tuple[Any, Any], subwords: str) -> None:
    aligner = Aligner(forward, reading=Reading(links="hmm:0.1", subwords=subwords))
    jumps = aligner.learn(SOURCES, TARGETS)
    found = links_of(aligner.align(SOURCES, TARGETS, jumps))
    assert jumps.forward is not None and jumps.forward.null == 0.1 and jumps.reverse is None
    if subwords == "matrix":
        matrices = [to_words(maps).weights for maps in maps_of(forward, SOURCES, TARGETS)]
        assert found == extract_corpus_links(matrices, "hmm:0.1")
    two = Aligner(forward, reverse, Reading(links="hmm:0.1", subwords=subwords)).learn(SOURCES, TARGETS)
    assert two.forward is not None and two.reverse is not None
    assert two.forward.weights == pytest.approx(jumps.forward.weights)
    assert not np.allclose(two.forward.weights, two.reverse.weights)


def test_combined_matrices_learn_their_own_jumps(forward: tuple[Any, Any], reverse: tuple[Any, Any]) -> None:
    aligner = Aligner(forward, reverse, Reading(links="hmm", combine="mean"))
    jumps = aligner.learn(SOURCES, TARGETS)
    matrices = [each.matrix for each in aligner.align(SOURCES, TARGETS)]
    learned = learn_jumps(matrices)
    assert jumps.reverse is None and jumps.forward is not None
    assert jumps.forward.weights == pytest.approx(learned.weights)
    assert links_of(aligner.align(SOURCES, TARGETS, jumps)) == [hmm_links(each, jumps=learned) for each in matrices]


def test_other_ways_learn_nothing_and_run_no_model(forward: tuple[Any, Any]) -> None:
    assert Aligner(forward, reading=Reading(links="mutual")).learn(["w " * 900], [""]) == LearnedJumps()


@pytest.mark.parametrize(
    ("reading", "two", "message"),
    [
        (Reading(links="best"), False, "links is 'best'"),
        (Reading(symmetrize="union"), False, "give reverse_model"),
        (Reading(combine="mean"), False, "give reverse_model"),
        (Reading(symmetrize="grow-diag"), True, "grow-diag-moses"),
        (Reading(combine="sum"), True, "combine is 'sum'; allowed are mean, product, harmonic"),
        (Reading(combine="mean", symmetrize="union"), True, "links or matrices, give one"),
        (Reading(combine="mean", subwords="links"), True, "leave subwords at 'matrix'"),
    ],
)
def test_choices_that_do_not_go_together(reading: Reading, two: bool, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reading.checked(two)


def test_the_choices_in_words(forward: tuple[Any, Any], reverse: tuple[Any, Any]) -> None:
    assert Aligner(forward).describe() == (
        "rows output, layer -1, heads mean of all, weights attention, specials mask, sub-words matrix, links argmax"
    )
    assert Aligner(forward, reverse, Reading(heads=(0, 2), layer=1)).describe() == (
        "rows output, layer 1, heads 0,2; reverse: rows input, layer 1, heads 0,2, weights attention, specials mask, "
        "sub-words matrix, links argmax, two directions symmetrised by grow-diag-final-and-moses"
    )
    assert "combined by harmonic" in Aligner(forward, reverse, Reading(combine="harmonic")).describe()


def test_a_sentence_of_the_reverse_model_is_named_by_its_side_of_the_pair(forward: tuple[Any, Any]) -> None:
    small = tiny_model(vocab_size=73, max_position_embeddings=9, position_embedding_type="learned")
    aligner = Aligner(forward, (small, TOKENIZER))
    with pytest.raises(SentenceError, match="reverse model: ") as caught:
        list(aligner.align(["cats", "I"], ["love", "cats " * 20]))
    assert (caught.value.side, caught.value.number) == ("target", 2)
