"""Link weights in flat arrays: what goes in comes out, exactly and in its order."""

import pickle

import pytest

from hf_seq2seq_attn.training.aligner_data import StoredWeights, TeacherLinks, shared_out

PAIRS = [{(3, 1): 0.1, (0, 2): 1 / 3}, {}, {(70_000, 0): 1.0}]


def test_weights_come_out_as_they_went_in() -> None:
    stored = StoredWeights(iter(PAIRS))
    assert len(stored) == 3
    assert list(stored) == PAIRS
    assert stored == PAIRS
    assert stored != PAIRS[:2]
    assert list(stored[0]) == [(3, 1), (0, 2)], "in their order"
    assert stored[-1] == PAIRS[2]
    assert stored[1:] == PAIRS[1:]
    assert pickle.loads(pickle.dumps(stored)) == PAIRS
    with pytest.raises(IndexError):
        stored[3]
    assert list(StoredWeights([])) == []


def test_a_teacher_keeps_its_links_in_arrays() -> None:
    teacher = TeacherLinks(PAIRS, StoredWeights(PAIRS))
    assert isinstance(teacher.forward, StoredWeights)
    assert teacher.forward == teacher.reverse
    hard = TeacherLinks.hard([frozenset({(1, 0)})], [frozenset()])
    assert (hard.forward, hard.reverse) == ([{(1, 0): 1.0}], [{}])


def test_weights_of_a_word_are_shared_out_where_they_are_more_than_one() -> None:
    assert shared_out({(0, 0): 1.0, (1, 0): 1.0, (2, 1): 0.5}, side=1) == {(0, 0): 0.5, (1, 0): 0.5, (2, 1): 0.5}
    assert shared_out({(0, 0): 1.0, (1, 0): 1.0}, side=0) == {(0, 0): 1.0, (1, 0): 1.0}
