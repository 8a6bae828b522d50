"""The files of a Space: what the Hub reads in them, and an app that starts."""

import importlib.metadata
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from probes import subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import write_space

gradio = pytest.importorskip("gradio")
Run = Callable[..., tuple[int, str, str]]
MODEL = "someone/their-model"


def test_the_app_of_a_space_starts_with_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = write_space(tmp_path / "space", MODEL, lang="zh")
    assert [path.name for path in written] == ["app.py", "requirements.txt", "README.md"]
    # Where this folder is, the id is a model on this machine.
    tiny_model(vocab_size=73).save_pretrained(tmp_path / MODEL)
    subword_tokenizer().save_pretrained(tmp_path / MODEL)
    monkeypatch.chdir(tmp_path)
    demo = runpy.run_path(str(written[0]))["demo"]
    assert isinstance(demo, gradio.Blocks)
    assert demo.title == "their-model 在看哪里"
    assert not demo.analytics_enabled
    served = []
    monkeypatch.setattr("hf_seq2seq_attn.probing.serve_page.launch", served.append)
    runpy.run_path(str(written[0]), run_name="__main__")
    assert len(served) == 1 and isinstance(served[0], gradio.Blocks)


def test_what_the_hub_reads(tmp_path: Path) -> None:
    _, requirements, card = write_space(tmp_path, MODEL)
    front = yaml.safe_load(card.read_text(encoding="utf-8").split("---\n")[1])
    assert front == {
        "title": f"What {MODEL} looks at",
        "emoji": "🔍",
        "colorFrom": "indigo",
        "colorTo": "yellow",
        "sdk": "gradio",
        "sdk_version": gradio.__version__,
        "python_version": f"{sys.version_info.major}.{sys.version_info.minor}",
        "app_file": "app.py",
        "models": [MODEL],
        "preload_from_hub": [MODEL],
    }
    requirement = Requirement(requirements.read_text().strip())
    assert (requirement.name, requirement.extras) == ("hf-seq2seq-attn", {"serve"})
    assert requirement.specifier.contains(importlib.metadata.version("hf-seq2seq-attn"))
    own = "hf-seq2seq-attn[serve] @ https://example.org/hf_seq2seq_attn.whl"
    write_space(tmp_path, MODEL, requirement=own)
    assert requirements.read_text() == own + "\n"


def test_the_command_writes_them(run: Run) -> None:
    code, out, err = run("serve", MODEL, "--space", "s")
    assert (code, out) == (0, "")
    assert "s/app.py, s/requirements.txt, s/README.md: upload them" in err
    assert f'page_of("{MODEL}", lang="en")' in Path("s/app.py").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/no/model", "--space", "s"], "/no/model: a Space loads its model from the Hub, and this is no id there"),
        (["here", "--space", "s"], "here: is a folder here, which a Space cannot see; push it"),
        (["runs/here", "--space", "s"], "runs/here: is a folder here, which a Space cannot see; push it"),
        ([MODEL, "--space", "file"], "file: cannot be made a folder"),
        ([MODEL, "--space", "s", "--lang", "fr"], "lang is 'fr'; allowed are en, zh"),
        ([MODEL, "--space", "s", "--port", "80"], "a Space's files have no place for --port: edit its app.py"),
        ([MODEL, "--requirement", "x"], "--requirement is of a Space: give --space too"),
        (["./nowhere"], "./nowhere: no encoder-decoder here: no such folder; check the path"),
        ([MODEL, "--lang", "fr"], "lang is 'fr'; allowed are en, zh"),
    ],
)
def test_what_cannot_be_written_or_served_is_refused(run: Run, words: list[str], message: str) -> None:
    Path("here").mkdir()
    Path("runs/here").mkdir(parents=True)
    Path("file").touch()
    code, out, err = run("serve", *words)
    assert (code, out) == (2, "")
    assert message in " ".join(err.replace("│", " ").split())
    assert not Path("s").exists()


def test_a_readme_of_something_else_is_left(run: Run) -> None:
    Path("README.md").write_text("# Mine\n")
    code, _, err = run("serve", MODEL, "--space", ".")
    assert code == 2 and "README.md: is there and is no Space's, and would be lost" in err
    assert Path("README.md").read_text() == "# Mine\n" and not Path("app.py").exists()


def test_a_missing_gradio_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.delitem(sys.modules, "hf_seq2seq_attn.probing.serve_page", raising=False)
    said = "this command needs gradio: pip install 'hf-seq2seq-attn[serve]'\n"
    assert run("serve", MODEL, "--space", "s") == (2, "", said)
    assert run("serve", MODEL) == (2, "", said)
