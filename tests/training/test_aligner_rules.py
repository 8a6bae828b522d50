"""The rule by which links are read off: chosen by pairs held out."""

import sys

import numpy as np
import pytest
import torch

from hf_seq2seq_attn.probing import Gold
from hf_seq2seq_attn.training import aligner_rules
from hf_seq2seq_attn.training.aligner_batches import Batch, PairedText, SideText
from hf_seq2seq_attn.training.aligner_data import StoredWeights
from hf_seq2seq_attn.training.aligner_model import AlignerNetwork, NetworkSize
from hf_seq2seq_attn.training.aligner_rules import LinkRule, by_rule, tuned_rule
from hf_seq2seq_attn.training.aligner_text import FeatureIndex

SOURCE, TARGET = [["a", "b", "c"], ["a", "b"]], [["A", "B"], ["A", "B", "C", "D"]]
SAID = {(0, 0): 1.0}
LINKS = (
    np.array([[0.9, 0.1, 0.6], [0.6, 0.4, 0.6]], dtype=np.float32),
    np.array([[0.9, 0.1], [0.6, 0.4], [0.6, 0.6], [0.1, 0.1]], dtype=np.float32),
)
"""What the network is made to say, (T, S) of each pair."""


def paired_text(teacher: bool) -> PairedText:
    shared: dict[str, int] = {}
    sides = [SideText.of(FeatureIndex.build(words, least=1), words, None, shared) for words in (SOURCE, TARGET)]
    views = [(StoredWeights([SAID, SAID]), StoredWeights([SAID, SAID]))] if teacher else []
    return PairedText(sides[0], sides[1], views)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> AlignerNetwork:
    """Return a network whose probabilities of the measure `links` are `LINKS`; others are 0.7 everywhere."""

    def say(network: AlignerNetwork, batch: Batch, measure: str, shows_teacher: bool) -> np.ndarray:
        rows, columns = batch.same.shape[1:]
        found = np.full((len(batch.places), rows, columns), 0.7, dtype=np.float32)
        if measure == "links":
            for matrix, place in zip(found, batch.places.tolist(), strict=True):
                matrix[: LINKS[place].shape[0], : LINKS[place].shape[1]] = LINKS[place]
        return found

    monkeypatch.setattr(aligner_rules, "measured", say)
    torch.manual_seed(0)
    return AlignerNetwork(NetworkSize(4, 4, 5, 5, 8, 1, "dot", 4, 0.0, 0.0))


def gold(possible: tuple[tuple[int, int], ...], *more: tuple[int, int]) -> dict[int, Gold]:
    """Return the links of both pairs: sure ones where the network says 0.9 and 0.4, and those given for the first."""
    return {
        0: Gold(frozenset({(0, 0), (1, 1), *more}), frozenset({(0, 0), (1, 1), *more, *possible})),
        1: Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1)})),
    }


@pytest.mark.parametrize("cells", [1, 100], ids=["a pair a batch", "one batch"])
def test_the_threshold_is_that_of_the_least_error_rate(network: AlignerNetwork, cells: int) -> None:
    of_06 = ((2, 0), (0, 1), (2, 1))
    text = paired_text(teacher=False)
    rule = tuned_rule(network, text, gold(possible=of_06), cells)
    assert (rule.measure, rule.shows_teacher, rule.teacher_weight) == ("links", False, 0.0)
    assert 0.1 < rule.threshold < 0.4, "possible links are not wrong"
    assert 0.1 < tuned_rule(network, text, gold((), *of_06), cells).threshold < 0.4
    assert rule.threshold < 0.6 < tuned_rule(network, text, gold(possible=()), cells).threshold, "now they are"


def test_a_teacher_that_knows_better_has_its_say(network: AlignerNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    one = frozenset(SAID)
    rule = tuned_rule(network, paired_text(teacher=True), {place: Gold(one, one) for place in (0, 1)}, 100)
    assert (rule.measure, rule.shows_teacher, rule.teacher_weight) == ("links", True, 0.0), "of equals the first"
    sure_and_wrong = LINKS[1].copy()
    sure_and_wrong[3, 1] = 0.95
    monkeypatch.setattr(sys.modules[__name__], "LINKS", (LINKS[0], sure_and_wrong))
    rule = tuned_rule(network, paired_text(teacher=True), {place: Gold(one, one) for place in (0, 1)}, 100)
    assert rule.teacher_weight > 0


def test_a_rule_mixes_in_what_the_teachers_say_if_there_are_any(network: AlignerNetwork) -> None:
    rule = LinkRule("links", True, 0.25, 0.5)
    batch = paired_text(teacher=True).batch(np.array([0]))
    assert by_rule(network, batch, rule)[0] == pytest.approx(0.75 * LINKS[0] + 0.25 * np.array([[1, 0, 0], [0, 0, 0]]))
    assert by_rule(network, paired_text(teacher=False).batch(np.array([0])), rule)[0] == pytest.approx(LINKS[0])
