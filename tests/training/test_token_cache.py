"""Tokenised corpora on disk: read back equal, known by all that decides them, mended when damaged."""

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from multilingual import marian_tokenizer
from transformers import PreTrainedTokenizerFast

from hf_seq2seq_attn.probing import Gold
from hf_seq2seq_attn.tokenizer_pair import TokenizerPair
from hf_seq2seq_attn.training import token_cache
from hf_seq2seq_attn.training.data import ParallelCorpus, encode_corpus
from hf_seq2seq_attn.training.token_cache import cache_folder, cache_key, encode_cached
from hf_seq2seq_attn.training.tokenization import train_tokenizer

LINK = Gold(frozenset({(0, 1)}), frozenset({(0, 1), (1, 0)}))
CORPUS = ParallelCorpus(
    [["ab", "cd"], [], ["ef"] * 9], [["CD", "AB"], ["KL"], ["IJ"]], [LINK, *[Gold(*2 * [frozenset()])] * 2]
)
LIMITS = (8, 8)


def test_what_is_read_back_is_what_was_made(
    toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, plain_counts = encode_corpus(CORPUS, toy_tokenizer, *LIMITS)
    made, counts, reused = encode_cached(CORPUS, toy_tokenizer, *LIMITS, tmp_path)
    assert not reused
    # With no way to make it: from the disk or not at all.
    monkeypatch.setattr(token_cache, "encode_corpus", None)
    read, counts_read, reused = encode_cached(CORPUS, toy_tokenizer, *LIMITS, tmp_path)
    assert reused
    assert plain[:] == made[:] == read[:]
    assert plain.features == made.features == read.features
    assert plain_counts == counts == counts_read
    assert (counts.pairs, counts.kept, counts.blank, counts.too_long) == (3, 1, 1, 1)
    assert [path.name for path in tmp_path.iterdir()] == [cache_key(CORPUS, toy_tokenizer, *LIMITS)]


def test_the_key_knows_all_that_decides_the_rows(toy_tokenizer: PreTrainedTokenizerFast) -> None:
    other = train_tokenizer(["ab cd", "AB"], vocab_size=50)
    moved = replace(CORPUS, gold=[CORPUS.gold[1], CORPUS.gold[0], CORPUS.gold[2]])  # type: ignore[index]
    variants = [
        (CORPUS, toy_tokenizer, 8, 8),
        (CORPUS, toy_tokenizer, 8, 9),
        (CORPUS, toy_tokenizer, 9, 8),
        (CORPUS, other, 8, 8),
        (CORPUS, TokenizerPair(toy_tokenizer, other), 8, 8),
        (CORPUS, TokenizerPair(other, toy_tokenizer), 8, 8),
        (replace(CORPUS, gold=None), toy_tokenizer, 8, 8),
        (moved, toy_tokenizer, 8, 8),
        (replace(CORPUS, sources=[["ab cd"], [], ["ef"] * 9][::-1]), toy_tokenizer, 8, 8),
        (replace(CORPUS, sources=CORPUS.targets, targets=CORPUS.sources), toy_tokenizer, 8, 8),
        (replace(CORPUS, targets=[["CD"], ["AB", "KL"], ["IJ"]]), toy_tokenizer, 8, 8),
    ]
    keys = [cache_key(*variant) for variant in variants]
    assert len(set(keys)) == len(variants)
    again = ParallelCorpus([list(words) for words in CORPUS.sources], CORPUS.targets, CORPUS.gold)
    assert cache_key(again, toy_tokenizer, 8, 8) == keys[0]


def test_the_key_knows_what_was_added_to_a_tokenizer_in_python(tmp_path: Path) -> None:
    tokenizer = marian_tokenizer(tmp_path)
    assert not tokenizer.is_fast
    key = cache_key(CORPUS, tokenizer, *LIMITS)
    tokenizer.add_tokens(["ab"])
    assert cache_key(CORPUS, tokenizer, *LIMITS) != key


@pytest.mark.parametrize("damage", ["flip", "cut", "record", "gone", "half"])
def test_a_damaged_entry_is_made_again(
    damage: str, toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain, counts = encode_corpus(CORPUS, toy_tokenizer, *LIMITS)
    encode_cached(CORPUS, toy_tokenizer, *LIMITS, tmp_path)
    (entry,) = tmp_path.iterdir()
    (arrow,) = (entry / "data").glob("*.arrow")
    if damage == "flip":
        content = bytearray(arrow.read_bytes())
        content[len(content) // 2] ^= 1
        arrow.write_bytes(content)
    elif damage == "cut":
        arrow.write_bytes(arrow.read_bytes()[:-7])
    elif damage == "record":
        (entry / "entry.json").write_text('{"counts": ')
    elif damage == "gone":
        arrow.unlink()
    else:
        (entry / "entry.json").unlink()
    with caplog.at_level(logging.WARNING):
        made, made_counts, reused = encode_cached(CORPUS, toy_tokenizer, *LIMITS, tmp_path)
    assert not reused
    assert "is damaged" in caplog.text
    assert (made[:], made_counts) == (plain[:], counts)
    assert encode_cached(CORPUS, toy_tokenizer, *LIMITS, tmp_path)[2]
    assert list(tmp_path.iterdir()) == [entry]


def test_where_nothing_can_be_written_nothing_is_kept(
    toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        made, _, reused = encode_cached(CORPUS, toy_tokenizer, *LIMITS, tmp_path / "file")
    assert not reused
    assert len(made) == 1
    assert "cannot be kept" in caplog.text


def test_the_folder_follows_the_recipe(tmp_path: Path) -> None:
    assert cache_folder(str(tmp_path)).parent == tmp_path
    assert str(cache_folder(None)).startswith(os.environ["HF_DATASETS_CACHE"])


def test_several_may_make_the_same_entry_at_once(toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    corpus = ParallelCorpus([["ab", "cd"]] * 50, [["AB"]] * 50)
    start = threading.Barrier(3)

    def make(limit: int) -> tuple[int, int]:
        start.wait()
        dataset, counts, _ = encode_cached(corpus, toy_tokenizer, 20, limit, tmp_path)
        return len(dataset[:]["labels"]), counts.kept

    with ThreadPoolExecutor(3) as pool:
        for limit in range(20, 40):
            assert list(pool.map(make, [limit] * 3)) == [(50, 50)] * 3
    entries = list(tmp_path.iterdir())
    assert len(entries) == 20
    assert all({path.name for path in entry.iterdir()} == {"data", "entry.json"} for entry in entries)


def test_one_that_is_overtaken_takes_what_the_faster_one_made(
    toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def overtaken(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "rename", rename)
        encode_cached(CORPUS, toy_tokenizer, *LIMITS, tmp_path)
        rename(source, target)

    monkeypatch.setattr(os, "rename", overtaken)
    assert len(encode_cached(CORPUS, toy_tokenizer, *LIMITS, tmp_path)[0]) == 1
    assert len(list(tmp_path.iterdir())) == 1
