"""Streams: every pair once an epoch, dealt out among processes, the same rows again after an interruption."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import datasets
import pytest
import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast, Seq2SeqTrainingArguments, set_seed

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.collation import Seq2SeqCollator
from hf_seq2seq_attn.training.data import encode_corpus, read_corpus
from hf_seq2seq_attn.training.data_recipe import CorpusDataset, CorpusTable, DataRecipe
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.streaming import StreamPlan, make_stream, reservoir, rows_of_share
from hf_seq2seq_attn.training.train import train
from hf_seq2seq_attn.training.trainer import Seq2SeqAttnTrainer, default_training_arguments
from hf_seq2seq_attn.training.training_data import open_training_data, streaming_arguments


@pytest.fixture
def data(reversed_pairs: Callable[..., list[tuple[list[str], list[str]]]], tmp_path: Path) -> DataRecipe:
    """Seventeen pairs, the longest of them too long."""
    pairs = reversed_pairs(17, seed=5)
    lines = [" ".join(source) + "\t" + " ".join(target) + "\n" for source, target in pairs]
    (tmp_path / "a.tsv").write_text("".join(lines))
    # The end token counts, too.
    longest = max(len(source) for source, _ in pairs)
    return DataRecipe(CorpusTable(str(tmp_path / "a.tsv")), max_source_length=longest, stream_window=6)


@pytest.fixture
def plan_of(data: DataRecipe, toy_tokenizer: PreTrainedTokenizerFast) -> Callable[..., StreamPlan]:
    def make(**changes: Any) -> StreamPlan:
        settings: dict[str, Any] = {"shares": 1, "step_size": 2, "strategy": "group_by_length", "seed": 3} | changes
        return StreamPlan(data=data, drawn=(17,), tokenizer=toy_tokenizer, links=False, **settings)

    return make


def texts(rows: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> list[tuple[int, ...]]:
    return [tuple(row["input_ids"] + row["labels"]) for row in rows]


@pytest.fixture
def loaded(data: DataRecipe, toy_tokenizer: PreTrainedTokenizerFast) -> list[tuple[int, ...]]:
    """The slow reference: all rows in memory, in the order of the file."""
    assert not isinstance(data.train, list)
    dataset, _ = encode_corpus(read_corpus(data.train), toy_tokenizer, data.max_source_length)
    return texts(list(dataset))


@pytest.mark.parametrize("strategy", ["group_by_length", "random", "sequential"])
def test_each_epoch_has_each_pair_once(
    strategy: str, plan_of: Callable[..., StreamPlan], loaded: list[tuple[int, ...]]
) -> None:
    size = len(loaded)
    assert 5 < size < 17
    rows = texts(islice(rows_of_share(plan_of(strategy=strategy, step_size=1), 0), 3 * size))
    epochs = [rows[start : start + size] for start in (0, size, 2 * size)]
    assert all(Counter(epoch) == Counter(loaded) for epoch in epochs)
    if strategy == "sequential":
        assert all(epoch == loaded for epoch in epochs)
    else:
        assert len({tuple(epoch) for epoch in epochs}) == 3
        assert loaded not in epochs
    # A last step that is not whole waits for the next epoch.
    rows = texts(islice(rows_of_share(plan_of(strategy=strategy, step_size=4), 0), 4 * size))
    assert Counter(rows) == Counter(4 * loaded)


def test_sentences_of_like_length_come_together(plan_of: Callable[..., StreamPlan], data: DataRecipe) -> None:
    data.stream_window = 12

    def spread(strategy: str) -> int:
        lengths = [row["length"] for row in islice(rows_of_share(plan_of(strategy=strategy, step_size=3), 0), 840)]
        return sum(max(step) - min(step) for step in (lengths[i : i + 3] for i in range(0, 840, 3)))

    assert spread("group_by_length") < 0.75 * spread("random")


def test_the_order_follows_the_seed(plan_of: Callable[..., StreamPlan]) -> None:
    orders = [tuple(texts(islice(rows_of_share(plan_of(seed=seed), 0), 28))) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("shares", [2, 3])
def test_shares_make_up_the_whole(
    shares: int, plan_of: Callable[..., StreamPlan], loaded: list[tuple[int, ...]], tmp_path: Path
) -> None:
    plan = plan_of(shares=shares, strategy="sequential", step_size=1)
    kept: Counter[tuple[int, ...]] = Counter()
    for share in range(shares):
        mine = texts(list(islice(rows_of_share(plan, share), 40)))
        # Its own pairs over and over: as many as lie between two of the first.
        epoch = mine.index(mine[0], 1)
        assert mine[:epoch] == mine[epoch : 2 * epoch]
        kept.update(mine[:epoch])
    assert kept == Counter(loaded)
    # As the Trainer's own library takes it apart, and each data loader worker.
    stream = make_stream(plan)
    assert isinstance(stream, torch.utils.data.IterableDataset)
    assert stream.n_shards == shares
    for share in range(shares):
        shard = stream.shard(num_shards=shares, index=share)
        assert texts(islice(shard, 9)) == texts(islice(rows_of_share(plan, share), 9))


def test_data_loader_workers_each_read_their_share(plan_of: Callable[..., StreamPlan]) -> None:
    plan = plan_of(shares=2, strategy="sequential", step_size=1)
    loader = torch.utils.data.DataLoader(make_stream(plan), batch_size=2, num_workers=2, collate_fn=texts)
    batches = list(islice(loader, 4))
    for worker in (0, 1):
        wanted = texts(islice(rows_of_share(plan, worker), 4))
        assert [*batches[worker], *batches[worker + 2]] == wanted


def test_a_share_without_pairs_is_refused(data: DataRecipe, plan_of: Callable[..., StreamPlan]) -> None:
    with pytest.raises(InputError, match=r"a\.tsv: no pair is left for process or worker 18 of 18"):
        next(rows_of_share(plan_of(shares=18), 17))
    data.max_source_length = 1
    with pytest.raises(InputError, match=r"raise data\.max_source_length"):
        next(rows_of_share(plan_of(), 0))


def test_a_dataset_that_is_no_folder_is_read_only_as_far_as_the_sample(
    data: DataRecipe, tmp_path: Path, toy_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = datasets.IterableDataset.from_generator(lambda: ({"source": "ab", "target": "AB"} for _ in iter(int, 1)))
    monkeypatch.setattr(datasets, "load_dataset", lambda *arguments, **settings: endless)
    data.train, data.streaming, data.tokenizer_sample = CorpusDataset("somebody/endless"), True, 9
    arguments = Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True, max_steps=5)
    opened = open_training_data(data, arguments)
    assert len(opened.sample()) == 9
    stream, record = opened.encode(toy_tokenizer, links=False)
    assert (record["first_pairs_only"], record["pairs"]) == (True, 9)
    assert len(list(islice(stream, 50))) == 50


def test_reservoir() -> None:
    assert reservoir(range(3), 5, Random(1)) == [0, 1, 2]
    counts: Counter[int] = Counter()
    for seed in range(600):
        kept = reservoir(iter(range(12)), 5, Random(seed))
        assert len(kept) == 5
        assert kept == sorted(set(kept))
        counts.update(kept)
    assert set(counts) == set(range(12))
    # Each of 12 is kept 250 times of 600 on average, with a standard deviation of 12.
    assert all(200 < count < 300 for count in counts.values())


def test_a_run_goes_on_where_it_was_interrupted(
    data: DataRecipe, toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """Stopped in the second epoch of the corpus and resumed, it gives the weights of a run in one go."""
    data.streaming = True

    def trainer(folder: str) -> Seq2SeqAttnTrainer:
        set_seed(1)
        settings = default_training_arguments() | {"max_steps": 9, "save_strategy": "steps", "save_steps": 5}
        settings |= {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "seed": 1}
        arguments = Seq2SeqTrainingArguments(
            str(tmp_path / folder), remove_unused_columns=False, learning_rate=1e-2, **streaming_arguments(settings)
        )
        stream, _ = open_training_data(data, arguments).encode(toy_tokenizer, links=False)
        size = len(toy_tokenizer)
        config = Seq2SeqAttnConfig(
            vocab_size=size, d_model=8, encoder_type="gru", decoder_type="gru", encoder_layers=1, decoder_layers=1,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, dropout=0.2,
        )  # fmt: skip
        model = Seq2SeqAttnForConditionalGeneration(config)
        return Seq2SeqAttnTrainer(
            model=model,
            args=arguments,
            data_collator=Seq2SeqCollator(toy_tokenizer, model),
            train_dataset=stream,
            processing_class=toy_tokenizer,
        )

    trainer("whole").train()
    whole = load_file(tmp_path / "whole" / "checkpoint-9" / "model.safetensors")
    resumed = trainer("resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-5"))
    assert resumed.state.global_step == 9
    for name, weight in load_file(tmp_path / "resumed" / "checkpoint-9" / "model.safetensors").items():
        assert torch.equal(weight, whole[name]), name
    before = load_file(tmp_path / "whole" / "checkpoint-5" / "model.safetensors")
    assert any(not torch.equal(weight, whole[name]) for name, weight in before.items())


RECIPE = """\
data: {train: {file: FILE}, streaming: true, stream_window: 8}
tokenizer: {vocab_size: 100}
model: {encoder_type: gru, decoder_type: gru, cross_attention_type: additive, encoder_layers: 1, decoder_layers: 1,
  d_model: 8, dropout: 0.0}
training: {max_steps: 7, learning_rate: 1e-3, seed: 1, train_sampling_strategy: sequential}
"""


def test_two_processes_train_as_one(
    reversed_pairs: Callable[..., list[tuple[list[str], list[str]]]], tmp_path: Path
) -> None:
    """Each reads its half of the pairs; batches of 2 in each give the weights of batches of 4 in one."""
    lines = ["\t".join(map(" ".join, pair)) + "\n" for pair in reversed_pairs(16, seed=5)]
    (tmp_path / "a.tsv").write_text("".join(lines))
    (tmp_path / "r.yaml").write_text(RECIPE.replace("FILE", str(tmp_path / "a.tsv")))
    launch = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv-backend=c10d"]
    launch += ["--rdzv-endpoint=localhost:0", "-m", "hf_seq2seq_attn.training.train", str(tmp_path / "r.yaml")]
    outcome = subprocess.run(
        [sys.executable, *launch, "training.per_device_train_batch_size=2", "-o", str(tmp_path / "two")],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert json.loads((tmp_path / "two" / "metrics.json").read_text())["processes"] == 2
    recipe = load_recipe(tmp_path / "r.yaml", ["training.per_device_train_batch_size=4"])
    train(recipe, tmp_path / "one", progress=False)
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["training={seed: 1}"], "data.streaming needs training.max_steps"),
        (["training.max_steps=0"], "data.streaming needs training.max_steps"),
        (["training.train_sampling_strategy=batch_rebalance"], "needs all pairs; use group_by_length"),
        (["training.accelerator_config={split_batches: true}"], "each process reads its own share"),
        (["training.accelerator_config=a.json"], "write the fields of training.accelerator_config='a.json' into"),
        (["training.ignore_data_skip=true"], "would read the same pairs again"),
        (["data.train=[{dataset: a/b}, {file: a.tsv}]"], "their sizes must be known"),
        (["data.stream_window=0"], "data.stream_window=0: must be at least 1"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(overrides: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE.replace("FILE", "a.tsv"))
    with pytest.raises(InputError, match=message):
        load_recipe(tmp_path / "r.yaml", overrides)
