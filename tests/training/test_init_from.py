"""A recipe continues from a model of ours or from any other encoder-decoder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from guided_toys import NAMES, guided_model
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.recipe import Recipe, load_recipe
from hf_seq2seq_attn.training.train import train

RECIPE = """\
name: continued
data: {train: {source: '', target: ''}}
training: {max_steps: 8, per_device_train_batch_size: 8, learning_rate: 1e-2, lr_scheduler_type: constant,
  logging_steps: 1}
"""

MakeRecipe = Callable[..., Recipe]


@pytest.fixture
def continuing(toy_files: Callable[..., list[str]], tmp_path: Path) -> MakeRecipe:
    (tmp_path / "continued.yaml").write_text(RECIPE)

    def make(folder: Path, *overrides: str) -> Recipe:
        files = toy_files(train=24, dev=5)
        return load_recipe(tmp_path / "continued.yaml", [*files, f"model.init_from={folder}", *overrides])

    return make


@pytest.fixture
def saved(tmp_path: Path, toy_tokenizer: PreTrainedTokenizerFast) -> Callable[..., Path]:
    def save(name: str, tokenizer: Any = None, **fields: Any) -> Path:
        folder = tmp_path / name
        guided_model(name, fields.pop("vocab_size", len(toy_tokenizer)), **fields).save_pretrained(folder)
        (tokenizer or toy_tokenizer).save_pretrained(folder)
        return folder

    return save


@pytest.mark.parametrize("name", NAMES)
def test_training_starts_where_the_model_stood_and_guides_it(
    name: str, continuing: MakeRecipe, saved: Callable[..., Path], tmp_path: Path
) -> None:
    folder = saved(name)
    untouched = train(continuing(folder, "training.max_steps=0"), tmp_path / "untouched", progress=False)
    before = AutoModelForSeq2SeqLM.from_pretrained(folder)
    for key, value in before.state_dict().items():
        assert torch.equal(value, untouched.model.state_dict()[key]), key
    guided = train(continuing(folder, "alignment={weight: 5, rows: output}"), tmp_path / "guided", progress=False)
    assert guided.metrics["dev"]["loss"] < untouched.metrics["dev"]["loss"]
    losses = [entry["guided_loss"] for entry in guided.metrics["history"] if "guided_loss" in entry]
    assert len(losses) == 8
    assert losses[-1] < losses[0]
    after = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "guided")
    assert type(after) is type(before)
    assert "aer" in guided.metrics["dev"]
    card = (tmp_path / "guided" / "README.md").read_text()
    assert f"It continues from `{name}`" in card
    # A run of ours continues in turn, of others too.
    again = train(continuing(tmp_path / "guided", "training.max_steps=1"), tmp_path / "again", progress=False)
    assert again.metrics["steps"] == 1


@pytest.mark.parametrize("name", ["ours-recurrent", "m2m_100"])
def test_fields_may_change_and_wrong_ones_are_refused(
    name: str, continuing: MakeRecipe, saved: Callable[..., Path], tmp_path: Path
) -> None:
    folder = saved(name)
    result = train(continuing(folder, "model.dropout=0.25", "training.max_steps=1"), tmp_path / "run", progress=False)
    assert result.model.config.dropout == 0.25
    for override, message in (
        ("model.dropuot=0.25", r"no field 'dropuot'; did you mean dropout\?"),
        ("model.dropout=much", "model section of the recipe: .*'dropout'"),
        ("model.d_model=24", r"its weights have other shapes .* \(it has d_model\)"),
    ):
        with pytest.raises(InputError, match=message):
            train(continuing(folder, override), tmp_path / "other", progress=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_tokenizer_that_does_not_fit_is_refused(
    name: str, continuing: MakeRecipe, saved: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"the tokenizer has \d+ entries, the model 9"):
        train(continuing(saved(name, vocab_size=9)), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("field", "value"), [("pad_token_id", 5), ("eos_token_id", 7)])
def test_special_tokens_that_mean_something_else_are_refused(
    field: str, value: int, continuing: MakeRecipe, saved: Callable[..., Path], tmp_path: Path
) -> None:
    folder = saved("bart", **{field: value})
    with pytest.raises(InputError, match=rf"{field} is \d in the tokenizer and {value} in the model"):
        train(continuing(folder), tmp_path / "run", progress=False)


def test_a_folder_without_model_or_tokenizer_is_refused(
    continuing: MakeRecipe, toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no tokenizer there"):
        train(continuing(tmp_path / "empty"), tmp_path / "run", progress=False)
    guided_model("marian", 30).save_pretrained(tmp_path / "bare")
    with pytest.raises(InputError, match="no tokenizer there"):
        train(continuing(tmp_path / "bare"), tmp_path / "run", progress=False)
