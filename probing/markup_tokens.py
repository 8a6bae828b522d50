"""Cut a document with markup into tags, text and what else there is, without losing a character.

The raw texts of all tokens, one after the other, are the document. The parsers are those of the standard library:
expat for XML, which refuses what is not well formed, and `html.parser` for HTML, which takes anything. Line ends inside
a tag, comment or CDATA section belong to it.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from xml.parsers import expat

from hf_seq2seq_attn.text_files import InputError

KINDS = ("html", "xml")
VOID_HTML = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
_UNTRANSLATED_HTML = ("script", "style")
_RAISED_HTML = "sup"
_ENTITY = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);?")


@dataclass
class Token:
    """A part of a document.

    Attributes:
        kind: "text" or "entity" (a character reference or named entity), which are translated; "open" and "close", the
            tags of an element; "void", all that stands by itself: void elements, comments, CDATA sections,
            declarations, processing instructions, entities without a known character, scripts and style sheets.
        raw: as the document has it.
        text: the characters that it stands for; of text and entities only.
        name: of the element; in lower case in HTML.
        partner: of a tag, the place of the other tag of the element in the list of tokens; None if there is none.
    """

    kind: str
    raw: str
    text: str = ""
    name: str = ""
    partner: int | None = None


def tokenize_markup(document: str, kind: str, name: str = "markup") -> list[Token]:
    """Return the tokens of a document; `html` or `xml`.

    HTML is read leniently: scripts and style sheets are void, and so is `<sup>` without letters, a mark of a note; a
    tag that ends in `/>` is void; an end tag closes the nearest open element of its name; any other tag without a
    partner (an end tag that is left out, `<b><i></b></i>`) stands by itself, like a void element.
    XML may have several elements, and text, at its top.

    Args:
        name: of the document, for messages.

    Raises:
        InputError: XML that is not well formed, naming line and column.
        ValueError: another kind.
    """
    if kind not in KINDS:
        raise ValueError(f"markup is {kind!r}; allowed are {', '.join(KINDS)}")
    tokens = _HtmlReader().tokens_of(document) if kind == "html" else _XmlReader(document, name).tokens
    stack: list[int] = []
    for place, token in enumerate(tokens):
        if token.kind == "open":
            stack.append(place)
        elif token.kind == "close":
            start = next((each for each in reversed(stack) if tokens[each].name == token.name), None)
            if start is not None:
                del stack[stack.index(start) :]
                token.partner, tokens[start].partner = start, place
    return tokens


class _HtmlReader(HTMLParser):
    """Notes where each part of a document begins; it ends where the next one begins."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self._parts: list[tuple[int, int, str, str]] = []

    def tokens_of(self, document: str) -> list[Token]:
        self.feed(document)
        self.close()
        starts = [0]
        for line in document.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        # What comes before the first part, if anything does, is text.
        parts = [(0, "text", ""), *((starts[line - 1] + at, kind, name) for line, at, kind, name in self._parts)]
        ends = [start for start, _, _ in parts[1:]] + [len(document)]
        tokens: list[Token] = []
        for (start, kind, name), end in zip(parts, ends, strict=True):
            if start < end:
                tokens += _html_tokens(kind, name, document[start:end])
        return _joined(tokens)

    def _note(self, kind: str, name: str = "") -> None:
        self._parts.append((*self.getpos(), kind, name))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note("void" if tag in VOID_HTML else "open", tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note("void", tag)

    def handle_endtag(self, tag: str) -> None:
        # Such an end tag ends nothing.
        self._note("void" if tag in VOID_HTML else "close", tag)

    def handle_data(self, data: str) -> None:
        self._note("text")

    def handle_charref(self, name: str) -> None:
        self._note("entity")

    def handle_entityref(self, name: str) -> None:
        self._note("entity")

    def handle_comment(self, data: str) -> None:
        self._note("void")

    def handle_decl(self, decl: str) -> None:
        self._note("void")

    def handle_pi(self, data: str) -> None:
        self._note("void")

    def unknown_decl(self, data: str) -> None:
        self._note("void")


def _html_tokens(kind: str, name: str, raw: str) -> Iterator[Token]:
    """Yield the tokens of one part, which may have a tag broken off at the end of the document behind it."""
    if kind == "entity":
        yield from _entity(raw)
        return
    end = len(raw) if kind == "text" else raw.rfind(">") + 1
    if kind != "text" and end:
        yield Token(kind, raw[:end], name=name)
    text = raw if kind == "text" else raw[end:]
    # The parser takes an entity at the very end for text.
    position = 0
    for match in _ENTITY.finditer(text):
        if position < match.start():
            yield _text(text[position : match.start()])
        yield from _entity(match[0])
        position = match.end()
    if text[position:]:
        yield _text(text[position:])


def _entity(raw: str) -> Iterator[Token]:
    """Yield an entity, and the letters behind one without a semicolon; an unknown one is text, as in every browser."""
    text = html.unescape(raw)
    if text == raw:
        yield _text(raw)
        return
    behind = 0
    if not raw.endswith(";"):
        while behind < len(text) - 1 and raw.endswith(text[-behind - 1 :]):
            behind += 1
    yield Token("entity", raw[: len(raw) - behind], text[: len(text) - behind])
    if behind:
        yield _text(raw[len(raw) - behind :])


def _text(raw: str) -> Token:
    return Token("text", raw, raw)


def _joined(tokens: list[Token]) -> list[Token]:
    """Make one void token of each script, style sheet and raised mark without letters, from tag to tag."""
    joined: list[Token] = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        end = _end_of_whole(tokens, place) if token.kind == "open" else None
        if end is None:
            joined.append(token)
            place += 1
        else:
            joined.append(Token("void", "".join(each.raw for each in tokens[place:end]), name=token.name))
            place = end
    return joined


def _end_of_whole(tokens: list[Token], place: int) -> int | None:
    """Return where an element that is not translated ends; None if it is translated."""
    name = tokens[place].name
    if name not in (*_UNTRANSLATED_HTML, _RAISED_HTML):
        return None
    close = next(
        (at for at in range(place + 1, len(tokens)) if tokens[at].kind == "close" and tokens[at].name == name), None
    )
    if name in _UNTRANSLATED_HTML:
        return len(tokens) if close is None else close + 1
    if close is None:
        return None
    text = "".join(token.text for token in tokens[place:close])
    return None if "\n" in text or any(map(str.isalpha, text)) else close + 1


class _XmlReader:
    """Notes where each part of a document begins, in bytes; it ends where the next one begins."""

    def __init__(self, document: str, name: str) -> None:
        self._document = document
        self._name = name
        # Fragments have no single element at the top, so they get one; a prolog forbids that.
        self._wrapped = not document.lstrip().startswith(("<?xml", "<!DOCTYPE"))
        self._parts: list[tuple[int, str, str, str]] = []
        self._open: list[tuple[str, int, int]] = []
        self._inside = ""
        self._parser = self._make_parser()
        data = document.encode("utf-8")
        before, after = (b"<_>", b"</_>") if self._wrapped else (b"", b"")
        try:
            self._parser.Parse(before + data + after, True)
        except expat.ExpatError as error:
            raise self._refused(error) from error
        self.tokens = self._cut(data, len(before))

    def _make_parser(self) -> Any:
        # The document is a string here, whatever encoding it declares.
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = False
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = lambda data: self._note("text", text=data)
        parser.CommentHandler = lambda data: self._note("void")
        parser.ProcessingInstructionHandler = lambda target, data: self._note("void")
        parser.XmlDeclHandler = lambda version, encoding, standalone: self._note("void")
        parser.StartCdataSectionHandler = lambda: self._enter("cdata")
        parser.EndCdataSectionHandler = lambda: self._leave()
        # Called in the middle of the declaration, which so belongs to the part before it.
        parser.StartDoctypeDeclHandler = lambda name, system, public, internal: self._enter("doctype")
        parser.EndDoctypeDeclHandler = lambda: self._leave()
        # Entities of the document's own come here, unexpanded.
        parser.DefaultHandler = lambda data: self._note("void")
        return parser

    def _note(self, kind: str, name: str = "", text: str = "") -> None:
        if not self._inside:
            self._parts.append((self._parser.CurrentByteIndex, kind, name, text))

    def _enter(self, what: str) -> None:
        if what == "cdata":
            self._note("void")
        self._inside = what

    def _leave(self) -> None:
        self._inside = ""

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._open.append((name, self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber))
        self._note("open", name)

    def _end(self, name: str) -> None:
        self._open.pop()
        self._note("close", name)

    def _cut(self, data: bytes, shift: int) -> list[Token]:
        parts = [(start - shift, kind, name, text) for start, kind, name, text in self._parts]
        if parts and parts[0][0] > 0:
            parts.insert(0, (0, "void", "", ""))
        ends = [start for start, *_ in parts[1:]] + [len(data)]
        tokens: list[Token] = []
        for (start, kind, name, text), end in zip(parts, ends, strict=True):
            raw = data[max(start, 0) : min(end, len(data))].decode("utf-8")
            if not raw or start < 0:
                continue
            if kind == "text":
                kind = "entity" if raw.startswith("&") and raw != text else "text"
                token = Token(kind, raw, raw if kind == "text" else text)
            else:
                # White space around the element at the top, and a document type after it.
                space = len(raw) - len(raw.lstrip())
                if space:
                    tokens.append(_text(raw[:space]))
                    raw = raw[space:]
                if not raw:
                    continue
                token = Token("void" if kind == "open" and raw.endswith("/>") else kind, raw, name=name)
            tokens.append(token)
        return tokens

    def _refused(self, error: expat.ExpatError) -> InputError:
        line, column = error.lineno, error.offset
        what = expat.ErrorString(error.code)
        end = self._document.count("\n") + 1
        at_end = line == end and column >= len(self._document.rpartition("\n")[2]) + 3 * (self._wrapped and end == 1)
        real = self._open[self._wrapped :]
        if at_end and real:
            name, line, column = real[-1]
            what = f"<{name}> is never closed"
        elif real and what == "mismatched tag":
            what += f" (<{real[-1][0]}> of line {real[-1][1]} is open)"
        if self._wrapped and line == 1:
            column -= len("<_>")
        return InputError(
            f"{self._name}:{line}: column {max(column, 0) + 1}: {what}; mend the XML, or read it as --markup html"
        )
