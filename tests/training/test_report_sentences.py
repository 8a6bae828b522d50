"""Which sentences are the best and the worst, and what is shown of them."""

import math

import numpy as np
import pytest
from probes import subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import Aligner, Gold, SentenceView
from hf_seq2seq_attn.training.report_sentences import (
    LONGEST_MAP,
    Ranking,
    ShownSentence,
    alignment_errors,
    view_pair,
)

NAN = math.nan


@pytest.mark.parametrize(
    ("scores", "greater", "count", "worst", "best"),
    [
        ([50, NAN, 10, 90, 10], True, 2, [2, 4], [3, 0]),
        ([0.5, NAN, 0.1, 0.9, 0.1], False, 2, [3, 0], [2, 4]),
        ([7, 7, 7], True, 2, [0, 1], [2]),
        ([7], True, 3, [0], []),
        ([NAN], False, 3, [], []),
    ],
)
def test_the_ends_of_a_ranking(
    scores: list[float], greater: bool, count: int, worst: list[int], best: list[int]
) -> None:
    assert Ranking("s", scores, greater).worst_and_best(count) == {"worst": worst, "best": best}


def test_errors_of_sentences_by_hand() -> None:
    def gold(sure: set[tuple[int, int]], possible: set[tuple[int, int]] | None = None) -> Gold:
        return Gold(frozenset(sure), frozenset(possible or set()))

    links = [frozenset({(0, 0), (1, 1)}), frozenset({(2, 2)}), frozenset(), frozenset({(0, 1)})]
    found = alignment_errors(links, [gold({(0, 0)}, {(1, 1)}), gold(set()), gold({(0, 0)}), gold({(0, 0)}, {(0, 1)})])
    # 1 - (1 + 2) / (2 + 1); no manual link; nothing found; 1 - (0 + 1) / (1 + 1).
    assert found == pytest.approx([0, NAN, 1, 0.5], nan_ok=True)


def shown(view: SentenceView | None) -> ShownSentence:
    return ShownSentence(3, "s", ("r", "q"), "t", {"chrf": 1.5}, "translation", view)


def test_a_long_pair_has_no_map() -> None:
    for size, expected in ((LONGEST_MAP, True), (LONGEST_MAP + 1, False)):
        assert shown(SentenceView(["w"] * 3, ["v"] * size, np.zeros((size, 3)))).has_map is expected
    assert not shown(None).has_map


def test_figures_of_a_sentence() -> None:
    gold = Gold(frozenset({(0, 0)}), frozenset({(1, 0)}))
    found = shown(SentenceView(["a", "b"], ["x"], np.zeros((1, 2)), frozenset({(1, 0)}), gold)).as_dict()
    assert found["links"] == [[1, 0]] and found["gold"] == {"sure": [[0, 0]], "possible": [[0, 0], [1, 0]]}
    assert (found["chrf"], found["references"], found["links_of"]) == (1.5, ["r", "q"], "translation")
    assert "links" not in shown(None).as_dict()


def test_a_pair_is_seen_as_links_are_read() -> None:
    model, tokenizer = tiny_model(vocab_size=73), subword_tokenizer()
    aligner = Aligner((model, tokenizer))
    source, target = ["the", "cats", "love", "today."], ["I", "love", "cats"]
    (expected,) = aligner.align([source], [target])
    found = view_pair(aligner, source, target)
    assert found is not None
    np.testing.assert_allclose(found.matrix, expected.matrix)
    assert found.links == expected.pair.gold.sure
    assert view_pair(None, source, target) is view_pair(aligner, [], target) is None


def test_a_translation_too_long_to_read_anew_has_no_view() -> None:
    model = tiny_model(vocab_size=73, max_position_embeddings=6, position_embedding_type="learned")
    assert view_pair(Aligner((model, subword_tokenizer())), ["I"], ["understand"] * 4) is None
