"""Are the contestants fit to be compared? Each must learn, count the same tokens, heed the mask, decode to length.

    python benchmarks/speed/check_contestants.py [NAME ...]

For each that is installed: its parameters; the loss of a token before any step, in f32 (near ln V for all); whether
that is the same when each sentence is a batch of its own, without padding; the loss after 20 steps on one batch, in f32
and bf16; the parameters that got no gradient; the shape of what it decodes.
"""

import dataclasses
import math
import sys

import torch
from contestant import PRECISIONS, Contestant, Training, decoding
from measuring import built
from rows import DECODING, TRAINING, DecodingRow, Entry, TrainingRow, kind
from workloads import Batch, Corpus, Recurrent, Transformer, made_batch

STEPS = 20
SMALL = Corpus(500, 8, 4, 20)
SMALL_TRANSFORMER = Transformer(SMALL.vocabulary, width=64, layers=2, heads=4, inner=128)


def entries() -> dict[str, tuple[Entry, TrainingRow | DecodingRow]]:
    """Return each entry of the table once, with a row that it takes part in, at a small size."""
    found: dict[str, tuple[Entry, TrainingRow | DecodingRow]] = {}
    for row in (*TRAINING, *DECODING):
        recurrent = isinstance(row.size, Recurrent)
        size = Recurrent(SMALL.vocabulary, row.size.cell, 64) if recurrent else SMALL_TRANSFORMER
        for entry in row.entries:
            name = f"{kind(row.size)} {entry.module} {entry.arguments or ''}".strip()
            found.setdefault(name, (entry, dataclasses.replace(row, size=size)))
    return found


def batch_and_singles() -> tuple[Batch, list[Batch]]:
    """Return six sentence pairs of unequal lengths in one batch, and each without padding."""
    batch = made_batch(SMALL, [[4, 9], [11, 3], [7, 7], [5, 12], [16, 6], [9, 8]], torch.Generator())
    rows = zip(batch.source_lengths.tolist(), batch.target_lengths.tolist(), strict=True)
    singles = [
        Batch(batch.source[[row], :read], batch.target_inputs[[row], :written], batch.target[[row], :written])
        for row, (read, written) in enumerate(rows)
    ]
    return batch, singles


@torch.no_grad()
def token_losses(contestant: Contestant) -> tuple[float, float]:
    """Return the loss of a token, over one padded batch and over its sentences one by one."""
    contestant.model.eval()
    batch, singles = batch_and_singles()
    together = float(contestant.loss(contestant.prepare(batch)))
    alone = sum(float(contestant.loss(contestant.prepare(single))) * single.tokens for single in singles)
    return together, alone / batch.tokens


def learns(contestant: Contestant, precision: str) -> tuple[float, list[str]]:
    """Return the loss after STEPS steps on one batch, and the parameters without a gradient in the last."""
    batch, _ = batch_and_singles()
    training, prepared = Training(contestant, precision), contestant.prepare(batch)
    for _ in range(STEPS):
        loss = training.step(prepared)
    idle = [
        name
        for name, parameter in contestant.model.named_parameters()
        if parameter.requires_grad and (parameter.grad is None or not parameter.grad.abs().sum() > 0)
    ]
    return loss, idle


def main() -> None:
    """Print what was found, contestant by contestant."""
    for name, (entry, row) in entries().items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        contestant = built(entry, row)
        if isinstance(contestant, str):
            print(contestant)
            continue
        print(f"{name}: {contestant.parameters:,} parameters; {contestant.function or 'computes as ours'}")
        if contestant.trains:
            together, alone = token_losses(contestant)
            print(f"  loss of a token {together:.4f}, alone {alone:.4f}; ln V = {math.log(row.size.vocabulary):.4f}")
        if contestant.decode is not None:
            batch, _ = batch_and_singles()
            print(f"  decodes {[tuple(decoding(contestant, batch, beams)().shape) for beams in (1, 5)]}")
        for precision in PRECISIONS if contestant.trains else ():
            loss, idle = learns(contestant, precision)
            print(f"  {precision}: loss {loss:.4f} after {STEPS} more steps; without gradient: {idle or 'none'}")


if __name__ == "__main__":
    main()
