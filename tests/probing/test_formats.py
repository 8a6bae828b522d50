"""Alignment files: what is read, what is written, and what is said about bad ones."""

import gzip
import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_seq2seq_attn.probing import (
    FORMATS,
    AlignedPair,
    Gold,
    format_links,
    format_of,
    iterate_pairs,
    read_gold,
    read_link_file,
    read_links,
    write_links,
    write_pairs,
)
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
    for token in ("0-3", "3-0", "0p3", "3p0", "3-0:0.5"):
        assert read_link_file(written(tmp_path, f"1-1\n10-10 {token}\n", "c.talp")).evidence == "index 0 on line 2"


def test_the_base_can_be_given_and_a_doubtful_one_is_marked(tmp_path: Path) -> None:
    path = written(tmp_path, "1-1 2-2\n")
    assert not read_link_file(path).certain
    assert read_links(path) == [{(1, 1), (2, 2)}]
    assert read_links(path, base=1) == [{(0, 0), (1, 1)}]
    with pytest.raises(InputError, match=r"z\.align:2: index 0 in a file said to count from 1; give base 0"):
        read_links(written(tmp_path, "1-1\n0-1\n", "z.align"), base=1)


@pytest.mark.parametrize("token", ["1", "1-", "a-b", "1:2", "-1-2", "0-1-2", "²-1", "1?2", "0-1:", "0-1:x1"])
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


def test_an_index_equal_to_a_length_shows_that_the_file_counts_from_one(tmp_path: Path) -> None:
    path = written(tmp_path, "1-1\n1-1 2-3\n")
    read = read_link_file(path, source_lengths=[4, 2], target_lengths=[4, 4])
    assert read.evidence == "no index 0, and source index 2 on line 2 in a sentence of 2 words"
    assert (read.base, read.certain, read.sentences[1].sure) == (1, False, {(0, 0), (1, 2)})
    read = read_link_file(path, source_lengths=[4, 3], target_lengths=[4, 3])
    assert read.evidence.endswith("target index 3 on line 2 in a sentence of 3 words")
    with pytest.raises(InputError, match=r"x\.align:2: source index 2 .* has 2 words"):
        read_link_file(path, source_lengths=[4, 2], target_lengths=[4, 4], base=0)
    with pytest.raises(InputError, match=r"x\.align:2: source index 2 .*, if the file counts from 1, give base 1"):
        read_links(written(tmp_path, "1-1\n2-3\n"), [4, 1], [5, 5])


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


def test_the_format_is_told_by_the_suffix_or_given() -> None:
    names = {
        "x": "pharaoh", "x.align": "pharaoh", "x.talp.gz": "talp", "x.prob": "pharaoh-p", "t.wa": "naacl",
        "t.wa.nonullalign": "naacl",
        "de-en.A3.final.gz": "a3", "x.a3": "a3", "x.jsonl": "jsonl",
    }  # fmt: skip
    assert {name: format_of(name) for name in names} == names
    assert format_of("x.talp", "jsonl") == "jsonl"
    with pytest.raises(ValueError, match="format is 'bal'; allowed are pharaoh, pharaoh-p, talp, naacl, a3, jsonl"):
        format_of("x", "bal")


def test_probabilities_of_links(tmp_path: Path) -> None:
    path = written(tmp_path, "0-0:0.25 1p2:1e-3 2-2\n\n", "x.prob")
    (first, blank) = iterate_pairs(path)
    assert first == AlignedPair(Gold(frozenset({(0, 0), (2, 2)}), frozenset({(1, 2)})), {(0, 0): 0.25, (1, 2): 0.001})
    assert blank == AlignedPair(Gold(frozenset(), frozenset()))
    assert read_links(path) == [{(0, 0), (1, 2), (2, 2)}, frozenset()]
    with pytest.raises(InputError, match=r"x\.align:2: '1\.5' is no probability; write a number from 0 to 1"):
        list(iterate_pairs(written(tmp_path, "0-0\n0-0:1.5\n")))


NAACL = """0001 1 1
1 2 0
1 0 3 S
3 2 1 P 0.5
3 1 2 0.25
3 1 1 S 1

"""


def test_naacl_links_nulls_and_sentences_without_lines(tmp_path: Path) -> None:
    path = written(tmp_path, NAACL, "test.wa")
    one, two, three = iterate_pairs(path)
    assert one == AlignedPair(Gold(frozenset({(0, 0)}), frozenset()), {}, frozenset({1}), frozenset({2}))
    assert two == AlignedPair(Gold(frozenset(), frozenset()))
    assert three.gold == Gold(frozenset({(0, 0), (0, 1)}), frozenset({(1, 0)}))
    assert three.probabilities == {(1, 0): 0.5, (0, 1): 0.25, (0, 0): 1}
    assert (one.line, three.line) == (1, 4)
    read = read_link_file(path, source_lengths=[2] * 5, target_lengths=[3] * 5)
    assert (len(read.sentences), read.base, read.certain) == (5, 1, True)
    with pytest.raises(InputError, match=r"test\.wa:4: source index 1 .* has 1 words"):
        read_link_file(path, source_lengths=[1, 1, 1])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2", "is not `sentence source target"),
        ("1 1 x", "is not `sentence source target"),
        ("1 1 1 S 0.5 9", "is not `sentence source target"),
        ("1 1 1 0.5 S", "is not `sentence source target"),
        ("1 1 1 Q", "'Q' is no probability"),
        ("0 1 1", "sentences of this format count from 1"),
        ("1 1 1", "sentence 1 after sentence 2; sort the file"),
    ],
)
def test_bad_naacl_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"x\.naacl:2: .*{message}"):
        list(iterate_pairs(written(tmp_path, f"2 1 1 S\n{line}\n", "x.naacl")))


A3 = """# Sentence pair (1) source length 3 target length 4 alignment score : 0.01
les chats dorment ici
NULL ({ 4 }) the ({ 1 }) cats ({ 2 3 }) ({ ({ })
# Sentence pair (2) source length 0 target length 1 alignment score : 1
x
NULL ({ 1 })
"""


def test_giza_a3_words_links_and_nulls(tmp_path: Path) -> None:
    one, two = iterate_pairs(written(tmp_path, A3, "de-en.A3.final"))
    links = frozenset({(0, 0), (1, 1), (1, 2)})
    assert one == AlignedPair(
        Gold(links, links),
        null_targets=frozenset({3}),
        source=("the", "cats", "({"),
        target=("les", "chats", "dorment", "ici"),
    )
    assert (two.null_targets, two.source, two.gold.possible, two.line) == ({0}, (), frozenset(), 4)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("(2) source", "(3) source", 4, "sentence pair 3 where 2 should be; merge"),
        ("(1) source", "(7) source", 1, "sentence pair 7 where 1 should be"),
        ("# Sentence pair (2)", "Sentence 2", 4, "is no A3 header"),
        ("target length 4", "target length 5", 2, "4 words, but the header says 5"),
        ("source length 3", "source length 2", 3, "3 words after NULL, but the header says 2"),
        ("({ 2 3 })", "({ 2 5 })", 3, "place 5, but the line before has 4 words"),
        ("({ 2 3 })", "({ 2 0 })", 3, "place 0, but"),
        ("({ 2 3 })", "{ 2 3 }", 3, "is not `NULL"),
        ("NULL ({ 1 })\n", "", 4, "the file ends within this sentence pair"),
    ],
)
def test_bad_a3_files_are_named_by_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert old in A3
    with pytest.raises(InputError, match=rf"x\.a3:{line}: .*{message}"):
        list(iterate_pairs(written(tmp_path, A3.replace(old, new), "x.a3")))


def test_json_lines_hold_everything(tmp_path: Path) -> None:
    line = (
        '{"links": [[0, 0, 0.93], [1, 2]], "possible": [[1, 1]], "null_source": [2], "null_target": [3], '
        '"source": ["a", "b", "ζ"], "target": ["x", "y", "z", "喜"]}'
    )
    path = written(tmp_path, line + '\n{"links": []}\n', "x.jsonl")
    full, empty = iterate_pairs(path)
    assert full.gold == Gold(frozenset({(0, 0), (1, 2)}), frozenset({(1, 1)}))
    assert (full.probabilities, full.null_sources, full.null_targets) == ({(0, 0): 0.93}, {2}, {3})
    assert (full.source, full.target) == (("a", "b", "ζ"), ("x", "y", "z", "喜"))
    assert empty == AlignedPair(Gold(frozenset(), frozenset()))
    out = tmp_path / "out.jsonl"
    assert write_pairs(out, [full, empty]) == (2, {})
    assert out.read_text(encoding="utf-8") == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "Expecting value"),
        ("[]", "no object with the field links"),
        ('{"possible": []}', "no object with the field links"),
        ('{"links": [[0]]}', "links holds"),
        ('{"links": [[0, -1]]}', "the index -1"),
        ('{"links": [[0, true]]}', "the index True"),
        ('{"links": [[0, 1, 1.5]]}', "the probability 1.5"),
        ('{"links": 3}', "links is 3, not a list"),
        ('{"links": [], "null_source": [0.5]}', "null_source holds the index 0.5"),
        ('{"links": [], "source": [1]}', "source must be a list of words"),
    ],
)
def test_bad_json_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"x\.jsonl:2: .*{message}.*; write e\.g\."):
        list(iterate_pairs(written(tmp_path, '{"links": []}\n' + line + "\n", "x.jsonl")))


INDICES = st.frozensets(st.integers(0, 12), max_size=3)


@st.composite
def aligned_pairs(draw: st.DrawFn) -> AlignedPair:
    gold = draw(GOLD)
    chosen = draw(st.frozensets(st.sampled_from(sorted(gold.possible)))) if gold.possible else frozenset()
    words = st.none() | st.lists(st.sampled_from(["a", "ζ", "喜", "({"]), max_size=4).map(tuple)
    return AlignedPair(
        gold, {link: draw(st.floats(0, 1)) for link in chosen}, draw(INDICES), draw(INDICES), draw(words), draw(words)
    )


def kept(pair: AlignedPair, keeps: frozenset[str]) -> AlignedPair:
    """Return what a format leaves of a pair."""
    nulls = (pair.null_sources, pair.null_targets) if "nulls" in keeps else (frozenset(), frozenset())
    words = (pair.source, pair.target) if "words" in keeps else (None, None)
    return AlignedPair(pair.gold, pair.probabilities if "probabilities" in keeps else {}, *nulls, *words)


@pytest.mark.parametrize("name", [name for name, each in FORMATS.items() if each.write])
@given(pairs=st.lists(aligned_pairs(), max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_every_format_gives_back_what_it_says_it_keeps(tmp_path: Path, name: str, pairs: list[AlignedPair]) -> None:
    path, keeps = tmp_path / "x", FORMATS[name].keeps
    count, lost = write_pairs(path, pairs, format_name=name)
    assert count == len(pairs)
    expected = [kept(pair, keeps) for pair in pairs]
    if "blank lines at the end" not in keeps:
        while expected and expected[-1] == AlignedPair(Gold(frozenset(), frozenset())):
            expected.pop()
    assert list(iterate_pairs(path, format_name=name, base=FORMATS[name].base or int(name == "talp"))) == expected
    assert lost["blank lines at the end"] == len(pairs) - len(expected)
    assert lost["probabilities"] == (0 if "probabilities" in keeps else sum(len(p.probabilities) for p in pairs))
    assert lost["nulls"] == (0 if "nulls" in keeps else sum(len(p.null_sources) + len(p.null_targets) for p in pairs))
    assert lost["words"] == (0 if "words" in keeps else sum(len(p.source or ()) + len(p.target or ()) for p in pairs))


def test_reading_and_writing_hold_one_pair_at_a_time(tmp_path: Path) -> None:
    path = written(tmp_path, "0-0\nbroken\n")
    pairs = iterate_pairs(path, base=0)
    assert next(pairs).gold.sure == {(0, 0)}
    with pytest.raises(InputError, match=r"x\.align:2"):
        next(pairs)
    endless = map(AlignedPair, itertools.repeat(Gold(frozenset({(0, 1)}), frozenset())))
    assert write_pairs(tmp_path / "y.jsonl", itertools.islice(endless, 3)) == (3, {})


def test_compressed_files(tmp_path: Path) -> None:
    path = tmp_path / "x.align.gz"
    write_links(path, [{(0, 1)}, frozenset()])
    assert gzip.decompress(path.read_bytes()) == b"0-1\n\n"
    assert read_links(path) == [{(0, 1)}, frozenset()]
    first = path.read_bytes()
    write_links(path, [{(0, 1)}, frozenset()])
    assert path.read_bytes() == first


def test_a3_is_only_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.a3: a3 can be read but not written; allowed are pharaoh, .*jsonl"):
        write_pairs(tmp_path / "x.a3", [])
    with pytest.raises(InputError, match="an A3 file counts from 1"):
        iterate_pairs(written(tmp_path, A3, "x.a3"), base=0)
