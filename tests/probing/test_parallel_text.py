"""Two files line by line: chunks, samples, digests, and what is wrong with them."""

import os
import threading
from pathlib import Path

import pytest

from hf_seq2seq_attn.probing.parallel_text import ParallelText
from hf_seq2seq_attn.text_files import InputError


def files(folder: Path, sources: list[str], targets: list[str]) -> tuple[Path, Path]:
    paths = folder / "s", folder / "t"
    for path, lines in zip(paths, (sources, targets), strict=True):
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return paths


SOURCES = [f"s {n}" for n in range(11)]
TARGETS = [f"t {n}" if n % 3 else "" for n in range(11)]


@pytest.mark.parametrize("size", [1, 4, 11, 50])
def test_chunks_are_the_lines_in_order(tmp_path: Path, size: int) -> None:
    chunks = list(ParallelText(*files(tmp_path, SOURCES, TARGETS)).chunks(size))
    assert [line for chunk in chunks for line in chunk.sources] == SOURCES
    assert [line for chunk in chunks for line in chunk.targets] == TARGETS
    assert [chunk.first for chunk in chunks] == list(range(0, 11, size))
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))


def test_a_sample_is_spread_over_the_files(tmp_path: Path) -> None:
    text = ParallelText(*files(tmp_path, SOURCES, TARGETS))
    assert text.sample(11) == text.sample(99) == (SOURCES, TARGETS)
    assert text.sample(4) == (SOURCES[::3], TARGETS[::3])
    assert text.sample(1) == (SOURCES[:1], TARGETS[:1])


def test_no_lines(tmp_path: Path) -> None:
    text = ParallelText(*files(tmp_path, [], []))
    assert (text.count, list(text.chunks(3)), text.sample(5)) == (0, [], ([], []))


def test_digests_tell_lines_apart(tmp_path: Path) -> None:
    one = ParallelText(*files(tmp_path, ["a", "b c"], ["x", "y"]))
    assert ParallelText(*files(tmp_path, ["a", "b c"], ["x", "y"])).digests == one.digests
    other = ParallelText(*files(tmp_path, ["a b", "c"], ["x", "y"]))
    assert other.digests[0] != one.digests[0] and other.digests[1] == one.digests[1]


@pytest.mark.parametrize(("sources", "targets", "counts"), [(3, 5, "5 lines, but"), (5, 3, "3 lines, but")])
def test_files_of_unequal_length(tmp_path: Path, sources: int, targets: int, counts: str) -> None:
    with pytest.raises(InputError, match=rf"/t:4: {counts} .*/s has {sources}; line N"):
        ParallelText(*files(tmp_path, ["a"] * sources, ["b"] * targets))


def test_a_pipe_is_read_once_and_held(tmp_path: Path) -> None:
    source, target = files(tmp_path, SOURCES, TARGETS)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(source.read_bytes()))
    writer.start()
    text = ParallelText(pipe, target)
    writer.join()
    assert next(text.chunks(11)).sources == next(text.chunks(11)).sources == SOURCES
    assert text.digests == ParallelText(source, target).digests
