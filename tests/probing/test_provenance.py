"""What a result says about its model."""

import json
from pathlib import Path

import pytest
from variants import tiny_model

from hf_seq2seq_attn.probing import library_versions, model_record


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_model().save_pretrained(folder)
    return folder


def test_a_folder_is_known_by_its_content(folder: Path) -> None:
    record = model_record(folder)
    assert record["name"] == str(folder)
    assert record["revision"] is not None and record["revision"].startswith("sha256:")
    assert model_record(type(tiny_model()).from_pretrained(folder)) == record
    (folder / "README.md").write_text("a card")
    (folder / "metrics.json").write_text("{}")
    assert model_record(folder) == record, "the card is not the model"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"alignment_layer": 0}))
    assert model_record(folder)["revision"] != record["revision"]


def test_a_model_that_was_never_saved() -> None:
    assert model_record(tiny_model()) == {"name": "Seq2SeqAttnForConditionalGeneration", "revision": None}


def test_the_commit_of_the_hub_is_the_revision() -> None:
    model = tiny_model()
    model.config._commit_hash = "0123abc"
    assert model_record(model)["revision"] == "0123abc"


def test_a_name_that_leads_nowhere_has_no_revision() -> None:
    assert model_record("no/such/model") == {"name": "no/such/model", "revision": None}


def test_the_versions_name_what_computes() -> None:
    assert {"hf-seq2seq-attn", "torch", "transformers", "numpy", "python"} == set(library_versions())
