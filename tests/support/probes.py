"""Tiny tokenizers and foreign models to probe, and attention planted by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from hf_seq2seq_attn.probing import AttentionMaps, TokenizedText

PAD, BOS, EOS, UNK = 0, 1, 2, 3
WORDS = 19
SENTENCES = ["the cats love today.", "I love cats, don't you?", "understand this unloved day", "σήμερα שָׁלוֹם 日本語"]


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of one token a word: `w4` has id 4, up to `w22`; the end token is added."""
    vocabulary = {"<pad>": PAD, "<s>": BOS, "</s>": EOS, "<unk>": UNK} | {f"w{n}": n for n in range(4, 4 + WORDS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _wrapped(backend)


def subword_tokenizer(size: int = 70) -> PreTrainedTokenizerFast:
    """Return a byte-pair tokenizer with word-start marks, trained on `SENTENCES`."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<pad>", "<s>", "</s>", "<unk>"], show_progress=False
    )
    backend.train_from_iterator(SENTENCES * 5, trainer)
    return _wrapped(backend)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer: a character outside ASCII is several tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=270,
        special_tokens=["<pad>", "<s>", "</s>", "<unk>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES, trainer)
    return _wrapped(backend)


def _wrapped(backend: Tokenizer) -> PreTrainedTokenizerFast:
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def foreign_model(family: str, backend: str = "eager", vocabulary: int = 73, sharp: float = 0.6) -> Any:
    """Return a tiny random Marian, BART, M2M100 or T5 in eval mode, with sharp weights."""
    ids = dict(pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=PAD, vocab_size=vocabulary)
    sizes = dict(
        d_model=18,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=10,
        decoder_ffn_dim=14,
        max_position_embeddings=40,
        forced_eos_token_id=None,
        dropout=0.5,
    )
    torch.manual_seed(5)
    makers = {
        "marian": lambda: MarianMTModel(MarianConfig(**ids, **sizes)),
        "bart": lambda: BartForConditionalGeneration(BartConfig(**ids, **sizes)),
        "m2m_100": lambda: M2M100ForConditionalGeneration(M2M100Config(**ids, **sizes)),
        # Unequal numbers of layers break T5's cache in transformers 5.24.
        "t5": lambda: T5ForConditionalGeneration(
            T5Config(**ids, d_model=18, d_kv=5, d_ff=10, num_layers=3, num_heads=3)
        ),
    }
    model = makers[family]().eval()
    model.set_attn_implementation(backend)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=sharp)
    return model


def planted(
    weights: Sequence[Sequence[float]], source: Sequence[int | None], target: Sequence[int | None]
) -> AttentionMaps:
    """Return maps of one layer and head with these weights (T, S); `source`, `target` give each token's word."""
    array = np.array(weights, dtype=np.float32)[None, None]
    return AttentionMaps(array, _side(source), _side(target), "output", (0,), (0,))


def _side(word_of: Sequence[int | None]) -> TokenizedText:
    words = [f"word{n}" for n in range(1 + max((word for word in word_of if word is not None), default=-1))]
    size = len(word_of)
    return TokenizedText(" ".join(words), list(range(size)), ["?"] * size, [None] * size, words, list(word_of))
