"""Corpora that a recipe can have made on this machine before its run: `prepare: {corpus: NAME, folder: DIR}`."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from .bible_corpus import prepare_bible_corpus
from .classroom_corpus import prepare_classroom_corpus
from .cmudict_corpus import prepare_cmudict_corpus

CORPORA: dict[str, Callable[[Path], dict[str, int]]] = {
    "bible": prepare_bible_corpus,
    "classroom": prepare_classroom_corpus,
    "cmudict": prepare_cmudict_corpus,
    "cmudict-stress": partial(prepare_cmudict_corpus, stress=True),
}
"""Name -> what writes its files into a folder, and returns the lines of each part."""


def prepare_corpus(corpus: str, folder: str | Path, files: Iterable[str | Path]) -> dict[str, Any] | None:
    """Make a corpus if one of `files` lies in `folder`; a run on other files asks for nothing.

    Args:
        corpus: a key of `CORPORA`.
        files: those that the run is going to read.

    Returns:
        For the record: the corpus and its lines in each part. None: it was not needed.

    Raises:
        InputError: it cannot be made; the message says what is missing.
    """
    folder = Path(folder)
    if not any(folder.resolve() in Path(file).resolve().parents for file in files):
        return None
    return {"corpus": corpus, "lines": CORPORA[corpus](folder)}
