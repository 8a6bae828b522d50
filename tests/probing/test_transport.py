"""The transport plan against its conditions, and the links that it gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_seq2seq_attn.probing import transport_links, transport_plan

SEEDS = st.integers(0, 2**32 - 1)


def objective(plan: np.ndarray, kernel: np.ndarray, relaxation: float) -> float:
    """Return what the plan minimises, with tau from r = tau / (1 + tau); the last column of both is NULL's."""
    tau = relaxation / (1 - relaxation)
    entropy = (plan * (np.log(plan) - np.log(kernel) - 1)).sum()
    marginals = [plan.sum(axis=1), plan[:, :-1].sum(axis=0)]
    return float(entropy + tau * sum((mass * np.log(mass) - mass + 1).sum() for mass in marginals))


@given(seed=SEEDS, targets=st.integers(1, 6), sources=st.integers(1, 6), relaxation=st.sampled_from([0.3, 0.5, 0.9]))
def test_no_plan_nearby_costs_less(seed: int, targets: int, sources: int, relaxation: float) -> None:
    generator = np.random.default_rng(seed)
    kernel = generator.random((targets, sources + 1)) + 0.01
    kernel *= min(targets, sources) / kernel.sum()
    plan = np.column_stack(transport_plan(kernel[:, :-1] * 3, kernel[:, -1] * 3, relaxation=relaxation))
    least = objective(plan, kernel, relaxation)
    for size in (1e-1, 1e-3):
        moved = plan * np.exp(size * generator.standard_normal(plan.shape))
        assert objective(moved, kernel, relaxation) > least


@given(seed=SEEDS, targets=st.integers(1, 7), sources=st.integers(1, 7))
def test_the_plan_is_symmetric_and_keeps_zeros(seed: int, targets: int, sources: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = generator.random((targets, sources)) * (generator.random((targets, sources)) < 0.6)
    plan, _ = transport_plan(matrix)
    np.testing.assert_allclose(transport_plan(matrix.T)[0], plan.T, rtol=1e-5, atol=1e-9)
    assert ((plan > 0) == (matrix > 0)).all()


def test_a_matrix_whose_words_all_spend_one_unit_is_its_own_plan() -> None:
    matrix = np.array([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0.2, 0.3, 0.5]])
    np.testing.assert_allclose(transport_plan(matrix)[0], matrix)
    np.testing.assert_allclose(transport_plan(matrix * 5)[0], matrix)


def test_words_share_what_a_word_of_the_other_side_can_take() -> None:
    # Three target words look at source word 0; only one of them has nowhere else to go.
    matrix = np.array([[0.55, 0.45, 0], [0.55, 0, 0.45], [1, 0, 0]])
    plan, _ = transport_plan(matrix)
    assert plan[2, 0] > plan[0, 0]
    assert plan[0, 1] > plan[0, 0]


def test_null_takes_mass_away() -> None:
    matrix, null = np.array([[0.6, 0.1], [0.1, 0.6]]), np.array([0.3, 0.3])
    plan, nothing = transport_plan(matrix, null)
    assert (plan < transport_plan(matrix)[0]).all()
    np.testing.assert_allclose(nothing, nothing[0])
    assert 0 < nothing[0] < plan[0, 0]
    assert transport_links(matrix, null) == transport_links(matrix) == {(0, 0), (1, 1)}
    assert transport_links(matrix, null * 100) == frozenset()
    assert transport_links(np.zeros((2, 3))) == transport_links(np.zeros((0, 3))) == frozenset()


def test_bad_values_are_refused() -> None:
    with pytest.raises(ValueError, match=r"relaxation is 1; .* below 1"):
        transport_plan(np.eye(2), relaxation=1)
    with pytest.raises(ValueError, match="threshold is 0"):
        transport_links(np.eye(2), threshold=0)
