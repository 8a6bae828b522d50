"""The card of every kind of run: whole, without a blank, and its code runs as pasted."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from guided_toys import guided_model
from huggingface_hub import ModelCard
from transformers import PreTrainedTokenizerFast

from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.train import train

RECIPE = """\
name: toy
license: cc0-1.0
data: {train: {source: '', target: ''}, source_language: la, target_language: el}
tokenizer: {vocab_size: 100}
model: {encoder_type: gru, decoder_type: lstm, cross_attention_type: additive, encoder_layers: 1, decoder_layers: 1,
  d_model: 16, dropout: 0.0, cross_attention_heads: 2}
training: {max_steps: 2, per_device_train_batch_size: 8, logging_steps: 1}
"""
NO_ATTENTION = ["model.cross_attention_type=none", "model.cross_attention_heads=null"]
# Kind -> overrides, the parts, and those of them with links.
KINDS: dict[str, tuple[list[str], dict[str, int], tuple[str, ...]]] = {
    "scored": (["alignment.weight=2"], {"train": 20, "dev": 4, "test": 3}, ("train", "dev", "test")),
    "no dev": ([], {"train": 20}, ()),
    "no links": ([], {"train": 20, "dev": 4}, ()),
    "no attention": (NO_ATTENTION, {"train": 20, "dev": 4}, ()),
    "no attention, no dev, no licence": (
        [*NO_ATTENTION, "license=null", "data.source_language=null", "data.target_language=null"],
        {"train": 20},
        (),
    ),
    "aligner": (
        ["alignment={weight: 1, rows: input, alignment_only: true}"],
        {"train": 20, "dev": 4},
        ("train", "dev"),
    ),
    "g2p": (["task=g2p", "tokenizer={kind: char, separate: true, vocab_size: 100}"], {"train": 20, "dev": 4}, ()),
    "links on the spot": (["alignment={links: eflomal}"], {"train": 40, "dev": 4}, ("dev",)),
    "init_from": (["tokenizer=null"], {"train": 20, "dev": 4}, ("dev",)),
    "untrained": (["training.max_steps=0"], {"train": 20, "test": 4}, ("test",)),
    "codes of a tokenizer": (["data.source_language=deu_Latn"], {"train": 20, "dev": 4}, ()),
}


def make_run(kind: str, toy_files: Any, tokenizer: PreTrainedTokenizerFast, folder: Path) -> tuple[Path, str]:
    """Run a recipe of that kind; return its folder and its card."""
    if kind == "links on the spot":
        pytest.importorskip("eflomal")
    overrides, counts, links = KINDS[kind]
    if kind == "init_from":
        guided_model("marian", len(tokenizer)).save_pretrained(folder / "base-model")
        tokenizer.save_pretrained(folder / "base-model")
        overrides = [*overrides, f"model={{init_from: {folder / 'base-model'}}}"]
    (folder / "toy.yaml").write_text(RECIPE)
    recipe = load_recipe(folder / "toy.yaml", [*toy_files(links, **counts), *overrides])
    train(recipe, folder / "run", progress=False)
    return folder / "run", (folder / "run" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_the_card_is_whole_and_its_code_runs(
    kind: str,
    toy_files: Callable[..., list[str]],
    toy_tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, text = make_run(kind, toy_files, toy_tokenizer, tmp_path)
    assert not re.search(r"More Information Needed|\bTODO\b|\bNone\b|\bnan\b|\bnull\b|\[\]|\{\}|not installed", text)
    assert str(tmp_path) not in text, "a path of this machine"
    assert not re.search(r"^#+ .*\n+(#|\Z)", text, flags=re.MULTILINE), "a heading with nothing below"
    assert not re.search(r": *\.|\( *\)|`` |  \n", text), "a blank left open"
    check_numbers(ModelCard(text), json.loads((folder / "metrics.json").read_text()), text)

    has_attention = "none" not in str(KINDS[kind][0])
    assert ("## Model examination" in text) == has_attention
    assert ("](attention.png)" in text) == has_attention == (folder / "attention.png").exists()
    blocks = re.findall(r"^(`{3,})python\n(.*?)^\1$", text, flags=re.DOTALL | re.MULTILINE)
    capsys.readouterr()
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    for _, block in blocks:
        exec(block, names)
    printed = capsys.readouterr().out.splitlines()
    # A translation, and an alignment: what a model cannot do is not shown.
    assert len(printed) == (kind != "aligner") + has_attention
    if has_attention:
        assert printed[-1].startswith("[frozenset(")


def check_numbers(card: ModelCard, metrics: dict[str, Any], text: str) -> None:
    """Each result in the front matter, and in the table, is the one of the metrics file."""
    results = card.data.eval_results or []
    parts = [part for part in ("dev", "test") if part in metrics]
    assert ("model-index" in card.data.to_dict()) == bool(parts)
    assert ("## Numbers" in text) == bool(parts)
    for result in results:
        assert result.metric_value == metrics[result.dataset_split][result.metric_type]
    shown = {(result.dataset_split, result.metric_type) for result in results}
    assert shown >= {(part, key) for part in parts for key in ("chrf", "bleu", "aer", "loss") if key in metrics[part]}
    if parts:
        assert card.data.to_dict()["model-index"][0]["name"] == metrics["name"]


@pytest.mark.parametrize(
    ("kind", "present", "absent"),
    [
        ("scored", ["GRU encoder", "LSTM decoder", "alignment error rate", "pipeline_tag: translation"], []),
        ("g2p", ["A model from spelling to sound", "- grapheme-to-phoneme"], ["translation model", "pipeline_tag"]),
        ("no attention", ["one vector holds the whole source"], ["word-alignment", "probing", "none attention"]),
        ("aligner", ["A word aligner", "does not translate"], ["pipeline_tag", "generate("]),
        ("links on the spot", ["eflomal 2", "grow-diag-final-and-moses", "forward and"], []),
        (
            "init_from",
            ["It continues from `base-model`", "a marian encoder-decoder"],
            ["trust_remote_code", "base_model"],
        ),
        ("codes of a tokenizer", ["- el\n", "from `deu_Latn` to `el`"], ["- deu_Latn"]),
        ("no dev", [], ["model-index"]),
    ],
)
def test_it_says_what_kind_of_run_it_was(
    kind: str,
    present: list[str],
    absent: list[str],
    toy_files: Callable[..., list[str]],
    toy_tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:
    _, text = make_run(kind, toy_files, toy_tokenizer, tmp_path)
    assert [each for each in present if each not in text] == []
    assert [each for each in absent if each in text] == []
