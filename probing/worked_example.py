"""The worked example of the lesson, computed by the real modules: I love cats -> the step that predicts 喜.

Weights are loaded into the package's own attention and fusion; every number printed comes out of them, so that other
states and encoder outputs can be tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from hf_seq2seq_attn import AdditiveAttention, ContextFusion, ScaledDotProductAttention
from hf_seq2seq_attn.cross_attention import Attention

from .attention_steps import AttentionSteps, attention_steps

SOURCE = ("I", "love", "cats")
TARGET = ("<s>", "我", "喜", "欢", "猫", "</s>")
STEP = 2  # TARGET[STEP] is predicted, TARGET[STEP - 1] has just been read
EMBEDDINGS = ((1.0, 0.0), (0.5, 0.8), (0.2, 1.0))
ENCODER = ((0.9, 0.1), (0.3, 0.7), (0.1, 0.9))
STATE = (0.6, 0.4)
# The lesson stops before the output layer; this one is ours: a direction in the plane for each target word.
OUTPUT = ((-1.0, -1.0), (2.0, -1.0), (1.0, 2.0), (0.5, 1.5), (-1.0, 2.0), (-1.5, -0.5))
FUSIONS = ("concat", "add", "gate")
ADDITIVE_VECTOR = (1.0, 1.0)


@dataclass(frozen=True)
class WorkedExample:
    """All numbers of the example.

    Attributes:
        state: (2,) s_2. encoder: (3, 2) h_1..h_3. embeddings: (3, 2).
        dot, additive: Steps 2 to 5 under either scoring function, on the same vectors.
        fused: State and context combined, for each of concat, add and gate.
        readouts, probabilities: What the output layer makes of each, over `TARGET`.
        cross_entropy: -log p(喜) for each.
    """

    state: np.ndarray
    encoder: np.ndarray
    embeddings: np.ndarray
    dot: AttentionSteps
    additive: AttentionSteps
    fused: dict[str, np.ndarray]
    readouts: dict[str, np.ndarray]
    probabilities: dict[str, np.ndarray]
    cross_entropy: dict[str, float]


@torch.no_grad()
def worked_example(state: Sequence[float] = STATE, encoder: Sequence[Sequence[float]] = ENCODER) -> WorkedExample:
    """Compute the example for a decoder state (2 numbers) and encoder outputs (one pair for each source word).

    Raises:
        ValueError: not 2 numbers, or not 3 pairs.
    """
    if len(state) != 2:
        raise ValueError(f"the state has 2 numbers, e.g. 0.6,0.4; got {len(state)}")
    if len(encoder) != len(SOURCE) or any(len(row) != 2 for row in encoder):
        raise ValueError('the encoder has a pair for each of I, love, cats, e.g. "0.9,0.1 0.3,0.7 0.1,0.9"')
    query, states = torch.tensor([[state]], dtype=torch.float32), torch.tensor([encoder], dtype=torch.float32)
    kinds: tuple[type[Attention], ...] = (ScaledDotProductAttention, AdditiveAttention)
    steps, contexts = {}, {}
    for kind in kinds:
        attention = _with_identity_projections(kind(2, 2, 2).eval())
        memory = attention.remember(states)
        contexts[kind], _ = attention(query, memory, output_weights=True)
        steps[kind] = attention_steps(attention, query[0, 0], memory)
    fused, readouts, probabilities, losses = {}, {}, {}, {}
    context = contexts[ScaledDotProductAttention]
    for kind_of_fusion in FUSIONS:
        fusion = _fusion(kind_of_fusion)
        readout = fusion(query, context)[0, 0]
        distribution = torch.softmax(torch.tensor(OUTPUT) @ readout, dim=-1)
        fused[kind_of_fusion] = _numbers(fusion.combine(query, context)[0, 0])
        readouts[kind_of_fusion] = _numbers(readout)
        probabilities[kind_of_fusion] = _numbers(distribution)
        losses[kind_of_fusion] = -float(distribution[STEP].log())
    embedding = nn.Embedding.from_pretrained(torch.tensor(EMBEDDINGS))
    return WorkedExample(
        state=_numbers(query[0, 0]),
        encoder=_numbers(states[0]),
        embeddings=_numbers(embedding(torch.arange(len(SOURCE)))),
        dot=steps[ScaledDotProductAttention],
        additive=steps[AdditiveAttention],
        fused=fused,
        readouts=readouts,
        probabilities=probabilities,
        cross_entropy=losses,
    )


def _with_identity_projections(attention: Attention) -> Attention:
    """Load W_Q = W_K = W_V = I, so that Q is the state and K and V are the encoder outputs."""
    for name, parameter in attention.named_parameters():
        if name == "score_vector":
            parameter.copy_(torch.tensor([ADDITIVE_VECTOR]))
        else:
            parameter.copy_(torch.eye(2) if parameter.ndim == 2 else torch.zeros(2))
    return attention


def _fusion(kind: str) -> ContextFusion:
    """Return a fusion whose readout is tanh(s + c), whose gate is sigmoid(s + c), bias free."""
    fusion = ContextFusion(kind, 2, 2, 2).eval()
    for name, parameter in fusion.named_parameters():
        if parameter.ndim == 1:
            parameter.zero_()
        else:
            parameter.copy_(torch.eye(2).repeat(1, parameter.shape[1] // 2))
        assert name.startswith(("gate_proj", "readout_proj"))
    return fusion


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def format_example(example: WorkedExample) -> str:
    """Return the example as text: words, embeddings, the six steps, the fusions and the flow."""
    return "\n\n".join(
        [
            _opening(example),
            _dot_steps(example),
            _additive_steps(example),
            _fusion_step(example),
            _flow(example),
        ]
    )


def _opening(example: WorkedExample) -> str:
    lines = [
        f"Source  {' '.join(SOURCE)}",
        f"Target  {' '.join(TARGET)}   (the decoder has read {' '.join(TARGET[:STEP])} and predicts {TARGET[STEP]})",
        "",
        "Embeddings e_i, and step 1: the encoder's outputs h_i",
    ]
    lines += [
        f"  {word:<6} e_{i} = {_vector(e, 1)}   h_{i} = {_vector(h, 2)}"
        for i, (word, e, h) in enumerate(zip(SOURCE, example.embeddings, example.encoder, strict=True), start=1)
    ]
    return "\n".join(lines)


def _dot_steps(example: WorkedExample) -> str:
    steps = example.dot
    root = 1 / steps.scale
    lines = [
        "Step 2: query, keys, values (W_Q = W_K = W_V = I)",
        f"  Q = s_2 W_Q = {_vector(steps.query, 2)}   K_i = h_i W_K, V_i = h_i W_V",
        "",
        f"Step 3: scores by scaled dot product, Q.K_i / sqrt(d_k), d_k = {len(steps.query)}, sqrt = {root:.3f}",
    ]
    for i, word in enumerate(SOURCE):
        products = " + ".join(f"{q:.2g} x {k:.2g}" for q, k in zip(steps.query, steps.keys[i], strict=True))
        lines.append(f"  {word:<6} {products} = {steps.raw[i]:.3f};  / {root:.3f} = {steps.scores[i]:.3f}")
    exponentials = ", ".join(f"{value:.3f}" for value in steps.exponentials)
    exponent = f"(score - {steps.shift:.3f})" if steps.shift else "score"
    lines += [
        "",
        "Step 4: softmax over the readable positions",
        f"  e^{exponent} = {exponentials};  sum = {steps.total:.3f}",
        f"  weights a = {_vector(steps.weights, 3)}",
        "",
        "Step 5: context c_2 = sum_i a_i V_i",
    ]
    lines += [
        f"  {word:<6} {a:.3f} x {_vector(v, 2)} = {_vector(w, 3)}"
        for word, a, v, w in zip(SOURCE, steps.weights, steps.values, steps.weighted, strict=True)
    ]
    rounded = np.round(steps.weighted, 3).sum(0)
    lines.append(f"  c_2 = {_vector(steps.context, 3)}   more exactly {_vector(steps.context, 5)}")
    if not np.array_equal(np.round(steps.context, 3), np.round(rounded, 3)):
        lines.append(f"  (adding the rounded products by hand gives {_vector(rounded, 3)})")
    return "\n".join(lines)


def _additive_steps(example: WorkedExample) -> str:
    steps = example.additive
    assert steps.hidden is not None and steps.score_vector is not None
    lines = [
        f"The same vectors under additive scoring, v.tanh(W_q q + W_k k_i), W_q = W_k = I, v = "
        f"{_vector(steps.score_vector, 0)}"
    ]
    lines += [
        f"  {word:<6} tanh{_vector(steps.query + k, 2)} = {_vector(h, 3)};  score {s:.3f}"
        for word, k, h, s in zip(SOURCE, steps.keys, steps.hidden, steps.scores, strict=True)
    ]
    lines.append(f"  weights a = {_vector(steps.weights, 3)};  context = {_vector(steps.context, 3)}")
    return "\n".join(lines)


def _fusion_step(example: WorkedExample) -> str:
    lines = [
        f"Step 6: fuse c_2 with s_2 = {_vector(example.state, 2)} (dot-product context), then readout r = tanh(s + c),",
        "  an output layer over the six target words, softmax, and cross-entropy with the true word 喜",
    ]
    for kind in FUSIONS:
        best = int(example.probabilities[kind].argmax())
        lines.append(
            f"  {kind:<6} {_vector(example.fused[kind], 2)};  r = {_vector(example.readouts[kind], 3)};  "
            f"p(喜) = {example.probabilities[kind][STEP]:.3f}, most likely {TARGET[best]};  "
            f"loss {example.cross_entropy[kind]:.3f}"
        )
    lines.append("  (the lesson stops at the fusion: readout and output layer are this package's, with weights chosen")
    lines.append("  to be followed by hand: W_r = I for each part, gate = sigmoid(s + c), one direction for each word)")
    return "\n".join(lines)


def _flow(example: WorkedExample) -> str:
    steps = example.dot
    columns = [
        [word, "|", f"h_{i} = {_vector(h, 2)}", "|", f"K_{i}, V_{i}"]
        for i, (word, h) in enumerate(zip(SOURCE, example.encoder, strict=True), start=1)
    ]
    width = max(len(cell) for column in columns for cell in column) + 3
    rows = ["".join(column[row].ljust(width) for column in columns).rstrip() for row in range(5)]
    lines = ["The flow", *(f"  {row}" for row in rows), ""]
    lines.append(f"  decoder state s_2 = {_vector(example.state, 2)} -> Q = {_vector(steps.query, 2)}")
    lines += [
        f"    Q.K_{i} / sqrt(d_k) = {score:.3f} -> a_{i} = {weight:.3f}"
        for i, (score, weight) in enumerate(zip(steps.scores, steps.weights, strict=True), start=1)
    ]
    terms = " + ".join(f"{weight:.3f} V_{i}" for i, weight in enumerate(steps.weights, start=1))
    lines.append(f"  c_2 = {terms} = {_vector(steps.context, 2)}")
    lines.append(f"  [s_2; c_2] -> readout -> output layer -> softmax -> {TARGET[STEP]}")
    return "\n".join(lines)


def _vector(values: np.ndarray, digits: int) -> str:
    return "[" + ", ".join(f"{value:.{digits}f}" for value in values) + "]"
