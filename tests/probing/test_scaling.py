"""Unscaled scores grow with the width and softmax saturates; scaled ones do not."""

import numpy as np
import pytest
from probes import foreign_model, subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import draw_scaling, draw_scaling_measure, model_scaling, random_scaling
from hf_seq2seq_attn.probing.scaling import _measure

SOURCES = ["the cats love today.", "I love cats", ""]
TARGETS = ["understand this", "the unloved day", "cats"]


def test_the_measures_are_those_of_the_definitions() -> None:
    scores = np.random.default_rng(2).normal(size=(3, 5)) * 2
    weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    jacobians = [np.diag(a) - np.outer(a, a) for a in weights]
    variance, entropy, gradient = _measure(scores)
    assert variance == pytest.approx(np.mean([row.var() for row in scores]))
    assert entropy == pytest.approx(np.mean([-(a * np.log(a)).sum() / np.log(5) for a in weights]))
    assert gradient == pytest.approx(np.mean([np.linalg.norm(jacobian) for jacobian in jacobians]))


def test_variance_grows_with_the_width_unless_scaled() -> None:
    rows = random_scaling(widths=(4, 64, 512), queries=400)
    plain, scaled = ([row for row in rows if row.scaled == flag] for flag in (False, True))
    for row in plain:
        assert row.variance == pytest.approx(row.width, rel=0.2)
    for row in scaled:
        assert row.variance == pytest.approx(1, abs=0.2)
    assert plain[0].entropy > plain[1].entropy > plain[2].entropy and plain[2].entropy < 0.1
    assert plain[2].gradient < 0.5 * scaled[2].gradient
    assert scaled[2].entropy > 0.8
    assert random_scaling(widths=(4,), queries=50) == random_scaling(widths=(4,), queries=50)


@pytest.mark.parametrize("kind", ["ours", "marian", "t5"])
def test_a_models_own_queries_and_keys(kind: str) -> None:
    tokenizer = subword_tokenizer()
    model = tiny_model(vocab_size=len(tokenizer)) if kind == "ours" else foreign_model(kind, vocabulary=len(tokenizer))
    rows = model_scaling(model, tokenizer, SOURCES, TARGETS)
    layers = len(rows) // 2
    width = {"ours": 4, "marian": 6, "t5": 5}[kind]
    assert [row.source for row in rows[::2]] == [f"layer {n}" for n in range(layers)]
    for plain, scaled in zip(rows[::2], rows[1::2], strict=True):
        assert plain.width == width and plain.variance == pytest.approx(scaled.variance * width)


def test_additive_attention_is_refused_in_words() -> None:
    tokenizer = subword_tokenizer()
    model = tiny_model(vocab_size=len(tokenizer), cross_attention_type="additive")
    with pytest.raises(ValueError, match="no products to scale"):
        model_scaling(model, tokenizer, SOURCES, TARGETS)


def test_the_picture_shows_every_row() -> None:
    rows = random_scaling(widths=(2, 8), queries=20)
    figure = draw_scaling(rows)
    for ax, name in zip(figure.axes, ("variance", "entropy", "gradient"), strict=True):
        drawn = sorted(float(value) for line in ax.lines for value in line.get_ydata())
        np.testing.assert_allclose(drawn, sorted(getattr(row, name) for row in rows))


def test_a_prefix_is_read_too_and_unknown_modules_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = subword_tokenizer()
    model = foreign_model("t5", vocabulary=len(tokenizer))
    plain, prefixed = (
        model_scaling(model, tokenizer, SOURCES, TARGETS, source_prefix=each) for each in ("", "the day ")
    )
    assert plain[0].variance != prefixed[0].variance
    monkeypatch.setattr("hf_seq2seq_attn.probing.attention_parts.find_attention_layers", lambda model: [])
    with pytest.raises(ValueError, match="no module of a known name"):
        model_scaling(model, tokenizer, SOURCES, TARGETS)


def test_one_measure_on_axes_of_one_s_own() -> None:
    from matplotlib.figure import Figure

    rows = random_scaling(widths=(4, 16), queries=50)
    ax = Figure().add_subplot()
    assert draw_scaling_measure(rows, "entropy", ax) is ax
    assert [list(line.get_xdata()) for line in ax.lines] == [[4, 16], [4, 16]]
    assert draw_scaling_measure(rows, "variance").get_yscale() == "log"
    with pytest.raises(ValueError, match="name is 'sum'; allowed are variance, entropy, gradient"):
        draw_scaling_measure(rows, "sum")
