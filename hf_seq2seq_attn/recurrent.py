"""Recurrent encoder and decoder. The decoder is one `step`; everything else repeats it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils import _pytree as pytree
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions

from .configuration_seq2seq_attn import Seq2SeqAttnConfig
from .context_fusion import ContextFusion
from .cross_attention import Attention, Memory
from .loop_twins import LoopCell, attention_twin, cell_twin, fusion_twin, runs_in_loops, twin
from .plain_forms import takes_fast_path
from .recurrent_cache import RecurrentCache, check_cache
from .side import Side

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}
# How many steps a recomputed segment holds when gradient checkpointing is on.
CHECKPOINT_STEPS = 16


class RecurrentEncoderLayer(GradientCheckpointingLayer):
    """One layer of the encoder, over the real tokens only, wherever the padding lies."""

    def __init__(self, config: Seq2SeqAttnConfig) -> None:
        super().__init__()
        directions = 2 if config.encoder_bidirectional else 1
        self.rnn = CELLS[config.encoder_type](
            config.d_model, config.d_model // directions, batch_first=True, bidirectional=directions == 2
        )

    def forward(self, states: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return (B, S, D) for states (B, S, D); padding gives 0."""
        real = None if attention_mask is None else attention_mask.bool()
        if runs_in_loops(self.rnn, states):
            return self._run_in_loops(states, real)
        if real is None:
            return self.rnn(states)[0]
        # Move real tokens to the front, run them packed, put them back where they were.
        order = torch.argsort((~real).int(), dim=1, stable=True)
        # Packing needs at least one token; an empty row reads one padding token, which the mask below takes out.
        lengths = real.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(_take(states, order), lengths, batch_first=True, enforce_sorted=False)
        compact, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=states.shape[1])
        return _take(compact, torch.argsort(order, dim=1)) * real[..., None].to(compact.dtype)

    def _run_in_loops(self, states: Tensor, real: Tensor | None) -> Tensor:
        """Do what `forward` does, with one gradient of each weight for all steps."""
        start = states.new_zeros(len(states), self.rnn.hidden_size)
        state = (start, start) if isinstance(self.rnn, nn.LSTM) else (start,)
        directions = (False, True) if self.rnn.bidirectional else (False,)
        cells = [LoopCell(self.rnn, states.shape[1], at_once=True, reverse=reverse) for reverse in directions]
        hidden = torch.cat([cell.run(states, state, real)[0] for cell in cells], dim=-1)
        return (hidden if real is None else hidden * real[..., None]).to(states.dtype)


class RecurrentEncoder(Side):
    """Read the source, by default both ways: h_i = [forward_i; backward_i] (Bahdanau et al. 2015, 3.2)."""

    def __init__(self, config: Seq2SeqAttnConfig) -> None:
        super().__init__(config, config.vocab_size)
        self.layers = nn.ModuleList(RecurrentEncoderLayer(config) for _ in range(config.encoder_layers))

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput | tuple:
        """Return states (B, S, D); those of padding are 0 and padding anywhere leaves the others as they were.

        `output_attentions` is taken and ignored: there is no self-attention to show.
        """
        states = self.embed(input_ids, inputs_embeds)
        all_states = [states]
        for layer in self.layers:
            states = layer(self.dropout(states), attention_mask)
            all_states.append(states)
        want_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        output = BaseModelOutput(last_hidden_state=states, hidden_states=tuple(all_states) if want_states else None)
        return output if return_dict is not False else output.to_tuple()


def summarise(states: Tensor, attention_mask: Tensor | None, config: Seq2SeqAttnConfig) -> Tensor:
    """Return one vector (B, D) for encoder states (B, S, D): where the decoder starts from.

    For a recurrent encoder its last forward and first backward real state (Sutskever et al. 2014), for a Transformer
    encoder the mean of the real states. A row without any real token gives 0.
    """
    if attention_mask is None:
        attention_mask = torch.ones(states.shape[:2], dtype=torch.long, device=states.device)
    real = attention_mask.bool()
    if not config.encoder_is_recurrent:
        weights = real[..., None].to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1).clamp(min=1)
    positions = torch.arange(states.shape[1], device=states.device).expand_as(real)
    last = _pick(states, positions.masked_fill(~real, 0).amax(1))
    if not config.encoder_bidirectional:
        return last
    first = _pick(states, real.int().argmax(1))
    half = states.shape[-1] // 2
    return torch.cat([last[:, :half], first[:, half:]], dim=-1)


class FixedContext(nn.Module):
    """No attention: one summary of the source is the context of every step (Cho et al. 2014).

    It has the face of an attention, so that the decoder need not know the difference: keys and values are the summary
    (B, D), and there are no weights.
    """

    def __init__(self, config: Seq2SeqAttnConfig) -> None:
        super().__init__()
        self.config = config

    def remember(self, states: Tensor, attention_mask: Tensor | None = None) -> Memory:
        """Summarise states (B, S, D) once per sentence; mask (B, S), 1 = read."""
        summary = summarise(states, attention_mask, self.config)
        return Memory(summary, summary, None)

    def readable(self, attention_mask: Tensor | None) -> None:
        """Return None: the mask went into the summary."""

    def forward(self, query: Tensor, memory: Memory, output_weights: bool = False) -> tuple[Tensor, None]:
        """Return the summary for each of the T queries (B, T, D), and None for the weights."""
        return memory.values[:, None].expand(-1, query.shape[1], -1), None


class DecoderState(NamedTuple):
    """All that a step leaves behind: for each layer (h,) or (h, cell), each (B, D), and r_{t-1} (B, D) if it is fed."""

    layers: tuple[tuple[Tensor, ...], ...]
    readout: Tensor | None


class StepOutput(NamedTuple):
    """What a step, or a run of T steps, gives: readouts (B, T, D); h of each layer (B, T, D); weights (B, H, T, S)."""

    readouts: Tensor
    hidden: tuple[Tensor, ...]
    weights: Tensor | None


class RecurrentDecoder(Side):
    """Write the target one step at a time, looking at the source at each.

    `current_state` (Luong et al. 2015): s_t = RNN(s_{t-1}, x_t), or [x_t; r_{t-1}] with input feeding;
        c_t = attend(s_t).
    `previous_state` (Bahdanau et al. 2015): c_t = attend(s_{t-1}); s_t = RNN(s_{t-1}, [x_t; c_t]).
    Both: r_t = readout(s_t, c_t), the row that predicts the next token. The query is the top layer's h.
    """

    _gradient_checkpointing_func: Callable  # set by the library when it turns checkpointing on

    def __init__(self, config: Seq2SeqAttnConfig, encoder_attn: Attention | FixedContext) -> None:
        super().__init__(config, config.target_vocab_size)
        width = config.d_model
        self.encoder_attn = encoder_attn
        self.attends_before = config.attend_with == "previous_state"
        self.feeds_more = self.attends_before or config.input_feeding
        self.layers = nn.ModuleList(
            CELLS[config.decoder_type](width * 2 if self.feeds_more and layer == 0 else width, width, batch_first=True)
            for layer in range(config.decoder_layers)
        )
        self.init_proj = nn.ModuleList(nn.Linear(width, width) for _ in range(config.decoder_layers))
        self.context_fusion = ContextFusion(str(config.context_fusion), width, width, width, config.dropout)
        self.gradient_checkpointing = False

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        cache: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Return readouts (B, T, D), starting from the cache where it holds a state, else from the encoder.

        Where `attention_mask` (B, T or past + T) is 0 the state stands still.
        """
        inputs = self.embed(input_ids, inputs_embeds)
        if cache is not None:
            check_cache(cache)
        elif use_cache:
            cache = RecurrentCache(len(self.layers))
        keep = self._keep(attention_mask, inputs.shape[1], 0 if cache is None else cache.get_seq_length())
        memory = self._memory(encoder_hidden_states, encoder_attention_mask, cache)
        state = self._state(encoder_hidden_states, encoder_attention_mask, cache)
        want_weights = bool(output_attentions) and self.config.cross_attention_type != "none"
        result, state = self._decode(self.dropout(inputs), state, memory, keep, want_weights)
        if cache is not None:
            for index, (layer, states) in enumerate(zip(cache.states, state.layers, strict=True)):
                fed = (state.readout,) if state.readout is not None and index == len(self.layers) - 1 else ()
                layer.update(*states, *fed, tokens=inputs.shape[1])
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=result.readouts,
            cache=cache,
            hidden_states=(inputs, *result.hidden) if output_hidden_states else None,
            cross_attentions=None if result.weights is None else (result.weights,),
        )

    def step(
        self,
        token: Tensor,
        state: DecoderState,
        memory: Memory,
        keep: Tensor | None = None,
        output_weights: bool = False,
    ) -> tuple[StepOutput, DecoderState]:
        """Read one embedded token (B, D) and move on.

        Args:
            keep: (B,) bool; where False the state stands still. None = all move.

        Returns:
            The step's output (T = 1) and the state after it.
        """
        context = weights = None
        if self.attends_before:
            context, weights = self.encoder_attn(state.layers[-1][0][:, None], memory, output_weights)
            token = torch.cat([token, context[:, 0]], dim=-1)
        elif state.readout is not None:
            token = torch.cat([token, state.readout], dim=-1)
        hidden, layers = token[:, None], []
        for index, (layer, old) in enumerate(zip(self.layers, state.layers, strict=True)):
            hidden, new = _advance(layer, self.dropout(hidden) if index else hidden, old)
            layers.append(new)
        if context is None:
            context, weights = self.encoder_attn(hidden, memory, output_weights)
        readout = self.context_fusion(hidden, context)
        after = DecoderState(tuple(layers), readout[:, 0] if state.readout is not None else None)
        if keep is not None:
            after = _stand_still(keep, after, state)
        return StepOutput(readout, tuple(layer[0][:, None] for layer in layers), weights), after

    def unroll(
        self,
        inputs: Tensor,
        state: DecoderState,
        memory: Memory,
        keep: Tensor | None = None,
        output_weights: bool = False,
    ) -> tuple[StepOutput, DecoderState]:
        """Repeat `step` over embedded inputs (B, T, D); keep is (B, T) bool or None."""
        steps = []
        for t, token in enumerate(inputs.unbind(1)):
            output, state = self.step(token, state, memory, None if keep is None else keep[:, t], output_weights)
            steps.append(output)
        return _join(steps), state

    def scan(
        self, inputs: Tensor, state: DecoderState, memory: Memory, output_weights: bool = False
    ) -> tuple[StepOutput, DecoderState]:
        """Do what `unroll` does, for decoders whose recurrence needs neither context nor readout, in one go.

        The recurrence runs first, then all T queries attend at once.
        """
        hidden, all_hidden, layers = inputs, [], []
        for index, (layer, old) in enumerate(zip(self.layers, state.layers, strict=True)):
            hidden, new = _advance(layer, self.dropout(hidden) if index else hidden, old)
            all_hidden.append(hidden)
            layers.append(new)
        context, weights = self.encoder_attn(hidden, memory, output_weights)
        output = StepOutput(self.context_fusion(hidden, context), tuple(all_hidden), weights)
        return output, DecoderState(tuple(layers), None)

    @staticmethod
    def _keep(attention_mask: Tensor | None, length: int, past: int) -> Tensor | None:
        """Return where the state moves, (B, T) bool, for a mask of the new tokens or of all so far."""
        if attention_mask is None:
            return None
        if attention_mask.shape[1] not in (length, past + length):
            raise ValueError(
                f"decoder_attention_mask has {attention_mask.shape[1]} columns, but there are {past} cached and "
                f"{length} new tokens; give one column for each, or for each new one"
            )
        return attention_mask[:, -length:].bool()

    def _decode(
        self, inputs: Tensor, state: DecoderState, memory: Memory, keep: Tensor | None, output_weights: bool
    ) -> tuple[StepOutput, DecoderState]:
        if keep is not None and bool(keep.all()):
            keep = None
        if not self.feeds_more and keep is None:
            return self._run(self.scan, inputs, state, memory, output_weights)
        if keep is None and inputs.shape[1] > 1 and takes_fast_path() and not self.gradient_checkpointing:
            return self._unroll_twin(inputs, state, memory, output_weights)
        length = CHECKPOINT_STEPS if self.gradient_checkpointing else inputs.shape[1]
        segments = []
        for start in range(0, inputs.shape[1], length):
            part = slice(start, start + length)
            output, state = self._run(
                self.unroll, inputs[:, part], state, memory, None if keep is None else keep[:, part], output_weights
            )
            segments.append(output)
        return _join(segments), state

    def _unroll_twin(
        self, inputs: Tensor, state: DecoderState, memory: Memory, output_weights: bool
    ) -> tuple[StepOutput, DecoderState]:
        """Do what `unroll` does on a twin of this decoder, whose weights get one gradient for all steps."""
        attention, steps = self.encoder_attn, inputs.shape[1]
        made = twin(
            self,
            layers=nn.ModuleList(cell_twin(layer, steps) for layer in self.layers),
            encoder_attn=attention_twin(attention, memory, steps) if isinstance(attention, Attention) else attention,
            context_fusion=fusion_twin(self.context_fusion, steps),
        )
        found = made.unroll(inputs, state, memory, output_weights=output_weights)
        # Inside the loop the states are float32 or better; a model in half precision goes on in its own.
        return pytree.tree_map(lambda part: None if part is None else part.to(inputs.dtype), found)

    def _run(self, function: Callable, *args: Any) -> Any:
        """Call function, recomputing it in the backward pass where gradient checkpointing is on.

        Checkpointing of the reentrant kind sees no tensor inside a tuple and would silently lose its gradient, so
        arguments and results travel flat.
        """
        if not (self.gradient_checkpointing and self.training and torch.is_grad_enabled()):
            return function(*args)
        leaves, structure = pytree.tree_flatten(args)
        result_structure: Any = None

        def flat(*leaves: Any) -> tuple:
            nonlocal result_structure
            results, result_structure = pytree.tree_flatten(function(*pytree.tree_unflatten(leaves, structure)))
            return tuple(results)

        results = self._gradient_checkpointing_func(flat, *leaves)
        return pytree.tree_unflatten(results, result_structure)

    def _memory(self, states: Tensor | None, attention_mask: Tensor | None, cache: RecurrentCache | None) -> Memory:
        """Return what attention reads: from the cache where it is there, else computed, and kept in the cache."""
        if cache is not None and cache.memory.is_initialized:
            keys, values = cache.memory.states
            return Memory(keys, values, self.encoder_attn.readable(attention_mask))
        memory = self.encoder_attn.remember(_needed(states), attention_mask)
        if cache is not None:
            cache.memory.update(memory.keys, memory.values)
            cache.is_updated[0] = True
        return memory

    def _state(
        self, states: Tensor | None, attention_mask: Tensor | None, cache: RecurrentCache | None
    ) -> DecoderState:
        """Return the state to go on from: the cache's, else s_0 = tanh(W_init . summary), LSTM cells 0, r_{-1} = 0."""
        if cache is not None and cache.states[0].is_initialized:
            layers = [layer.states for layer in cache.states]
            if not self.config.input_feeding:
                return DecoderState(tuple(layers), None)
            *top, readout = layers[-1]
            return DecoderState((*layers[:-1], tuple(top)), readout)
        summary = summarise(_needed(states), attention_mask, self.config)
        first = [torch.tanh(projection(summary)) for projection in self.init_proj]
        is_lstm = self.config.decoder_type == "lstm"
        return DecoderState(
            tuple((h, torch.zeros_like(h)) if is_lstm else (h,) for h in first),
            torch.zeros_like(first[0]) if self.config.input_feeding else None,
        )


def _advance(layer: nn.Module, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run one layer over inputs (B, T, width) from a state of (B, D) tensors; return h (B, T, D) and the last state."""
    if inputs.shape[1] > 1 and runs_in_loops(layer, inputs):
        cell = LoopCell(layer, inputs.shape[1], at_once=True)  # type: ignore[arg-type]
        hidden, after = cell.run(inputs, state)
        return hidden.to(inputs.dtype), tuple(part.to(inputs.dtype) for part in after)
    # torch wants (layers, B, D), and a bare tensor for a GRU.
    stacked = tuple(part[None].contiguous() for part in state)
    hidden, last = layer(inputs, stacked if len(stacked) > 1 else stacked[0])
    return hidden, tuple(part[0] for part in (last if isinstance(last, tuple) else (last,)))


def _stand_still(keep: Tensor, after: DecoderState, before: DecoderState) -> DecoderState:
    """Return the state after the step where keep (B,) is True, else the one before."""

    def choose(new: Tensor | None, old: Tensor | None) -> Tensor | None:
        return None if new is None or old is None else torch.where(keep[:, None], new, old)

    return pytree.tree_map(choose, after, before)


def _join(parts: list[StepOutput]) -> StepOutput:
    """Join the outputs of runs of steps along T."""
    if len(parts) == 1:
        return parts[0]
    return StepOutput(
        torch.cat([part.readouts for part in parts], dim=1),
        tuple(torch.cat(layer, dim=1) for layer in zip(*(part.hidden for part in parts), strict=True)),
        None
        if parts[0].weights is None
        else torch.cat([part.weights for part in parts if part.weights is not None], dim=2),
    )


def _take(states: Tensor, order: Tensor) -> Tensor:
    """Reorder states (B, L, D) along L by order (B, L)."""
    return states.gather(1, order[..., None].expand_as(states))


def _pick(states: Tensor, index: Tensor) -> Tensor:
    """Return the state (B, D) at index (B,) of states (B, L, D)."""
    return states[torch.arange(states.shape[0], device=states.device), index]


def _needed(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise ValueError(
            "without a filled cache a decoder needs encoder_hidden_states; give input_ids or encoder_outputs"
        )
    return tensor
