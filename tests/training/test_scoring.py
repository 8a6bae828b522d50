import random
from collections.abc import Sequence

import pytest

from hf_seq2seq_attn.training.scoring import METRICS, TEXT_METRICS, group_references, score_translations


def edits(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """The textbook table."""
    row = list(range(len(hypothesis) + 1))
    for i, ours in enumerate(reference, start=1):
        last, row[0] = row[0], i
        for j, theirs in enumerate(hypothesis, start=1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (ours != theirs))
    return row[-1]


def drawn_lines(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices("abcde", k=draw.randint(0, 6))) for _ in range(count)]


def test_error_rates_count_edits_over_all_words() -> None:
    hypotheses, references = drawn_lines(60, 0), drawn_lines(60, 1)
    expected = sum(edits(r.split(), h.split()) for r, h in zip(references, hypotheses, strict=True))
    expected /= sum(len(r.split()) for r in references)
    scores = score_translations(hypotheses, references, ("wer", "per"))
    assert scores == {"wer": pytest.approx(expected, abs=1e-5), "per": pytest.approx(expected, abs=1e-5)}
    assert score_translations([" a  b"], ["a b "], ["wer"]) == {"wer": 0.0}


def test_of_several_references_the_nearest_counts() -> None:
    hypotheses = ["a b c", "x", "a b"]
    references = [["a b d e", "a b c c"], ["y"], ["c", "a b"]]
    scores = score_translations(hypotheses, references, TEXT_METRICS)
    assert scores["per"] == pytest.approx(2 / 7, abs=1e-5)  # 1 edit of 4, 1 of 1, 0 of 2
    assert scores["exact_match"] == pytest.approx(1 / 3, abs=1e-5)
    assert scores["word_error_rate"] == pytest.approx(2 / 3, abs=1e-5)
    assert "nrefs:var" in scores["bleu_signature"]
    three = drawn_lines(40, 2), drawn_lines(40, 3), drawn_lines(40, 4)
    hypotheses, *columns = three
    expected = [
        min((edits(r.split(), h.split()), -len(r.split())) for r in several)
        for h, *several in zip(hypotheses, *columns, strict=True)
    ]
    rate = score_translations(hypotheses, list(zip(*columns, strict=True)), ["wer"])["wer"]
    assert rate == pytest.approx(sum(e for e, _ in expected) / -sum(n for _, n in expected), abs=1e-5)


def test_metrics_that_are_asked_for_and_their_names() -> None:
    assert set(score_translations(["a"], ["a"], ["chrf", "loss", "aer"])) == {"chrf", "chrf_signature"}
    assert set(TEXT_METRICS) < set(METRICS)
    texts = ["Hello, world!"], ["Hello , world !"]
    exact = {name: score_translations(*texts, ["bleu"], name)["bleu"] for name in ("none", "13a")}
    assert exact["13a"] == pytest.approx(100)
    assert exact["none"] < 20
    with pytest.raises(ValueError, match="2 hypotheses but 1 references"):
        score_translations(["a", "b"], ["a"])


def test_lines_with_one_source_are_references_of_one() -> None:
    sources, references = group_references(["to", "a", "to", "to"], ["T UW", "AH", "T AH", "T UW"])
    assert sources == ["to", "a"]
    assert references == [["T UW", "T AH"], ["AH"]]
