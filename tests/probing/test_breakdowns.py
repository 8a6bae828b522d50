"""Scores of parts: by hand, and parts that add up to the whole."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_seq2seq_attn.probing import (
    AlignmentScore,
    Gold,
    score_by_fertility,
    score_by_length,
    score_links,
    without_punctuation,
)
from hf_seq2seq_attn.probing.breakdowns import is_punctuation


def gold(sure: set[tuple[int, int]], possible: set[tuple[int, int]] = frozenset()) -> Gold:  # type: ignore[assignment]
    return Gold(frozenset(sure), frozenset(possible))


def test_lengths_fall_into_ranges() -> None:
    manual = [gold({(0, 0)})] * 4
    found = [{(0, 0)}, {(0, 1)}, {(0, 0)}, set()]
    parts = score_by_length(found, manual, [10, 11, 0, 41])
    assert {name: (part.sentences, part.aer) for name, part in parts.items()} == {
        "0-10": (2, 0),
        "11-20": (1, 1),
        "41+": (1, 1),
    }
    assert list(score_by_length(found, manual, [10, 11, 0, 41], bounds=(10, 40))) == ["0-10", "11-40", "41+"]
    assert score_by_length([], [], []) == {}
    with pytest.raises(ValueError, match="3 lengths but 4 sentences"):
        score_by_length(found, manual, [1, 2, 3])
    with pytest.raises(ValueError, match="they must rise"):
        score_by_length(found, manual, [1, 2, 3, 4], bounds=(20, 10))


def test_fertility_classes_by_hand() -> None:
    # Source word 0 has three gold links (one possible only), word 1 one, word 2 none; word 3 is linked by nobody.
    manual = [gold({(0, 0), (0, 1), (1, 3)}, {(0, 2)})]
    found = [{(0, 0), (0, 2), (1, 3), (1, 4), (2, 4)}]
    parts = score_by_fertility(found, manual, "source")
    assert {name: (part.links, part.sure, part.possible) for name, part in parts.items()} == {
        "0": (1, 0, 0),
        "1": (2, 1, 1),
        "2": (0, 0, 0),
        "3+": (2, 2, 3),
    }
    assert (parts["0"].aer, parts["0"].precision, parts["0"].recall) == (1, 0, 1)
    assert parts["1"].aer == pytest.approx(1 - 2 / 3)
    assert parts["2"].aer == 0
    assert parts["3+"].aer == pytest.approx(1 - 3 / 4)
    # Every target word has at most one gold link; target word 4 has none.
    parts = score_by_fertility(found, manual, "target")
    assert [part.links for part in parts.values()] == [2, 3, 0, 0]
    with pytest.raises(ValueError, match="side is 'both'"):
        score_by_fertility(found, manual, "both")


LINKS = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8)
CORPUS = st.lists(st.tuples(LINKS, st.builds(Gold, LINKS, LINKS), st.integers(0, 50)), max_size=6)


@given(CORPUS)
@settings(max_examples=20)
def test_the_parts_add_up_to_the_whole(corpus: list[tuple[frozenset, Gold, int]]) -> None:
    found, manual, lengths = ([entry[k] for entry in corpus] for k in range(3))

    def totals(*scores: AlignmentScore) -> list[float]:
        hits = [round(s.precision * s.links) if s.links else 0 for s in scores]
        sure_hits = [round(s.recall * s.sure) if s.sure else 0 for s in scores]
        fields = [[s.links for s in scores], [s.sure for s in scores], [s.possible for s in scores], hits, sure_hits]
        return [sum(field) for field in fields]

    whole = totals(score_links(found, manual))
    assert totals(*score_by_length(found, manual, lengths).values()) == whole
    for side in ("source", "target"):
        assert totals(*score_by_fertility(found, manual, side).values()) == whole


@pytest.mark.parametrize("word", [".", ",", "...", "»", "。", "?!", "-", "״", "—"])
def test_punctuation(word: str) -> None:
    assert is_punctuation(word)


@pytest.mark.parametrize("word", ["", "a.", "'s", "3", "$", "+", "喜", "(a)"])
def test_no_punctuation(word: str) -> None:
    assert not is_punctuation(word)


def test_links_of_punctuation_are_dropped_on_all_sides() -> None:
    found = [{(0, 0), (1, 1), (1, 0), (0, 1)}, {(0, 0)}]
    manual = [gold({(0, 0), (1, 1)}, {(0, 1)}), gold({(0, 0)})]
    links, left = without_punctuation(found, manual, [["a", "."], ["b"]], [["x", "!"], ["。"]])
    assert links == [{(0, 0)}, frozenset()]
    assert left == [gold({(0, 0)}), gold(set())]
    with pytest.raises(ValueError, match="sentence 1: a link goes beyond 1 source or 2 target words"):
        without_punctuation(found, manual, [["a"], ["b"]], [["x", "!"], ["。"]])
