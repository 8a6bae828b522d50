"""The figures of the head report, by hand and against slow references, and what the report says about planted heads."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted_heads import HEADS, LAYERS, corpus, plant, reversed_gold, text

from hf_seq2seq_attn.probing import AttentionMaps, Gold, alignment_error_rate, to_word_links
from hf_seq2seq_attn.probing.head_report import FIGURES, head_distances, report_heads
from hf_seq2seq_attn.probing.importance import Importance


def one_pair(rows: list[list[float]], target_words: int) -> AttentionMaps:
    """Return one head's maps of a source of words and an end token."""
    array = np.array(rows, dtype=np.float32)[None, None]
    return AttentionMaps(array, text(array.shape[3] - 1), text(target_words), "output", (0,), (0,))


def test_figures_of_one_head_by_hand() -> None:
    maps = one_pair([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.2, 0.2, 0.6]], 2)
    found = report_heads([maps]).figures
    entropy = (0.5 * np.log(2) + 0.5 * np.log(4)) / 2
    assert found["entropy"][0, 0] == pytest.approx(entropy)
    assert found["relative_entropy"][0, 0] == pytest.approx(entropy / np.log(3))
    assert found["confidence"][0, 0] == pytest.approx(0.75)
    assert found["sink_mass"][0, 0] == pytest.approx(0.125)
    # Columns sum to 0.5 and 1.25.
    assert found["coverage_deviation"][0, 0] == pytest.approx((0.5 + 0.25) / 2)
    assert found["coverage"][0, 0] == 1
    assert (found["fixed_offset"][0, 0], found["offset"][0, 0]) == (1, 0)
    assert set(found) < set(FIGURES)


def test_a_null_key_counts_as_a_place_and_as_a_sink() -> None:
    found = report_heads([one_pair([[0.25, 0.25, 0.0], [0, 0, 0.5]], 1)]).figures
    assert found["entropy"][0, 0] == pytest.approx(0.5 * np.log(4) + 0.5 * np.log(2))
    assert found["sink_mass"][0, 0] == pytest.approx(0.5)
    assert found["confidence"][0, 0] == pytest.approx(0.25)


def test_a_head_that_looks_at_a_place_is_told_from_one_that_reads() -> None:
    maps, gold = corpus(seed=3)
    plant(maps, gold, 1, 2)
    for pair in maps:
        size = len(pair.source_words)
        pair.weights[2, 1] = np.roll(np.eye(size + 1), -1, axis=1)
    report = report_heads(maps, gold=gold)
    assert report.figures["fixed_offset"][2, 1] > 0.8
    assert report.figures["offset"][2, 1] == 1
    assert report.figures["fixed_offset"][1, 2] < 0.5
    assert report.figures["aer"][1, 2] == 0
    assert report.figures["confidence"][2, 1] == 1
    assert report.figures["entropy"][2, 1] == 0


def test_error_rates_and_agreement_are_those_of_the_links() -> None:
    maps, gold = corpus(6, seed=8)
    back, _ = corpus(6, seed=9)
    plant(maps, gold, 0, 0)
    plant(back, reversed_gold(gold), 2, 3)
    report = report_heads(maps, gold=gold, reverse=back, specials="null", links="threshold:0.3")
    for layer, head in np.ndindex(LAYERS, HEADS):
        links = [
            to_word_links(pair, layer=layer, heads=[head], specials="null", links="threshold:0.3") for pair in maps
        ]
        assert report.figures["aer"][layer, head] == pytest.approx(alignment_error_rate(links, gold))
    assert report.figures["agreement"][0, 0] == 1
    assert np.sort(report.figures["agreement"].ravel())[-2] < 0.9


def test_distances_are_those_of_two_heads_at_a_time() -> None:
    maps, _ = corpus(3, seed=2)
    maps[1] = replace(maps[1], weights=maps[1].weights * 0.8)
    found = head_distances(maps)
    rows = [pair.weights.reshape(LAYERS * HEADS, *pair.weights.shape[2:])[:, :-1] for pair in maps]

    def distance(first: np.ndarray, second: np.ndarray) -> float:
        p, q = (np.append(each, max(0, 1 - each.sum())) for each in (first, second))
        middle = (p + q) / 2
        parts = [np.sum(each[each > 0] * np.log2(each[each > 0] / middle[each > 0])) for each in (p, q)]
        return float(np.sqrt(max(0, sum(parts) / 2)))

    for one, two in ((0, 5), (3, 11), (7, 7)):
        every = [distance(a, b) for each in rows for a, b in zip(each[one], each[two], strict=True)]
        assert found[one, two] == pytest.approx(np.mean(every), abs=1e-5)
    assert np.array_equal(found, found.T)
    assert found.diagonal().max() == 0
    apart = one_pair([[1, 0, 0], [1, 0, 0]], 1)
    both = replace(apart, weights=np.concatenate([apart.weights, apart.weights[..., ::-1]], axis=1), heads=(0, 1))
    assert head_distances([both])[0, 1] == pytest.approx(1)


def test_attention_by_part_of_speech() -> None:
    maps = one_pair([[0.5, 0.25, 0.15, 0.1], [0.1, 0.8, 0.1, 0.0], [0, 0, 0, 1]], 2)
    report = report_heads([maps], source_tags=[["DET", "NOUN", "NOUN"]], target_tags=[["VERB", "NOUN"]])
    assert report.by_source_tag["DET"][0, 0] == pytest.approx((0.5 + 0.1) / 2)
    assert report.by_source_tag["NOUN"][0, 0] == pytest.approx((0.4 + 0.9) / 2)
    assert report.tag_share == {"DET": pytest.approx(1 / 3), "NOUN": pytest.approx(2 / 3)}
    assert report.by_target_tag["VERB"][0, 0] == pytest.approx(0.5)
    assert report.by_target_tag["NOUN"][0, 0] == pytest.approx(0.8)
    values = report.as_dict()["heads"][0]
    assert values["by_source_tag"]["DET"] == pytest.approx(0.3)
    # Weight on words and sinks is all there is.
    assert sum(values["by_source_tag"].values()) + values["sink_mass"] == pytest.approx(1)


def test_a_report_is_plain_json_with_definitions() -> None:
    maps, gold = corpus(4, seed=6)
    importance = Importance(np.full((LAYERS, HEADS), 0.5), np.arange(12.0).reshape(3, 4), 1.0, 9, 4)
    report = report_heads(maps, gold=gold, importance=importance)
    values = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert len(values["heads"]) == LAYERS * HEADS
    assert values["heads"][5] | {"layer": 1, "head": 1, "ablation": 5.0, "gradient": 0.5} == values["heads"][5]
    assert list(values["definitions"]) == report.names
    assert "agreement" not in values["definitions"]
    assert len(values["distances"]["matrix"]) == 12


def test_blank_pairs_are_no_trouble() -> None:
    maps, gold = corpus(3, seed=1)
    blank = replace(maps[0], weights=np.ones((3, 4, 1, 1), dtype=np.float32), source=text(0), target=text(0))
    none = Gold(frozenset(), frozenset())
    with_blank, without = report_heads([*maps, blank], gold=[*gold, none]), report_heads(maps, gold=gold)
    for name, values in without.figures.items():
        np.testing.assert_allclose(with_blank.figures[name], values)
    only = report_heads([blank], gold=[none], source_tags=[[]], target_tags=[[]])
    assert all(np.isfinite(values).all() for values in only.figures.values())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gold": []}, "3 sentence pairs but 0 of gold"),
        ({"reverse": []}, "0 of reverse"),
        ({"source_tags": [["A"]] * 3}, "source tags of sentence 1: 1 tags for 4 words"),
        ({"target_tags": [["A"] * 4, ["A"], ["A"]]}, "target tags of sentence 2: 1 tags for 5 words"),
    ],
)
def test_what_does_not_belong_together_is_refused(given: dict[str, Any], message: str) -> None:
    maps, _ = corpus(3)
    with pytest.raises(ValueError, match=message):
        report_heads(maps, **given)
    with pytest.raises(ValueError, match="no sentence pair"):
        report_heads([])


def test_relative_entropy_never_goes_beyond_a_uniform_row() -> None:
    # One source token and a NULL key, alike; without the key, one place has no entropy.
    found = report_heads([one_pair([[0.5], [0.5]], 1), one_pair([[1.0], [1.0]], 1)]).figures
    assert found["relative_entropy"][0, 0] == pytest.approx(0.5)
    assert report_heads([one_pair([[0.25, 0.25, 0.25], [0, 0, 1]], 1)]).figures["relative_entropy"][
        0, 0
    ] == pytest.approx(1)


def test_raw_norms_are_refused() -> None:
    with pytest.raises(ValueError, match="raw norms are no shares"):
        report_heads([replace(one_pair([[3.0, 2.0], [1.0, 1.0]], 1), weight_kind="raw_norm")])
