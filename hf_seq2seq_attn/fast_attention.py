"""Cross-attention in a decoding step: one query for each hypothesis, and what it reads held once for each sentence."""

from typing import cast

import torch
from torch import Tensor

from .additive_scores import PreparedKeys, prepare_keys, score_rows
from .cross_attention import AdditiveAttention, Attention, Memory, ScaledDotProductAttention
from .fast_linear import linear


class SourceAttention:
    """`Attention.forward` of R = B x k hypotheses, k to a sentence, that are the k queries of the sentence.

    So keys and values (B, H, S, width) are neither repeated for the hypotheses nor reordered when these change places.

    Args:
        attention: in eval mode.
        memory: what it remembers of the B sentences.
        beams: k.
    """

    def __init__(self, attention: Attention, memory: Memory, beams: int) -> None:
        self.memory, self.beams = memory, beams
        self.heads, rows = attention.heads, len(memory.keys) * beams
        self.q_proj = linear(attention.q_proj.weight, attention.q_proj.bias, rows)
        out = attention.out_proj
        self.out_proj = None if out is None else linear(out.weight, out.bias, rows)
        self.scale = attention.scale if isinstance(attention, ScaledDotProductAttention) else 1.0
        self.score_vector = attention.score_vector if isinstance(attention, AdditiveAttention) else None
        self._prepare()

    def _prepare(self) -> None:
        keys, values, readable = self.memory
        self.values = values.contiguous()
        self.keys: PreparedKeys | Tensor = keys.contiguous() if self.score_vector is None else prepare_keys(keys)
        self.unreadable = self.has_something = None
        if readable is not None and not bool(readable.all()):
            self.unreadable = torch.zeros(readable.shape, dtype=values.dtype, device=values.device)
            self.unreadable.masked_fill_(~readable, torch.finfo(values.dtype).min)
            filled = readable.flatten(1).any(1)
            if not bool(filled.all()):
                self.has_something = filled.repeat_interleave(self.beams)[:, None].to(values.dtype)

    def keep(self, sentences: Tensor) -> None:
        """Let all sentences go but those at these indices."""
        keys, values, readable = self.memory
        readable = readable[sentences] if readable is not None and readable.shape[0] > 1 else readable
        self.memory = Memory(keys[sentences], values[sentences], readable)
        self._prepare()

    def __call__(self, states: Tensor) -> Tensor:
        """Return contexts (R, output_dim) for decoder states (R, query_dim)."""
        rows = states.shape[0]
        queries = self.q_proj(states).view(rows // self.beams, self.beams, self.heads, -1).transpose(1, 2)
        weights = torch.softmax(self._scores(queries), dim=-1)
        context = (weights @ self.values).transpose(1, 2).reshape(rows, -1)
        if self.out_proj is not None:
            context = self.out_proj(context)
        return context if self.has_something is None else context * self.has_something

    def _scores(self, queries: Tensor) -> Tensor:
        if isinstance(self.keys, PreparedKeys) and self.score_vector is not None:
            scores = score_rows(queries, self.keys, self.score_vector)
        else:
            scores = (queries @ cast(Tensor, self.keys).transpose(-1, -2)).mul_(self.scale)
        return scores if self.unreadable is None else scores.add_(self.unreadable)
