"""Systems with several seeds against the figures computed by hand and slowly."""

import json
import random
import statistics
from collections.abc import Sequence

import numpy as np
import pytest

from hf_seq2seq_attn.probing import Gold, alignment_error_rate, compare_scores, compare_systems, score_links
from hf_seq2seq_attn.probing.system_comparison import holm

Links = frozenset[tuple[int, int]]
SENTENCES = 40


def gold() -> list[Gold]:
    draw = random.Random(3)
    made = []
    for _ in range(SENTENCES):
        sure = frozenset((k, k) for k in range(draw.randint(1, 5)))
        made.append(Gold(sure, frozenset({(0, 1)}) | sure))
    return made


def noisy(share: float, seed: int) -> list[Links]:
    """Return gold's sure links with this share of them replaced by wrong ones."""
    draw = random.Random(seed)
    return [frozenset((i, j + 7) if draw.random() < share else (i, j) for i, j in sorted(each.sure)) for each in GOLD]


GOLD = gold()
SYSTEMS = {
    "good": [noisy(0.1, 1), noisy(0.1, 2), noisy(0.12, 3)],
    "bad": [noisy(0.4, 4), noisy(0.45, 5)],
    "same": [noisy(0.1, 6)],
}


def test_mean_and_deviation_over_seeds() -> None:
    result = compare_systems(SYSTEMS, GOLD)
    assert [system.name for system in result.systems] == ["good", "bad", "same"]
    for system in result.systems:
        aers = [alignment_error_rate(links, GOLD) for links in SYSTEMS[system.name]]
        assert system.aer == pytest.approx(statistics.mean(aers))
        assert system.deviation == (pytest.approx(statistics.stdev(aers)) if len(aers) > 1 else None)
        scores = [score_links(links, GOLD) for links in SYSTEMS[system.name]]
        assert list(system.seeds) == scores
        assert system.recall == pytest.approx(statistics.mean(score.recall for score in scores))
        assert system.precision == pytest.approx(statistics.mean(score.precision for score in scores))
        assert system.f1 == pytest.approx(statistics.mean(score.f1 for score in scores))
        low, high = system.ci95
        assert low < system.aer < high
    assert (result.sentences, result.sure) == (SENTENCES, sum(len(each.sure) for each in GOLD))


def test_the_interval_is_that_of_a_slow_bootstrap_over_sentences() -> None:
    draw = np.random.default_rng(11)
    means = []
    for _ in range(600):
        chosen = draw.integers(0, SENTENCES, SENTENCES)
        means.append(
            statistics.mean(
                alignment_error_rate([links[k] for k in chosen], [GOLD[k] for k in chosen]) for links in SYSTEMS["bad"]
            )
        )
    (system,) = compare_systems({"bad": SYSTEMS["bad"]}, GOLD).systems
    assert system.ci95 == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.02)


def test_one_seed_each_is_the_comparison_of_two_link_files() -> None:
    one, other = SYSTEMS["good"][0], SYSTEMS["bad"][0]
    (difference,) = compare_systems({"a": [one], "b": [other]}, GOLD).differences
    expected = compare_scores(one, other, GOLD)
    assert (difference.name, difference.other) == ("a", "b")
    assert difference.difference == pytest.approx(expected.difference)
    assert difference.ci95 == pytest.approx(expected.ci95)
    assert difference.better == expected.better
    assert difference.p_value == difference.p_holm == expected.p_value


def test_differences_tell_luck_from_skill() -> None:
    result = compare_systems(SYSTEMS, GOLD)
    by_names = {(each.name, each.other): each for each in result.differences}
    assert list(by_names) == [("good", "bad"), ("good", "same"), ("bad", "same")]
    clear, none = by_names["good", "bad"], by_names["good", "same"]
    assert clear.difference < clear.ci95[1] < 0 and clear.p_value < 0.01 and clear.better > 0.99
    assert none.ci95[0] < 0 < none.ci95[1] and none.p_value > 0.2
    assert clear.difference == pytest.approx(result.systems[0].aer - result.systems[1].aer)


def test_a_system_does_not_differ_from_its_copy() -> None:
    (difference,) = compare_systems({"a": SYSTEMS["bad"], "b": SYSTEMS["bad"][::-1]}, GOLD).differences
    assert difference.difference == pytest.approx(0, abs=1e-12)
    assert difference.p_value == 1


def test_the_order_of_systems_turns_the_sign_only() -> None:
    one = compare_systems({"a": SYSTEMS["good"], "b": SYSTEMS["bad"]}, GOLD).differences[0]
    other = compare_systems({"b": SYSTEMS["bad"], "a": SYSTEMS["good"]}, GOLD).differences[0]
    assert other.difference == -one.difference
    assert other.ci95 == pytest.approx((-one.ci95[1], -one.ci95[0]))
    assert other.p_value == one.p_value


@pytest.mark.parametrize(
    ("p_values", "corrected"),
    [
        ([], []),
        ([0.03], [0.03]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.5, 0.9], [1.0, 1.0]),
        ([0.04, 0.001, 0.04, 0.2], [0.12, 0.004, 0.12, 0.2]),
    ],
)
def test_holm(p_values: Sequence[float], corrected: Sequence[float]) -> None:
    assert holm(p_values) == pytest.approx(list(corrected))


def test_three_systems_are_corrected_for() -> None:
    result = compare_systems(SYSTEMS, GOLD)
    p_values = [each.p_value for each in result.differences]
    assert [each.p_holm for each in result.differences] == holm(p_values)


def test_plain_values() -> None:
    content = compare_systems(SYSTEMS, GOLD, resamples=50).as_dict()
    again = json.loads(json.dumps(content, allow_nan=False))
    assert again["systems"][2]["deviation"] is None
    assert len(again["systems"][0]["seeds"]) == 3 and again["systems"][0]["seeds"][0]["links"] > 0
    assert again["resamples"] == 50


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="nothing to compare"):
        compare_systems({}, GOLD)
    with pytest.raises(ValueError, match="nothing to compare"):
        compare_systems({"a": [[]]}, [])
    with pytest.raises(ValueError, match="system 'a' has no links"):
        compare_systems({"a": []}, GOLD)
    with pytest.raises(ValueError, match="system 'b': 3 sentences of links but 40 of gold"):
        compare_systems({"a": SYSTEMS["good"], "b": [SYSTEMS["good"][0][:3]]}, GOLD)
    with pytest.raises(ValueError, match="resamples is 0"):
        compare_systems(SYSTEMS, GOLD, resamples=0)
