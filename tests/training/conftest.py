"""A toy language pair with known links: the target is the source reversed and in capitals."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from hf_seq2seq_attn.training.tokenization import train_tokenizer

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
