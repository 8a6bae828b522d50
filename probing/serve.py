"""What a demo page computes for its visitors: from plain inputs to plain results, without a page.

One model serves all visitors and nothing about a visitor is kept here: translating and reading attention leave the
model as it is (see `capture`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError, read_aligned
from hf_seq2seq_attn.translation import Hypothesis, generate_hypotheses, load_seq2seq

from .alignment import align
from .attention_maps import LayerChoice
from .choices import alignment_heads, check_choices, fill_choices
from .chosen_maps import HeadsChoice, choice_in_use, extract_chosen, name_heads
from .commands import parse_heads, parse_layer
from .extraction import extract
from .formats import format_links
from .heatmap_svg import SentenceView, drawable, heatmap_svg
from .languages import set_languages
from .link_lines import link_lines_svg
from .link_types import Links
from .pair_view import PairView, ViewLevel, pair_view
from .refusals import refused
from .serve_phrases import PAGE_PHRASES
from .walk_steps import walk_title
from .walkthrough import walk_html, walk_through

# Limits of a page that anybody may use; the command line has none of them.
SENTENCE_LIMIT = 1000
LINE_LIMIT = 1000
FILE_LIMIT = 1_000_000
BEAM_LIMIT = 10
AUTO, MEAN, ALL = "auto", "mean", "all"
LEVELS = ("words", "tokens")
# Those of `EXTRACTIONS` that need a value with a usual one.
LINK_RULES = ("argmax", "mutual", "threshold:0.2", "relative:0.5", "itermax", "match", "ot", "hmm")


@dataclass(frozen=True)
class ReadingOptions:
    """How a visitor wants alignments to be read, each as a page's field says it; "auto" = as in `align`.

    Attributes:
        layer: a number, several with commas, or "all". head: likewise, or "mean" of all heads, or "fitted".
        rows, weights, links, subwords: as in `align`.
    """

    layer: str = AUTO
    head: str = AUTO
    rows: str = AUTO
    weights: str = AUTO
    links: str = AUTO
    subwords: str = AUTO


@dataclass(frozen=True)
class FileLinks:
    """The links of two files, line by line."""

    sources: list[str]
    targets: list[str]
    links: list[Links]

    def pharaoh(self) -> str:
        """Return a line for each pair of lines, `0-0 1-2`, from 0, source first."""
        return "".join(format_links(links) + "\n" for links in self.links)

    def table(self, header: Sequence[str], rows: int) -> str:
        """Return the first `rows` pairs as an HTML table.

        Args:
            header: of the four columns: line, source, target, links.
        """
        head = "".join(f"<th>{escape(name)}</th>" for name in header)
        shown = list(zip(self.sources, self.targets, self.links, strict=True))[:rows]
        body = "".join(
            f"<tr><td>{number}</td><td>{_text(source)}</td><td>{_text(target)}</td><td>{format_links(links)}</td></tr>"
            for number, (source, target, links) in enumerate(shown, start=1)
        )
        return f'<table class="files"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


class ServedModel:
    """A model for a page, with what all its visitors share.

    Args:
        model, tokenizer: any encoder-decoder with attention, and its tokenizer or pair of tokenizers.
        name: what the page calls it.
        source_prefix, source_language, target_language: as in `extract`.

    Attributes:
        layers, heads: how many the decoder's cross-attention has.

    Raises:
        UnusableError: the model has no attention to read, or a language is unknown or missing.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str,
        *,
        source_prefix: str = "",
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> None:
        self.model, self.tokenizer, self.name = model, tokenizer, name
        self._reading: dict[str, Any] = dict(
            source_prefix=source_prefix, source_language=source_language, target_language=target_language
        )
        self._languages = set_languages(model, tokenizer, source_language, target_language)
        self._prefix = self._languages.source_prefix + source_prefix
        maps = next(extract(model, tokenizer, ["a"], ["a"], **self._reading))
        self.layers, self.heads = len(maps.layers), len(maps.heads)
        # A saved choice that cannot be read is refused here, and not before each visitor.
        choice_in_use(model)

    @classmethod
    def load(cls, name: str, tokenizer: str | None = None, **languages: Any) -> "ServedModel":
        """Load a model, and its tokenizer from elsewhere if that is told; `languages` as in the class.

        Raises:
            InputError: there is none, or one that cannot be served; says why.
        """
        loaded, its_tokenizer = load_seq2seq(name, tokenizer)
        with refused():
            return cls(loaded, its_tokenizer, Path(name).resolve().name if Path(name).is_dir() else name, **languages)

    def translate(self, sentence: str, beams: int = 4) -> Hypothesis:
        """Return the translation of a sentence, and whether the limit on its length cut it off.

        Raises:
            UnusableError: a sentence that is blank, too long or no text, or a wrong number of beams.
        """
        if not 1 <= beams <= BEAM_LIMIT:
            raise UnusableError(f"beams is {beams}; it must lie in 1..{BEAM_LIMIT} on this page")
        text = self._prefix + checked_sentence("source", sentence)
        generation: dict[str, Any] = {**self._languages.generate_kwargs()}
        tokenizer = self._languages.tokenizer
        ((found,),) = generate_hypotheses(self.model, tokenizer, [text], num_beams=beams, **generation)
        return found

    def tokens(self, source: str, target: str) -> list[str]:
        """Return the target tokens of a pair: decoder step t, from 0, predicts token t."""
        source, target = checked_sentence("source", source), checked_sentence("target", target)
        return next(extract(self.model, self.tokenizer, [source], [target], layers=[-1], **self._reading)).target_tokens

    def read_pair(self, source: str, target: str, options: ReadingOptions, lang: str = "en") -> tuple[PairView, str]:
        """Return the map and the links of a pair, and in words how they were read.

        Raises:
            UnusableError: a sentence or a choice that cannot be used; says why.
        """
        source, target = checked_sentence("source", source), checked_sentence("target", target)
        where, how = self._choices(options)
        named = name_heads(self.model, **where) | {name: how[name] for name in ("weights", "links", "subwords")}
        say = PAGE_PHRASES[lang]
        note = ", ".join(f"{say[f'read.{name}']} {value}" for name, value in named.items())
        reading = dict(weights=how.pop("weights"), **where, **self._reading)
        maps = next(extract_chosen(self.model, self.tokenizer, [source], [target], **reading))
        return pair_view(maps, **how), note

    def walk(self, source: str, target: str, step: int, options: ReadingOptions, lang: str = "en") -> str:
        """Return the walk through one decoder step of a pair as HTML, for a page with `WALK_CSS`.

        It goes through one head, the first of those that `read_pair` reads with these options.

        Raises:
            UnusableError: see `walk_through`.
        """
        source, target = checked_sentence("source", source), checked_sentence("target", target)
        where, _ = self._choices(options)
        layer, head = self._first_head(where)
        walk = walk_through(
            self.model,
            self.tokenizer,
            source,
            target,
            row=step,
            layer=layer,
            head=head,
            **self._reading,
        )
        title = "".join(str(part) for part in walk_title(walk, lang))
        return f'<p class="walk-title">{_text(title)}</p>{walk_html(walk, lang)}'

    def align_files(self, source: str | Path, target: str | Path, options: ReadingOptions) -> FileLinks:
        """Align two files, line N with line N.

        Raises:
            InputError: a file that is too large, not text, or does not fit the other; `FILE:LINE: what; remedy`, the
                file without its folder.
        """
        paths = Path(source), Path(target)
        try:
            for path in paths:
                _check_file(path)
            sources, targets = read_aligned(*paths)
            for path, lines in zip(paths, (sources, targets), strict=True):
                _check_lines(path, lines)
            with refused(*paths):
                where, how = self._choices(options)
                links = align(self.model, self.tokenizer, sources, targets, **where, **how, **self._reading)
        except InputError as error:
            said = str(error)
            for path in paths:
                said = said.replace(str(path), path.name)
            raise InputError(said) from error
        return FileLinks(sources, targets, links)

    def _first_head(self, where: dict[str, Any]) -> tuple[int, int]:
        choice = choice_in_use(self.model, **where)
        if choice is not None:
            return choice.heads[0]
        layer, heads = alignment_heads(self.model.config, where["layer"], where["heads"])
        first = 0 if isinstance(layer, str) else layer if isinstance(layer, int) else layer[0]
        return first, 0 if heads is None else heads[0]

    def _choices(self, options: ReadingOptions) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return where maps are read (rows, layer, heads) and how (weights, specials, subwords, links)."""
        try:
            layer: LayerChoice = parse_layer(options.layer)
            heads: HeadsChoice = [*range(self.heads)] if options.head == MEAN else parse_heads(options.head)
            where: dict[str, Any] = dict(align_with=_given(options.rows), layer=layer, heads=heads)
            given = {name: _given(getattr(options, name)) for name in ("weights", "subwords", "links")}
            how: dict[str, Any] = {**fill_choices(choice_in_use(self.model, **where), specials=None, **given)}
            check_choices(where["align_with"], **how)
        except InputError:
            raise
        except ValueError as error:
            raise UnusableError(str(error)) from error
        return where, how


def pair_pictures(view: PairView, level: str) -> str:
    """Return the links of a pair and its heat map as HTML, for a page with `HEATMAP_CSS` and `LINK_LINES_CSS`.

    Args:
        level: "words" or "tokens" (sub-words).

    Raises:
        UnusableError: another level, or one that this reading does not have.
    """
    if level not in LEVELS:
        raise UnusableError(f"level is {level!r}; allowed are {', '.join(LEVELS)}")
    shown: ViewLevel | None = view.words if level == "words" else view.tokens
    if shown is None:
        raise UnusableError("the fit that was saved with the model reads words; choose words, or a layer or a head")
    first = shown.maps[0]
    drawn = SentenceView(shown.source, shown.target, first.matrix, first.links)
    lines = link_lines_svg(shown.source, shown.target, first.links, first.matrix)
    return f'<div class="pictures">{lines}{heatmap_svg(drawn)}</div>'


def checked_sentence(side: str, text: str | None) -> str:
    """Return a visitor's sentence on one line.

    Raises:
        UnusableError: it is blank, longer than `SENTENCE_LIMIT` characters, or no text.
    """
    sentence = " ".join((text or "").split())
    if not sentence:
        raise UnusableError(f"the {side} is empty; type a sentence")
    if len(sentence) > SENTENCE_LIMIT:
        raise UnusableError(
            f"the {side} has {len(sentence)} characters, this page takes {SENTENCE_LIMIT}; split it, or use the "
            "commands translate and align"
        )
    try:
        sentence.encode()
    except UnicodeEncodeError as error:
        raise UnusableError(f"the {side} holds half a character at place {error.start}; type it again") from error
    return sentence


def _given(choice: str) -> str | None:
    return None if choice == AUTO else choice


def _check_file(path: Path) -> None:
    # What unpacks to more than it says could fill the memory.
    if path.suffix == ".gz":
        raise InputError(f"{path}: is packed; this page takes plain text: unpack it")
    if path.is_file() and path.stat().st_size > FILE_LIMIT:
        raise InputError(
            f"{path}: {path.stat().st_size:,} bytes, this page takes {FILE_LIMIT:,}; split it, or use the command align"
        )


def _check_lines(path: Path, lines: list[str]) -> None:
    if len(lines) > LINE_LIMIT:
        raise InputError(
            f"{path}:{LINE_LIMIT + 1}: {len(lines):,} lines, this page takes {LINE_LIMIT:,}; split it, or use the "
            "command align"
        )
    for number, line in enumerate(lines, start=1):
        if len(line) > SENTENCE_LIMIT:
            raise InputError(
                f"{path}:{number}: {len(line)} characters, this page takes {SENTENCE_LIMIT}; split it, or use the "
                "command align"
            )


def _text(text: str) -> str:
    return f"<bdi>{escape(drawable(text))}</bdi>"
