"""Scores against values worked out by hand."""

import json

import numpy as np
import pytest

from hf_seq2seq_attn.probing import Gold, score_links


def gold(sure: set[tuple[int, int]], possible: set[tuple[int, int]] = frozenset()) -> Gold:  # type: ignore[assignment]
    return Gold(frozenset(sure), frozenset(possible))


GOLD = [gold({(0, 0), (1, 1)}, {(1, 2)}), gold({(0, 1)}), gold(set(), {(2, 0)})]
LINKS = [{(0, 0), (1, 2), (3, 3)}, {(0, 1)}, {(2, 0)}]


def test_corpus_sums_by_hand() -> None:
    # |A| = 5, |S| = 3, |A & S| = 2, |A & P| = 4: AER = 1 - 6/8.
    score = score_links(LINKS, GOLD)
    assert score.aer == pytest.approx(0.25)
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
        resampled.append(score_links([(LINKS * 20)[i] for i in chosen], [(GOLD * 20)[i] for i in chosen]).aer)
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
    ]
    assert values["base"] == {"links": 0, "gold": 1}


def test_unequal_numbers_of_sentences_are_refused() -> None:
    with pytest.raises(ValueError, match="2 sentences of links but 3 of gold"):
        score_links(LINKS[:2], GOLD)
