"""The BertViz notebook runs from top to bottom, offline, and its views hold the model's own attention."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from hf_seq2seq_attn.probing import pair_attentions
from hf_seq2seq_attn.translation import load_seq2seq

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "bertviz.ipynb"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("notebook")
    book = nbformat.read(NOTEBOOK, as_version=4)
    settings = {"metadata": {"path": str(folder)}}
    return NotebookClient(book, timeout=120, kernel_name="python3", resources=settings).execute(), folder


def outputs(book: Any, kind: str) -> list[str]:
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    return [output.data[kind] for cell in cells for output in cell.outputs if kind in output.get("data", {})]


def params_of(page: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in re.findall(r"const params = (\{.*\});$", page, flags=re.MULTILINE)]


def test_it_is_kept_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert all(not cell.outputs and cell.execution_count is None for cell in cells if cell.cell_type == "code")


def test_its_views_hold_the_attention_of_the_model_that_it_trains(run: tuple[Any, Path]) -> None:
    book, folder = run
    frames = [html for html in outputs(book, "text/html") if html.startswith("<iframe")]
    head, model_cross, recurrent = (params_of(unescape(re.findall(r'srcdoc="([^"]*)"', frame)[0])) for frame in frames)
    assert [len(views) for views in (head, model_cross, recurrent)] == [3, 1, 1]
    model, tokenizer = load_seq2seq(folder / "build" / "classroom_transformer")
    pair = pair_attentions(model, tokenizer, "the teacher needs tables in the evening", "老 师 晚 上 需 要 桌 子")
    expected = (pair.encoder, pair.decoder, pair.cross.weights)
    for params, weights in zip((*head, *model_cross), (*expected, pair.cross.weights), strict=True):
        np.testing.assert_allclose(params["attention"][0]["attn"], weights, atol=6e-4)
    assert head[2]["attention"][0]["left_text"][:4] == ["老", "师", "晚", "上"]
    assert np.shape(recurrent[0]["attention"][0]["attn"])[:2] == (1, 1)
    assert params_of((folder / "heads.html").read_text(encoding="utf-8")) == head
    assert len(outputs(book, "image/png")) == 1
