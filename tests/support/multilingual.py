"""Tiny tokenizers of multilingual models, with the library's own classes, built from a few sentences."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece
from transformers import M2M100Tokenizer, MarianTokenizer, MBart50Tokenizer, MBartTokenizer, NllbTokenizer

TEXT = ["the cats love today.", "I love cats, don't you?", "die Katzen lieben heute.", "σήμερα שָׁלוֹם 日本語 😀"]
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def _characters() -> list[str]:
    return sorted({character for line in TEXT for character in line if not character.isspace()})


def nllb_tokenizer(legacy: bool = False, **languages: str) -> NllbTokenizer:
    """Return an NLLB tokenizer of single characters: source `[lang] x </s>`; legacy: `x </s> [lang]`."""
    vocabulary = {token: index for index, token in enumerate([*_SPECIAL, "▁", *_characters()])}
    codes = ["eng_Latn", "deu_Latn", "heb_Hebr"]
    return NllbTokenizer(vocab=vocabulary, merges=[], legacy_behaviour=legacy, extra_special_tokens=codes, **languages)


def _unigram() -> list[tuple[str, float]]:
    pieces = ["▁", *_characters(), "▁the", "▁cats", "▁love", "▁today", "▁die", "▁Katzen"]
    return [(token, 0.0) for token in _SPECIAL] + [(piece, -1.0 - 0.01 * len(piece)) for piece in pieces]


def mbart50_tokenizer(**languages: str) -> MBart50Tokenizer:
    """Return an mBART-50 tokenizer: `[lang] x </s>` on both sides."""
    return MBart50Tokenizer(vocab=_unigram(), **languages)


def mbart_tokenizer(**languages: str) -> MBartTokenizer:
    """Return an mBART tokenizer: `x </s> [lang]` on both sides."""
    return MBartTokenizer(vocab=_unigram(), **languages)


def _pieces(folder: Path, lines: Sequence[str]) -> tuple[str, list[str]]:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(list(lines) * 5),
        model_prefix=str(folder / "pieces"),
        vocab_size=90,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path = str(folder / "pieces.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=path)
    names = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
    return path, [name for name in names if name not in _SPECIAL]


def m2m100_tokenizer(folder: Path, **languages: str) -> M2M100Tokenizer:
    """Return an M2M100 tokenizer (Python, without offsets): `[lang] x </s>` on both sides."""
    path, names = _pieces(folder, TEXT)
    vocabulary = folder / "vocab.json"
    vocabulary.write_text(json.dumps({name: index for index, name in enumerate([*_SPECIAL, *names])}))
    return M2M100Tokenizer(vocab_file=str(vocabulary), spm_file=path, **languages)


def marian_tokenizer(folder: Path, *tags: str) -> MarianTokenizer:
    """Return an OPUS-MT tokenizer (Python, without offsets) that knows target tags such as `>>deu<<`."""
    path, names = _pieces(folder, TEXT)
    entries = ["</s>", "<unk>", *names, *tags, "<pad>"]
    vocabulary = folder / "vocab.json"
    vocabulary.write_text(json.dumps({name: index for index, name in enumerate(entries)}))
    return MarianTokenizer(source_spm=path, target_spm=path, vocab=str(vocabulary), source_lang="en", target_lang="de")


def vocabulary_size(tokenizer: Any) -> int:
    """Return how many ids a model must know."""
    languages = getattr(tokenizer, "lang_token_to_id", None) or {}
    return 1 + max(len(tokenizer), *tokenizer.get_vocab().values(), *languages.values())
