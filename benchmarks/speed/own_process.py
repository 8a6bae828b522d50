"""A contestant that trains in a process of its own, as its users run it.

How fast a step is depends on what the C library does with freed memory, and that on all that the process has allocated
before: in one process each would change the others' speed.
"""

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch
from contestant import Training
from measuring import Taken, built, taken
from rows import Entry, TrainingRow
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
    """What is told of a contestant elsewhere; see `Contestant`."""

    name: str
    parameters: int
    function: str
    adam: str


class OwnProcess:
    """A contestant of a row at work on batches; `known` is None until `wait` has returned."""

    def __init__(self, row: TrainingRow, entry: Entry, batches: Sequence[Batch], ways: Ways) -> None:
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
        self.known: Known | str = self.connection.recv()
        return self.known

    def take(self, number: int, repeats: int) -> Taken:
        """Let it train on the batch of that number so many times; return what that took."""
        self.connection.send((number, repeats))
        found: Taken = self.connection.recv()
        return found

    def end(self) -> None:
        """Let the process go."""
        self.connection.close()
        self.process.join()


def serve(connection: Connection, row: TrainingRow, entry: Entry, batches: Sequence[Batch], ways: Ways) -> None:
    """Do in the process what `OwnProcess` asks for, until it closes the connection."""
    torch.set_num_threads(ways.threads)
    if entry.module == "ours" or ways.keep_memory:
        keep_freed_memory()
    contestant = built(entry, row)
    if isinstance(contestant, str):
        connection.send(contestant)
        return
    training = Training(contestant, row.precision, ways.same_adam)
    prepared = [contestant.prepare(batch) for batch in batches]
    adam = "fused" if training.fused else "plain"
    connection.send(Known(contestant.name, contestant.parameters, contestant.function, adam))
    while True:
        try:
            number, repeats = connection.recv()
        except EOFError:
            return
        connection.send(taken(lambda number: training.step(prepared[number]), number, repeats))
