"""Keep tokenised corpora on disk, so that the next run with the same text and tokenizer need not make them again."""

import dataclasses
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import datasets
import tokenizers
import transformers

from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer, sides

from .data import EncodingCounts, ParallelCorpus, encode_corpus

logger = logging.getLogger(__name__)

# To be raised when the rows of `encode_corpus` change.
_FORMAT = 1
_ENTRY_FILE = "entry.json"


def cache_folder(cache_dir: str | None) -> Path:
    """Return where tokenised corpora are kept: in the recipe's folder, or in the cache folder of `datasets`."""
    return Path(cache_dir or datasets.config.HF_DATASETS_CACHE) / "seq2seq_attn_tokenised"


def encode_cached(
    corpus: ParallelCorpus,
    tokenizer: AnyTokenizer,
    max_source_length: int,
    max_target_length: int,
    folder: Path,
) -> tuple[datasets.Dataset, EncodingCounts, bool]:
    """Return what `encode_corpus` gives, from the cache where it is there, and whether it was.

    An entry is known by the words and links of the corpus as given (so after cleaning, whatever file they came from),
    the tokenizer, and the limits. It is written whole or not at all, so that several processes may make one at once;
    one that was damaged later is noticed by its digests and made again. Where the folder cannot be written, nothing is
    kept, with a warning.

    Raises:
        ValueError: as in `encode_corpus`.
    """
    entry = folder / cache_key(corpus, tokenizer, max_source_length, max_target_length)
    found = _read(entry)
    if found is not None:
        logger.info("tokenised pairs read from %s", entry)
        return (*found, True)
    dataset, counts = encode_corpus(corpus, tokenizer, max_source_length, max_target_length)
    try:
        _write(entry, dataset, counts)
    except OSError as error:
        logger.warning(
            "tokenised pairs cannot be kept in %s (%s); set data.cache_dir or data.cache=false", entry, error
        )
        return dataset, counts, False
    logger.info("tokenised pairs kept in %s", entry)
    # From the disk it takes no memory.
    kept = _read(entry)
    return (dataset, counts, False) if kept is None else (*kept, False)


def cache_key(corpus: ParallelCorpus, tokenizer: AnyTokenizer, max_source_length: int, max_target_length: int) -> str:
    """Return a digest of all that decides what `encode_corpus` gives."""
    digest = blake2b(digest_size=20)
    versions = (transformers.__version__, tokenizers.__version__)
    digest.update(repr((_FORMAT, versions, max_source_length, max_target_length)).encode())
    for side in sides(tokenizer):
        names = ("unk_token_id", "src_lang", "tgt_lang", "split_special_tokens", "model_max_length")
        digest.update(repr([type(side).__name__, *(getattr(side, name, None) for name in names)]).encode())
        digest.update(_contents(side))
    digest.update(b"links" if corpus.gold is not None else b"no links")
    for index in range(len(corpus)):
        # Words hold no white space, so that this text says exactly where each ends.
        text = " ".join(corpus.sources[index]) + "\n" + " ".join(corpus.targets[index]) + "\n"
        if corpus.gold is not None:
            text += " ".join(f"{i}-{j}" for i, j in sorted(corpus.gold[index].possible))
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()


def _contents(tokenizer: Any) -> bytes:
    """Return the rules of a tokenizer; of one in Python (Marian, M2M100) the bytes of its files, and added tokens."""
    if tokenizer.is_fast:
        return bytes(tokenizer.backend_tokenizer.to_str().encode())
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_vocabulary(folder)
        added = repr(sorted(tokenizer.get_added_vocab().items())).encode()
        files = sorted(Path(folder).iterdir())
        return added + b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in files)


def _read(entry: Path) -> tuple[datasets.Dataset, EncodingCounts] | None:
    """Return an entry; None if there is none or it is damaged."""
    if not entry.is_dir():
        return None
    try:
        record = json.loads((entry / _ENTRY_FILE).read_text(encoding="utf-8"))
        if record["files"] != _digests(entry / "data"):
            raise ValueError("its files are not those that were written")
        return datasets.load_from_disk(entry / "data"), EncodingCounts(**record["counts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("%s is damaged (%s): made again", entry, error)
        return None


def _write(entry: Path, dataset: datasets.Dataset, counts: EncodingCounts) -> None:
    entry.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{entry.name[:8]}-", dir=entry.parent))
    try:
        with _no_progress_bars():
            dataset.save_to_disk(made / "data")
        record = {"counts": dataclasses.asdict(counts), "files": _digests(made / "data")}
        (made / _ENTRY_FILE).write_text(json.dumps(record), encoding="utf-8")
        if entry.exists():
            # Damaged, or just made by a faster process. What anybody has open of it stays readable.
            os.rename(entry, made / "old")
        try:
            os.rename(made, entry)
        except OSError:
            # A faster process came between; its entry is as good.
            if not entry.is_dir():
                raise
        shutil.rmtree(entry / "old", ignore_errors=True)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _digests(folder: Path) -> dict[str, str]:
    digests = {}
    for path in sorted(folder.iterdir()):
        digest = blake2b(digest_size=16)
        with path.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
        digests[path.name] = digest.hexdigest()
    return digests


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()
