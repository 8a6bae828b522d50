"""A contestant that works in a process of its own, as its users run it.

How fast it is depends on what the C library does with freed memory, and that on all that the process has allocated
before: in one process each would change the others' speed.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from contestant import Contestant, Training, decoding
from measuring import Taken, built, present_of, taken
from rows import DecodingRow, Entry, TrainingRow
from workloads import Batch

from hf_seq2seq_attn.training.kept_memory import keep_freed_memory


@dataclass(frozen=True)
class Ways:
    """How all are trained: with so many threads; `same_adam`, `keep_memory`: for all what only some trainers do."""

    threads: int = 1
    same_adam: bool = False
    keep_memory: bool = False


AS_THEY_ARE = Ways()


@dataclass(frozen=True)
class Known:
    """What is told of a contestant elsewhere; see `Contestant`. `fused_adam` is that of its training here."""

    name: str
    parameters: int
    function: str
    fused_adam: bool


class OwnProcess:
    """A contestant of a row at work on batches, a round's batch each; `wait` must have returned before it is used."""

    def __init__(self, row: TrainingRow | DecodingRow, entry: Entry, batches: Sequence[Batch], ways: Ways) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, row, entry, batches, ways), daemon=True)
        self.process.start()
        theirs.close()

    def wait(self) -> Known | str:
        """Return what is known of the contestant, or in words that it takes no part.

        Raises:
            EOFError: it has failed; why, its process has written to standard error.
        """
        found: Known | str = self.connection.recv()
        return found

    def take(self, number: int, repeats: int) -> Taken:
        """Let it work on the batch of that round so many times; return what that took."""
        self.connection.send((number, repeats))
        found: Taken = self.connection.recv()
        return found

    def end(self) -> None:
        """Let the process go."""
        self.connection.close()
        self.process.join()


def serve(
    connection: Connection, row: TrainingRow | DecodingRow, entry: Entry, batches: Sequence[Batch], ways: Ways
) -> None:
    """Do in the process what `OwnProcess` asks for, until it closes the connection."""
    torch.set_num_threads(ways.threads)
    if isinstance(row, TrainingRow) and (entry.module == "ours" or ways.keep_memory):
        keep_freed_memory()
    contestant = built(entry, row)
    if isinstance(contestant, str):
        connection.send(contestant)
        return
    if isinstance(row, DecodingRow):
        calls = [decoding(contestant, batch, row.beams) for batch in batches]
    else:
        calls = steps(contestant, row, batches, ways)
    fused = contestant.fused_adam or ways.same_adam
    connection.send(Known(contestant.name, contestant.parameters, contestant.function, fused))
    while True:
        try:
            number, repeats = connection.recv()
        except EOFError:
            return
        connection.send(taken(lambda number: calls[number](), number, repeats))


def steps(contestant: Contestant, row: TrainingRow, batches: Sequence[Batch], ways: Ways) -> list[Callable[[], Any]]:
    """Return a training step on each batch."""
    training = Training(contestant, row.precision, ways.same_adam)
    return [partial(training.step, contestant.prepare(batch)) for batch in batches]


@contextmanager
def at_work(
    row: TrainingRow | DecodingRow, batches: Sequence[Batch], ways: Ways
) -> Iterator[tuple[dict[str, Callable[[int, int], Taken]], list[Known], list[str]]]:
    """Start a process for each contestant of a row; give their turns, what is known of them, and who is left out."""
    processes = [OwnProcess(row, entry, batches, ways) for entry in row.entries]
    try:
        told = [process.wait() for process in processes]
        present, missing = present_of(row, told)
        take = {one.name: process.take for one, process in zip(told, processes, strict=True) if isinstance(one, Known)}
        yield take, present, missing
    finally:
        for process in processes:
            process.end()
