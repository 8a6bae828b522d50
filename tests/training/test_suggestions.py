from collections.abc import Sequence

import numpy as np
import pytest

from hf_seq2seq_attn.training.suggestions import suggest_pairs


def _sure(source: Sequence[str], target: Sequence[str]) -> np.ndarray:
    """Return a matrix that links word k to word k."""
    matrix = np.full((len(target), len(source)), 0.001)
    np.fill_diagonal(matrix, 0.999)
    return matrix


def _corpus(
    unsure: tuple[str, ...] = ("zig", "zag"), count: int = 40
) -> tuple[list[list[str]], list[list[str]], list[np.ndarray]]:
    """Return pairs of four clear words; every fifth has one unsure word, in turn."""
    draw = np.random.default_rng(4)
    sources, targets, posteriors = [], [], []
    for row in range(count):
        words = [f"w{n}" for n in draw.choice(60, 4, replace=False)]
        targets.append([word.upper() for word in words])
        matrix = _sure(words, targets[-1])
        if row % 5 == 0:
            words[2] = unsure[(row // 5) % len(unsure)]
            matrix[:, 2] = 0.4
        sources.append(words)
        posteriors.append(matrix)
    return sources, targets, posteriors


def test_uncertain_lines_come_first() -> None:
    corpus = _corpus()
    found = suggest_pairs(*corpus, 6)
    assert all(each.pair % 5 == 0 for each in found)
    assert [each.gain for each in found] == sorted((each.gain for each in found), reverse=True)
    assert {word for each in found[:2] for word in each.words} >= {"zig", "zag"}
    assert found[0].uncertainty > 0.4


def test_words_that_are_frequent_and_unsure_come_before_rare_ones() -> None:
    sources, targets, posteriors = _corpus(unsure=("zig",))
    sources.append(["once", "w1", "w2", "w3"])
    targets.append(["ONCE", "W1", "W2", "W3"])
    posteriors.append(_sure(sources[-1], targets[-1]))
    posteriors[-1][:, 0] = 0.4
    found = suggest_pairs(sources, targets, posteriors, 9)
    places = [each.pair for each in found]
    assert places[0] != 40 and 40 in places
    assert places.index(40) > 0


def test_each_unsure_word_is_covered_before_one_comes_again() -> None:
    names = ("zig", "zag", "zog", "zug")
    sources, _, _ = corpus = _corpus(unsure=names)
    found = suggest_pairs(*corpus, 4)
    assert {sources[each.pair][2] for each in found} == set(names)


def test_near_duplicates_are_suggested_once() -> None:
    source, target = ["the", "zig", "ran", "home", "fast"], ["LE", "ZIG", "RAN", "HOME", "VITE"]
    unsure = np.full((5, 5), 0.5)
    other = ["the", "zig", "ran", "home", "Fast"]
    found = suggest_pairs([source, other, ["cat"]], [target, target, ["CAT"]], [unsure, unsure, _sure("a", "b")], 3)
    assert [each.pair for each in found] == [0, 2]


def test_annotated_lines_count_as_seen() -> None:
    sources, targets, posteriors = _corpus(unsure=("zig", "zag"))
    annotated = list(range(0, 40, 10))
    found = suggest_pairs(sources, targets, posteriors, 4, annotated=annotated)
    assert not {each.pair for each in found} & set(annotated)
    assert all(sources[each.pair][2] == "zag" for each in found)


def test_blank_pairs_are_never_suggested() -> None:
    sources: list[list[str]] = [[], ["a"], ["b", "c"]]
    targets: list[list[str]] = [["A"], [], ["B", "C"]]
    posteriors = [np.zeros((1, 0)), np.zeros((0, 1)), np.full((2, 2), 0.5)]
    assert [each.pair for each in suggest_pairs(sources, targets, posteriors, 3)] == [2]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="count is 0"):
        suggest_pairs([], [], [], 0)
    with pytest.raises(ValueError, match=r"shape \(1, 2\)"):
        suggest_pairs([["a"]], [["A", "B"]], [np.zeros((1, 2))], 1)
