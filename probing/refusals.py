"""Turn what the room refuses into bad input of a command: a sentence by its file and line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError

from .extraction import SentenceError


@contextmanager
def refused(source: Path | None = None, target: Path | None = None, first: int = 1) -> Iterator[None]:
    """Raise an InputError for what the block refuses.

    Args:
        source, target: the files that its sentences come from; None = it reads none.
        first: the line that its first sentence stands in, from 1.
    """
    try:
        yield
    except SentenceError as error:
        path = source if error.side == "source" else target
        if path is None:
            raise InputError(str(error)) from error
        raise InputError(f"{path}:{first - 1 + error.number}: {error.what}") from error
    except UnusableError as error:
        raise InputError(str(error)) from error
