"""Intervals of text metrics, beside a slow bootstrap and sacrebleu's own figures."""

import numpy as np
import pytest
import sacrebleu

from hf_seq2seq_attn.training.scoring import edit_counts, score_translations
from hf_seq2seq_attn.training.text_intervals import score_with_intervals, sentence_scores

REFERENCES = [f"a{n} b{n % 3} c d{n % 5} e" for n in range(23)]
HYPOTHESES = [text if n % 4 else text.replace("c", "x y") for n, text in enumerate(REFERENCES)]


def test_values_are_those_without_intervals_and_lie_inside() -> None:
    metrics = ("per", "word_error_rate", "bleu", "chrf", "wer", "exact_match")
    plain = score_translations(HYPOTHESES, REFERENCES, metrics)
    scores = score_with_intervals(HYPOTHESES, REFERENCES, metrics)
    assert list(scores) == ["chrf", "bleu", "wer", "per", "exact_match", "word_error_rate"]
    for name, score in scores.items():
        assert score.value == plain[name]
        assert score.ci95[0] < score.value < score.ci95[1]
        assert score.resamples == 1000
    assert scores["word_error_rate"].ci95 == pytest.approx(tuple(1 - end for end in scores["exact_match"].ci95[::-1]))


def test_lower_case_is_sacrebleus_own_and_of_bleu_alone() -> None:
    shouted = [text.upper() for text in HYPOTHESES]
    scores = score_with_intervals(shouted, REFERENCES, ("bleu", "chrf"), "13a", bleu_lowercase=True)
    expected = sacrebleu.BLEU(tokenize="13a", lowercase=True).corpus_score(shouted, [REFERENCES]).score
    assert scores["bleu"].value == pytest.approx(expected, abs=1e-3) and scores["bleu"].value > 50
    assert "case:lc" in str(scores["bleu"].signature) and scores["chrf"].value < 10


def test_sacrebleu_resamples_bleu_and_chrf_itself() -> None:
    scores = score_with_intervals(HYPOTHESES, REFERENCES, ("bleu", "chrf"), "13a")
    metric = sacrebleu.BLEU(tokenize="13a", force=True)
    expected = metric.corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000)
    found = scores["bleu"]
    assert sum(found.ci95) / 2 == pytest.approx(expected._mean, abs=1e-3)
    assert (found.ci95[1] - found.ci95[0]) / 2 == pytest.approx(expected._ci, abs=1e-3)
    assert found.signature == str(metric.get_signature())
    assert "bs:1000|seed:12345" in found.signature and "tok:13a" in found.signature


def test_an_edit_rate_s_interval_is_that_of_a_slow_bootstrap() -> None:
    counts = edit_counts(HYPOTHESES, [[text] for text in REFERENCES])
    generator = np.random.default_rng(3)
    rates = []
    for _ in range(1000):
        drawn = [counts[k] for k in generator.integers(0, len(counts), len(counts), dtype=np.int32)]
        rates.append(sum(edits for edits, _ in drawn) / sum(words for _, words in drawn))
    found = score_with_intervals(HYPOTHESES, REFERENCES, ("wer",), seed=3)["wer"]
    assert found.ci95 == pytest.approx(np.quantile(rates, [0.025, 0.975]), abs=1e-5)


def test_without_a_difference_there_is_no_width() -> None:
    scores = score_with_intervals(REFERENCES, REFERENCES, ("chrf", "wer", "exact_match"))
    assert {name: score.ci95 for name, score in scores.items()} == {
        "chrf": (100, 100),
        "wer": (0, 0),
        "exact_match": (1, 1),
    }


def test_resamples_that_score_nothing_are_counted_too() -> None:
    scores = score_with_intervals(["zz", "qq", "ab cd ef gh"], ["ab", "cd", "ab cd ef gh"], ("chrf", "bleu"))
    assert all(0 <= score.ci95[0] < score.value < score.ci95[1] <= 100 for score in scores.values())


def test_a_sentence_counts_against_its_best_reference() -> None:
    assert sentence_scores(["ab cd", "", "x"], [["zz", "ab cd"], "ab", "x"]) == pytest.approx([100, 0, 100])


@pytest.mark.parametrize(
    ("hypotheses", "metrics", "message"),
    [(["a"], ("aer",), r"metrics is \['aer'\]"), (["a"], (), "allowed are chrf"), ([], ("wer",), "no sentence")],
)
def test_what_cannot_be_scored(hypotheses: list[str], metrics: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score_with_intervals(hypotheses, hypotheses, metrics)
    with pytest.raises(ValueError, match="2 hypotheses but 1 references"):
        score_with_intervals(["a", "b"], ["a"])
