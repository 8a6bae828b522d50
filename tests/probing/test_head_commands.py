"""The heads and faithfulness commands: choose, fit, save, report; align and view read what was saved."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_heads import lookup_model
from probes import foreign_model, word_tokenizer

from hf_seq2seq_attn import cli
from hf_seq2seq_attn.probing import extract, faithfulness_commands, head_commands
from hf_seq2seq_attn.probing.saved_choice import CHOICE_FILE, read_choice

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run the command line in a folder with texts and gold; return exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(5)
    lines: dict[str, list[str]] = {"s": [], "t": [], "dev.align": [], "s.pos": [], "t.pos": []}
    for size in (5, 7, 4, 9, 6, 8):
        words = 4 + generator.permutation(19)[:size]
        order = generator.permutation(size)
        lines["s"].append(" ".join(f"w{word}" for word in words))
        lines["t"].append(" ".join(f"w{word}" for word in words[order]))
        lines["dev.align"].append(" ".join(f"{i}-{j}" for j, i in enumerate(order)))
        lines["s.pos"].append(" ".join("EVEN" if word % 2 == 0 else "ODD" for word in words))
        lines["t.pos"].append(" ".join("EVEN" if word % 2 == 0 else "ODD" for word in words[order]))
    for name, content in lines.items():
        Path(name).write_text("".join(line + "\n" for line in content))

    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["seq2seq-attn", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return command


@pytest.fixture
def models(tmp_path: Path) -> tuple[str, str]:
    """Save a model of each direction, with the alignment in other heads, on input rows."""
    for name, model in (("forward", lookup_model(1, 2)), ("reverse", lookup_model(0, 1, 9))):
        model.save_pretrained(tmp_path / name)
        word_tokenizer().save_pretrained(tmp_path / name)
    return "forward", "reverse"


def test_heads_chosen_without_gold_are_saved_and_read(run: Run, models: tuple[str, str]) -> None:
    forward, reverse = models
    code, out, err = run("heads", forward, "s", "t", "--reverse-model", reverse, "--save", "--json")
    assert code == 0
    result = json.loads(out)
    assert result["choice"]["heads"] == [[1, 2]]
    assert (result["choice"]["align_with"], result["choice"]["criterion"]) == ("input", "agreement")
    assert result["choice"]["score"] == 1
    assert result["choice"]["reverse"]["heads"] == [[0, 1]]
    assert result["model"]["revision"].startswith("sha256:")
    assert result["data"]["pairs"] == 6
    assert re.fullmatch("[0-9a-f]{64}", result["data"]["source"]["sha256"])
    assert "saved; align and view now read them" in err
    saved = read_choice(Path(forward) / CHOICE_FILE)
    assert (saved.heads, saved.align_with) == (((1, 2),), "input")
    assert saved.provenance["criterion"] == "agreement"
    assert saved.provenance["score"] == 1
    assert saved.provenance["versions"]["torch"]
    assert saved.provenance["model"] == result["model"]
    generation = json.loads((Path(forward) / "generation_config.json").read_text())
    assert generation["alignment_heads"] == [[1, 2]]
    code, out, err = run("align", forward, "s", "t")
    assert code == 0
    expected = [set(line.split()) for line in Path("dev.align").read_text().splitlines()]
    assert [set(line.split()) for line in out.splitlines()] == expected
    assert "rows input, heads 1.2 (layer.head) (saved with the model)" in err
    code, out, err = run("align", forward, "s", "t", "--layer", "0")
    assert [set(line.split()) for line in out.splitlines()] != expected
    code, _, err = run("view", forward, "s", "t", "-o", "v.html", "--gold", "dev.align")
    assert code == 0
    assert "rows input, heads 1.2 (layer.head) (saved with the model)" in Path("v.html").read_text()


def test_heads_chosen_by_gold_are_printed_with_a_word_of_warning(run: Run, models: tuple[str, str]) -> None:
    code, out, _ = run("heads", models[0], "s", "t", "--gold", "dev.align", "-o", "choice.json")
    assert (code, out) == (0, "")
    result = json.loads(Path("choice.json").read_text())
    assert (result["choice"]["criterion"], result["choice"]["score"]) == ("aer", 0)
    assert result["data"]["dev"]["file"] == "dev.align"
    assert not (Path(models[0]) / CHOICE_FILE).exists()
    code, out, _ = run("heads", models[0], "s", "t", "--gold", "dev.align", "--limit", "3")
    assert "chosen: layer 1, head 2, input rows" in out
    assert "AER on the development set 0.0000 on 3 pairs" in out
    assert "Score a test set" in out
    assert "best of 16 tried" in out
    code, out, _ = run("heads", models[0], "s", "t", "--gold", "dev.align", "--align-with", "output", "--json")
    assert {each["align_with"] for each in json.loads(out)["choice"]["tried"]} == {"output"}


def test_a_fit_is_saved_and_gives_probabilities(run: Run, models: tuple[str, str]) -> None:
    code, out, err = run("heads", models[0], "s", "t", "--gold", "dev.align", "--fit", "--save")
    assert code == 0
    assert "fitted: 12 weights of rows, layers and heads, 6 pairs" in out
    assert "calibration error" in out
    saved = read_choice(Path(models[0]) / CHOICE_FILE)
    assert saved.fit is not None
    assert saved.links == f"threshold:{saved.fit.threshold:g}"
    assert saved.provenance["fit"]["aer"] < 0.1
    code, out, err = run("align", models[0], "s", "t", "--format", "pharaoh-p", "--heads", "fitted")
    assert code == 0
    assert "all heads, fitted" in err
    expected = [set(line.split()) for line in Path("dev.align").read_text().splitlines()]
    found = [dict(link.split(":") for link in line.split()) for line in out.splitlines()]
    assert [set(each) for each in found] == expected
    assert all(0.5 < float(value) <= 1 for each in found for value in each.values())
    # Other heads can still be named.
    code, out, err = run("align", models[0], "s", "t", "--layer", "1", "--heads", "2")
    assert "layer 1, heads 2" in err
    code, _, _ = run("view", models[0], "s", "t", "-o", "v.html")
    assert code == 0


def test_a_report_as_table_json_and_picture(run: Run, models: tuple[str, str]) -> None:
    words = ["--report", "--source-tags", "s.pos", "--target-tags", "t.pos"]
    code, out, _ = run("heads", models[0], "s", "t", *words, "-o", "heads.png")
    assert code == 0
    assert Path("heads.png").stat().st_size > 5000
    header = next(line for line in out.splitlines() if "entropy" in line)
    for name in (
        "layer",
        "head",
        "entropy",
        "confidence",
        "coverage",
        "sink mass",
        "fixed offset",
        "gradient",
        "ablation",
    ):
        assert name in header
    assert "aer" not in header
    assert "weight on source words by part of speech" in out
    assert "fixed offset: largest share" in out
    full = [*words, "--reverse-model", models[1], "--gold", "dev.align", "--json"]
    code, out, _ = run("heads", models[0], "s", "t", *full)
    assert code == 0
    report = json.loads(out)["report"]
    planted = next(each for each in report["heads"] if (each["layer"], each["head"]) == (1, 2))
    assert (planted["aer"], planted["agreement"]) == (0, 1)
    assert set(planted["by_source_tag"]) == set(planted["by_target_tag"]) == {"EVEN", "ODD"}
    assert report["align_with"] == "input"
    assert len(report["distances"]["matrix"]) == 6


def test_faithfulness_prints_figures_definitions_and_caveats(run: Run, models: tuple[str, str]) -> None:
    code, out, _ = run("faithfulness", models[0], "s", "t", "--limit", "2", "--permutations", "3")
    assert code == 0
    assert "2 pairs, output rows, heads 1.0, 1.1, 1.2 (layer.head)" in out
    for name in ("erasure", "leave one out", "permutation", "uniform"):
        assert re.search(rf"^{name}: ", out, re.MULTILINE)
    assert out.count("  but: ") == 4
    assert re.search(r"^model forward \(revision sha256:\w{16}\)\nhf-seq2seq-attn .*torch", out, re.MULTILINE)
    words = ("faithfulness", models[0], "s", "t", "--limit", "2", "--permutations", "3", "--json")
    code, first, _ = run(*words)
    assert (code, run(*words)[1]) == (0, first)
    result = json.loads(first)
    assert result["heads"] == [[1, 0], [1, 1], [1, 2]]
    assert result["model"]["name"] == "forward"
    assert len(result["permutation"]["caveat"]) > 20
    code, out, _ = run(*words[:-1], "--layer", "0", "--heads", "1", "-o", "f.json")
    assert (code, out) == (0, "")
    assert json.loads(Path("f.json").read_text())["heads"] == [[0, 1]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --reverse-model"),
        (["--save", "--report"], "--save has no choice to keep"),
        (["--fit", "--reverse-model", "reverse"], "--fit needs --gold"),
        (["--gold", "de-en.test.align"], "de-en.test.align: is named 'test'"),
        (["--gold", "testset.align"], "is named 'testset'"),
        (["--gold", "no.align"], "no.align: no such file"),
        (["--gold", "dev.align", "--links", "best"], "links is 'best'"),
        (["--gold", "dev.align", "--weights", "raw_norm"], "heads are chosen on attention or norm"),
        (["--gold", "dev.align", "-o", "x.txt"], "allowed suffixes are .json"),
        (["--gold", "dev.align", "-o", "x.png"], "add --report"),
        (["--report", "--source-tags", "t.pos"], r"t.pos:"),
        (["--reverse-model", "reverse", "--target-tags", "t.pos"], "add --report"),
        (["--report", "--reverse-prefix", "w4 "], "give --reverse-model"),
        (["--report", "--target-language", "de"], "target_language is 'de'"),
        (["--reverse-model", "no/such/model"], "no/such/model"),
    ],
)
def test_bad_requests_exit_with_2_and_say_what_to_do(
    run: Run, models: tuple[str, str], words: list[str], message: str
) -> None:
    Path("t.pos").write_text("A\n" * 6)
    code, out, err = run("heads", models[0], "s", "t", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert not (Path(models[0]) / CHOICE_FILE).exists()


def test_gold_of_other_files_and_long_sentences_are_named_by_line(run: Run, models: tuple[str, str]) -> None:
    Path("dev.align").write_text("0-0\n" * 5 + "99-0\n")
    code, _, err = run("heads", models[0], "s", "t", "--gold", "dev.align")
    assert code == 2
    assert "dev.align:6: source index 99" in err
    Path("t").write_text("w4\n")
    assert "t:2: 1 lines" in run("heads", models[0], "s", "t", "--report")[2]
    Path("s").write_text("")
    Path("t").write_text("")
    assert "s: no sentence" in run("heads", models[0], "s", "t", "--report")[2]
    assert "s: no sentence" in run("faithfulness", models[0], "s", "t")[2]


def test_faithfulness_refuses_what_is_no_head(run: Run, models: tuple[str, str]) -> None:
    for words, message in (
        (["--heads", "x"], "heads is 'x'"),
        (["--heads", "fitted"], "single heads are tested"),
        (["--heads", "7"], "layer 1, head 7 is not held"),
        (["--layer", "5"], "layer 5, head 0 is not held"),
    ):
        code, out, err = run("faithfulness", models[0], "s", "t", "--limit", "1", *words)
        assert (code, out) == (2, "")
        assert message in err


def test_each_model_gets_its_prefix(run: Run, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    # The planted heads of the others have values without length.
    for name, family in zip(models, ("marian", "bart"), strict=True):
        foreign_model(family, vocabulary=23).save_pretrained(name)

    def noted(*given: Any, **choices: Any) -> Any:
        asked.append((given[0].name_or_path, choices["source_prefix"]))
        return extract(*given, **choices)

    for module in (head_commands, faithfulness_commands):
        monkeypatch.setattr(module, "extract", noted)
    words = ["--reverse-model", models[1], "--weights", "norm", "--report", "--limit", "2"]
    code, _, err = run("heads", models[0], "s", "t", *words, "--source-prefix", "w4 ", "--reverse-prefix", "w5 w6 ")
    assert code == 0, err
    # The last is the pass for importance.
    assert asked == [(models[0], "w4 ")] * 2 + [(models[1], "w5 w6 ")] * 2 + [(models[0], "w4 ")]
    asked.clear()
    words = ["--limit", "1", "--permutations", "1", "--source-prefix", "w4 "]
    assert run("faithfulness", models[0], "s", "t", *words)[0] == 0
    assert asked == [(models[0], "w4 ")]


def test_faithfulness_says_which_heads_of_a_fit_it_tests(run: Run, models: tuple[str, str]) -> None:
    assert run("heads", models[0], "s", "t", "--gold", "dev.align", "--fit", "--save")[0] == 0
    code, _, err = run("faithfulness", models[0], "s", "t", "--limit", "1", "--permutations", "1")
    assert code == 0
    assert "a saved fit is of all heads; tested are those that were best without it, 1.2" in err
