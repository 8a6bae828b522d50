"""Where an unguided model's alignment is read: the planted head is found, without gold, and saved with the model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_heads import lookup_model
from probes import word_tokenizer

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.probing import CHOICE_FILE, AlignmentChoice, Links, align, save_choice, saved_choice
from hf_seq2seq_attn.training import alignment_reading
from hf_seq2seq_attn.training.alignment_reading import FEWEST, choose_reading, is_unread
from hf_seq2seq_attn.training.data import ParallelCorpus
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.train import TrainResult, train


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


def test_pairs_that_say_nothing_or_cannot_be_read_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = lookup_model(1, 0), word_tokenizer()
    model.save_pretrained(tmp_path)
    shown = permuted(FEWEST + 3)
    shown.sources[0], shown.targets[1], shown.sources[5] = [], [], ["w4"]
    train_text = permuted(150, seed=1)
    record = choose_reading(tmp_path, model, tokenizer, shown, train_text)
    assert record is not None
    assert record["pairs"] == FEWEST
    # One of more tokens than the model has positions.
    model.config.position_embedding_type, model.config.max_position_embeddings = "learned", 9
    shown.sources[7] = ["w4"] * 9
    assert choose_reading(tmp_path, model, tokenizer, shown, train_text) is None
    shown.sources[7] = shown.targets[7]
    monkeypatch.setattr(alignment_reading, "MOST_BYTES", 10_000)
    assert choose_reading(tmp_path, model, tokenizer, shown, train_text) is None


def test_pairs_are_taken_from_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first 100 pairs of the text are of other words; the aligner must see the others, too."""
    model, tokenizer = lookup_model(0, 2), word_tokenizer()
    model.save_pretrained(tmp_path)
    other = [["x", "y"]] * 100
    text = permuted(100, seed=1)
    monkeypatch.setattr(alignment_reading, "MOST_LEARNT", 100)
    monkeypatch.setattr(alignment_reading, "MOST_COMPARED", 100)
    seen = []

    def fit(learnt: Any, compared: Any) -> list[Links]:
        seen.extend(learnt)
        return [frozenset()] * len(compared)

    monkeypatch.setattr(alignment_reading, "_statistical_links", fit)
    train_text = ParallelCorpus(other + text.sources, other + text.targets)
    # Without a link nothing is chosen, and nothing is lost.
    assert choose_reading(tmp_path, model, tokenizer, text, train_text) is None
    assert sum(source == ["x", "y"] for source, _ in seen) == 50


def test_the_default_stays_where_nothing_agrees_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = lookup_model(1, 0), word_tokenizer()
    model.save_pretrained(tmp_path)
    monkeypatch.setattr(alignment_reading, "LEAST_GAIN", 1.0)
    record = choose_reading(tmp_path, model, tokenizer, permuted(FEWEST), permuted(150, seed=1))
    assert record is not None
    assert (record["heads"], record["align_with"]) == ([[1, 0], [1, 1], [1, 2]], "input")
    assert record["agreement"] == record["default_agreement"]
    assert not (tmp_path / CHOICE_FILE).exists()
    assert saved_choice(model) is None


def test_norms_of_heads_of_several_layers_are_refused_with_a_remedy(tmp_path: Path) -> None:
    model, tokenizer = lookup_model(1, 0), word_tokenizer()
    model.save_pretrained(tmp_path)
    save_choice(tmp_path, AlignmentChoice(((0, 1), (1, 0)), "input"), model)
    assert align(model, tokenizer, ["w4 w9"], ["w9 w4"])
    with pytest.raises(ValueError, match=r"saved with the model, 0\.1, 1\.0.*align_with='input'"):
        align(model, tokenizer, ["w4 w9"], ["w9 w4"], weights="norm")


@pytest.mark.parametrize("said", [{"alignment_rows": "input"}, {"alignment_layer": 0}, {"alignment_heads": [0]}])
def test_what_the_config_says_is_left_alone(said: dict[str, Any]) -> None:
    assert is_unread(Seq2SeqAttnConfig())
    assert not is_unread(Seq2SeqAttnConfig(**said))
    assert not is_unread(Seq2SeqAttnConfig(encoder_type="gru", decoder_type="gru", cross_attention_type="none"))


CONTINUED = """\
name: continued
data: {train: {source: '', target: ''}}
training: {max_steps: 2, per_device_train_batch_size: 8}
"""


@pytest.fixture
def continued(toy_files: Callable[..., list[str]], tmp_path: Path) -> Callable[..., TrainResult]:
    """Continue from a model by a recipe with overrides, on so many pairs of each part."""

    def run(name: str, base: Path, *overrides: str, **counts: int) -> TrainResult:
        (tmp_path / "continued.yaml").write_text(CONTINUED)
        given = [*toy_files(**counts), f"model.init_from={base}", *overrides]
        return train(load_recipe(tmp_path / "continued.yaml", given), tmp_path / name, progress=False)

    return run


def test_a_run_says_where_its_alignment_is_read(
    toy_recipe_file: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment_reading, "LEAST_GAIN", -1.0)
    path, *given = toy_recipe_file(train=FEWEST, dev=FEWEST, links=("train", "dev"))
    result = train(load_recipe(path, given), tmp_path / "run", progress=False)
    reading = result.metrics["alignment_reading"]
    choice, in_memory = saved_choice(tmp_path / "run"), saved_choice(result.model)
    assert choice is not None
    assert choice == in_memory
    assert [list(head) for head in choice.heads] == reading["heads"]
    assert result.metrics["dev"]["align_with"] == reading["align_with"]
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert f"head 0.0 (layer.head, from 0), {reading['align_with']} rows. There it agrees" in card
    assert f"= {reading['agreement']:.3f} over 100 pairs; " in card
    assert ("by default (layer 0, head 0, output rows)" in card) == (reading["align_with"] != "output")


def test_a_guided_run_is_read_where_it_was_guided(toy_recipe_file: Callable[..., list[str]], tmp_path: Path) -> None:
    path, *given = toy_recipe_file("alignment={}", train=FEWEST, links=("train",))
    metrics = train(load_recipe(path, given), tmp_path / "run", progress=False).metrics
    assert "alignment_reading" not in metrics
    assert not (tmp_path / "run" / CHOICE_FILE).exists()


def test_a_model_goes_on_with_its_reading_until_there_is_a_better_one(
    continued: Callable[..., TrainResult], toy_tokenizer: Any, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    sizes = {"d_model": 12, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "encoder_layers": 1, "decoder_layers": 2}
    heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 3}
    config = Seq2SeqAttnConfig(vocab_size=len(toy_tokenizer), **sizes, **heads)
    Seq2SeqAttnForConditionalGeneration(config).save_pretrained(base)
    toy_tokenizer.save_pretrained(base)
    save_choice(base, AlignmentChoice(((1, 2),), "output"))

    few = continued("few", base, train=20, dev=9)
    assert few.metrics["alignment_reading"] == {"heads": [[1, 2]], "align_with": "output"}
    assert "1.2 (layer.head, from 0), output rows, as was chosen" in (tmp_path / "few" / "README.md").read_text()
    loaded = Seq2SeqAttnForConditionalGeneration.from_pretrained(tmp_path / "few")
    for model in (few.model, loaded):
        choice = saved_choice(model)
        assert choice is not None
        assert (choice.heads, choice.align_with) == (((1, 2),), "output")
    # Without that layer the choice is of no use; the model is read by default.
    short = continued("short", base, "model.decoder_layers=1", train=20, dev=9)
    assert "alignment_reading" not in short.metrics
    assert saved_choice(short.model) is None
    many = continued("many", base, train=FEWEST, dev=FEWEST).metrics["alignment_reading"]
    assert many["pairs"] == FEWEST
    choice = saved_choice(tmp_path / "many")
    assert choice is not None
    assert [list(head) for head in choice.heads] == many["heads"]


def test_guided_heads_are_read_while_training_not_those_of_the_model_before(
    continued: Callable[..., TrainResult], toy_recipe_file: Callable[..., list[str]], tmp_path: Path
) -> None:
    path, *given = toy_recipe_file("alignment={}", links=("train", "dev"), train=40, dev=9)
    base = train(load_recipe(path, given), tmp_path / "base", progress=False)
    save_choice(tmp_path / "base", AlignmentChoice(((0, 0),), "input"), base.model)
    settings = ["alignment={}", "validation={metrics: [aer]}", "training.eval_steps=2", "training.eval_strategy=steps"]
    metrics = continued("guided", tmp_path / "base", *settings, train=40, dev=9).metrics
    validated = [entry["eval_aer"] for entry in metrics["history"] if "eval_aer" in entry]
    assert validated[0] == pytest.approx(metrics["dev"]["aer"])
    assert metrics["dev"]["align_with"] == "output"
