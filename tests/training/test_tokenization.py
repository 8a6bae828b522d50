import unicodedata
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hf_seq2seq_attn.training.tokenization import KINDS, SPECIAL_TOKENS, train_tokenizer

TEXTS = [
    'don\'t stop (now), he said: "stop!"',
    "καὶ ἐγένετο ἐν ταῖς ἡμέραις ἐκείναις",
    "בְּרֵאשִׁ֖ית בָּרָ֣א אֱלֹהִ֑ים",
    "我 喜欢 猫 。",
    "我喜欢猫,也喜欢狗。 吾輩は猫である。名前はまだ無い。",
    "emoji 👩‍👩‍👧 and 🇬🇷 and e\u0301",
    "two  spaces and a trailing one ",
    "the end </s> is only text here, and so is <pad>",
]
SIZE = 200


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    folder = tmp_path_factory.mktemp(request.param)
    train_tokenizer(TEXTS, vocab_size=SIZE, kind=request.param).save_pretrained(folder)
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".json"]
    return AutoTokenizer.from_pretrained(folder)


def test_special_tokens_have_the_first_ids_and_sentences_end_once(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3]
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        assert ids[-1] == tokenizer.eos_token_id
        assert ids.count(tokenizer.eos_token_id) == 1
        assert tokenizer(text_target=text)["input_ids"] == ids


@pytest.mark.parametrize("text", TEXTS)
def test_known_text_comes_back_exactly(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_text_is_composed(tokenizer: PreTrainedTokenizerFast) -> None:
    decomposed = unicodedata.normalize("NFD", "ἐγένετο")
    assert decomposed != "ἐγένετο"
    assert tokenizer(decomposed)["input_ids"] == tokenizer("ἐγένετο")["input_ids"]


WORDS = [
    "don't", "(now),", "it's", "ἐκείναις", "בְּרֵאשִׁ֖ית", "喜欢", "吾輩は猫である。", "👩‍👩‍👧", "🇬🇷", "xyz龘", "。", "</s>",
    "e\u0301",
]  # fmt: skip


def test_word_ids_are_the_given_words(tokenizer: PreTrainedTokenizerFast) -> None:
    word_ids = tokenizer(WORDS, is_split_into_words=True).word_ids()
    assert word_ids[-1] is None
    assert sorted(set(word_ids[:-1])) == list(range(len(WORDS)))
    assert word_ids[:-1] == sorted(word_ids[:-1])
    assert tokenizer(" ".join(WORDS)).word_ids() == word_ids


def test_a_given_word_with_a_space_inside_stays_one(tokenizer: PreTrainedTokenizerFast) -> None:
    word_ids = tokenizer(["he", "said stop", "two"], is_split_into_words=True).word_ids()
    assert sorted(set(word_ids[:-1])) == [0, 1, 2]


def test_truncation_keeps_the_end(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = tokenizer(TEXTS[0], truncation=True, max_length=4)["input_ids"]
    assert len(ids) == 4 and ids[-1] == tokenizer.eos_token_id


def test_what_was_never_seen_is_unknown_and_still_one_word(tokenizer: PreTrainedTokenizerFast) -> None:
    encoding = tokenizer(["he", "龘龘", "stop"], is_split_into_words=True)
    positions = [p for p, word in enumerate(encoding.word_ids()) if word == 1]
    assert tokenizer.unk_token_id in [encoding["input_ids"][p] for p in positions]
    assert {word for word in encoding.word_ids() if word is not None} == {0, 1, 2}
    assert tokenizer.decode(encoding["input_ids"]) == "he <unk> stop</s>"


def test_one_token_for_each_word_or_character() -> None:
    word, char = (train_tokenizer(TEXTS, vocab_size=SIZE, kind=kind) for kind in ("word", "char"))
    text = "don't stop (now), 吾輩は猫である。名前はまだ無い。"
    assert word.convert_ids_to_tokens(word(text)["input_ids"]) == [*("▁" + part for part in text.split()), "</s>"]
    assert char.convert_ids_to_tokens(char(text)["input_ids"]) == ["▁", *text.replace(" ", "▁"), "</s>"]


def test_the_rarest_words_give_way() -> None:
    texts = ["b a b c b", "c b a"]
    tokenizer = train_tokenizer(texts, vocab_size=7, kind="word")
    assert sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)[4:] == ["▁", "▁b", "▁a"]
    assert tokenizer.decode(tokenizer("a c b")["input_ids"]) == "a <unk> b</s>"
    with pytest.raises(ValueError, match="vocab_size=5: must be more than 5, or there is no word"):
        train_tokenizer(texts, vocab_size=5, kind="word")


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
def test_the_same_text_gives_the_same_tokenizer(kind: str) -> None:
    first, second = (train_tokenizer(TEXTS, vocab_size=SIZE, kind=kind).backend_tokenizer.to_str() for _ in range(2))
    assert first == second


def test_lowercase_is_asked_for() -> None:
    folded, exact = (train_tokenizer(["Ab aB"], vocab_size=20, lowercase=low) for low in (True, False))
    assert folded("AB")["input_ids"] == folded("ab")["input_ids"]
    assert exact("AB")["input_ids"] != exact("ab")["input_ids"]


def test_punctuation_is_cut_off_and_words_are_still_those_between_spaces() -> None:
    texts = ["der Hund.", "ein Hund.", "Hund.", "(der Hund)", "ein T-Shirt, der Hund."] * 3
    split, glued = (train_tokenizer(texts, vocab_size=60, split_punctuation=choice) for choice in (True, False))
    assert "▁Hund." in glued.get_vocab() and "▁Hund." not in split.get_vocab()
    # Of each piece: a mark is a piece alone.
    for piece in split.get_vocab():
        assert piece in SPECIAL_TOKENS or len(piece) == 1 or not set(piece) & set(".,()-")
    text = "ein (Hund), der  T-Shirt."
    encoded = split(text)
    words = [number for number in encoded.word_ids() if number is not None]
    assert words == sorted(words) and set(words) == set(range(len(text.split(" "))))
    assert [token for token in encoded.tokens() if set(token) & set(".,()-")] == ["(", ")", ",", "-", "."]
    assert split.decode(encoded["input_ids"], skip_special_tokens=True) == text
    # As if the mark were not there.
    assert split("Hund.").tokens()[:-2] == split("Hund").tokens()[:-1]


def test_bad_choices_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="split_punctuation=True: needs kind=bpe, not unigram"):
        train_tokenizer(["a"], vocab_size=10, kind="unigram", split_punctuation=True)
    with pytest.raises(ValueError, match=r"kind='wordpiece'.*bpe, unigram, word, char"):
        train_tokenizer(["a"], vocab_size=10, kind="wordpiece")
    with pytest.raises(ValueError, match="3 different characters, so it must be at least 8"):
        train_tokenizer(["abc"], vocab_size=7)


def test_saved_folder_needs_no_code_of_ours(tmp_path: Path) -> None:
    train_tokenizer(TEXTS, vocab_size=SIZE).save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.py"))
