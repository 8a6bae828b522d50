"""Links from matrices by hand, and symmetrisation on small cases worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_seq2seq_attn.probing import (
    SYMMETRIZATIONS,
    argmax_links,
    extract_links,
    mutual_links,
    reverse_links,
    symmetrize,
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


@pytest.mark.parametrize("how", ["best", "threshold", "threshold:x", "threshold:0", "threshold:-1", "threshold:nan"])
def test_unknown_extraction_is_refused(how: str) -> None:
    with pytest.raises(ValueError, match=r"allowed are argmax, mutual and threshold:X"):
        extract_links(MATRIX, how)


def test_broken_matrices_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        argmax_links(np.array([[np.nan, 1.0]]))
    with pytest.raises(ValueError, match=r"shape \(1, 2, 3\)"):
        argmax_links(MATRIX[None])


# F and R agree on (1, 1). (1, 2) touches it and shares a word with it: a link for Moses (one word is free), not for
# lilt (both must be). (2, 2) touches it with both words free. (4, 5) and (4, 4) touch nothing of it.
FORWARD = frozenset({(1, 1), (1, 2), (4, 5)})
REVERSE = frozenset({(1, 1), (2, 2), (4, 4)})


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("intersection", {(1, 1)}),
        ("union", {(1, 1), (1, 2), (2, 2), (4, 4), (4, 5)}),
        # (1, 2): target word 2 is free. (2, 2): source word 2 is free.
        ("grow-diag-moses", {(1, 1), (1, 2), (2, 2)}),
        ("grow-diag-lilt", {(1, 1), (2, 2)}),
        # forward first: (4, 5); then (4, 4) has a free target word.
        ("grow-diag-final-moses", {(1, 1), (1, 2), (2, 2), (4, 4), (4, 5)}),
        ("grow-diag-final-and-moses", {(1, 1), (1, 2), (2, 2), (4, 5)}),
        ("grow-diag-final-lilt", {(1, 1), (2, 2), (4, 5)}),
    ],
)
def test_symmetrisation_by_hand(method: str, expected: set[tuple[int, int]]) -> None:
    assert symmetrize(FORWARD, REVERSE, method) == expected


def test_growing_goes_on_from_what_it_added() -> None:
    forward = {(0, 0), (1, 1), (2, 2)}
    assert symmetrize(forward, {(0, 0)}, "grow-diag-lilt") == forward
    # Visited from the far end: (0, 0) is reached only through (1, 1) in a second sweep.
    assert symmetrize(forward, {(2, 2)}, "grow-diag-moses") == forward


def test_unknown_method_names_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match="'grow-diag'; allowed are intersection, union, grow-diag-moses"):
        symmetrize(FORWARD, REVERSE, "grow-diag")


LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 6)))


@given(LINKS, LINKS)
def test_symmetrised_links_lie_between_intersection_and_union(forward: frozenset, reverse: frozenset) -> None:
    for method in SYMMETRIZATIONS:
        links = symmetrize(forward, reverse, method)
        assert forward & reverse <= links <= forward | reverse
        assert isinstance(links, frozenset)
    assert reverse_links(reverse_links(forward)) == forward
