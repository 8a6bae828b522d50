"""Train one fast tokenizer for both sides of a corpus; it reloads by AutoTokenizer with no code of ours."""

import json
from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"
SPECIAL_TOKENS = (PAD, BOS, EOS, UNK)
"""The special tokens; the position of each is its id."""

KINDS = ("bpe", "unigram")


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, kind: str = "bpe", *, lowercase: bool = False
) -> PreTrainedTokenizerFast:
    """Train a sub-word tokenizer whose `word_ids()` are the whitespace words of a sentence.

    The vocabulary is shared by source and target. Text is brought to Unicode NFC and nothing else is lost:
    `decode(encode(x), skip_special_tokens=True) == x` where every character of x was seen in training. A character
    that was not gives `<unk>`. Each encoding ends in `</s>`; the start of the decoder is the model's affair.

    Args:
        texts: sentences of both sides; read once.
        vocab_size: the largest number of entries, the four special ones included. A small corpus gives fewer.
        kind: "bpe" (Sennrich et al. 2016): the same text gives the same tokenizer, always. "unigram" (Kudo 2018):
            the library's trainer walks hash tables with a random seed, so that scores differ by about 0.01 from
            run to run and a sentence may be cut otherwise; ten times slower to train.
        lowercase: lower-case all text, which is lost then.

    Raises:
        ValueError: an unknown kind, or a vocabulary too small for the characters of the text.
    """
    if kind not in KINDS:
        raise ValueError(f"tokenizer kind={kind!r}: choose one of {', '.join(KINDS)}")
    texts = list(texts)
    steps = [normalizers.NFC(), normalizers.Lowercase()] if lowercase else [normalizers.NFC()]
    normalizer = normalizers.Sequence(steps)
    alphabet = sorted({character for text in texts for character in normalizer.normalize_str(text)} - {" "})
    # The marker of word starts is one character more.
    smallest = len(alphabet) + 1 + len(SPECIAL_TOKENS)
    if vocab_size < smallest:
        raise ValueError(
            f"tokenizer vocab_size={vocab_size}: the text has {len(alphabet)} different characters, "
            f"so it must be at least {smallest}"
        )

    tokenizer = Tokenizer(models.Unigram() if kind == "unigram" else models.BPE(unk_token=UNK, fuse_unk=True))
    tokenizer.normalizer = normalizer
    # Metaspace cuts at spaces only: "don't", "(word)." and pointed Hebrew each stay one word.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.train_from_iterator(texts, _trainer(kind, vocab_size, alphabet), length=len(texts))
    if kind == "unigram":
        _make_special_pieces_unlikely(tokenizer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, tokenizer.token_to_id(EOS))]
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


def _make_special_pieces_unlikely(tokenizer: Tokenizer) -> None:
    """Let "</s>" typed in a text be cut into its characters.

    A Unigram model holds the special tokens among its pieces, with probability 1: it would find them in any text.
    """
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    ordinary = pieces[len(SPECIAL_TOKENS) :]
    unlikely = min(score for _, score in ordinary) - 100
    special = [(token, unlikely) for token in SPECIAL_TOKENS]
    tokenizer.model = models.Unigram([*special, *map(tuple, ordinary)], unk_id=SPECIAL_TOKENS.index(UNK))


def _trainer(kind: str, vocab_size: int, alphabet: list[str]) -> trainers.UnigramTrainer | trainers.BpeTrainer:
    if kind == "unigram":
        return trainers.UnigramTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIAL_TOKENS),
            unk_token=UNK,
            initial_alphabet=alphabet,
            show_progress=False,
        )
    return trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=alphabet,
        show_progress=False,
    )
