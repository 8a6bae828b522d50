"""Tokens keep their place in the user's text, whatever the tokenizer and the script."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from every_tokenizer import EVERY_KIND
from families import family_model
from multilingual import m2m100_tokenizer
from probes import SENTENCES, byte_tokenizer, subword_tokenizer
from tokenizers import processors
from transformers import MarianTokenizer

from hf_seq2seq_attn.probing import extract, to_word_links
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


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_word_of_every_script_has_its_tokens(kind: str, given: bool, tmp_path: Path) -> None:
    words = ["the", "cats", "don't", "today.", "日本語", "שָׁלוֹם", "😀", "σήμερα"]
    (side,) = tokenize(EVERY_KIND[kind](tmp_path), [words if given else " ".join(words)])
    assert side.words == words
    # Every character is covered, by tokens of its own word and in order; BERT's normaliser drops Hebrew points.
    assert covered(side) == (words if kind != "wordpiece" else [word.replace("שָׁלוֹם", "שלום") for word in words])
    numbers = [word for word in side.word_of if word is not None]
    assert numbers == sorted(numbers)
    assert sorted(set(numbers)) == list(range(len(words)))
    for word, span, role in zip(side.word_of, side.spans, side.roles, strict=True):
        assert (word is None) == (span is None) == (role != "word")


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_given_words_part_what_the_text_writes_together(kind: str, tmp_path: Path) -> None:
    tokenizer = EVERY_KIND[kind](tmp_path)
    words = ["today", ".", "don", "'t", "日本", "語"]
    (side,) = tokenize(tokenizer, [words])
    assert covered(side) == words
    # The model reads the sentence as its tokenizer writes it, not word by word.
    assert side.ids == tokenizer(" ".join(words))["input_ids"]


@pytest.mark.parametrize(("kind", "roles"), [
    ("bpe", {-1: "end"}),
    ("wordpiece", {0: "start", -1: "end"}),
    ("characters", {0: "start", -1: "end"}),
    ("nllb", {0: "tag", -1: "end"}),
    ("mbart50", {0: "tag", -1: "end"}),
    ("mbart", {-2: "end", -1: "tag"}),
    ("m2m100", {0: "tag", -1: "end"}),
])  # fmt: skip
def test_roles_of_tokens_that_cover_nothing(kind: str, roles: dict[int, str], tmp_path: Path) -> None:
    (side,) = tokenize(EVERY_KIND[kind](tmp_path), ["the cats"])
    found = {index: role for index, role in enumerate(side.roles) if role not in ("word", "blank")}
    assert found == {index % len(side.ids): role for index, role in roles.items()}


def test_padding_is_structural() -> None:
    tokenizer = subword_tokenizer()
    ids = tokenizer(["the cats", "love cats the day"], padding=True)["input_ids"][0]
    side = from_ids(tokenizer, ids)
    assert side.roles[-1] == "padding"
    assert side.word_of[-1] is None
    assert side.words == ["the", "cats"]


def test_an_added_code_that_is_not_special_is_a_tag() -> None:
    """`all_special_ids` misses it, and decoding leaves it in the text."""
    tokenizer = subword_tokenizer()
    tokenizer.add_tokens(["eng_Latn", "cats_today"])
    code = tokenizer.convert_tokens_to_ids("eng_Latn")
    assert code not in tokenizer.all_special_ids
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="eng_Latn $A </s>", special_tokens=[("eng_Latn", code), ("</s>", 2)]
    )
    (side,) = tokenize(tokenizer, ["the cats"])
    assert (side.tokens[0], side.roles[0], side.word_of[0]) == ("eng_Latn", "tag", None)
    generated = from_ids(tokenizer, side.ids)
    assert generated.text.strip() == "the cats"
    assert generated.roles[0] == "tag"


def test_a_tag_before_an_unknown_word_takes_none_of_its_characters(tmp_path: Path) -> None:
    tokenizer = m2m100_tokenizer(tmp_path, tgt_lang="de")
    (side,) = tokenize(tokenizer, ["ありがとう the"])
    assert (side.tokens[0], side.word_of[0]) == ("__en__", None)
    assert covered(side) == ["ありがとう", "the"]


PREFIX = "translate English to German: "


@pytest.mark.parametrize("kind", ["bpe", "bytes", "characters", "m2m100", "nllb"])
@pytest.mark.parametrize("sentence", ["the cats don't love today.", ["日本語", "שָׁלוֹם", "😀"], "", "  cats"])
def test_a_task_prefix_is_structural_and_spans_are_of_the_users_text(
    kind: str, sentence: str | list[str], tmp_path: Path
) -> None:
    tokenizer = EVERY_KIND[kind](tmp_path)
    (side,) = tokenize(tokenizer, [sentence], prefix=PREFIX)
    text = sentence if isinstance(sentence, str) else " ".join(sentence)
    assert side.text == text
    assert side.ids == tokenizer(PREFIX + text)["input_ids"]
    assert side.words == (sentence.split() if isinstance(sentence, str) else sentence)
    assert covered(side) == side.words
    count = side.roles.count("prefix")
    assert count >= 4
    first = side.roles.index("prefix")
    assert set(side.roles[first : first + count]) == {"prefix"}
    assert all(word is None for word in side.word_of[: first + count])
    assert all(span is None or 0 <= span[0] <= span[1] <= len(text) for span in side.spans)


def test_a_task_prefix_goes_through_extraction_and_into_no_link() -> None:
    model, tokenizer = family_model("t5", "sdpa"), subword_tokenizer()
    sources, targets = ["the cats love", ["today", "."]], ["love cats", "day"]
    # Cross-attention of the whole input, prefix included, is what the model computes.
    written = [PREFIX + "the cats love", PREFIX + "today ."]
    found = extract(model, tokenizer, sources, targets, source_prefix=PREFIX)
    for maps, own, words in zip(found, extract(model, tokenizer, written, targets), (3, 2), strict=True):
        assert maps.source.ids == own.source.ids
        np.testing.assert_array_equal(maps.weights, own.weights)
        assert len(maps.source_words) == words
        for subwords in ("matrix", "links"):
            links: Any = to_word_links(maps, subwords=subwords)
            assert links
            assert all(i < words for i, _ in links)
