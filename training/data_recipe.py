"""What a recipe's `data` section may hold: where the sentence pairs lie, how they are cleaned, mixed and read."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

from hf_seq2seq_attn.text_files import InputError

Column: TypeAlias = int | str
"""A column by number, from 0, or by name; `a.b` is field b of field a."""

TABLE_SUFFIXES = (".tsv", ".jsonl", ".parquet")


@dataclass
class CorpusFiles:
    """Text files, plain or `.gz`, that belong together line by line; paths are relative to where the command runs."""

    source: str
    target: str
    links: str | None = None
    """Word links, source first: for guidance (train) or for scoring (dev, test). Any format of `probing.FORMATS`."""
    links_base: int | None = None
    """What the links count words from, 0 or 1. None = found from the file."""
    weight: float = 1.0
    """How often each pair is drawn in one epoch: 3 = three times; 0.5 = half of the pairs once, chosen by the seed and
    the same in every epoch. To see every pair, give the other corpora more instead of this one less."""


@dataclass
class CorpusTable:
    """One file with a pair in each line or row: `.tsv`, `.jsonl` (both also `.gz`) or `.parquet`.

    A TSV has no quoting: a tab always separates. Named columns stand in its first line, numbered ones need none.
    Without `source_column` and `target_column` those are 0 and 1 in a TSV, else `source` and `target`.
    """

    file: str
    source_column: Column | None = None
    target_column: Column | None = None
    links_column: Column | None = None
    """Holds Pharaoh links, e.g. `0-0 1p2`."""
    links_base: int | None = None
    """What the links count words from, 0 or 1. None = 0."""
    weight: float = 1.0
    """As in `CorpusFiles`."""


@dataclass
class CorpusDataset:
    """A data set of the `datasets` library: an id of the Hub, a folder of data files, or one of `save_to_disk`."""

    dataset: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    source_column: Column | None = None
    """None = `source`; for rows like {"translation": {"de": ..., "en": ...}} write `translation.de`."""
    target_column: Column | None = None
    links_column: Column | None = None
    links_base: int | None = None
    weight: float = 1.0
    """As in `CorpusFiles`."""


Corpus: TypeAlias = CorpusFiles | CorpusTable | CorpusDataset


@dataclass
class CleaningRecipe:
    """Rules for training pairs, all off. A pair is left out and counted by the first rule, in this order, it breaks.

    Pairs with a blank side are always left out, and before them all. Dev and test are never cleaned.
    """

    drop_copies: bool = False
    """Both sides are the same words."""
    max_words: int | None = None
    """Whitespace words of the longer side."""
    max_ratio: float | None = None
    """Words of the longer side to words of the shorter one."""
    drop_duplicates: bool = False
    """Its corpus already had the very same pair. Takes about 100 bytes of memory a pair, in each process."""


@dataclass
class DataRecipe:
    train: Corpus | list[Corpus]
    """One corpus, or several that are mixed by their weights."""
    dev: Corpus | None = None
    test: Corpus | None = None
    source_language: str | None = None
    target_language: str | None = None
    """Language codes for the card, e.g. `grc` and `en`."""
    attribution: str | None = None
    """Where the texts come from and under which terms, for the card."""
    max_source_length: int = 128
    max_target_length: int = 128
    """In sub-words, the end token included. Longer training pairs are left out and counted."""
    cleaning: CleaningRecipe = field(default_factory=CleaningRecipe)
    tokenizer_sample: int | None = None
    """Training pairs, drawn at random, that the tokenizer learns from. None = all; of a stream 100,000."""
    cache: bool = True
    """Keep tokenised corpora on disk and use them again. (A stream is never kept.)"""
    cache_dir: str | None = None
    """Where; None = the cache folder of `datasets`."""
    streaming: bool = False
    """Read, clean and tokenise the training pairs while training, for what does not fit in memory."""
    stream_window: int = 10_000
    """Pairs of a stream held in memory at once, in each process: within them it is shuffled and grouped by length."""


def corpora_of(data: DataRecipe) -> list[Corpus]:
    """Return the training corpora."""
    return data.train if isinstance(data.train, list) else [data.train]


def has_links(corpus: Corpus) -> bool:
    """Tell whether a corpus names word links."""
    return (corpus.links if isinstance(corpus, CorpusFiles) else corpus.links_column) is not None


def local_files(corpus: Corpus) -> list[Path]:
    """Return the files that a corpus names."""
    if isinstance(corpus, CorpusFiles):
        return [Path(path) for path in (corpus.source, corpus.target, corpus.links) if path]
    return [Path(corpus.file)] if isinstance(corpus, CorpusTable) else []


def name_of(corpus: Corpus) -> str:
    """Return a corpus's name for messages and the metrics file."""
    if isinstance(corpus, CorpusFiles):
        return corpus.source
    if isinstance(corpus, CorpusTable):
        return corpus.file
    return ":".join(part for part in (corpus.dataset, corpus.config, corpus.split) if part)


def first_line_of(corpus: Corpus) -> int:
    """Return the line or row of the first pair, from 1: in a TSV with named columns it is the second."""
    if not isinstance(corpus, CorpusTable) or table_suffix(corpus.file) != ".tsv":
        return 1
    columns = (corpus.source_column, corpus.target_column, corpus.links_column)
    return 2 if any(isinstance(column, str) for column in columns) else 1


def is_local(corpus: Corpus) -> bool:
    """Tell whether a corpus lies on this machine: files, or a folder."""
    return not isinstance(corpus, CorpusDataset) or Path(corpus.dataset).is_dir()


def choose_corpus_kind(given: Mapping[str, Any]) -> type[Corpus] | None:
    """Return which kind of corpus the fields of a recipe mean, by the one that says where it lies; None = unclear."""
    named = [kind for kind in (CorpusFiles, CorpusTable, CorpusDataset) if fields(kind)[0].name in given]
    return named[0] if len(named) == 1 else None


def table_suffix(file: str) -> str | None:
    """Return which of TABLE_SUFFIXES a file has, `.gz` taken off; None if it has another."""
    name = file.lower()
    return next((suffix for suffix in TABLE_SUFFIXES if name.removesuffix(".gz").endswith(suffix)), None)


def check_data(data: DataRecipe, training: Mapping[str, Any], where: Callable[[tuple[str, ...]], str]) -> None:
    """Raise an InputError for values that cannot be or clash; `where` tells the place of a field in the recipe."""

    def refuse(keys: tuple[str, ...], remedy: str) -> InputError:
        return InputError(f"{where(('data', *keys))}: data.{'.'.join(keys)}{remedy}")

    parts: list[tuple[tuple[str, ...], Corpus]] = []
    if isinstance(data.train, list):
        parts = [(("train", str(number)), corpus) for number, corpus in enumerate(data.train)]
        if not parts:
            raise refuse(("train",), " is an empty list; name a corpus")
    else:
        parts.append((("train",), data.train))
    parts += [((name,), corpus) for name, corpus in (("dev", data.dev), ("test", data.test)) if corpus is not None]
    for keys, corpus in parts:
        _check_corpus(corpus, keys, refuse)

    positive = {"max_source_length": data.max_source_length, "max_target_length": data.max_target_length}
    positive |= {"stream_window": data.stream_window, "tokenizer_sample": data.tokenizer_sample or 1}
    for name, value in positive.items():
        if value < 1 or (name == "tokenizer_sample" and data.tokenizer_sample == 0):
            raise refuse((name,), f"={getattr(data, name)}: must be at least 1")
    if data.cleaning.max_words is not None and data.cleaning.max_words < 1:
        raise refuse(("cleaning", "max_words"), f"={data.cleaning.max_words}: must be at least 1")
    if data.cleaning.max_ratio is not None and not 1 <= data.cleaning.max_ratio < math.inf:
        raise refuse(("cleaning", "max_ratio"), f"={data.cleaning.max_ratio:g}: must be at least 1, e.g. 3")
    if data.streaming:
        _check_streaming(data, training, refuse)


_Refuse: TypeAlias = Callable[[tuple[str, ...], str], InputError]


def _check_corpus(corpus: Corpus, keys: tuple[str, ...], refuse: _Refuse) -> None:
    if not 0 < corpus.weight < math.inf:
        raise refuse((*keys, "weight"), f"={corpus.weight:g}: must be above 0; take the corpus out instead")
    if corpus.weight != 1 and keys[0] != "train":
        raise refuse((*keys, "weight"), f"={corpus.weight:g}: only training corpora are weighted; leave it out")
    if corpus.links_base not in (None, 0, 1):
        raise refuse((*keys, "links_base"), f"={corpus.links_base}: choose 0 or 1")
    if corpus.links_base is not None and not has_links(corpus):
        raise refuse((*keys, "links_base"), f"={corpus.links_base}: there are no links; leave it out")
    if isinstance(corpus, CorpusTable):
        if table_suffix(corpus.file) is None:
            known = ", ".join(TABLE_SUFFIXES)
            raise refuse((*keys, "file"), f"={corpus.file!r}: its format is told by its ending; it must be {known}")
        if corpus.file.lower().endswith(".parquet.gz"):
            raise refuse((*keys, "file"), f"={corpus.file!r}: a Parquet file is compressed inside; take .gz off")
    if not isinstance(corpus, CorpusFiles):
        for name in ("source_column", "target_column", "links_column"):
            column = getattr(corpus, name)
            by_number = isinstance(corpus, CorpusTable) and table_suffix(corpus.file) == ".tsv"
            if isinstance(column, int) and (column < 0 or not by_number):
                remedy = "count from 0" if by_number else "only a TSV has numbered columns; give its name"
                raise refuse((*keys, name), f"={column}: {remedy}")
        columns = [c for c in (corpus.source_column, corpus.target_column, corpus.links_column) if c is not None]
        if len({type(column) for column in columns}) > 1:
            raise refuse(keys, ": columns are given by number and by name; use one of both")


def _check_streaming(data: DataRecipe, training: Mapping[str, Any], refuse: _Refuse) -> None:
    if (training.get("max_steps") or 0) < 1:
        raise refuse(("streaming",), " needs training.max_steps: a stream has no end; set it to 1 or more")
    accelerator = training.get("accelerator_config")
    if isinstance(accelerator, str):
        raise refuse(
            ("streaming",), f": write the fields of training.accelerator_config={accelerator!r} into the recipe"
        )
    if isinstance(accelerator, Mapping) and (accelerator.get("split_batches") or accelerator.get("dispatch_batches")):
        raise refuse(
            ("streaming",),
            ": each process reads its own share; take split_batches and dispatch_batches out of "
            "training.accelerator_config",
        )
    known = ("group_by_length", "random", "sequential")
    strategy = training.get("train_sampling_strategy", known[0])
    if strategy not in known:
        raise refuse(
            ("streaming",), f": training.train_sampling_strategy={strategy!r} needs all pairs; use {', '.join(known)}"
        )
    if training.get("ignore_data_skip"):
        raise refuse(
            ("streaming",), ": training.ignore_data_skip would read the same pairs again after a restart; leave it out"
        )
    if isinstance(data.train, list) and not all(is_local(corpus) for corpus in data.train):
        raise refuse(
            ("streaming",),
            ": to mix several corpora their sizes must be known, which that of a `dataset` of the Hub is not; download "
            "it into a folder, or set data.streaming=false",
        )
