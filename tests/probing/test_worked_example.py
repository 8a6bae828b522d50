"""The lesson's example comes out of the real modules, to the digit, and every number follows its inputs."""

import numpy as np
import pytest

from hf_seq2seq_attn.probing import WorkedExample, example_steps, example_title, to_text, worked_example
from hf_seq2seq_attn.probing.attention_steps import AttentionSteps


def format_example(example: WorkedExample, lang: str = "en") -> str:
    return to_text(example_title(lang), example_steps(example, lang))


def test_the_numbers_of_the_lesson() -> None:
    example = worked_example()
    np.testing.assert_allclose(example.dot.raw, [0.58, 0.46, 0.42], atol=1e-6)
    np.testing.assert_allclose(example.dot.scores, [0.410, 0.325, 0.297], atol=5e-4)
    np.testing.assert_allclose(example.dot.exponentials, [1.507, 1.384, 1.346], atol=5e-4)
    assert example.dot.total == pytest.approx(4.237, abs=5e-4)
    np.testing.assert_allclose(example.dot.weights, [0.356, 0.327, 0.318], atol=5e-4)
    np.testing.assert_allclose(example.dot.context, [0.44987, 0.55013], atol=5e-6)
    np.testing.assert_allclose(example.fused["concat"], [0.6, 0.4, 0.45, 0.55], atol=5e-4)
    np.testing.assert_allclose(example.fused["add"], [1.05, 0.95], atol=5e-4)


def test_the_gate_mixes_state_and_context() -> None:
    example = worked_example()
    state, context = example.state, example.dot.context
    gate = 1 / (1 + np.exp(-(state + context)))
    np.testing.assert_allclose(example.fused["gate"], gate * state + (1 - gate) * context, atol=1e-6)


def test_additive_scores_by_hand() -> None:
    example = worked_example()
    hidden = np.tanh(example.state + example.encoder)
    np.testing.assert_allclose(example.additive.scores, hidden.sum(1), atol=1e-6)
    assert example.additive.weights.argmax() == 1, "additive scoring with these weights looks at `love`"


@pytest.mark.parametrize(
    ("state", "encoder"),
    [((0.2, 0.9), ((0.9, 0.1), (0.3, 0.7), (0.1, 0.9))), ((-1.5, 2.0), ((0.0, 1.0), (2.0, -1.0), (0.5, 0.5)))],
)
def test_every_number_follows_the_inputs(state: tuple, encoder: tuple) -> None:
    example, lesson = worked_example(state, encoder), worked_example()
    h = np.array(encoder)
    scores = h @ np.array(state) / np.sqrt(2)
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(example.dot.weights, weights, atol=1e-6)
    np.testing.assert_allclose(example.dot.context, weights @ h, atol=1e-6)
    for kind in ("concat", "add", "gate"):
        assert not np.allclose(example.fused[kind], lesson.fused[kind])
        assert example.probabilities[kind].sum() == pytest.approx(1)
    assert format_example(example) != format_example(lesson)


@pytest.mark.parametrize(
    ("lang", "words"),
    [
        ("en", ("1. Encode", "2. Query", "3. Score", "4. Softmax", "5. Context", "6. Fuse", "by hand gives", "concat")),
        (
            "zh",
            ("1. 编码", "2. 构建 Query", "3. 注意力评分", "4. Softmax", "5. 上下文向量", "6. 融合并预测", "得", "拼接"),
        ),
    ],
)
def test_the_text_shows_all_six_steps_and_says_where_rounding_differs(lang: str, words: tuple) -> None:
    text = format_example(worked_example(), lang)
    for part in (
        "I love cats", "[0.5, 0.8]", "0.410122", "0.325", "0.297", "0.356", "0.327", "0.318", "[0.44987, 0.55013]",
        "[1.05, 0.95]", "h_1 = [0.90, 0.10]", "喜", *words,
    ):  # fmt: skip
        assert part in text, part
    assert "0.551]" in text, "the sum of the rounded products"


@pytest.mark.parametrize(("state", "encoder"), [((0.6,), None), ((0.6, 0.4), ((1, 2), (3, 4)))])
def test_wrong_shapes_are_refused(state: tuple, encoder: tuple | None) -> None:
    with pytest.raises(ValueError, match=r"2 numbers|pair for each"):
        worked_example(state, *([] if encoder is None else [encoder]))


@pytest.mark.parametrize("size", [2000, -2000])
def test_scores_too_large_or_too_small_for_exponentials(size: int) -> None:
    example = worked_example((size, size))
    # The encoder outputs sum to 1 each, so that the scores are alike.
    np.testing.assert_allclose(example.dot.scores, size / np.sqrt(2), rtol=1e-6)
    np.testing.assert_allclose(example.dot.weights, 1 / 3, atol=1e-3)
    text = format_example(example)
    assert f"e^(score - {example.dot.shift:.3f})" in text and "1.000" in text


def test_steps_know_their_shapes() -> None:
    steps: AttentionSteps = worked_example().dot
    assert steps.keys.shape == steps.values.shape == (3, 2) and steps.weights.shape == (3,)
