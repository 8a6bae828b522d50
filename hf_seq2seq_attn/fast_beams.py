"""Beam search with the decisions of the library's and our own steps; see `fast_generation`."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import GenerationConfig
from transformers.generation.logits_process import LogitsProcessorList
from transformers.generation.utils import GenerateBeamEncoderDecoderOutput

from .fast_generation import SHARE_THAT_STAYS, make_step, recorded, recorders
from .fast_scores import Processors, top

# What the library takes for minus infinity.
NEVER = -1.0e9


class Beams(NamedTuple):
    """N hypotheses of each of B sentences.

    ids `sequences` (B, N, length); `scores` (B, N); `indices` (B, N, length - 1) int32: the row of the step that each
    token was chosen in, -1 after the end.
    """

    sequences: Tensor
    scores: Tensor
    indices: Tensor

    def of(self, sentences: Tensor) -> "Beams":
        """Return those of the sentences at these indices."""
        return Beams(*(part[sentences] for part in self))

    def padded(self, length: int, fill: int) -> "Beams":
        """Return them with `length` tokens, `fill` at the end."""
        more = length - self.sequences.shape[2]
        return Beams(
            F.pad(self.sequences, (0, more), value=fill), self.scores, F.pad(self.indices, (0, more), value=-1)
        )


class State(NamedTuple):
    """What the search knows of its sentences: k hypotheses of each that run, and k that have ended.

    `finished` (B, k) bool: which of `ended` are there; `improvable` (B, 1) bool: whether a running hypothesis may
    still become better than those.
    """

    running: Beams
    ended: Beams
    finished: Tensor
    improvable: Tensor

    def of(self, sentences: Tensor) -> "State":
        """Return that of the sentences at these indices."""
        running, ended = self.running.of(sentences), self.ended.of(sentences)
        return State(running, ended, self.finished[sentences], self.improvable[sentences])

    def going(self, config: GenerationConfig) -> Tensor:
        """Return (B,) bool: whether a sentence's ended hypotheses can still change."""
        going = self.improvable[:, 0]
        return going & ~self.finished.all(1) if config.early_stopping is True else going


def beam_search(
    model: Any,
    input_ids: Tensor,
    processors: LogitsProcessorList,
    config: GenerationConfig,
    arguments: dict[str, Any],
) -> GenerateBeamEncoderDecoderOutput | Tensor:
    """Do what `GenerationMixin._beam_search` does without sampling.

    Args:
        input_ids: (B x k, 1) the tokens to start from.
        config, arguments: what `generate` has prepared: the options, and what goes to `forward`.

    Returns:
        sequences (B x num_return_sequences, T), or with `return_dict_in_generate` the library's output object.
    """
    step = make_step(model, arguments, int(config.num_beams), tokens=int(config.max_length) - 1)
    process = Processors(processors, model.lm_head.out_features, input_ids.device)
    keeps_rows = config.return_dict_in_generate or not process.are_rules
    all_scores, all_logits = recorders(config)
    state = _first_state(input_ids, config)
    # Once sentences have left, `results` holds what they had then, and `rows` which ones are still here.
    results, rows = state.ended, torch.arange(len(state.finished), device=input_ids.device)
    goes_on = True
    while goes_on:
        logits = step(state.running.sequences[:, :, -1].flatten())
        scores = process(state.running.sequences.flatten(0, 1), torch.log_softmax(logits, dim=-1))
        for record, values in ((all_scores, scores), (all_logits, logits)):
            if record is not None:
                record.append(values)
        candidates = _best_continuations(scores, state.running, process, config)
        hits = _hits(candidates, config)
        state = _advance(model, state, candidates, hits, config)
        goes_on = bool(
            model._beam_search_has_unfinished_sequences(state.improvable, state.finished, hits, config.early_stopping)
        )
        step.follow(state.running.indices[:, :, -1].flatten())
        if goes_on and not keeps_rows:
            going = state.going(config)
            if int(going.sum()) <= SHARE_THAT_STAYS * len(rows):
                results = _with_rows(results, rows, state.ended, config)
                stay = going.nonzero()[:, 0]
                step.keep(stay)
                state, rows = state.of(stay), rows[stay]
    results = _with_rows(results, rows, state.ended, config)
    sequences, sequences_scores, indices = (part[:, : config.num_return_sequences].flatten(0, 1) for part in results)
    longest = int((indices >= 0).sum(1).max())
    sequences, indices = sequences[:, : longest + 1], indices[:, :longest]
    if not config.return_dict_in_generate:
        return sequences
    step.fill(arguments["cache"])
    output: Any = GenerateBeamEncoderDecoderOutput
    return output(
        sequences=sequences,
        sequences_scores=sequences_scores if config.output_scores else None,
        **recorded(all_scores, all_logits),
        beam_indices=indices,
        cache=arguments["cache"],
    )


def _fill(config: GenerationConfig) -> int:
    """Return what the library writes after the end; a padding token 0 is none to it."""
    padding, ends = config._pad_token_tensor, config._eos_token_tensor
    return -1 if ends is None else int(padding or ends[0])


def _first_state(input_ids: Tensor, config: GenerationConfig) -> State:
    """Return the state before the first step, in which only the first of a sentence's equal hypotheses counts."""
    sequences = input_ids.unflatten(0, (-1, config.num_beams))
    never = torch.full(sequences.shape[:2], NEVER, device=input_ids.device)
    scores = never.clone()
    scores[:, 0] = 0
    indices = torch.empty((*sequences.shape[:2], 0), dtype=torch.int32, device=input_ids.device)
    return State(
        running=Beams(sequences, scores, indices),
        ended=Beams(sequences, never, indices),
        finished=torch.zeros_like(never, dtype=torch.bool),
        improvable=torch.ones_like(never[:, :1], dtype=torch.bool),
    )


def _best_continuations(scores: Tensor, running: Beams, process: Processors, config: GenerationConfig) -> Beams:
    """Return the best continuations by one token, as many as leave k that do not end, for scores (B x k, V).

    The best N of a sentence are among the best N of each of its hypotheses, and those are few to sort. Where fewer
    than N tokens may be left, many are equally impossible; then all are sorted at once, as the library does, so that
    the same ones come first.
    """
    batch, beams, length = running.sequences.shape
    ends = config._eos_token_tensor
    count = max(2, 1 + (0 if ends is None else len(ends))) * beams
    if process.leave(count, length):
        values, tokens = top(scores, count)
        totals = values.view(batch, beams, count) + running.scores[..., None]
        best, places = totals.flatten(1).topk(count)
        parents, tokens = places // count, tokens.view(batch, -1).gather(1, places)
    else:
        totals = scores.view(batch, beams, -1) + running.scores[..., None]
        best, places = totals.flatten(1).topk(count)
        parents, tokens = places // scores.shape[1], places % scores.shape[1]
    rows = parents + torch.arange(batch, device=parents.device)[:, None] * beams
    sequences, indices = running.sequences.flatten(0, 1)[rows], running.indices.flatten(0, 1)[rows]
    return Beams(
        torch.cat([sequences, tokens[..., None]], 2), best, torch.cat([indices, rows[..., None].to(indices.dtype)], 2)
    )


def _hits(candidates: Beams, config: GenerationConfig) -> Tensor:
    """Return (B, N) bool: which candidates end here."""
    tokens, ends = candidates.sequences[:, :, -1], config._eos_token_tensor
    if candidates.sequences.shape[2] >= config.max_length:
        return torch.ones_like(tokens, dtype=torch.bool)
    return torch.zeros_like(tokens, dtype=torch.bool) if ends is None else torch.isin(tokens, ends)


def _advance(model: Any, state: State, candidates: Beams, hits: Tensor, config: GenerationConfig) -> State:
    """Let the library decide which candidates run on, which ended ones are kept, and whether more can be gained."""
    beams, length = state.finished.shape[1], candidates.sequences.shape[2]
    sequences, scores, indices = model._get_running_beams_for_next_iteration(
        topk_log_probs=candidates.scores,
        topk_running_sequences=candidates.sequences,
        topk_running_beam_indices=candidates.indices,
        next_token_hits_stopping_criteria=hits,
        num_beams=beams,
    )
    running, ended = Beams(sequences, scores, indices), state.ended.padded(length, _fill(config))
    penalties = {"length_penalty": config.length_penalty, "early_stopping": config.early_stopping}
    sequences, scores, indices, finished = model._update_finished_beams(
        sequences=ended.sequences,
        topk_running_sequences=candidates.sequences,
        beam_scores=ended.scores,
        topk_log_probs=candidates.scores,
        beam_indices=ended.indices,
        topk_running_beam_indices=candidates.indices,
        is_early_stop_heuristic_unsatisfied=state.improvable,
        is_sent_finished=state.finished,
        next_token_hits_stopping_criteria=hits,
        top_num_beam_mask=torch.arange(hits.shape[1], device=hits.device) < beams,
        num_beams=beams,
        cur_len=length - 1,
        decoder_prompt_len=1,
        **penalties,
    )
    ended = Beams(sequences, scores, indices)
    improvable = model._check_early_stop_heuristic(
        is_early_stop_heuristic_unsatisfied=state.improvable,
        running_beam_scores=running.scores,
        beam_scores=ended.scores,
        is_sent_finished=finished,
        cur_len=length,
        max_length=config.max_length,
        decoder_prompt_len=1,
        **penalties,
    )
    return State(running, ended, finished, improvable)


def _with_rows(results: Beams, rows: Tensor, now: Beams, config: GenerationConfig) -> Beams:
    """Return the results with those of these rows (sentences) replaced by what they have now."""
    if len(rows) == len(results.scores):
        return now
    padded = results.padded(now.sequences.shape[2], _fill(config))
    return Beams(*(part.index_copy(0, rows, new) for part, new in zip(padded, now, strict=True)))
