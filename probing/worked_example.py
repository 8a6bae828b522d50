"""The worked example of the lesson, computed by the real modules: I love cats -> the step that predicts 喜.

Weights are loaded into the package's own attention and fusion; every number printed comes out of them, so that other
states and encoder outputs can be tried.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hf_seq2seq_attn import AdditiveAttention, ContextFusion, ScaledDotProductAttention
from hf_seq2seq_attn.cross_attention import Attention

from .attention_layers import AttentionLayer
from .attention_parts import attention_parts
from .attention_steps import AttentionSteps, attention_steps
from .explanation import plain_values

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
# Products of two such numbers are far from the largest float32.
LARGEST_NUMBER = 1e6


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

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers as plain JSON values."""
        return plain_values(asdict(self))


@torch.no_grad()
def worked_example(state: Sequence[float] = STATE, encoder: Sequence[Sequence[float]] = ENCODER) -> WorkedExample:
    """Compute the example for a decoder state (2 numbers) and encoder outputs (one pair for each source word).

    Raises:
        ValueError: not 2 numbers, or not 3 pairs.
    """
    check_vectors(state, encoder)
    query, states = torch.tensor([[state]], dtype=torch.float32), torch.tensor([encoder], dtype=torch.float32)
    kinds: tuple[type[Attention], ...] = (ScaledDotProductAttention, AdditiveAttention)
    steps, contexts = {}, {}
    for kind in kinds:
        attention = with_identity_projections(kind(2, 2, 2).eval())
        memory = attention.remember(states)
        contexts[kind], _ = attention(query, memory, output_weights=True)
        layer = AttentionLayer(attention, attention.v_proj, attention.out_proj)
        steps[kind] = attention_steps(attention_parts(layer), _numbers(query[0, 0]), _numbers(states[0]))[0]
    fused, readouts, probabilities, losses = {}, {}, {}, {}
    context = contexts[ScaledDotProductAttention]
    for kind_of_fusion in FUSIONS:
        fusion = readable_fusion(kind_of_fusion)
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


def check_vectors(state: Sequence[float], encoder: Sequence[Sequence[float]]) -> None:
    """Raise a ValueError unless there are 2 numbers, and a pair for each source word."""
    if len(state) != 2:
        raise ValueError(f"the state has 2 numbers, e.g. 0.6,0.4; got {len(state)}")
    if len(encoder) != len(SOURCE) or any(len(row) != 2 for row in encoder):
        raise ValueError('the encoder has a pair for each of I, love, cats, e.g. "0.9,0.1 0.3,0.7 0.1,0.9"')


def with_identity_projections(attention: Attention) -> Attention:
    """Load W_Q = W_K = W_V = I, so that Q is the state and K and V are the encoder outputs."""
    for name, parameter in attention.named_parameters():
        if name == "score_vector":
            parameter.copy_(torch.tensor([ADDITIVE_VECTOR]))
        else:
            parameter.copy_(torch.eye(2) if parameter.ndim == 2 else torch.zeros(2))
    return attention


def readable_fusion(kind: str) -> ContextFusion:
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
