"""The script that shows why attention matters: its corpus, and models that are there already."""

import importlib.util
import json
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

from hf_seq2seq_attn.probing import library_versions

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "quality_by_length.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("quality_by_length", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_corpus_has_all_lengths_and_clauses_of_the_grammar(script: ModuleType) -> None:
    pairs = list(islice(script.made_corpus(), 800))
    lengths = [len(english.split()) for english, _ in pairs]
    assert set(lengths) == set(range(3, 41))
    assert max(map(lengths.count, set(lengths))) < 3 * 800 / 38
    assert all(english.count(" , ") == chinese.count(" ， ") for english, chinese in pairs)
    assert pairs == list(islice(script.made_corpus(), 800)) != list(islice(script.made_corpus(1), 800))


def test_it_trains_scores_and_draws_and_goes_on_where_it_stopped(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "PARTS", {"train": 60, "dev": 5, "test": 12})
    command = [
        "-w", str(tmp_path / "work"), "--steps", "2",
        "--set", "model.d_model=8", "training.per_device_train_batch_size=3",
        "--bounds", "15,30", "--max-new-tokens", "3", "--metric", "chrf",
    ]  # fmt: skip
    assert script.main([*command, "-o", str(tmp_path / "one.json"), "--picture", str(tmp_path / "one.png")]) == 0
    record = json.loads((tmp_path / "one.json").read_text(encoding="utf-8"))
    assert list(record["models"]) == ["fixed vector", "additive", "dot product"]
    for model in record["models"].values():
        assert sum(row["sentences"] for row in model["by_length"]) == 12 and model["steps"] == 2
        assert {"bleu", "chrf", "exact_match"} <= set(model["by_length"][0]["scores"])
    assert record["versions"] == library_versions() and (tmp_path / "one.png").stat().st_size > 1000

    trained = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("*/model.safetensors")}
    assert len(trained) == 3
    texts = [str(tmp_path / "work" / "corpus" / f"test.{suffix}") for suffix in ("en", "zh")]
    runs = ["--runs", f"none={tmp_path / 'work' / 'fixed_vector'}", f"dot={tmp_path / 'work' / 'dot_product'}"]
    scored = [*runs, "--source", texts[0], "--reference", texts[1], *command[-6:], "-o", str(tmp_path / "two.json")]
    capsys.readouterr()
    assert script.main(scored) == 0
    again = json.loads((tmp_path / "two.json").read_text(encoding="utf-8"))
    assert again["models"]["dot"] == record["models"]["dot product"]
    assert capsys.readouterr().out.splitlines()[1].startswith("dot: ")
    assert trained == {path: path.stat().st_mtime_ns for path in trained}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --runs with a test text, or -w"),
        (["--runs", "none=x"], "--runs needs --source and --reference"),
        (["--runs", "x", "--source", "a", "--reference", "b"], "'x' is not NAME=RUN_DIR"),
        (["-w", "x", "--source", "a"], "belong together"),
    ],
)
def test_a_wrong_command_is_explained(
    script: ModuleType, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        script.main([*words, "-o", "out.json"])
    assert stopped.value.code == 2 and message in capsys.readouterr().err


def test_a_missing_model_is_one_line(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("x\n", encoding="utf-8")
    texts = ["--source", str(tmp_path / "a"), "--reference", str(tmp_path / "b")]
    command = ["--runs", f"none={tmp_path / 'nowhere'}", *texts, "-o", str(tmp_path / "out.json")]
    assert script.main(command) == 2 and not (tmp_path / "out.json").exists()
    assert "no such folder" in capsys.readouterr().err
