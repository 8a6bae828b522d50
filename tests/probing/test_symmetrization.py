"""Two directions into one, on small cases worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hf_seq2seq_attn.probing import COMBINATIONS, SYMMETRIZATIONS, combine, reverse_links, symmetrize

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


FORWARD_MATRIX = np.array([[0.8, 0.2, 0.0], [0.5, 0.5, 0.0]])  # 2 target words, 3 source words
REVERSE_MATRIX = np.array([[0.2, 0.8], [0.3, 0.7], [0.0, 1.0]])  # 3 source words, 2 target words


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("mean", [[0.5, 0.25, 0], [0.65, 0.6, 0.5]]),
        ("product", [[0.16, 0.06, 0], [0.4, 0.35, 0]]),
        ("harmonic", [[0.32, 0.24, 0], [0.8 / 1.3, 0.7 / 1.2, 0]]),
    ],
)
def test_matrices_are_combined_cell_by_cell(how: str, expected: list[list[float]]) -> None:
    np.testing.assert_allclose(combine(FORWARD_MATRIX, REVERSE_MATRIX, how), expected)


@pytest.mark.parametrize("how", COMBINATIONS)
@given(
    forward=arrays(np.float64, (3, 5), elements=st.floats(0, 1)),
    reverse=arrays(np.float64, (5, 3), elements=st.floats(0, 1)),
)
def test_combining_is_symmetric_and_stays_between_zero_and_the_larger(
    how: str, forward: np.ndarray, reverse: np.ndarray
) -> None:
    both = combine(forward, reverse, how)
    np.testing.assert_allclose(combine(reverse, forward, how), both.T, rtol=1e-12, atol=1e-300)
    assert ((both >= 0) & (both <= np.maximum(forward, reverse.T) * (1 + 1e-12))).all()


def test_matrices_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match=r"reverse \(2, 3\); .* one row for each source word: \(3, 2\)"):
        combine(FORWARD_MATRIX, FORWARD_MATRIX, "mean")
    with pytest.raises(ValueError, match="how is 'min'; allowed are mean, product, harmonic"):
        combine(FORWARD_MATRIX, REVERSE_MATRIX, "min")
