"""The worked example goes on: loss, gradients, and some updates of W_Q, W_K and W_V towards the true word.

Each update is one step of gradient descent on the cross-entropy with 喜, in the real modules, and the weights move.
Why is it *I* that gets the most attention, and not *love*? Under a dot product *love* cannot win here: its encoder
output lies between the other two, and so does its score, whatever W_Q and W_K are. Additive scoring can lift it.
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
            "the three matrices; each update takes {rate} times the gradient off them, and the weights move."
        ),
        "between": (
            " Why not {love}? Its encoder output is {share} of the first and {rest} of the third, and so is its dot "
            "product with any query: it can never be the highest, whatever is learnt. Additive scoring can lift it."
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
            "{rate} 倍，权重随之移动。"
        ),
        "between": (
            "为什么不是 {love}？它的编码器输出等于第一个的 {share} 加第三个的 {rest}，它与任何查询的点积也是如此："
            "无论怎样学习都不会最高。加性评分则可以。"
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
        share: of the first encoder output in the second, where that lies on the way from the first to the third: then
            its key, and its score under any query, lie between theirs too. None elsewhere.
    """

    losses: np.ndarray
    probabilities: np.ndarray
    weights: np.ndarray
    gradients: np.ndarray
    matrices: np.ndarray
    share: float | None

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
    return WorkedUpdates(
        losses=np.array(losses),
        probabilities=np.array(probabilities),
        weights=np.array(weights),
        gradients=np.array(gradients),
        matrices=np.array(matrices),
        share=_share_of_first(np.array(encoder, dtype=float)),
    )


def _share_of_first(encoder: np.ndarray) -> float | None:
    """Return t with h_2 = t h_1 + (1 - t) h_3 and 0 <= t <= 1, or None where there is none."""
    first, second, third = encoder
    way = first - third
    share = float((second - third) @ way / (way @ way)) if way.any() else 0.0
    on_it = np.allclose(third + share * way, second, atol=1e-9)
    return share if on_it and 0 <= share <= 1 else None


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
    text = fill(say["text"], word=Token(TARGET[STEP]), rate=f"{LEARNING_RATE:g}")
    if learning.share is not None:
        parts = {"share": f"{learning.share:.0%}", "rest": f"{1 - learning.share:.0%}"}
        text += fill(say["between"], love=Token(SOURCE[1]), **parts)
    q, k, v = (
        formula("[" + ", ".join(vector(row, 3).plain for row in matrix) + "]") for matrix in learning.matrices[-1]
    )
    after = fill(say["after"], count=str(len(learning.losses) - 1), q=q, k=k, v=v)
    return [Step(say["title"], text, table(header, rows), after)]
