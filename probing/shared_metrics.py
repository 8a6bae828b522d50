"""Measures of this package in the form of Hugging Face's `evaluate`, to load offline or to share as a Space."""

from pathlib import Path


def aer_module_path() -> Path:
    """Return the folder of the alignment error rate: `evaluate.load(str(aer_module_path()))`.

    Its files are a whole metric Space. They compute by themselves, without this package, what `score_links` computes.
    """
    return Path(__file__).parent / "metric_modules" / "aer"
