"""`view`: pages of all heads, one line, BertViz, and what is said of what is left out."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from probes import subword_tokenizer
from variants import tiny_model
from view_pages import page_data, weights_of

from hf_seq2seq_attn.probing import AlignmentChoice, extract, save_choice, to_words

SOURCES = ["the cats love", "", "understand this today.", "I"]
TARGETS = ["love cats", "day", "the day", ""]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_model(vocab_size=73, decoder_layers=3).save_pretrained(folder)
    subword_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def texts(run: Run) -> None:
    for name, lines in (("s", SOURCES), ("t", TARGETS), ("g", ["0-1 1p0", "", "0-0", ""])):
        Path(name).write_text("".join(line + "\n" for line in lines))


def keys(page: str, pair: int, level: str) -> list[str]:
    return [each["key"] for each in page_data(Path(page))["pairs"][pair]["levels"][level]["maps"]]


def test_the_page_has_every_layer_and_head_of_words_and_sub_words(run: Run, model_folder: Path) -> None:
    code, out, err = run("view", model_folder, "s", "t", "-o", "v.html", "--gold", "g")
    assert (code, out) == (0, "")
    assert "v.html: 4 pairs; rows input, layer -1, heads mean of all, specials mask" in err
    assert keys("v.html", 0, "words") == keys("v.html", 0, "tokens")
    assert len(keys("v.html", 2, "words")) == 2 + 3 + 9
    pairs = page_data(Path("v.html"))["pairs"]
    model = tiny_model(vocab_size=73, decoder_layers=3)
    for maps, pair in zip(extract(model, subword_tokenizer(), SOURCES, TARGETS), pairs, strict=True):
        words = pair["levels"]["words"]
        # The reading is the last layer's mean, number 10 its first head.
        np.testing.assert_allclose(weights_of(words), to_words(maps).weights, atol=3e-5)
        np.testing.assert_allclose(weights_of(words, 11), to_words(maps, layer=2, heads=[0]).weights, atol=3e-5)
        assert words["maps"][11]["name"] == "layer 2, head 0"


def test_one_line_and_the_reading_alone(run: Run, model_folder: Path) -> None:
    words = ["--sentence", "3", "--no-every-head", "--layer", "0", "--heads", "1,2"]
    assert run("view", model_folder, "s", "t", "-o", "v.html", *words)[0] == 0
    (pair,) = page_data(Path("v.html"))["pairs"]
    assert pair["levels"]["words"]["source"] == SOURCES[2].split()
    assert [each["name"] for each in pair["levels"]["words"]["maps"]] == [
        "as alignments are read: rows input, layer 0, heads 1,2"
    ]


def test_a_saved_choice_is_the_first_map(run: Run, model_folder: Path, tmp_path: Path) -> None:
    model = tiny_model(vocab_size=73, decoder_layers=3)
    model.save_pretrained(tmp_path / "m")
    subword_tokenizer().save_pretrained(tmp_path / "m")
    save_choice(tmp_path / "m", AlignmentChoice(align_with="output", heads=((0, 1), (2, 2))))
    code, _, err = run("view", "m", "s", "t", "-o", "v.html")
    assert code == 0
    assert "saved with the model" in err
    (maps, *_) = extract(model, subword_tokenizer(), SOURCES[:1], TARGETS[:1], align_with="output")
    expected = (to_words(maps, layer=0, heads=[1]).weights + to_words(maps, layer=2, heads=[2]).weights) / 2
    words = page_data(Path("v.html"))["pairs"][0]["levels"]["words"]
    np.testing.assert_allclose(weights_of(words), expected, atol=3e-5)
    np.testing.assert_allclose(weights_of(words, 1), to_words(maps, layer="all").weights, atol=3e-5)


@pytest.mark.parametrize("view", ["head", "model"])
def test_bertviz_pages(run: Run, model_folder: Path, view: str) -> None:
    code, out, err = run("view", model_folder, "s", "t", "-o", "b.html", "--bertviz", view, "--sentence", "3")
    assert (code, out) == (0, "")
    assert f"b.html: BertViz {view} view of encoder: layers 0, 1, heads 0 to 2; decoder: layers 0 to 2" in err
    assert "const params" in Path("b.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "b.html", "--bertviz", "neuron"], "bertviz is 'neuron'; allowed are head, model"),
        (["-o", "b.png", "--bertviz", "head"], "b.png: BertViz draws a page; let the output end in .html"),
        (["-o", "b.html", "--bertviz", "head", "--gold", "g"], "g: BertViz shows no manual links"),
        (["-o", "b.html", "--bertviz", "head", "--heads", "fitted"], "BertViz shows single heads"),
        (["-o", "b.html", "--bertviz", "head", "--layer", "9"], "layers [9] and heads None are in none of"),
        (["-o", "v.html", "--sentence", "5"], "s: has 4 lines, so there is no sentence 5"),
    ],
)
def test_what_cannot_be_shown_is_one_line(run: Run, model_folder: Path, words: list[str], message: str) -> None:
    code, out, err = run("view", model_folder, "s", "t", *words)
    assert (code, out) == (2, "")
    assert message in err
    # Before it there may be the bar of the weights that were loaded.
    assert err.rpartition("\r")[2].splitlines()[-1].count(message) == 1
    assert "Traceback" not in err
    assert not Path(words[1]).exists()


def test_bertviz_that_is_not_installed_is_one_line(
    run: Run, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mpld3", None)
    code, _, err = run("view", model_folder, "s", "t", "-o", "b.html", "--bertviz", "head")
    assert (code, err) == (2, "this command needs mpld3: pip install 'hf-seq2seq-attn[bertviz]'\n")


def test_a_picture_says_which_characters_have_no_font(run: Run, model_folder: Path) -> None:
    Path("s").write_text("the \x07cats\n")
    Path("t").write_text("love\n")
    code, _, err = run("view", model_folder, "s", "t", "-o", "v.png")
    assert code == 0
    assert "warning: v.png: no installed font has U+0007" in err


def test_an_unknown_link_rule_is_bad_input(run: Run, model_folder: Path) -> None:
    code, _, err = run("view", model_folder, "s", "t", "-o", "v.html", "--links", "foo")
    assert code == 2 and "links is 'foo'; allowed are argmax" in err and "Traceback" not in err
    assert not Path("v.html").exists()
