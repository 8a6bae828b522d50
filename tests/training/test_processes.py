import importlib.util
import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.commands.launch import launch_command_parser
from accelerate.data_loader import BatchSamplerShard
from torch.distributed.run import get_args_parser as torchrun_parser
from torch.utils.data import BatchSampler
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainingArguments

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training import processes
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.sampling import LengthGroupedBatches, TokenBatches
from hf_seq2seq_attn.training.train import main, train
from hf_seq2seq_attn.training.trainer import check_world_size

ROOT = Path(__file__).parents[2]
TINY = """\
name: toy
data: {train: {source: '', target: ''}, cache: false}
tokenizer: {vocab_size: 100}
model: {encoder_type: gru, decoder_type: gru, cross_attention_type: additive, encoder_layers: 1, decoder_layers: 1,
  d_model: 16, dropout: 0.2, cross_attention_heads: 2, init_std: 0.3}
training: {max_steps: 14, per_device_train_batch_size: 3, learning_rate: 1e-2, logging_steps: 4, seed: 7,
  gradient_accumulation_steps: 2, save_steps: 4, use_cpu: true}
alignment: {weight: 3, rows: input}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hold a recipe and its files."""
    place = tmp_path_factory.mktemp("pair")
    (place / "toy.yaml").write_text(TINY)
    draw = random.Random(5)
    sentences = [[draw.choice(("ab", "cd", "ef", "gh")) for _ in range(draw.randint(1, 9))] for _ in range(38)]
    for part, chosen in (("train", sentences[:33]), ("dev", sentences[33:])):
        columns = {
            "source": [" ".join(words) for words in chosen],
            "target": [" ".join(words).upper() for words in chosen],
            "links": [" ".join(f"{i}-{i}" for i in range(len(words))) for words in chosen],
        }
        for column, lines in columns.items():
            (place / f"{part}.{column}").write_text("".join(line + "\n" for line in lines))
    return place


@pytest.fixture(scope="module")
def overrides(folder: Path) -> list[str]:
    return [f"data.{part}.{name}={folder}/{part}.{name}" for part in ("train", "dev") for name in _COLUMNS]


_COLUMNS = ("source", "target", "links")


@pytest.fixture(scope="module")
def ends(folder: Path, overrides: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Run every scenario in a pair of processes of its own; return how each process ended."""
    script = ROOT / "tests" / "support" / "process_scenarios.py"
    outcome = subprocess.run(
        [sys.executable, str(script), str(folder), *overrides],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    return json.loads((folder / "ends.json").read_text())


def _codes(pair: list[dict[str, Any]]) -> list[int]:
    return [end["code"] for end in pair]


def _printed(pair: list[dict[str, Any]], words: str) -> int:
    return sum(end["err"].count(words) for end in pair)


def test_interrupted_pairs_end_with_the_same_bytes(folder: Path, ends: dict[str, list[dict[str, Any]]]) -> None:
    """Each process goes on with its own random numbers, in the right batch of the second epoch."""
    pair = ends["resume"]
    assert _codes(pair) == [0, 0], pair
    runs = [json.loads((folder / name / "metrics.json").read_text()) for name in ("whole", "interrupted")]
    assert [run["processes"] for run in runs] == [2, 2]
    # Of three steps to an epoch: in the middle of the third one.
    assert runs[1]["continued_from_step"] == 8
    assert runs[0]["epochs"] == pytest.approx(14 / 3, abs=1e-3)
    losses = [[entry["loss"] for entry in run["history"] if "loss" in entry] for run in runs]
    assert losses[0] == losses[1]
    assert runs[0]["target_tokens_seen"] == runs[1]["target_tokens_seen"]
    weights = [(folder / name / "model.safetensors").read_bytes() for name in ("whole", "interrupted")]
    assert weights[0] == weights[1]


def test_only_one_process_writes(ends: dict[str, list[dict[str, Any]]]) -> None:
    first, second = (json.loads(end["out"].splitlines()[-1]) for end in ends["resume"])
    assert {"run.json", "metrics.json", "optimizer.pt"} <= {re.sub(r"^\.(.*)\..*$", r"\1", name) for name in first}
    assert second == ["rng_state_1.pth", "run_state_1.pt"]


def test_unequal_shares_do_not_hang(folder: Path, ends: dict[str, list[dict[str, Any]]], overrides: list[str]) -> None:
    """1, 3 and 11 sentences, two to a batch: two epochs of 1, 1 and 3 steps."""
    pair = ends["uneven"]
    assert _codes(pair) == [0, 0], pair
    assert [json.loads(end["out"].splitlines()[-1]) for end in pair] == [{"1": [2, 2], "3": [2, 2], "11": [2, 6]}] * 2
    # Each of the five evaluation sentences counts once: one process, which can count none twice, has the same loss.
    metrics = json.loads((folder / "uneven-11" / "metrics.json").read_text())
    alone = load_recipe(
        folder / "toy.yaml",
        [*overrides, "training.max_steps=0", f"model={{init_from: {folder / 'uneven-11'}}}", "tokenizer=null"],
    )
    again = train(alone, folder / "alone", progress=False).metrics
    assert metrics["dev"]["loss"] == pytest.approx(again["dev"]["loss"], abs=1e-5)
    assert metrics["dev"]["guided_loss"] == pytest.approx(again["dev"]["guided_loss"], abs=1e-5)


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ("bad_input", "tokenizer section of the recipe"),
        ("bad_recipe", "did you mean max_steps?"),
        ("bad_input_of_one", "dev.source: no such file"),
    ],
)
def test_bad_input_is_printed_once_and_ends_all(
    ends: dict[str, list[dict[str, Any]]], scenario: str, words: str
) -> None:
    pair = ends[scenario]
    assert _codes(pair) == [2, 2], pair
    assert _printed(pair, words) == 1
    assert _printed(pair, "Traceback") == 0
    assert all(end["out"] == "" for end in pair)


def test_a_crash_of_one_process_ends_the_other(ends: dict[str, list[dict[str, Any]]]) -> None:
    pair = ends["crash_of_one"]
    assert _codes(pair) == [1, 1], pair
    assert _printed(pair, "RuntimeError: out of memory") >= 1
    assert abs(pair[0]["seconds"] - pair[1]["seconds"]) < 10


def test_a_full_disk_of_one_process_is_the_checkpoint_of_none(ends: dict[str, list[dict[str, Any]]]) -> None:
    pair = ends["full_disk_of_one"]
    assert _codes(pair) == [0, 0], pair
    assert _printed(pair, "checkpoint of step 4 cannot be written ([Errno 28] No space left on device)") == 1
    assert _printed(pair, "cannot be written") == 1


def test_accelerate_launch_trains_as_one_process_does(folder: Path, overrides: list[str]) -> None:
    """Two processes x accumulation 1 = one process x accumulation 2, started as docs/many_processes.md says."""
    words = [str(folder / "toy.yaml"), *overrides, "model.dropout=0", "training.max_steps=5"]
    # Adam turns rounding of a tiny gradient into a step of its own: at a small rate it stays below the tolerance.
    words += ["training.learning_rate=1e-3"]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    launch += ["-m", "hf_seq2seq_attn.training.train", *words, "training.gradient_accumulation_steps=1"]
    outcome = subprocess.run(
        [*launch, "-o", str(folder / "accelerate-2")],
        env=os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.splitlines() == [str(folder / "accelerate-2")]
    assert main([*words, "-o", str(folder / "accelerate-1")]) == 0
    two, one = (json.loads((folder / f"accelerate-{n}" / "metrics.json").read_text()) for n in (2, 1))
    assert (two["processes"], one["processes"]) == (2, 1)
    assert two["dev"]["loss"] == pytest.approx(one["dev"]["loss"], abs=1e-5)
    ours, theirs = (AutoModelForSeq2SeqLM.from_pretrained(folder / f"accelerate-{n}").state_dict() for n in (2, 1))
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name], rtol=0, atol=1e-5)


def test_a_launcher_that_starts_one_process_of_two_is_told(folder: Path, overrides: list[str]) -> None:
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    launch += ["-m", "hf_seq2seq_attn.training.train", str(folder / "toy.yaml"), *overrides]
    outcome = subprocess.run(
        [*launch, "-o", str(folder / "one")], capture_output=True, text=True, timeout=200, check=False
    )
    assert outcome.returncode != 0
    assert re.search(
        r"^accelerate launch was asked for several processes on the CPU, but started one", outcome.stderr, re.M
    )
    assert not (folder / "one").exists()


def test_what_a_launcher_says_is_held_against_what_trains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    check_world_size(arguments)
    # Slurm's own variables, without a launcher of processes.
    monkeypatch.setenv("MASTER_ADDR", "node1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    check_world_size(arguments)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    with pytest.raises(InputError, match=r"started one.*torchrun --nproc-per-node N.*--multi_gpu --num_processes N"):
        check_world_size(arguments)
    monkeypatch.setenv("WORLD_SIZE", "1")
    check_world_size(arguments)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"started 2 processes, but the Trainer sees 1; set training\.use_cpu=true"):
        check_world_size(arguments)


def test_sharding_that_would_not_be_is_told(folder: Path, overrides: list[str], tmp_path: Path) -> None:
    recipe = load_recipe(folder / "toy.yaml", [*overrides, "training.fsdp=full_shard", "training.max_steps=1"])
    with pytest.raises(InputError, match=r"FSDP was asked for .* leave it out here"):
        train(recipe, tmp_path / "run", progress=False)


@pytest.mark.parametrize("examples", [1, 2, 11, 24, 31])
@pytest.mark.parametrize("count", [2, 3])
def test_every_process_gets_as_many_batches(examples: int, count: int) -> None:
    """A multiple of the number of processes in all, with every example in one of them."""
    draw = random.Random(examples)
    lengths = [draw.randint(1, 9) for _ in range(examples)]
    grouped = BatchSampler(LengthGroupedBatches(lengths, 4 * count, seed=3), 4, drop_last=False)
    tokens = TokenBatches(lengths, lengths, tokens=30, seed=3, multiple_of=count)
    for sampler in (grouped, tokens):
        shards = [list(BatchSamplerShard(sampler, count, index)) for index in range(count)]
        assert len({len(batches) for batches in shards}) == 1
        assert {index for batches in shards for batch in batches for index in batch} == set(range(examples))


def test_alone_nobody_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert processes.exchange("x") == ["x"]
    assert processes.from_first(lambda: {"a": [1]}) == {"a": [1]}
    assert processes.in_turn(lambda: 3) == 3
    with pytest.raises(InputError, match="bad"), processes.together():
        raise InputError("bad")
    processes.report_once(InputError("bad file"))
    assert capsys.readouterr().err == "bad file\n"


def _commands() -> list[list[str]]:
    text = (ROOT / "docs" / "many_processes.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("words", _commands(), ids=lambda words: "-".join(words)[:60])
def test_the_commands_of_the_page_can_be_given(words: list[str], folder: Path, overrides: list[str]) -> None:
    """Each has options that its launcher knows, a module that exists, and fields that a recipe takes."""
    words = words[1:] if "=" in words[0] else words
    if words[0] == "torchrun":
        parsed = torchrun_parser().parse_args(words[1:])
    else:
        assert words[:2] == ["accelerate", "launch"]
        parsed = launch_command_parser().parse_args(words[2:])
    assert parsed.module
    assert importlib.util.find_spec(parsed.training_script) is not None
    recipe, *settings, option, _ = parsed.training_script_args
    assert (recipe, option) == ("RECIPE", "-o")
    loaded = load_recipe(folder / "toy.yaml", [*overrides, *settings])
    assert loaded.training["max_steps"] == 14


def test_there_are_commands_on_the_page() -> None:
    assert len(_commands()) == 7
    assert {words[0] for words in _commands()} == {"torchrun", "accelerate", "ACCELERATE_USE_CPU=true"}
