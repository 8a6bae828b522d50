"""The same ground for every test: no network, one thread, a fixed seed."""

import atexit
import os
import shutil
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by huggingface_hub when it is imported
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("HF_DATASETS_CACHE", tempfile.mkdtemp(prefix="seq2seq-attn-tests-"))  # read by datasets, too

import random

import numpy
import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

# A machine that others use must not fail a test by its clock.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

if "seq2seq-attn-tests-" in os.environ["HF_DATASETS_CACHE"]:
    atexit.register(shutil.rmtree, os.environ["HF_DATASETS_CACHE"], ignore_errors=True)


@pytest.fixture(autouse=True)
def seed() -> int:
    """Seed Python, numpy and torch before each test, so that no result depends on the order of tests."""
    value = 20240607
    random.seed(value)
    numpy.random.seed(value % 2**32)
    torch.manual_seed(value)
    return value
