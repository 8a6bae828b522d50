"""Translating text with markup, by stand-ins and by tiny models."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from probes import foreign_model, subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing.markup import parse_markup, stripped
from hf_seq2seq_attn.probing.markup_commands import transfer_markup, translate_markup
from hf_seq2seq_attn.probing.markup_tokens import tokenize_markup
from hf_seq2seq_attn.probing.spans import PieceAlignment, pieces_of_links
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.translation import translate

DOCUMENT = """<doc>
  <s id="1">the <b>cats</b> love today.</s>

  <s id="2">I <i>love</i> {name}, don&#8217;t <br/>you?</s><!-- end -->
</doc>"""


def word_by_word(sources: list[str], targets: list[str]) -> list[PieceAlignment]:
    """Link word n to word n."""
    return [
        pieces_of_links([(n, n) for n in range(min(len(s.split()), len(t.split())))], s, t)
        for s, t in zip(sources, targets, strict=True)
    ]


def test_a_translation_without_its_placeholders_is_made_again() -> None:
    marked = parse_markup("<b>Hi</b> {name}!\n{only}\nuse %s and <i>%d</i>\n{x} {x}", "html")
    asked: list[tuple[list[str], Sequence[int]]] = []

    def again(texts: list[str], numbers: Sequence[int]) -> list[str]:
        asked.append((texts, numbers))
        return [text.upper() for text in texts]

    first = ["Hallo {Name}!", "nur", "nimm %s und %d", "{x} {x} {x}"]
    done = transfer_markup(marked, first, again, word_by_word)
    # Line 3 kept its placeholders; lines 2 and 4 have nothing else to translate.
    assert asked == [(["Hi !"], [1])]
    assert done.split("\n") == ["<b>HI</b> {name}!", "{only}", "nimm %s und <i>%d</i>", "{x} {x}"]


@pytest.mark.parametrize("family", ["ours", "marian"])
def test_a_model_translates_the_text_and_leaves_the_markup(family: str) -> None:
    tokenizer = subword_tokenizer()
    model = (
        tiny_model(vocab_size=73, decoder_type="gru", encoder_type="gru") if family == "ours" else foreign_model(family)
    )
    found = translate_markup(model, tokenizer, DOCUMENT, "xml", num_beams=2, max_new_tokens=9)
    assert found.count("\n") == DOCUMENT.count("\n")
    tags = [
        Counter(t.raw for t in tokenize_markup(each, "xml") if t.kind not in ("text", "entity"))
        for each in (DOCUMENT, found)
    ]
    assert tags[0] == {tag: count for tag, count in tags[1].items() if tag != "{name}"}
    assert "{name}" in found
    lines = [line.text for line in parse_markup(DOCUMENT, "xml").lines()]
    (first,) = translate(model, tokenizer, [lines[1]], num_beams=2, max_new_tokens=9)
    assert list(parse_markup(found, "xml").lines())[1].text == " ".join(first.split())
    assert found.split("\n")[2] == ""
    assert translate_markup(model, tokenizer, "", "html") == ""


def test_what_cannot_be_translated_is_refused_in_words() -> None:
    model, tokenizer = foreign_model("marian"), subword_tokenizer()
    with pytest.raises(InputError, match=r"markup:3: sentence \d has \d+ tokens, the model 40 positions"):
        translate_markup(model, tokenizer, "<p>\nx</p>\n" + "love " * 60, "html")
    with pytest.raises(InputError, match=r"F:2: column 1: <b> is never closed"):
        translate_markup(model, tokenizer, "x\n<b>", "xml", name="F")
    blind = tiny_model(vocab_size=73, decoder_type="gru", encoder_type="gru", cross_attention_type="none")
    with pytest.raises(ValueError, match="no attention to read"):
        translate_markup(blind, tokenizer, "x", "html")


def test_the_command(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "model"
    tiny_model(vocab_size=73, decoder_type="gru", encoder_type="gru").save_pretrained(folder)
    subword_tokenizer().save_pretrained(folder)
    Path("d.xml").write_text(DOCUMENT + "\n", encoding="utf-8")
    code, out, _ = run("translate", folder, "d.xml", "--markup", "xml", "--beams", "1")
    assert code == 0
    assert out.count("\n") == DOCUMENT.count("\n") + 1
    assert stripped(out, "xml")
    Path("bad.xml").write_text("<a>\n<b></a>\n", encoding="utf-8")
    assert run("translate", folder, "bad.xml", "--markup", "xml")[::2] == (
        2,
        "bad.xml:2: column 6: mismatched tag (<b> of line 2 is open); mend the XML, or read it as --markup html\n",
    )
    assert run("translate", folder, "d.xml", "--markup", "rtf")[::2] == (2, "--markup rtf: allowed are html and xml\n")
    code, _, err = run("translate", folder, "d.xml", "--markup", "xml", "--alignments")
    assert code == 2
    assert "leave out --n-best and --alignments" in err
