import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from hf_seq2seq_attn.probing import Bitext, Gold
from hf_seq2seq_attn.probing.work_commands import lexicon_files
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.aligner_corpus import (
    AlignerFiles,
    check_trainable,
    read_fixed_links,
    read_gold_links,
    read_lexicon,
    read_teacher_links,
    read_text,
)

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a writer of files: name and lines."""

    def write_lines(name: str, *lines: str) -> Path:
        path = tmp_path / name
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return path

    return write_lines


@pytest.fixture
def verses(write: Write) -> AlignerFiles:
    """Five lines: the third belongs to the second, the fourth is blank on one side."""
    return AlignerFiles(
        write("source", "a b", "c", "<range>", "d", "e f g"),
        write("target", "A B", "C D", "<range>", "", "E"),
        write("ids", "MAT 1:1", "MAT 1:2", "MAT 1:3", "MAT 1:4", "MAT 1:5"),
    )


def test_ranges_are_merged_and_written_back_blank(verses: AlignerFiles) -> None:
    text = read_text(verses)
    assert text.source == [["a", "b"], ["c"], ["d"], ["e", "f", "g"]]
    assert text.target == [["A", "B"], ["C", "D"], [], ["E"]]
    assert text.lines == 5
    assert list(text.per_line("wxyz", "-")) == ["w", "x", "-", "y", "z"]
    assert text.place(1) == f"{verses.source}:2 (MAT 1:2)"


def test_the_same_words_on_other_lines_are_another_text(write: Write) -> None:
    lines = (("a b", "<range>", "c"), ("a b", "c", "<range>"), ("a b", "c"))
    digests = [
        read_text(AlignerFiles(write(f"source{n}", *each), write(f"target{n}", *each))).digest
        for n, each in enumerate(lines)
    ]
    assert len(set(digests)) == 3


def test_a_range_on_one_side_takes_the_other_sides_words_upward(write: Write) -> None:
    text = read_text(AlignerFiles(write("source", "a", "b c"), write("target", "A B C", "<range>")))
    assert text.source == [["a", "b", "c"]]
    assert text.target == [["A", "B", "C"]]


def test_compressed_files_and_lemmas(write: Write, tmp_path: Path) -> None:
    source = tmp_path / "source.gz"
    with gzip.open(source, "wt", encoding="utf-8") as stream:
        stream.write("went home\n\n")
    files = AlignerFiles(source, write("target", "x y", ""), source_lemmas=write("lemmas", "go home", ""))
    text = read_text(files)
    assert text.source_lemmas == [["go", "home"], []]
    assert text.target_lemmas is None


def test_the_digest_tells_words_and_lemmas(write: Write) -> None:
    def digest(source: str, lemmas: str | None = None) -> str:
        files = AlignerFiles(
            write("source", source),
            write("target", "x"),
            source_lemmas=None if lemmas is None else write("lemmas", lemmas),
        )
        return read_text(files).digest

    assert digest("a b") == digest("a  b ")
    assert len({digest("a b"), digest("a c"), digest("a b", "a b"), digest("a b", "a c")}) == 4


def test_gold_of_some_lines_with_possible_links(verses: AlignerFiles, write: Write) -> None:
    text = read_text(verses)
    assert read_gold_links(write("gold", "0-0 1p1", "0-1", "", "", ""), text) == {
        0: Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)})),
        1: Gold(frozenset({(0, 1)}), frozenset({(0, 1)})),
    }
    # Index 3 of three words shows that this one counts from 1.
    assert read_fixed_links(write("fixed", "", "", "", "", "3-1"), text) == {3: frozenset({(2, 0)})}
    with pytest.raises(InputError, match=r"none\.align: has no link in any line; give a file with links"):
        read_gold_links(write("none.align", *[""] * 5), text)


def test_a_base_is_for_files_whose_format_leaves_it_open(verses: AlignerFiles, write: Write) -> None:
    text, one = read_text(verses), frozenset({(1, 1)})
    rows = ['{"links": [[1, 1]]}', *['{"links": []}'] * 4]
    assert read_gold_links(write("from0.jsonl", *rows), text, 1) == {0: Gold(one, one)}
    assert read_gold_links(write("from1.align", "2-2", "", "", "", ""), text, 1) == {0: Gold(one, one)}


def test_links_stand_on_the_lines_that_lemmas_merge_too(write: Write) -> None:
    """The third line is blank in the texts and says <range> in the lemmas alone."""
    files = AlignerFiles(
        write("s", "a b", "c", "", "d", "e f"),
        write("t", "A B", "C", "", "D", "E F"),
        source_lemmas=write("l", "a b", "c", "<range>", "d", "e f"),
    )
    text = read_text(files)
    links = write("links", "", "", "", "0-0", "1-0")
    one = frozenset({(0, 0)})
    assert len(text.source) == 4
    assert read_gold_links(links, text, 0) == {2: Gold(one, one), 3: Gold(frozenset({(1, 0)}), frozenset({(1, 0)}))}
    assert read_fixed_links(links, text, 0)[2] == one
    assert len(read_teacher_links(links, text, 0).forward) == 4


def test_a_teachers_file_shares_a_words_weight_among_its_partners(verses: AlignerFiles, write: Write) -> None:
    teacher = read_teacher_links(write("t.prob", "0-0:0.5 1-0:1.0", "0-0 0-1", "", "", ""), read_text(verses))
    assert teacher.forward[0] == {(0, 0): pytest.approx(1 / 3), (1, 0): pytest.approx(2 / 3)}
    assert teacher.reverse[0] == {(0, 0): 0.5, (1, 0): 1.0}
    assert teacher.forward[1] == {(0, 0): 1.0, (0, 1): 1.0}
    assert teacher.reverse[1] == {(0, 0): 0.5, (0, 1): 0.5}
    assert teacher.forward[2:] == [{}, {}]


def test_a_lexicon_may_have_more_columns_and_blank_lines(write: Write) -> None:
    path = write("pairs.tsv", "house\tHaus\t12", "", " cat \tKatze")
    assert read_lexicon(path) == [("house", "Haus"), ("cat", "Katze")]


def test_the_lexicon_that_the_package_makes_is_taken_as_it_is(
    verses: AlignerFiles, write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    links = write("links", "0-0", "0-0 0-1", "", "", "1-0")
    bitext = Bitext(verses.source, verses.target, links)
    lexicon_files(bitext, tmp_path / "lexicon.tsv")
    assert len((tmp_path / "lexicon.tsv").read_text().splitlines()) == 1 + 7
    assert read_lexicon(tmp_path / "lexicon.tsv") == [("a", "A"), ("f", "E")]
    assert "lexicon.tsv: 5 lines passed over, which do not have one word on each side" in caplog.text


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("gold", ("0-0", "0-0"), "gold:3: ends before line 2 \\(MAT 1:2\\)"),
        ("gold", ("0-0", "", "", "", "", ""), "gold:6: more lines than"),
        ("gold", ("0-0", "0-5", "", "", ""), "gold:2 \\(MAT 1:2\\): target index 5"),
        (
            "gold",
            ("0-0", "", "0-0", "", ""),
            "gold:3: links on a line that belongs to the verse above, 2 \\(MAT 1:2\\)",
        ),
        ("gold", ("0-0", "here", "", "", ""), "gold:2: 'here' is no link"),
    ],
)
def test_links_that_do_not_fit_name_their_line_and_verse(
    verses: AlignerFiles, write: Write, name: str, lines: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_gold_links(write(name, *lines), read_text(verses))


def test_texts_that_do_not_fit_name_their_line_and_verse(write: Write) -> None:
    source, target = write("source", "a b", "c"), write("target", "A")
    with pytest.raises(InputError, match=r"target:2: 1 lines, but .*source has more"):
        read_text(AlignerFiles(source, target))
    ids = write("ids", "GEN 1:1", "GEN 1:2")
    files = AlignerFiles(source, write("two", "A", "B"), ids, source_lemmas=write("lemmas", "a b", "c d"))
    with pytest.raises(InputError, match="lemmas:2 \\(GEN 1:2\\): 2 lemmas for 1 words"):
        read_text(files)
    with pytest.raises(InputError, match="no line has words here and in"):
        check_trainable(read_text(AlignerFiles(write("left", "a", ""), write("right", "", "b"))))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("house", "pairs.tsv:2: 'house' has no two columns"),
        ("house\t", "pairs.tsv:2: 'house' has no two columns"),
        ("a b\tc", "pairs.tsv: has no pair of single words"),
    ],
)
def test_a_bad_lexicon_is_refused(write: Write, line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_lexicon(write("pairs.tsv", "", line))
