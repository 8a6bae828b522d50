"""Multilingual models read and write the languages that were asked for, whatever the family's way to say so."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from multilingual import (
    m2m100_tokenizer,
    marian_tokenizer,
    mbart50_tokenizer,
    mbart_tokenizer,
    nllb_tokenizer,
    vocabulary_size,
)
from probes import subword_tokenizer
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
)
from transformers.models.m2m_100.modeling_m2m_100 import shift_tokens_right

from hf_seq2seq_attn.probing import AttentionMaps, align, extract, set_languages

SOURCES = ["the cats σήμερα", ["love", "today."]]
TARGETS = ["die Katzen 😀 lieben", ["heute", "."]]
PAD, END = 1, 2
# Names of languages, source tags, then whether the tag is last in what the tokenizer writes, and then as target.
CASES = {
    "nllb": ("eng_Latn", "deu_Latn", "eng_Latn", "deu_Latn"),
    "nllb_legacy": ("eng_Latn", "deu_Latn", "eng_Latn", "deu_Latn"),
    "mbart50": ("en_XX", "de_DE", "en_XX", "de_DE"),
    "mbart": ("en_XX", "de_DE", "en_XX", "de_DE"),
    "m2m_100": ("en", "de", "__en__", "__de__"),
}


def tokenizer_of(case: str, folder: Path, **languages: str) -> Any:
    if case == "m2m_100":
        return m2m100_tokenizer(folder, **languages)
    if case.startswith("nllb"):
        return nllb_tokenizer(case == "nllb_legacy", **languages)
    return (mbart50_tokenizer if case == "mbart50" else mbart_tokenizer)(**languages)


def model_of(case: str, tokenizer: Any) -> Any:
    sizes: dict[str, Any] = dict(
        vocab_size=vocabulary_size(tokenizer), d_model=18, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=3, decoder_attention_heads=3, encoder_ffn_dim=10, decoder_ffn_dim=14,
        max_position_embeddings=60, pad_token_id=PAD, bos_token_id=0, eos_token_id=END, forced_eos_token_id=None,
        decoder_start_token_id=None if case == "mbart" else END,
    )  # fmt: skip
    torch.manual_seed(7)
    if case.startswith("mbart"):
        model = MBartForConditionalGeneration(MBartConfig(**sizes))
    else:
        model = M2M100ForConditionalGeneration(M2M100Config(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.6)
    return model.eval()


def teacher_forced(model: Any, maps: AttentionMaps, decoder_ids: list[int]) -> np.ndarray:
    model.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = model(
            input_ids=torch.tensor([maps.source.ids]),
            decoder_input_ids=torch.tensor([decoder_ids]),
            output_attentions=True,
        )
    return torch.cat(outputs.cross_attentions).numpy()


@pytest.mark.parametrize("by_argument", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_given_targets_start_in_their_language(case: str, by_argument: bool, tmp_path: Path) -> None:
    source_language, target_language, source_tag, target_tag = CASES[case]
    named = dict(src_lang=source_language, tgt_lang=target_language)
    tokenizer = tokenizer_of(case, tmp_path, **({} if by_argument else named))
    model = model_of(case, tokenizer)
    chosen = dict(source_language=source_language, target_language=target_language) if by_argument else {}
    for maps, target in zip(extract(model, tokenizer, SOURCES, TARGETS, **chosen), TARGETS, strict=True):
        last = case in ("nllb_legacy", "mbart")
        assert maps.source_tokens[-2:] == ["</s>", source_tag] if last else maps.source_tokens[0] == source_tag
        assert maps.source.roles.count("tag") == maps.target.roles.count("tag") == 1
        assert maps.source.word_of[maps.source.roles.index("tag")] is None
        tag = tokenizer.convert_tokens_to_ids(target_tag)
        labels = tokenizer_of(case, tmp_path, **named)(
            text_target=target if isinstance(target, str) else " ".join(target)
        )["input_ids"]
        if case == "nllb_legacy":
            # The decoder begins with the tag all the same, as `generate` makes it.
            labels = [labels[-1], *labels[:-1]]
        assert maps.target.ids == labels
        start = tag if case == "mbart" else END
        # What the model trains on, with the last label behind it.
        if case.startswith("mbart"):
            trained = model.prepare_decoder_input_ids_from_labels(torch.tensor([labels]))[0].tolist()
        else:
            trained = shift_tokens_right(torch.tensor([labels]), PAD, END)[0].tolist()
        assert [start, *maps.target.ids] == [*trained, labels[-1]]
        assert (tag in maps.target.ids[:1]) == (case != "mbart")
        whole = teacher_forced(model, maps, [start, *maps.target.ids])
        np.testing.assert_allclose(maps.weights, whole[:, :, 1:], atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_generated_targets_are_in_the_language(case: str, tmp_path: Path) -> None:
    source_language, target_language, _, target_tag = CASES[case]
    tokenizer = tokenizer_of(case, tmp_path)
    model = model_of(case, tokenizer)
    tag = tokenizer.convert_tokens_to_ids(target_tag)
    forced = {"decoder_start_token_id": tag} if case == "mbart" else {"forced_bos_token_id": tag}
    settings = dict(max_new_tokens=8, num_beams=2)
    found = extract(
        model, tokenizer, SOURCES, source_language=source_language, target_language=target_language,
        align_with="output", generate_kwargs=settings,
    )  # fmt: skip
    for maps in found:
        sequence = model.generate(torch.tensor([maps.source.ids]), **settings, **forced)[0].tolist()
        ids = sequence[1 : sequence.index(END, 1) + 1] if END in sequence[1:] else [*sequence[1:], END]
        assert maps.target.ids == ids
        assert target_tag not in maps.target.text
        assert all(
            word is None for word, token in zip(maps.target.word_of, maps.target.ids, strict=True) if token == tag
        )
        whole = teacher_forced(model, maps, [sequence[0], *ids])
        np.testing.assert_allclose(maps.weights, whole[:, :, : len(ids)], atol=1e-5)


def test_the_tag_is_in_no_link(tmp_path: Path) -> None:
    tokenizer = nllb_tokenizer()
    model = model_of("nllb", tokenizer)
    choice = dict(source_language="eng_Latn", target_language="deu_Latn")
    for subwords in ("matrix", "links"):
        for links, words in zip(
            align(model, tokenizer, SOURCES, TARGETS, subwords=subwords, **choice), (3, 2), strict=True
        ):
            assert links
            assert all(i < words for i, _ in links)


def test_opus_models_read_the_target_language_in_the_source(tmp_path: Path) -> None:
    tokenizer = marian_tokenizer(tmp_path, ">>deu<<", ">>fra<<")
    pad = tokenizer.pad_token_id
    config = MarianConfig(
        vocab_size=vocabulary_size(tokenizer), d_model=18, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=10,
        encoder_attention_heads=3, decoder_attention_heads=3, decoder_ffn_dim=14, pad_token_id=pad, eos_token_id=0,
        decoder_start_token_id=pad, forced_eos_token_id=None,
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    for maps in extract(model, tokenizer, SOURCES, TARGETS, target_language="deu"):
        assert maps.source_tokens[0] == ">>deu<<"
        assert maps.source.roles[0] == "tag"
        assert ">>deu<<" not in maps.source.text
        assert maps.source.word_of[1] == 0
        assert maps.source.spans[1] is not None
        assert maps.source.spans[1][0] == 0
        assert ">>deu<<" not in maps.target_tokens
    by_prefix = extract(model, tokenizer, SOURCES, TARGETS, source_prefix=">>deu<< ")
    for one, other in zip(by_prefix, extract(model, tokenizer, SOURCES, TARGETS, target_language="deu"), strict=True):
        assert one.source == other.source
        np.testing.assert_array_equal(one.weights, other.weights)
    with pytest.raises(ValueError, match="target_language is 'ita', but MarianTokenizer has no token for it"):
        extract(model, tokenizer, SOURCES, TARGETS, target_language="ita")


def test_a_language_that_is_missing_or_unknown_is_refused(tmp_path: Path) -> None:
    for case in CASES:
        tokenizer = tokenizer_of(case, tmp_path)
        model = model_of(case, tokenizer)
        with pytest.raises(ValueError, match=r"has no tgt_lang.*give target_language"):
            extract(model, tokenizer, SOURCES, TARGETS)
        for name in ("source_language", "target_language"):
            with pytest.raises(ValueError, match=f"{name} is 'klingon', which .* does not know; it knows "):
                extract(model, tokenizer, SOURCES, TARGETS, **{name: "klingon"})
    with pytest.raises(ValueError, match="has no src_lang; if the model reads a language tag, put it into source_pr"):
        extract(model, subword_tokenizer(), SOURCES, TARGETS, source_language="en")


@pytest.mark.parametrize("case", CASES)
def test_without_a_target_language_the_models_own_counts(case: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(case, tmp_path)
    model, (_, target_language, _, target_tag) = model_of(case, tokenizer), CASES[case]
    tag = tokenizer.convert_tokens_to_ids(target_tag)
    if case == "mbart":
        model.config.decoder_start_token_id = tag
    else:
        model.generation_config.forced_bos_token_id = tag
    assert set_languages(model, tokenizer).tokenizer.tgt_lang == target_language
    (maps,) = extract(model, tokenizer, SOURCES[:1], TARGETS[:1])
    assert tag in maps.target.ids


def test_a_first_token_that_the_model_is_made_to_write_is_fed() -> None:
    plain = subword_tokenizer()
    model = model_of("nllb", plain)
    model.generation_config.forced_bos_token_id = 40
    (maps,) = extract(model, plain, ["the cats"], ["love"])
    assert maps.target.ids[0] == 40
    assert maps.target.word_of[0] is None
    assert maps.target.words == ["love"]
    # BART's tokenizers write it themselves.
    model.generation_config.forced_bos_token_id = maps.target.ids[1]
    (maps,) = extract(model, plain, ["the cats"], ["love"])
    assert maps.target.ids[0] != maps.target.ids[1]


@pytest.mark.parametrize("case", ["nllb", "mbart50", "m2m_100"])
def test_the_users_tokenizer_is_not_touched(case: str, tmp_path: Path) -> None:
    """A thread that tokenises sources never meets the other thread's target mode or languages."""
    source_language, target_language, _, _ = CASES[case]
    tokenizer = tokenizer_of(case, tmp_path, src_lang=target_language, tgt_lang=source_language)
    model = model_of(case, tokenizer)
    alone = tokenizer("the cats")["input_ids"]
    stop = threading.Event()
    wrong: list[Any] = []

    def tokenise() -> None:
        while not stop.is_set():
            ids = tokenizer("the cats")["input_ids"]
            if ids != alone:
                wrong.append(ids)

    thread = threading.Thread(target=tokenise)
    thread.start()
    for _ in range(4):
        list(extract(model, tokenizer, SOURCES, TARGETS, source_language=source_language,
                     target_language=target_language))  # fmt: skip
    stop.set()
    thread.join()
    assert wrong == []
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == (target_language, source_language)
    assert tokenizer("the cats")["input_ids"] == alone
