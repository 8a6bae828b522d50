"""Align files of any size: chunk by chunk, in several processes, and again from where a killed run stopped.

The lines are cut into chunks whose borders depend on nothing but the batch size, so that any number of processes
computes the same batches and finds the same links. A finished chunk stays in the folder `OUTPUT.parts` until all are
done; the folder names the command that it belongs to, and another command is refused.
"""

import json
import multiprocessing
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from hf_seq2seq_attn.cores import usable_cores
from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError

from .aligned_pair import AlignedPair
from .directions import Aligner, LearnedJumps, Reading
from .extraction import SentenceError
from .formats import write_atomically, write_pairs
from .hmm import JumpModel
from .json_lines import iterate_json_lines
from .links import learns_jumps
from .parallel_text import Chunk, ParallelText
from .provenance import library_versions, model_record
from .ranks import Rank
from .sinks import SinkTally
from .soft_matrices import iterate_matrices, write_matrices

BATCHES_IN_CHUNK = 16
# `hmm` learns its 81 jumps from at most so many pairs, spread evenly over the files.
PAIRS_FOR_JUMPS = 5000
_COMMAND, _JUMPS = "command.json", "jumps.json"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AlignJob:
    """What a process must know to align any chunk.

    Attributes:
        model, reverse_model: folders or Hub ids.
        source, target: the files, for what is said about them.
        reading, reverse_reading: the choices for each model, filled in; the second None without a reverse model.
        batch_size: sentence pairs in one pass.
        pre_split: rejoin a line's words by single spaces before the tokenizer reads them.
        soft: keep the matrices too.
        parts: the folder for finished chunks.
    """

    model: str
    reverse_model: str | None
    source: Path
    target: Path
    reading: Reading
    reverse_reading: Reading | None
    batch_size: int
    pre_split: bool
    soft: bool
    parts: Path

    @property
    def chunk_size(self) -> int:
        """Number of line pairs in a chunk."""
        return self.batch_size * BATCHES_IN_CHUNK

    @property
    def learns(self) -> bool:
        """Whether links need jumps that are learned from the corpus."""
        readings = [self.reading] if self.reverse_reading is None else [self.reading, self.reverse_reading]
        return any(learns_jumps(reading.links) for reading in readings)

    def fingerprint(self, text: ParallelText) -> dict[str, Any]:
        """Return what decides the content of the parts."""
        record = {
            "model": model_record(self.model),
            "reverse model": self.reverse_model and model_record(self.reverse_model),
            "source": text.digests[0],
            "target": text.digests[1],
            **asdict(self.reading),
            "choices saved with the reverse model": _differing(self.reading, self.reverse_reading),
            "batch size": self.batch_size,
            "pre-split": self.pre_split,
            "soft matrices": self.soft,
            "version": library_versions()["hf-seq2seq-attn"],
        }
        # As it comes back from its file.
        plain: dict[str, Any] = json.loads(json.dumps(record))
        return plain


def _differing(reading: Reading, other: Reading | None) -> dict[str, Any]:
    """Return what the other direction reads in another way."""
    return {} if other is None else dict(asdict(other).items() - asdict(reading).items())


@dataclass(frozen=True)
class Finished:
    """What is said of a finished chunk: pairs, links, the choices in words, and where the weight rests."""

    pairs: int
    links: int
    note: str
    sinks: SinkTally = field(default_factory=SinkTally)


class Parts:
    """The folder of finished chunks; each chunk is complete as soon as its `.json` is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, fingerprint: dict[str, Any]) -> None:
        """Make the folder, or check that the one that is there belongs to the same command.

        Raises:
            InputError: it belongs to another command, or is no such folder; names what differs.
        """
        command = self.folder / _COMMAND
        try:
            found = json.loads(command.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
                raise InputError(f"{self.folder}: is in the way of parts of the output; move it") from None
            self.folder.mkdir(exist_ok=True)
            write_atomically(command, [json.dumps(fingerprint, indent=1) + "\n"])
            return
        except (OSError, ValueError) as error:
            raise InputError(f"{command}: cannot be read ({error}); remove {self.folder}") from error
        differing = [
            name for name in fingerprint if not isinstance(found, dict) or found.get(name) != fingerprint[name]
        ]
        if differing:
            raise InputError(
                f"{self.folder}: holds parts of another command, which differs in {', '.join(differing)}; repeat that "
                "command to finish it, or remove the folder"
            )

    def finished(self, number: int) -> Finished | None:
        """Return what is said of a chunk if it is complete."""
        try:
            kept = json.loads(self._path(number, "json").read_text(encoding="utf-8"))
            return Finished(**kept | {"sinks": SinkTally(**kept.get("sinks", {}))})
        except FileNotFoundError:
            return None

    def write(
        self, number: int, pairs: list[AlignedPair], matrices: list[np.ndarray] | None, note: str, sinks: SinkTally
    ) -> Finished:
        """Keep a chunk."""
        write_pairs(self._path(number, "jsonl"), pairs)
        if matrices is not None:
            write_matrices(self._path(number, "npz"), matrices)
        done = Finished(len(pairs), sum(len(pair.gold.sure) for pair in pairs), note, sinks)
        write_atomically(self._path(number, "json"), [json.dumps(asdict(done)) + "\n"])
        return done

    def pairs(self, number: int) -> Iterator[AlignedPair]:
        """Yield the pairs of a complete chunk."""
        return iterate_json_lines(self._path(number, "jsonl"))

    def matrices(self, number: int) -> Iterator[np.ndarray]:
        """Yield the matrices of a complete chunk."""
        return iterate_matrices(self._path(number, "npz"))

    def learned_jumps(self, learn: Callable[[], LearnedJumps]) -> None:
        """Keep what `learn` returns, unless it is there already."""
        path = self.folder / _JUMPS
        if not path.exists():
            learned = learn()
            kept = {
                name: jumps and {"weights": jumps.weights.tolist(), "null": jumps.null}
                for name, jumps in (("forward", learned.forward), ("reverse", learned.reverse))
            }
            write_atomically(path, [json.dumps(kept) + "\n"])

    def jumps(self) -> LearnedJumps:
        """Return the jumps that were learned; none if no links need any."""
        try:
            kept = json.loads((self.folder / _JUMPS).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return LearnedJumps()
        models = {
            name: each and JumpModel(np.array(each["weights"]), float(each["null"])) for name, each in kept.items()
        }
        return LearnedJumps(**models)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int, suffix: str) -> Path:
        return self.folder / f"{number:06d}.{suffix}"


class BadSentenceError(InputError):
    """A sentence that a model cannot read, named by its file and line."""


class ChunkAligner:
    """Aligns chunks with models that it loads once."""

    def __init__(self, job: AlignJob) -> None:
        from hf_seq2seq_attn.translation import load_seq2seq

        self.job, self.parts = job, Parts(job.parts)
        with self._refused(0):
            forward = load_seq2seq(job.model)
            reverse = None if job.reverse_model is None else load_seq2seq(job.reverse_model)
            self.aligner = Aligner(forward, reverse, job.reading, job.batch_size, job.reverse_reading)
        self._jumps: LearnedJumps | None = None

    def align(self, chunk: Chunk, progress: Callable[[int], None] = lambda done: None) -> Finished:
        """Align a chunk and keep it; `progress` is called with the pairs of it that are done."""
        if self._jumps is None:
            self._jumps = self.parts.jumps()
        pairs: list[AlignedPair] = []
        matrices: list[np.ndarray] = []
        self.aligner.sinks = SinkTally()
        with self._refused(chunk.first):
            for done in self.aligner.align(self._words(chunk.sources), self._words(chunk.targets), self._jumps):
                pairs.append(done.pair)
                if self.job.soft:
                    matrices.append(done.matrix)
                progress(len(pairs))
        kept = matrices if self.job.soft else None
        return self.parts.write(chunk.number, pairs, kept, self.aligner.describe(), self.aligner.sinks)

    def learn(self, sources: list[str], targets: list[str]) -> None:
        """Learn the jumps of these lines and keep them."""
        self.parts.learned_jumps(lambda: self.aligner.learn(self._words(sources), self._words(targets)))

    def _words(self, lines: list[str]) -> list[Any]:
        return [line.split() for line in lines] if self.job.pre_split else lines

    @contextmanager
    def _refused(self, first: int) -> Iterator[None]:
        """Turn what the room refuses into bad input, a sentence by its file and line."""
        try:
            yield
        except SentenceError as error:
            path = self.job.source if error.side == "source" else self.job.target
            raise BadSentenceError(f"{path}:{first + error.number}: {error.what}") from error
        except UnusableError as error:
            raise InputError(str(error)) from error


def run_job(job: AlignJob, text: ParallelText, processes: int, progress: Progress) -> Iterator[Finished]:
    """Align the chunks that are not finished yet; yield what is said of each chunk, in order, as soon as it is there.

    Args:
        processes: how many; each loads the models. 1 = this one.
        progress: called as progress(done, total), in line pairs.
    """
    parts = Parts(job.parts)
    if processes == 1:
        yield from _run_here(job, text, parts, progress)
    else:
        yield from _run_in_pool(job, text, parts, processes, progress)


def _run_here(job: AlignJob, text: ParallelText, parts: Parts, progress: Progress) -> Iterator[Finished]:
    aligner: ChunkAligner | None = None
    for chunk in text.chunks(job.chunk_size):
        done = parts.finished(chunk.number)
        if done is None:
            if aligner is None:
                aligner = ChunkAligner(job)
                if job.learns:
                    aligner.learn(*text.sample(PAIRS_FOR_JUMPS))
            done = aligner.align(chunk, _counted_from(chunk.first, text.count, progress))
        progress(chunk.first + done.pairs, text.count)
        yield done


def _counted_from(first: int, total: int, progress: Progress) -> Callable[[int], None]:
    return lambda pairs: progress(first + pairs, total)


def rank_chunks(job: AlignJob, text: ParallelText, rank: Rank) -> None:
    """Align this rank's share of the unfinished chunks; return when all ranks are done."""
    parts = Parts(job.parts)
    aligner: ChunkAligner | None = None
    choose_accelerator(rank.local)
    rank.wait()
    if job.learns:
        if rank.number == 0:
            aligner = ChunkAligner(job)
            aligner.learn(*text.sample(PAIRS_FOR_JUMPS))
        rank.wait()
    for chunk in text.chunks(job.chunk_size):
        if chunk.number % rank.size == rank.number and parts.finished(chunk.number) is None:
            aligner = aligner or ChunkAligner(job)
            aligner.align(chunk)
    rank.wait()


def _run_in_pool(
    job: AlignJob, text: ParallelText, parts: Parts, processes: int, progress: Progress
) -> Iterator[Finished]:
    # A fork of a process that holds threads or an accelerator can hang.
    context = multiprocessing.get_context("spawn")
    waiting: list[Finished | Future[Finished]] = []
    chunks = text.chunks(job.chunk_size)
    number = context.Value("i", 0)
    pool = ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(job, processes, number))
    done_pairs = 0
    try:
        if job.learns:
            pool.submit(_learn, *text.sample(PAIRS_FOR_JUMPS)).result()
        while True:
            # Few chunks wait, so that memory does not grow with the files.
            for chunk in islice(chunks, 2 * processes - len(waiting)):
                waiting.append(parts.finished(chunk.number) or pool.submit(_align, chunk))
            if not waiting:
                return
            first = waiting.pop(0)
            done = first if isinstance(first, Finished) else first.result()
            done_pairs += done.pairs
            progress(done_pairs, text.count)
            yield done
    except BrokenProcessPool as error:
        raise UnusableError(
            "a process ended by itself, perhaps for want of memory; the same command with fewer processes goes on from "
            "here"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_WORKER: dict[str, Any] = {}


def _start_worker(job: AlignJob, processes: int, number: Any) -> None:
    """Set a process up: its share of the cores, its accelerator; the models follow with the first chunk."""
    import torch

    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, usable_cores() // processes))
    with number.get_lock():
        mine, number.value = number.value, number.value + 1
    choose_accelerator(mine)
    _WORKER["job"] = job


def choose_accelerator(number: int) -> None:
    """Let this process use one of the accelerators, if there are any, by its number among the processes."""
    import torch

    if torch.accelerator.is_available():
        torch.accelerator.set_device_index(number % torch.accelerator.device_count())


def _end_with(sentinel: int) -> None:
    """End this process when its parent is gone, killed perhaps: it would wait for work for ever."""
    wait([sentinel])
    os._exit(1)


def _aligner() -> ChunkAligner:
    if "aligner" not in _WORKER:
        _WORKER["aligner"] = ChunkAligner(_WORKER["job"])
    aligner: ChunkAligner = _WORKER["aligner"]
    return aligner


def _align(chunk: Chunk) -> Finished:
    return _aligner().align(chunk)


def _learn(sources: list[str], targets: list[str]) -> None:
    _aligner().learn(sources, targets)
