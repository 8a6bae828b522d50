"""Sentences given as words, turned into token ids that know their words, by any tokenizer."""

from collections.abc import Sequence
from typing import Any

from hf_seq2seq_attn.probing import tokenize

WordIds = list[int | None]


def encode_words(
    tokenizer: Any, sentences: Sequence[list[str]], *, target: bool = False
) -> tuple[list[list[int]], list[WordIds]]:
    """Return the token ids of each sentence, special tokens included, and the word of each token (None: special).

    Fast tokenizers are given the words and say it themselves. Those in Python (Marian, M2M100) are given the sentence,
    and each token finds its place in it, as for probing.

    Args:
        target: encode as target text: with the target's language tag where the tokenizer has one.
    """
    if getattr(tokenizer, "is_fast", False):
        # Named text_target: a tokenizer with language tags then takes the target's.
        encoded = tokenizer(**{"text_target" if target else "text": list(sentences)}, is_split_into_words=True)
        return encoded["input_ids"], [encoded.word_ids(number) for number in range(len(sentences))]
    tokenized = tokenize(tokenizer, list(sentences), target=target)
    return [text.ids for text in tokenized], [text.word_of for text in tokenized]
