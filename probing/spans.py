"""Carry spans of characters over from a source text to its translation, by word alignment.

Everything is decided on pieces (see `pieces`), so that no span begins or ends inside a word, whatever the links count:
words split at white space, with punctuation glued to them, or a model's tokens. Punctuation follows only punctuation: a
link between a word and a comma says nothing here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hf_seq2seq_attn.errors import UnusableError

from .attention_maps import AttentionMaps, LayerChoice
from .link_types import Link
from .pieces import Piece, cut
from .tokens import Sentence, Span, TokenizedText
from .words import to_word_links

SPLITS = ("all", "best")


@dataclass(frozen=True)
class PieceAlignment:
    """Two texts cut into pieces, and for each piece of the target the pieces of the source that it renders.

    Attributes:
        source_text, target_text: the texts.
        source, target: their pieces.
        sources_of: for each target piece the numbers of its source pieces, sorted; empty where it has none.
    """

    source_text: str
    target_text: str
    source: list[Piece]
    target: list[Piece]
    sources_of: list[list[int]]


def transfer(
    source_spans: Sequence[Span],
    alignment: AttentionMaps | Iterable[Link],
    source: Sentence | None = None,
    target: Sentence | None = None,
    *,
    split: str = "all",
    links: str = "argmax",
    specials: str = "mask",
    layer: int | None = None,
    heads: Sequence[int] | None = None,
) -> list[list[Span]]:
    """Return where spans of the source text stand in the target text.

    A target piece belongs to a span if at least half of the source pieces it is linked to do. Pieces without a link
    between two that belong to the span belong to it too; at the ends they do not, so that trailing punctuation is
    taken in only where it is linked to punctuation of the span.

    Args:
        source_spans: start and end of each, in characters of the source text; they may nest and overlap.
        alignment: a model's maps, which know their texts; or links between words, with both texts.
        source, target: raw text (links count words split at white space) or lists of words (the text is these joined
            by single spaces). Leave them out with maps.
        split: `all` gives every run of a span that comes apart in the target; `best` at most one, see `best_run`.
        links, specials, layer, heads: how links are read off maps, as in `to_word_links`.

    Returns:
        For each source span its target spans, left to right; none where nothing is linked.

    Raises:
        ValueError: a span or link outside its text, an unknown choice, or texts that are missing or too many.
    """
    if split not in SPLITS:
        raise UnusableError(f"split is {split!r}; allowed are {', '.join(SPLITS)}")
    if isinstance(alignment, AttentionMaps):
        if source is not None or target is not None:
            raise UnusableError("maps know their texts; leave source and target out")
        pieces = pieces_of_maps(alignment, links=links, specials=specials, layer=layer, heads=heads)
    elif source is None or target is None:
        raise UnusableError("links count words of texts; give source and target")
    else:
        pieces = pieces_of_links(alignment, source, target)
    found = []
    for start, end in source_spans:
        if not 0 <= start <= end <= len(pieces.source_text):
            raise UnusableError(
                f"span ({start}, {end}) lies outside a source text of {len(pieces.source_text)} characters"
            )
        inside = set(_pieces_in([(start, end)], pieces.source)[0]) if start < end else set()
        votes = [_vote(sources, inside) for sources in pieces.sources_of]
        if split == "all":
            runs = all_runs(votes)
        else:
            best = best_run(votes)
            runs = [] if best is None else [best]
        found.append([(pieces.target[first].start, pieces.target[last - 1].end) for first, last in runs])
    return found


def pieces_of_links(links: Iterable[Link], source: Sentence, target: Sentence) -> PieceAlignment:
    """Turn links between words into links between pieces: of two linked words, word pieces are linked to word pieces
    and punctuation to punctuation.

    Raises:
        ValueError: a link to a word that is not there.
    """
    sides = []
    for sentence in (source, target):
        text = sentence if isinstance(sentence, str) else " ".join(sentence)
        sides.append((text, cut(text), _word_spans(sentence)))
    (source_text, source_pieces, source_words), (target_text, target_pieces, target_words) = sides
    source_in, target_in = (_pieces_in(words, pieces) for _, pieces, words in sides)
    linked: list[set[int]] = [set() for _ in target_pieces]
    for i, j in links:
        if not (0 <= i < len(source_words) and 0 <= j < len(target_words)):
            raise UnusableError(
                f"link {i}-{j} lies outside {len(source_words)} source and {len(target_words)} target words"
            )
        for t in target_in[j]:
            linked[t].update(s for s in source_in[i] if source_pieces[s].is_word == target_pieces[t].is_word)
    return PieceAlignment(source_text, target_text, source_pieces, target_pieces, [sorted(each) for each in linked])


def pieces_of_maps(
    maps: AttentionMaps,
    *,
    links: str = "argmax",
    specials: str = "mask",
    layer: LayerChoice = None,
    heads: Sequence[int] | None = None,
) -> PieceAlignment:
    """Read links between pieces off a model's maps; each token belongs to the piece that has most of its characters.

    Args:
        links, specials, layer, heads: as in `to_word_links`.
    """
    sides = maps.source, maps.target
    source, target = (cut(side.text) for side in sides)
    recut = replace(maps, source=_with_pieces(maps.source, source), target=_with_pieces(maps.target, target))
    linked: list[list[int]] = [[] for _ in target]
    for s, t in sorted(to_word_links(recut, layer=layer, heads=heads, specials=specials, links=links)):
        if source[s].is_word == target[t].is_word:
            linked[t].append(s)
    return PieceAlignment(maps.source.text, maps.target.text, source, target, linked)


def all_runs(votes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the longest runs [first, last) that begin and end at a vote of 1 and hold none of -1."""
    runs: list[tuple[int, int]] = []
    first: int | None = None
    for position, vote in enumerate(votes):
        if vote > 0:
            first = position if first is None else first
            last = position + 1
        elif vote < 0 and first is not None:
            runs.append((first, last))
            first = None
    if first is not None:
        runs.append((first, last))
    return runs


def best_run(votes: Sequence[int], start: int = 0, end: int | None = None) -> tuple[int, int] | None:
    """Return the run [first, last) with the greatest sum of votes, of equals the longest, then the first.

    It begins and ends at a vote of 1; inside it 0 (no link) costs nothing and -1 (another's) costs one, so that a
    single stray link neither tears a span apart nor stretches it over the sentence.

    Args:
        votes: 1 = belongs to the span, 0 = to nothing, -1 = to something else, below = must not be inside.
        start, end: look only at votes[start:end].

    Returns:
        None where no vote is 1.
    """
    best: tuple[int, int] | None = None
    best_key = (0, 0)
    total, first = 0, -1
    for position in range(start, len(votes) if end is None else end):
        vote = votes[position]
        total += vote
        if first < 0 or total < 0:
            total, first = (vote, position) if vote > 0 else (0, -1)
        if vote > 0 and (total, position + 1 - first) > best_key:
            best, best_key = (first, position + 1), (total, position + 1 - first)
    return best


def _vote(sources: Sequence[int], inside: set[int]) -> int:
    if not sources:
        return 0
    return 1 if 2 * sum(source in inside for source in sources) >= len(sources) else -1


def _word_spans(sentence: Sentence) -> list[Span]:
    """Return the characters of each word of a text."""
    spans, start = [], 0
    if isinstance(sentence, str):
        for word in sentence.split():
            start = sentence.index(word, start)
            spans.append((start, start + len(word)))
            start += len(word)
        return spans
    for word in sentence:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return spans


def _pieces_in(words: Sequence[Span], pieces: Sequence[Piece]) -> list[list[int]]:
    """Return for each word the numbers of the pieces that share a character with it; both go from left to right."""
    found, first = [], 0
    for start, end in words:
        while first < len(pieces) and pieces[first].end <= start:
            first += 1
        last = first
        while last < len(pieces) and pieces[last].start < end:
            last += 1
        found.append(list(range(first, last)))
    return found


def _with_pieces(text: TokenizedText, pieces: Sequence[Piece]) -> TokenizedText:
    """Return the text with its pieces in the place of its words."""
    owner: list[int | None] = [None] * len(text.text)
    for number, piece in enumerate(pieces):
        owner[piece.start : piece.end] = [number] * (piece.end - piece.start)
    word_of: list[int | None] = []
    for span in text.spans:
        covered = [number for number in owner[slice(*span)] if number is not None] if span else []
        word_of.append(max(covered, key=lambda number: (covered.count(number), -number)) if covered else None)
    words = [text.text[piece.start : piece.end] for piece in pieces]
    return replace(text, words=words, word_of=word_of)
