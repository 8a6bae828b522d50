"""Why scores are divided by the root of the key's width: variance, entropy and gradient with and without it.

For q and k whose d_k components are independent with mean 0 and variance 1, q.k has variance d_k (Vaswani et al. 2017,
footnote 4). The wider the key, the larger the scores, the nearer softmax comes to one-hot, and the smaller its
gradient; divided by sqrt(d_k) the variance stays 1.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from hf_seq2seq_attn.errors import UnusableError

from .attention_parts import AttentionParts, attention_parts, named_attention_layers
from .capture import attend_eagerly, check_model, private_copy
from .extraction import extract
from .tokens import Sentence
from .walk_pass import run_rows

WIDTHS = (2, 4, 8, 16, 32, 64, 128, 256, 512)
KEYS = 32


@dataclass(frozen=True)
class ScalingRow:
    """How softmax behaves at one width of the keys.

    Attributes:
        source: `random`, or the layer of a trained model.
        width: d_k. scaled: whether the scores are divided by its root.
        variance: of the scores of one query, mean over queries.
        entropy: of the weights, as a share of the most that so many keys allow; 1 = uniform, 0 = one-hot.
        gradient: Frobenius norm of the softmax Jacobian diag(a) - a a^T, mean over queries.
    """

    source: str
    width: int
    scaled: bool
    variance: float
    entropy: float
    gradient: float

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain JSON values."""
        return asdict(self)


def random_scaling(
    widths: Sequence[int] = WIDTHS, keys: int = KEYS, queries: int = 2000, seed: int = 0
) -> list[ScalingRow]:
    """Measure random queries and keys of standard normal numbers at each width, unscaled and scaled."""
    if keys < 2 or queries < 1 or any(width < 1 for width in widths):
        raise UnusableError(f"widths={list(widths)}, keys={keys}, queries={queries}: at least 1, and two keys")
    rows = []
    for width in widths:
        generator = np.random.default_rng([seed, width])
        products = np.einsum(
            "nw,nsw->ns", generator.normal(size=(queries, width)), generator.normal(size=(queries, keys, width))
        )
        rows += _both("random", width, [products])
    return rows


@torch.no_grad()
def model_scaling(
    model: Any, tokenizer: Any, sources: Sequence[Sentence], targets: Sequence[Sentence], **extraction: Any
) -> list[ScalingRow]:
    """Measure the queries and keys of a trained model, layer by layer, over sentence pairs.

    The scores are those before scaling (q.k), whatever the model itself does with them, and the same divided by the
    root of its keys' width. Sources of one token, whose weight is 1 whatever the score, are left out.

    Args:
        extraction: `source_prefix`, `source_language`, `target_language`, as for `extract`.

    Raises:
        ValueError: a model that scores by addition, or that cannot be walked through.
    """
    check_model(model)
    copied = private_copy(model)
    attend_eagerly(copied)
    layers = named_attention_layers(copied)
    parts_of_layers = [attention_parts(layer) for layer in layers]
    if any(parts.score_vector is not None for parts in parts_of_layers):
        raise UnusableError("additive attention has no products to scale; give a model with dot-product attention")
    # Of the maps only the ids are read, which are the same for every layer.
    pairs = list(extract(copied, tokenizer, sources, targets, layers=[0], heads=[0], **extraction))
    rows = []
    for number, parts in enumerate(parts_of_layers):
        products = []
        for maps in pairs:
            states, encoder_states = run_rows(copied, layers, number, maps)
            if len(encoder_states) > 1:
                products += list(_products(parts, states, encoder_states))
        if not products:
            raise UnusableError("no source has two tokens; give longer sentences")
        rows += _both(f"layer {number}", parts.query.weight.shape[1] // parts.heads, products)
    return rows


def _products(parts: AttentionParts, states: np.ndarray, encoder_states: np.ndarray) -> np.ndarray:
    """Return q.k of every head: (H, T, S)."""
    queries, keys = parts.query(states), parts.key(encoder_states)
    split = (np.stack(np.split(each, parts.heads, axis=-1)) for each in (queries, keys))
    queries, keys = split
    return queries @ keys.transpose(0, 2, 1)


def _both(source: str, width: int, products: Sequence[np.ndarray]) -> list[ScalingRow]:
    """Return the rows for products, arrays of (queries, keys), as they are and divided by the root of the width."""
    rows = []
    for scaled in (False, True):
        measured = [_measure(each / np.sqrt(width) if scaled else each) for each in products]
        counts = np.array([len(each) for each in products], dtype=float)
        variance, entropy, gradient = np.average(measured, axis=0, weights=counts)
        rows.append(ScalingRow(source, width, scaled, float(variance), float(entropy), float(gradient)))
    return rows


def _measure(scores: np.ndarray) -> tuple[float, float, float]:
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=1, keepdims=True)
    logarithms = np.log(np.where(weights > 0, weights, 1.0))
    entropy = -(weights * logarithms).sum(1) / np.log(scores.shape[1])
    squares = (weights**2).sum(1)
    # |diag(a) - a a^T|^2 = sum a^2 - 2 sum a^3 + (sum a^2)^2
    gradient = np.sqrt(np.maximum(squares - 2 * (weights**3).sum(1) + squares**2, 0.0))
    return float(scores.var(axis=1).mean()), float(entropy.mean()), float(gradient.mean())


SCALING_MEASURES = {
    "variance": "variance of scores",
    "entropy": "entropy (share of uniform)",
    "gradient": "softmax gradient",
}


def draw_scaling(rows: Sequence[ScalingRow], axes: Sequence[Any] | None = None) -> Any:
    """Draw variance, entropy and gradient against width, scaled and not; return the matplotlib figure.

    Args:
        axes: three axes to draw on; None = a new figure. One measure on axes of your own: `draw_scaling_measure`.
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(10, 3.2), layout="constrained").subplots(1, 3)
    for ax, name in zip(axes, SCALING_MEASURES, strict=True):
        draw_scaling_measure(rows, name, ax)
    axes[0].legend(fontsize="small")
    return axes[0].figure


def draw_scaling_measure(rows: Sequence[ScalingRow], name: str, ax: Any = None) -> Any:
    """Draw one measure against width, scaled and not, and return the axes.

    Args:
        name: one of `SCALING_MEASURES`.
        ax: axes to draw on; None makes a figure (`ax.figure`).

    Raises:
        ValueError: another name.
    """
    from matplotlib.figure import Figure

    if name not in SCALING_MEASURES:
        raise UnusableError(f"name is {name!r}; allowed are {', '.join(SCALING_MEASURES)}")
    if ax is None:
        ax = Figure(figsize=(3.6, 3.2), layout="constrained").add_subplot()
    for scaled, style in ((False, "o--"), (True, "s-")):
        line = [row for row in rows if row.scaled == scaled and row.source == "random"]
        label = "divided by √d_k" if scaled else "as they are"
        ax.plot([row.width for row in line], [getattr(row, name) for row in line], style, label=label)
        trained = [row for row in rows if row.scaled == scaled and row.source != "random"]
        if trained:
            widths, values = [row.width for row in trained], [getattr(row, name) for row in trained]
            ax.plot(widths, values, "x" if scaled else "+", color="black", label="trained, " + label)
    ax.set(xlabel="d_k", title=SCALING_MEASURES[name], yscale="log" if name == "variance" else "linear")
    ax.set_xscale("log", base=2)
    return ax
