"""The commands sweep and compare: files in, tables out."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from probes import foreign_model, subword_tokenizer

from hf_seq2seq_attn.probing import SPECIALS, compare_systems, read_gold, read_links

Run = Callable[..., tuple[int, str, str]]
SOURCES = ["the cats love today.", "", "understand this today.", "cats love the day"]
TARGETS = ["love cats unloved", "day", "the day I understand", "this day"]
GOLD = ["0-1 2-0 3p2", "", "2-1 0-3", "3-1 2p0"]
LIGHT = ["--weights", "attention", "--specials", "mask", "--subwords", "matrix", "--links", "argmax,mutual"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folders = tmp_path_factory.mktemp("forward"), tmp_path_factory.mktemp("reverse")
    for folder, family in zip(folders, ("marian", "bart"), strict=True):
        foreign_model(family).save_pretrained(folder)
        subword_tokenizer().save_pretrained(folder)
    return folders


def write(name: str, lines: list[str]) -> str:
    Path(name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return name


def dev() -> list[str]:
    return [write("s", SOURCES), write("t", TARGETS), write("g", GOLD)]


def apart() -> list[str]:
    return [write("s2", ["love the cats", "day"]), write("t2", ["cats day", "I"]), write("g2", ["2-0", "0-0"])]


def test_sweep_chooses_on_dev_and_reports_on_test(run: Run, models: tuple[Path, Path]) -> None:
    words = ["sweep", models[0], *dev(), "--reverse-model", models[1], *LIGHT, "--symmetrize", "union"]
    code, out, err = run(*words, "--combine", "mean", "--test", *apart(), "--json")
    assert code == 0, err
    result = json.loads(out)
    # Rows, layers, links; each alone, by union and by mean.
    assert len(result["points"]) == 2 * 3 * 2 * 3
    assert result["chosen"] == result["points"][0]
    assert result["test"]["sentences"] == 2 and result["dev"]["sentences"] == 4
    assert result["record"]["model"]["revision"].startswith("sha256:")
    assert result["record"]["versions"]["torch"]
    # The options that it names make align find what was scored.
    options = result["record"]["chosen"].split()
    assert run("align", models[0], "s2", "t2", *options, "-o", "out.align")[0] == 0
    score = json.loads(run("score", "out.align", "g2", "--links-base", "0", "--json")[1])
    assert score["aer"] == pytest.approx(result["test"]["aer"])


def test_sweep_writes_tables_that_name_model_versions_and_choices(run: Run, models: tuple[Path, Path]) -> None:
    words = ["sweep", models[0], *dev(), *LIGHT, "--layers", "0,2", "--heads", "mean,1"]
    code, out, _ = run(*words, "-o", "t.csv")
    assert code == 0
    assert "16 combinations on 4 development pairs; the best 10:" in out
    assert re.search(r"^chosen: --align-with \w+ --weights attention --layer \d --heads [\d,]+ ", out, re.MULTILINE)
    assert "the best of many, so too good" in out and "test AER" not in out
    with Path("t.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 16 and {row["heads"] for row in rows} == {"mean", "1"}
    assert {row["layer"] for row in rows} == {"0", "2"}
    aers = [float(row["AER"]) for row in rows]
    assert aers == sorted(aers)
    assert rows[0]["record.model.revision"].startswith("sha256:") and rows[0]["record.versions.transformers"]
    assert run(*words, "-o", "t.tex")[0] == 0
    text = Path("t.tex").read_text()
    assert f"% model.name: {models[0]}" in text and r"\toprule" in text and text.count(r"\\") == 17
    assert run(*words, "-o", "t.json")[0] == 0
    assert len(json.loads(Path("t.json").read_text())["points"]) == 16


def test_sweep_tries_all_policies_by_default(run: Run, models: tuple[Path, Path]) -> None:
    words = [word for word in LIGHT if word not in ("--specials", "mask")]
    out = run("sweep", models[0], *dev(), *words, "--layers", "1", "--align-with", "input", "--json")[1]
    assert {point["specials"] for point in json.loads(out)["points"]} == set(SPECIALS)


def test_sweep_refuses_to_choose_on_the_test_set(run: Run, models: tuple[Path, Path]) -> None:
    files = dev()
    code, out, err = run("sweep", models[0], *files, "--test", *files)
    assert (code, out) == (2, "")
    assert "s:1: this pair is line 1 of s too; what is chosen on the test set scores too well there" in err
    other = [write("s2", ["new", *SOURCES[2:3]]), write("t2", ["x", *TARGETS[2:3]]), write("g2", ["0-0", ""])]
    code, _, err = run("sweep", models[0], *files, "--test", *other)
    assert code == 2 and "s2:2: this pair is line 3 of s too" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--links", "best"], "links is 'best'; allowed are"),
        (["--heads", "a"], "layers is 'all' and heads is 'a'; write"),
        (["--layers", "x"], "write all or numbers"),
        (["--layers", "9"], "layer 9 does not exist"),
        (["--symmetrize", "grow-diag"], "grow-diag-moses"),
        (["--weights", "values"], "weights is 'values'"),
        (["-o", "t.xls"], "t.xls: allowed suffixes are .tex, .csv, .json"),
    ],
)
def test_sweep_refuses_bad_choices_in_one_line(
    run: Run, models: tuple[Path, Path], words: list[str], message: str
) -> None:
    code, out, err = run("sweep", models[0], *dev(), *words)
    assert (code, out) == (2, "")
    assert message in err and "Traceback" not in err


def test_sweep_names_a_bad_sentence_by_the_file_that_it_is_in(run: Run, models: tuple[Path, Path]) -> None:
    long = "cats " * 60
    code, _, err = run("sweep", models[0], write("s", ["a", long]), write("t", ["b", "c"]), write("g", ["0-0", ""]))
    assert code == 2 and re.search(r"^s:2: \d+ tokens are more than", err, re.MULTILINE)
    bad = [write("s2", ["a", "b"]), write("t2", ["c", long]), write("g2", ["0-0", ""])]
    code, _, err = run("sweep", models[0], *dev(), *LIGHT, "--test", *bad)
    assert code == 2 and re.search(r"^t2:2: \d+ tokens are more than", err, re.MULTILINE)
    code, _, err = run("sweep", models[0], *dev()[:2], write("g", ["9-0", *GOLD[1:]]))
    assert code == 2 and "g:1: source index 9" in err


LINKS = {"a1": ["0-0 1-1", "", "0-0"], "a2": ["0-0", "", "0-0 1-0"], "b1": ["1-0", "0-0", "1-1"]}


def systems() -> list[str]:
    for name, lines in LINKS.items():
        write(name, lines)
    write("gold", ["0-0 1-1", "", "0-0 1p0"])
    return ["first=a1,a2", "second_x=b1"]


def test_compare_prints_what_compare_systems_finds(run: Run) -> None:
    words = systems()
    code, out, err = run("compare", "--gold", "gold", *words, "--json")
    assert code == 0, err
    result = json.loads(out)
    expected = compare_systems(
        {"first": [read_links("a1", base=0), read_links("a2", base=0)], "second_x": [read_links("b1", base=0)]},
        read_gold("gold", base=0),
    ).as_dict()
    assert {name: result[name] for name in expected} == json.loads(json.dumps(expected))
    assert result["record"]["systems"] == {"first": ["a1", "a2"], "second_x": ["b1"]}
    assert result["record"]["base"]["a1"] == 0 and result["record"]["versions"]["numpy"]
    code, out, _ = run("compare", "--gold", "gold", *words)
    assert code == 0
    assert "first - second_x" in out and "p (Holm)" in out and "SD over seeds" in out
    assert "models unknown: link files do not name" in out and result["record"]["models"].startswith("unknown")


def test_compare_writes_tables(run: Run) -> None:
    words = systems()
    assert run("compare", "--gold", "gold", *words, "-o", "t.tex")[0] == 0
    text = Path("t.tex").read_text()
    assert r"second\_x" in text and "% gold: gold" in text and r"\bottomrule" in text
    assert re.search(r"^\\textbf\{first\} & \\textbf\{2\}", text, re.MULTILINE), "the best stands out"
    assert run("compare", "--gold", "gold", *words, "-o", "t.csv")[0] == 0
    with Path("t.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["system"] for row in rows] == ["first", "second_x"]
    assert rows[0]["p"] == "" and 0 < float(rows[1]["p"]) <= 1 and rows[1]["SD"] == ""
    assert float(rows[1]["difference to first"]) == pytest.approx(float(rows[1]["AER"]) - float(rows[0]["AER"]))
    assert run("compare", "--gold", "gold", *words, "-o", "t.json")[0] == 0
    assert json.loads(Path("t.json").read_text())["differences"][0]["name"] == "first"


def test_compare_reads_other_formats_and_fills_up_blank_ends(run: Run) -> None:
    systems()
    write("c.naacl", ["1 1 1"])
    code, out, _ = run("compare", "--gold", "gold", "c=c.naacl", "--json")
    assert code == 0
    assert json.loads(out)["systems"][0]["seeds"][0]["links"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["first"], "'first' is no system; write NAME=FILE"),
        (["first="], "'first=' is no system"),
        (["=a1"], "'=a1' is no system"),
        (["first=a1", "first=a2"], "'first' is given twice"),
        (["first=no"], "no: no such file"),
        (["first=short"], "short:2: 1 lines, but gold has 3"),
        (["first=a1", "-o", "t.png"], "t.png: allowed suffixes are"),
    ],
)
def test_compare_refuses_bad_input(run: Run, words: list[str], message: str) -> None:
    systems()
    write("short", ["0-0"])
    code, out, err = run("compare", "--gold", "gold", *words)
    assert (code, out) == (2, "")
    assert message in err and "Traceback" not in err


def test_compare_needs_links_in_gold(run: Run) -> None:
    words = systems()
    write("gold", ["", "", ""])
    code, _, err = run("compare", "--gold", "gold", *words)
    assert code == 2 and "gold: no link in any sentence" in err
