"""A tiny tokenizer of every kind: how words become pieces differs, what belongs to a word must not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from multilingual import m2m100_tokenizer, marian_tokenizer, mbart50_tokenizer, mbart_tokenizer, nllb_tokenizer
from probes import SENTENCES, byte_tokenizer, subword_tokenizer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertTokenizer, PreTrainedTokenizerFast


def wordpiece_tokenizer() -> BertTokenizer:
    """Return a BERT tokenizer: lower-cases, strips accents, splits CJK, `##` continues a word."""
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "the",
        "cat",
        "##s",
        "don",
        "'",
        "t",
        "today",
        ".",
        "日",
        "本",
    ]
    pieces += ["語", "σ", "##η", "##μ", "##ε", "##ρ", "##α", "ש", "##ל", "##ו", "##ם", "un", "##love", "##d"]
    return BertTokenizer(vocab={piece: index for index, piece in enumerate(pieces)}, do_lower_case=True)


def character_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of single characters without any word mark."""
    characters = sorted({character for line in [*SENTENCES, "😀 "] for character in line})
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<s>", "</s>", "<unk>", *characters])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def composing_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer that decomposes and lower-cases before it splits, as many normalise."""
    tokenizer = character_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase()])
    return tokenizer


EVERY_KIND: dict[str, Callable[[Path], Any]] = {
    "bpe": lambda folder: subword_tokenizer(),
    "bytes": lambda folder: byte_tokenizer(),
    "wordpiece": lambda folder: wordpiece_tokenizer(),
    "characters": lambda folder: character_tokenizer(),
    "normalising": lambda folder: composing_tokenizer(),
    "nllb": lambda folder: nllb_tokenizer(),
    "mbart50": lambda folder: mbart50_tokenizer(),
    "mbart": lambda folder: mbart_tokenizer(),
    "marian": lambda folder: marian_tokenizer(folder),
    "m2m100": lambda folder: m2m100_tokenizer(folder, tgt_lang="de"),
}
