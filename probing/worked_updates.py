"""The worked example goes on: loss, gradients, and some updates of W_Q, W_K and W_V towards the true word.

Why is it *I* that gets the most attention, and not *love*? Because nothing has been learnt yet. Each update here is one
step of gradient descent on the cross-entropy with 喜, in the real modules, and the weights move.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from hf_seq2seq_attn import ScaledDotProductAttention

from .explanation import Part, Share, Step, Token, fill, formula, number, plain_values, table, vector
from .walk_steps import checked_language
from .worked_example import ENCODER, OUTPUT, SOURCE, STATE, STEP, TARGET, readable_fusion, with_identity_projections

LEARNING_RATE = 2.0
MATRICES = ("W_Q", "W_K", "W_V")
_PHRASES: dict[str, dict[str, str]] = {
    "en": {
        "title": "Learn",
        "text": (
            "Cross-entropy with {word} flows back through the output layer, fusion (concat), context and softmax into "
            "the three matrices; each update takes {rate} times the gradient off them. Why not {love} at once? Nothing "
            "has been learnt yet: with every update the weights move."
        ),
        "update": "update",
        "loss": "loss",
        "gradients": "gradient of W_Q, W_K, W_V (norms)",
        "after": "After {count} updates W_Q = {q}, W_K = {k}, W_V = {v}.",
    },
    "zh": {
        "title": "学习",
        "text": (
            "以 {word} 为真实词的交叉熵经输出层、融合（拼接）、上下文和 softmax 反向传播到三个矩阵；每次更新减去梯度的 "
            "{rate} 倍。为什么一开始不是 {love}？因为还没有学习：每次更新后权重都会移动。"
        ),
        "update": "更新",
        "loss": "损失",
        "gradients": "W_Q、W_K、W_V 的梯度（范数）",
        "after": "{count} 次更新之后 W_Q = {q}，W_K = {k}，W_V = {v}。",
    },
}


@dataclass(frozen=True)
class WorkedUpdates:
    """The example before the first update and after each; U updates.

    Attributes:
        losses: (U + 1,) cross-entropy with 喜. probabilities: (U + 1,) p(喜).
        weights: (U + 1, 3) attention over the source words.
        gradients: (U + 1, 3, 2, 2) of W_Q, W_K, W_V. matrices: (U + 1, 3, 2, 2) themselves; x W as in the lesson.
    """

    losses: np.ndarray
    probabilities: np.ndarray
    weights: np.ndarray
    gradients: np.ndarray
    matrices: np.ndarray

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers as plain JSON values."""
        return plain_values(asdict(self))


def worked_updates(
    state: Sequence[float] = STATE,
    encoder: Sequence[Sequence[float]] = ENCODER,
    updates: int = 5,
    learning_rate: float = LEARNING_RATE,
) -> WorkedUpdates:
    """Train W_Q, W_K and W_V of the worked example by `updates` steps of gradient descent."""
    with torch.no_grad():
        attention = with_identity_projections(ScaledDotProductAttention(2, 2, 2).eval())
        fusion = readable_fusion("concat")
    assert attention.v_proj is not None
    learnt = [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]
    query, states = torch.tensor([[state]], dtype=torch.float32), torch.tensor([encoder], dtype=torch.float32)
    losses, probabilities, weights, gradients, matrices = [], [], [], [], []
    for _ in range(updates + 1):
        context, attended = attention(query, attention.remember(states), output_weights=True)
        scores = torch.tensor(OUTPUT) @ fusion(query, context)[0, 0]
        loss = torch.nn.functional.cross_entropy(scores, torch.tensor(STEP))
        slopes = torch.autograd.grad(loss, learnt)
        losses.append(loss.item())
        probabilities.append(torch.softmax(scores, -1)[STEP].item())
        weights.append(attended[0, 0, 0].detach().numpy())
        # torch keeps W transposed.
        gradients.append([slope.T.numpy() for slope in slopes])
        matrices.append([matrix.detach().T.numpy().copy() for matrix in learnt])
        with torch.no_grad():
            for matrix, slope in zip(learnt, slopes, strict=True):
                matrix -= learning_rate * slope
    return WorkedUpdates(*(np.array(each) for each in (losses, probabilities, weights, gradients, matrices)))


def update_steps(learning: WorkedUpdates, lang: str = "en") -> list[Step]:
    """Return what the updates do as one step, to follow those of the example."""
    say = _PHRASES[checked_language(lang)]
    norms = np.linalg.norm(learning.gradients, axis=(2, 3))
    rows: list[list[Part]] = [
        [str(count), number(loss), Share(probability), *map(number, weights), vector(norm)]
        for count, (loss, probability, weights, norm) in enumerate(
            zip(learning.losses, learning.probabilities, learning.weights, norms, strict=True)
        )
    ]
    header = [say["update"], say["loss"], f"p({TARGET[STEP]})", *(Token(f"a({word})") for word in SOURCE),
              say["gradients"]]  # fmt: skip
    text = fill(say["text"], word=Token(TARGET[STEP]), love=Token(SOURCE[1]), rate=f"{LEARNING_RATE:g}")
    q, k, v = (
        formula("[" + ", ".join(vector(row, 3).plain for row in matrix) + "]") for matrix in learning.matrices[-1]
    )
    after = fill(say["after"], count=str(len(learning.losses) - 1), q=q, k=k, v=v)
    return [Step(say["title"], text, table(header, rows), after)]
