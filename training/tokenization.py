"""Train fast tokenizers; they reload by AutoTokenizer with no code of ours."""

import json
from collections import Counter
from collections.abc import Callable, Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"
SPECIAL_TOKENS = (PAD, BOS, EOS, UNK)
"""The special tokens; the position of each is its id."""

KINDS = ("bpe", "unigram", "word", "char")

WORD_START = "▁"
"""Stands for the space before each word."""


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    kind: str = "bpe",
    *,
    lowercase: bool = False,
    split_punctuation: bool = False,
) -> PreTrainedTokenizerFast:
    """Train a tokenizer whose `word_ids()` are the whitespace words of a sentence.

    Text is brought to Unicode NFC and nothing else is lost: `decode(encode(x), skip_special_tokens=True) == x` where
    every character of x (of a word-level tokenizer: every word) was seen in training. What was not gives `<unk>`. Each
    encoding ends in `</s>`; the start of the decoder is the model's affair.

    Args:
        texts: sentences of one side, or of both for a shared vocabulary; read once.
        vocab_size: the largest number of entries, the four special ones included. A small corpus gives fewer.
        kind: "bpe" (Sennrich et al. 2016): sub-words. "unigram" (Kudo 2018): sub-words; ten times slower to train, and
            the library's trainer walks hash tables with a random seed, so that scores differ by about 0.01 from run to
            run and a sentence may be cut otherwise. "word": the most frequent whitespace words; all others are one
            `<unk>`. "char": characters.
        lowercase: lower-case all text, which is lost then.
        split_punctuation: for plain text ("Hund." and not "Hund ."): each punctuation mark is a piece of its own, and
            what stands before it is cut as if the mark were not there. Only for "bpe".

    Raises:
        ValueError: an unknown kind, a vocabulary too small for the characters of the text, or `split_punctuation` of
            another kind than "bpe".
    """
    if kind not in KINDS:
        raise ValueError(f"tokenizer kind={kind!r}: choose one of {', '.join(KINDS)}")
    if split_punctuation and kind != "bpe":
        raise ValueError(f"tokenizer split_punctuation=True: needs kind=bpe, not {kind}; leave it out")
    steps = [normalizers.NFC(), normalizers.Lowercase()] if lowercase else [normalizers.NFC()]
    normalizer = normalizers.Sequence(steps)
    # It cuts at spaces only: "don't", "(word)." and pointed Hebrew each stay one word.
    pre_tokenizer = pre_tokenizers.Metaspace(replacement=WORD_START, prepend_scheme="always")
    # While merges are learnt, and not after: no merge then joins a mark to anything, so words are cut at marks all the
    # same, and `word_ids()` still counts words between spaces.
    cut = [pre_tokenizer, pre_tokenizers.Punctuation("isolated")] if split_punctuation else [pre_tokenizer]
    make = _word_tokenizer if kind == "word" else _subword_tokenizer
    tokenizer = make(list(texts), vocab_size, kind, normalizer, pre_tokenizers.Sequence(cut))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, SPECIAL_TOKENS.index(EOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNK,
        padding_side="right",
        clean_up_tokenization_spaces=False,
        # "</s>" typed in a corpus is text: read as the special token it would end the sentence.
        split_special_tokens=True,
        model_input_names=["input_ids", "attention_mask"],
    )


def _word_tokenizer(
    texts: list[str],
    vocab_size: int,
    kind: str,
    normalizer: normalizers.Normalizer,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
) -> Tokenizer:
    """Return a tokenizer of the most frequent words, equally frequent ones in alphabetical order."""
    # The mark alone is a second space in a row.
    fixed = [*SPECIAL_TOKENS, WORD_START]
    if vocab_size <= len(fixed):
        raise ValueError(f"tokenizer vocab_size={vocab_size}: must be more than {len(fixed)}, or there is no word")
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text)))
    counts.pop(WORD_START, None)
    words = sorted(counts, key=lambda word: (-counts[word], word))[: vocab_size - len(fixed)]
    vocabulary = {token: index for index, token in enumerate([*fixed, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    # An unknown word is a word: without the mark it would be written into the one before it.
    tokenizer.decoder = decoders.Sequence([decoders.Replace(UNK, WORD_START + UNK), _decoder()])
    return tokenizer


def _subword_tokenizer(
    texts: list[str],
    vocab_size: int,
    kind: str,
    normalizer: normalizers.Normalizer,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
) -> Tokenizer:
    alphabet = sorted({character for text in texts for character in normalizer.normalize_str(text)} - {" "})
    # The mark is one character more.
    smallest = len({*alphabet, WORD_START}) + len(SPECIAL_TOKENS)
    if vocab_size < smallest:
        raise ValueError(
            f"tokenizer vocab_size={vocab_size}: the text has {len(alphabet)} different characters, "
            f"so it must be at least {smallest}"
        )
    model = models.Unigram() if kind == "unigram" else models.BPE(unk_token=UNK, fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    make: Callable[..., trainers.Trainer] = trainers.UnigramTrainer if kind == "unigram" else trainers.BpeTrainer
    trainer = make(
        # Room for the characters and for no merge of them leaves characters.
        vocab_size=smallest if kind == "char" else vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=[*alphabet, WORD_START],
        show_progress=False,
        **({"unk_token": UNK} if kind == "unigram" else {}),
    )
    tokenizer.train_from_iterator(texts, trainer, length=len(texts))
    if kind == "unigram":
        _make_special_pieces_unlikely(tokenizer)
    tokenizer.decoder = _decoder()
    return tokenizer


def _decoder() -> decoders.Decoder:
    return decoders.Metaspace(replacement=WORD_START, prepend_scheme="always")


def _make_special_pieces_unlikely(tokenizer: Tokenizer) -> None:
    """Let "</s>" typed in a text be cut into its characters.

    A Unigram model holds the special tokens among its pieces, with probability 1: it would find them in any text.
    """
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    ordinary = pieces[len(SPECIAL_TOKENS) :]
    unlikely = min(score for _, score in ordinary) - 100
    special = [(token, unlikely) for token in SPECIAL_TOKENS]
    tokenizer.model = models.Unigram([*special, *map(tuple, ordinary)], unk_id=SPECIAL_TOKENS.index(UNK))
