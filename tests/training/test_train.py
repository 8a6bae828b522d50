import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.recipe import Recipe, load_recipe
from hf_seq2seq_attn.training.train import TrainResult, main, train

TINY = """\
name: toy
license: cc0-1.0
data: {train: {source: '', target: ''}, source_language: la, target_language: LA, max_target_length: 12}
tokenizer: {vocab_size: 100}
model: {encoder_type: gru, decoder_type: gru, cross_attention_type: additive, encoder_layers: 1, decoder_layers: 1,
  d_model: 32, dropout: 0.0, cross_attention_heads: 2, init_std: 0.3}
training: {max_steps: 30, per_device_train_batch_size: 16, learning_rate: 2e-2, logging_steps: 5, seed: 7,
  eval_strategy: steps, eval_steps: 15, lr_scheduler_type: constant}
alignment: {weight: 3, rows: input}
"""

Toy = Callable[..., Recipe]


@pytest.fixture
def toy_recipe(toy_files: Callable[..., list[str]], tmp_path: Path) -> Toy:
    (tmp_path / "toy.yaml").write_text(TINY)

    def make(*overrides: str, **files: Any) -> Recipe:
        return load_recipe(tmp_path / "toy.yaml", [*toy_files(**files), *overrides])

    return make


def test_guidance_brings_loss_and_error_rate_down(toy_recipe: Toy, tmp_path: Path) -> None:
    untrained = train(toy_recipe("training.max_steps=0"), tmp_path / "untrained", progress=False).metrics
    result = train(toy_recipe(), tmp_path / "run", progress=False)
    metrics = result.metrics
    assert (untrained["steps"], metrics["steps"]) == (0, 30)
    assert untrained["dev"]["aer"] > 0.5
    assert metrics["dev"]["aer"] < 0.15
    assert metrics["dev"]["align_with"] == "input"
    assert metrics["dev"]["guided_loss"] < untrained["dev"]["guided_loss"] / 3
    assert metrics["dev"]["loss"] < untrained["dev"]["loss"]
    steps = [(entry["step"], entry["guided_loss"]) for entry in metrics["history"] if "guided_loss" in entry]
    assert [step for step, _ in steps] == [5, 10, 15, 20, 25, 30]
    check_run_directory(result)


def check_run_directory(result: TrainResult) -> None:
    folder = result.run_dir
    names = {path.name for path in folder.iterdir()}
    wanted = "README.md config.json model.safetensors generation_config.json tokenizer.json metrics.json recipe.yaml"
    assert names >= {*wanted.split(), "curve.png", "attention.png", "modeling_seq2seq_attn.py"}
    assert not [name for name in names if Path(name).suffix in (".bin", ".pt", ".pth", ".pkl")]
    assert "checkpoints" not in names
    assert json.loads((folder / "metrics.json").read_text())["dev"] == result.metrics["dev"]
    assert load_recipe(folder / "recipe.yaml").training["max_steps"] == 30
    for name in ("curve.png", "attention.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")

    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert model.config.use_cache
    assert model.config.alignment_heads == [0]
    # Not the library's 20 tokens.
    assert model.generation_config.max_length == 13
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(["ab cd ef"], text_target=["EF CD AB"], return_tensors="pt")
    result.model.eval()
    assert torch.equal(model(**batch).logits, result.model(**batch).logits)


def test_the_same_seed_gives_the_same_weights(toy_recipe: Toy, tmp_path: Path) -> None:
    weights = []
    for number, seed in enumerate((7, 7, 8)):
        recipe = toy_recipe("training.max_steps=3", f"training.seed={seed}", "model.dropout=0.3")
        train(recipe, tmp_path / str(number), progress=False)
        weights.append((tmp_path / str(number) / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_without_dev_links_or_guidance(toy_recipe: Toy, tmp_path: Path) -> None:
    recipe = toy_recipe(
        "alignment=null", "training.eval_strategy=no", "training.max_steps=2", links=("train",), train=20, dev=3
    )
    metrics = train(recipe, tmp_path / "run", progress=False).metrics
    assert "aer" not in metrics["dev"]
    assert not any("guided_loss" in entry for entry in metrics["history"])
    recipe = toy_recipe("alignment=null", "training.eval_strategy=no", "training.max_steps=1", links=(), train=20)
    recipe.model |= {"cross_attention_type": "none", "cross_attention_heads": None}
    metrics = train(recipe, tmp_path / "fixed", progress=False).metrics
    assert "dev" not in metrics
    assert not (tmp_path / "fixed" / "attention.png").exists()
    assert "Model examination" not in (tmp_path / "fixed" / "README.md").read_text()


def test_a_foreign_model_is_continued(toy_recipe: Toy, toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    ids = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0, "vocab_size": len(toy_tokenizer)}
    sizes = {"d_model": 12, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    config = MarianConfig(**ids, **sizes, encoder_attention_heads=2, decoder_attention_heads=2)
    MarianMTModel(config).save_pretrained(tmp_path / "marian")
    toy_tokenizer.save_pretrained(tmp_path / "marian")
    recipe = toy_recipe("tokenizer=null", f"model={{init_from: {tmp_path / 'marian'}}}", "training.max_steps=2")
    result = train(recipe, tmp_path / "run", progress=False)
    assert result.metrics["dev"]["align_with"] == "input"
    assert type(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")) is MarianMTModel

    recipe.model["dropuot"] = 0.3
    with pytest.raises(InputError, match=r"no field 'dropuot'; did you mean dropout\?"):
        train(recipe, tmp_path / "other", progress=False)
    MarianMTModel(MarianConfig(**{**config.to_dict(), "vocab_size": 9})).save_pretrained(tmp_path / "marian")
    del recipe.model["dropuot"]
    with pytest.raises(InputError, match=r"the tokenizer has \d+ entries, the model 9"):
        train(recipe, tmp_path / "other", progress=False)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.cross_attention_type=multiplicative"], "model section of the recipe: .*multiplicative"),
        (["model.cross_attention_heads=1"], "alignment section of the recipe: .*rows='input'"),
        (["training.eval_strategy=sometimes"], "training section of the recipe: .*sometimes"),
        (["tokenizer.vocab_size=5"], "tokenizer section of the recipe: .*must be at least"),
        (["data.max_target_length=1"], "data.train section of the recipe: none of 120 pairs is left"),
    ],
)
def test_choices_that_cannot_be_are_refused_by_section(
    toy_recipe: Toy, tmp_path: Path, overrides: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        train(toy_recipe(*overrides), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_model_is_not_overwritten_unasked(toy_recipe: Toy, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.safetensors").write_bytes(b"precious")
    with pytest.raises(InputError, match=r"already holds a model; .* --overwrite"):
        train(toy_recipe(), tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == b"precious"


def test_the_command(toy_files: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "toy.yaml").write_text(TINY)
    overrides = [*toy_files(train=20, dev=3), "training.max_steps=1"]
    assert main([str(tmp_path / "toy.yaml"), *overrides, "-o", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{tmp_path / 'run'}\n"
    assert "training 1/1" in captured.err
    assert "tokens/s" in captured.err
    assert "it/s]" not in captured.err
    assert main([str(tmp_path / "toy.yaml"), "training.max_stepz=1", "-o", str(tmp_path / "other")]) == 2
    assert "did you mean max_steps?" in capsys.readouterr().err


TWO_PROCESSES = """
import json, sys
from hf_seq2seq_attn.training.data import encode_corpus, read_corpus
from hf_seq2seq_attn.training.collation import Seq2SeqCollator
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.train import train
from hf_seq2seq_attn.training.trainer import Seq2SeqAttnTrainer
from transformers import Seq2SeqTrainingArguments

recipe_path, folder, *overrides = sys.argv[1:]
recipe = load_recipe(recipe_path, overrides)
result = train(recipe, folder, progress=False)
eleven = encode_corpus(read_corpus(recipe.data.dev), result.tokenizer)[0].select(range(11))
trainer = Seq2SeqAttnTrainer(
    model=result.model,
    args=Seq2SeqTrainingArguments(
        folder + "/x", use_cpu=True, remove_unused_columns=False, predict_with_generate=True,
        per_device_eval_batch_size=2, report_to="none",
    ),
    data_collator=Seq2SeqCollator(result.tokenizer, result.model),
    processing_class=result.tokenizer,
    compute_metrics=lambda found: {"scored": len(found.predictions)},
)
predicted = trainer.predict(eleven)
scored = predicted.metrics["test_scored"]
pad = result.tokenizer.pad_token_id
labels = [[token for token in row.tolist() if token not in (-100, pad)] for row in predicted.label_ids]
in_order = labels == [list(row) for row in eleven["labels"]]
if trainer.is_world_process_zero():
    print(json.dumps({"processes": trainer.accelerator.num_processes, "scored": scored, "in_order": in_order}))
"""


def test_two_processes_train_and_score_as_one(toy_files: Callable[..., list[str]], tmp_path: Path) -> None:
    """Two processes with half the batch each give the weights of one, and score each of 11 sentences once."""
    (tmp_path / "toy.yaml").write_text(TINY)
    (tmp_path / "two.py").write_text(TWO_PROCESSES)
    overrides = [*toy_files(train=32, dev=12), "training.max_steps=2", "training.eval_strategy=no"]
    overrides += ["training.train_sampling_strategy=sequential", "training.per_device_eval_batch_size=4"]
    # Adam turns rounding of a tiny gradient into a step of its own: at a small rate it stays below the tolerance.
    overrides += ["training.learning_rate=1e-3"]
    launch = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv-backend=c10d"]
    launch += ["--rdzv-endpoint=localhost:0", str(tmp_path / "two.py"), str(tmp_path / "toy.yaml")]
    halves = ["training.per_device_train_batch_size=8", "training.per_device_eval_batch_size=2"]
    outcome = subprocess.run(
        [sys.executable, *launch, str(tmp_path / "two"), *overrides, *halves],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert json.loads(outcome.stdout.splitlines()[-1]) == {"processes": 2, "scored": 11, "in_order": True}

    one = train(load_recipe(tmp_path / "toy.yaml", overrides), tmp_path / "one", progress=False).metrics
    two = json.loads((tmp_path / "two" / "metrics.json").read_text())
    assert (one["processes"], two["processes"]) == (1, 2)
    assert two["dev"]["loss"] == pytest.approx(one["dev"]["loss"], abs=1e-5)
    assert two["dev"]["guided_loss"] == pytest.approx(one["dev"]["guided_loss"], abs=1e-5)
    ours, theirs = (AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name).state_dict() for name in ("one", "two"))
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name], rtol=0, atol=1e-5)
