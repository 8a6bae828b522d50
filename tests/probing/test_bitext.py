"""Sentence pairs with links and lemmas, streamed from files."""

from pathlib import Path

import pytest

from hf_seq2seq_attn.probing.bitext import Bitext, iterate_bitext
from hf_seq2seq_attn.text_files import InputError


def write(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_words_links_lemmas_and_probabilities_come_together(tmp_path: Path) -> None:
    corpus = Bitext(
        write(tmp_path, "s", "a b", "c", "d"),
        write(tmp_path, "t", "A", "<range>", "D E"),
        write(tmp_path, "l.prob", "0-0:0.5 2-0", "", "0p1:0.25"),
        write(tmp_path, "v", "1", "2", "3"),
        target_lemmas=write(tmp_path, "m", "a", "<range>", "d e"),
    )
    # Twice, as a measure that needs two passes does.
    for _ in range(2):
        first, second = corpus
        assert (first.source, first.target, first.links) == (["a", "b", "c"], ["A"], {(0, 0), (2, 0)})
        assert first.probabilities == {(0, 0): 0.5}
        assert (first.target_lemmas, first.source_lemmas) == (["a"], None)
        assert (second.verse.place, second.links, second.target_lemmas) == ("3 (3)", {(0, 1)}, ["d", "e"])
    assert next(iterate_bitext(tmp_path / "s", tmp_path / "t")).links is None


def test_links_that_count_from_one_are_found_by_the_words(tmp_path: Path) -> None:
    texts = write(tmp_path, "s", "a b", "c", "d"), write(tmp_path, "t", "A B", "<range>", "D")
    links = write(tmp_path, "l", "1-1 3-2", "", "1-1")
    assert [line.links for line in iterate_bitext(*texts, links)] == [{(0, 0), (2, 1)}, {(0, 0)}]
    zero_based = write(tmp_path, "k", "1-1", "", "")
    assert next(iterate_bitext(*texts, zero_based, base=0)).links == {(1, 1)}


def test_a_format_without_blank_lines_at_the_end_is_filled_up(tmp_path: Path) -> None:
    texts = write(tmp_path, "s", "a", "b"), write(tmp_path, "t", "A", "B")
    assert [line.links for line in iterate_bitext(*texts, write(tmp_path, "l.naacl", "1 1 1"))] == [{(0, 0)}, set()]


@pytest.mark.parametrize(
    ("links", "lemmas", "message"),
    [
        (["0-0"], ["a b", "c"], r"l:2: ends before line 2 \(GEN 1:2\) of the text"),
        (["0-0", "", "0-0"], ["a b", "c"], r"l:3: more lines than"),
        (["0-0 1-2", ""], ["a b", "c"], r"l:1 \(GEN 1:1\): target index 2 .* 2 words"),
        (["0-0", "1-0"], ["a b", "c"], r"l:2 \(GEN 1:2\): source index 1 .* 1 words"),
        (["0-0", ""], ["a b", "c d"], r"m:2 \(GEN 1:2\): 2 lemmas for 1 words"),
    ],
)
def test_bad_files_are_named_with_line_and_verse(
    tmp_path: Path, links: list[str], lemmas: list[str], message: str
) -> None:
    texts = write(tmp_path, "s", "a b", "c"), write(tmp_path, "t", "A B", "C")
    files = dict(
        ids=write(tmp_path, "v", "GEN 1:1", "GEN 1:2"),
        source_lemmas=write(tmp_path, "m", *lemmas),
    )
    with pytest.raises(InputError, match=message):
        list(iterate_bitext(*texts, write(tmp_path, "l", *links), **files))


def test_links_on_a_merged_line_are_refused(tmp_path: Path) -> None:
    texts = write(tmp_path, "s", "a b", "c"), write(tmp_path, "t", "A B", "<range>")
    with pytest.raises(InputError, match=r"l:2: links on a line that belongs to the verse above, 1;"):
        list(iterate_bitext(*texts, write(tmp_path, "l", "0-0", "0-0")))


def test_lines_come_before_the_rest_is_read(tmp_path: Path) -> None:
    texts = write(tmp_path, "s", "a", "b", "c"), write(tmp_path, "t", "A", "B", "C")
    lines = iterate_bitext(*texts, write(tmp_path, "l", "0-0", "0-0", "nonsense"))
    assert next(lines).links == {(0, 0)}
    with pytest.raises(InputError, match=r"l:3: 'nonsense' is no link"):
        list(lines)
