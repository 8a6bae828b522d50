"""What stands between the scores of a step and the tokens chosen from them."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from transformers.generation import logits_process as library

# Columns of a block in which `top` looks for the maximum.
BLOCK = 32
# Scores in so small a number that to sort them costs less than the steps of finding blocks.
FEW = 2**16


class Rule(NamedTuple):
    """What a logits processor of the library does to every row alike: forbid tokens, or force one.

    tokens (N,); applies(length) tells whether it does so after `length` tokens.
    """

    tokens: Tensor
    applies: Callable[[int], bool]
    forces: bool = False

    def __call__(self, scores: Tensor, length: int) -> None:
        """Do in place to scores (R, V) what the processor does."""
        if self.applies(length):
            if self.forces:
                scores.fill_(float("-inf"))
            scores.index_fill_(1, self.tokens, 0.0 if self.forces else float("-inf"))


def rule_of(processor: Any, vocabulary: int) -> Rule | None:
    """Return the rule of a processor; None for one that is none, such as a subclass, which may do anything."""
    kind = type(processor)
    if kind is library.SuppressTokensLogitsProcessor:
        rule = Rule(processor.suppress_tokens, lambda length: True)
    elif kind is library.SuppressTokensAtBeginLogitsProcessor:
        rule = Rule(processor.begin_suppress_tokens, lambda length: length == processor.begin_index)
    elif kind is library.MinLengthLogitsProcessor:
        rule = Rule(processor.eos_token_id, lambda length: length < processor.min_length)
    elif kind is library.MinNewTokensLengthLogitsProcessor:
        least = processor.prompt_length_to_skip + processor.min_new_tokens
        rule = Rule(processor.eos_token_id, lambda length: length < least)
    elif kind is library.ForcedBOSTokenLogitsProcessor:
        rule = Rule(torch.tensor([processor.bos_token_id]), lambda length: length == 1, forces=True)
    elif kind is library.ForcedEOSTokenLogitsProcessor:
        rule = Rule(processor.eos_token_id, lambda length: length == processor.max_length - 1, forces=True)
    else:
        return None
    known = (rule.tokens >= 0) & (rule.tokens < vocabulary)
    # To forbid a token that is not there does nothing; to force it is an error, which the library raises.
    return None if rule.forces and not bool(known.all()) else rule._replace(tokens=rule.tokens[known])


class Processors:
    """A model's logits processors, those that are rules done in place.

    If one of them is not, all are called as the library does, with all ids so far and all scores, so that any can be
    served.
    """

    def __init__(self, processors: library.LogitsProcessorList, vocabulary: int, device: torch.device) -> None:
        self.processors = processors
        rules = [rule_of(processor, vocabulary) for processor in processors]
        self.are_rules = None not in rules
        self.rules = [rule._replace(tokens=rule.tokens.to(device)) for rule in rules if rule is not None]
        forbidden = [rule.tokens for rule in self.rules if not rule.forces]
        self.allowed = vocabulary - (len(torch.cat(forbidden).unique()) if forbidden else 0)

    def leave(self, count: int, length: int) -> bool:
        """Tell whether at least `count` tokens of each row are surely allowed after `length` tokens."""
        forced = any(rule.forces and rule.applies(length) for rule in self.rules)
        return self.are_rules and not forced and self.allowed >= count

    def __call__(self, sequences: Tensor, scores: Tensor) -> Tensor:
        """Return the processed scores (R, V) of sequences (R, length) so far; `scores` may be overwritten."""
        if not self.are_rules:
            return self.processors(cast(torch.LongTensor, sequences), cast(torch.FloatTensor, scores))
        for rule in self.rules:
            rule(scores, sequences.shape[1])
        return scores


def top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` best values and columns of each row of scores (R, V), best first, as `torch.topk` does.

    On CPUs to look for maxima is much faster than to sort: any of the best `count` lies in one of the `count` blocks
    whose maxima are best.
    """
    rows, columns = scores.shape
    blocks = columns // BLOCK
    if not scores.is_cpu or scores.numel() < FEW or blocks <= 4 * count:
        return torch.topk(scores, count, dim=-1)
    in_blocks = scores[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))
    best = _best(in_blocks.amax(-1), count)[1]
    # The last columns fill no block, and are all looked at.
    rest = scores[:, blocks * BLOCK :]
    few = in_blocks.gather(1, best[..., None].expand(rows, count, BLOCK)).flatten(1)
    values, places = _best(torch.cat([few, rest], 1) if rest.shape[1] else few, count)
    found = best.gather(1, (places // BLOCK).clamp(max=count - 1)) * BLOCK + places % BLOCK
    return values, torch.where(places < few.shape[1], found, places - few.shape[1] + blocks * BLOCK)


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if count > 1:
        return torch.topk(scores, count, dim=-1)
    values, columns = scores.max(dim=-1, keepdim=True)
    return values, columns
