"""Transformer encoder and decoder (Vaswani et al. 2017), with either cross-attention."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions

from .configuration_seq2seq_attn import Seq2SeqAttnConfig
from .cross_attention import Attention, Memory, ScaledDotProductAttention
from .side import Side


class FeedForward(nn.Module):
    """The position-wise network of a layer (Vaswani et al. 2017, eq. 2)."""

    def __init__(self, config: Seq2SeqAttnConfig, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.d_model, width)
        self.fc2 = nn.Linear(width, config.d_model)
        self.activation = ACT2FN[config.activation_function]

    def forward(self, states: Tensor) -> Tensor:
        """Return (B, L, D) for states (B, L, D)."""
        return self.fc2(self.activation(self.fc1(states)))


class Residual(nn.Module):
    """The frame around each sub-layer: norm before or after, dropout, addition."""

    def __init__(self, config: Seq2SeqAttnConfig) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.normalize_before = config.normalize_before

    def before(self, states: Tensor) -> Tensor:
        """Return what the sub-layer reads."""
        return self.layer_norm(states) if self.normalize_before else states

    def after(self, states: Tensor, change: Tensor) -> Tensor:
        """Return the states with the sub-layer's result added."""
        states = states + self.dropout(change)
        return states if self.normalize_before else self.layer_norm(states)


def self_attention(config: Seq2SeqAttnConfig, heads: int) -> ScaledDotProductAttention:
    """Return the self-attention of one layer: always scaled dot product, whatever the cross-attention."""
    width = config.d_model
    return ScaledDotProductAttention(width, width, width, heads=heads, dropout=config.attention_dropout, config=config)


class EncoderLayer(GradientCheckpointingLayer):
    """Self-attention, then feed-forward."""

    def __init__(self, config: Seq2SeqAttnConfig) -> None:
        super().__init__()
        self.self_attn = self_attention(config, config.encoder_attention_heads)
        self.self_attn_residual = Residual(config)
        self.feed_forward = FeedForward(config, config.encoder_ffn_dim)
        self.feed_forward_residual = Residual(config)

    def forward(
        self, states: Tensor, attention_mask: Tensor | None, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return states (B, S, D) and, if asked for, the self-attention weights (B, H, S, S)."""
        inputs = cast_once(self.self_attn_residual.before(states))
        change, weights = self.self_attn(inputs, self.self_attn.remember(inputs, attention_mask), output_attentions)
        states = self.self_attn_residual.after(states, change)
        change = self.feed_forward(self.feed_forward_residual.before(states))
        return self.feed_forward_residual.after(states, change), weights


class DecoderLayer(GradientCheckpointingLayer):
    """Self-attention over the past, cross-attention over the source, feed-forward."""

    def __init__(self, config: Seq2SeqAttnConfig, encoder_attn: Attention, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.self_attn = self_attention(config, config.decoder_attention_heads)
        self.self_attn_residual = Residual(config)
        self.encoder_attn = encoder_attn
        self.encoder_attn_residual = Residual(config)
        self.feed_forward = FeedForward(config, config.decoder_ffn_dim)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        states: Tensor,
        causal_mask: Tensor,
        encoder_hidden_states: Tensor,
        encoder_attention_mask: Tensor | None,
        cache: EncoderDecoderCache | None,
        output_attentions: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return states (B, T, D) and, if asked for, self-attention (B, H, T, past + T) and cross-attention weights."""
        inputs = cast_once(self.self_attn_residual.before(states))
        change, self_weights = self.self_attn(inputs, self._past(inputs, causal_mask, cache), output_attentions)
        states = self.self_attn_residual.after(states, change)
        change, cross_weights = self.encoder_attn(
            self.encoder_attn_residual.before(states),
            self._source(encoder_hidden_states, encoder_attention_mask, cache),
            output_attentions,
        )
        states = self.encoder_attn_residual.after(states, change)
        change = self.feed_forward(self.feed_forward_residual.before(states))
        return self.feed_forward_residual.after(states, change), self_weights, cross_weights

    def _past(self, inputs: Tensor, causal_mask: Tensor, cache: EncoderDecoderCache | None) -> Memory:
        """Return the keys and values of all target positions so far."""
        keys, values, _ = self.self_attn.remember(inputs)
        if cache is not None:
            keys, values = cache.self_attention_cache.update(keys, values, self.layer_idx)
        return Memory(keys, values, causal_mask)

    def _source(self, states: Tensor, attention_mask: Tensor | None, cache: EncoderDecoderCache | None) -> Memory:
        """Return the keys and values of the source, projected once per sentence where there is a cache."""
        if self.encoder_attn.v_proj is not None:
            states = cast_once(states)
        if cache is None:
            return self.encoder_attn.remember(states, attention_mask)
        if not cache.is_updated.get(self.layer_idx):
            memory = self.encoder_attn.remember(states, attention_mask)
            cache.cross_attention_cache.update(memory.keys, memory.values, self.layer_idx)
            cache.is_updated[self.layer_idx] = True
            return memory
        kept: Any = cache.cross_attention_cache.layers[self.layer_idx]
        return Memory(kept.keys, kept.values, self.encoder_attn.readable(attention_mask))


class TransformerSide(Side):
    """Embeddings with positions, and the norm that pre-norm layers need at the end."""

    adds_positions = True

    def __init__(self, config: Seq2SeqAttnConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        learned = config.position_embedding_type == "learned"
        self.embed_positions = nn.Embedding(config.max_position_embeddings, config.d_model) if learned else None
        self.layer_norm = nn.LayerNorm(config.d_model) if config.normalize_before else None

    def add_positions(
        self, embedded: Tensor, attention_mask: Tensor | None, past: int | Tensor = 0, columns: int | None = None
    ) -> Tensor:
        """Add to embedded (B, L, D) what says where each token stands, counting real tokens only.

        Args:
            attention_mask: (B, past + L), 1 = real; positions are its running sum, so that padding on either side
                changes nothing. None = all real.
            past: Number of tokens before these.
            columns: Number of positions there can be; None = past + L.

        Raises:
            ValueError: learned positions, and the sequence is longer than `max_position_embeddings`.
        """
        length = embedded.shape[1]
        if attention_mask is None:
            positions = (torch.arange(length, device=embedded.device) + past)[None]
        else:
            positions = (attention_mask.long().cumsum(1) - 1).clamp(min=0)[:, -length:]
        if self.embed_positions is None:
            table = sinusoids(columns or int(past) + length, embedded.shape[-1], embedded.device)
            return embedded + table[positions].to(embedded.dtype)
        if past + length > self.config.max_position_embeddings:
            raise ValueError(
                f"a sequence of {int(past) + length} tokens is longer than "
                f"max_position_embeddings={self.config.max_position_embeddings}; shorten it, or train a model with "
                "more positions or with position_embedding_type='sinusoidal'"
            )
        return embedded + self.embed_positions(positions)

    def finish(self, states: Tensor) -> Tensor:
        """Return the last states, normed if the layers have not done so."""
        return states if self.layer_norm is None else self.layer_norm(states)


class TransformerEncoder(TransformerSide):
    """Layers of self-attention over the source."""

    def __init__(self, config: Seq2SeqAttnConfig) -> None:
        super().__init__(config, config.vocab_size)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput | tuple:
        """Return states (B, S, D), and on request those after each layer and the weights (B, H, S, S) of each."""
        config = self.config
        want_weights = config.output_attentions if output_attentions is None else output_attentions
        want_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        states = self.dropout(self.add_positions(self.embed(input_ids, inputs_embeds), attention_mask))
        all_states, all_weights = [states], []
        for layer in self.layers:
            states, weights = layer(states, attention_mask, bool(want_weights))
            all_states.append(states)
            all_weights.append(weights)
        all_states[-1] = states = self.finish(states)
        output = BaseModelOutput(
            last_hidden_state=states,
            hidden_states=tuple(all_states) if want_states else None,
            attentions=tuple(all_weights) if want_weights else None,
        )
        return output if return_dict is not False else output.to_tuple()


class TransformerDecoder(TransformerSide):
    """Layers that attend to the target so far and to the source."""

    def __init__(self, config: Seq2SeqAttnConfig, encoder_attn: list[Attention]) -> None:
        super().__init__(config, config.target_vocab_size)
        self.layers = nn.ModuleList(
            DecoderLayer(config, attention, index) for index, attention in enumerate(encoder_attn)
        )

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Return states (B, T, D) for the tokens after those in the cache; `attention_mask` (B, past + T), 1 = real."""
        if use_cache and cache is None:
            cache = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        if not isinstance(cache, EncoderDecoderCache | None):
            raise TypeError(
                f"cache must be an EncoderDecoderCache, not {type(cache).__name__}; leave it out, or pass on the one "
                "that the model returned"
            )
        states = self.embed(input_ids, inputs_embeds)
        # A static cache counts in a tensor, and has columns for tokens to come.
        past: int | Tensor = 0 if cache is None else cache.get_seq_length()
        columns = states.shape[1] if cache is None else cache.get_mask_sizes(states.shape[1], 0)[0]
        if attention_mask is not None and attention_mask.shape[1] != past + states.shape[1]:
            raise ValueError(
                f"decoder_attention_mask has {attention_mask.shape[1]} columns, but there are {int(past)} cached and "
                f"{states.shape[1]} new tokens; give one column for each"
            )
        states = self.dropout(self.add_positions(states, attention_mask, past, columns))
        causal_mask = causal(states.shape[1], past, attention_mask, states.device, columns)
        all_states: list[Tensor] = [states]
        all_self: list[Tensor] = []
        all_cross: list[Tensor] = []
        for layer in self.layers:
            states, self_weights, cross_weights = layer(
                states, causal_mask, encoder_hidden_states, encoder_attention_mask, cache, bool(output_attentions)
            )
            all_states.append(states)
            all_self.append(self_weights)
            all_cross.append(cross_weights)
        all_states[-1] = states = self.finish(states)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=states,
            cache=cache,
            hidden_states=tuple(all_states) if output_hidden_states else None,
            attentions=tuple(all_self) if output_attentions else None,
            cross_attentions=tuple(all_cross) if output_attentions else None,
        )


def cast_once(states: Tensor) -> Tensor:
    """Return states as autocast has matrix products read them, so that those that share them need not each cast them.

    Without autocast they come back as they are.
    """
    device = states.device.type
    return states.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else states


def causal(
    length: int, past: int | Tensor, attention_mask: Tensor | None, device: torch.device, columns: int | None = None
) -> Tensor:
    """Return bool (1 or B, 1, T, columns): row t reads itself and what came before it, but no padding.

    `columns` is past + T if it is None; those after are read by no row.
    """
    columns = int(past) + length if columns is None else columns
    rows = torch.arange(length, device=device) + past
    readable = (torch.arange(columns, device=device)[None, :] <= rows[:, None])[None, None]
    if attention_mask is None:
        return readable
    return readable & F.pad(attention_mask.bool(), (0, columns - attention_mask.shape[1]))[:, None, None, :]


def sinusoids(length: int, width: int, device: torch.device) -> Tensor:
    """Return position vectors (length, width) in float32: sines in even, cosines in odd columns (ibid., 3.5)."""
    positions = torch.arange(length, device=device, dtype=torch.float32)[:, None]
    columns = torch.arange(width, device=device)
    angles = positions / 10000 ** (2 * (columns // 2) / width)
    return torch.where(columns % 2 == 0, torch.sin(angles), torch.cos(angles))
