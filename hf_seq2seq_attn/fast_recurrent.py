"""A step of the recurrent decoder in generation: `RecurrentDecoder.step` for one token, without modules or autograd."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cross_attention import Attention
from .fast_attention import SourceAttention
from .fast_linear import linear
from .recurrent import RecurrentDecoder
from .recurrent_cache import RecurrentCache
from .recurrent_gates import gru_gates, lstm_gates


class SourceSummary:
    """`FixedContext` with the face of `SourceAttention`: each hypothesis gets its sentence's summary."""

    def __init__(self, summary: Tensor, beams: int) -> None:
        self.context = summary.repeat_interleave(beams, 0)
        self.beams = beams

    def keep(self, sentences: Tensor) -> None:
        """Let all sentences go but those at these indices."""
        self.context = self.context.unflatten(0, (-1, self.beams))[sentences].flatten(0, 1)

    def __call__(self, states: Tensor) -> Tensor:
        """Return the summaries (R, D)."""
        return self.context


class Cell:
    """One layer's GRU or LSTM for one token."""

    def __init__(self, layer: nn.Module, rows: int) -> None:
        found: Any = layer
        self.of_inputs = linear(found.weight_ih_l0, found.bias_ih_l0, rows)
        self.of_state = linear(found.weight_hh_l0, found.bias_hh_l0, rows)
        self.is_lstm = isinstance(layer, nn.LSTM)

    def __call__(self, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the state (h,) or (h, cell), each (R, D), after inputs (R, width)."""
        return self.advance(self.of_inputs(inputs), state)

    def advance(self, of_inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the state after inputs that are given as W_ih x + b_ih."""
        of_state = self.of_state(state[0])
        if self.is_lstm:
            return lstm_gates(of_inputs, of_state, state[1])[:2]
        return gru_gates(of_inputs, of_state, state[0])[:1]


class RecurrentStep:
    """Read one token of each hypothesis and give the scores of the next.

    Args:
        decoder, lm_head: in eval mode.
        states: encoder states (B, S, D).
        attention_mask: (B, S), 1 = read, or None.
        beams: k, hypotheses to a sentence; they stand one after the other in R = B x k rows.
        tokens: how many tokens may come, at most.
    """

    def __init__(
        self,
        decoder: RecurrentDecoder,
        lm_head: nn.Linear,
        states: Tensor,
        attention_mask: Tensor | None,
        beams: int,
        tokens: int,
    ) -> None:
        self.beams, self.read = beams, 0
        self.attends_before = decoder.attends_before
        rows = states.shape[0] * beams
        self.of_vocabulary = linear(lm_head.weight, lm_head.bias, rows)
        self.fusion = decoder.context_fusion
        self.of_readout = linear(self.fusion.readout_proj.weight, self.fusion.readout_proj.bias, rows)
        self.cells = [Cell(layer, rows) for layer in decoder.layers]
        self.memory = decoder._memory(states, attention_mask, None)
        attention = decoder.encoder_attn
        self.attend: SourceAttention | SourceSummary
        if isinstance(attention, Attention):
            self.attend = SourceAttention(attention, self.memory, beams)
        else:
            self.attend = SourceSummary(self.memory.values, beams)
        first = decoder._state(states, attention_mask, None)
        self.layers = [tuple(part.repeat_interleave(beams, 0) for part in layer) for layer in first.layers]
        self.readout = None if first.readout is None else first.readout.repeat_interleave(beams, 0)
        self._prepare_embeddings(decoder, reads=rows * tokens)

    def _prepare_embeddings(self, decoder: RecurrentDecoder, reads: int) -> None:
        """Look up W_ih x instead of x where the vocabulary is smaller than half the tokens that may be read."""
        self.embeddings, self.scale = decoder.embed_tokens.weight, decoder.embed_scale
        self.gates = None
        if 2 * self.embeddings.shape[0] <= reads:
            width = self.embeddings.shape[1]
            lowest: Any = decoder.layers[0]
            weight = lowest.weight_ih_l0
            self.gates = F.linear(self.embeddings * self.scale, weight[:, :width], lowest.bias_ih_l0)
            self.of_more = weight[:, width:].t()

    def __call__(self, tokens: Tensor) -> Tensor:
        """Return logits (R, V) for the tokens (R,) that come next."""
        context = None
        more = self.readout
        if self.attends_before:
            more = context = self.attend(self.layers[-1][0])
        self.layers[0] = self._first_layer(tokens, more)
        for index in range(1, len(self.cells)):
            self.layers[index] = self.cells[index](self.layers[index - 1][0], self.layers[index])
        hidden = self.layers[-1][0]
        if context is None:
            context = self.attend(hidden)
        readout = torch.tanh(self.of_readout(self.fusion.combine(hidden, context)))
        if self.readout is not None:
            self.readout = readout
        self.read += 1
        return self.of_vocabulary(readout)

    def _first_layer(self, tokens: Tensor, more: Tensor | None) -> tuple[Tensor, ...]:
        """Run the lowest layer over [x; more], where more is the context, the last readout or nothing."""
        cell, state = self.cells[0], self.layers[0]
        if self.gates is None:
            inputs = F.embedding(tokens, self.embeddings) * self.scale
            return cell(inputs if more is None else torch.cat([inputs, more], dim=-1), state)
        gates = self.gates.index_select(0, tokens)
        return cell.advance(gates if more is None else gates.addmm_(more, self.of_more), state)

    def follow(self, rows: Tensor) -> None:
        """Let hypothesis i go on from where hypothesis rows[i] (R,) is."""
        self.layers = [tuple(part.index_select(0, rows) for part in layer) for layer in self.layers]
        if self.readout is not None:
            self.readout = self.readout.index_select(0, rows)

    def keep(self, sentences: Tensor) -> None:
        """Let all sentences go but those at these indices."""
        self.attend.keep(sentences)
        offsets = torch.arange(self.beams, device=sentences.device)
        self.follow((sentences[:, None] * self.beams + offsets).flatten())

    def fill(self, cache: RecurrentCache) -> None:
        """Leave in an empty cache what the decoder would have left there."""
        fed = () if self.readout is None else (self.readout,)
        for index, (layer, state) in enumerate(zip(cache.states, self.layers, strict=True)):
            layer.update(*state, *(fed if index == len(self.layers) - 1 else ()), tokens=self.read)
        keys, values, _ = self.memory
        cache.memory.update(*(part.repeat_interleave(self.beams, 0) for part in (keys, values)))
        cache.is_updated[0] = True
