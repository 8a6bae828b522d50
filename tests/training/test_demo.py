"""The demo on a corpus of a few verses: every step of it but the size."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hf_seq2seq_attn.training import demo
from hf_seq2seq_attn.training.demo import run_demo, verse_name

PARTS = {"train": 24, "dev": 5, "test": 9}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, reversed_pairs: Any) -> None:
    def prepare(folder: Path, cache: Path) -> dict[str, int]:
        folder.mkdir(parents=True, exist_ok=True)
        for seed, (part, count) in enumerate(PARTS.items()):
            pairs = reversed_pairs(count, seed, longest=9)
            columns = {
                "grc": [" ".join(source) for source, _ in pairs],
                "en": [" ".join(target) for _, target in pairs],
                "align": [" ".join(f"{i}-{len(s) - 1 - i}" for i in range(len(s))) for s, _ in pairs],
                "verse": [f"400010{number:02d}" for number in range(1, count + 1)],
            }
            for column, lines in columns.items():
                (folder / f"{part}.{column}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return PARTS

    load = demo.load_recipe
    tiny = ["model.d_model=16", "tokenizer.vocab_size=80", "training.per_device_train_batch_size=8"]
    monkeypatch.setattr(demo, "load_recipe", lambda name, overrides: load(name, [*overrides, *tiny]))
    monkeypatch.setattr(demo, "prepare_bible_corpus", prepare)


def test_untrained_then_trained_then_used_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    untrained = run_demo(tmp_path, steps=0)
    output = capsys.readouterr().out
    assert output.splitlines()[-1] == f"REPORT {tmp_path / 'report.html'}"
    for name in ("this model, additive attention", "IBM model 1", "diagonal"):
        assert name in output
    assert untrained["steps"] == 0
    assert untrained["aer"] > 0.4

    trained = run_demo(tmp_path, steps=2, attention="scaled_dot_product")
    wanted = "aer precision recall chrf diagonal ibm1 steps seconds seed versions"
    assert set(wanted.split()) <= set(json.loads((tmp_path / "metrics.json").read_text()))
    assert (trained["steps"], trained["attention"]) == (2, "scaled_dot_product")
    run_metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    assert run_metrics["steps"] == 2
    assert run_metrics["test"]["aer"] == trained["aer"]
    assert f"| {trained['aer']:.3f} |" in (tmp_path / "model" / "README.md").read_text()
    # The dev set has links in the corpus, but training must not have seen them.
    assert "aer" not in run_metrics["dev"]

    monkeypatch.setattr(demo, "train", forbidden)
    again = run_demo(tmp_path, steps=2, attention="scaled_dot_product")
    assert again["aer"] == trained["aer"]
    with pytest.raises(AssertionError, match="trained again"):
        run_demo(tmp_path, steps=2, seed=9, attention="scaled_dot_product")


def forbidden(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("trained again")


def test_the_report_is_one_page_that_needs_nothing(tmp_path: Path) -> None:
    metrics = run_demo(tmp_path, steps=1)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=|@import|url\(|<script", page)
    assert 0 < page.count("<figure>") == page.count('<svg class="heatmap" role="img"') <= demo.VERSES_SHOWN
    assert f"{metrics['aer']:.3f}" in page
    assert "Society of Biblical Literature" in page
    assert not re.search(r"\{\w+\}|None|nan\b", page)


def test_names_of_verses() -> None:
    assert verse_name("40001025") == "Matthew 1:25"
    assert verse_name("66022021") == "Revelation 22:21"


def test_negative_steps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="steps=-1"):
        run_demo(tmp_path, steps=-1)
