"""What the align command does with files."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.text_files import InputError

from .align_jobs import AlignJob, BadSentenceError, Finished, Parts, rank_chunks, run_job
from .aligned_pair import AlignedPair
from .commands import parse_heads, parse_layer
from .directions import Reading
from .formats import FORMATS, format_of, write_pairs
from .link_commands import remark
from .parallel_text import ParallelText
from .progress import progress_bar
from .ranks import Rank, launched_rank
from .sinks import SinkTally
from .soft_matrices import write_matrices


def parsed_reading(*, heads: str, layer: str | int | None = None, **choices: Any) -> Reading:
    """Return the choices as the command line gives them: `heads` and `layer` as text, the others as fields of
    `Reading`.

    Raises:
        InputError: text that is no list of heads or layers.
    """
    try:
        numbers, layers = parse_heads(heads), parse_layer(layer)
    except ValueError as error:
        raise InputError(str(error)) from error
    given = {name: value for name, value in choices.items() if value is not None}
    return Reading(heads=tuple(numbers) if isinstance(numbers, list) else numbers, layer=layers, **given)


def align_files(
    model: str,
    source: Path,
    target: Path,
    output: Path | None,
    *,
    reading: Reading,
    reverse_model: str | None = None,
    soft: Path | None = None,
    format_name: str | None = None,
    pre_split: bool = False,
    processes: int = 1,
    batch_size: int = 32,
) -> None:
    """Align two text files and write one line for each pair, to `output` or stdout.

    With an output file finished chunks are kept beside it until all are done, so that the same command goes on where a
    killed one stopped. Started by a launcher, each rank aligns its share and rank 0 writes.

    Args:
        model, reverse_model: folders or Hub ids; the second of the target-to-source direction.
        reading: the choices.
        soft: an NPZ file for the matrices of words.
        format_name: one of `FORMATS` that is written; None = by the suffix of `output`, else Pharaoh.
        pre_split: rejoin each line's words by single spaces before the tokenizer reads them; otherwise it reads the
            line as it is. Words are what white space separates in both cases.
        processes: how many work at once; each loads the models.

    Raises:
        InputError: bad choices, files or sentences, or parts of another command's output.
    """
    try:
        # Filled in here, once for all processes, with what was saved beside each model.
        given, reading = reading, reading.filled(model).checked(reverse_model is not None)
        reverse_reading = None if reverse_model is None else given.filled_for_reverse(reverse_model)
        name = format_of(output or "-", format_name)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from error
    if FORMATS[name].write is None:
        raise InputError(f"{output}: {name} can be read but not written; choose another format")
    if soft is not None and soft.suffix != ".npz":
        raise InputError(f"{soft}: matrices are written as .npz; rename it")
    with launched_rank() as rank:
        if rank.size > 1 and (output is None or processes > 1):
            raise InputError("under a launcher the ranks are the processes: give -o, and leave --processes out")
        text = ParallelText(source, target)
        with _parts_folder(output) as folder:
            job = AlignJob(
                model,
                reverse_model,
                source,
                target,
                reading,
                reverse_reading,
                batch_size,
                pre_split,
                soft is not None,
                folder,
            )
            done = _align(job, text, rank, processes, name, output, soft)
    if rank.number == 0:
        _tell(done)


def _tell(done: list[Finished]) -> None:
    """Say on stderr what came out, how it was read, and where the weight rests."""
    if not done:
        remark("0 pairs")
        return
    pairs, links = sum(each.pairs for each in done), sum(each.links for each in done)
    remark(f"{pairs} pairs, {links} links; {done[-1].note}")
    sinks = SinkTally()
    for each in done:
        sinks.merge(each.sinks)
    # Fitted heads give probabilities of words: there is no weight to rest anywhere.
    if sinks.rows:
        remark(sinks.describe())


@contextmanager
def _parts_folder(output: Path | None) -> Iterator[Path]:
    if output is not None:
        yield output.with_name(output.name + ".parts")
        return
    with tempfile.TemporaryDirectory(prefix="seq2seq-attn-") as folder:
        yield Path(folder) / "parts"


def _align(
    job: AlignJob, text: ParallelText, rank: Rank, processes: int, name: str, output: Path | None, soft: Path | None
) -> list[Finished]:
    """Align and write; return what is said of the chunks, nothing in ranks other than 0."""
    parts, done = Parts(job.parts), []
    if rank.number == 0:
        parts.open(job.fingerprint(text))

    def pairs() -> Iterator[AlignedPair]:
        """Yield the pairs of each chunk as soon as it is finished."""
        with progress_bar("aligning") as progress:
            for number, finished in enumerate(run_job(job, text, processes, progress)):
                done.append(finished)
                yield from parts.pairs(number)

    try:
        if rank.size > 1:
            rank_chunks(job, text, rank)
            if rank.number > 0:
                return []
        if output is None:
            write = FORMATS[name].write
            assert write is not None
            sys.stdout.writelines(write(pairs()))
        else:
            with progress_bar("aligning") as progress:
                done.extend(run_job(job, text, processes, progress))
    except InputError as error:
        # Once a sentence is mended, the parts belong to other files.
        if rank.size == 1 and (isinstance(error, BadSentenceError) or parts.finished(0) is None):
            parts.remove()
        raise
    numbers = range(len(done))
    if soft is not None:
        write_matrices(soft, chain.from_iterable(map(parts.matrices, numbers)))
    if output is not None:
        write_pairs(output, chain.from_iterable(map(parts.pairs, numbers)), format_name=name)
        parts.remove()
    return done
