"""Every shipped recipe runs: two steps on a toy corpus, sizes made small, everything else as shipped."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_seq2seq_attn.training.recipe import Recipe, load_recipe, shipped_recipes
from hf_seq2seq_attn.training.train import train

SMALL = {"d_model": 24, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20}
HEADS = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
NAMES = sorted(shipped_recipes())


def made_small(name: str, toy_files: Callable[..., list[str]]) -> Recipe:
    """Return a shipped recipe on toy files, with fewer layers and units, and few steps."""
    shipped = load_recipe(name)
    files = toy_files(train=24, dev=5, links=("train",) if shipped.alignment else ())
    links = [] if shipped.alignment else ["data.train.links=null", "data.dev.links=null"]
    model: dict[str, Any] = {key: value for key, value in (SMALL | HEADS).items() if key in shipped.model}
    model |= {key: min(shipped.model[key], 2) for key in ("encoder_layers", "decoder_layers")}
    training = {
        "max_steps": 3 if name == "transformer_base" else 2,
        "per_device_train_batch_size": 4,
        "logging_steps": 1,
        "gradient_accumulation_steps": min(shipped.training.get("gradient_accumulation_steps", 1), 2),
    }
    sizes = [f"model.{key}={value}" for key, value in model.items()]
    sizes += [f"training.{key}={value}" for key, value in training.items()]
    return load_recipe(name, [*links, *files, "data.test=null", "tokenizer.vocab_size=100", *sizes])


@pytest.mark.parametrize("name", NAMES)
def test_it_trains_and_its_folder_loads(name: str, toy_files: Callable[..., list[str]], tmp_path: Path) -> None:
    recipe = made_small(name, toy_files)
    metrics = train(recipe, tmp_path / "run", progress=False).metrics
    losses = [entry["loss"] for entry in metrics["history"] if "loss" in entry]
    assert len(losses) == metrics["steps"] == recipe.training["max_steps"]
    assert all(math.isfinite(loss) for loss in losses)
    assert math.isfinite(metrics["dev"]["loss"])
    assert ("guided_loss" in metrics["history"][0]) == (recipe.alignment is not None)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    output = model.generate(**tokenizer("ab cd", return_tensors="pt"), max_new_tokens=4)
    assert output.dtype == torch.int64
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    for key in ("encoder_type", "decoder_type", "cross_attention_type"):
        assert config[key] == load_recipe(name).model[key]


def test_what_ships() -> None:
    wanted = "seq2seq_no_attention bahdanau2015 luong2015 transformer_tiny transformer_base hybrid g2p bible_alignment"
    assert set(NAMES) >= set(wanted.split())


def test_the_baseline_differs_from_bahdanau_in_its_attention_alone() -> None:
    baseline, model = load_recipe("seq2seq_no_attention"), load_recipe("bahdanau2015")
    assert baseline.training == model.training
    assert baseline.tokenizer == model.tokenizer
    attention = {"cross_attention_type", "attend_with"}
    assert {key: value for key, value in baseline.model.items() if key not in attention} == {
        key: value for key, value in model.model.items() if key not in attention
    }


def test_the_base_transformer_is_the_papers() -> None:
    """Vaswani et al. 2017, table 3: 65 million parameters with a shared vocabulary of 37,000."""
    from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration

    recipe = load_recipe("transformer_base")
    with torch.device("meta"):
        model = Seq2SeqAttnForConditionalGeneration(Seq2SeqAttnConfig(vocab_size=37000, **recipe.model))
    assert round(model.num_parameters() / 1e6) in (63, 64, 65)
    assert recipe.schedule is not None
    assert (recipe.model["d_model"], recipe.training["warmup_steps"], recipe.schedule.factor) == (512, 4000, 1)
