"""Batches of sentences of like length, in random order."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

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


def token_lengths(dataset: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the source and target lengths (`input_ids`, `labels`) of all rows, two int64 tensors.

    Of a `datasets.Dataset` they are read off the Arrow table, without making a single list of token ids.
    """
    lengths = []
    for column in ("input_ids", "labels"):
        if hasattr(dataset, "with_format"):
            import pyarrow.compute

            table = dataset.select_columns([column]).with_format("arrow")[:]
            lengths.append(torch.tensor(pyarrow.compute.list_value_length(table[column]).to_numpy()).long())
        else:
            lengths.append(torch.tensor([len(row[column]) for row in dataset]))
    return lengths[0], lengths[1]


COUNTS: dict[str, Callable[[Any, Any], Any]] = {
    "both": lambda source, target: source + target,
    "source": lambda source, target: source,
    "target": lambda source, target: target,
    "longest": lambda source, target: source * (source >= target) + target * (target > source),
}
"""What a token budget counts, for one pair of a batch whose longest source and target are given: the tokens that the
model holds at once (both), one side, or the longer side (the `max-tokens` of fairseq)."""

CLASS_GROWTH = 1.1
"""Lengths are rounded up to classes, each this much longer than the one before: no more than a tenth is padding."""


class TokenBatches(Sampler[list[int]]):
    """Yield batches of indices whose padded tokens stay within a budget, in random order, each example once.

    The pairs are laid out by classes of like source and target length, and cut where the next pair would break the
    budget. Each epoch draws anew who stands where within a class, and the order of the batches; the cuts stay, so every
    epoch has the same number of batches, which the Trainer needs for its schedule. The order depends on seed and epoch
    alone, so that every process draws the same one, and a resumed run too.

    Args:
        source_lengths, target_lengths: of all examples, in tokens, end token included.
        tokens: budget of one batch: its pairs times `count` of its longest source and its longest target.
        count: a key of `COUNTS`.
        sentences: at most this many pairs in a batch.
        multiple_of: the number of batches is a multiple of this (the processes), for which some batches are halved; but
            not where every batch holds one pair.

    Raises:
        ValueError: a pair alone is over the budget, or there is no pair.
    """

    def __init__(
        self,
        source_lengths: Sequence[int] | torch.Tensor,
        target_lengths: Sequence[int] | torch.Tensor,
        tokens: int,
        *,
        count: str = "both",
        sentences: int | None = None,
        seed: int = 0,
        multiple_of: int = 1,
    ) -> None:
        sources, targets = torch.as_tensor(source_lengths), torch.as_tensor(target_lengths)
        if not len(sources) or len(sources) != len(targets):
            raise ValueError(f"{len(sources)} source and {len(targets)} target lengths: give one of each, at least one")
        longest = int(COUNTS[count](sources, targets).max())
        if longest > tokens:
            raise ValueError(
                f"batching.tokens={tokens}: one pair alone has {longest} tokens (count: {count}); set it to that at "
                "least, or lower data.max_source_length and data.max_target_length"
            )
        self.seed = seed
        self.epoch = 0
        self.place, self.sizes = _lay_out(sources, targets, tokens, COUNTS[count], sentences)
        _halve_until(self.sizes, multiple_of)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; the Trainer does before each."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self.seed + 1_000_003 * self.epoch)
        drawn = torch.randperm(len(self.place), generator=generator)
        batches = drawn[torch.argsort(self.place[drawn], stable=True)].split(self.sizes)
        for index in torch.randperm(len(batches), generator=generator).tolist():
            yield batches[index].tolist()


def _lay_out(
    sources: torch.Tensor,
    targets: torch.Tensor,
    tokens: int,
    cost: Callable[[Any, Any], Any],
    sentences: int | None,
) -> tuple[torch.Tensor, list[int]]:
    """Return the rank of each pair's class, int64, and the sizes of the batches that pairs in that order are cut into.

    Classes go up and down in target length while they go up in source length, so that neighbours are alike.
    """
    source_class, source_tops = _classes(sources)
    target_class, target_tops = _classes(targets)
    width = len(target_tops)
    place = source_class * width + torch.where(source_class % 2 == 0, target_class, width - 1 - target_class)
    sizes: list[int] = []
    size = top_source = top_target = 0
    ranks, counts = place.unique(return_counts=True)
    for rank, left in zip(ranks.tolist(), counts.tolist(), strict=True):
        row, column = divmod(rank, width)
        source, target = source_tops[row], target_tops[column if row % 2 == 0 else width - 1 - column]
        while left:
            tops = max(top_source, source), max(top_target, target)
            fit = tokens // cost(*tops)
            # Rounded up to its class a pair alone may be over the budget; it is not.
            room = max(min(fit, sentences or fit), 1) - size
            if room <= 0:
                sizes.append(size)
                size = top_source = top_target = 0
                continue
            taken = min(room, left)
            size, left = size + taken, left - taken
            top_source, top_target = tops
    return place, [*sizes, size]


def _classes(lengths: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """Return the class of each length, and the greatest length of each class."""
    longest = int(lengths.max())
    tops = [1]
    while tops[-1] < longest:
        tops.append(min(max(tops[-1] + 1, int(tops[-1] * CLASS_GROWTH)), longest))
    return torch.bucketize(lengths, torch.tensor(tops)), tops


def _halve_until(sizes: list[int], multiple_of: int) -> None:
    """Split the largest batches, in place, until their number is a multiple."""
    while len(sizes) % multiple_of and max(sizes) > 1:
        index = sizes.index(max(sizes))
        sizes[index : index + 1] = [sizes[index] - sizes[index] // 2, sizes[index] // 2]
