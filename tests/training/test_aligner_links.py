"""From probabilities to links."""

import numpy as np
import pytest

from hf_seq2seq_attn.training.aligner_links import centred, linked_cells, mixed, tuned_threshold, with_fixed


def test_mixing_is_a_weighted_mean() -> None:
    assert mixed(np.array([[0.2]]), np.array([[1.0]]), 0.25) == pytest.approx(0.4)


def test_centring_moves_the_threshold_to_one_half_and_keeps_order() -> None:
    assert centred(np.array([0.0, 0.1, 0.2, 0.6, 1.0]), 0.2).tolist() == pytest.approx([0, 0.25, 0.5, 0.75, 1])


def test_fixed_links_are_kept_whatever_the_probability() -> None:
    matrix = np.array([[0.9, 0.1], [0.2, 0.3], [0.5, 0.51]])
    assert linked_cells(matrix) == {(0, 0): 0.9, (1, 2): 0.51}
    assert linked_cells(with_fixed([matrix], {0: frozenset({(1, 0)})})[0]) == {(0, 0): 0.9, (1, 2): 0.51, (1, 0): 1.0}


def test_tuned_threshold_separates_the_links() -> None:
    generator = np.random.default_rng(4)
    gold = [generator.random((rows, 6)) < 0.3 for rows in (5, 8)]
    matrices = [np.where(links, 0.4, 0.2) + 0.05 * generator.random(links.shape) for links in gold]
    threshold, error = tuned_threshold(matrices, gold, gold)
    assert 0.25 <= threshold <= 0.4
    assert error == 0
    assert tuned_threshold([1 - matrix for matrix in matrices], gold, gold)[1] > 0.3


def test_possible_links_are_neither_wanted_nor_wrong() -> None:
    cells = np.array([0.9, 0.4, *[0.6] * 4, 0.1])
    sure, possible = np.array([True, True, *[False] * 5]), np.array([*[True] * 6, False])
    threshold, error = tuned_threshold([cells], [sure], [possible])
    assert 0.1 < threshold < 0.4 and error == 0
    assert tuned_threshold([cells], [sure], [sure])[0] > 0.6, "as wrong ones they keep the second sure link out"
