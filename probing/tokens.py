"""Tokens that keep their place in the user's text, and the words they belong to.

The model always sees its tokenizer's own segmentation of the whole sentence, never of words one by one. Words, given
or found, then take the tokens that cover most of them. A token that covers no character of the sentence (start, end,
padding, a language tag, a prefix that the model wants) is structural and belongs to no word; its role says which.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_seq2seq_attn.tokenizer_pair import sides

Sentence = str | Sequence[str]
Span = tuple[int, int]

ROLES = ("word", "start", "end", "padding", "tag", "prefix", "blank")

# OPUS-MT names the target language in the source text: `>>deu<< Hello`.
_LANGUAGE_CODE = re.compile(r">>[\w-]+<<")
# Added tokens of this form are language tags, whether or not the tokenizer calls them special: `__en__` (M2M100),
# `eng_Latn` (NLLB), `en_XX` (mBART).
_ADDED_TAG = re.compile(r"__[a-z]{2,3}__|[a-z]{2,3}_[A-Z][A-Za-z]{1,3}|>>[\w-]+<<|<2[a-z]{2,3}>")


@dataclass(frozen=True)
class TokenizedText:
    """One side of a sentence pair.

    Attributes:
        text: the user's text; words given as a list are joined by single spaces.
        ids, tokens: the tokenizer's output, special tokens included.
        spans: start and end of each token in `text`; None for a structural token.
        words: the words given, or the text split at white space.
        word_of: for each token the index of its word; None for a structural token.
        roles: what each token is, one of `ROLES`; empty where nobody said.
    """

    text: str
    ids: list[int]
    tokens: list[str]
    spans: list[Span | None]
    words: list[str]
    word_of: list[int | None]
    roles: tuple[str, ...] = ()

    @property
    def structural(self) -> list[bool]:
        """For each token, whether it belongs to no word."""
        return [word is None for word in self.word_of]

    def with_structural(self, position: int, token_id: int, token: str, role: str) -> "TokenizedText":
        """Return this text with one more structural token at `position`."""

        def inserted(items: Sequence[Any], item: Any) -> list[Any]:
            return [*items[:position], item, *items[position:]]

        return TokenizedText(
            self.text,
            inserted(self.ids, token_id),
            inserted(self.tokens, token),
            inserted(self.spans, None),
            self.words,
            inserted(self.word_of, None),
            tuple(inserted(self.roles, role)) if len(self.roles) == len(self.ids) else (),
        )

    def without(self, position: int) -> "TokenizedText":
        """Return this text without the token at `position`, counted from 0."""

        def kept(items: Sequence[Any]) -> list[Any]:
            return [*items[:position], *items[position + 1 :]]

        return TokenizedText(
            self.text,
            kept(self.ids),
            kept(self.tokens),
            kept(self.spans),
            self.words,
            kept(self.word_of),
            tuple(kept(self.roles)),
        )


def tokenize(
    tokenizer: Any, sentences: Sequence[Sentence], *, target: bool = False, prefix: str = ""
) -> list[TokenizedText]:
    """Tokenise sentences with their special tokens, without truncation or padding.

    Args:
        tokenizer: any Hugging Face tokenizer, or a `TokenizerPair`. Without offsets (Python tokenizers such as
            Marian's) tokens find their place by matching them against the text.
        sentences: raw strings or lists of words.
        target: tokenise as target text (`text_target`), with the target's tokenizer.
        prefix: what the model wants before each sentence, e.g. `translate English to German: ` or `>>deu<< `. It is
            no part of `text`, and tokens that cover nothing else are structural.
    """
    if not sentences:
        return []
    tokenizer = sides(tokenizer)[1 if target else 0]
    texts = [sentence if isinstance(sentence, str) else " ".join(sentence) for sentence in sentences]
    read = [prefix + text for text in texts]
    fast = bool(getattr(tokenizer, "is_fast", False))
    encoded = tokenizer(
        **{"text_target" if target else "text": read},
        add_special_tokens=True,
        padding=False,
        truncation=False,
        return_attention_mask=False,
        **({"return_offsets_mapping": True} if fast else {}),
    )
    kinds = _TokenKinds(tokenizer)
    tokenized = []
    for index, (sentence, text) in enumerate(zip(sentences, texts, strict=True)):
        ids = [int(token) for token in encoded["input_ids"][index]]
        tokens = _names(tokenizer, ids)
        spans = (
            [tuple(span) for span in encoded["offset_mapping"][index]]
            if fast
            else _match_spans(tokenizer, kinds.special, ids, tokens, read[index])
        )
        tokenized.append(_with_words(text, ids, tokens, spans, sentence, kinds, len(prefix)))
    return tokenized


def from_ids(tokenizer: Any, ids: Sequence[int]) -> TokenizedText:
    """Describe token ids that a model generated; the text is what they decode to."""
    ids = [int(token) for token in ids]
    _, tokenizer = sides(tokenizer)
    kinds = _TokenKinds(tokenizer)

    def decode(part: list[int]) -> str:
        readable = [token for token in part if token not in kinds.special]
        return str(tokenizer.decode(readable, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    text = decode(ids)
    # A token covers what it adds to the text decoded so far, which holds for every kind of tokenizer.
    ends = [min(len(decode(ids[:end])), len(text)) for end in range(1, len(ids) + 1)]
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    tokens = _names(tokenizer, ids)
    return _with_words(text, ids, tokens, spans, text, kinds)


def _names(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return the tokens; a model's vocabulary may be larger than its tokenizer's, and what lies beyond has a number."""
    tokens = tokenizer.convert_ids_to_tokens(ids)
    return [f"<{index}>" if token is None else str(token) for index, token in zip(ids, tokens, strict=True)]


class _TokenKinds:
    """Which ids of a tokenizer stand for nothing in a text, and what they are; `all_special_ids` misses several."""

    def __init__(self, tokenizer: Any) -> None:
        added = getattr(tokenizer, "added_tokens_decoder", {})
        tags = {index for index, token in added.items() if _ADDED_TAG.fullmatch(token.content)}
        for name in ("lang_code_to_id", "lang_token_to_id"):
            tags |= set((getattr(tokenizer, name, None) or {}).values())
        special = {*tokenizer.all_special_ids, *(index for index, token in added.items() if token.special), *tags}
        self.special = special - {tokenizer.unk_token_id}
        self._roles = dict.fromkeys(self.special, "tag")
        # Where one token has two uses (BART's </s> also separates), the last of these names it.
        for name, role in (
            ("mask_token_id", "blank"),
            ("cls_token_id", "start"),
            ("bos_token_id", "start"),
            ("pad_token_id", "padding"),
            ("sep_token_id", "end"),
            ("eos_token_id", "end"),
        ):
            token_id = getattr(tokenizer, name, None)
            if token_id is not None:
                self._roles[token_id] = role

    def role(self, token_id: int, token: str) -> str:
        """Return the role of a structural token."""
        if _LANGUAGE_CODE.fullmatch(token.removeprefix("▁")):
            return "tag"
        return self._roles.get(token_id, "blank")


def match_spans(tokenizer: Any, ids: Sequence[int], tokens: Sequence[str], text: str) -> list[Span]:
    """Find each token's characters in `text` by reading both from left to right, without regard to case, white space
    and compatibility forms; a token that cannot be found (unknown) covers the gap up to the next one that can.

    Returns:
        One span for each token; (0, 0) for special tokens and tokens without a character.
    """
    return _match_spans(tokenizer, _TokenKinds(tokenizer).special, ids, tokens, text)


def _match_spans(tokenizer: Any, special: set[int], ids: Sequence[int], tokens: Sequence[str], text: str) -> list[Span]:
    folded, place = _fold(text)
    spans: list[Span] = [(0, 0)] * len(tokens)
    cursor = 0
    lost: list[int] = []

    def cover(indices: list[int], start: int, end: int) -> None:
        for index in indices:
            spans[index] = (place[start], place[end - 1] + 1) if end > start else (0, 0)

    for index, (token_id, token) in enumerate(zip(ids, tokens, strict=True)):
        if token_id in special:
            continue
        unknown = token_id == tokenizer.unk_token_id
        surface = "" if unknown else _fold(tokenizer.convert_tokens_to_string([token]))[0]
        if not surface and not unknown:
            continue
        # Without something lost before it, a token must follow at once.
        found = -1 if unknown else folded.find(surface, cursor) if lost else cursor
        if found < 0 or not folded.startswith(surface, found):
            lost.append(index)
            continue
        cover(lost, cursor, found)
        lost = []
        cover([index], found, found + len(surface))
        cursor = found + len(surface)
    cover(lost, cursor, len(folded))
    return spans


def _fold(text: str) -> tuple[str, list[int]]:
    """Return the text decomposed and case-folded without white space, and for each of its characters the place in
    `text`."""
    folded: list[str] = []
    place: list[int] = []
    for index, character in enumerate(text):
        for part in unicodedata.normalize("NFKD", character).casefold():
            if not part.isspace() and part != "▁":
                folded.append(part)
                place.append(index)
    return "".join(folded), place


def _with_words(
    text: str,
    ids: list[int],
    tokens: list[str],
    spans: Sequence[Span],
    sentence: Sentence,
    kinds: _TokenKinds,
    prefix: int = 0,
) -> TokenizedText:
    """Give tokens to words. `spans` count the `prefix` characters that were put before `text`; the result's do not."""
    words, word_spans = _find_words(text, sentence)
    in_prefix = [start < end <= prefix for start, end in spans]
    spans = [(max(0, start - prefix), max(0, end - prefix)) for start, end in spans]
    word_of = _words_of(word_spans, spans)
    # A lone word-start mark covers only white space; it belongs to the token after it.
    for index in range(len(tokens) - 2, -1, -1):
        if word_of[index] is None and tokens[index] in ("▁", "Ġ") and not in_prefix[index]:
            word_of[index] = word_of[index + 1]
    for index in [index for index, token in enumerate(tokens) if token.endswith("<<")]:
        if _LANGUAGE_CODE.fullmatch(tokens[index].removeprefix("▁")):
            word_of[index] = None
    kept = [span if word is not None else None for span, word in zip(spans, word_of, strict=True)]
    roles = ["word" if word is not None else kinds.role(ids[i], tokens[i]) for i, word in enumerate(word_of)]
    # Where no offset says so, word-start marks between tokens of the prefix are of it too.
    for index in range(max((i for i, inside in enumerate(in_prefix) if inside), default=-1) + 1):
        if in_prefix[index] or roles[index] == "blank":
            roles[index] = roles[index] if roles[index] == "tag" else "prefix"
    return TokenizedText(text, ids, tokens, kept, words, word_of, tuple(roles))


def _find_words(text: str, sentence: Sentence) -> tuple[list[str], list[Span]]:
    if isinstance(sentence, str):
        spans = [match.span() for match in re.finditer(r"\S+", text)]
        return [text[start:end] for start, end in spans], spans
    spans, start = [], 0
    for word in sentence:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return list(sentence), spans


def _words_of(word_spans: Sequence[Span], spans: Sequence[Span]) -> list[int | None]:
    """Return for each token's span the word that covers most of it, the first of equals; None where no word does."""
    # A word that was given as an empty string covers nothing.
    numbers = [number for number, (start, end) in enumerate(word_spans) if start < end]
    if not numbers or not spans:
        return [None] * len(spans)
    word_starts, word_ends = np.array([word_spans[number] for number in numbers]).T
    starts, ends = np.array(spans).T
    # Words follow each other: the first that ends after the token's start, the last that starts before its end.
    first = word_ends.searchsorted(starts, "right")
    last = word_starts.searchsorted(ends, "left") - 1
    touching = (first <= last) & (starts < ends)
    for token in np.flatnonzero(touching & (first < last)).tolist():
        several = slice(first[token], last[token] + 1)
        covered = np.minimum(word_ends[several], ends[token]) - np.maximum(word_starts[several], starts[token])
        first[token] += covered.argmax()
    return [numbers[word] if touches else None for word, touches in zip(first, touching, strict=True)]
