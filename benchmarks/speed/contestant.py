"""What every contestant, ours or a peer's, must be able to do to be measured."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from workloads import NEW_TOKENS, Batch

LEARNING_RATE = 1e-3
PRECISIONS = ("f32", "bf16")


@dataclass
class Contestant:
    """A model with the calls that its own project makes to train it and to decode with it."""

    name: str
    model: nn.Module
    prepare: Callable[[Batch], Any]
    """Puts a batch into the project's own form; not timed."""
    loss: Callable[[Any], Tensor]
    """Returns the loss, mean or sum over real target tokens, of a prepared batch; timed."""
    fused_adam: bool
    """Whether the project's own trainer can use torch's fused Adam; otherwise it has torch's plain Adam."""
    decode: Callable[[Batch, int], Tensor] | None = None
    """Returns NEW_TOKENS tokens a sentence, (B, NEW_TOKENS), for a batch and a number of beams (1 = greedy)."""
    trains: bool = True
    """False for an engine that only decodes; its `model` is then the one that was converted for it."""
    function: str = ""
    """What it computes where that is not what ours does, in a few words."""

    @property
    def parameters(self) -> int:
        """Return how many numbers it learns."""
        return sum(parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad)


class Training:
    """A contestant at work: `step` is forward, loss, backward and Adam on one batch."""

    def __init__(self, contestant: Contestant, precision: str, same_adam: bool = False) -> None:
        """`precision` is f32 or bf16 (autocast); `same_adam` gives everybody the fused Adam."""
        if precision not in PRECISIONS:
            raise ValueError(f"precision={precision!r}: must be one of {', '.join(PRECISIONS)}")
        self.contestant, self.precision = contestant, precision
        contestant.model.train()
        learnt = [parameter for parameter in contestant.model.parameters() if parameter.requires_grad]
        self.fused = contestant.fused_adam or same_adam
        self.optimizer = torch.optim.Adam(learnt, LEARNING_RATE, fused=self.fused)

    def step(self, prepared: Any) -> float:
        """Return the loss before the step."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
            loss = self.contestant.loss(prepared)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def decoding(contestant: Contestant, batch: Batch, beams: int) -> Callable[[], Tensor]:
    """Return the call that is timed; it raises if a sentence does not get exactly NEW_TOKENS tokens."""
    contestant.model.eval()
    assert contestant.decode is not None
    return partial(_checked, contestant.name, contestant.decode, batch, beams)


def _checked(name: str, decode: Callable[[Batch, int], Tensor], batch: Batch, beams: int) -> Tensor:
    tokens = decode(batch, beams)
    if tuple(tokens.shape) != (len(batch.source), NEW_TOKENS):
        raise RuntimeError(f"{name} gave tokens of shape {tuple(tokens.shape)}, not {(len(batch.source), NEW_TOKENS)}")
    return tokens
