"""Text cut anew in each epoch: against the library's own dropout, and through runs."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast

from hf_seq2seq_attn.probing import Gold
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.tokenizer_pair import TokenizerPair
from hf_seq2seq_attn.training.bpe_dropout import BpeDropout, RecutRows
from hf_seq2seq_attn.training.collation import GUIDE
from hf_seq2seq_attn.training.data import ParallelCorpus, encode_corpus, project_links
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.tokenization import train_tokenizer
from hf_seq2seq_attn.training.word_pieces import encode_words

TEXTS = [
    "der Hund rennt über die Wiese.",
    "ein kleiner Hund, der über eine nasse Wiese rennt!",
    "die Hunde rennen </s> und rennen",
    "不喜欢 猫 ▁ aaaa a▁b",
]
LIMITS = (60, 60)


@pytest.fixture(scope="module", params=[False, True])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return train_tokenizer(TEXTS * 2, 90, split_punctuation=request.param)


def ids_of(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return tokenizer(text)["input_ids"]


@pytest.mark.parametrize("text", [*TEXTS, "Hundewiese, ungesehen", "der Qund der", ""])
def test_without_dropout_the_pieces_are_the_tokenizer_s(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = ids_of(tokenizer, text)
    assert BpeDropout(tokenizer, 0.0).cut(ids, Random(0)) == ids


@pytest.mark.parametrize("text", TEXTS)
def test_with_all_dropped_the_pieces_are_characters(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    *pieces, end = BpeDropout(tokenizer, 1.0).cut(ids_of(tokenizer, text), Random(0))
    assert tokenizer.convert_ids_to_tokens(pieces) == list("▁" + text.replace(" ", "▁"))
    assert end == tokenizer.eos_token_id


def test_the_text_stays_and_so_do_its_words(tokenizer: PreTrainedTokenizerFast) -> None:
    random, dropout = Random(1), BpeDropout(tokenizer, 0.4)
    seen = set()
    for text in TEXTS[:3] * 20:
        ids = ids_of(tokenizer, text)
        cut = dropout.cut(ids, random)
        assert tokenizer.decode(cut) == tokenizer.decode(ids)
        words = tokenizer.convert_tokens_to_string(tokenizer.convert_ids_to_tokens(cut[:-1])).split()
        assert [word for word in dict.fromkeys(dropout.word_ids(cut)) if word is not None] == list(range(len(words)))
        assert dropout.word_ids(ids) == tokenizer(text).word_ids()
        seen.add(tuple(cut))
    assert len(seen) > 50


def test_a_word_with_an_unknown_sign_stays_as_it_is(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = ids_of(tokenizer, "Hund Q龘nd Hund")
    assert tokenizer.unk_token_id in ids
    whole = BpeDropout(tokenizer, 1.0)
    middle = [piece for piece, word in zip(ids, whole.word_ids(ids), strict=True) if word == 1]
    hund = tokenizer.convert_tokens_to_ids(list("▁Hund"))
    assert whole.cut(ids, Random(0)) == [*hund, *middle, *hund, tokenizer.eos_token_id]


def test_pieces_are_as_frequent_as_by_the_library_s_dropout(tokenizer: PreTrainedTokenizerFast) -> None:
    """The library draws by itself, so the two are compared by how often each cut of a word comes out."""
    word, draws = "rennen", 4000
    ours, random = BpeDropout(tokenizer, 0.3), Random(2)
    ids = ids_of(tokenizer, word)
    found = [tuple(ours.cut(ids, random)) for _ in range(draws)]
    library = train_tokenizer(TEXTS * 2, 90).backend_tokenizer
    assert library.encode(word).ids == ids
    library.model.dropout = 0.3
    wanted = [tuple(library.encode(word).ids) for _ in range(draws)]
    assert len(set(wanted)) > 3
    for cut in set(found) | set(wanted):
        # Four standard deviations of the difference of two shares of 4,000.
        assert abs(found.count(cut) - wanted.count(cut)) / draws < 4 * (2 * 0.25 / draws) ** 0.5


@pytest.fixture(scope="module")
def linked(tokenizer: PreTrainedTokenizerFast) -> tuple[ParallelCorpus, Dataset]:
    sources = [text.split() for text in TEXTS[:3]]
    targets = [list(reversed(words)) for words in sources]
    links = [frozenset((i, len(words) - 1 - i) for i in range(1, len(words))) for words in sources]
    corpus = ParallelCorpus(sources, targets, [Gold(sentence, sentence) for sentence in links])
    return corpus, encode_corpus(corpus, tokenizer)[0]


def test_links_follow_their_words(tokenizer: PreTrainedTokenizerFast, linked: tuple[ParallelCorpus, Dataset]) -> None:
    corpus, encoded = linked
    rows = RecutRows(encoded, tokenizer, 0.5, LIMITS, seed=3)
    plain = BpeDropout(tokenizer, 0.0)
    for index, row in enumerate(rows[index] for index in range(len(rows))):
        assert row["input_ids"] != encoded[index]["input_ids"]
        assert corpus.gold is not None
        words = plain.word_ids(row["input_ids"]), plain.word_ids(row["labels"])
        assert row[GUIDE] == project_links(corpus.gold[index].possible, *words)
        assert row["length"] == len(row["input_ids"]) + len(row["labels"])
        assert row["attention_mask"] == [1] * len(row["input_ids"])


def test_a_row_depends_on_seed_epoch_and_number_alone(
    tokenizer: PreTrainedTokenizerFast, linked: tuple[ParallelCorpus, Dataset]
) -> None:
    def make(seed: int = 3) -> RecutRows:
        return RecutRows(linked[1], tokenizer, 0.5, LIMITS, seed)

    rows = make()
    first = rows.__getitems__([0, 1, 2])
    assert [rows[2], rows[1], rows[0]] == first[::-1]
    rows.set_epoch(1)
    second = rows.__getitems__([0, 1, 2])
    assert all(ours != theirs for ours, theirs in zip(first, second, strict=True))
    assert make().__getitems__([0, 1, 2]) == first != make(seed=4).__getitems__([0, 1, 2])


def test_a_row_that_would_break_the_limits_stays(
    tokenizer: PreTrainedTokenizerFast, linked: tuple[ParallelCorpus, Dataset]
) -> None:
    row = linked[1][1]
    limits = len(row["input_ids"]), 60
    assert RecutRows(linked[1], tokenizer, 1.0, limits, seed=3)[1] == row
    assert RecutRows(linked[1], tokenizer, 1.0, LIMITS, seed=3)[1] != row


def test_each_side_has_its_own_tokenizer() -> None:
    sources, targets = [text.split() for text in TEXTS[:2]], [["ΑΒ", "ΓΔ,"], ["ΓΔ", "ΑΒ"]]
    pair = TokenizerPair(*(train_tokenizer((" ".join(words) for words in side), 60) for side in (sources, targets)))
    encoded, _ = encode_corpus(ParallelCorpus(sources, targets), pair)
    row = RecutRows(encoded, pair, 1.0, LIMITS, seed=3)[0]
    assert pair.source.convert_ids_to_tokens(row["input_ids"][:-1]) == list("▁der▁Hund▁rennt▁über▁die▁Wiese.")
    assert pair.target.convert_ids_to_tokens(row["labels"][:-1]) == list("▁ΑΒ▁ΓΔ,")
    assert encode_words(pair.target, [targets[0]], target=True)[0][0] != row["labels"]


Run = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("batches", ["batching=null", "batching={tokens: 90}"])
def test_a_run_reads_other_pieces_in_each_epoch(train_toy: Run, batches: str) -> None:
    plain = train_toy(batches, "training.max_steps=12")
    cut = train_toy(batches, "training.max_steps=12", "tokenizer.dropout=0.5")
    assert plain["data"]["train"] == cut["data"]["train"] | {"from_cache": plain["data"]["train"]["from_cache"]}
    assert plain["steps"] == cut["steps"] and plain["epochs"] == cut["epochs"]
    assert cut["target_tokens_seen"] > 1.1 * plain["target_tokens_seen"]


def test_worker_processes_hear_of_the_epoch(train_toy: Run) -> None:
    settings = ["tokenizer.dropout=0.5", "training.max_steps=12"]
    workers = ["training.dataloader_num_workers=1", "training.dataloader_persistent_workers=true"]
    here, there = train_toy(*settings), train_toy(*settings, *workers)
    assert all(torch.equal(weight, there["weights"][name]) for name, weight in here["weights"].items())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["tokenizer.dropout=1.5"], "tokenizer.dropout=1.5: a share of merges, from 0 to 1"),
        (["tokenizer.dropout=0.1", "tokenizer.kind=char"], "which only kind=bpe has"),
        (["tokenizer.dropout=0.1", "data.streaming=true"], "needs all pairs in memory"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(
    toy_recipe_file: Callable[..., list[str]], overrides: list[str], message: str
) -> None:
    path, *given = toy_recipe_file(*overrides)
    with pytest.raises(InputError, match=message):
        load_recipe(path, given)
