"""Tokens that keep their place in the user's text, and the words they belong to.

The model always sees its tokenizer's own segmentation of the whole sentence, never of words one by one. Words, given
or found, then take the tokens that cover most of them. A token that covers no character of the sentence (start, end,
padding, a language code) is structural and belongs to no word.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hf_seq2seq_attn.tokenizer_pair import sides

Sentence = str | Sequence[str]
Span = tuple[int, int]

# OPUS-MT names the target language in the source text: `>>deu<< Hello`.
_LANGUAGE_CODE = re.compile(r">>[\w-]+<<")


@dataclass(frozen=True)
class TokenizedText:
    """One side of a sentence pair.

    Attributes:
        text: what was tokenised; words given as a list are joined by single spaces.
        ids, tokens: the tokenizer's output, special tokens included.
        spans: start and end of each token in `text`; None for a structural token.
        words: the words given, or the text split at white space.
        word_of: for each token the index of its word; None for a structural token.
    """

    text: str
    ids: list[int]
    tokens: list[str]
    spans: list[Span | None]
    words: list[str]
    word_of: list[int | None]

    @property
    def structural(self) -> list[bool]:
        """For each token, whether it belongs to no word."""
        return [word is None for word in self.word_of]


def tokenize(tokenizer: Any, sentences: Sequence[Sentence], *, target: bool = False) -> list[TokenizedText]:
    """Tokenise sentences with their special tokens, without truncation or padding.

    Args:
        tokenizer: any Hugging Face tokenizer, or a `TokenizerPair`. Without offsets (Python tokenizers such as
            Marian's) tokens find their place by matching them against the text.
        sentences: raw strings or lists of words.
        target: tokenise as target text (`text_target`), with the target's tokenizer.
    """
    if not sentences:
        return []
    tokenizer = sides(tokenizer)[1 if target else 0]
    texts = [sentence if isinstance(sentence, str) else " ".join(sentence) for sentence in sentences]
    fast = bool(getattr(tokenizer, "is_fast", False))
    encoded = tokenizer(
        **{"text_target" if target else "text": texts},
        add_special_tokens=True,
        padding=False,
        truncation=False,
        return_attention_mask=False,
        **({"return_offsets_mapping": True} if fast else {}),
    )
    tokenized = []
    for index, (sentence, text) in enumerate(zip(sentences, texts, strict=True)):
        ids = [int(token) for token in encoded["input_ids"][index]]
        tokens = [str(token) for token in tokenizer.convert_ids_to_tokens(ids)]
        spans = (
            [tuple(span) for span in encoded["offset_mapping"][index]]
            if fast
            else match_spans(tokenizer, ids, tokens, text)
        )
        tokenized.append(_with_words(text, ids, tokens, spans, sentence))
    return tokenized


def from_ids(tokenizer: Any, ids: Sequence[int]) -> TokenizedText:
    """Describe token ids that a model generated; the text is what they decode to."""
    ids = [int(token) for token in ids]
    _, tokenizer = sides(tokenizer)

    def decode(part: list[int]) -> str:
        return str(tokenizer.decode(part, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    text = decode(ids)
    # A token covers what it adds to the text decoded so far, which holds for every kind of tokenizer.
    ends = [min(len(decode(ids[:end])), len(text)) for end in range(1, len(ids) + 1)]
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    tokens = [str(token) for token in tokenizer.convert_ids_to_tokens(ids)]
    return _with_words(text, ids, tokens, spans, text)


def match_spans(tokenizer: Any, ids: Sequence[int], tokens: Sequence[str], text: str) -> list[Span]:
    """Find each token's characters in `text` by reading both from left to right, without regard to case, white space
    and compatibility forms; a token that cannot be found (unknown) covers the gap up to the next one that can.

    Returns:
        One span for each token; (0, 0) for special tokens and tokens without a character.
    """
    folded, place = _fold(text)
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
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
    text: str, ids: list[int], tokens: list[str], spans: Sequence[Span], sentence: Sentence
) -> TokenizedText:
    words, word_spans = _find_words(text, sentence)
    owner: list[int | None] = [None] * len(text)
    for word, (start, end) in enumerate(word_spans):
        owner[start:end] = [word] * (end - start)
    word_of = [_word_of(owner[start:end]) for start, end in spans]
    # A lone word-start mark covers only white space; it belongs to the token after it.
    for index in range(len(tokens) - 2, -1, -1):
        if word_of[index] is None and tokens[index] in ("▁", "Ġ"):
            word_of[index] = word_of[index + 1]
    for index, token in enumerate(tokens):
        if _LANGUAGE_CODE.fullmatch(token.removeprefix("▁")):
            word_of[index] = None
    kept = [span if word is not None else None for span, word in zip(spans, word_of, strict=True)]
    return TokenizedText(text, ids, tokens, kept, words, word_of)


def _find_words(text: str, sentence: Sentence) -> tuple[list[str], list[Span]]:
    if isinstance(sentence, str):
        spans = [match.span() for match in re.finditer(r"\S+", text)]
        return [text[start:end] for start, end in spans], spans
    spans, start = [], 0
    for word in sentence:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return list(sentence), spans


def _word_of(owners: list[int | None]) -> int | None:
    """Return the word that owns most of these characters; the first of equals."""
    counts = Counter(word for word in owners if word is not None)
    return counts.most_common(1)[0][0] if counts else None
