"""The worked example learns: its gradients are right, and the weights move towards the true word."""

import numpy as np
import pytest

from hf_seq2seq_attn.probing import to_text, update_steps, worked_example, worked_updates
from hf_seq2seq_attn.probing.worked_example import ENCODER, OUTPUT, STATE, STEP


def loss_by_hand(matrices: np.ndarray) -> float:
    """Return the cross-entropy of the example for W_Q, W_K, W_V, in NumPy alone."""
    state, encoder = np.array(STATE), np.array(ENCODER)
    q, k, v = state @ matrices[0], encoder @ matrices[1], encoder @ matrices[2]
    exponentials = np.exp(k @ q / np.sqrt(2))
    context = exponentials / exponentials.sum() @ v
    scores = np.array(OUTPUT) @ np.tanh(state + context)
    return float(np.log(np.exp(scores).sum()) - scores[STEP])


def test_losses_and_gradients_are_those_of_the_formulas() -> None:
    learning = worked_updates(updates=3)
    for loss, gradients, matrices in zip(learning.losses, learning.gradients, learning.matrices, strict=True):
        assert loss == pytest.approx(loss_by_hand(matrices), abs=1e-6)
        for place in np.ndindex(3, 2, 2):
            shift = np.zeros((3, 2, 2))
            shift[place] = 1e-5
            slope = (loss_by_hand(matrices + shift) - loss_by_hand(matrices - shift)) / 2e-5
            assert gradients[place] == pytest.approx(slope, abs=1e-5)


def test_it_starts_from_the_example_and_the_weights_are_seen_to_move() -> None:
    learning, example = worked_updates(), worked_example()
    assert learning.losses[0] == pytest.approx(example.cross_entropy["concat"], abs=1e-6)
    np.testing.assert_allclose(learning.weights[0], example.dot.weights, atol=1e-6)
    assert (np.diff(learning.losses) < 0).all() and (np.diff(learning.probabilities) > 0).all()
    attention_to_i, attention_to_love = learning.weights[:, 0], learning.weights[:, 1]
    assert (np.diff(attention_to_i) < 0).all() and (np.diff(attention_to_love) > 0).all()


@pytest.mark.parametrize(
    ("lang", "words"),
    [("en", "Why not love? Its encoder output is 25% of the first and 75%"), ("zh", "为什么不是 love")],
)
def test_the_text_says_what_moved(lang: str, words: str) -> None:
    learning = worked_updates(updates=2)
    text = " ".join(to_text((), update_steps(learning, lang)).split())
    assert words in text and f"{learning.losses[2]:.3f}" in text and f"{learning.matrices[2, 2, 0, 0]:.3f}" in text


def test_love_is_explained_only_where_it_lies_between_the_others() -> None:
    elsewhere = worked_updates(encoder=((0.9, 0.1), (0.3, 0.9), (0.1, 0.9)), updates=1)
    assert elsewhere.share is None and "Why not" not in to_text((), update_steps(elsewhere))
    assert worked_updates(encoder=((1, 1), (1, 1), (1, 1)), updates=0).share == 0


def test_what_lies_between_never_scores_highest() -> None:
    """The claim of the text, over drawn matrices."""
    draw = np.random.default_rng(1)
    encoder = np.array(ENCODER)
    for _ in range(200):
        scores = encoder @ draw.normal(size=(2, 2)) @ (np.array(STATE) @ draw.normal(size=(2, 2)))
        assert scores[1] <= max(scores[0], scores[2]) + 1e-12
