"""Tokens keep their place in the user's text, whatever the tokenizer and the script."""

import pytest
import sentencepiece
from probes import SENTENCES, byte_tokenizer, subword_tokenizer
from transformers import MarianTokenizer

from hf_seq2seq_attn.probing.tokens import TokenizedText, from_ids, tokenize

WORDS = ["the", "cats", "don't", "love", "today.", "日本語", "שָׁלוֹם", "😀", "σήμερα"]


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> MarianTokenizer:
    """A Marian tokenizer: Python code without offsets, trained on ASCII sentences (other scripts are unknown)."""
    folder = tmp_path_factory.mktemp("marian")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES[:3] * 5),
        model_prefix=str(folder / "model"),
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "model.model"))
    names = [pieces.id_to_piece(index) for index in range(pieces.get_piece_size())]
    names = ["</s>", "<unk>", *[name for name in names if name not in ("<s>", "</s>", "<unk>")], ">>deu<<", "<pad>"]
    vocabulary = folder / "vocab.json"
    vocabulary.write_text("{" + ",".join(f'"{name}": {index}' for index, name in enumerate(names)) + "}")
    spm = str(folder / "model.model")
    return MarianTokenizer(source_spm=spm, target_spm=spm, vocab=str(vocabulary), source_lang="en", target_lang="de")


def covered(side: TokenizedText) -> list[str]:
    """The characters that the tokens of each word cover, joined."""
    pieces: dict[int, list[str]] = {}
    last = (0, 0)
    for span, word in zip(side.spans, side.word_of, strict=True):
        if word is not None and span is not None and span != last:
            pieces.setdefault(word, []).append(side.text[slice(*span)])
            last = span
    return ["".join(pieces.get(word, [])).strip() for word in range(len(side.words))]


@pytest.mark.parametrize("make", [subword_tokenizer, byte_tokenizer])
@pytest.mark.parametrize("sentence", [WORDS, " ".join(WORDS), "  the   cats\tlove ", "😀today.日本語"])
def test_fast_tokenizers_cover_every_word(make: object, sentence: str | list[str]) -> None:
    (side,) = tokenize(make(), [sentence])  # type: ignore[operator]
    assert covered(side) == side.words == (sentence.split() if isinstance(sentence, str) else sentence)
    assert side.word_of[-1] is None
    assert side.tokens[-1] == "</s>"
    assert len(side.ids) == len(side.tokens) == len(side.spans) == len(side.word_of)


def test_words_given_agree_with_the_tokenizers_own_word_ids() -> None:
    tokenizer = subword_tokenizer()
    words = ["understand", "cats,", "unloved", "I"]
    (side,) = tokenize(tokenizer, [words])
    encoded = tokenizer(words, is_split_into_words=True)
    assert side.ids == encoded["input_ids"]
    assert side.word_of == encoded.word_ids()


def test_given_words_split_what_white_space_does_not() -> None:
    (side,) = tokenize(byte_tokenizer(), [["today", ".", "don", "'t"]])
    assert covered(side) == ["today", ".", "don", "'t"]
    (raw,) = tokenize(byte_tokenizer(), ["today ."])
    assert raw.words == ["today", "."]


def test_blank_sentences_have_no_word() -> None:
    for side in tokenize(subword_tokenizer(), ["", "   ", []]):
        assert side.words == []
        assert all(side.structural)
    assert tokenize(subword_tokenizer(), []) == []


def test_python_tokenizers_match_pieces_against_the_text(marian: MarianTokenizer) -> None:
    assert not marian.is_fast
    for words in (["the", "cats", "don't", "love", "today."], ["understand", "日本語", "unloved", "day"]):
        (side,) = tokenize(marian, [words])
        assert side.tokens[-1] == "</s>"
        assert side.word_of[-1] is None
        assert covered(side) == words


def test_an_unknown_word_at_the_end_still_has_its_token(marian: MarianTokenizer) -> None:
    (side,) = tokenize(marian, [["the", "日本語"]])
    assert covered(side) == ["the", "日本語"]


def test_language_codes_are_structural(marian: MarianTokenizer) -> None:
    (side,) = tokenize(marian, [">>deu<< the cats"])
    assert side.tokens[0] == ">>deu<<"
    assert side.word_of[0] is None
    assert covered(side)[1:] == ["the", "cats"]


@pytest.mark.parametrize("make", [subword_tokenizer, byte_tokenizer])
def test_generated_ids_find_their_place_in_what_they_decode_to(make: object) -> None:
    tokenizer = make()  # type: ignore[operator]
    ids = tokenizer("the cats love today. understand")["input_ids"]
    side = from_ids(tokenizer, ids)
    assert side.text.strip() == "the cats love today. understand"
    assert covered(side) == side.words == ["the", "cats", "love", "today.", "understand"]
    assert side.word_of[-1] is None


def test_marian_pieces_of_generated_ids(marian: MarianTokenizer) -> None:
    side = from_ids(marian, marian("the cats love today.")["input_ids"])
    assert covered(side) == side.words == ["the", "cats", "love", "today."]
