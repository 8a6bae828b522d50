"""A choice saved with a model: read again from its folder, carried on by save_pretrained, refused when broken."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probes import SENTENCES, foreign_model, subword_tokenizer
from transformers import AutoModelForSeq2SeqLM

from hf_seq2seq_attn.probing import extract
from hf_seq2seq_attn.probing.head_fit import HeadFit
from hf_seq2seq_attn.probing.saved_choice import CHOICE_FILE, AlignmentChoice, read_choice, save_choice, saved_choice
from hf_seq2seq_attn.text_files import InputError

CHOICE = AlignmentChoice(((2, 1), (0, 2)), "output", specials="null", links="mutual", provenance={"score": 0.5})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    foreign_model("marian").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def load(folder: Path) -> Any:
    return AutoModelForSeq2SeqLM.from_pretrained(folder)


def test_a_choice_is_found_again_with_the_model(folder: Path, tmp_path: Path) -> None:
    model = load(folder)
    assert saved_choice(model) is None
    before = json.loads((folder / "generation_config.json").read_text())
    save_choice(folder, CHOICE, model)
    assert saved_choice(model) == saved_choice(load(folder)) == CHOICE
    generation = json.loads((folder / "generation_config.json").read_text())
    before.pop("_from_model_config", None)
    assert generation == before | {"alignment_heads": [[2, 1], [0, 2]], "alignment_rows": "output"}
    # The heads and rows go where the model goes, as Whisper's do.
    for number, each in enumerate((model, load(folder))):
        elsewhere = tmp_path / f"elsewhere{number}"
        each.save_pretrained(elsewhere)
        assert not (elsewhere / CHOICE_FILE).exists()
        moved = load(elsewhere)
        assert moved.generation_config.alignment_heads == [[2, 1], [0, 2]]
        assert saved_choice(moved) == AlignmentChoice(((2, 1), (0, 2)), "output")


def test_a_fit_is_saved_to_the_last_bit(folder: Path) -> None:
    model = load(folder)
    maps = {
        rows: next(extract(model, subword_tokenizer(), SENTENCES[:1], SENTENCES[1:2], align_with=rows))
        for rows in ("output", "input")
    }
    weights = np.random.default_rng(0).normal(size=(2, 3, 3))
    fit = HeadFit(("output", "input"), (0, 1, 2), (0, 1, 2), weights, -1.5, 0.3, 0.35, "mask")
    save_choice(folder, AlignmentChoice(((1, 1),), "input", links="threshold:0.35", fit=fit))
    found = saved_choice(load(folder))
    assert found is not None
    assert found.fit is not None
    assert found.name == "all heads, fitted"
    assert np.array_equal(found.fit.probabilities(maps), fit.probabilities(maps))


def test_a_model_that_was_never_saved_may_still_name_its_heads() -> None:
    model = foreign_model("bart")
    assert saved_choice(model) is None
    model.generation_config.alignment_heads = [[0, 2]]
    assert saved_choice(model) == AlignmentChoice(((0, 2),), "input")
    model.generation_config.alignment_heads = [3]
    with pytest.raises(ValueError, match=r"generation_config.alignment_heads is \[3\]; it must be a list of \[layer"):
        saved_choice(model)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "holds no choice"),
        ('{"version": 2}', "version is 2; this release reads 1"),
        ('{"version": 1}', "a field is missing or wrong"),
        (json.dumps(CHOICE.as_dict() | {"align_with": "both"}), "align_with is 'both'"),
        (json.dumps(CHOICE.as_dict() | {"weights": "x"}), "weights is 'x'; allowed are attention"),
        (json.dumps(CHOICE.as_dict() | {"links": "best"}), "links is 'best'"),
        (json.dumps(CHOICE.as_dict() | {"alignment_heads": []}), "must be a list of .layer, head. pairs"),
        (json.dumps(CHOICE.as_dict() | {"fit": {"rows": ["output"]}}), "fit cannot be read"),
    ],
)
def test_a_broken_file_is_named_and_not_passed_over(folder: Path, content: str, message: str) -> None:
    (folder / CHOICE_FILE).write_text(content)
    with pytest.raises(InputError, match=f"{CHOICE_FILE}: .*{message}"):
        saved_choice(load(folder))


def test_places_that_are_no_models_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder with a model"):
        save_choice(tmp_path, CHOICE)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="cannot be read"):
        read_choice(tmp_path / CHOICE_FILE)


def test_choices_are_checked_when_made() -> None:
    with pytest.raises(ValueError, match="specials is 'drop'"):
        AlignmentChoice(((0, 0),), "output", specials="drop")
    with pytest.raises(ValueError, match="heads is"):
        AlignmentChoice(((0, -1),), "output")
