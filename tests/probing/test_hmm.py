"""The hidden Markov model against a sum and a maximum over every path."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_seq2seq_attn.probing import JumpModel, argmax_links, hmm_links, hmm_posteriors, learn_jumps
from hf_seq2seq_attn.probing.hmm import DEFAULT_JUMPS, _emissions, _ForwardBackward

JUMPS = JumpModel(np.array([0.2, 0.5, 1.0, 2.0, 0.7]), null=0.3)  # jumps -2..2; longer ones count as 2
CASES = dict(
    seed=st.integers(0, 2**32 - 1), targets=st.integers(1, 4), sources=st.integers(1, 4), given_null=st.booleans()
)


def drawn(seed: int, targets: int, sources: int, given_null: bool) -> tuple[np.ndarray, np.ndarray | None]:
    generator = np.random.default_rng(seed)
    return generator.random((targets, sources)) ** 3 + 0.01, generator.random(targets) if given_null else None


def every_path(matrix: np.ndarray, null: np.ndarray | None) -> dict[tuple[int, ...], float]:
    """Return the score of each path, one source word or -1 (NULL) for each target word."""
    targets, sources = matrix.shape
    nothing = matrix.mean(axis=1) if null is None else null
    total = matrix.sum(axis=1) + (0 if null is None else null)
    paths = {}
    for path in product(range(-1, sources), repeat=targets):
        score, last = 1.0, None
        for t, i in enumerate(path):
            if i < 0:
                score *= 0.3 * nothing[t] / total[t]
                continue
            weights = [1.0 if last is None else JUMPS.weights[max(-2, min(2, k - last)) + 2] for k in range(sources)]
            score *= 0.7 * weights[i] / sum(weights) * matrix[t, i] / total[t]
            last = i
        paths[path] = score
    return paths


@given(**CASES)
def test_viterbi_finds_the_best_of_all_paths(seed: int, targets: int, sources: int, given_null: bool) -> None:
    matrix, null = drawn(seed, targets, sources, given_null)
    paths = every_path(matrix, null)
    best = max(paths, key=lambda path: paths[path])
    assert hmm_links(matrix, null, jumps=JUMPS) == {(i, t) for t, i in enumerate(best) if i >= 0}


@given(**CASES)
@settings(max_examples=50)
def test_posteriors_and_likelihood_are_sums_over_all_paths(
    seed: int, targets: int, sources: int, given_null: bool
) -> None:
    matrix, null = drawn(seed, targets, sources, given_null)
    paths = every_path(matrix, null)
    total = sum(paths.values())
    expected = np.zeros((targets, sources + 1))
    jumps = np.zeros((sources, sources))
    for path, score in paths.items():
        expected[range(targets), path] += score / total
        seen = [i for i in path if i >= 0]
        for before, after in pairwise(seen):
            jumps[before, after] += score / total
    links, nulls = hmm_posteriors(matrix, null, jumps=JUMPS)
    np.testing.assert_allclose(links, expected[:, :-1], atol=1e-12)
    np.testing.assert_allclose(nulls, expected[:, -1], atol=1e-12)
    shares, null_shares, _ = _emissions(matrix, null)
    passed = _ForwardBackward(shares, null_shares, JUMPS)
    np.testing.assert_allclose(passed.jumps, jumps, atol=1e-12)
    assert passed.log_likelihood == pytest.approx(np.log(total))


def test_the_neighbours_decide_where_a_row_does_not() -> None:
    # The word at target 2 occurs twice in the source, at 2 and 5: the way from 1 to 3 goes through 2.
    matrix = np.full((5, 6), 0.02)
    matrix[range(5), [0, 1, 5, 3, 4]] = 0.5
    matrix[2, 2] = 0.49
    assert (5, 2) in argmax_links(matrix)
    assert hmm_links(matrix) == {(k, k) for k in range(5)}


def test_a_row_that_prefers_nothing_goes_to_null_and_the_path_goes_on() -> None:
    matrix = np.full((5, 5), 0.02) + np.eye(5)
    matrix[2] = 0.2
    null = np.zeros(5)
    null[2] = 0.9
    jumps = DEFAULT_JUMPS.with_null(0.5)
    assert hmm_links(matrix, null, jumps=jumps) == {(k, k) for k in (0, 1, 3, 4)}
    matrix[2] = 0
    assert hmm_links(matrix, jumps=DEFAULT_JUMPS.with_null(0)) == {(k, k) for k in (0, 1, 3, 4)}
    links, nulls = hmm_posteriors(matrix)
    assert nulls[2] == 1
    np.testing.assert_allclose(links.sum(axis=1) + nulls, 1)
    assert hmm_links(np.zeros((3, 2))) == hmm_links(np.zeros((0, 2))) == hmm_links(np.zeros((2, 0))) == frozenset()


def backwards_corpus() -> list[np.ndarray]:
    """Pairs whose target runs through the source backwards, seen through noise."""
    generator = np.random.default_rng(5)
    corpus = []
    for length in (5, 8, 7, 9, 6, 8):
        matrix = generator.random((length, length))
        matrix[range(length), range(length - 1, -1, -1)] += 0.8
        corpus.append(matrix)
    return corpus


def test_learning_finds_the_jumps_of_the_corpus_and_mends_its_links() -> None:
    corpus = backwards_corpus()
    jumps = learn_jumps(corpus, iterations=8)
    assert jumps.weights.argmax() - len(jumps.weights) // 2 == -1
    assert jumps.null == DEFAULT_JUMPS.null
    truth = [{(len(matrix) - 1 - t, t) for t in range(len(matrix))} for matrix in corpus]
    right = [
        sum(len(links(matrix) & gold) for matrix, gold in zip(corpus, truth, strict=True))
        for links in (argmax_links, hmm_links, lambda matrix: hmm_links(matrix, jumps=jumps.with_null(0.05)))
    ]
    assert right[2] == sum(map(len, truth)) > max(right[:2])


def test_every_round_raises_the_likelihood() -> None:
    corpus = [_emissions(matrix, None)[:2] for matrix in backwards_corpus()]
    likelihood = []
    for rounds in range(1, 8):
        jumps = learn_jumps(backwards_corpus(), iterations=rounds, learn_null=True)
        likelihood.append(sum(_ForwardBackward(*pair, jumps).log_likelihood for pair in corpus))
    assert all(later >= earlier - 1e-6 for earlier, later in pairwise(likelihood))
    assert likelihood[-1] > likelihood[0] + 1


def test_what_is_learned_cannot_be_bettered_nearby() -> None:
    """Sentences of unequal length, so that some jumps are possible in few of them."""
    generator = np.random.default_rng(8)
    corpus = [generator.random(shape) ** 4 for shape in ((6, 2), (5, 3), (4, 6), (7, 4)) * 2]
    pairs = [_emissions(matrix, None)[:2] for matrix in corpus]
    learned = learn_jumps(corpus, iterations=400, start=JUMPS, learn_null=True)

    def likelihood(weights: np.ndarray, null: float) -> float:
        return sum(_ForwardBackward(*pair, JumpModel(weights, null)).log_likelihood for pair in pairs)

    best = likelihood(learned.weights, learned.null)
    for factor in (0.9, 1.1):
        assert likelihood(learned.weights, learned.null * factor) < best + 1e-6
        for jump in np.flatnonzero(learned.weights > 2e-4):  # the others are held at the floor
            moved = learned.weights.copy()
            moved[jump] *= factor
            assert likelihood(moved, learned.null) < best + 1e-6


def test_learning_from_nothing_changes_nothing() -> None:
    assert learn_jumps([]) is DEFAULT_JUMPS or (learn_jumps([]).weights == DEFAULT_JUMPS.weights).all()
    assert (learn_jumps([np.zeros((2, 3)), np.ones((1, 4))]).weights == DEFAULT_JUMPS.weights).all()


def test_bad_values_are_refused() -> None:
    with pytest.raises(ValueError, match="2 n \\+ 1 finite numbers"):
        JumpModel(np.ones(4), 0.1)
    with pytest.raises(ValueError, match="null is 1"):
        JumpModel(np.ones(3), 1)
    with pytest.raises(ValueError, match="iterations is 0"):
        learn_jumps([], iterations=0)
