"""Links from matrices by hand, and what holds for every way to read them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from hf_seq2seq_attn.probing import (
    EXTRACTIONS,
    argmax_links,
    extract_corpus_links,
    extract_links,
    hmm_links,
    learn_jumps,
    link_probabilities,
    mutual_links,
    relative_links,
    reverse_links,
    threshold_links,
)

MATRIX = np.array([[0.1, 0.7, 0.2], [0.5, 0.4, 0.1]])  # 2 target words, 3 source words


def test_argmax_links_each_target_word_source_first() -> None:
    assert argmax_links(MATRIX) == {(1, 0), (0, 1)}


def test_argmax_ties_go_to_the_first_and_empty_rows_to_nothing() -> None:
    assert argmax_links(np.array([[0.0, 0.4, 0.4], [0, 0, 0]])) == {(1, 0)}
    assert argmax_links(np.zeros((0, 3))) == argmax_links(np.zeros((2, 0))) == frozenset()


def test_null_wins_when_it_is_at_least_as_heavy() -> None:
    assert argmax_links(MATRIX, null=np.array([0.7, 0.4])) == {(0, 1)}
    assert mutual_links(MATRIX, null=np.array([0.0, 0.9])) == {(1, 0)}


def test_mutual_keeps_what_both_sides_prefer() -> None:
    matrix = np.array([[0.1, 0.7, 0.2], [0.3, 0.6, 0.1]])
    assert argmax_links(matrix) == {(1, 0), (1, 1)}
    assert mutual_links(matrix) == {(1, 0)}


def test_threshold_takes_every_cell_from_there() -> None:
    assert threshold_links(MATRIX, 0.4) == {(1, 0), (0, 1), (1, 1)}
    assert extract_links(MATRIX, "threshold:0.6") == {(1, 0)}


def test_relative_takes_what_comes_near_to_the_rows_best() -> None:
    assert relative_links(MATRIX, 0.75) == {(1, 0), (0, 1), (1, 1)}
    assert relative_links(MATRIX, 0.75, null=np.array([0.0, 0.45])) == {(1, 0), (0, 1)}
    assert relative_links(np.array([[0.4, 0.4, 0.1], [0, 0, 0]]), 1) == {(0, 0), (1, 0)}
    assert extract_links(MATRIX, "relative:0.9") == {(1, 0), (0, 1)}


BAD = ["best", "threshold", "threshold:x", "threshold:0", "threshold:-1", "threshold:nan", "relative", "relative:1.1"]
BAD += ["itermax:0", "itermax:1.5", "argmax:1", "mutual:", "match:2", "ot:0", "ot:inf", "hmm:1", "hmm:-0.1", "", ":2"]


@pytest.mark.parametrize("how", BAD)
def test_unknown_extraction_is_refused(how: str) -> None:
    with pytest.raises(ValueError, match=r"allowed are argmax; mutual; threshold:X with X above 0, .*; hmm\[:X\] with"):
        extract_links(MATRIX, how)


def test_a_link_has_its_share_of_the_target_words_weight() -> None:
    matrix = np.array([[1.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    assert link_probabilities(matrix, {(1, 0), (0, 0), (2, 1)}) == {(1, 0): 0.75, (0, 0): 0.25, (2, 1): 0}
    assert link_probabilities(matrix, [(1, 0)], null=np.array([2.0, 1.0])) == {(1, 0): 0.5}
    with pytest.raises(ValueError, match=r"link \(0, 2\) lies outside a matrix of 2 target and 3 source words"):
        link_probabilities(matrix, [(0, 2)])


def test_broken_matrices_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        argmax_links(np.array([[np.nan, 1.0]]))
    with pytest.raises(ValueError, match=r"shape \(1, 2, 3\)"):
        argmax_links(MATRIX[None])
    with pytest.raises(ValueError, match=r"weight -0\.1"):
        mutual_links(np.array([[-0.1, 1.0]]))
    with pytest.raises(ValueError, match=r"null has shape \(3,\)"):
        argmax_links(MATRIX, null=np.zeros(3))


WAYS = ["argmax", "mutual", "threshold:0.3", "relative:0.6", "itermax", "itermax:3", "match", "ot", "ot:0.1", "hmm"]
SYMMETRIC = ["mutual", "threshold:0.3", "itermax", "itermax:4", "match", "ot"]


def test_every_way_is_tried_below() -> None:
    assert {how.partition(":")[0] for how in WAYS} == set(EXTRACTIONS)


@pytest.mark.parametrize("how", WAYS)
@given(matrix=arrays(np.float32, array_shapes(min_dims=2, max_dims=2, min_side=0), elements=st.floats(0, 1, width=32)))
def test_links_lie_in_the_matrix_and_dead_rows_stay_unlinked(how: str, matrix: np.ndarray) -> None:
    targets, sources = matrix.shape
    for null in (None, np.full(targets, 0.25, dtype=np.float32)):
        links = extract_links(matrix, how, null)
        assert isinstance(links, frozenset)
        assert all(type(i) is int and type(j) is int and 0 <= i < sources and 0 <= j < targets for i, j in links)
        assert all(matrix[j].any() for _, j in links)
        assert all(0 <= p <= 1 for p in link_probabilities(matrix, links, null).values())


@pytest.mark.parametrize("how", SYMMETRIC)
@given(seed=st.integers(0, 2**32 - 1), targets=st.integers(1, 7), sources=st.integers(1, 9))
def test_symmetric_ways_do_not_care_which_side_is_the_source(how: str, seed: int, targets: int, sources: int) -> None:
    # Random weights have no ties, which go to the first word and so depend on the side.
    matrix = np.random.default_rng(seed).random((targets, sources))
    assert extract_links(matrix.T, how) == reverse_links(extract_links(matrix, how))


@pytest.mark.parametrize("how", [*WAYS, "hmm:0"])
@given(seed=st.integers(0, 2**32 - 1), order=st.permutations(range(6)))
def test_a_planted_alignment_is_found(how: str, seed: int, order: list[int]) -> None:
    """Six target words, each with one source word of its own among seven, under noise."""
    matrix = np.random.default_rng(seed).random((6, 7)) * 1e-4
    matrix[range(6), order] = 0.9
    planted = {(i, j) for j, i in enumerate(order)}
    found = extract_links(matrix, how)
    if how.startswith("itermax"):
        # Later rounds link the seventh source word to the best of what is left.
        assert planted <= found and all(i == 6 for i, _ in found - planted if how == "itermax")
    elif how == "hmm":
        # A far jump may cost more than NULL does, which is what a jump is for.
        assert found <= planted and len(found) >= 3
    else:
        assert found == planted


@pytest.mark.parametrize("how", [how for how in WAYS if not how.startswith("threshold")])
@given(seed=st.integers(0, 2**32 - 1), power=st.integers(-6, 6))
def test_only_a_threshold_depends_on_the_scale(how: str, seed: int, power: int) -> None:
    matrix, null = np.random.default_rng(seed).random((5, 4)), np.random.default_rng(seed + 1).random(5)
    assert extract_links(matrix * 2.0**power, how, null * 2.0**power) == extract_links(matrix, how, null)


def test_a_corpus_is_read_pair_by_pair_except_for_the_jumps_of_hmm() -> None:
    generator = np.random.default_rng(3)
    matrices = [generator.random(shape) for shape in ((4, 6), (0, 3), (7, 5))]
    nulls = [None, np.zeros(0), np.full(7, 0.4)]
    for how in ("match", "ot:0.3"):
        each = [extract_links(matrix, how, null) for matrix, null in zip(matrices, nulls, strict=True)]
        assert extract_corpus_links(matrices, how, nulls) == each
    jumps = learn_jumps(matrices, nulls)
    each = [hmm_links(matrix, null, jumps=jumps) for matrix, null in zip(matrices, nulls, strict=True)]
    assert extract_corpus_links(matrices, "hmm", nulls) == each
