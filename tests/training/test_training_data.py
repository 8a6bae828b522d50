"""From recipe to weights: the same corpus in every form, several corpora, cleaning, the cache, streams."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from transformers import PreTrainedTokenizerFast, Seq2SeqTrainingArguments

from hf_seq2seq_attn.probing import Gold
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.data_recipe import CleaningRecipe, CorpusTable, DataRecipe
from hf_seq2seq_attn.training.recipe import Recipe, load_recipe, save_recipe
from hf_seq2seq_attn.training.train import TrainResult, train
from hf_seq2seq_attn.training.training_data import LoadedTraining, StreamedTraining, open_training_data

TINY = """\
data: {train: {file: nowhere.tsv}, cache_dir: CACHE}
tokenizer: {vocab_size: 100}
model: {encoder_type: gru, decoder_type: gru, cross_attention_type: additive, encoder_layers: 1, decoder_layers: 1,
  d_model: 8, dropout: 0.1, cross_attention_heads: 2}
training: {max_steps: 2, per_device_train_batch_size: 4, learning_rate: 1e-2, seed: 7}
alignment: {weight: 3, rows: input}
"""


@pytest.fixture
def rows(reversed_pairs: Callable[..., list[tuple[list[str], list[str]]]]) -> list[dict[str, Any]]:
    """Thirteen linked pairs, a blank one among them."""
    rows = [
        {
            "translation": {"la": " ".join(source), "LA": " ".join(target)},
            "links": " ".join(f"{i}-{len(source) - 1 - i}" for i in range(len(source))),
        }
        for source, target in reversed_pairs(13, seed=3)
    ]
    rows[5] = {"translation": {"la": "", "LA": "AB"}, "links": ""}
    return rows


def columns(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(row["translation"]["la"], row["translation"]["LA"], row["links"]) for row in rows]


@pytest.fixture
def corpora(rows: list[dict[str, Any]], tmp_path: Path) -> dict[str, str]:
    """The same corpus in every form: name -> `data.train` in YAML."""
    for number, name in enumerate(("source", "target", "align")):
        (tmp_path / f"c.{name}").write_text("".join(row[number] + "\n" for row in columns(rows)))
    (tmp_path / "c.tsv").write_text("".join("\t".join(row) + "\n" for row in columns(rows)))
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "c.parquet")
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
    named = "source_column: translation.la, target_column: translation.LA, links_column: links"
    return {
        "files": f"{{source: {tmp_path}/c.source, target: {tmp_path}/c.target, links: {tmp_path}/c.align}}",
        "tsv": f"{{file: {tmp_path}/c.tsv, source_column: 0, target_column: 1, links_column: 2}}",
        "jsonl": f"{{file: {tmp_path}/c.jsonl, {named}}}",
        "parquet": f"{{file: {tmp_path}/c.parquet, {named}}}",
        "dataset": f"{{dataset: {tmp_path}/saved, {named}}}",
        "list": f"[{{file: {tmp_path}/c.tsv, links_column: 2}}]",
    }


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Recipe]:
    (tmp_path / "tiny.yaml").write_text(TINY.replace("CACHE", str(tmp_path / "cache")))
    return lambda *overrides: load_recipe(tmp_path / "tiny.yaml", overrides)


def weights(result: TrainResult) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in result.model.state_dict().items()}


@pytest.mark.parametrize("streaming", [False, True])
def test_the_same_corpus_in_every_form_gives_the_same_weights(
    streaming: bool, corpora: dict[str, str], make: Callable[..., Recipe], tmp_path: Path
) -> None:
    results = {}
    for name, corpus in corpora.items():
        recipe = make(f"data.train={corpus}", f"data.streaming={json.dumps(streaming)}")
        results[name] = train(recipe, tmp_path / name, progress=False)
        counts = results[name].metrics["data"]["train"]
        assert (counts["pairs"], counts["kept"], counts["blank"]) == (13, 12, 1)
        if not streaming:
            # It is known by its words, so that all but the first found it made.
            assert counts["from_cache"] is (name != "files")
        save_recipe(recipe, tmp_path / "again.yaml")
        assert load_recipe(tmp_path / "again.yaml") == recipe
    first = weights(results["files"])
    assert results["files"].metrics["steps"] == 2
    for result in results.values():
        for name, weight in weights(result).items():
            assert torch.equal(weight, first[name]), name
    untrained = train(
        make(f"data.train={corpora['tsv']}", "training.max_steps=0"), tmp_path / "untrained", progress=False
    )
    assert any(not torch.equal(weight, first[name]) for name, weight in weights(untrained).items())


def test_a_whole_run_on_a_stream(corpora: dict[str, str], make: Callable[..., Recipe], tmp_path: Path) -> None:
    overrides = [f"data.train={corpora['tsv']}", f"data.dev={corpora['jsonl']}", "data.streaming=true"]
    overrides += ["training.max_steps=25", "training.learning_rate=2e-2", "model.d_model=32", "model.init_std=0.3"]
    result = train(make(*overrides), tmp_path / "run", progress=False)
    untrained = train(make(*overrides[:2], "training.max_steps=0"), tmp_path / "untrained", progress=False)
    assert result.metrics["dev"]["loss"] < untrained.metrics["dev"]["loss"] - 0.5
    assert result.metrics["dev"]["aer"] < 0.5
    assert result.metrics["epochs"] == pytest.approx(25 * 4 / 12, abs=1e-3)
    counts = json.loads((tmp_path / "run" / "metrics.json").read_text())["data"]["train"]
    assert (counts["streamed"], counts["pairs"], counts["kept"], counts["sample"]["too_long"]) == (True, 13, 12, 0)
    card = (tmp_path / "run" / "README.md").read_text()
    assert "trained on 12 sentence pairs in 25 steps" in card


def test_cleaning_is_for_train_only_and_counted(
    corpora: dict[str, str], rows: list[dict[str, Any]], make: Callable[..., Recipe], tmp_path: Path
) -> None:
    dirty = [*columns(rows), columns(rows)[2], ("ab cd", "ab cd", "1-1"), ("ab", "A B C D E F", "")]
    (tmp_path / "dirty.tsv").write_text("".join("\t".join(row) + "\n" for row in dirty))
    corpus = f"{{file: {tmp_path}/dirty.tsv, links_column: 2}}"
    rules = "data.cleaning={drop_copies: true, drop_duplicates: true, max_ratio: 4, max_words: 7}"
    clean = train(make(f"data.train={corpora['tsv']}"), tmp_path / "clean", progress=False)
    cleaned = train(make(f"data.train={corpus}", f"data.dev={corpus}", rules), tmp_path / "run", progress=False)
    streamed = train(make(f"data.train={corpus}", "data.streaming=true", rules), tmp_path / "stream", progress=False)
    for result in (cleaned, streamed):
        counts = result.metrics["data"]["train"]
        wanted = {"pairs": 16, "kept": 12, "blank": 1, "copies": 1, "duplicates": 1, "over_max_ratio": 1}
        assert {name: counts[name] for name in wanted} == wanted
        assert counts["over_max_words"] == 0
    assert cleaned.metrics["data"]["dev"]["kept"] == 15
    assert cleaned.metrics["dev"]["pairs"] == 16
    # What is left is the clean corpus with its links, so the weights are those of training on it.
    for name, weight in weights(cleaned).items():
        assert torch.equal(weight, weights(clean)[name]), name
    with pytest.raises(InputError, match=r"dirty\.tsv:1: none of 16 pairs is left \(1 with a blank side, 15 with more"):
        train(
            make(f"data.train={corpus}", "data.cleaning.max_words=1", "alignment=null"), tmp_path / "no", progress=False
        )


def test_bad_training_text_is_found_before_training(
    corpora: dict[str, str], make: Callable[..., Recipe], tmp_path: Path
) -> None:
    with (tmp_path / "c.tsv").open("a") as stream:
        stream.write("ab\tAB\t1-0\n")
    for streaming in ("false", "true"):
        recipe = make(f"data.train={corpora['tsv']}", f"data.streaming={streaming}")
        with pytest.raises(InputError, match=r"c\.tsv:14: source index 1 "):
            train(recipe, tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()


# Several corpora


@pytest.fixture
def arguments(tmp_path: Path) -> Seq2SeqTrainingArguments:
    return Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True, per_device_train_batch_size=3, max_steps=5, seed=4)


@pytest.fixture
def two_corpora(tmp_path: Path) -> DataRecipe:
    """Twenty pairs AB and five pairs CD to be drawn 2.5 times; only the second has links."""
    (tmp_path / "one.tsv").write_text("ab\tAB\n" * 19 + "ab ef\tAB\n")
    (tmp_path / "two.tsv").write_text("cd\tCD\t0-0\n" * 5)
    tables = [
        CorpusTable(str(tmp_path / "one.tsv")),
        CorpusTable(str(tmp_path / "two.tsv"), links_column=2, weight=2.5),
    ]
    return DataRecipe(tables, cache_dir=str(tmp_path / "cache"))


def test_a_weight_says_how_often_each_pair_is_drawn(
    two_corpora: DataRecipe, arguments: Seq2SeqTrainingArguments, toy_tokenizer: PreTrainedTokenizerFast
) -> None:
    loaded = open_training_data(two_corpora, arguments)
    assert isinstance(loaded, LoadedTraining)
    dataset, record = loaded.encode(toy_tokenizer, links=True)
    ends = Counter(row["labels"][0] for row in dataset)
    first, second = toy_tokenizer.convert_tokens_to_ids(["▁AB", "▁CD"])
    assert set(ends) == {first, second}
    assert ends[first] == 20
    assert 10 <= ends[second] <= 15
    assert [(one["kept"], one["drawn"], one["weight"]) for one in record["corpora"]] == [
        (20, 20, 1.0),
        (5, ends[second], 2.5),
    ]
    assert (record["pairs"], record["kept"], record["drawn"]) == (25, 25, 20 + ends[second])
    assert {str(row["guide"]) for row in dataset if row["labels"][0] == second} == {"[[0, 0]]"}
    assert {str(row["guide"]) for row in dataset if row["labels"][0] == first} == {"[]"}
    assert "guide" not in loaded.encode(toy_tokenizer, links=False)[0].column_names
    again = LoadedTraining(two_corpora, seed=4).encode(toy_tokenizer, links=True)[0]
    assert again[:] == dataset[:]


def test_a_stream_mixes_corpora_evenly_by_the_same_weights(
    two_corpora: DataRecipe, arguments: Seq2SeqTrainingArguments, toy_tokenizer: PreTrainedTokenizerFast
) -> None:
    drawn = LoadedTraining(two_corpora, seed=4).encode(toy_tokenizer, links=False)[1]["drawn"]
    two_corpora.streaming = True
    arguments.train_sampling_strategy = "sequential"
    streamed = open_training_data(two_corpora, arguments)
    assert isinstance(streamed, StreamedTraining)
    stream, record = streamed.encode(toy_tokenizer, links=True)
    assert record["drawn"] == drawn
    second = toy_tokenizer.convert_tokens_to_ids("▁CD")
    # Three epochs, in any of which any stretch has its share of both.
    kinds = [row["labels"][0] == second for row in islice(stream, 3 * drawn)]
    assert sum(kinds) == 3 * (drawn - 20)
    for start in range(len(kinds) - 10):
        assert abs(sum(kinds[start : start + 10]) - 10 * (drawn - 20) / drawn) < 2


@pytest.mark.parametrize("streaming", [False, True])
def test_a_corpus_that_gives_nothing_is_refused(
    streaming: bool,
    two_corpora: DataRecipe,
    arguments: Seq2SeqTrainingArguments,
    tmp_path: Path,
    toy_tokenizer: PreTrainedTokenizerFast,
) -> None:
    two_corpora.streaming = streaming
    assert isinstance(two_corpora.train, list)
    two_corpora.train[1].weight = 1e-9
    with pytest.raises(InputError, match=r"two\.tsv: weight 1e-09 draws none of its 5 pairs; raise it"):
        open_training_data(two_corpora, arguments).encode(toy_tokenizer, links=False)
    for content in ("", "\n\tAB\n"):
        (tmp_path / "one.tsv").write_text(content)
        with pytest.raises(InputError, match=r"one\.tsv:1: no sentence pair with words on both sides; check the file"):
            open_training_data(two_corpora, arguments)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("columns", "line"), [((0, 1), 3), (("ab", "AB"), 4)])
def test_what_is_left_out_is_named_by_its_line(
    columns: tuple[Any, Any],
    line: int,
    streaming: bool,
    arguments: Seq2SeqTrainingArguments,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "one.tsv").write_text("ab\tAB\n" * (line - 1) + "same\tsame\n")
    table = CorpusTable(str(tmp_path / "one.tsv"), *columns)
    rules = CleaningRecipe(drop_copies=True)
    open_training_data(DataRecipe(table, cleaning=rules, streaming=streaming), arguments)
    assert f"1 of 3 pairs left out with the same words on both sides, first at {tmp_path}/one.tsv:{line}" in caplog.text


def test_links_can_be_put_in_place(two_corpora: DataRecipe, arguments: Seq2SeqTrainingArguments) -> None:
    loaded = LoadedTraining(two_corpora, seed=4)
    links = [Gold(frozenset({(number, 0)}), frozenset()) for number in range(25)]
    loaded.put_links(links)
    assert loaded.text().gold == links
    assert [len(corpus.gold or []) for corpus in loaded.corpora] == [20, 5]


@pytest.mark.parametrize("streaming", [False, True])
def test_the_tokenizer_learns_from_a_sample(
    streaming: bool, two_corpora: DataRecipe, arguments: Seq2SeqTrainingArguments
) -> None:
    two_corpora.streaming = streaming
    assert len(open_training_data(two_corpora, arguments).sample()) == 25
    two_corpora.tokenizer_sample = 7
    samples = []
    for seed in (1, 1, 2, 3, 4):
        arguments.seed = seed
        sample = open_training_data(two_corpora, arguments).sample()
        assert len(sample) == 7
        samples.append((sample.sources, sample.targets, sample.gold))
        for source, target, links in zip(*samples[-1], strict=True):  # type: ignore[arg-type]
            assert (source[0], len(links.possible)) == (("cd", 1) if target == ["CD"] else ("ab", 0))
    assert samples[0] == samples[1]
    assert any(sample != samples[0] for sample in samples[2:])


def test_without_the_cache_nothing_is_kept(
    two_corpora: DataRecipe, arguments: Seq2SeqTrainingArguments, toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    two_corpora.cache = False
    plain, record = LoadedTraining(two_corpora, seed=4).encode(toy_tokenizer, links=True)
    assert not (tmp_path / "cache").exists()
    assert "from_cache" not in record["corpora"][0]
    two_corpora.cache = True
    for reused in (False, True):
        kept, record = LoadedTraining(two_corpora, seed=4).encode(toy_tokenizer, links=True)
        assert [one["from_cache"] for one in record["corpora"]] == [reused, reused]
        assert kept[:] == plain[:]
    two_corpora.cleaning = CleaningRecipe(drop_duplicates=True)
    record = LoadedTraining(two_corpora, seed=4).encode(toy_tokenizer, links=True)[1]
    assert [one["from_cache"] for one in record["corpora"]] == [False, False]
    assert [one["kept"] for one in record["corpora"]] == [2, 1]
