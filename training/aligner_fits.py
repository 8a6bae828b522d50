"""One network for each seed, one after the other or in several processes; what is finished is kept for a restart."""

import json
import math
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.cores import usable_cores
from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.probing import write_atomically
from hf_seq2seq_attn.text_files import InputError

from .aligner_data import AlignerData
from .aligner_progress import Report, fraction_bar
from .aligner_settings import AlignerSettings
from .aligner_training import AlignerProgress, fit_aligner
from .checkpoints import find_damage, publish, remove, seal
from .trained_aligner import TrainedAligner

_PLAN = "plan.json"
_SHORTEST = 0.05
"""Minutes for a seed, however little of the budget is left."""
_POLL_SECONDS = 0.5


def fit_seeds(
    data: AlignerData,
    settings: AlignerSettings,
    seeds: Sequence[int],
    *,
    folder: Path,
    minutes: float | None = None,
    processes: int = 1,
) -> TrainedAligner:
    """Train a network for each seed and return the aligner that averages them.

    Args:
        folder: where the state is kept; seeds that are finished there are read back, another goes on from its last
            checkpoint.
        minutes: for all seeds; shared out among them when the run begins, so that a restart does the same.
        processes: how many seeds are trained at once; each holds the data, and uses its share of the cores.

    Raises:
        InputError: fewer than 1 process, or a process that ended by itself.
    """
    if processes < 1:
        raise InputError(f"--processes is {processes}; it must be at least 1")
    processes = min(processes, len(seeds))
    share = _share(folder / _PLAN, minutes, len(seeds), processes)
    waiting = [seed for seed in seeds if find_damage(_fitted(folder, seed)) is not None]
    done = len(seeds) - len(waiting)
    with fraction_bar("training the aligner") if waiting else nullcontext(_silent) as report:
        if processes == 1 or len(waiting) == 1:
            for place, seed in enumerate(waiting, start=done):
                _fit(data, settings, seed, share, folder, _part_of(report, place, len(seeds), seed))
        elif waiting:
            _fit_in_pool(data, settings, waiting, share, folder, processes, report, done / len(seeds))
    return TrainedAligner.joined([TrainedAligner.load(_fitted(folder, seed)) for seed in seeds])


def _share(plan: Path, minutes: float | None, seeds: int, processes: int) -> float | None:
    """Return the minutes for each seed: those of the run's first start, if this is not it."""
    if plan.exists():
        share: float | None = json.loads(plan.read_text(encoding="utf-8"))["minutes"]
        return share
    rounds = -(-seeds // processes)
    share = None if minutes is None else max(minutes / rounds, _SHORTEST)
    write_atomically(plan, [json.dumps({"minutes": share}) + "\n"])
    return share


def _fitted(folder: Path, seed: int) -> Path:
    return folder / f"fitted-{seed}"


def _fit(
    data: AlignerData, settings: AlignerSettings, seed: int, minutes: float | None, folder: Path, progress: Any
) -> None:
    """Train one seed and keep it, whole or not at all."""
    state = folder / f"seed-{seed}"
    state.mkdir(exist_ok=True)
    aligner = fit_aligner(data, settings, seed=seed, minutes=minutes, resume_dir=state, progress=progress)
    written = folder / f"saving-{seed}"
    remove(written)
    written.mkdir()
    aligner.save(written)
    seal(written)
    publish(written, _fitted(folder, seed))
    remove(state)


def _part_of(report: Report, place: int, seeds: int, seed: int) -> Any:
    """Return what turns the progress of one seed into that of all."""
    name = f"seed {seed} ({place + 1} of {seeds}), " if seeds > 1 else ""

    def told(state: AlignerProgress) -> None:
        # Before the first step there is no loss.
        loss = f", loss {state.loss:.3f}" if math.isfinite(state.loss) else ""
        report((place + min(state.done, 1.0)) / seeds, f"{name}{state.stage}{loss}")

    return told


def _silent(done: float, note: str) -> None:
    pass


def _fit_in_pool(
    data: AlignerData,
    settings: AlignerSettings,
    seeds: Sequence[int],
    minutes: float | None,
    folder: Path,
    processes: int,
    report: Report,
    before: float,
) -> None:
    # A fork of a process that holds threads or an accelerator can hang.
    context = multiprocessing.get_context("spawn")
    shares: Any = context.Array("d", len(seeds))
    stop = context.Event()
    pool = ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(data, processes, shares, stop))
    try:
        futures = [pool.submit(_fit_here, settings, seed, minutes, folder, place) for place, seed in enumerate(seeds)]
        while not all(future.done() for future in futures):
            failed = next((future for future in futures if future.done() and future.exception()), None)
            if failed is not None:
                failed.result()
            report(before + (1 - before) * sum(shares) / len(seeds), f"{len(seeds)} seeds")
            _wait(futures)
        for future in futures:
            future.result()
    except BrokenProcessPool as error:
        raise UnusableError(
            "a process ended by itself, perhaps for want of memory; the same command with fewer processes goes on from "
            "here"
        ) from error
    finally:
        # Of no use where all have ended; else one has failed, and the others would go on to their end, unseen.
        stop.set()
        pool.shutdown(cancel_futures=True)


def _wait(futures: Sequence[Any]) -> None:
    from concurrent.futures import FIRST_COMPLETED, wait

    wait([future for future in futures if not future.done()], _POLL_SECONDS, FIRST_COMPLETED)


_WORKER: dict[str, Any] = {}


class _OtherSeedError(Exception):
    """Another seed has failed; what this one has reached is kept from time to time."""


def _start_worker(data: AlignerData, processes: int, shares: Any, stop: Any) -> None:
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, usable_cores() // processes))
    _WORKER.update(data=data, shares=shares, stop=stop)


def _fit_here(settings: AlignerSettings, seed: int, minutes: float | None, folder: Path, place: int) -> None:
    def told(state: AlignerProgress) -> None:
        if _WORKER["stop"].is_set():
            raise _OtherSeedError
        _WORKER["shares"][place] = min(state.done, 1.0)

    _fit(_WORKER["data"], settings, seed, minutes, folder, told)
    _WORKER["shares"][place] = 1.0
