"""The same ground for every test: no network, one thread, a fixed seed."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by huggingface_hub when it is imported
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "Agg")

import random

import numpy
import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> int:
    """Seed Python, numpy and torch before each test, so that no result depends on the order of tests."""
    value = 20240607
    random.seed(value)
    numpy.random.seed(value % 2**32)
    torch.manual_seed(value)
    return value
