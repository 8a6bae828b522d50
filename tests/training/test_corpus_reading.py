"""The same pairs out of every kind of corpus, and an error with file and line for every kind of slip."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from hf_seq2seq_attn.probing import Gold
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.corpus_reading import Pair, iterate_corpus
from hf_seq2seq_attn.training.data import read_corpus
from hf_seq2seq_attn.training.data_recipe import Corpus, CorpusDataset, CorpusFiles, CorpusTable

SOURCES = ["der Hund bellt", "", "ja", "« so\u2028weit »"]
TARGETS = ["the dog barks", "nobody", "", "so far"]
LINKS = ["0-0 1-1 2p2", "", "", "1-0 2-1"]
GOLD = [
    Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (2, 2)})),
    Gold(frozenset(), frozenset()),
    Gold(frozenset(), frozenset()),
    Gold(frozenset({(1, 0), (2, 1)}), frozenset({(1, 0), (2, 1)})),
]
PAIRS = [
    Pair(source.split(), target.split(), gold, line)
    for line, (source, target, gold) in enumerate(zip(SOURCES, TARGETS, GOLD, strict=True), start=1)
]
ROWS = [
    {"translation": {"de": source or None, "en": target}, "align": links}
    for source, target, links in zip(SOURCES, TARGETS, LINKS, strict=True)
]
NAMED = {"source_column": "translation.de", "target_column": "translation.en", "links_column": "align"}


def files(folder: Path) -> Corpus:
    (folder / "a.de").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(SOURCES).encode() + b"\r\n")
    (folder / "a.en.gz").write_bytes(gzip.compress("\n".join(TARGETS).encode()))
    (folder / "a.align").write_text("\n".join(LINKS) + "\n")
    return CorpusFiles(str(folder / "a.de"), str(folder / "a.en.gz"), str(folder / "a.align"))


def tsv(folder: Path) -> Corpus:
    columns = zip(SOURCES, TARGETS, LINKS, strict=True)
    rows = ["\t".join(["7", target, source, links, '"']) for source, target, links in columns]
    (folder / "a.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return CorpusTable(str(folder / "a.tsv"), source_column=2, target_column=1, links_column=3)


def tsv_with_header(folder: Path) -> Corpus:
    rows = ["links\tde\ten", *map("\t".join, zip(LINKS, SOURCES, TARGETS, strict=True))]
    (folder / "h.tsv.gz").write_bytes(gzip.compress("\r\n".join(rows).encode()))
    return CorpusTable(str(folder / "h.tsv.gz"), source_column="de", target_column="en", links_column="links")


def json_lines(folder: Path) -> Corpus:
    lines = [json.dumps(row, ensure_ascii=number % 2 == 0) for number, row in enumerate(ROWS)]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return CorpusTable(str(folder / "a.jsonl"), **NAMED)


def parquet(folder: Path) -> Corpus:
    datasets.Dataset.from_list(ROWS).to_parquet(folder / "a.parquet")
    return CorpusTable(str(folder / "a.parquet"), **NAMED)


def saved_dataset(folder: Path) -> Corpus:
    datasets.DatasetDict({"dev": datasets.Dataset.from_list(ROWS)}).save_to_disk(folder / "saved")
    return CorpusDataset(str(folder / "saved"), split="dev", **NAMED)


def folder_of_files(folder: Path) -> Corpus:
    (folder / "data").mkdir()
    datasets.Dataset.from_list(ROWS).to_json(folder / "data" / "train.jsonl")
    return CorpusDataset(str(folder / "data"), **NAMED)


KINDS = (files, tsv, tsv_with_header, json_lines, parquet, saved_dataset, folder_of_files)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_gives_the_same_pairs(kind: Callable[[Path], Corpus], streaming: bool, tmp_path: Path) -> None:
    corpus = kind(tmp_path)
    first_line = 2 if kind is tsv_with_header else 1
    wanted = [Pair(pair.source, pair.target, pair.links, pair.line + first_line - 1) for pair in PAIRS]
    assert list(iterate_corpus(corpus, streaming=streaming, cache_dir=str(tmp_path / "cache"))) == wanted
    if not streaming:
        text = read_corpus(corpus, str(tmp_path / "cache"))
        assert (text.sources, text.targets) == ([p.source for p in PAIRS], [p.target for p in PAIRS])
        assert text.gold == GOLD


def test_without_links_there_are_none(tmp_path: Path) -> None:
    corpus = tsv(tmp_path)
    corpus.links_column = None  # type: ignore[union-attr]
    assert {pair.links for pair in iterate_corpus(corpus)} == {None}
    assert read_corpus(corpus).gold is None


def test_default_columns(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("ab\tAB\n\ncd ef\tCD\textra\n")
    assert [pair.source for pair in iterate_corpus(CorpusTable(str(tmp_path / "a.tsv")))] == [["ab"], [], ["cd", "ef"]]
    (tmp_path / "a.jsonl").write_text('{"source": "ab", "target": "AB"}\n\n{"source": null, "target": "CD"}\n')
    pairs = list(iterate_corpus(CorpusTable(str(tmp_path / "a.jsonl"))))
    assert [(pair.source, pair.target) for pair in pairs] == [(["ab"], ["AB"]), ([], []), ([], ["CD"])]


def test_links_in_a_column_may_count_from_1(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("ab cd\tAB\t2-1\n")
    table = CorpusTable(str(tmp_path / "a.tsv"), links_column=2, links_base=1)
    assert next(iterate_corpus(table)).links == Gold(frozenset({(1, 0)}), frozenset({(1, 0)}))
    table.links_base = None
    with pytest.raises(InputError, match=r"a\.tsv:1: source index 2 .* has 2 words; .* set links_base: 1"):
        list(iterate_corpus(table))


def test_links_of_a_file_may_be_said_to_count_from_1(tmp_path: Path) -> None:
    for name, text in (("s", "a b c\n"), ("t", "A B C\n"), ("l", "1-2\n")):
        (tmp_path / name).write_text(text)
    corpus = CorpusFiles(*(str(tmp_path / name) for name in "stl"))
    assert read_corpus(corpus).gold == [Gold(frozenset({(1, 2)}), frozenset({(1, 2)}))]
    corpus.links_base = 1
    wanted = Gold(frozenset({(0, 1)}), frozenset({(0, 1)}))
    assert read_corpus(corpus).gold == [wanted]
    assert next(iterate_corpus(corpus)).links == wanted


BAD_TABLES = [
    ("a.tsv", {}, b"ab\tAB\nab AB\n", r"a\.tsv:2: 1 column\(s\), but target_column is 1 .*separate columns by tabs"),
    ("a.tsv", {}, b"ab\tAB\ncd\tC\xe4\n", r"a\.tsv:2: not UTF-8 \(byte 0xe4\)"),
    ("a.tsv", {"links_column": 2}, b"ab\tAB\t0-0\ncd\tCD\n", r"a\.tsv:2: 2 column\(s\), but links_column is 2"),
    ("a.tsv", {"links_column": 2}, b"ab\tAB\t0-0\ncd\tCD\t0-1\n", r"a\.tsv:2: target index 1 "),
    ("a.tsv", {"links_column": 2}, b"ab\tAB\t0:0\n", r"a\.tsv:1: '0:0' is no link"),
    ("a.tsv", {"source_column": "de", "target_column": "fr"}, b"de\ten\n", r"a\.tsv:1: no column 'fr' .* de, en"),
    ("a.tsv", {"source_column": "de", "target_column": "en"}, b"de\ten\nab\n", r"a\.tsv:2: 1 column\(s\)"),
    ("a.tsv", {}, b"\n\t\n", r"a\.tsv:1: no sentence pair with words on both sides"),
    ("a.tsv", {}, b"", r"a\.tsv:1: no sentence pair"),
    (
        "a.jsonl",
        {},
        b'{"source": "a", "target": "b"}\n{"source": \n',
        r"a\.jsonl:2: not JSON .*one JSON object on each",
    ),
    ("a.jsonl", {}, b'["a", "b"]\n', r"a\.jsonl:1: not a JSON object"),
    (
        "a.jsonl",
        {},
        b'{"source": "a", "traget": {"x": 1}}\n',
        r"1: no field 'target'; there are source, traget\.x; set",
    ),
    ("a.jsonl", {}, b'{"source": 3, "target": "b"}\n', r"a\.jsonl:1: field 'source' is 3, not text"),
    ("a.jsonl", {}, b'{"source": "\\ud83d", "target": "b"}\n', r"a\.jsonl:1: half a character"),
    ("a.jsonl", {"source_column": "source.de"}, b'{"source": "a", "target": "b"}\n', r"1: no field 'source\.de'"),
    ("a.parquet", {}, b"PAR1 not really", r"a\.parquet: cannot be loaded .*check the file"),
]


@pytest.mark.parametrize(("name", "columns", "content", "message"), BAD_TABLES)
def test_a_bad_table_is_refused_at_its_line(
    name: str, columns: dict[str, str], content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_corpus(CorpusTable(str(tmp_path / name), **columns))


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl.gz", "a.parquet"])
def test_a_missing_table_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file; check the path"):
        read_corpus(CorpusTable(str(tmp_path / name)))


def test_a_parquet_file_without_the_column_is_refused(tmp_path: Path) -> None:
    corpus = parquet(tmp_path)
    corpus.target_column = "target"  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"a\.parquet:1: no column 'target'; there are translation, align; set"):
        read_corpus(corpus)
    corpus.target_column = "translation.fr"  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"1: no field 'translation\.fr'; there are translation\.de, translation\.en"):
        read_corpus(corpus)


def test_a_dataset_that_is_not_there_is_refused(tmp_path: Path) -> None:
    saved = saved_dataset(tmp_path)
    saved.split = "train"  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"saved:train: cannot be loaded \(no split 'train'; there are dev\)"):
        read_corpus(saved)
    folder = folder_of_files(tmp_path)
    folder.split = "test"  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"data:test: cannot be loaded \(Unknown split"):
        read_corpus(folder, str(tmp_path / "cache"))
    with pytest.raises(InputError, match=r"nobody/nothing:train: cannot be loaded .* check id, config, split"):
        read_corpus(CorpusDataset("nobody/nothing"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t", "AB\n", r"t:2: 1 lines, but .*s has more"),
        ("t", "AB\nCD\nEF\n", r"s:3: 2 lines, but .*t has more"),
        ("l", "0-0\n", r"l:2: 1 lines of links, but there are more sentences"),
        ("l", "0-0\n0-0\n0-0\n", r"l: more lines than .*s"),
        ("l", "0-0\n1-0\n", r"l:2: source index 1 .* has 1 words"),
    ],
)
def test_files_read_line_by_line_are_checked_as_when_read_whole(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    for one, content in {"s": "ab\ncd\n", "t": "AB\nCD\n", "l": "0-0\n0-0\n", name: text}.items():
        (tmp_path / one).write_text(content)
    corpus = CorpusFiles(*(str(tmp_path / one) for one in "stl"))
    with pytest.raises(InputError, match=message):
        list(iterate_corpus(corpus))
    with pytest.raises(InputError):
        read_corpus(corpus)
