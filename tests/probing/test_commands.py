"""The commands: files in, files or stdout out, remarks on stderr, exit code 2 with a line for bad input."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from probes import subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import AlignmentChoice, align, save_choice

SOURCES = ["the cats love", "", "understand this today.", "I"]
TARGETS = ["love cats", "day", "the day", ""]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_model(decoder_type="gru", vocab_size=73, encoder_type="gru").save_pretrained(folder)
    subword_tokenizer().save_pretrained(folder)
    return folder


def write(name: str, lines: list[str]) -> Path:
    path = Path(name)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def expected_links() -> str:
    model = tiny_model(decoder_type="gru", vocab_size=73, encoder_type="gru")
    found = align(model, subword_tokenizer(), SOURCES, TARGETS)
    return "".join(" ".join(f"{i}-{j}" for i, j in sorted(links)) + "\n" for links in found)


def test_align_to_a_file_and_to_stdout(run: Run, model_folder: Path) -> None:
    source, target = write("s", SOURCES), write("t", TARGETS)
    code, out, err = run("align", model_folder, source, target, "-o", "out.align")
    assert (code, out) == (0, "")
    assert "rows output" in err
    assert "layer -1, heads mean of all" in err
    assert Path("out.align").read_text() == expected_links()
    code, out, _ = run("align", model_folder, source, target, "--batch-size", "2")
    assert (code, out) == (0, expected_links())


def test_align_passes_its_choices_on(run: Run, model_folder: Path) -> None:
    source, target = write("s", SOURCES), write("t", TARGETS)
    model = tiny_model(decoder_type="gru", vocab_size=73, encoder_type="gru")
    choices = dict(align_with="input", specials="null", subwords="links", layer=0, heads=[0], links="threshold:0.1")
    found = align(model, subword_tokenizer(), SOURCES, TARGETS, **choices)  # type: ignore[arg-type]
    words = ["--align-with", "input", "--specials", "null", "--subwords", "links", "--layer", 0]
    code, out, err = run("align", model_folder, source, target, *words, "--heads", "0", "--links", "threshold:0.1")
    assert code == 0
    assert out.splitlines() == [" ".join(f"{i}-{j}" for i, j in sorted(links)) for links in found]
    assert out != expected_links()
    assert "rows input, layer 0, heads 0, weights attention, specials null, sub-words links, links threshold:0.1" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--links", "best"], "links is 'best'; allowed are"),
        (["--heads", "a"], "heads is 'a'; write auto or numbers"),
        (["--heads", "7"], "head 7 does not exist"),
        (["--align-with", "both"], "align_with is 'both'; allowed are output, input"),
        (["--specials", "x"], "specials is 'x'"),
        (["-o", "no/folder"], "no/folder: cannot be written"),
    ],
)
def test_bad_choices_exit_with_2_and_one_line(run: Run, model_folder: Path, words: list[str], message: str) -> None:
    code, out, err = run("align", model_folder, write("s", SOURCES), write("t", TARGETS), *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_files_that_do_not_belong_together(run: Run, model_folder: Path) -> None:
    code, _, err = run("align", model_folder, write("s", SOURCES), write("t", TARGETS[:2]))
    assert code == 2
    assert re.search(r"^t:3: ", err, re.MULTILINE)


def test_a_missing_model_is_bad_input(run: Run) -> None:
    code, _, err = run("align", "no/such/model", write("s", SOURCES), write("t", TARGETS))
    assert code == 2
    assert "no/such/model" in err


def test_a_sentence_too_long_is_named_by_file_and_line(run: Run, tmp_path: Path) -> None:
    tiny_model(vocab_size=73, max_position_embeddings=9, position_embedding_type="learned").save_pretrained(
        tmp_path / "m"
    )
    subword_tokenizer().save_pretrained(tmp_path / "m")
    code, _, err = run("align", "m", write("s", ["cats", "cats " * 20]), write("t", ["a", "b"]))
    assert code == 2
    assert re.search(r"^s:2: 2\d tokens are more than", err, re.MULTILINE)


def test_score_prints_json_with_the_base_of_each_file(run: Run) -> None:
    links, gold = write("l.talp", ["1-1 2-2", "", "1-1"]), write("g.align", ["0-0 1p1", "0-0", "0-0"])
    code, out, err = run("score", links, gold, "--json")
    assert code == 0
    result = json.loads(out)
    # |A| = 3, |S| = 3, |A & S| = 2, |A & P| = 3.
    assert result["aer"] == pytest.approx(1 - 5 / 6)
    assert result["base"] == {"links": 1, "gold": 0}
    assert "l.talp: counts from 1 (a TALP file without index 0)" in err
    code, out, _ = run("score", links, gold)
    assert "AER        0.1667" in out


def test_score_warns_of_a_doubtful_base_and_takes_a_given_one(run: Run) -> None:
    links, gold = write("l.align", ["0-0 1-1"]), write("g.align", ["1-1 2-2"])
    code, out, err = run("score", links, gold, "--json")
    assert json.loads(out)["aer"] == pytest.approx(0.5)
    assert "warning: g.align: no index 0" in err
    code, out, err = run("score", links, gold, "--gold-base", "1", "--json")
    assert (code, json.loads(out)["aer"]) == (0, 0)
    assert "warning" not in err


def test_score_of_nothing_is_refused_and_of_gold_without_links_warned_of(run: Run) -> None:
    code, out, err = run("score", write("l", []), write("g", []))
    assert (code, out) == (2, "")
    assert err.endswith("g: no sentence to score; check the file\n")
    code, _, err = run("score", write("l", ["0-0", ""]), write("g", ["", ""]))
    assert code == 0
    assert "warning: g: no link in any sentence" in err
    assert "no link" not in run("score", write("l", ["", ""]), write("g", ["0p0", ""]))[2]


def test_score_refuses_files_of_unequal_length(run: Run) -> None:
    code, _, err = run("score", write("l", ["0-0"]), write("g", ["0-0", "0-0"]))
    assert code == 2
    assert re.search(r"^l:2: 1 lines, but g has 2", err, re.MULTILINE)


def test_symmetrize_flips_and_names_its_method(run: Run) -> None:
    forward, reverse = write("f", ["0-0 1-2", ""]), write("r", ["0-0 2-1", "0-0"])
    code, out, err = run("symmetrize", forward, reverse, "-m", "intersection", "--flip-reverse")
    assert (code, out) == (0, "0-0 1-2\n\n")
    assert "intersection" in err
    code, out, _ = run("symmetrize", forward, reverse, "-m", "union", "-o", "u")
    assert (code, out, Path("u").read_text()) == (0, "", "0-0 1-2 2-1\n0-0\n")
    code, _, err = run("symmetrize", forward, reverse, "-m", "grow-diag")
    assert code == 2
    assert "grow-diag-moses" in err


def test_view_writes_a_page_or_a_picture(run: Run, model_folder: Path) -> None:
    source, target = write("s", SOURCES), write("t", TARGETS)
    gold = write("g", ["0-1 1p0", "", "0-0", ""])
    code, out, _ = run("view", model_folder, source, target, "-o", "v.html", "--gold", gold)
    assert (code, out) == (0, "")
    page = Path("v.html").read_text()
    assert "4 sentence pairs; rows output, layer -1" in page
    assert 'class="hm-sure"' in page
    for name in ("v.png", "v.svg", "v.pdf"):
        assert run("view", model_folder, source, target, "-o", name, "--sentence", "3", "--gold", gold)[0] == 0
        assert Path(name).stat().st_size > 1000
    assert "understand" in Path("v.svg").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "v.gif"], "allowed suffixes are .html, .png"),
        (["-o", "v.png", "--sentence", "9"], "no sentence 9"),
        (["-o", "v.html", "--gold", "g"], r"g:3: source index 5"),
    ],
)
def test_view_refuses_bad_input(run: Run, model_folder: Path, words: list[str], message: str) -> None:
    write("g", ["", "", "5-0", ""])
    code, _, err = run("view", model_folder, write("s", SOURCES), write("t", TARGETS), *words)
    assert code == 2
    assert message in err


def test_a_picture_of_a_bad_sentence_names_its_line(run: Run, tmp_path: Path) -> None:
    small = tmp_path / "small"
    tiny_model(vocab_size=73, max_position_embeddings=9, position_embedding_type="learned").save_pretrained(small)
    subword_tokenizer().save_pretrained(small)
    source, target = write("s", ["I", "cats", "the day"]), write("t", ["day", "love", "cats " * 20])
    code, _, err = run("view", small, source, target, "-o", "v.svg", "--sentence", 3)
    assert code == 2
    assert re.search(r"t:3: \d+ tokens are more than", err)
    code, _, err = run("scaling", small, source, target)
    assert code == 2
    assert re.search(r"t:3: \d+ tokens are more than", err)


def test_view_and_align_read_a_saved_choice_alike(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model = tiny_model(vocab_size=73)
    model.save_pretrained(folder)
    subword_tokenizer().save_pretrained(folder)
    save_choice(folder, AlignmentChoice(((0, 1),), "input", specials="null", subwords="links", links="relative:0.5"))
    source, target = write("s", SOURCES), write("t", TARGETS)
    code, out, err = run("align", folder, source, target)
    assert code == 0, err
    choices: dict[str, Any] = dict(specials="null", subwords="links", links="relative:0.5", layer=0, heads=[1])
    expected = align(model, subword_tokenizer(), SOURCES, TARGETS, align_with="input", **choices)
    assert out == "".join(" ".join(f"{i}-{j}" for i, j in sorted(links)) + "\n" for links in expected)
    by_matrix = align(
        model, subword_tokenizer(), SOURCES, TARGETS, align_with="input", **choices | {"subwords": "matrix"}
    )
    assert expected != by_matrix
    gold = write("g", out.splitlines())
    code, _, err = run("view", folder, source, target, "-o", "v.svg", "--sentence", "3", "--gold", gold)
    assert code == 0, err
    assert "false link" not in Path("v.svg").read_text()
    assert "heads 0.1 (layer.head) (saved with the model)" in err


def test_explain_refuses_a_suffix_that_names_no_format(run: Run) -> None:
    code, out, err = run("explain", "--example", "-o", "x.pdf")
    assert (code, out) == (2, "")
    assert "x.pdf: the suffix names no format; allowed are .txt, .html" in err
    for words in (["-o", "x.txt"], ["-o", "x.pdf", "--format", "text"]):
        assert run("explain", "--example", *words)[0] == 0
    assert Path("x.txt").read_text() == Path("x.pdf").read_text()
