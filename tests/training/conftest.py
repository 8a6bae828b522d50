"""A toy language pair with known links: the target is the source reversed and in capitals."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Seq2SeqTrainingArguments

from hf_seq2seq_attn.probing import Gold
from hf_seq2seq_attn.training.collation import Seq2SeqCollator
from hf_seq2seq_attn.training.data import ParallelCorpus, encode_corpus
from hf_seq2seq_attn.training.guided_attention import GuidedAttention
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.tokenization import train_tokenizer
from hf_seq2seq_attn.training.train import train
from hf_seq2seq_attn.training.trainer import Seq2SeqAttnTrainer

WORDS = ("ab", "cd", "ef", "gh", "ij", "kl", "mn")


Pairs = list[tuple[list[str], list[str]]]


@pytest.fixture(scope="session")
def reversed_pairs() -> Callable[..., Pairs]:
    """Return a maker of sentence pairs, the same for the same seed."""
    return _reversed_pairs


def _reversed_pairs(count: int, seed: int, longest: int = 7) -> Pairs:
    draw = random.Random(seed)
    sources = [draw.choices(WORDS, k=draw.randint(3, longest)) for _ in range(count)]
    return [(source, [word.upper() for word in reversed(source)]) for source in sources]


@pytest.fixture(scope="session")
def toy_tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer([*WORDS, *(word.upper() for word in WORDS)], vocab_size=100)


@pytest.fixture
def toy_files(tmp_path: Path) -> Callable[..., list[str]]:
    """Write the parts of a toy corpus; return the recipe overrides that name its files."""

    def write(links: tuple[str, ...] = ("train", "dev"), **counts: int) -> list[str]:
        overrides = []
        for seed, (part, count) in enumerate((counts or {"train": 120, "dev": 11}).items()):
            pairs = _reversed_pairs(count, seed)
            columns = {
                "source": [" ".join(source) for source, _ in pairs],
                "target": [" ".join(target) for _, target in pairs],
                "links": [" ".join(f"{i}-{len(s) - 1 - i}" for i in range(len(s))) for s, _ in pairs],
            }
            for column, lines in columns.items():
                path = tmp_path / f"{part}.{column}"
                path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
                if column != "links" or part in links:
                    overrides.append(f"data.{part}.{column}={path}")
        return overrides

    return write


@pytest.fixture
def toy_data(reversed_pairs: Callable[..., Pairs], toy_tokenizer: PreTrainedTokenizerFast) -> Callable[[int], Dataset]:
    """Return a maker of encoded toy pairs with their links."""

    def make(count: int) -> Dataset:
        pairs = reversed_pairs(count, seed=5, longest=5)
        links = [frozenset((i, len(source) - 1 - i) for i in range(len(source))) for source, _ in pairs]
        gold = [Gold(sentence, sentence) for sentence in links]
        corpus = ParallelCorpus([source for source, _ in pairs], [target for _, target in pairs], gold)
        return encode_corpus(corpus, toy_tokenizer)[0]

    return make


@pytest.fixture
def make_trainer(
    toy_data: Callable[[int], Dataset], toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> Callable[..., Any]:
    """Return a maker of guided trainers on the toy pairs."""

    def make(
        model: PreTrainedModel,
        guidance: GuidedAttention | None = None,
        kind: Any = Seq2SeqAttnTrainer,
        **arguments: Any,
    ) -> Any:
        settings = {"max_steps": 3, "per_device_train_batch_size": 8, "logging_steps": 1, "seed": 3} | arguments
        return kind(
            model=model,
            args=Seq2SeqTrainingArguments(
                output_dir=str(tmp_path),
                use_cpu=True,
                remove_unused_columns=False,
                report_to="none",
                disable_tqdm=True,
                save_strategy="no",
                **settings,
            ),
            data_collator=Seq2SeqCollator(toy_tokenizer, model),
            train_dataset=toy_data(48),
            eval_dataset=toy_data(7),
            processing_class=toy_tokenizer,
            guidance=guidance,
        )

    return make


SMALL_RECIPE = """\
name: toy
data: {train: {source: '', target: ''}, max_target_length: 12}
tokenizer: {vocab_size: 100}
model: {encoder_type: gru, decoder_type: gru, cross_attention_type: additive, encoder_layers: 1, decoder_layers: 1,
  d_model: 16, dropout: 0.0, init_std: 0.3}
training: {max_steps: 4, per_device_train_batch_size: 8, logging_steps: 1, seed: 7}
"""


@pytest.fixture
def toy_recipe_file(toy_files: Callable[..., list[str]], tmp_path: Path) -> Callable[..., list[str]]:
    """Write a small recipe and its files; return its path and the overrides, the given ones last."""

    def write(*overrides: str, links: tuple[str, ...] = (), **counts: int) -> list[str]:
        (tmp_path / "small.yaml").write_text(SMALL_RECIPE)
        return [str(tmp_path / "small.yaml"), *toy_files(links, **(counts or {"train": 40})), *overrides]

    return write


@pytest.fixture
def train_toy(toy_recipe_file: Callable[..., list[str]], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Train by the small recipe with overrides; return the metrics, with the weights and the folder among them."""

    def start(*overrides: str, folder: str | None = None, **data: Any) -> dict[str, Any]:
        path, *given = toy_recipe_file(*overrides, **data)
        run_dir = tmp_path / (folder or f"run-{len(list(tmp_path.glob('run-*')))}")
        metrics = train(load_recipe(path, given), run_dir, progress=False).metrics
        return metrics | {"weights": load_file(run_dir / "model.safetensors"), "folder": run_dir}

    return start
