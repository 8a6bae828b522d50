"""What pairs of processes do in the tests of training: `python process_scenarios.py FOLDER OVERRIDE...`.

One interpreter imports the libraries once and is forked into a pair for each scenario, before it has any thread. The
ends of all are written to FOLDER/ends.json: per scenario, for each process: exit code, seconds, stdout, stderr.
"""

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training import resumption
from hf_seq2seq_attn.training import train as command
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.trainer import Seq2SeqAttnTrainer

PATIENCE = 100.0
"""Seconds after which a pair counts as hanging."""
Scenario = Callable[[Path, list[str]], int]


class Killed(BaseException):
    """Stands for the end of the process."""


def resume(folder: Path, overrides: list[str]) -> int:
    """Train without and with two interruptions; the second process notes which files it writes."""
    recipe = load_recipe(folder / "toy.yaml", overrides)
    written: set[str] = set()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            written.add(arguments[0])

    # Torch writes past Python's own files.
    save = torch.save

    def note_torch(state: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        written.add(str(path))
        save(state, path, *args, **kwargs)

    sys.addaudithook(note)
    setattr(torch, "save", note_torch)  # noqa: B010
    command.train(recipe, folder / "whole", progress=False)
    whole_step = Seq2SeqAttnTrainer.training_step
    for step in (7, 10):

        def until(trainer: Any, *args: Any, last: int = step, **kwargs: Any) -> Any:
            if trainer.state.global_step == last:
                raise Killed
            return whole_step(trainer, *args, **kwargs)

        setattr(Seq2SeqAttnTrainer, "training_step", until)  # noqa: B010
        with suppress(Killed):
            command.train(recipe, folder / "interrupted", progress=False)
    setattr(Seq2SeqAttnTrainer, "training_step", whole_step)  # noqa: B010
    command.train(recipe, folder / "interrupted", progress=False)
    print(json.dumps(sorted({Path(name).name for name in written if name.startswith(str(folder))})))
    return 0


def uneven(folder: Path, overrides: list[str]) -> int:
    """Train on the first few pairs of the corpus, by batches of two: the processes have unequal shares."""
    counts = {}
    for pairs in (1, 3, 11):
        names = []
        for column in ("source", "target", "links"):
            lines = (folder / f"train.{column}").read_text().splitlines(keepends=True)[:pairs]
            part = folder / f"first-{pairs}.{column}"
            if os.environ["RANK"] == "0":
                part.write_text("".join(lines))
            names.append(f"data.train.{column}={part}")
        settings = ["training.max_steps=-1", "training.num_train_epochs=2", "training.per_device_train_batch_size=2"]
        settings += ["training.gradient_accumulation_steps=1"]
        if os.environ["RANK"] != "0":
            time.sleep(0.5)
        recipe = load_recipe(folder / "toy.yaml", [*overrides, *names, *settings])
        metrics = command.train(recipe, folder / f"uneven-{pairs}", progress=False).metrics
        counts[pairs] = [metrics["processes"], metrics["steps"]]
    print(json.dumps(counts))
    return 0


def bad_input(folder: Path, overrides: list[str]) -> int:
    """All processes read the same bad recipe."""
    return _command(folder, "bad", [*overrides, "tokenizer.vocab_size=5"])


def bad_recipe(folder: Path, overrides: list[str]) -> int:
    """All processes refuse a field before they have become a group."""
    return _command(folder, "recipe", [*overrides, "training.max_stepz=5"])


def bad_input_of_one(folder: Path, overrides: list[str]) -> int:
    """Only the second process cannot read its files, and it is quicker than the first."""
    read = command.read_corpus

    def refuse(*args: Any, **kwargs: Any) -> Any:
        if os.environ["RANK"] == "1":
            raise InputError("dev.source: no such file; check the path")
        time.sleep(1)
        return read(*args, **kwargs)

    setattr(command, "read_corpus", refuse)  # noqa: B010
    return _command(folder, "one", overrides)


def crash_of_one(folder: Path, overrides: list[str]) -> int:
    """The second process fails in the middle of training."""
    whole_step = Seq2SeqAttnTrainer.training_step

    def crash(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        if os.environ["RANK"] == "1" and trainer.state.global_step == 2:
            raise RuntimeError("out of memory")
        return whole_step(trainer, *args, **kwargs)

    setattr(Seq2SeqAttnTrainer, "training_step", crash)  # noqa: B010
    return _command(folder, "crash", overrides)


def full_disk_of_one(folder: Path, overrides: list[str]) -> int:
    """The second process cannot write its part of a checkpoint."""
    path_of = resumption._state_file

    def full(checkpoint: Path) -> Path:
        if os.environ["RANK"] == "1" and checkpoint.name == "checkpoint-4":
            raise OSError(28, "No space left on device")
        return path_of(checkpoint)

    setattr(resumption, "_state_file", full)  # noqa: B010
    return _command(folder, "full", [*overrides, "training.max_steps=7"])


def _command(folder: Path, name: str, overrides: list[str]) -> int:
    return command.main([str(folder / "toy.yaml"), *overrides, "-o", str(folder / name)])


SCENARIOS: tuple[Scenario, ...] = (
    resume,
    uneven,
    bad_input,
    bad_recipe,
    bad_input_of_one,
    crash_of_one,
    full_disk_of_one,
)


def run_pair(scenario: Scenario, folder: Path, overrides: list[str]) -> list[dict[str, Any]]:
    """Fork two processes, as a launcher would name them; return how each ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    children = {}
    for rank in (0, 1):
        names = [folder / f"{scenario.__name__}-{rank}.{stream}" for stream in ("out", "err")]
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            for number, name in enumerate(names, start=1):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
            try:
                code = scenario(folder, overrides)
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        children[child] = (rank, names)
    ends: list[dict[str, Any]] = [{}, {}]
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            rank, names = children.pop(child)
            out, err = (name.read_text() for name in names)
            code = os.waitstatus_to_exitcode(status)
            ends[rank] = {"code": code, "seconds": time.monotonic() - began, "out": out, "err": err}
        elif time.monotonic() - began > PATIENCE:
            for hanging in children:
                os.kill(hanging, 9)
        time.sleep(0.02)
    return ends


if __name__ == "__main__":
    place = Path(sys.argv[1])
    ends = {scenario.__name__: run_pair(scenario, place, sys.argv[2:]) for scenario in SCENARIOS}
    (place / "ends.json").write_text(json.dumps(ends))
