"""Greedy decoding without the detours of the general loop, and when to take it and the beam search beside it.

`generate()` prepares everything as for any model, then calls `_sample` or `_beam_search`. Where `covers` says so, our
model runs these loops in place of the library's. They give the same tokens and, to rounding, the same scores: what is
left out is work whose result is known beforehand. A step reads one token by plain functions on the weights as they
are (`RecurrentStep`, `TransformerStep`); what attention reads of the source is held once for each sentence; nothing
in the caches is moved.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import GenerationConfig
from transformers.activations import ACT2CLS
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache
from transformers.generation import EosTokenCriteria, MaxLengthCriteria, StoppingCriteriaList
from transformers.generation.logits_process import LogitsProcessorList
from transformers.generation.utils import GenerateEncoderDecoderOutput

from .context_fusion import ContextFusion
from .cross_attention import AdditiveAttention, ScaledDotProductAttention
from .fast_recurrent import RecurrentStep
from .fast_scores import Processors, top
from .fast_transformer import TransformerStep
from .plain_forms import is_bare, is_unheard, takes_fast_path
from .recurrent import FixedContext, RecurrentDecoder
from .recurrent_cache import RecurrentCache
from .transformer import DecoderLayer, FeedForward, Residual, TransformerDecoder

# The modules whose work the steps do. A subclass or a stand-in (quantized, with adapters) may do something else.
PLAIN_MODULES: set[Any] = {
    *(RecurrentDecoder, TransformerDecoder, DecoderLayer, Residual, FeedForward, ContextFusion, FixedContext),
    *(AdditiveAttention, ScaledDotProductAttention),
    *(nn.Linear, nn.Embedding, nn.LayerNorm, nn.GRU, nn.LSTM, nn.Dropout, nn.ModuleList),
    *(kind[0] if isinstance(kind, tuple) else kind for kind in ACT2CLS.values()),
}
# What `generate` hands to its loops beside the encoder's outputs and the cache.
HARMLESS_ARGUMENTS = ("encoder_outputs", "inputs_embeds", "attention_mask", "cache", "use_cache")
# As long as more than this share of the sentences goes on, the finished ones stay: to let them go copies the others.
SHARE_THAT_STAYS = 0.75

Step = RecurrentStep | TransformerStep


def covers(
    model: Any,
    input_ids: Tensor,
    criteria: StoppingCriteriaList,
    config: GenerationConfig,
    arguments: dict[str, Any],
) -> bool:
    """Tell whether our loops give what the library's would: only plain greedy or beam search in float32.

    In bfloat16 and float16 near scores are often equal, and the order of two additions decides which token wins.
    """
    asks_for_more = (
        config.do_sample
        or config.output_attentions
        or config.output_hidden_states
        or config.is_assistant
        or config.low_memory
        or config.prefill_chunk_size is not None
        or config.compile_config is not None
    )
    return (
        not asks_for_more
        and input_ids.shape[1] == 1
        and all(value is None or name in HARMLESS_ARGUMENTS for name, value in arguments.items())
        and _ends_plainly(criteria, config, model.config.max_position_embeddings)
        and takes_fast_path()
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled(input_ids.device.type)
        and _is_fresh(arguments.get("cache"))
        and _is_plain(model, getattr(arguments.get("encoder_outputs"), "last_hidden_state", None), input_ids)
    )


def _ends_plainly(criteria: StoppingCriteriaList, config: GenerationConfig, positions: int) -> bool:
    """Tell whether sequences end by the end tokens and one limit that leaves the model within its positions."""
    kinds = [type(criterion) for criterion in criteria]
    limits = [criterion.max_length for criterion in criteria if type(criterion) is MaxLengthCriteria]
    return (
        set(kinds) <= {MaxLengthCriteria, EosTokenCriteria}
        and kinds.count(EosTokenCriteria) == (config._eos_token_tensor is not None)
        and limits == [config.max_length]
        and limits[0] <= positions
    )


def _is_fresh(cache: Cache | None) -> bool:
    """Tell whether the cache is one that `generate` has made, of the usual kind and empty."""
    if getattr(cache, "_is_user_defined", False):
        return False
    if isinstance(cache, RecurrentCache):
        return cache.get_seq_length() == 0
    if type(cache) is not EncoderDecoderCache:
        return False
    parts = (cache.self_attention_cache, cache.cross_attention_cache)
    return not any(part.offloading for part in parts) and all(
        type(layer) is DynamicLayer and not layer.is_initialized for part in parts for layer in part.layers
    )


def _is_plain(model: Any, states: Tensor | None, input_ids: Tensor) -> bool:
    """Tell whether nobody listens to, replaces or moves what the steps pass by, and all is float32 on one device."""
    device, decoder = input_ids.device, model.model.decoder
    if states is None or (states.dtype, states.device, len(states)) != (torch.float32, device, len(input_ids)):
        return False
    parts = [*decoder.modules(), model.lm_head]
    if not (is_unheard(model) and is_unheard(model.model) and all(is_bare(part, *PLAIN_MODULES) for part in parts)):
        return False
    weights = [weight for part in parts for weight in part.parameters(recurse=False)]
    here = all((weight.dtype, weight.device) == (states.dtype, device) for weight in weights)
    return here and not any(part.training for part in parts)


def make_step(model: Any, arguments: dict[str, Any], beams: int, tokens: int) -> Step:
    """Return the step of a model over the sentences that `generate` has encoded and repeated `beams` times each."""
    states, mask = arguments["encoder_outputs"].last_hidden_state, arguments.get("attention_mask")
    kind = RecurrentStep if model.config.decoder_is_recurrent else TransformerStep
    return kind(
        model.model.decoder,
        model.lm_head,
        states[::beams],
        None if mask is None else mask[::beams],
        beams,
        tokens,
    )


def greedy_search(
    model: Any,
    input_ids: Tensor,
    processors: LogitsProcessorList,
    config: GenerationConfig,
    arguments: dict[str, Any],
) -> GenerateEncoderDecoderOutput | Tensor:
    """Do what `GenerationMixin._sample` does without sampling.

    Args:
        input_ids: (B, 1) the tokens to start from.
        config, arguments: what `generate` has prepared: the options, and what goes to `forward`.

    Returns:
        sequences (B, T), or with `return_dict_in_generate` the library's output object.
    """
    batch, limit = input_ids.shape[0], int(config.max_length)
    step = make_step(model, arguments, beams=1, tokens=limit - 1)
    process = Processors(processors, model.lm_head.out_features, input_ids.device)
    ends, padding = config._eos_token_tensor, config._pad_token_tensor
    keeps_rows = config.return_dict_in_generate or not process.are_rules
    all_scores, all_logits = recorders(config)
    sequences = input_ids.new_full((batch, limit), 0 if padding is None else int(padding))
    sequences[:, :1] = input_ids
    # Of each row that goes on: which sentence it is, its token, and whether it is still to be ended.
    rows, tokens = torch.arange(batch, device=input_ids.device), input_ids[:, 0]
    going = torch.ones_like(tokens, dtype=torch.bool)
    length = 1
    while length < limit:
        logits = step(tokens)
        # Other processors than rules may write into the logits that are recorded, as they may in the library's loop.
        scores = logits.clone() if all_logits is not None and process.are_rules else logits
        scores = process(sequences[:, :length] if keeps_rows else sequences[rows, :length], scores)
        for record, values in ((all_scores, scores), (all_logits, logits)):
            if record is not None:
                record.append(values)
        tokens = top(scores, 1)[1][:, 0]
        if ends is not None:
            tokens = torch.where(going, tokens, cast(Tensor, padding))
        sequences[rows, length] = tokens
        length += 1
        if ends is not None:
            going &= ~torch.isin(tokens, ends)
            count = int(going.sum())
            if count == 0:
                break
            if not keeps_rows and count <= SHARE_THAT_STAYS * len(rows):
                stay = going.nonzero()[:, 0]
                step.keep(stay)
                rows, tokens, going = rows[stay], tokens[stay], going[stay]
    sequences = sequences[:, :length]
    if not config.return_dict_in_generate:
        return sequences
    step.fill(arguments["cache"])
    output: Any = GenerateEncoderDecoderOutput
    return output(sequences=sequences, **recorded(all_scores, all_logits), cache=arguments["cache"])


def recorders(config: GenerationConfig) -> tuple[list[Tensor] | None, list[Tensor] | None]:
    """Return lists for the scores and the logits of each step, where they are asked for."""
    scores: list[Tensor] | None = [] if config.return_dict_in_generate and config.output_scores else None
    logits: list[Tensor] | None = [] if config.return_dict_in_generate and config.output_logits else None
    return scores, logits


def recorded(scores: list[Tensor] | None, logits: list[Tensor] | None) -> dict[str, tuple[Tensor, ...] | None]:
    """Return what was recorded in the form of the library's output objects."""
    return {
        "scores": None if scores is None else tuple(scores),
        "logits": None if logits is None else tuple(logits),
    }
