"""Markup taken out of text and put back by alignment: nothing lost, all well formed, whatever the links say."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_seq2seq_attn.probing.markup import MarkedLine, parse_markup
from hf_seq2seq_attn.probing.markup_layout import escape, render
from hf_seq2seq_attn.probing.markup_tokens import Token, tokenize_markup
from hf_seq2seq_attn.probing.pieces import cut
from hf_seq2seq_attn.probing.spans import pieces_of_links
from hf_seq2seq_attn.text_files import InputError

Links = Sequence[tuple[int, int]]


def put_back(markup: str, kind: str, target: str, links: Links) -> str:
    """Return a one-line translation with the tags of its source."""
    (line,) = parse_markup(markup, kind).lines()
    return render(line, pieces_of_links(links, line.text, target))


def text_of(markup: str, kind: str = "html") -> str:
    (line,) = parse_markup(markup, kind).lines()
    return line.text


# By hand


@pytest.mark.parametrize(
    ("markup", "target", "links", "expected"),
    [
        # Reordered; punctuation stays outside.
        ("<b>red</b>, <i>house</i>!", "maison rouge!", [(0, 1), (1, 0)], "<i>maison</i> <b>rouge</b>!"),
        ("a <b>house</b>.", "la grande maison.", [(0, 0), (1, 2)], "la grande <b>maison</b>."),
        # Punctuation of the span goes with it.
        ("<b>Hello!</b> you", "hallo! du", [(0, 0), (1, 1)], "<b>hallo!</b> du"),
        # All of the parent is all of the parent, linked or not.
        ("<p><b>x y</b></p>", "uno dos tres.", [], "<p><b>uno dos tres.</b></p>"),
        # It comes apart: the heavier part, else all of it.
        ("<b>call up</b> you", "rufe dich an", [(0, 0), (1, 2), (2, 1)], "<b>rufe dich an</b>"),
        ("<b>a b c</b> d e f", "A B x y z C", [(0, 0), (1, 1), (2, 5), (3, 2), (4, 3), (5, 4)], "<b>A B</b> x y z C"),
        # Shared by two elements: the first has it.
        ("<b>do</b> <i>not</i>", "nicht", [(0, 0), (1, 0)], "<b>nicht</b><i></i>"),
        # Linked to nothing: empty, beside its neighbours.
        ("one <b>two</b> three", "uno tres", [(0, 0), (2, 1)], "uno <b></b>tres"),
        # What stands by itself keeps to what it was attached to.
        ("word<img src='a'> next", "nächstes Wort", [(0, 1), (1, 0)], "nächstes Wort<img src='a'>"),
        ("word <img>next", "nächstes Wort", [(0, 1), (1, 0)], "<img>nächstes Wort"),
        ("<br>one two<br/>", "dos uno", [(0, 1), (1, 0)], "<br>dos uno<br/>"),
        # A void element whose place is inside another element moves to its edge.
        ("one <br>two <b>a b c</b>", "A uno B dos C", [(0, 1), (1, 3), (2, 0), (3, 2), (4, 4)], None),
        # Inside a word: around it.
        ("un<b>believ</b>able", "unglaublich", [(0, 0)], "<b>unglaublich</b>"),
        # Entities: decoded for the translator, spelled again; white space as it was.
        ("Tom &amp; it&#8217;s &lt;b&gt;", "<b> & c’est", [(0, 2)], "&lt;b&gt; &amp; c&#8217;est"),
        ("10&nbsp;<b>km</b>", "10 Kilometer", [(0, 0), (1, 1)], "10&nbsp;<b>Kilometer</b>"),
        ("a b", "x <y> & z", [], "x &lt;y> &amp; z"),
        # Marks of notes, comments and scripts are not text.
        ("word<sup>12</sup> on<!-- n > 1 -->", "auf Wort", [(0, 1), (1, 0)], "auf Wort<sup>12</sup><!-- n > 1 -->"),
        ("a <sup>raised</sup> b", "A hoch B", [(0, 0), (1, 1), (2, 2)], "A <sup>hoch</sup> B"),
        # No spaces between words.
        ("<b>I</b> love <i>cats</i>.", "我喜欢猫。", [(0, 0)], None),
        # No text to go by.
        ("a <b>b</b><br>", "", [], "<b></b><br>"),
    ],
)
def test_html(markup: str, target: str, links: Links, expected: str | None) -> None:
    found = put_back(markup, "html", target, links)
    if expected is not None:
        assert found == expected
    check("html", markup, found, target)


def test_characters_of_a_script_without_spaces_are_pieces() -> None:
    (line,) = parse_markup("<b>I</b> love <i>cats</i>.", "html").lines()
    pieces = pieces_of_links([], line.text, "我喜欢猫。")
    for target, source in ((0, 0), (1, 1), (2, 1), (3, 2), (4, 3)):
        pieces.sources_of[target].append(source)
    assert render(line, pieces) == "<b>我</b>喜欢<i>猫</i>。"


def test_lenient_html_loses_nothing() -> None:
    for markup in (
        "<b><i>x</b> y</i>",
        "</p>x y<li>",
        "<p>x<p>y",
        "x < y & z &bogus; AT&T <",
        "<a href='x",
        "<![CDATA[q]]> w",
    ):
        target = " ".join(reversed(text_of(markup).split()))
        check("html", markup, put_back(markup, "html", target, []), target)


def test_breaking_tags_end_a_word_and_others_do_not() -> None:
    assert text_of("one<br>two<p>three</p>four") == "one two three four"
    assert text_of("H<u>2</u>O<!-- c -->s <b> x</b>") == "H2Os x"
    assert text_of("one<br/>two", "xml") == "onetwo"


def test_lines_of_a_document() -> None:
    document = '<div\n class="x"> <b>one\ntwo <i>three</i>\n\nfour</b> five</div>\n<script>\nif (a<b) c\n</script> end'
    lines = list(parse_markup(document, "html").lines())
    assert [(line.number, line.text) for line in lines] == [
        (1, "one"),
        (3, "two three"),
        (4, ""),
        (5, "four five"),
        (6, "end"),
    ]
    assert "\n".join(line.raw for line in lines) == document
    assert [line.is_translatable for line in lines] == [True, True, False, True, True]
    targets = ["eins", "drei zwei", "", "fünf vier", "Ende"]
    links: list[Links] = [[(0, 0)], [(0, 1), (1, 0)], [], [(0, 1), (1, 0)], [(0, 0)]]
    done = [
        render(line, pieces_of_links(*each))
        for line, *each in zip(lines, links, [each.text for each in lines], targets, strict=True)
    ]
    # An element that goes on reaches to the end of its line; one that ends here, from its start.
    assert done[0] == '<div\n class="x"><b>eins'
    assert done[1:] == ["<i>drei</i> zwei", "", "fünf vier</b></div>", "<script>\nif (a<b) c\n</script>Ende"]


def test_indents_and_spelling_stay() -> None:
    assert put_back("  <p>a</p> \t", "html", "x", [(0, 0)]) == "  <p>x</p> \t"
    line = next(parse_markup("&#38; &quot;a&quot; ' é &eacute;", "html").lines())
    assert line.text == '& "a" \' é é'
    # Of two spellings the plain one.
    assert line.spelling == {"&": "&#38;", '"': "&quot;"}
    assert escape("a & \" ' é < ]]>", line.spelling) == "a &#38; &quot; ' é &lt; ]]&gt;"


def test_placeholders_can_be_hidden() -> None:
    document = parse_markup("Hi {name}, <b>%d files</b>", "html")
    (line,) = document.lines(hide_placeholders=True)
    assert line.text == "Hi , files"
    assert render(line, pieces_of_links([(0, 1), (2, 0)], line.text, "Dateien hallo")) in (
        "<b>%dDateien</b> hallo{name}",
        "<b>%dDateien</b> {name}hallo",
        "{name}<b>%dDateien</b> hallo",
    )


# Tokens


@pytest.mark.parametrize("kind", ["html", "xml"])
@pytest.mark.parametrize(
    ("markup", "kinds"),
    [
        ("a<b x='>'>c</b>", "text open text close"),
        ("<br/>&amp;&#233;<!-- <b> -->", "void entity entity void"),
        ("<?pi x?>é<a\n b='c'></a>", "void text open close"),
        ("", ""),
    ],
)
def test_tokens_of_both_kinds(kind: str, markup: str, kinds: str) -> None:
    tokens = tokenize_markup(markup, kind)
    assert "".join(token.raw for token in tokens) == markup
    assert [token.kind for token in tokens] == kinds.split()


def test_tokens_of_xml() -> None:
    markup = '<?xml version="1.0"?>\n<!DOCTYPE d [<!ENTITY co "Corp <b/>">]>\n<d>ü &co; <![CDATA[<x>&]]>y<e/></d>\n'
    tokens = tokenize_markup(markup, "xml")
    assert "".join(token.raw for token in tokens) == markup
    assert [token.raw for token in tokens if token.kind == "void"] == [
        '<?xml version="1.0"?>',
        '<!DOCTYPE d [<!ENTITY co "Corp <b/>">]>',
        "&co;",
        "<![CDATA[<x>&]]>",
        "<e/>",
    ]
    assert text_of("<d>ü &lt;<![CDATA[<x>&]]>y</d>", "xml") == "ü <y"


@pytest.mark.parametrize(
    ("markup", "message"),
    [
        ("<a>x", r"F:1: column 1: <a> is never closed"),
        ("ok\n <a>x\nyz", r"F:2: column 2: <a> is never closed"),
        ("<a>\n<b>x</a>", r"F:2: column 7: mismatched tag \(<b> of line 2 is open\)"),
        ("x </b>", r"F:1: column 5: mismatched tag"),
        ("ünï & y", r"F:1: column 6: not well-formed"),
        ("x\ny <c d=e/>", r"F:2: column 8: not well-formed"),
        ("&nbsp;", r"F:1: column 1: undefined entity"),
        ("<?xml version='1.0'?>\n<a>", r"F:2: column 1: <a> is never closed"),
    ],
)
def test_malformed_xml_is_named_with_line_and_column(markup: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tokenize_markup(markup, "xml", "F")
    with pytest.raises(ValueError, match="markup is 'rtf'; allowed are html, xml"):
        tokenize_markup(markup, "rtf")


# Whatever the links say


def check(kind: str, source: str, found: str, target: str, before: list[Token] | None = None) -> None:
    """Assert that the tags of `source`, of which `before` are the tokens, stand in `found` as they should, around the
    text `target`."""
    before, after = before or tokenize_markup(source, kind), tokenize_markup(found, kind)
    assert Counter(tags(before)) == Counter(tags(after)), (source, found)
    assert nesting(before) == nesting(after), (source, found)
    if kind == "xml":
        ElementTree.fromstring(f"<_>{found}</_>")
    spaces = any(is_space(token) for token in after)
    text, places = "", set()
    for token in after:
        if token.kind in ("text", "entity"):
            text += "" if is_space(token) else token.text
        else:
            places.add(len(text))
    if spaces:
        assert text.replace(" ", "") == target.replace(" ", ""), (source, found)
        return
    assert text == target, (source, found)
    inside = {place for piece in cut(target) for place in range(piece.start + 1, piece.end)}
    assert not places & inside, (source, found)


def is_space(token: Token) -> bool:
    return token.kind == "entity" and token.text.isspace()


def tags(tokens: list[Token]) -> list[str]:
    return [token.raw for token in tokens if token.kind not in ("text", "entity") or is_space(token)]


def nesting(tokens: list[Token]) -> Counter[tuple[str, str]]:
    """Return for each element the one that it stands in."""
    pairs: Counter[tuple[str, str]] = Counter()
    stack = [""]
    for token in tokens:
        if token.partner is None:
            continue
        if token.kind == "open":
            pairs[stack[-1], token.raw] += 1
            stack.append(token.raw)
        else:
            stack.pop()
    return pairs


WORDS = [
    "a",
    "Bee",
    "don't",
    "3.14",
    "word,",
    "(x)",
    "end.",
    "…",
    "שלום",
    "日本語",
    "{name}",
    "%s",
    "नमस्ते",
    "co-op",
    "—",
]
TARGET_WORDS = [*WORDS, "<", "&", "R&D", "]]>", '"', "é", "&amp;"]
ENTITIES = ["&amp;", "&#8217;", "&lt;", "&quot;"]
VOIDS = {
    "xml": ["<br/>", "<x id='{}'/>", "<!-- {} > -->", "<![CDATA[<{}&]]>", "<?p {}?>", "&#160;"],
    "html": ["<br>", "<img alt='a > {}'>", "<x id={}/>", "<!--{}-->", "<sup>{}</sup>", "&nbsp;"],
}


def random_markup(chance: random.Random, kind: str, depth: int = 0) -> str:
    """Return markup of words, elements with numbers, entities and what stands by itself, nested to three levels."""
    parts = []
    for _ in range(chance.randint(0, 5 if depth else 8)):
        number = chance.randrange(10**6)
        roll = chance.random()
        if roll < 0.55 or (roll < 0.75 and depth == 3):
            parts.append(chance.choice(WORDS))
        elif roll < 0.75:
            name = chance.choice(["b", "i", "a", "p", "span"])
            parts.append(f'<{name} id="{number}" t="&lt;">{random_markup(chance, kind, depth + 1)}</{name}>')
        elif roll < 0.85:
            parts.append(chance.choice(ENTITIES))
        else:
            parts.append(chance.choice(VOIDS[kind]).format(number))
        if chance.random() < 0.7:
            parts.append(" ")
    return "".join(parts)


def random_links(chance: random.Random, sources: int, targets: int) -> list[tuple[int, int]]:
    """Return no links, a permutation, many links or a few."""
    if not sources or not targets:
        return []
    count = chance.choice([0, min(sources, targets), sources + targets, 1])
    if count == min(sources, targets) and chance.random() < 0.5:
        return list(zip(chance.sample(range(sources), count), chance.sample(range(targets), count), strict=True))
    return [(chance.randrange(sources), chance.randrange(targets)) for _ in range(count)]


def translated(chance: random.Random, line: MarkedLine) -> tuple[str, Any]:
    words = line.text.split()
    kind = chance.random()
    if kind < 0.3:
        target = words[::-1] if chance.random() < 0.5 else chance.sample(words, len(words))
    else:
        target = [chance.choice(TARGET_WORDS) for _ in range(chance.randint(0, len(words) + 3))]
    text = " ".join(target)
    return text, pieces_of_links(random_links(chance, len(words), len(target)), line.text, text)


@pytest.mark.parametrize("kind", ["html", "xml"])
def test_ten_thousand_markups(kind: str) -> None:
    chance = random.Random(17)
    split = 0
    for _ in range(5000):
        markup = random_markup(chance, kind)
        document = parse_markup(markup, kind)
        (line,) = document.lines()
        target, pieces = translated(chance, line)
        found = render(line, pieces)
        check(kind, markup, found.strip(" "), target, document.tokens)
        split += found != markup
    assert split > 4000


def test_tag_soup_loses_nothing() -> None:
    chance = random.Random(23)
    soup = ["<b>", "</b>", "<i>", "</i>", "<p>", "</p>", "<br>", "</br>", "<li>", "<x/>", "&nbsp", "<", "a", "bc ", " "]
    for _ in range(1500):
        markup = "".join(chance.choice(soup) for _ in range(chance.randint(0, 12)))
        (line,) = parse_markup(markup, "html").lines()
        _, pieces = translated(chance, line)
        found = render(line, pieces)
        assert Counter(re.findall(r"</?\w+/?>|&nbsp", markup)) == Counter(re.findall(r"</?\w+/?>|&nbsp", found))


CHARACTERS = st.characters(blacklist_categories=["Cs", "Cc", "Zl", "Zp"], blacklist_characters="\ufffe\uffff")
PLAIN = st.text(CHARACTERS, max_size=7).map(escape)
TREES = st.recursive(
    PLAIN | st.sampled_from(["<br/>", "<!-- & -->", "<![CDATA[<]]>", "&#8217;"]),
    lambda inner: st.tuples(st.sampled_from("abc"), st.lists(inner, max_size=4)).map(
        lambda made: f"<{made[0]} n='1'>{''.join(made[1])}</{made[0]}>"
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(st.lists(TREES, max_size=5).map("".join), st.text(CHARACTERS, max_size=20), st.randoms())
def test_any_text_and_any_links(markup: str, target: str, chance: random.Random) -> None:
    target = " ".join(target.split())
    (line,) = parse_markup(markup, "xml").lines()
    pieces = pieces_of_links(random_links(chance, len(line.text.split()), len(target.split())), line.text, target)
    found = render(line, pieces)
    lead, tail = (len(markup) - len(stripped) for stripped in (markup.lstrip(" \t\r"), markup.rstrip(" \t\r")))
    check("xml", markup, found[lead : len(found) - tail], target)
