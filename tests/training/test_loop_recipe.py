from pathlib import Path

import pytest

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.recipe import load_recipe, save_recipe
from hf_seq2seq_attn.training.selection import loop_arguments

GOOD = """\
data:
  train: {source: a.de, target: a.en}
  dev: {source: b.de, target: b.en, links: b.align}
batching: {tokens: 4096, count: target}
schedule: {factor: 2}
validation:
  metrics: [bleu, aer]
  limit: 50
selection: {metric: bleu, patience: 3, average: 5, average_of: best}
training: {eval_strategy: steps, eval_steps: 200, warmup_steps: 400, max_steps: 9000}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "loop.yaml"
    path.write_text(GOOD, encoding="utf-8")
    return path


def test_sections_of_the_loop_are_read_and_written(path: Path, tmp_path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.batching is not None
    assert recipe.validation is not None
    assert recipe.selection is not None
    assert recipe.schedule is not None
    assert (recipe.batching.tokens, recipe.batching.count, recipe.batching.sentences) == (4096, "target", None)
    assert (recipe.validation.metrics, recipe.validation.beams) == (["bleu", "aer"], 4)
    assert (recipe.selection.patience, recipe.schedule.factor) == (3, 2.0)
    save_recipe(recipe, tmp_path / "again.yaml")
    assert load_recipe(tmp_path / "again.yaml") == recipe


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("batching.token=1", r"batching has no field 'token'; did you mean tokens\?"),
        ("batching.tokens=0", "batching.tokens=0: must be at least 1"),
        ("batching.count=words", "batching.count='words': choose one of both, source, target, longest"),
        ("batching={count: both}", "batching.tokens is missing"),
        ("training.train_sampling_strategy=random", "leave one of the two out"),
        ("training.dataloader_drop_last=true", "batching drops no sentence"),
        ("data.streaming=true", "batching by tokens needs all pairs in memory"),
        ("schedule.form=noam", "schedule.form='noam': choose one of vaswani2017"),
        ("schedule.factor=0", "must be above 0"),
        ("training.learning_rate=1e-3", "training.learning_rate is not set beside a schedule section"),
        ("training.warmup_steps=0", "rises during training.warmup_steps"),
        ("validation.metrics=[bleu, blue]", "no metric 'blue'; known are bleu, chrf, wer"),
        ("validation.beams=0", "validation.beams=0"),
        ("validation.bleu_tokenize=moses", "choose one of none, 13a"),
        ("data.dev.links=null", "aer needs gold links; name data.dev.links"),
        ("model.cross_attention_type=none", "aer needs a model with attention"),
        ("data.dev=null", "validation needs data.dev"),
        ("selection.metric=belu", "no such metric; known are bleu, chrf"),
        ("selection.metric=wer", "is not measured; add it to validation.metrics, or choose one of loss, bleu, aer"),
        ("selection={patience: 3}", "selection.patience needs selection.metric"),
        ("selection={average: 3, average_of: best}", "average_of=best needs selection.metric"),
        ("selection={}", "selection selects nothing"),
        ("selection.average_of=mean", "choose one of last, best"),
        ("training.load_best_model_at_end=true", "is not set beside a selection section"),
        ("training.eval_strategy=no", "set training.eval_strategy=steps"),
        ("training.save_strategy=no", "a selection is made among checkpoints; leave it out"),
        ("training.save_strategy=epoch", r"checkpoints of validations \(training.eval_strategy=steps\); leave it out"),
        ("training.generation_num_beams=8", "is not read beside a validation section; set validation.beams"),
        ("training.per_device_train_batch_size=0", "training.per_device_train_batch_size=0: must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused_where_it_stands(path: Path, override: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_recipe(path, [override])


def test_validation_needs_something_to_validate_on(path: Path) -> None:
    with pytest.raises(InputError, match=r"loop\.yaml:10: training.eval_strategy=steps needs data.dev"):
        load_recipe(path, ["data.dev=null", "validation=null", "selection=null"])


def test_a_place_in_the_file_is_named(path: Path) -> None:
    path.write_text(GOOD.replace("[bleu, aer]", "[bleu, blue]"), encoding="utf-8")
    with pytest.raises(InputError, match=r"loop\.yaml:7: validation\.metrics"):
        load_recipe(path)


def test_selection_decides_when_checkpoints_are_written(path: Path) -> None:
    recipe = load_recipe(path)
    defaults = {"save_strategy": "no", "logging_steps": 50}
    found = loop_arguments(recipe.selection, defaults, recipe.training)
    assert found["metric_for_best_model"] == "eval_bleu"
    assert found["greater_is_better"]
    assert (found["save_strategy"], found["save_steps"]) == ("steps", 200)
    found = loop_arguments(recipe.selection, defaults, {"eval_strategy": "epoch"})
    assert found["save_strategy"] == "epoch"
    assert "save_steps" not in found
    loss = load_recipe(path, ["selection={metric: loss}", "training.save_steps=400"])
    found = loop_arguments(loss.selection, defaults, loss.training)
    assert found["save_steps"] == 400
    assert not found["greater_is_better"]
    assert loop_arguments(None, defaults, {"eval_strategy": "epoch"}) == {**defaults, "eval_strategy": "epoch"}
    told = load_recipe(path, ["selection={metric: loss, greater_is_better: true}"])
    assert loop_arguments(told.selection, defaults, told.training)["greater_is_better"]
