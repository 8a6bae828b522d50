"""The loop through recipes: each choice has its effect on a run of the toy language."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.hub import plan_push
from hf_seq2seq_attn.training.train import main
from hf_seq2seq_attn.training.trainer import Seq2SeqAttnTrainer
from hf_seq2seq_attn.training.validation import Validator

Run = Callable[..., dict[str, Any]]


def logged(metrics: dict[str, Any], key: str) -> list[float]:
    return [entry[key] for entry in metrics["history"] if key in entry]


def distance(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    return max(float((weight - theirs["weights"][name]).abs().max()) for name, weight in ours["weights"].items())


def test_steps_and_rates_follow_the_number_of_token_batches(train_toy: Run) -> None:
    epochs = [
        "training.learning_rate=1e-2",
        "training.max_steps=-1",
        "training.num_train_epochs=3",
        "training.warmup_steps=0",
    ]
    metrics = train_toy(*epochs, "batching={tokens: 90}", train=61)
    steps = metrics["steps"] // 3
    assert metrics["steps"] == 3 * steps
    assert steps > 4
    assert metrics["epochs"] == 3
    rates = logged(metrics, "learning_rate")
    assert rates == pytest.approx([1e-2 * (1 - step / (3 * steps)) for step in range(3 * steps)])
    accumulated = train_toy(*epochs, "batching={tokens: 90}", "training.gradient_accumulation_steps=3", train=61)
    assert accumulated["steps"] == 3 * -(-steps // 3)
    assert (
        accumulated["target_tokens_seen"]
        == metrics["target_tokens_seen"]
        == 3 * metrics["data"]["train"]["target_tokens"]
    )


def test_a_step_of_small_batches_is_the_step_of_a_large_one(train_toy: Run) -> None:
    """All sentences in each step: how they are cut into batches must not matter, though batches differ in size."""
    sgd = ["training.optim=sgd", "training.learning_rate=0.5", "training.max_steps=2"]
    whole = train_toy(*sgd, "batching={tokens: 10000}")
    batches = train_toy(*sgd, "batching={tokens: 90}", "training.max_steps=1")
    count = batches["epochs"] ** -1
    cut = train_toy(*sgd, "batching={tokens: 90}", f"training.gradient_accumulation_steps={round(count)}")
    assert round(count) > 3
    assert whole["epochs"] == cut["epochs"] == 2
    assert distance(whole, cut) < 1e-5
    assert logged(cut, "loss") == pytest.approx(logged(whole, "loss"), abs=1e-4)


def test_each_setting_has_its_effect(train_toy: Run) -> None:
    rate = "training.learning_rate=1e-2"
    base = train_toy(rate)
    settings = {
        "label_smoothing": "training.label_smoothing_factor=0.2",
        "dropout": "model.dropout=0.4",
        "bf16": "training.bf16=true",
        "accumulation": "training.gradient_accumulation_steps=2",
    }
    first = {}
    for name, setting in settings.items():
        changed = train_toy(rate, setting)
        assert distance(base, changed) > 1e-6, name
        first[name] = logged(changed, "loss")[0] - logged(base, "loss")[0]
        assert abs(first[name]) > 1e-5, name
    assert abs(first["bf16"]) < 0.05
    assert first["label_smoothing"] != first["dropout"]


def test_clipping_bounds_each_step(train_toy: Run) -> None:
    settings = ["training.learning_rate=1e-2", "training.optim=sgd"]
    start, free = train_toy(*settings, "training.max_steps=0"), train_toy(*settings, "training.max_grad_norm=0")
    clipped = train_toy(*settings, "training.max_grad_norm=0.01")
    # The norm before clipping is what is logged.
    assert logged(clipped, "grad_norm")[0] > 0.1
    moves = [
        sum(float(((weight - start["weights"][name]) ** 2).sum()) for name, weight in metrics["weights"].items()) ** 0.5
        for metrics in (free, clipped)
    ]
    # Four steps down from 1e-2, each along a gradient of length 0.01 at most.
    assert 0 < moves[1] <= 1e-2 * 0.01 * (1 + 0.75 + 0.5 + 0.25) * 1.001
    assert moves[0] > 10 * moves[1]


@pytest.mark.parametrize("every", [1, 50])
def test_a_run_that_has_come_to_nan_ends_with_a_remedy(train_toy: Run, every: int) -> None:
    with pytest.raises(InputError, match=r"step \d: the loss or the weights have become NaN or infinite; lower"):
        train_toy("training.learning_rate=.inf", f"training.logging_steps={every}")


SELECT = ["training.eval_strategy=steps", "training.eval_steps=3", "training.logging_steps=3"]


CONSTANT = ["training.lr_scheduler_type=constant", "training.learning_rate=5e-2"]


def test_the_best_checkpoint_is_kept_and_patience_ends_the_run(train_toy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = iter([10.0, 30.0, 20.0, 30.0, 40.0])
    monkeypatch.setattr(Validator, "__call__", lambda *_: {"chrf": next(scripted)})
    choice = ["validation={metrics: [chrf], beams: 2}", "selection={metric: chrf, patience: 2}"]
    metrics = train_toy(*SELECT, *CONSTANT, *choice, "training.max_steps=60", train=40, dev=9)
    assert logged(metrics, "eval_chrf") == [10, 30, 20, 30]
    assert metrics["steps"] == 12
    assert metrics["dev"]["num_beams"] == 2
    assert "bleu" not in metrics["dev"]
    six_steps = train_toy(*SELECT, *CONSTANT, "training.max_steps=6", train=40, dev=9)
    assert distance(metrics, six_steps) == 0


def test_patience_ends_a_run_that_gains_nothing(train_toy: Run) -> None:
    select = [*SELECT, "training.max_steps=40", "training.learning_rate=0.0", "selection={metric: loss, patience: 2}"]
    metrics = train_toy(*select, train=20, dev=5)
    assert metrics["steps"] == 9


def test_the_dev_loss_is_a_mean_over_tokens_whatever_the_batches(train_toy: Run) -> None:
    sizes = (1, 4, 32)
    losses = [
        train_toy("training.max_steps=0", f"training.per_device_eval_batch_size={size}", train=20, dev=9)["dev"]["loss"]
        for size in sizes
    ]
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-5)


def test_the_dev_loss_is_without_label_smoothing(train_toy: Run) -> None:
    losses = [
        train_toy("training.max_steps=0", f"training.label_smoothing_factor={factor}", train=20, dev=9)["dev"]["loss"]
        for factor in (0.0, 0.3)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_validation_changes_no_weight(train_toy: Run) -> None:
    dropout = ["model.dropout=0.3", "training.max_steps=6"]
    plain = train_toy(*dropout, *SELECT, train=20, dev=7)
    watched = train_toy(*dropout, *SELECT, "validation={metrics: [bleu, wer], limit: 4}", train=20, dev=7)
    assert distance(plain, watched) == 0
    assert len(logged(watched, "eval_wer")) == 2


def test_attention_is_scored_against_gold_links_while_training(train_toy: Run) -> None:
    metrics = train_toy(*SELECT, "validation={metrics: [aer]}", "training.max_steps=3", links=("dev",), train=20, dev=7)
    assert logged(metrics, "eval_aer") == [pytest.approx(metrics["dev"]["aer"], abs=1e-9)]
    assert "chrf" not in metrics["dev"]


def test_the_saved_model_is_the_mean_of_the_last_checkpoints(train_toy: Run) -> None:
    choice = "selection={average: 2}"
    metrics = train_toy(*CONSTANT, "training.max_steps=7", "training.save_steps=3", choice, train=40, dev=9)
    # The Trainer saves the last step too.
    assert metrics["averaging"]["steps"] == [6, 7]
    single = [train_toy(*CONSTANT, f"training.max_steps={step}", train=40, dev=9) for step in (6, 7)]
    for name, weight in metrics["weights"].items():
        expected = (single[0]["weights"][name] + single[1]["weights"][name]) / 2
        torch.testing.assert_close(weight, expected, rtol=0, atol=1e-7)
    unaveraged, averaged, last = metrics["averaging"]["unaveraged"], metrics["dev"], single[1]["dev"]
    assert {name: unaveraged[name] for name in ("chrf", "bleu", "loss")} == pytest.approx(
        {name: last[name] for name in ("chrf", "bleu", "loss")}, abs=1e-3
    )
    assert averaged["loss"] != unaveraged["loss"]


def test_the_mean_of_the_best_checkpoints(train_toy: Run) -> None:
    choice = "selection={metric: loss, average: 2, average_of: best}"
    metrics = train_toy(*SELECT, *CONSTANT, "training.max_steps=15", choice, train=40, dev=9)
    losses = dict(zip((3, 6, 9, 12, 15), logged(metrics, "eval_loss"), strict=False))
    assert metrics["averaging"]["steps"] == sorted(sorted(losses, key=lambda step: losses[step])[:2])
    # The run would have left the best checkpoint.
    assert metrics["averaging"]["unaveraged"]["loss"] == pytest.approx(min(losses.values()), abs=1e-5)
    assert not (metrics["folder"] / "checkpoints").exists()


def test_several_pronunciations_of_a_word(train_toy: Run, tmp_path: Path) -> None:
    (tmp_path / "g.source").write_text("a b\na b\nc d e\n")
    (tmp_path / "g.target").write_text("A\nB A\nE D C\n")
    files = f"data.dev={{source: {tmp_path / 'g.source'}, target: {tmp_path / 'g.target'}}}"
    metrics = [
        train_toy(
            "training.max_steps=1", files, f"validation={{metrics: [per, word_error_rate], several_references: {flag}}}"
        )
        for flag in ("true", "false")
    ]
    assert (metrics[0]["dev"]["pairs"], metrics[0]["dev"]["sources"]) == (3, 2)
    assert metrics[0]["dev"]["per"] <= metrics[1]["dev"]["per"]
    assert "sources" not in metrics[1]["dev"]


def test_event_files_stay_out_of_what_is_shared(train_toy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    metrics = train_toy("training.report_to=tensorboard", *SELECT, train=20, dev=5)
    events = list((metrics["folder"] / "tensorboard").glob("events.out.tfevents.*"))
    assert any(b"eval/loss" in file.read_bytes() for file in events)
    plan = plan_push(metrics["folder"])
    assert not [name for name, _ in plan.files if "tensorboard" in name]
    assert ("tensorboard/", "logs of the training") in plan.left_out


def test_tensorboard_that_is_not_there(train_toy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(InputError, match=r"pip install 'hf-seq2seq-attn\[tensorboard\]'"):
        train_toy("training.report_to=tensorboard")


def test_a_tracker_that_is_not_there(train_toy: Run) -> None:
    with pytest.raises(InputError, match=r"report_to=trakcio: not installed, or not known; .*none"):
        train_toy("training.report_to=trakcio")


def test_an_interrupted_run_ends_with_the_same_mean(train_toy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = ["selection={metric: chrf, average: 3, average_of: best}", "validation={metrics: [chrf], beams: 1}"]
    settings = [*SELECT, *CONSTANT, *choice, "batching={tokens: 90}", "model.dropout=0.3", "training.max_steps=14"]
    whole = train_toy(*settings, train=40, dev=9)
    step, calls = Seq2SeqAttnTrainer.training_step, iter(range(100))

    def break_down(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == 10:
            raise RuntimeError("power cut")
        return step(*args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="power cut"):
        patch.setattr(Seq2SeqAttnTrainer, "training_step", break_down)
        train_toy(*settings, folder="broken", train=40, dev=9)
    again = train_toy(*settings, folder="broken", train=40, dev=9)
    assert again["continued_from_step"] == 9
    assert again["epochs"] == whole["epochs"]
    assert again["averaging"] == whole["averaging"]
    assert distance(again, whole) == 0


def test_two_processes_count_validate_and_choose_as_one(
    toy_recipe_file: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Batches by tokens, each on one of two processes, are the batches that one process accumulates."""
    choice = ["selection={metric: chrf, average: 2}", "validation={metrics: [chrf, exact_match, aer], beams: 2}"]
    length = ["training.max_steps=-1", "training.num_train_epochs=2", "batching={tokens: 70}"]
    # At a small rate the rounding of sums, taken in another order, stays below the tolerance.
    overrides = [*SELECT, *choice, *length, "training.learning_rate=1e-3", "training.lr_scheduler_type=constant"]
    recipe = toy_recipe_file(*overrides, links=("dev",), train=42, dev=9)
    launch = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv-backend=c10d"]
    launch += ["--rdzv-endpoint=localhost:0", "-m", "hf_seq2seq_attn.training.train"]
    outcome = subprocess.run(
        [sys.executable, *launch, *recipe, "-o", str(tmp_path / "two")],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert main([*recipe, "training.gradient_accumulation_steps=2", "-o", str(tmp_path / "one")]) == 0
    one, two = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("one", "two"))
    assert (one["processes"], two["processes"]) == (1, 2)
    assert one["steps"] == two["steps"] > 6
    for key in ("loss", "eval_loss", "eval_chrf", "eval_exact_match", "eval_aer"):
        assert logged(two, key) == pytest.approx(logged(one, key), abs=1e-4), key
    assert two["target_tokens_seen"] == one["target_tokens_seen"] == 2 * one["data"]["train"]["target_tokens"]
    assert two["averaging"]["steps"] == one["averaging"]["steps"]
    weights = [{"weights": load_file(tmp_path / name / "model.safetensors")} for name in ("one", "two")]
    assert distance(*weights) < 1e-5
