"""A model with one tokenizer for each side: every id is read and written with that of its own side."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_seq2seq_attn.probing import SentenceError, align, extract, walk_through
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.tokenizer_pair import TokenizerPair, sides
from hf_seq2seq_attn.training.collation import Seq2SeqCollator
from hf_seq2seq_attn.training.recipe import Recipe, load_recipe
from hf_seq2seq_attn.training.tokenization import train_tokenizer
from hf_seq2seq_attn.training.train import TrainResult, train
from hf_seq2seq_attn.translation import load_seq2seq, translate, translate_file

RECIPE = """\
name: two
data: {train: {source: '', target: ''}, source_language: la, target_language: LA}
tokenizer: {kind: bpe, vocab_size: 60, separate: true, target_vocab_size: 26}
model: {encoder_type: gru, decoder_type: gru, cross_attention_type: additive, encoder_layers: 1, decoder_layers: 1,
  d_model: 32, dropout: 0.0, cross_attention_heads: 2, init_std: 0.3}
training: {max_steps: 150, per_device_train_batch_size: 16, learning_rate: 2e-2, logging_steps: 30, seed: 7,
  eval_strategy: steps, eval_steps: 75, save_strategy: steps, save_steps: 75, predict_with_generate: true}
alignment: {weight: 3, rows: input}
"""


@pytest.fixture(scope="module")
def corpus(
    tmp_path_factory: pytest.TempPathFactory, reversed_pairs: Callable[..., list[tuple[list[str], list[str]]]]
) -> Path:
    """Write a recipe and the toy corpus with its links: the target is the source reversed and in capitals."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "two.yaml").write_text(RECIPE)
    for seed, (part, count) in enumerate((("train", 120), ("dev", 11))):
        pairs = reversed_pairs(count, seed)
        columns = {
            "source": [" ".join(source) for source, _ in pairs],
            "target": [" ".join(target) for _, target in pairs],
            "links": [" ".join(f"{i}-{len(s) - 1 - i}" for i in range(len(s))) for s, _ in pairs],
        }
        for column, lines in columns.items():
            (folder / f"{part}.{column}").write_text("".join(line + "\n" for line in lines))
    return folder


def recipe(corpus: Path, *changes: str) -> Recipe:
    names = [f"{part}.{column}" for part in ("train", "dev") for column in ("source", "target", "links")]
    return load_recipe(corpus / "two.yaml", [*(f"data.{name}={corpus / name}" for name in names), *changes])


@pytest.fixture(scope="module")
def result(corpus: Path) -> TrainResult:
    return train(recipe(corpus), corpus / "run", progress=False)


@pytest.fixture
def copied(result: TrainResult, tmp_path: Path) -> Path:
    return Path(shutil.copytree(result.run_dir, tmp_path / "copied"))


def test_from_corpus_to_translations_and_links(
    result: TrainResult, corpus: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder = result.run_dir
    source = AutoTokenizer.from_pretrained(folder)
    target = AutoTokenizer.from_pretrained(folder, subfolder="target_tokenizer")
    config = AutoModelForSeq2SeqLM.from_pretrained(folder).config
    assert (config.vocab_size, config.decoder_vocab_size) == (len(source), len(target))
    assert len(source) > len(target) == 26
    # The same id means one thing here and another there.
    clashing = [i for i in range(4, 26) if source.convert_ids_to_tokens(i) != target.convert_ids_to_tokens(i)]
    assert len(clashing) >= 21

    model, tokenizer = load_seq2seq(folder)
    assert isinstance(tokenizer, TokenizerPair)
    lines = (corpus / "dev.source").read_text().splitlines()
    references = (corpus / "dev.target").read_text().splitlines()
    found = translate(model, tokenizer, lines)
    assert sum(a == b for a, b in zip(found, references, strict=True)) >= 9
    assert "cut off" not in caplog.text
    assert result.metrics["dev"]["chrf"] > 90
    assert result.metrics["dev"]["aer"] < 0.1
    assert result.metrics["data"]["train"]["target_unknown"] == 0

    links = align(model, tokenizer, lines, references)
    assert links == align(result.model, TokenizerPair(source, target), lines, references)
    translate_file(folder, corpus / "dev.source", align=align)
    printed = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [text for text, _ in printed] == found
    for line, (text, pairs) in zip(lines, printed, strict=True):
        ends = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
        assert all(i < len(line.split()) and j < len(text.split()) for i, j in ends) and ends

    generated = next(extract(model, tokenizer, ["ab cd ef"]))
    assert "".join(generated.source_words).islower() and "".join(generated.target_words).isupper()
    walk = walk_through(model, tokenizer, "ab cd ef", "EF CD AB", row=1)
    assert walk.read[0] == "<s>" and walk.read[1].strip("▁").isupper()


def test_the_card_says_how_to_use_both(result: TrainResult, monkeypatch: pytest.MonkeyPatch) -> None:
    card = (result.run_dir / "README.md").read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in card.split("```python\n")[1:]]
    monkeypatch.chdir(result.run_dir)
    names: dict[str, Any] = {"print": (shown := []).append}
    for block in blocks:
        exec(block, names)
    translations, links = shown
    assert translations[0].isupper()
    assert all(0 <= i < len(names["source"].split()) for i, _ in links[0])


def test_a_run_can_be_continued(result: TrainResult, corpus: Path, tmp_path: Path) -> None:
    changes = ["tokenizer=null", f"model={{init_from: {result.run_dir}}}", "training.max_steps=0", "alignment=null"]
    again = train(recipe(corpus, *changes), tmp_path / "again", progress=False)
    assert isinstance(again.tokenizer, TokenizerPair)
    assert again.metrics["dev"]["chrf"] == result.metrics["dev"]["chrf"]
    for one, other in zip(sides(result.tokenizer), sides(again.tokenizer), strict=True):
        assert one.get_vocab() == other.get_vocab()


def test_ids_of_the_wrong_side_are_refused_by_name(result: TrainResult) -> None:
    source, target = sides(result.tokenizer)
    swapped = TokenizerPair(target, source)
    with pytest.raises(
        SentenceError, match=r"target sentence 1: token id \d+ is outside the model's target vocabulary"
    ):
        align(result.model, swapped, ["AB"], ["ab cd mn kl gh"])
    big = train_tokenizer(["abcdefghijklmnopqrstuvwxyz" + "abcdefghijklmnopqrstuvwxyz".upper()], vocab_size=90)
    with pytest.raises(ValueError, match=r"source sentence 1 has the token id \d+, the model a source vocabulary of"):
        translate(result.model, TokenizerPair(big, target), ["XYZ xyz"])
    collate = Seq2SeqCollator(result.tokenizer, result.model)
    fine = {"input_ids": [4, len(source) - 1, 2], "labels": [5, len(target) - 1, 2]}
    assert collate([fine])["labels"].tolist() == [fine["labels"]]
    with pytest.raises(ValueError, match=rf"labels hold the id {len(target)}, but the model's target vocabulary has"):
        collate([{**fine, "labels": [5, len(target), 2]}])
    with pytest.raises(ValueError, match=rf"input_ids hold the id {len(source)}, but the model's source vocabulary"):
        collate([{**fine, "input_ids": [len(source), 2]}])


def test_a_folder_with_one_tokenizer_of_two_is_refused(copied: Path) -> None:
    shutil.rmtree(copied / "target_tokenizer")
    with pytest.raises(InputError, match=r"target vocabulary of 26, but no target_tokenizer"):
        load_seq2seq(copied)


def test_a_tokenizer_that_is_too_big_is_refused_by_side(result: TrainResult, copied: Path) -> None:
    source, target = sides(result.tokenizer)
    TokenizerPair(source, source).save_pretrained(copied)
    with pytest.raises(InputError, match=rf"the target tokenizer has {len(source)} entries, the model {len(target)}"):
        load_seq2seq(copied)


def test_unequal_padding_is_refused() -> None:
    one, other = (train_tokenizer(["ab"], vocab_size=9) for _ in range(2))
    other.pad_token = "</s>"
    with pytest.raises(ValueError, match=r"pad_token_id is 0 in the source tokenizer and 2 in the target one"):
        TokenizerPair(one, other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["tokenizer.separate=false"], "tokenizer.target_vocab_size needs separate tokenizers"),
        (["model.share_encoder_decoder_embeddings=true"], "separate tokenizers need two tables"),
        (["tokenizer.target_vocab_size=7"], "tokenizer section of the recipe: .*must be at least 19"),
    ],
)
def test_recipes_that_clash(corpus: Path, tmp_path: Path, changes: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(recipe(corpus, *changes), tmp_path / "run", progress=False)


def test_word_level_tokenizers_say_what_they_do_not_know(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes = ["tokenizer={kind: word, vocab_size: 9, separate: true}", "training.max_steps=1", "alignment=null"]
    changes += ["training.eval_strategy=no", "training.save_strategy=no"]
    result = train(recipe(corpus, *changes), tmp_path / "run", progress=False)
    counts = json.loads((result.run_dir / "metrics.json").read_text())["data"]["train"]
    # 9 entries: four special ones, the mark and four of seven words.
    words = (corpus / "train.source").read_text().split()
    known = set(sides(result.tokenizer)[0].get_vocab())
    assert counts["source_unknown"] == sum(f"▁{word}" not in known for word in words) > 0
    assert f"unknown to the tokenizer: {counts['source_unknown']} of" in caplog.text
    assert f"did not know {counts['source_unknown']:,} of" in (result.run_dir / "README.md").read_text()
