"""Fuse the decoder state with the context vector: the step between attention and the output layer."""

import torch
from torch import Tensor, nn


class ContextFusion(nn.Module):
    """Turn state s and context c into the readout r = dropout(tanh(W_r . combine(s, c))) (Luong et al. 2015, eq. 5).

    Args:
        kind: `concat` [s; c]; `add` s + c; `gate` g * s + (1 - g) * c with g = sigmoid(W_g [s; c]).
        state_dim, context_dim: Widths of s and c; `add` and `gate` need them equal.
        output_dim: Width of the readout.
        dropout: On the readout.
    """

    def __init__(self, kind: str, state_dim: int, context_dim: int, output_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        if kind not in ("concat", "add", "gate"):
            raise ValueError(f"context_fusion={kind!r}: must be one of concat, add, gate")
        if kind != "concat" and state_dim != context_dim:
            raise ValueError(
                f"context_fusion={kind!r} needs state and context of one width, not {state_dim} and {context_dim}; "
                "use concat"
            )
        self.kind = kind
        self.gate_proj = nn.Linear(state_dim + context_dim, state_dim) if kind == "gate" else None
        self.readout_proj = nn.Linear(state_dim + context_dim if kind == "concat" else state_dim, output_dim)
        self.dropout = nn.Dropout(dropout)

    def combine(self, state: Tensor, context: Tensor) -> Tensor:
        """Return the fusion itself, before the readout: (..., state_dim), for concat (..., state_dim + context_dim)."""
        if self.kind == "add":
            return state + context
        both = torch.cat([state, context], dim=-1)
        if self.gate_proj is None:
            return both
        gate = torch.sigmoid(self.gate_proj(both))
        return gate * state + (1 - gate) * context

    def forward(self, state: Tensor, context: Tensor) -> Tensor:
        """Return the readout (..., output_dim) for state (..., state_dim) and context (..., context_dim)."""
        return self.dropout(torch.tanh(self.readout_proj(self.combine(state, context))))
