"""Cut a document with markup into lines of text for a translator, and keep each line's tags as a tree over its text.

Where the tags go in the translation: see `markup_layout`.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from .markup_tokens import Token, tokenize_markup
from .placeholders import PLACEHOLDER

# Where these stand, a word ends, with or without a space.
_BREAKING_HTML = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "br",
        "caption",
        "center",
        "dd",
        "details",
        "dialog",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "head",
        "header",
        "hr",
        "html",
        "legend",
        "li",
        "main",
        "nav",
        "ol",
        "option",
        "p",
        "pre",
        "section",
        "select",
        "summary",
        "table",
        "tbody",
        "td",
        "tfoot",
        "th",
        "thead",
        "title",
        "tr",
        "ul",
    ]
)
_SPACES = re.compile(r"[ \t\r\n\f]+")


@dataclass
class Node:
    """An element, or something that stands by itself, on one line.

    Attributes:
        open, close: its tags as they are written; blank where the tag stands on another line. What stands by itself has
            only `open`.
        start, end: its characters in the line's text.
        children: in the order of the source.
        to_start, to_end: it began on a line before, ends on a line after.
        is_space: an entity that is white space, which takes the place of a space.
    """

    open: str = ""
    close: str = ""
    start: int = 0
    end: int = 0
    children: list["Node"] = field(default_factory=list)
    to_start: bool = False
    to_end: bool = False
    is_space: bool = False


@dataclass
class MarkedLine:
    """A line of a document: its text for a translator, and its tags.

    Attributes:
        raw: the line as it is written; a tag in it may hold line ends.
        text: without tags, entities as characters, white space as single spaces.
        root: all of the line.
        spelling: how characters are written that the line only has as entities.
        number: the line of the document where it begins, from 1.
    """

    raw: str
    text: str
    root: Node
    spelling: dict[str, str]
    number: int

    @property
    def is_translatable(self) -> bool:
        """Tell whether there is a letter or digit to translate; another line stays as it is."""
        return any(character.isalnum() for character in self.text)


@dataclass(frozen=True)
class MarkedDocument:
    """A document with markup, cut into tokens by `tokenize_markup`."""

    tokens: list[Token]
    kind: str

    def lines(self, *, hide_placeholders: bool = False) -> Iterator[MarkedLine]:
        """Yield the lines of text; a tag or comment with line ends in it does not end one.

        Args:
            hide_placeholders: take placeholders (`{name}`, `%s`) out of the text as if they were tags.
        """
        number, first = 1, 0
        current: list[tuple[int, Token]] = []
        for place, token in enumerate(self.tokens):
            if token.kind != "text":
                current.append((place, token))
                continue
            *ended, last = token.raw.split("\n")
            for part in ended:
                yield self._line([*current, (place, _part(token, part))], first, number, hide_placeholders)
                number += 1 + sum(each.raw.count("\n") for _, each in current)
                current, first = [], place
            current.append((place, _part(token, last)))
        yield self._line(current, first, number, hide_placeholders)

    def _line(self, tokens: list[tuple[int, Token]], first: int, number: int, hide_placeholders: bool) -> MarkedLine:
        builder = _LineBuilder(self.kind, first, tokens[-1][0] if tokens else first)
        for place, token in tokens:
            for part in _without_placeholders(token) if hide_placeholders else [token]:
                builder.add(place, part)
        return builder.finished("".join(token.raw for _, token in tokens), number)


def parse_markup(document: str, kind: str, name: str = "markup") -> MarkedDocument:
    """Return a document's tags and text; arguments and errors as in `tokenize_markup`."""
    return MarkedDocument(tokenize_markup(document, kind, name), kind)


def _part(token: Token, raw: str) -> Token:
    return replace(token, raw=raw, text=raw)


def _without_placeholders(token: Token) -> Iterator[Token]:
    if token.kind != "text":
        yield token
        return
    position = 0
    for match in PLACEHOLDER.finditer(token.raw):
        yield _part(token, token.raw[position : match.start()])
        yield Token("void", match[0])
        position = match.end()
    yield _part(token, token.raw[position:])


class _LineBuilder:
    """Builds the tree of one line, whose tokens have the places `first` to `last` in the document."""

    def __init__(self, kind: str, first: int, last: int) -> None:
        self.breaking = _BREAKING_HTML if kind == "html" else frozenset()
        self.first, self.last = first, last
        self.text = ""
        self.root = Node()
        self.open = [self.root]
        self.written: dict[str, set[str]] = {}

    def add(self, place: int, token: Token) -> None:
        if token.kind == "text":
            self._append(token.text)
            for character in set(token.text):
                self.written.setdefault(character, set()).add(character)
        elif token.kind == "entity" and not _is_invisible(token.text):
            self._append(token.text)
            self.written.setdefault(token.text, set()).add(token.raw)
        elif token.partner is None:
            self._stand_alone(token)
        elif token.kind == "open":
            self._break(token)
            self._open(token, ends_later=token.partner > self.last)
        else:
            self._close(token, began_before=token.partner < self.first)
            self._break(token)

    def finished(self, raw: str, number: int) -> MarkedLine:
        self.text = self.text.rstrip(" ")
        self._end(self.root)
        spelling = {
            character: next(iter(spellings))
            for character, spellings in self.written.items()
            if len(spellings) == 1 and character not in spellings
        }
        return MarkedLine(raw, self.text, self.root, spelling, number)

    def _append(self, text: str) -> None:
        text = _SPACES.sub(" ", text)
        if text.startswith(" ") and (not self.text or self.text.endswith(" ")):
            text = text[1:]
        self.text += text

    def _break(self, token: Token) -> None:
        if token.name in self.breaking:
            self._append(" ")

    def _stand_alone(self, token: Token) -> None:
        is_space = token.kind == "entity" and token.text.isspace()
        if is_space:
            self._append(" ")
        self._break(token)
        here = len(self.text)
        self.open[-1].children.append(Node(token.raw, start=here, end=here, is_space=is_space))

    def _open(self, token: Token, ends_later: bool) -> None:
        node = Node(token.raw, start=len(self.text), to_end=ends_later)
        self.open[-1].children.append(node)
        self.open.append(node)

    def _close(self, token: Token, began_before: bool) -> None:
        if began_before:
            # It holds all that stands before it on this line.
            node = Node("", token.raw, 0, len(self.text), self.root.children, to_start=True)
            self.root.children = [node]
        else:
            node = self.open.pop()
            node.close, node.end = token.raw, len(self.text)

    def _end(self, node: Node) -> None:
        """Give what is open at the end of the line its end, and keep all ends within the text."""
        if node is self.root or node.to_end:
            node.end = len(self.text)
        node.start, node.end = min(node.start, len(self.text)), min(node.end, len(self.text))
        for child in node.children:
            self._end(child)


def _is_invisible(text: str) -> bool:
    """Tell white space and format characters, which a translator would lose, from characters of words."""
    return text.isspace() or all(unicodedata.category(character) in ("Cf", "Cc") for character in text)


def stripped(markup: str, kind: str) -> str:
    """Return the text of a line of markup as a translator gets it, without tags."""
    return " ".join(line.text for line in parse_markup(markup, kind).lines())
