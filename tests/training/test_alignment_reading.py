"""Where an unguided model's alignment is read: the planted head is found, without gold, and saved with the model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_heads import lookup_model
from probes import word_tokenizer

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.probing import CHOICE_FILE, align, saved_choice
from hf_seq2seq_attn.training import alignment_reading
from hf_seq2seq_attn.training.alignment_reading import FEWEST, choose_reading, is_unread
from hf_seq2seq_attn.training.data import ParallelCorpus
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.train import train


def permuted(count: int, seed: int = 0) -> ParallelCorpus:
    """Return pairs whose targets hold the source's words in another order."""
    generator = np.random.default_rng(seed)
    sources, targets = [], []
    for _ in range(count):
        words = [f"w{n}" for n in 4 + generator.permutation(19)[: generator.integers(4, 9)]]
        sources.append(words)
        targets.append([words[place] for place in generator.permutation(len(words))])
    return ParallelCorpus(sources, targets)


@pytest.mark.parametrize(("layer", "head"), [(0, 2), (1, 0)])
def test_the_head_that_holds_the_alignment_is_found_and_saved(tmp_path: Path, layer: int, head: int) -> None:
    model, tokenizer = lookup_model(layer, head), word_tokenizer()
    model.save_pretrained(tmp_path)
    record = choose_reading(tmp_path, model, tokenizer, permuted(FEWEST), permuted(150, seed=1))
    assert record is not None
    # The decoder looks up the word that it reads; the default would be all heads of the last layer.
    assert (record["heads"], record["align_with"], record["pairs"]) == ([[layer, head]], "input", FEWEST)
    assert record["agreement"] > 0.97
    loaded = Seq2SeqAttnForConditionalGeneration.from_pretrained(tmp_path)
    for each in (model, loaded):
        choice = saved_choice(each)
        assert choice is not None
        assert (choice.heads, choice.align_with) == (((layer, head),), "input")
        assert align(each, tokenizer, ["w4 w9 w7"], ["w7 w4 w9"]) == [frozenset({(2, 0), (0, 1), (1, 2)})]


def test_a_few_pairs_decide_nothing(tmp_path: Path) -> None:
    model, tokenizer = lookup_model(1, 0), word_tokenizer()
    model.save_pretrained(tmp_path)
    for shown, learnt in ((FEWEST - 1, 150), (150, FEWEST - 1)):
        assert choose_reading(tmp_path, model, tokenizer, permuted(shown), permuted(learnt)) is None
    assert not (tmp_path / CHOICE_FILE).exists()


def test_pairs_that_cannot_be_read_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = lookup_model(1, 0), word_tokenizer()
    model.save_pretrained(tmp_path)
    shown = permuted(FEWEST + 3)
    shown.sources[0], shown.targets[1] = [], []
    monkeypatch.setattr(alignment_reading, "LONGEST", 10)
    shown.sources[5] = ["w4"] * 11
    record = choose_reading(tmp_path, model, tokenizer, shown, permuted(150, seed=1))
    assert record is not None
    assert record["pairs"] == FEWEST
    # One of more tokens than the model has positions.
    model.config.position_embedding_type, model.config.max_position_embeddings = "learned", 9
    shown.sources[7] = ["w4"] * 9
    assert choose_reading(tmp_path, model, tokenizer, shown, permuted(150, seed=1)) is None


@pytest.mark.parametrize("said", [{"alignment_rows": "input"}, {"alignment_layer": 0}, {"alignment_heads": [0]}])
def test_what_the_config_says_is_left_alone(said: dict[str, Any]) -> None:
    assert is_unread(Seq2SeqAttnConfig())
    assert not is_unread(Seq2SeqAttnConfig(**said))
    assert not is_unread(Seq2SeqAttnConfig(encoder_type="gru", decoder_type="gru", cross_attention_type="none"))


def test_a_run_says_where_its_alignment_is_read(toy_recipe_file: Callable[..., list[str]], tmp_path: Path) -> None:
    path, *given = toy_recipe_file(train=FEWEST, dev=FEWEST, links=("train", "dev"))
    result = train(load_recipe(path, given), tmp_path / "run", progress=False)
    reading = result.metrics["alignment_reading"]
    choice, in_memory = saved_choice(tmp_path / "run"), saved_choice(result.model)
    assert choice is not None
    assert choice == in_memory
    assert [list(head) for head in choice.heads] == reading["heads"]
    assert result.metrics["dev"]["align_with"] == reading["align_with"]
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert f"{reading['align_with']} rows: of all heads" in card
    assert f"= {reading['agreement']:.3f} over 100 pairs" in card


def test_a_guided_run_is_read_where_it_was_guided(toy_recipe_file: Callable[..., list[str]], tmp_path: Path) -> None:
    path, *given = toy_recipe_file("alignment={}", train=FEWEST, links=("train",))
    metrics = train(load_recipe(path, given), tmp_path / "run", progress=False).metrics
    assert "alignment_reading" not in metrics
    assert not (tmp_path / "run" / CHOICE_FILE).exists()
