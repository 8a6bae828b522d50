from pathlib import Path

import pytest

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.recipe import Recipe, load_recipe, save_recipe, shipped_recipes

GOOD = """\
# a comment
name: tiny
data:
  train: {source: a.no, target: a.en, links: a.align}
  source_language: no
tokenizer:
  vocab_size: 300
model:
  decoder_type: gru
  d_model: 16
training:
  learning_rate: 1e-3
  eval_strategy: no
  max_steps: 5
alignment:
  weight: 2
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(GOOD, encoding="utf-8")
    return path


def test_values_arrive_typed(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.data.train.links == "a.align"
    assert recipe.data.source_language == "no"  # to YAML 1.1 this is False
    assert recipe.training == {"learning_rate": 0.001, "eval_strategy": "no", "max_steps": 5}
    assert recipe.alignment is not None
    assert (recipe.alignment.weight, recipe.alignment.heads) == (2.0, [0])
    assert recipe.tokenizer is not None
    assert (recipe.tokenizer.vocab_size, recipe.tokenizer.kind) == (300, "bpe")


def test_overrides_win_and_may_drop_a_section(path: Path) -> None:
    recipe = load_recipe(
        path, ["training.learning_rate=3e-4", "model.d_model=24", "alignment=null", "data.dev={source: b, target: c}"]
    )
    assert recipe.training["learning_rate"] == 3e-4
    assert recipe.model["d_model"] == 24
    assert recipe.alignment is None
    assert recipe.data.dev is not None
    assert recipe.data.dev.target == "c"


def test_saved_recipe_reads_back_equal(path: Path, tmp_path: Path) -> None:
    recipe = load_recipe(path, ["training.learning_rate=1e-5", "data.attribution='Ἰωάννης: 1:1'"])
    save_recipe(recipe, tmp_path / "again.yaml")
    assert load_recipe(tmp_path / "again.yaml") == recipe


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("d_model: 16", "d_modl: 16", 10, "model has no field 'd_modl'; did you mean d_model?"),
        ("learning_rate: 1e-3", "learning_rate: fast", 12, "training.learning_rate='fast': must be float"),
        ("d_model: 16", "d_model: wide", 10, "model.d_model='wide': must be int"),
        ("max_steps: 5", "max_step: 5", 14, "training has no field 'max_step'; did you mean max_steps?"),
        ("data:", "dat:", 3, "a recipe has no field 'dat'; did you mean data?"),
        ("vocab_size: 300", "vocab_size: many", 7, "tokenizer.vocab_size='many': must be int, not str"),
        ("vocab_size: 300", "vocab_size: true", 7, "tokenizer.vocab_size=True: must be int, not bool"),
        ("vocab_size: 300", "kind: wordpiece", 7, "choose one of bpe, unigram"),
        ("weight: 2", "rows: sideways", 16, "choose input, output or null"),
        ("weight: 2", "heads: 0", 16, "must be a list"),
        (", target: a.en", "", 4, "data.train.target is missing"),
        (", links: a.align", "", 15, "guided attention needs data.train.links"),
        ("d_model: 16", "vocab_size: 16", 10, "model.vocab_size is not set here; it follows from the tokenizer"),
        ("d_model: 16", "init_from: x", 6, "brings its own tokenizer"),
        ("max_steps: 5", "output_dir: x", 14, "it is the -o of the command"),
        ("max_steps: 5", "resume_from_checkpoint: x", 14, "goes on when the same command is given again"),
        ("model:\n", "model: [\n", 10, "not YAML"),
    ],
)
def test_a_bad_file_is_refused_at_its_line(path: Path, old: str, new: str, line: int, message: str) -> None:
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError) as refusal:
        load_recipe(path)
    assert str(refusal.value).startswith(f"{path}:{line}: ")
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.d_modl=3", "did you mean d_model?"),
        ("modle.d_model=3", "did you mean model?"),
        ("training.max_steps", "write field=value"),
        ("tokenizer.vocab_size=big", "must be int, not str"),
        ("name.first=x", "holds a value, not fields"),
        ("name=[", "not YAML"),
    ],
)
def test_a_bad_override_is_named(path: Path, override: str, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        load_recipe(path, [override])
    assert str(refusal.value).startswith(f"{override}: ")
    assert message in str(refusal.value)


def test_a_file_that_is_not_utf_8_is_refused(path: Path) -> None:
    path.write_bytes(GOOD.replace("tiny", "Größe").encode("latin-1"))
    with pytest.raises(InputError, match=r"tiny\.yaml:2: not UTF-8"):
        load_recipe(path)


def test_an_empty_or_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(InputError, match="a recipe is a table"):
        load_recipe(tmp_path / "empty.yaml")
    with pytest.raises(InputError, match=r"no such recipe; .* bahdanau2015"):
        load_recipe(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_shipped_recipes_load_by_name(name: str) -> None:
    recipe = load_recipe(name)
    assert isinstance(recipe, Recipe)
    assert recipe.name == name


def test_what_ships() -> None:
    assert set(shipped_recipes()) >= {"bible_alignment", "bahdanau2015", "luong2015"}
