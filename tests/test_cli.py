"""The command line refuses in one line, before it has loaded a model, what cannot work."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from probes import word_tokenizer
from variants import tiny_model

from hf_seq2seq_attn import cli

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run the command line in a folder with a text and a folder, without a model; return exit code and stderr."""
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("ab\n")
    Path("folder").mkdir()

    def no_model(name: str) -> None:
        raise AssertionError(f"{name} was asked for")

    monkeypatch.setattr("hf_seq2seq_attn.translation.AutoModelForSeq2SeqLM.from_pretrained", no_model)

    def command(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["seq2seq-attn", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return int(stopped.value.code or 0), capsys.readouterr().err

    return command


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere/out.html", "nowhere/out.html: cannot be written (there is no folder nowhere); make it"),
        ("text/out.html", "text/out.html: cannot be written (there is no folder text)"),
        ("folder", "folder: cannot be written (it is a folder); name a file in it"),
    ],
)
@pytest.mark.parametrize(
    "words", [["align", "user/name", "text", "text"], ["view", "user/name", "text", "text"], ["explain", "m", "a", "b"]]
)
def test_a_bad_place_for_output(run: Run, words: list[str], place: str, message: str) -> None:
    code, err = run(*words, "-o", place)
    assert code == 2
    assert err.startswith(message)
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [["train", "bahdanau2015"], ["demo"]])
@pytest.mark.parametrize("place", ["text", "text/run"])
def test_a_run_directory_that_is_a_file(run: Run, words: list[str], place: str) -> None:
    assert run(*words, "-o", place) == (2, f"{place}: cannot be a folder (text is a file); choose another\n")


@pytest.mark.parametrize("name", ["./m", "../m", "/no/m", "~/m", "a/b/c", "folder/m", "text/m"])
@pytest.mark.parametrize("command", [["translate"], ["align", "text"]])
def test_a_model_that_looks_like_a_path_is_not_looked_for_on_the_hub(run: Run, name: str, command: list[str]) -> None:
    code, err = run(command[0], name, *command[1:], "text")
    assert (code, err) == (2, f"{name}: no encoder-decoder here: no such folder; check the path\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--example", "--step", "1", "--layer", "0"], "knows its own sentence and model: leave out --step, --layer"),
        (["model", "--example"], "knows its own sentence and model: leave out MODEL"),
        (["model", "text", "--state", "1,2"], "--example is needed for them: leave out --state"),
        (["--example", "--format", "pdf"], "format is 'pdf'; allowed are text, md, tex, html, json"),
        (["--example", "--lang", "fr"], "lang is 'fr'; allowed are en, zh"),
        (["--example", "--state", "nan,1"], "'nan,1' has a number that does not lie in -1e+06..1e+06"),
        (["--example", "--encoder", "inf,1 0,0 0,0"], "'inf,1' has a number that does not lie"),
        (["--example", "--state", "1e30,1"], "'1e30,1' has a number that does not lie"),
    ],
)
def test_an_example_that_cannot_be_shown(run: Run, words: list[str], message: str) -> None:
    code, err = run("explain", *words)
    assert code == 2
    assert message in " ".join(err.split())
    assert not Path("page.html").exists()


@pytest.mark.parametrize("command", [["translate"], ["align", "text"]])
def test_a_fault_inside_a_library_is_not_called_bad_input(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    model = tiny_model(vocab_size=23)

    def faulty(*_: object, **__: object) -> None:
        raise ValueError("a shape does not fit")

    monkeypatch.setattr(model, "generate", faulty)
    monkeypatch.setattr(model, "forward", faulty)
    monkeypatch.setattr("hf_seq2seq_attn.translation.load_seq2seq", lambda name: (model, word_tokenizer()))
    with pytest.raises(ValueError, match=r"^a shape does not fit$"):
        run(command[0], "model", *command[1:], "text")


def test_stdout_is_utf_8_whatever_the_terminal_says(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    assert run("explain", "--example") == (0, "")
    sys.stdout.flush()
    assert "喜" in written.getvalue().decode("utf-8")


def test_the_overrides_of_train_are_shown_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="utf-8"))
    run("train", "--help")
    sys.stdout.flush()
    assert " [FIELD=VALUE]...\n" in written.getvalue().decode()
