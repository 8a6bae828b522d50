"""A step of the Transformer decoder in generation: `TransformerDecoder.forward` for one token, without modules."""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.cache_utils import EncoderDecoderCache

from .cross_attention import ScaledDotProductAttention
from .fast_attention import SourceAttention
from .fast_linear import PACKED_WEIGHTS, linear
from .transformer import DecoderLayer, Residual, TransformerDecoder, sinusoids

# Columns of the first self-attention caches; they double when they are full.
FIRST_COLUMNS = 32


class Frame:
    """`Residual` in eval mode: the norm before or after a sub-layer, and the addition."""

    def __init__(self, residual: Residual) -> None:
        norm = residual.layer_norm
        self.norm: Any = (norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        self.normalize_before = residual.normalize_before

    def before(self, states: Tensor) -> Tensor:
        """Return what the sub-layer reads."""
        return F.layer_norm(states, *self.norm) if self.normalize_before else states

    def after(self, states: Tensor, change: Tensor) -> Tensor:
        """Return the states with the sub-layer's result added."""
        states = states + change
        return states if self.normalize_before else F.layer_norm(states, *self.norm)


class Past:
    """Self-attention over the tokens so far, whose keys and values stay where they were written.

    Column t holds what the k hypotheses of a sentence wrote at step t, so the `columns` (2, B, H, count x k, width)
    are keys and values of the sentence. When hypotheses change places nothing moves: `readable` (B, 1, k, columns x
    k), 0 or -inf, says which of them each has in its own past. It is one for all layers.
    """

    def __init__(self, attention: ScaledDotProductAttention, batch: int, beams: int) -> None:
        self.batch, self.beams, self.heads, self.scale = batch, beams, attention.heads, attention.scale
        queries, keys, out = attention.q_proj, attention.k_proj, attention.out_proj
        values = cast(nn.Linear, attention.v_proj)
        # Keys have no bias. As one product, small weights are read faster; of large ones a copy would cost more.
        self.merged = keys.weight.numel() < PACKED_WEIGHTS
        if self.merged:
            bias = torch.cat([queries.bias, torch.zeros_like(queries.bias), values.bias])
            self.project = linear(torch.cat([queries.weight, keys.weight, values.weight]), bias, batch * beams)
        else:
            self.apart = [linear(part.weight, part.bias, batch * beams) for part in (queries, keys, values)]
        self.out_proj = linear(cast(nn.Linear, out).weight, cast(nn.Linear, out).bias, batch * beams)
        width = keys.out_features // self.heads
        self.columns = keys.weight.new_empty(2, batch, self.heads, FIRST_COLUMNS * beams, width)

    def grow(self) -> None:
        """Double the columns."""
        self.columns = torch.cat([self.columns, torch.empty_like(self.columns)], 3)

    def keep(self, sentences: Tensor) -> None:
        """Let all sentences go but those at these indices."""
        self.batch, self.columns = len(sentences), self.columns[:, sentences]

    def __call__(self, states: Tensor, column: int, readable: Tensor | None) -> Tensor:
        """Write column `column`, and return what states (R, D) find in the columns up to it, (R, D)."""
        projected = self.project(states) if self.merged else torch.cat([part(states) for part in self.apart], 1)
        # (3, B, H, k, width)
        projected = projected.view(self.batch, self.beams, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        end = (column + 1) * self.beams
        self.columns[:, :, :, end - self.beams : end] = projected[1:]
        keys, values = self.columns[0, :, :, :end], self.columns[1, :, :, :end]
        context = F.scaled_dot_product_attention(projected[0], keys, values, attn_mask=readable, scale=self.scale)
        return self.out_proj(context.transpose(1, 2).reshape(states.shape[0], -1))

    def of_rows(self, count: int, writers: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return keys and values (R, H, count, width) of each hypothesis's own past.

        writers (R, count): which hypothesis of its sentence wrote each column of it. None = there is one.
        """
        columns = self.columns[:, :, :, : count * self.beams].unflatten(3, (count, self.beams))
        if writers is None:
            return columns[0, :, :, :, 0], columns[1, :, :, :, 0]
        rows = columns.repeat_interleave(self.beams, 1)
        index = writers[None, :, None, :, None, None].expand(*rows.shape[:4], 1, rows.shape[-1])
        keys, values = rows.gather(4, index)[:, :, :, :, 0]
        return keys, values


class FastLayer:
    """`DecoderLayer` for one token."""

    def __init__(self, layer: DecoderLayer, states: Tensor, attention_mask: Tensor | None, beams: int) -> None:
        self.past = Past(layer.self_attn, states.shape[0], beams)
        self.source = SourceAttention(layer.encoder_attn, layer.encoder_attn.remember(states, attention_mask), beams)
        self.past_frame = Frame(layer.self_attn_residual)
        self.source_frame = Frame(layer.encoder_attn_residual)
        self.feed_forward_frame = Frame(layer.feed_forward_residual)
        network = layer.feed_forward
        rows = states.shape[0] * beams
        self.fc1, self.fc2 = (linear(part.weight, part.bias, rows) for part in (network.fc1, network.fc2))
        self.activation = network.activation

    def __call__(self, states: Tensor, column: int, readable: Tensor | None) -> Tensor:
        """Return the states (R, D) above this layer."""
        change = self.past(self.past_frame.before(states), column, readable)
        states = self.past_frame.after(states, change)
        states = self.source_frame.after(states, self.source(self.source_frame.before(states)))
        hidden = self.activation(self.fc1(self.feed_forward_frame.before(states)))
        return self.feed_forward_frame.after(states, self.fc2(hidden))


class TransformerStep:
    """Read one token of each hypothesis and give the scores of the next.

    The arguments are those of `RecurrentStep`.
    """

    def __init__(
        self,
        decoder: TransformerDecoder,
        lm_head: nn.Linear,
        states: Tensor,
        attention_mask: Tensor | None,
        beams: int,
        tokens: int,
    ) -> None:
        self.beams, self.read, self.growth = beams, 0, 1
        self.layers = [FastLayer(cast(DecoderLayer, layer), states, attention_mask, beams) for layer in decoder.layers]
        self.embeddings, self.scale = decoder.embed_tokens.weight, decoder.embed_scale
        self.of_vocabulary = linear(lm_head.weight, lm_head.bias, states.shape[0] * beams)
        self.finish = decoder.finish
        if decoder.embed_positions is None:
            self.positions = sinusoids(tokens, self.embeddings.shape[1], states.device).to(self.embeddings.dtype)
        else:
            self.positions = decoder.embed_positions.weight
        # (R, columns, k), 0 or -inf; in a column not yet written, each hypothesis has what it will write itself.
        self.readable: Tensor | None = None
        if beams > 1:
            own = torch.eye(beams, dtype=states.dtype, device=states.device).log()
            self.readable = own.repeat(states.shape[0], 1)[:, None].repeat(1, FIRST_COLUMNS, 1)

    def __call__(self, tokens: Tensor) -> Tensor:
        """Return logits (R, V) for the tokens (R,) that come next."""
        column, readable = self.read, None
        if column == FIRST_COLUMNS * self.growth:
            self._grow()
        states = torch.add(self.positions[column], F.embedding(tokens, self.embeddings), alpha=self.scale)
        if self.readable is not None:
            readable = self.readable[:, : column + 1].reshape(-1, 1, self.beams, (column + 1) * self.beams)
        for layer in self.layers:
            states = layer(states, column, readable)
        self.read += 1
        return self.of_vocabulary(self.finish(states))

    def _grow(self) -> None:
        self.growth *= 2
        for layer in self.layers:
            layer.past.grow()
        if self.readable is not None:
            own = torch.eye(self.beams, dtype=self.readable.dtype, device=self.readable.device).log()
            more = own.repeat(len(self.readable) // self.beams, 1)[:, None].expand_as(self.readable)
            self.readable = torch.cat([self.readable, more], 1)

    def follow(self, rows: Tensor) -> None:
        """Let hypothesis i go on from where hypothesis rows[i] (R,) is."""
        if self.readable is not None:
            self.readable[:, : self.read] = self.readable[:, : self.read].index_select(0, rows)

    def keep(self, sentences: Tensor) -> None:
        """Let all sentences go but those at these indices."""
        for layer in self.layers:
            layer.past.keep(sentences)
            layer.source.keep(sentences)
        if self.readable is not None:
            self.readable = self.readable.unflatten(0, (-1, self.beams))[sentences].flatten(0, 1)

    def fill(self, cache: EncoderDecoderCache) -> None:
        """Leave in an empty cache what the decoder would have left there."""
        writers = None if self.readable is None else (self.readable[:, : self.read] == 0).int().argmax(-1)
        for index, layer in enumerate(self.layers):
            cache.self_attention_cache.update(*layer.past.of_rows(self.read, writers), index)
            keys, values, _ = layer.source.memory
            keys, values = (part.repeat_interleave(self.beams, 0) for part in (keys, values))
            cache.cross_attention_cache.update(keys, values, index)
            cache.is_updated[index] = True
