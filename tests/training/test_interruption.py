import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training import resumption
from hf_seq2seq_attn.training.averaging import KeepWeights
from hf_seq2seq_attn.training.checkpoints import list_checkpoints
from hf_seq2seq_attn.training.recipe import Recipe, load_recipe
from hf_seq2seq_attn.training.run_folder import RunFolder, differences, identify
from hf_seq2seq_attn.training.train import main, train
from hf_seq2seq_attn.training.trainer import Seq2SeqAttnTrainer

TINY = """\
name: toy
data: {train: {source: '', target: ''}, cache: false}
tokenizer: {vocab_size: 100}
model: {encoder_type: gru, decoder_type: gru, cross_attention_type: additive, encoder_layers: 1, decoder_layers: 1,
  d_model: 16, dropout: 0.2, cross_attention_heads: 2, init_std: 0.3}
training: {max_steps: 14, per_device_train_batch_size: 5, learning_rate: 1e-2, logging_steps: 4, seed: 7,
  gradient_accumulation_steps: 2, save_steps: 3}
alignment: {weight: 3, rows: input}
"""
# 33 pairs in batches of 5, two to a step: 7 batches, the last of 3, so 4 steps to an epoch, the last of one batch.
PAIRS = 33
TIMES = re.compile("runtime|_per_second|flos|seconds|train_loss")

Toy = Callable[..., Recipe]


class Killed(BaseException):
    """Stands for the end of the process: nothing that handles errors runs."""


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer than these runs."""
    for name in ("draw_curve", "draw_attention"):
        monkeypatch.setattr(f"hf_seq2seq_attn.training.train.{name}", lambda *args: None)


@pytest.fixture
def toy(toy_files: Callable[..., list[str]], tmp_path: Path) -> Toy:
    (tmp_path / "toy.yaml").write_text(TINY)

    def make(*overrides: str, **parts: int) -> Recipe:
        return load_recipe(tmp_path / "toy.yaml", [*toy_files(**(parts or {"train": PAIRS})), *overrides])

    return make


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Train, killed in the middle of some steps, started again each time; return the metrics of the last start."""
    whole_step = Seq2SeqAttnTrainer.training_step

    def run(recipe: Recipe, folder: Path, *steps: int) -> dict[str, Any]:
        for step in steps:

            def until(trainer: Any, *args: Any, last: int = step, **kwargs: Any) -> Any:
                if trainer.state.global_step == last:
                    raise Killed
                return whole_step(trainer, *args, **kwargs)

            monkeypatch.setattr(Seq2SeqAttnTrainer, "training_step", until)
            with pytest.raises(Killed):
                train(recipe, folder, progress=False)
        monkeypatch.setattr(Seq2SeqAttnTrainer, "training_step", whole_step)
        return train(recipe, folder, progress=False).metrics

    return run


def _without_times(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.items() if not TIMES.search(key)} for entry in history]


CASES = [
    # In the middle of an epoch, before the first checkpoint, and after its last step.
    ([], (2, 5, 12), {"train": PAIRS}),
    (["training.train_sampling_strategy=random", "training.save_steps=2"], (7, 8), {"train": PAIRS}),
    (["batching={tokens: 90}", "training.save_steps=1", "training.gradient_accumulation_steps=1"], (9,), {"train": 90}),
    (["data.streaming=true"], (5, 11), {"train": PAIRS}),
    # Evaluation, log and early stopping at the end of an epoch, at whose last step a checkpoint is due.
    (
        [
            "training.eval_strategy=epoch",
            "training.logging_strategy=epoch",
            "training.save_strategy=steps",
            "training.save_steps=4",
            "training.label_smoothing_factor=0.1",
        ],
        (5, 13),
        {"train": PAIRS, "dev": 5},
    ),
    (
        [
            "training.eval_strategy=steps",
            "training.eval_steps=2",
            "training.save_steps=2",
            "training.max_steps=30",
            "training.learning_rate=0.3",
            "selection={metric: loss, patience: 2}",
        ],
        (3, 5),
        {"train": PAIRS, "dev": 5},
    ),
    (
        ["training.save_steps=2", "selection={average: 3}", "alignment=null"],
        (3, 11),
        {"train": PAIRS, "dev": 5},
    ),
    (["tokenizer.dropout=0.5"], (5, 11), {"train": PAIRS}),
]


@pytest.mark.parametrize(
    ("overrides", "kills", "parts"),
    CASES,
    ids=["length", "random", "tokens", "stream", "epoch", "early", "average", "dropout"],
)
def test_interrupted_runs_end_with_the_same_bytes(
    toy: Toy,
    interrupted: Callable[..., dict[str, Any]],
    tmp_path: Path,
    overrides: list[str],
    kills: tuple[int, ...],
    parts: dict[str, int],
) -> None:
    recipe = toy(*overrides, **parts)
    whole = train(recipe, tmp_path / "whole", progress=False).metrics
    metrics = interrupted(recipe, tmp_path / "run", *kills)
    assert metrics["continued_from_step"] <= kills[-1]
    for name in ("model.safetensors", "tokenizer.json", "config.json", "generation_config.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert _without_times(metrics["history"]) == _without_times(whole["history"])
    for key in ("steps", "epochs", "target_tokens_seen", "dev", "averaging"):
        assert metrics.get(key) == whole.get(key), key
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_killed_between_a_checkpoint_and_what_is_kept_of_it(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean at the end must not lack the weights that the killed process had no time to put aside."""
    overrides, _, parts = CASES[6]
    recipe = toy(*overrides, "training.max_steps=12", **parts)
    train(recipe, tmp_path / "whole", progress=False)
    keep = KeepWeights.on_save

    def killed(keeper: KeepWeights, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 10:
            raise Killed
        keep(keeper, args, state, control, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(KeepWeights, "on_save", killed)
        with pytest.raises(Killed):
            train(recipe, tmp_path / "run", progress=False)
    metrics = train(recipe, tmp_path / "run", progress=False).metrics
    assert (metrics["continued_from_step"], metrics["averaging"]["steps"]) == (10, [8, 10, 12])
    assert (tmp_path / "run/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def test_early_stopping_stopped_early(toy: Toy, tmp_path: Path) -> None:
    """Else the case above would show nothing."""
    overrides, _, parts = CASES[5]
    metrics = train(toy(*overrides, **parts), tmp_path / "run", progress=False).metrics
    assert metrics["steps"] < 30
    best = min((entry for entry in metrics["history"] if "eval_loss" in entry), key=lambda entry: entry["eval_loss"])
    assert best["step"] < metrics["steps"]
    assert metrics["dev"]["loss"] == pytest.approx(best["eval_loss"], abs=1e-6)


def test_killed_by_signal_at_random_moments(toy_files: Callable[..., list[str]], tmp_path: Path) -> None:
    """The command, ended by SIGKILL three times, against one that is left alone."""
    (tmp_path / "toy.yaml").write_text(TINY)
    words = [str(tmp_path / "toy.yaml"), *toy_files(train=70, dev=3), "training.max_steps=60", "training.eval_steps=10"]
    words += ["training.eval_strategy=steps", "training.save_steps=3"]
    assert main([*words, "-o", str(tmp_path / "whole")]) == 0
    draw = random.Random(4)
    command = [sys.executable, "-m", "hf_seq2seq_attn.training.train", *words, "-o", str(tmp_path / "run")]
    kills = sorted(draw.sample(range(6, 60, 6), 3))
    told = []
    for step in [*kills, None]:
        with subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "TERM": "dumb"},
        ) as process:
            assert process.stderr is not None and process.stdout is not None
            for line in process.stderr:
                told.append(line)
                reached = re.match(r"training (\d+)/60", line)
                if step is not None and reached and int(reached[1]) >= step:
                    time.sleep(draw.random() / 20)
                    process.kill()
            printed = process.stdout.read()
        assert process.returncode == (0 if step is None else -9), "".join(told)
    assert printed == f"{tmp_path / 'run'}\n"
    assert sum("going on from checkpoint-" in line for line in told) >= 2, told
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    runs = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("run", "whole")]
    assert _without_times(runs[0]["history"]) == _without_times(runs[1]["history"])
    assert runs[0]["dev"] == runs[1]["dev"]


@pytest.fixture
def unfinished(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run that was killed after step 7, with checkpoints of steps 3 and 6."""
    whole_step = Seq2SeqAttnTrainer.training_step

    def until(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        if trainer.state.global_step == 7:
            raise Killed
        return whole_step(trainer, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Seq2SeqAttnTrainer, "training_step", until)
        with pytest.raises(Killed):
            train(toy(), tmp_path / "run", progress=False)
    names = [path.name for path in list_checkpoints(tmp_path / "run" / "checkpoints")]
    assert names == ["checkpoint-3", "checkpoint-6"]
    yield tmp_path / "run"


def test_a_torn_checkpoint_costs_time_and_nothing_else(
    toy: Toy, tmp_path: Path, unfinished: Path, caplog: pytest.LogCaptureFixture
) -> None:
    optimizer = unfinished / "checkpoints" / "checkpoint-6" / "optimizer.pt"
    optimizer.write_bytes(optimizer.read_bytes()[:-5])
    metrics = train(toy(), unfinished, progress=False).metrics
    assert metrics["continued_from_step"] == 3
    lines = [line for line in caplog.messages if "not whole" in line]
    assert len(lines) == 1 and "optimizer.pt has" in lines[0] and lines[0].endswith("going on from checkpoint-3")
    train(toy(), tmp_path / "whole", progress=False)
    assert (unfinished / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()


def test_another_recipe_or_other_files_are_refused_in_words(toy: Toy, tmp_path: Path, unfinished: Path) -> None:
    with pytest.raises(InputError, match=r"not this one \(training\.learning_rate was 0\.01, is now 0\.02\).*--overw"):
        train(toy("training.learning_rate=0.02"), unfinished, progress=False)
    source = tmp_path / "train.source"
    text = source.read_text()
    source.write_text(text.replace("ab", "cd", 1))
    # Not `toy()`, which would write the files again.
    again = load_recipe(
        tmp_path / "toy.yaml", [f"data.train.{side}={tmp_path}/train.{side}" for side in ("source", "target", "links")]
    )
    with pytest.raises(InputError, match=r"train\.source holds other bytes than when the run began"):
        train(again, unfinished, progress=False)
    source.write_text(text)
    os.utime(source)
    assert train(again, unfinished, progress=False).metrics["continued_from_step"] == 6
    with pytest.raises(InputError, match="already holds a model"):
        train(again, unfinished, progress=False)


def test_overwrite_starts_anew(toy: Toy, unfinished: Path, caplog: pytest.LogCaptureFixture) -> None:
    # Of heads that were chosen for the model that was here.
    (unfinished / "alignment.json").write_text("{}")
    metrics = train(toy("training.seed=8"), unfinished, overwrite=True, progress=False).metrics
    assert "continued_from_step" not in metrics
    assert "takes the place of a run with 2 checkpoint(s)" in caplog.text
    assert not (unfinished / "alignment.json").exists()


def test_overwrite_that_comes_to_nothing_loses_nothing(toy: Toy, unfinished: Path) -> None:
    with pytest.raises(InputError, match="tokenizer section"):
        train(toy("tokenizer.vocab_size=5"), unfinished, overwrite=True, progress=False)
    assert train(toy(), unfinished, progress=False).metrics["continued_from_step"] == 6


@pytest.mark.parametrize("moves", range(8))
def test_overwrite_killed_before_it_trains_loses_nothing(
    toy: Toy, unfinished: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    """Killed after so many moves of the old run's files, there or back; or when the new one has read its data."""
    checkpoints, move, made = unfinished / "checkpoints", Path.replace, []
    before = {path.relative_to(checkpoints): path.read_bytes() for path in checkpoints.rglob("*") if path.is_file()}

    def counted(path: Path, goal: Path) -> Path:
        if "replaced" in (path.parent.name, goal.parent.name):
            made.append(path)
            if len(made) > moves:
                raise Killed
        return move(path, goal)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", counted)
        with pytest.raises((Killed, InputError)):
            train(toy("tokenizer.vocab_size=5"), unfinished, overwrite=True, progress=False)
    # Its own process would be gone.
    RunFolder(unfinished).release()
    with pytest.raises(InputError, match="is not this one"):
        train(toy("training.seed=8"), unfinished, progress=False)
    after = {path.relative_to(checkpoints): path.read_bytes() for path in checkpoints.rglob("*") if path.is_file()}
    assert after == before and made


def test_a_run_without_checkpoints_is_no_obstacle(toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tokenizer section"):
        train(toy("tokenizer.vocab_size=5"), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    run = RunFolder(tmp_path / "run")
    run.checkpoints.mkdir(parents=True)
    identity = identify(toy("training.seed=9")) | {"started": ""}
    (run.checkpoints / "run.json").write_text(json.dumps(identity))
    train(toy("training.max_steps=1"), run.run_dir, progress=False)


def test_the_number_of_processes_belongs_to_a_run(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    one = identify(toy())
    assert len(one["files"]) == 3 and differences(one, identify(toy(), one["files"])) == []
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert differences(one, identify(toy())) == ["it had 1 process(es), now 2"]


def test_no_second_run_in_a_folder(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = toy("training.max_steps=1")
    refused = []

    def step(trainer: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        with pytest.raises(InputError, match="another process is training here") as caught:
            train(recipe, tmp_path / "run", overwrite=True, progress=False)
        refused.append(caught)
        raise Killed

    monkeypatch.setattr(Seq2SeqAttnTrainer, "training_step", step)
    with pytest.raises(Killed):
        train(recipe, tmp_path / "run", progress=False)
    assert refused


def test_a_full_disk_while_saving_is_told_and_training_goes_on(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seal = resumption.seal

    def full(folder: Path) -> None:
        if folder.name in ("checkpoint-6", "checkpoint-9"):
            raise OSError(28, "No space left on device")
        seal(folder)

    monkeypatch.setattr(resumption, "seal", full)
    whole = train(toy(), tmp_path / "run", progress=False)
    assert whole.metrics["steps"] == 14
    lines = [line for line in caplog.messages if "cannot be written" in line]
    assert [line.partition(" (")[0] for line in lines] == [f"checkpoint of step {n} cannot be written" for n in (6, 9)]
    assert all("the last whole one is checkpoint-3; training goes on" in line for line in lines)
    # Where the end of the run reads its checkpoints, it stops instead.
    needing = toy(
        "training.load_best_model_at_end=true",
        "training.eval_strategy=steps",
        "training.eval_steps=3",
        train=PAIRS,
        dev=3,
    )
    with pytest.raises(resumption.SaveError, match=r"step 6 .*No space left.*give the same command"):
        train(needing, tmp_path / "other", progress=False)
    names = [path.name for path in (tmp_path / "other" / "checkpoints").iterdir() if path.is_dir()]
    assert sorted(names) == ["checkpoint-3", "tokenizer"]


LIMITED = """
import resource, sys
from hf_seq2seq_attn.training import train as command
write = command._finish
def limited(*args):
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    write(*args)
command._finish = limited
sys.exit(command.main(sys.argv[1:]))
"""


def test_a_full_disk_at_the_end_keeps_what_was_trained(
    toy_files: Callable[..., list[str]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The operating system refuses to write more than 2,000 bytes to a file, in the writers of all libraries."""
    (tmp_path / "toy.yaml").write_text(TINY)
    words = [str(tmp_path / "toy.yaml"), *toy_files(train=PAIRS), "-o", str(tmp_path / "run")]
    script = tmp_path / "limited.py"
    script.write_text(LIMITED)
    ended = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert re.search(r"run: the finished model cannot be written \(.*\); make room and give the same", ended.stderr)
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert main(words) == 0
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["continued_from_step"] == 14


@pytest.mark.parametrize("moved", [0, 3, 7])
def test_killed_while_the_finished_files_are_put_in_place(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    recipe = toy("training.max_steps=2")
    replace, moves = Path.replace, []

    def counted(path: Path, goal: Path) -> Path:
        if path.parent.name == "finished":
            if len(moves) == moved:
                raise Killed
            moves.append(goal.name)
        return replace(path, goal)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", counted)
        with pytest.raises(Killed):
            train(recipe, tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "metrics.json").exists()
    monkeypatch.setattr(Seq2SeqAttnTrainer, "training_step", None)  # nothing is trained again
    result = train(recipe, tmp_path / "run", progress=False)
    assert result.metrics["steps"] == 2
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names >= {"model.safetensors", "metrics.json", "README.md", "recipe.yaml"} and "checkpoints" not in names
    assert "manifest.json" not in names
    assert type(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")) is type(result.model)


@pytest.mark.parametrize("last", ["alignment.json", "report.html", "tokenizer.json"])
def test_what_is_in_place_already_stays_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str) -> None:
    """Of a model before, a choice of heads and a report go; this run's own stay, wherever it was killed."""
    names = ["alignment.json", "metrics.json", "model.safetensors", "tokenizer.json"]
    run = RunFolder(tmp_path)
    for name in names:
        (tmp_path / name).write_text("old")
    (tmp_path / "report.html").write_text("old")
    finished = run.start_finished()
    for name in names:
        (finished / name).write_text("new")
    replace = Path.replace

    def counted(path: Path, goal: Path) -> Path:
        moved = replace(path, goal)
        if path.name == last:
            raise Killed
        return moved

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", counted)
        if last == "report.html":
            run.finish()
        else:
            with pytest.raises(Killed):
                run.finish()
            RunFolder(tmp_path, is_written=True).finish()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(names, "new")


@pytest.mark.parametrize("case", [(["training.max_steps=2"], (), {"train": PAIRS}), CASES[5]], ids=["steps", "early"])
def test_killed_before_the_finished_files_are_all_written(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[list[str], Any, dict[str, int]]
) -> None:
    """Nothing is trained again, not even one step, whether the steps were all done or it stopped early."""
    recipe = toy(*case[0], **case[2])

    def killed(*args: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("hf_seq2seq_attn.training.train.write_card", killed)
        with pytest.raises(Killed):
            train(recipe, tmp_path / "run", progress=False)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["checkpoints"]
    monkeypatch.setattr(Seq2SeqAttnTrainer, "training_step", None)
    metrics = train(recipe, tmp_path / "run", progress=False).metrics
    assert metrics["continued_from_step"] == metrics["steps"] < 30


def test_a_checkpoint_after_a_long_time(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by time, at the next log: it is the one to go on from, and no callback hears of it."""
    monkeypatch.setattr(Seq2SeqAttnTrainer, "rescue_seconds", 0.0)
    whole_step, recipe = Seq2SeqAttnTrainer.training_step, toy("training.save_steps=100")

    def until(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        if trainer.state.global_step == 9:
            raise Killed
        return whole_step(trainer, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Seq2SeqAttnTrainer, "training_step", until)
        with pytest.raises(Killed):
            train(recipe, tmp_path / "run", progress=False)
    assert [path.name for path in list_checkpoints(tmp_path / "run" / "checkpoints")] == ["rescue-8"]
    assert train(recipe, tmp_path / "run", progress=False).metrics["continued_from_step"] == 8
    train(recipe, tmp_path / "whole", progress=False)
    assert (tmp_path / "run/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def test_no_checkpoints_on_request(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seq2SeqAttnTrainer, "_save_checkpoint", None)
    train(toy("training.save_strategy=no", "training.max_steps=3"), tmp_path / "run", progress=False)
    with pytest.raises(TypeError):
        train(toy("training.max_steps=3"), tmp_path / "other", progress=False)
