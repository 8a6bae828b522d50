"""Batches of sentences of like length, in random order."""

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler

STEPS_SORTED_TOGETHER = 50
"""Sentences are drawn at random, then sorted within this many steps: little padding, and every epoch other batches."""


class LengthGroupedBatches(Sampler[int]):
    """Yield indices so that each run of `step_size` has sentences of like length, and the runs come in random order.

    Unlike the library's own sampler, which goes from long to short sentences again and again, so that losses swing and
    short sentences are always learnt last. And the order depends on seed and epoch alone, so that every process draws
    the same one, whatever random numbers its dropout used up.

    Args:
        lengths: of all examples.
        step_size: examples in one optimiser step, of all processes.
    """

    def __init__(self, lengths: Sequence[int], step_size: int, seed: int) -> None:
        if step_size < 1:
            raise ValueError(f"step_size={step_size}: must be at least 1")
        self.lengths = torch.as_tensor(lengths)
        self.step_size = step_size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; the Trainer does before each."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + 1_000_003 * self.epoch)
        drawn = torch.randperm(len(self.lengths), generator=generator)
        steps: list[torch.Tensor] = []
        for together in drawn.split(self.step_size * STEPS_SORTED_TOGETHER):
            ordered = together[torch.argsort(self.lengths[together], stable=True)]
            steps += ordered.split(self.step_size)
        # A step that is not full stays last: before another it would shift the borders of all that follow.
        full = sum(len(step) == self.step_size for step in steps)
        order = torch.randperm(full, generator=generator).tolist()
        for index in [*order, *range(full, len(steps))]:
            yield from steps[index].tolist()
