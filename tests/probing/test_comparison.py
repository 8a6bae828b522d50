"""Two systems on the same sentences: interval, share and p-value against slow versions and known cases."""

import json
from itertools import product

import numpy as np
import pytest

from hf_seq2seq_attn.probing import Gold, alignment_error_rate, compare_scores, score_links

RIGHT, WRONG = frozenset({(0, 0), (1, 1)}), frozenset({(0, 1)})
GOLD = [Gold(RIGHT, frozenset({(2, 2)}))] * 60
WORSE = [WRONG] * 20 + [RIGHT] * 40
BETTER = [WRONG] * 8 + [RIGHT] * 52


def test_a_clear_difference() -> None:
    result = compare_scores(BETTER, WORSE, GOLD)
    assert result.aer == score_links(BETTER, GOLD).aer
    assert result.other_aer == score_links(WORSE, GOLD).aer
    assert result.difference == result.aer - result.other_aer < 0
    low, high = result.ci95
    assert low < result.difference < high < 0
    assert result.better > 0.99
    assert result.p_value < 0.01
    assert (result.sentences, result.resamples) == (60, 1000)
    assert compare_scores(BETTER, WORSE, GOLD) == result


def test_swapping_the_systems_turns_the_result_around() -> None:
    one, other = compare_scores(BETTER, WORSE, GOLD), compare_scores(WORSE, BETTER, GOLD)
    assert other.difference == -one.difference
    assert other.ci95 == pytest.approx([-one.ci95[1], -one.ci95[0]])
    assert other.better == pytest.approx(1 - one.better)
    assert other.p_value == pytest.approx(one.p_value)


def test_the_same_links_do_not_differ() -> None:
    result = compare_scores(WORSE, list(WORSE), GOLD)
    assert (result.difference, result.ci95, result.better, result.p_value) == (0, (0, 0), 0.5, 1)
    # Pairing matters: two systems of equal AER that err on other sentences have an interval.
    low, high = compare_scores(WORSE, WORSE[::-1], GOLD).ci95
    assert low < -0.05 < 0.05 < high
    assert compare_scores(WORSE, WORSE[::-1], GOLD).p_value == 1


def test_the_p_value_is_the_share_of_all_swaps() -> None:
    manual = [Gold(frozenset({(k, k) for k in range(size)}), frozenset()) for size in (1, 2, 3, 1, 2)]
    one = [each.sure for each in manual]
    other = [frozenset({(0, 5)}), frozenset(), one[2], frozenset({(0, 0)}), frozenset({(1, 1)})]
    real = abs(alignment_error_rate(one, manual) - alignment_error_rate(other, manual))
    as_large = 0
    for swaps in product([False, True], repeat=5):
        pairs = [(b, a) if swap else (a, b) for a, b, swap in zip(one, other, swaps, strict=True)]
        left, right = zip(*pairs, strict=True)
        as_large += abs(alignment_error_rate(left, manual) - alignment_error_rate(right, manual)) >= real - 1e-12
    result = compare_scores(one, other, manual, resamples=4000)
    assert result.p_value == pytest.approx(as_large / 32, abs=0.03)


def test_the_interval_equals_resampling_one_by_one() -> None:
    generator = np.random.default_rng(1)
    differences = []
    for _ in range(400):
        chosen = generator.integers(0, 60, 60)
        parts = ([each[k] for k in chosen] for each in (BETTER, WORSE, GOLD))
        better, worse, manual = parts
        differences.append(alignment_error_rate(better, manual) - alignment_error_rate(worse, manual))
    assert compare_scores(BETTER, WORSE, GOLD).ci95 == pytest.approx(np.quantile(differences, [0.025, 0.975]), abs=0.03)


def test_empty_cases_and_bad_values() -> None:
    nothing = compare_scores([], [], [])
    assert (nothing.difference, nothing.ci95, nothing.better, nothing.p_value) == (0, (0, 0), 0.5, 1)
    blank = compare_scores([set()], [set()], [Gold(frozenset(), frozenset())])
    assert (blank.aer, blank.other_aer, blank.p_value) == (0, 0, 1)
    with pytest.raises(ValueError, match="59 sentences of links but 60 of gold"):
        compare_scores(WORSE, WORSE[1:], GOLD)
    with pytest.raises(ValueError, match="resamples is 0"):
        compare_scores(WORSE, WORSE, GOLD, resamples=0)
    assert json.loads(json.dumps(nothing.as_dict()))["ci95"] == [0, 0]
