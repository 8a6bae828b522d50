"""Alignment files: what is read, what is written, and what is said about bad ones."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_seq2seq_attn.probing import Gold, format_links, read_gold, read_link_file, read_links, write_links
from hf_seq2seq_attn.text_files import InputError


def written(folder: Path, text: str, name: str = "x.align") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_pharaoh_with_sure_possible_and_blank_lines(tmp_path: Path) -> None:
    gold = read_gold(written(tmp_path, "0-0 1p2\n\n 2-1\t0p1 \n"))
    assert gold == [
        Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 2)})),
        Gold(frozenset(), frozenset()),
        Gold(frozenset({(2, 1)}), frozenset({(2, 1), (0, 1)})),
    ]


def test_possible_always_holds_sure() -> None:
    assert Gold(frozenset({(0, 0)}), frozenset({(1, 1)})).possible == {(0, 0), (1, 1)}


def test_talp_counts_from_one_unless_the_file_shows_otherwise(tmp_path: Path) -> None:
    one = read_link_file(written(tmp_path, "1-1 2p3\n", "a.talp"))
    assert (one.base, one.certain) == (1, True)
    assert one.sentences[0].possible == {(0, 0), (1, 2)}
    zero = read_link_file(written(tmp_path, "1-1\n2-0\n", "b.talp"))
    assert (zero.base, zero.evidence) == (0, "index 0 on line 2")
    assert zero.sentences[0].sure == {(1, 1)}


def test_the_base_can_be_given_and_a_doubtful_one_is_marked(tmp_path: Path) -> None:
    path = written(tmp_path, "1-1 2-2\n")
    assert not read_link_file(path).certain
    assert read_links(path) == [{(1, 1), (2, 2)}]
    assert read_links(path, base=1) == [{(0, 0), (1, 1)}]
    with pytest.raises(InputError, match=r"z\.align:2: index 0 in a file said to count from 1; give base 0"):
        read_links(written(tmp_path, "1-1\n0-1\n", "z.align"), base=1)


@pytest.mark.parametrize("token", ["1", "1-", "a-b", "1:2", "-1-2", "0-1-2", "²-1", "1?2"])
def test_a_token_that_is_no_link_is_named_with_its_line(tmp_path: Path, token: str) -> None:
    with pytest.raises(InputError, match=r"x\.align:2: .* is no link; write i-j"):
        read_gold(written(tmp_path, f"0-0\n1-1 {token}\n"))


def test_indices_must_lie_in_their_sentence(tmp_path: Path) -> None:
    path = written(tmp_path, "0-0\n1-2\n")
    assert read_links(path, [1, 2], [1, 3]) == [{(0, 0)}, {(1, 2)}]
    with pytest.raises(InputError, match=r"x\.align:2: target index 2 .* the sentence has 2 words"):
        read_links(path, [1, 2], [1, 2])
    with pytest.raises(InputError, match=r"x\.align:2: source index 1"):
        read_links(path, [1, 1], [1, 3])
    with pytest.raises(InputError, match=r"x\.align:3: 2 lines of links for 3 source sentences"):
        read_links(path, [1, 2, 1])


def test_one_based_links_read_as_zero_based_leave_the_sentence_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="if the file counts from 1, give base 1"):
        read_links(written(tmp_path, "1-1 2-2\n"), [2], [2])


def test_written_sorted_and_atomic(tmp_path: Path) -> None:
    path = tmp_path / "out.align"
    write_links(path, [{(10, 0), (2, 1), (2, 0)}, frozenset(), Gold(frozenset({(0, 0)}), frozenset({(1, 0)}))])
    assert path.read_bytes() == b"2-0 2-1 10-0\n\n0-0 1p0\n"

    def broken():  # type: ignore[no-untyped-def]
        yield {(0, 0)}
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_links(path, broken())
    assert path.read_bytes() == b"2-0 2-1 10-0\n\n0-0 1p0\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.align"]
    with pytest.raises(InputError, match="cannot be written"):
        write_links(tmp_path / "missing" / "x", [])


LINKS = st.frozensets(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6)
GOLD = st.builds(Gold, LINKS, LINKS)


@given(sentences=st.lists(GOLD, max_size=5), talp=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_written_files_read_back_the_same(tmp_path: Path, sentences: list[Gold], talp: bool) -> None:
    path = tmp_path / ("x.talp" if talp else "x.align")
    write_links(path, sentences)
    assert read_gold(path) == sentences


def test_format_counts_from_the_base_asked_for() -> None:
    assert format_links({(0, 1)}, base=1) == "1-2"
