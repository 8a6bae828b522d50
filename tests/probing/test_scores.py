"""Scores against values worked out by hand."""

import json

import numpy as np
import pytest

from hf_seq2seq_attn.probing import Gold, alignment_error_rate, f_measure, score_intervals, score_links, soft_aer
from hf_seq2seq_attn.probing.scores import count_links, score_ratios


def gold(sure: set[tuple[int, int]], possible: set[tuple[int, int]] = frozenset()) -> Gold:  # type: ignore[assignment]
    return Gold(frozenset(sure), frozenset(possible))


GOLD = [gold({(0, 0), (1, 1)}, {(1, 2)}), gold({(0, 1)}), gold(set(), {(2, 0)})]
LINKS = [{(0, 0), (1, 2), (3, 3)}, {(0, 1)}, {(2, 0)}]


def test_corpus_sums_by_hand() -> None:
    # |A| = 5, |S| = 3, |A & S| = 2, |A & P| = 4: AER = 1 - 6/8.
    score = score_links(LINKS, GOLD)
    assert score.aer == alignment_error_rate(LINKS, GOLD) == pytest.approx(0.25)
    assert score.precision == pytest.approx(4 / 5)
    assert score.recall == pytest.approx(2 / 3)
    assert score.f1 == pytest.approx(2 * 0.8 * (2 / 3) / (0.8 + 2 / 3))
    assert (score.links, score.sure, score.possible, score.sentences) == (5, 3, 5, 3)


def test_a_wrong_base_shows() -> None:
    shifted = [{(i + 1, j + 1) for i, j in links} for links in LINKS]
    # (1, 1) of the first sentence is sure by chance: |A & S| = |A & P| = 1.
    assert score_links(shifted, GOLD).aer == pytest.approx(1 - 2 / 8)


def test_empty_cases_are_defined() -> None:
    nothing = score_links([set()], [gold(set())])
    assert (nothing.aer, nothing.precision, nothing.recall, nothing.ci95) == (0, 1, 1, (0, 0))
    unlinked = score_links([set()], [gold({(0, 0)})])
    assert (unlinked.aer, unlinked.precision, unlinked.recall, unlinked.f1) == (1, 1, 0, 0)
    wrong = score_links([{(0, 0)}], [gold(set())])
    assert (wrong.aer, wrong.precision, wrong.recall, wrong.f1) == (1, 0, 1, 0)
    assert score_links([], []).sentences == 0


def test_interval_holds_the_score_and_repeats() -> None:
    score = score_links(LINKS * 20, GOLD * 20)
    low, high = score.ci95
    assert low < score.aer < high
    assert score_links(LINKS * 20, GOLD * 20).ci95 == score.ci95
    wider = score_links(LINKS * 2, GOLD * 2).ci95
    assert wider[1] - wider[0] > high - low


def test_interval_equals_resampling_one_by_one() -> None:
    score = score_links(LINKS * 20, GOLD * 20)
    generator = np.random.default_rng(1)
    resampled = []
    for _ in range(400):
        chosen = generator.integers(0, 60, 60)
        resampled.append(alignment_error_rate([(LINKS * 20)[i] for i in chosen], [(GOLD * 20)[i] for i in chosen]))
    assert score.ci95 == pytest.approx(np.quantile(resampled, [0.025, 0.975]), abs=0.02)


def test_as_dict_is_json_with_the_promised_keys() -> None:
    values = json.loads(json.dumps(score_links(LINKS, GOLD, base={"links": 0, "gold": 1}).as_dict()))
    assert list(values) == [
        "aer",
        "precision",
        "recall",
        "f1",
        "links",
        "sure",
        "possible",
        "sentences",
        "base",
        "ci95",
        "alpha",
        "f_alpha",
    ]
    assert values["base"] == {"links": 0, "gold": 1}


def test_unequal_numbers_of_sentences_are_refused() -> None:
    with pytest.raises(ValueError, match="2 sentences of links but 3 of gold"):
        score_links(LINKS[:2], GOLD)


def test_f_leans_to_precision_or_recall_by_alpha() -> None:
    assert f_measure(0.8, 0.5, 1) == pytest.approx(0.8)
    assert f_measure(0.8, 0.5, 0) == pytest.approx(0.5)
    assert f_measure(0.8, 0.5, 0.25) == pytest.approx(1 / (0.25 / 0.8 + 0.75 / 0.5))
    assert f_measure(0, 0.5) == f_measure(0.5, 0) == f_measure(0, 0) == 0
    assert f_measure(0, 0.5, 0) == 0.5
    score = score_links(LINKS, GOLD, alpha=0.25)
    assert (score.alpha, score.f_alpha) == (0.25, f_measure(score.precision, score.recall, 0.25))
    assert score_links(LINKS, GOLD).f_alpha == score.f1
    for alpha in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"alpha is .* from 0"):
            f_measure(0.5, 0.5, alpha)


def test_soft_aer_by_hand() -> None:
    # Weight 2; on sure links 0.7 + 0.6, on possible ones 0.1 more: 1 - (1.3 + 1.4) / (2 + 2).
    matrix = np.array([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1]])
    assert soft_aer([matrix], [gold({(0, 0), (1, 1)}, {(2, 0)})]) == pytest.approx(1 - 2.7 / 4)
    # Sums over the corpus: a second pair, all its weight wrong.
    both = soft_aer([matrix, np.ones((1, 2))], [gold({(0, 0), (1, 1)}, {(2, 0)}), gold(set())])
    assert both == pytest.approx(1 - 2.7 / 6)


def test_soft_aer_of_zeros_and_ones_is_the_aer_of_the_links() -> None:
    matrices = [np.zeros((4, 4)), np.zeros((2, 1)), np.zeros((1, 3))]
    for matrix, links in zip(matrices, LINKS, strict=True):
        for i, j in links:
            matrix[j % len(matrix), i] = 1
    manual = [GOLD[0], gold({(0, 1)}), GOLD[2]]
    found = [{(int(i), int(j)) for j, i in np.argwhere(matrix)} for matrix in matrices]
    assert soft_aer(matrices, manual) == pytest.approx(score_links(found, manual).aer)


def test_soft_aer_of_nothing_and_of_gold_outside() -> None:
    assert soft_aer([], []) == soft_aer([np.zeros((2, 3))], [gold(set())]) == 0
    assert soft_aer([np.zeros((2, 3))], [gold({(0, 0)})]) == 1
    with pytest.raises(ValueError, match=r"sentence 2: gold goes beyond a matrix of shape \(2, 3\)"):
        soft_aer([np.zeros((2, 3))] * 2, [gold(set()), gold({(1, 2)})])
    with pytest.raises(ValueError, match="1 matrices but 2 sentences"):
        soft_aer([np.zeros((2, 3))], [gold(set())] * 2)


def test_intervals_are_quantiles_of_resampled_scores() -> None:
    links, manual = LINKS * 4, GOLD * 4
    found = score_intervals(links, manual, seed=5)
    generator = np.random.default_rng(5)
    drawn: dict[str, list[float]] = {"aer": [], "precision": [], "recall": [], "f1": []}
    for _ in range(1000):
        rows = generator.integers(0, len(links), len(links), dtype=np.int32)
        aer, precision, recall = score_ratios(count_links([links[k] for k in rows], [manual[k] for k in rows]))
        drawn["aer"].append(aer)
        drawn["precision"].append(precision)
        drawn["recall"].append(recall)
        drawn["f1"].append(f_measure(precision, recall))
    for name, values in drawn.items():
        assert found[name] == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])))
    assert found["aer"] == score_links(links, manual, seed=5).ci95
    with pytest.raises(ValueError, match="no sentence"):
        score_intervals([], [])
