import gzip
import logging
import zlib
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from hf_seq2seq_attn.probing import Gold
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.data import ParallelCorpus, encode_corpus, project_links, read_corpus
from hf_seq2seq_attn.training.data_recipe import CorpusFiles


@pytest.fixture
def files(tmp_path: Path) -> CorpusFiles:
    (tmp_path / "s").write_text("ab cd\n\nef gh ij\n", encoding="utf-8")
    (tmp_path / "t").write_text("CD AB\nKL\nIJ\n", encoding="utf-8")
    (tmp_path / "l").write_text("0-1 1p0\n\n2-0\n", encoding="utf-8")
    return CorpusFiles(str(tmp_path / "s"), str(tmp_path / "t"), str(tmp_path / "l"))


def test_a_word_stands_for_all_its_sub_words() -> None:
    # Source: word 0 = positions 0, 1; word 1 = 2; end token. Target: word 0 = 0; word 1 = 1, 2, 3; end token.
    links = project_links([(0, 1), (1, 0)], [0, 0, 1, None], [0, 1, 1, 1, None])
    assert links == [[0, 2], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0], [3, 1]]


def test_corpus_keeps_line_numbers_and_kinds_of_links(files: CorpusFiles) -> None:
    corpus = read_corpus(files)
    assert corpus.sources == [["ab", "cd"], [], ["ef", "gh", "ij"]]
    assert corpus.gold is not None
    assert corpus.gold[0] == Gold(frozenset({(0, 1)}), frozenset({(0, 1), (1, 0)}))
    assert corpus.gold[1].possible == frozenset()


def test_encoding_counts_what_it_leaves_out(
    files: CorpusFiles, toy_tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        data, counts = encode_corpus(read_corpus(files), toy_tokenizer, max_source_length=3)
    assert (counts.pairs, counts.kept, counts.blank, counts.too_long) == (3, 1, 1, 1)
    assert "2 of 3 pairs left out: 1 with a blank side, 1 longer than 3 source" in caplog.text
    row = data[0]
    assert row["labels"][-1] == toy_tokenizer.eos_token_id
    assert row["length"] == len(row["input_ids"]) + len(row["labels"]) == counts.source_tokens + counts.target_tokens
    # Each toy word is one token here, so the guide is the links turned round, possible ones too.
    assert row["guide"] == [[0, 1], [1, 0]]


def test_words_follow_the_given_split(toy_tokenizer: PreTrainedTokenizerFast) -> None:
    corpus = ParallelCorpus([["ab", "b'a"]], [["AB"]], [Gold(frozenset({(1, 0)}), frozenset({(1, 0)}))])
    data, _ = encode_corpus(corpus, toy_tokenizer)
    word_ids = toy_tokenizer(["ab", "b'a"], is_split_into_words=True).word_ids()
    assert {s for _, s in data[0]["guide"]} == {p for p, word in enumerate(word_ids) if word == 1}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("l", "0-1\n\n3-0\n", "l:3: "),
        ("l", "0-1\n0-0\n2-0\n", "l:2: "),
        ("l", "0-1\n\n", "l:"),
        ("l", "0:1\n\n\n", "l:1: "),
        ("t", "CD AB\nKL\n", "t:3: 2 lines, but .* has 3"),
        ("s", "\n\n\n", "s:1: no sentence pair with words on both sides"),
    ],
)
def test_bad_files_are_refused_at_their_line(files: CorpusFiles, name: str, text: str, message: str) -> None:
    Path(files.source).with_name(name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_corpus(files)


def test_a_damaged_gz_file_is_refused(files: CorpusFiles, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress("".join(f"word {n}\n" for n in range(500)).encode()))
    for place in range(15, len(packed) - 8):
        packed[place] ^= 0x55
    (tmp_path / "s.gz").write_bytes(packed)
    with pytest.raises(zlib.error):
        gzip.decompress(packed)
    with pytest.raises(InputError, match=r"s\.gz:\d+: cannot be read"):
        read_corpus(CorpusFiles(str(tmp_path / "s.gz"), files.target))


def test_nothing_left_is_an_error(files: CorpusFiles, toy_tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match=r"none of 3 pairs is left .1 blank, 2 too long"):
        encode_corpus(read_corpus(files), toy_tokenizer, max_target_length=1)
