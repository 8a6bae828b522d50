"""One-to-one links against hand values and against trying every matching."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from hf_seq2seq_attn.probing import itermax_links, match_links, mutual_links
from hf_seq2seq_attn.probing.matching import best_assignment

# Source word 0 is the best of both target words; word 1 comes second for target word 1.
GREEDY = np.array([[0.9, 0.1, 0.3], [0.8, 0.6, 0.0]])


def test_matching_takes_the_largest_sum_of_all() -> None:
    # 0.9 + 0.6 beats 0.8 + 0.3.
    assert match_links(GREEDY) == {(0, 0), (1, 1)}
    assert match_links(np.array([[0.9, 0.8], [0.8, 0.1]])) == {(1, 0), (0, 1)}


def test_matching_leaves_a_word_to_null_where_that_gains() -> None:
    # Without target word 1, whose NULL counts 0.7, word 0 keeps its best.
    assert match_links(GREEDY, null=np.array([0.0, 0.7])) == {(0, 0)}
    assert match_links(GREEDY, null=np.array([0.0, 0.0])) == match_links(GREEDY)
    assert match_links(np.zeros((3, 2))) == match_links(np.zeros((0, 2))) == frozenset()


def best_by_trial(gain: np.ndarray) -> float:
    rows, columns = gain.shape
    if rows > columns:
        return best_by_trial(gain.T)
    return max((sum(gain[range(rows), chosen]) for chosen in permutations(range(columns), rows)), default=0.0)


@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=5), elements=st.floats(0, 1)))
def test_no_matching_has_a_larger_sum(matrix: np.ndarray) -> None:
    links = match_links(matrix)
    assert len({i for i, _ in links}) == len({j for _, j in links}) == len(links)
    assert sum(matrix[j, i] for i, j in links) == pytest.approx(best_by_trial(matrix))


@given(arrays(np.float64, (4, 3), elements=st.integers(0, 9)), arrays(np.float64, 4, elements=st.integers(0, 9)))
def test_matching_with_null_has_the_largest_sum_of_links_and_nulls(matrix: np.ndarray, null: np.ndarray) -> None:
    links = match_links(matrix, null)
    unlinked = set(range(4)) - {j for _, j in links}
    total = sum(matrix[j, i] for i, j in links) + null[list(unlinked)].sum()
    # NULL as columns of their own, one for each target word.
    wide = np.hstack([matrix, np.where(np.eye(4, dtype=bool), null[:, None], 0)])
    assert total == best_by_trial(wide)


def test_a_large_planted_matching_is_found() -> None:
    generator = np.random.default_rng(0)
    order = generator.permutation(150)[:120]
    matrix = generator.random((120, 150))
    matrix[np.arange(120), order] += 1
    assert match_links(matrix) == {(int(i), j) for j, i in enumerate(order)}
    with pytest.raises(ValueError, match="at least as many columns"):
        best_assignment(matrix.T)


# Round 1 links (0, 0) and (2, 2). Round 2 weighs rows and columns of these by 0.9 and their crossing by 0, which leaves
# (1, 1) as it is, and 0.9 * 0.4 in row 2 at column 1 loses to it.
STEPS = np.array([[0.9, 0.2, 0.5], [0.1, 0.5, 0.45], [0.3, 0.4, 0.8]])


def test_itermax_adds_in_rounds() -> None:
    assert itermax_links(STEPS, rounds=1) == mutual_links(STEPS) == {(0, 0), (1, 1), (2, 2)}
    many = np.array([[0.9, 0.8], [0.7, 0.1], [0.6, 0.05]])
    assert itermax_links(many, rounds=1) == {(0, 0)}
    # Row 1 and row 0 are half linked: 0.9 * 0.7 in column 0; 0.9 * 0.8 in column 1.
    assert itermax_links(many) == {(0, 0), (0, 1), (1, 0)}
    assert itermax_links(many, rounds=9) == {(0, 0), (0, 1), (0, 2), (1, 0)}
    assert itermax_links(many, np.array([0, 0, 0.55]), rounds=9) == {(0, 0), (0, 1), (1, 0)}


def test_itermax_discounts_words_that_are_linked() -> None:
    # After (0, 0): 0.9 * 0.5 of the linked source word 0 loses to the free source word 1 with 0.46.
    assert itermax_links(np.array([[0.9, 0.1], [0.5, 0.46]])) == {(0, 0), (1, 1)}
    assert itermax_links(np.array([[0.9, 0.1], [0.5, 0.44]])) == {(0, 0), (0, 1)}
    with pytest.raises(ValueError, match="rounds is 0"):
        itermax_links(STEPS, rounds=0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_more_rounds_keep_the_links_of_fewer(seed: int, rounds: int) -> None:
    matrix = np.random.default_rng(seed).random((5, 6))
    fewer = itermax_links(matrix, rounds=rounds)
    assert mutual_links(matrix) <= fewer <= itermax_links(matrix, rounds=rounds + 1)
