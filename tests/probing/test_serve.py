"""What the demo page computes, without a page: the same as the functions it stands on, within its limits, in words."""

import gzip
import re
import shutil
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probes import byte_tokenizer, foreign_model, subword_tokenizer, word_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.probing import (
    EXTRACTIONS,
    AlignmentChoice,
    PairView,
    ReadingOptions,
    ServedModel,
    align,
    extract,
    pair_pictures,
    save_choice,
    to_words,
    walk_html,
    walk_through,
)
from hf_seq2seq_attn.probing.serve import FILE_LIMIT, LINE_LIMIT, LINK_RULES, SENTENCE_LIMIT
from hf_seq2seq_attn.probing.serve_phrases import PAGE_PHRASES
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.translation import translate

SOURCE, TARGET = "the cats love today.", "I love cats"


@pytest.fixture(scope="module")
def served() -> ServedModel:
    return ServedModel(foreign_model("marian"), subword_tokenizer(), "tiny")


def weights(served: ServedModel, **options: str) -> np.ndarray:
    return served.read_pair(SOURCE, TARGET, ReadingOptions(**options))[0].words.maps[0].matrix


@pytest.mark.parametrize("family", ["marian", "bart", "m2m_100", "t5", "ours"])
def test_any_family_is_served_and_left_as_it_is(family: str) -> None:
    model = tiny_model(vocab_size=73, decoder_layers=3) if family == "ours" else foreign_model(family)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    backend, served = model.config._attn_implementation, ServedModel(model, subword_tokenizer(), family)
    assert (served.layers, served.heads) == (3, 3)
    found = served.translate(SOURCE, 2)
    assert found.text == translate(model, served.tokenizer, [SOURCE], num_beams=2)[0]
    view, note = served.read_pair(SOURCE, TARGET, ReadingOptions("1", "2"))
    (maps,) = extract(model, served.tokenizer, [SOURCE], [TARGET])
    np.testing.assert_allclose(view.words.maps[0].matrix, to_words(maps, layer=1, heads=[2]).weights, atol=1e-6)
    assert note == "rows input, layer 1, heads 2, weights attention, links argmax, sub-words matrix"
    assert view.words.maps[0].links == align(model, served.tokenizer, [SOURCE], [TARGET], layer=1, heads=[2])[0]
    assert served.tokens(SOURCE, TARGET) == maps.target_tokens
    walk = walk_through(model, served.tokenizer, SOURCE, TARGET, row=2, layer=1, head=2)
    assert served.walk(SOURCE, TARGET, 2, ReadingOptions("1", "2"), "zh").endswith(walk_html(walk, "zh"))
    assert model.config._attn_implementation == backend and not model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_spaces_and_lines_of_what_was_typed_change_nothing(served: ServedModel) -> None:
    wide = SOURCE.replace(" ", "  "), TARGET.replace(" ", "\n\n") + "\n"
    assert served.tokens(*wide) == served.tokens(SOURCE, TARGET)
    (view, note), (other, other_note) = (served.read_pair(*each, ReadingOptions()) for each in (wide, (SOURCE, TARGET)))
    assert pair_pictures(view, "tokens") == pair_pictures(other, "tokens") and note == other_note


def test_how_a_pair_was_read_is_said_in_chinese(served: ServedModel) -> None:
    _, note = served.read_pair(SOURCE, TARGET, ReadingOptions("1", "2"), "zh")
    expected = "行的含义 input, 解码器层 1, 注意力头 2, 权重 attention, 取链接的规则 argmax, 子词到词 matrix"
    assert note == expected


def test_every_option_does_something() -> None:
    served = ServedModel(foreign_model("t5"), subword_tokenizer(), "t5")
    (maps,) = extract(served.model, served.tokenizer, [SOURCE], [TARGET])
    every = to_words(maps, layer="all").weights
    np.testing.assert_allclose(weights(served, layer="all", head="mean"), every, atol=1e-6)
    np.testing.assert_allclose(weights(served), to_words(maps).weights, atol=1e-6)
    for changed in (dict(rows="output"), dict(weights="norm"), dict(layer="0"), dict(head="1")):
        assert not np.allclose(weights(served, **changed), weights(served), atol=1e-3), changed
    everything, _ = served.read_pair(SOURCE, TARGET, ReadingOptions(links="threshold:1e-9"))
    assert len(everything.words.maps[0].links) == 4 * 3
    by_links, note = served.read_pair(SOURCE, TARGET, ReadingOptions(subwords="links"))
    expected = align(served.model, served.tokenizer, [SOURCE], [TARGET], subwords="links")
    assert by_links.words.maps[0].links == expected[0]
    assert note.endswith("sub-words links")


def test_the_rules_offered_are_those_there_are(served: ServedModel) -> None:
    assert [rule.partition(":")[0] for rule in LINK_RULES] == list(EXTRACTIONS)
    for rule in LINK_RULES:
        served.read_pair(SOURCE, TARGET, ReadingOptions(links=rule))


def test_a_choice_saved_with_the_model_is_read(tmp_path: Path) -> None:
    foreign_model("marian").save_pretrained(tmp_path / "m")
    subword_tokenizer().save_pretrained(tmp_path / "t")
    save_choice(tmp_path / "m", AlignmentChoice(heads=((0, 1), (2, 2)), align_with="output", links="mutual"))
    served = ServedModel.load(str(tmp_path / "m"), str(tmp_path / "t"))
    assert served.name == "m"
    view, note = served.read_pair(SOURCE, TARGET, ReadingOptions())
    assert "heads 0.1, 2.2 (layer.head) (saved with the model)" in note and "links mutual" in note
    # What sets the choice aside for the map does so for the walk, too.
    for options, place in (
        (ReadingOptions(rows="input"), "head 0 of 3, decoder layer 2"),
        (ReadingOptions(head="mean"), "head 0 of 3, decoder layer 2"),
        (ReadingOptions(layer="all"), "head 0 of 3, decoder layer 0"),
    ):
        assert f"({place}, both from 0)" in served.walk(SOURCE, TARGET, 0, options)
        assert "saved" not in served.read_pair(SOURCE, TARGET, options)[1]
    (maps,) = extract(served.model, served.tokenizer, [SOURCE], [TARGET], align_with="output")
    mean = (to_words(maps, layer=0, heads=[1]).weights + to_words(maps, layer=2, heads=[2]).weights) / 2
    np.testing.assert_allclose(view.words.maps[0].matrix, mean, atol=1e-6)
    assert "(head 1 of 3, decoder layer 0, both from 0)" in served.walk(SOURCE, TARGET, 0, ReadingOptions())


def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    foreign_model("marian").save_pretrained(tmp_path / "m")
    byte_tokenizer().save_pretrained(tmp_path / "t")
    with pytest.raises(InputError, match=r"the tokenizer has \d+ entries, the model 73; they do not fit together"):
        ServedModel.load(str(tmp_path / "m"), str(tmp_path / "t"))


def test_a_prefix_is_read_but_not_shown(served: ServedModel) -> None:
    prefixed = ServedModel(served.model, served.tokenizer, "tiny", source_prefix="understand: ")
    expected = translate(served.model, served.tokenizer, ["understand: " + SOURCE])
    assert prefixed.translate(SOURCE).text == expected[0]
    view, _ = prefixed.read_pair(SOURCE, TARGET, ReadingOptions())
    assert view.words.source == SOURCE.split()
    assert not np.allclose(view.words.maps[0].matrix, weights(served), atol=1e-3)


def test_a_model_without_attention_is_refused() -> None:
    model = tiny_model(vocab_size=23, encoder_type="gru", decoder_type="gru", cross_attention_type="none")
    with pytest.raises(UnusableError, match="there is no attention to read"):
        ServedModel(model, word_tokenizer(), "none")


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("", "the source is empty; type a sentence"),
        (" \n\t", "the source is empty; type a sentence"),
        (
            "a" * (SENTENCE_LIMIT + 1),
            f"the source has {SENTENCE_LIMIT + 1} characters, this page takes {SENTENCE_LIMIT}",
        ),
        ("the \ud800 cats", "the source holds half a character at place 4; type it again"),
        ("the cats " * 30, "tokens"),
    ],
)
def test_a_sentence_that_cannot_be_read_is_refused(served: ServedModel, sentence: str, words: str) -> None:
    for work in (
        lambda: served.translate(sentence),
        lambda: served.read_pair(sentence, TARGET, ReadingOptions()),
        lambda: served.walk(sentence, TARGET, 0, ReadingOptions()),
        lambda: served.tokens(sentence, TARGET),
    ):
        with pytest.raises(UnusableError, match=re.escape(words)):
            work()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(layer="9"), "layer 9 does not exist; the model has 3"),
        (dict(layer="x"), "layer is 'x'; write auto, all, or numbers"),
        (dict(head="3"), "head 3 does not exist; the model has 3"),
        (dict(head="x"), "heads is 'x'; write auto or numbers"),
        (dict(head="fitted"), "no fit was saved with the model"),
        (dict(rows="z"), "align_with is 'z'; allowed are output, input"),
        (dict(weights="z"), "weights is 'z'; allowed are attention, norm"),
        (dict(links="threshold:0"), "links is 'threshold:0'; allowed are argmax"),
        (dict(subwords="z"), "subwords is 'z'; allowed are matrix, links"),
    ],
)
def test_an_option_that_there_is_not_is_refused(served: ServedModel, options: dict[str, str], words: str) -> None:
    with pytest.raises(UnusableError, match=re.escape(words)):
        served.read_pair(SOURCE, TARGET, ReadingOptions(**options))


@pytest.mark.parametrize("beams", [0, 11])
def test_more_beams_than_the_page_takes_are_refused(served: ServedModel, beams: int) -> None:
    with pytest.raises(UnusableError, match=rf"beams is {beams}; it must lie in 1\.\.10"):
        served.translate(SOURCE, beams)


def test_pictures_of_words_and_of_sub_words(served: ServedModel) -> None:
    view, _ = served.read_pair(SOURCE, TARGET, ReadingOptions())
    assert view.tokens is not None
    for level, shown in (("words", view.words), ("tokens", view.tokens)):
        html = pair_pictures(view, level)
        assert html.count("hm-row") == len(shown.target)
        assert html.count("<title>") == len(shown.maps[0].links)
    with pytest.raises(UnusableError, match="level is 'letters'; allowed are words, tokens"):
        pair_pictures(view, "letters")
    with pytest.raises(UnusableError, match="the fit that was saved with the model reads words; choose words"):
        pair_pictures(PairView(view.words), "tokens")


def files(folder: Path, sources: list[str], targets: list[str]) -> tuple[Path, Path]:
    paths = folder / "s.txt", folder / "t.txt"
    for path, lines in zip(paths, (sources, targets), strict=True):
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return paths


def test_two_files_are_aligned_line_by_line(served: ServedModel, tmp_path: Path) -> None:
    sources, targets = ["the cats", "", "<b>I</b> love"], ["love cats", "day", "the day"]
    found = served.align_files(*files(tmp_path, sources, targets), ReadingOptions("0", "1", links="relative:0.5"))
    expected = align(served.model, served.tokenizer, sources, targets, layer=0, heads=[1], links="relative:0.5")
    assert found.links == expected
    lines = [" ".join(f"{i}-{j}" for i, j in sorted(links)) for links in expected]
    assert found.pharaoh() == "".join(line + "\n" for line in lines)
    table = found.table(["line", "source", "target", "<links>"], 3)
    assert "&lt;b&gt;I&lt;/b&gt; love" in table and "<b>" not in table and "&lt;links&gt;" in table
    assert table.count("<tr>") == 1 + 3
    assert found.table("abcd", 2).count("<tr>") == 1 + 2


@pytest.mark.parametrize(
    ("sources", "targets", "words"),
    [
        (["a"], ["b", "c"], "t.txt:2: 2 lines, but s.txt has 1; line N"),
        (
            ["a"] * (LINE_LIMIT + 1),
            ["b"] * (LINE_LIMIT + 1),
            "s.txt:1001: 1,001 lines, this page takes 1,000; split it",
        ),
        (["a", "b" * 1001], ["a", "b"], "s.txt:2: 1001 characters, this page takes 1000; split"),
        (["a", "b"], ["a", "the cats " * 30], "t.txt:2: "),
        (["a"], ["b" * (FILE_LIMIT + 1)], "t.txt: 1,000,002 bytes, this page takes 1,000,000; split it"),
    ],
)
def test_files_that_cannot_be_aligned_are_refused(
    served: ServedModel, tmp_path: Path, sources: list[str], targets: list[str], words: str
) -> None:
    with pytest.raises(InputError) as refusal:
        served.align_files(*files(tmp_path, sources, targets), ReadingOptions())
    assert str(refusal.value).startswith(words)
    assert str(tmp_path) not in str(refusal.value)


def test_packed_and_broken_files_are_refused(served: ServedModel, tmp_path: Path) -> None:
    source, target = files(tmp_path, ["a"], ["b"])
    packed = tmp_path / "s.txt.gz"
    with source.open("rb") as text, gzip.open(packed, "wb") as out:
        shutil.copyfileobj(text, out)
    target.write_bytes(b"b\xff\n")
    for path, words in ((packed, r"^s\.txt\.gz: is packed"), (source, r"^t\.txt:1: not UTF-8 \(byte 0xff\)")):
        with pytest.raises(InputError, match=words):
            served.align_files(path, target, ReadingOptions())


def test_both_languages_say_the_same() -> None:
    def names(phrases: dict[str, Any]) -> dict[str, set[str | None]]:
        return {key: {name for _, name, _, _ in string.Formatter().parse(text)} for key, text in phrases.items()}

    assert names(PAGE_PHRASES["en"]) == names(PAGE_PHRASES["zh"])
    assert all(re.search("[\u4e00-\u9fff]", text) for text in PAGE_PHRASES["zh"].values())
