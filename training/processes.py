"""Work that several processes do together: who writes, who prints, and that one failure ends them all.

Launchers (`torchrun`, `accelerate launch`, Slurm, MPI wrappers) name each process by the environment variables RANK and
WORLD_SIZE. Short texts travel through the launcher's own key-value store, so that processes agree before they are a
group, whatever the device, and none waits in a collective for one that has failed.
"""

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

from hf_seq2seq_attn.text_files import InputError

LONGEST_WAIT = timedelta(hours=12)
"""How long a process waits for the others: reading a large corpus takes its time. A launcher ends it sooner."""
REPORT_SECONDS = 10.0
"""How long processes that end by an error wait for each other: a launcher would end all before its message is out."""

_PAUSE_SECONDS = 0.02
_FAILED, _FIRST, _REPORTED = "failed", "first", "reported"
_Made = TypeVar("_Made")
_round = 0


def process_index() -> int:
    """Return the number of this process among all, from 0."""
    return int(os.environ.get("RANK", "0"))


def process_count() -> int:
    """Return how many processes the launcher started, on all machines."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first_process() -> bool:
    """Tell whether this is the process that writes files."""
    return process_index() == 0


def exchange(text: str) -> list[str]:
    """Give every process the text of each, in the order of processes; wait for all of them.

    Raises:
        InputError: another process met bad input.
        RuntimeError: another process failed otherwise, or did not come within `LONGEST_WAIT`.
    """
    global _round
    if process_count() == 1:
        return [text]
    store, number = _store(), _round
    _round += 1
    store.set(f"{number}/{process_index()}", text)
    return [_wait_for(store, f"{number}/{index}") for index in range(process_count())]


@contextmanager
def together() -> Iterator[None]:
    """Run a part of the work in every process and wait for all; what one of them raises ends them all.

    Raises:
        InputError: bad input, in this process or in another.
        RuntimeError: another process failed otherwise.
    """
    try:
        yield
    except Exception as error:
        announce(error)
        raise
    exchange("")


def in_turn(work: Callable[[], _Made]) -> _Made:
    """Let the first process work, then all others: what it wrote they find there. Return what `work` returns here.

    Raises:
        InputError, RuntimeError: as in `together`.
    """
    made: list[_Made] = []
    for is_my_turn in (is_first_process(), not is_first_process()):
        with together():
            if is_my_turn:
                made.append(work())
    return made[0]


def from_first(make: Callable[[], Any]) -> Any:
    """Return in every process what `make` (JSON-able) returns in the first one, where alone it is called.

    Raises:
        InputError, RuntimeError: as in `together`.
    """
    made: Any = None
    with together():
        if is_first_process():
            made = make()
    return json.loads(exchange(json.dumps(made))[0])


def announce(error: BaseException) -> bool:
    """Tell the other processes that this one fails; return whether it is the first to, and so the one to print it."""
    if process_count() == 1:
        return True
    if not _announced():
        _announced().append(False)
        failure = {"is_input": isinstance(error, InputError), "message": str(error), "process": process_index()}
        with suppress(RuntimeError):  # the process that kept the store has left
            if _store().add(_FIRST, 1) == 1:
                _store().set(_FAILED, json.dumps(failure | {"type": type(error).__name__}))
                _announced()[0] = True
    return _announced()[0]


def report_once(error: BaseException) -> None:
    """Print the message of an error on stderr, in one of the processes that it ends; return when all know.

    A launcher ends all as soon as one has ended, and with the first process goes the store: none may leave too early.
    """
    others = [index for index in range(process_count()) if index != process_index()]
    first = announce(error)
    if first:
        print(error, file=sys.stderr, flush=True)
    if not others:
        return
    with suppress(RuntimeError):  # the process that kept the store has left
        if first:
            _store().set(_REPORTED, "")
            _wait_a_little([f"leaving/{index}" for index in others])
        else:
            _wait_a_little([_REPORTED])
            _store().set(f"leaving/{process_index()}", "")


def _wait_a_little(keys: list[str]) -> None:
    last = time.monotonic() + REPORT_SECONDS
    while not _store().check(keys) and time.monotonic() < last:
        time.sleep(_PAUSE_SECONDS)


def _wait_for(store: Any, key: str) -> str:
    last = time.monotonic() + LONGEST_WAIT.total_seconds()
    while not store.check([key]):
        if store.check([_FAILED]):
            failure = json.loads(store.get(_FAILED))
            if failure["is_input"]:
                raise InputError(failure["message"])
            raise RuntimeError(f"process {failure['process']} failed: {failure['type']}: {failure['message']}")
        if time.monotonic() > last:
            raise RuntimeError(f"no word from another process within {LONGEST_WAIT}")
        time.sleep(_PAUSE_SECONDS)
    return store.get(key).decode()


@functools.cache
def _announced() -> list[bool]:
    """Return a list that holds, once this process has announced a failure, whether it was the first to."""
    return []


@functools.cache
def _store() -> Any:
    """Return the key-value store of the launcher; the group of torch.distributed makes or finds the same one."""
    import torch.distributed as dist

    store, _, _ = next(iter(dist.rendezvous("env://", timeout=LONGEST_WAIT)))
    return dist.PrefixStore("hf_seq2seq_attn", store)
