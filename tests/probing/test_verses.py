"""Verse-aligned files: blank verses, merged verses, and what is wrong with them."""

import gzip
from pathlib import Path

import pytest

from hf_seq2seq_attn.probing.verses import iterate_verses, unmerged
from hf_seq2seq_attn.text_files import InputError


def write(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_range_lines_are_read_with_the_verse_above_and_written_back_blank(tmp_path: Path) -> None:
    source = write(tmp_path, "s", "a b", "c", "d", "", "<range>", "e", "f")
    target = write(tmp_path, "t.gz", "A", "<range>", "<range>", "", "X", "", "F")
    names = write(tmp_path, "v", *(f"GEN 1:{n}" for n in range(1, 8)))
    verses = list(iterate_verses(source, target, ids=names))
    assert [(verse.line, verse.lines, verse.verse_id, verse.texts) for verse in verses] == [
        (1, 3, "GEN 1:1", ("a b c d", "A")),
        (4, 2, "GEN 1:4", ("", "X")),
        (6, 1, "GEN 1:6", ("e", "")),
        (7, 1, "GEN 1:7", ("f", "F")),
    ]
    assert [verse.place for verse in verses][:2] == ["1 (GEN 1:1)", "4 (GEN 1:4)"]
    assert list(unmerged(verses, ["one", "two", "three", "four"], "")) == ["one", "", "", "two", "", "three", "four"]
    with pytest.raises(ValueError, match="shorter"):
        list(unmerged(verses, ["one"], ""))


def test_ordinary_files_are_read_line_by_line(tmp_path: Path) -> None:
    source = write(tmp_path, "s", "a  b ", "", "c <range> d")
    assert [(verse.place, verse.texts) for verse in iterate_verses(source)] == [
        ("1", ("a  b ",)),
        ("2", ("",)),
        ("3", ("c <range> d",)),
    ]
    assert list(iterate_verses(write(tmp_path, "empty"))) == []


@pytest.mark.parametrize(
    ("source", "target", "names", "message"),
    [
        (["a", "b"], ["A"], None, r"t:2: 1 lines, but .*s has more"),
        (["a"], ["A", "B"], ["1", "2"], r"s:2: 1 lines, but .*t has more"),
        (["a", "b"], ["A", "B"], ["1"], r"v:2: 1 lines, but .*s has more"),
        (["a"], ["<range>"], None, r"t:1: <range> on the first line has no verse above"),
        (["a", "b"], ["A", "B"], ["1", " "], r"v:2: no name of a verse"),
    ],
)
def test_bad_files_are_named_with_their_line(
    tmp_path: Path, source: list[str], target: list[str], names: list[str] | None, message: str
) -> None:
    paths = write(tmp_path, "s", *source), write(tmp_path, "t", *target)
    ids = None if names is None else write(tmp_path, "v", *names)
    with pytest.raises(InputError, match=message):
        list(iterate_verses(*paths, ids=ids))
