"""Quality by source length: planted hypotheses come out where they were planted."""

from pathlib import Path

import pytest
import sacrebleu
from matplotlib.figure import Figure

from hf_seq2seq_attn.training.length_quality import LengthScore, draw_quality_by_length, score_by_source_length

LENGTHS = (3, 5, 6, 10, 12, 25, 4)
SOURCES = [" ".join(f"s{i}{j}" for j in range(length)) for i, length in enumerate(LENGTHS)]
REFERENCES = [source.upper() for source in SOURCES]


def forgetful(keep: int) -> list[str]:
    """Return the references whose words beyond the first `keep` are another's."""
    return [
        " ".join(word if j < keep else f"x{i}{j}" for j, word in enumerate(reference.split()))
        for i, reference in enumerate(REFERENCES)
    ]


def test_each_range_is_scored_apart() -> None:
    hypotheses = forgetful(6)
    rows = score_by_source_length(hypotheses, REFERENCES, SOURCES, (5, 10, 20), metrics=("bleu", "chrf", "exact_match"))
    assert [(row.first, row.last, row.sentences, row.mean_length) for row in rows] == [
        (0, 5, 3, 4.0), (6, 10, 2, 8.0), (11, 20, 1, 12.0), (21, None, 1, 25.0),
    ]  # fmt: skip
    assert [row.scores["exact_match"] for row in rows] == [1.0, 0.5, 0.0, 0.0]
    bleu, chrf = ([row.scores[name] for row in rows] for name in ("bleu", "chrf"))
    assert bleu[0] == chrf[0] == 100
    for scores in (bleu, chrf):
        assert scores == sorted(scores, reverse=True) and len(set(scores)) == len(scores)
    direct = sacrebleu.corpus_bleu(
        [hypotheses[2], hypotheses[3]], [[REFERENCES[2], REFERENCES[3]]], tokenize="none", force=True
    )
    assert bleu[1] == pytest.approx(direct.score, abs=1e-3)
    assert rows[0].scores["bleu_signature"].startswith("nrefs:1")


def test_a_range_without_sentences_is_left_out_and_bounds_belong_to_the_range_they_end() -> None:
    rows = score_by_source_length(REFERENCES, REFERENCES, SOURCES, (2, 3, 12, 13, 24, 25))
    assert [(row.first, row.last, row.sentences) for row in rows] == [(3, 3, 1), (4, 12, 5), (25, 25, 1)]


def test_several_references_and_lengths_of_another_count() -> None:
    several = [[reference, "something else"] for reference in REFERENCES]
    characters = [len(source) for source in SOURCES]
    rows = score_by_source_length(
        ["something else"] * len(SOURCES), several, SOURCES, (1000,), lengths=characters, metrics=("exact_match",)
    )
    assert [row.scores for row in rows] == [{"exact_match": 1.0}]
    assert rows[0].mean_length == pytest.approx(sum(characters) / len(characters))
    assert rows[0].as_dict() == {
        "first": 0, "last": 1000, "sentences": 7, "mean_length": rows[0].mean_length, "scores": {"exact_match": 1.0},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hypotheses": REFERENCES[:-1]}, "6 hypotheses, 7 references, 7 sources and 7 lengths"),
        ({"lengths": [1, 2]}, "and 2 lengths"),
        ({"bounds": (10, 10)}, "must rise"),
        ({"bounds": ()}, "must rise"),
        ({"metrics": ("aer",)}, r"metrics is \['aer'\]; allowed are chrf, bleu"),
        ({"metrics": ()}, "allowed are"),
    ],
)
def test_what_cannot_be_scored_is_refused(changes: dict, message: str) -> None:
    arguments = {"hypotheses": REFERENCES, "references": REFERENCES, "sources": SOURCES} | changes
    with pytest.raises(ValueError, match=message):
        score_by_source_length(**arguments)


def curve(keep: int) -> list[LengthScore]:
    return score_by_source_length(forgetful(keep), REFERENCES, SOURCES, (5, 10, 20))


def test_the_picture_has_a_line_for_each_model(tmp_path: Path) -> None:
    curves = {"fixed vector": curve(5), "attention": curve(20)}
    ax = draw_quality_by_length(curves, "chrf")
    assert [line.get_label() for line in ax.lines] == list(curves)
    for line, rows in zip(ax.lines, curves.values(), strict=True):
        assert list(line.get_xdata()) == [row.mean_length for row in rows]
        assert list(line.get_ydata()) == [row.scores["chrf"] for row in rows]
    assert len({line.get_marker() for line in ax.lines}) == 2, "told apart by shape as well as colour"
    assert [text.get_text() for text in ax.texts] == ["n=3", "n=2", "n=1", "n=1"]
    assert ax.get_ylabel() == "chrF"
    ax.figure.savefig(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_it_draws_on_given_axes() -> None:
    left, right = Figure().subplots(1, 2)
    assert draw_quality_by_length({"one": curve(3)}, ax=right) is right
    assert not left.lines and right.get_ylabel() == "BLEU"


@pytest.mark.parametrize("curves", [{}, {"one": []}, {"one": curve(3)}])
def test_nothing_to_draw_is_refused(curves: dict) -> None:
    with pytest.raises(ValueError, match=r"metric is 'wer'; scored were (bleu, chrf|no sentences)"):
        draw_quality_by_length(curves, "wer")
