"""Continuing from models whose tokenizers are Python code, or write language tags."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from guided_toys import guided_model
from multilingual import (
    TEXT,
    m2m100_tokenizer,
    marian_tokenizer,
    mbart50_tokenizer,
    nllb_tokenizer,
    vocabulary_size,
)
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.collation import Seq2SeqCollator
from hf_seq2seq_attn.training.data import encode_corpus, read_corpus
from hf_seq2seq_attn.training.model_setup import make_model, make_tokenizer
from hf_seq2seq_attn.training.recipe import Recipe, load_recipe
from hf_seq2seq_attn.training.train import train

# Model, tokenizer, names of two languages, the tag that starts a target.
FAMILIES: dict[str, tuple[str, Callable[[Path], Any], tuple[str | None, str | None], str | None]] = {
    "nllb": ("m2m_100", lambda _: nllb_tokenizer(), ("eng_Latn", "deu_Latn"), "deu_Latn"),
    "m2m_100": ("m2m_100", m2m100_tokenizer, ("en", "de"), "__de__"),
    "mbart50": ("bart", lambda _: mbart50_tokenizer(), ("en_XX", "de_DE"), "de_DE"),
    "marian": ("marian", marian_tokenizer, (None, None), None),
}
PAIRS = [(TEXT[0], "0-0 1-1 2-2 3-3"), (TEXT[1], "0-0 1-2 4-3"), ("love the cats", "0-2 2-0")]


@pytest.fixture
def make_recipe(tmp_path: Path) -> Callable[..., Recipe]:
    def make(family: str, *overrides: str) -> Recipe:
        name, make_tokenizer_, languages, _ = FAMILIES[family]
        (tmp_path / "pieces").mkdir(exist_ok=True)
        tokenizer = make_tokenizer_(tmp_path / "pieces")
        ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
        start = tokenizer.pad_token_id if family == "marian" else tokenizer.eos_token_id
        model = guided_model(name, vocabulary_size(tokenizer), **ids, decoder_start_token_id=start)
        model.save_pretrained(tmp_path / "base")
        tokenizer.save_pretrained(tmp_path / "base")
        rows = [(text, TEXT[2], links) for text, links in PAIRS] * 4
        random.Random(1).shuffle(rows)
        for column, lines in zip(("source", "target", "links"), zip(*rows, strict=True), strict=True):
            (tmp_path / f"text.{column}").write_text("".join(line + "\n" for line in lines))
        files = {column: str(tmp_path / f"text.{column}") for column in ("source", "target", "links")}
        text = f"data: {{train: {files}, dev: {files}}}\nmodel: {{init_from: {tmp_path / 'base'}}}\n"
        text += "training: {max_steps: 12, per_device_train_batch_size: 12, learning_rate: 1e-2, logging_steps: 1}\n"
        (tmp_path / "recipe.yaml").write_text(text + "alignment: {weight: 2, rows: output}\n")
        named = zip(("source", "target"), languages, strict=True)
        given = [f"data.{side}_language={language}" for side, language in named if language]
        return load_recipe(tmp_path / "recipe.yaml", [*given, *overrides])

    return make


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_guided_and_keeps_its_languages(family: str, make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    result = train(make_recipe(family), tmp_path / "run", progress=False)
    losses = [entry["guided_loss"] for entry in result.metrics["history"] if "guided_loss" in entry]
    assert losses[-1] < losses[0]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    _, _, (source, target), tag = FAMILIES[family]
    if target is not None:
        assert (tokenizer.src_lang, tokenizer.tgt_lang) == (source, target)
        assert model.generation_config.forced_bos_token_id == tokenizer.convert_tokens_to_ids(tag)
    output = model.generate(**tokenizer("the cats", return_tensors="pt"), max_new_tokens=5)[0]
    assert tag is None or tokenizer.convert_ids_to_tokens(output)[1] == tag


@pytest.mark.parametrize("family", FAMILIES)
def test_links_fall_on_the_pieces_of_their_words(family: str, make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe(family)
    corpus = read_corpus(recipe.data.train)  # type: ignore[arg-type]
    tokenizer = make_tokenizer(recipe, corpus)
    row = encode_corpus(corpus, tokenizer)[0][0]
    sources = tokenizer.convert_ids_to_tokens(row["input_ids"])
    targets = tokenizer.convert_ids_to_tokens(row["labels"])
    assert corpus.gold is not None
    for i, j in sorted(corpus.gold[0].possible):
        at = [(s, t) for t, s in row["guide"]]
        words = {"source": corpus.sources[0][i], "target": corpus.targets[0][j]}
        mine = [
            (s, t)
            for s, t in at
            if sources[s].strip("▁") in words["source"] and targets[t].strip("▁") in words["target"]
        ]
        assert mine, (words, sources, targets)
        joined = {"source": "".join(sources[s] for s in sorted({s for s, _ in mine}))}
        joined["target"] = "".join(targets[t] for t in sorted({t for _, t in mine}))
        for side, text in joined.items():
            assert words[side] in text.replace("▁", ""), (words, joined)
    special = {position for position, token in enumerate(targets) if token in tokenizer.all_special_tokens}
    assert special and not special & {t for t, _ in row["guide"]}
    # The batch of such rows is what the model takes.
    batch = Seq2SeqCollator(tokenizer, make_model(recipe, tokenizer))([row])
    assert batch["guide"].sum() == len(row["guide"])


@pytest.mark.parametrize(
    ("family", "override", "message"),
    [
        ("nllb", "data.target_language=null", "target_language.*data.target_language"),
        ("nllb", "data.target_language=de", "'de'.*data.target_language"),
        ("m2m_100", "data.source_language=deu_Latn", "'deu_Latn'.*data.source_language"),
    ],
)
def test_a_language_that_is_missing_or_unknown_is_refused(
    family: str, override: str, message: str, make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        train(make_recipe(family, override), tmp_path / "run", progress=False)
