import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from transformers import PreTrainedTokenizerFast, set_seed

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.training.card import card_text, write_card
from hf_seq2seq_attn.training.data_recipe import CorpusFiles, DataRecipe
from hf_seq2seq_attn.training.recipe import AlignmentRecipe, Recipe, save_recipe
from hf_seq2seq_attn.training.run_record import hardware, versions, write_metrics

SCORES = {
    "pairs": 11,
    "chrf": 12.345,
    "chrf_signature": "nrefs:1|case:mixed",
    "loss": 2.5,
    "aer": 0.1234,
    "precision": 0.9,
    "recall": 0.8,
    "aer_ci95": [0.1, 0.15],
    "sentences": 11,
    "align_with": "output",
}


def metrics(**more: Any) -> dict[str, Any]:
    return {
        "name": "toy",
        "started": "2026-01-02T03:04:05+00:00",
        "seconds": 1.5,
        "steps": 30,
        "epochs": 2.0,
        "seed": 7,
        "processes": 1,
        "parameters": 12345,
        "data": {"train": {"pairs": 103, "kept": 100, "blank": 1, "too_long": 2}},
        "versions": versions(),
        "hardware": hardware(),
        "example": {"source": "ab 'cd' \"ef\" ```", "target": "EF"},
        **more,
    }


def recipe(**more: Any) -> Recipe:
    files = CorpusFiles("s", "t", "l")
    data = DataRecipe(files, source_language="la", target_language="el", attribution="Texts by Ἰωάννης.")
    return Recipe("toy", data, alignment=AlignmentRecipe(weight=2.0), license="cc0-1.0", **more)


@pytest.fixture
def run_dir(tmp_path: Path, toy_tokenizer: PreTrainedTokenizerFast) -> Path:
    set_seed(0)
    config = Seq2SeqAttnConfig(
        vocab_size=len(toy_tokenizer),
        d_model=8,
        encoder_type="gru",
        decoder_type="gru",
        encoder_layers=1,
        decoder_layers=1,
    )
    Seq2SeqAttnForConditionalGeneration(config).save_pretrained(tmp_path)
    toy_tokenizer.save_pretrained(tmp_path)
    write_metrics(tmp_path / "metrics.json", metrics(dev=SCORES))
    save_recipe(recipe(), tmp_path / "recipe.yaml")
    (tmp_path / "attention.png").write_bytes(b"")
    return tmp_path


def test_front_matter_is_valid_and_says_what_was_measured(run_dir: Path) -> None:
    card = ModelCard.load(write_card(run_dir))
    data = card.data.to_dict()
    assert data["language"] == ["la", "el"]
    assert data["license"] == "cc0-1.0"
    assert data["pipeline_tag"] == "translation"
    assert "custom_code" in data["tags"]
    assert "null" not in json.dumps(data)
    results = {result.metric_type: result.metric_value for result in card.data.eval_results or []}
    assert results == {key: SCORES[key] for key in ("chrf", "loss", "aer", "precision", "recall")}
    assert "nrefs:1" in str(data["model-index"])


def test_body_has_every_part_and_nothing_blank(run_dir: Path) -> None:
    text = write_card(run_dir).read_text(encoding="utf-8")
    for wanted in (
        "| alignment error rate | 0.123 |",
        "| chrF | 12.3 |",
        "Texts by Ἰωάννης.",
        "(output rows)",
        "(attention.png)",
        "2 training pairs were left out as too long, 1 as blank",
        "seed 7",
        "12,345 parameters",
        "guided by word links (weight 2)",
    ):
        assert wanted in text
    assert "curve.png" not in text
    assert not re.search(r"More Information Needed|TODO|None|nan\b", text)


def test_the_code_runs_as_pasted(run_dir: Path) -> None:
    text = write_card(run_dir).read_text(encoding="utf-8")
    blocks = re.findall(r"^(`{3,})python\n(.*?)^\1$", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    code = "\n".join(block for _, block in blocks)
    # Our package first: what is registered wins over the code in the folder, as for a reader who has installed it.
    command = [sys.executable, "-c", "import hf_seq2seq_attn\n" + code]
    outcome = subprocess.run(command, cwd=run_dir, capture_output=True, text=True, timeout=200, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.count("\n") == 2


def test_a_run_without_scores_links_or_licence_has_no_empty_lines_for_them() -> None:
    config = {
        "model_type": "seq2seq_attn",
        "encoder_type": "gru",
        "decoder_type": "gru",
        "cross_attention_type": "none",
    }
    bare = Recipe("toy", DataRecipe(CorpusFiles("s", "t")))
    text = card_text(metrics(), bare, config, pictures=set())
    assert "model-index" not in text
    assert "license" not in text
    assert "## Numbers" not in text
    assert "Model examination" not in text
    assert "probing" not in text


def test_pairs_are_those_that_were_drawn_and_no_measure_stands_twice() -> None:
    corpora = [{"kept": 100, "drawn": 31}, {"kept": 7, "drawn": 21}]
    train = {"kept": 107, "drawn": 52, "blank": 0, "too_long": 0, "corpora": corpora}
    scores = {"pairs": 3, "wer": 0.5, "per": 0.5, "exact_match": 0.25, "word_error_rate": 0.75}
    text = card_text(metrics(data={"train": train}, dev=scores), recipe(), {"model_type": "marian"}, set())
    assert "trained on 38 sentence pairs in" in text
    assert "38 sentence pairs of 2 corpora" in text
    assert [text.count(f"type: {name}\n") for name in ("wer", "per", "exact_match", "word_error_rate")] == [1] * 4
    train["corpora"] = corpora[:1]
    one = card_text(metrics(data={"train": train}), recipe(), {"model_type": "marian"}, set())
    assert "31 sentence pairs of one corpus" in one


def test_dev_and_test_stand_side_by_side() -> None:
    config = {"model_type": "marian"}
    text = card_text(metrics(dev={"pairs": 3, "chrf": 1.0}, test=SCORES), recipe(), config, pictures=set())
    assert "| measure | dev (3 pairs) | test (11 pairs) |" in text
    assert "| alignment error rate | not measured | 0.123 |" in text
    assert "a marian encoder-decoder" in text
    assert "trust_remote_code" not in text


def test_a_foreign_base_model_is_named_if_it_is_on_the_hub(tmp_path: Path) -> None:
    config = {"model_type": "marian"}
    assert "base_model: org/name" in card_text(metrics(), recipe(model={"init_from": "org/name"}), config, set())
    local = card_text(metrics(), recipe(model={"init_from": str(tmp_path)}), config, set())
    assert "base_model:" not in local


def test_a_loss_that_is_no_number_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_metrics(tmp_path / "metrics.json", {"loss": float("nan")})
    assert not (tmp_path / "metrics.json").exists()
