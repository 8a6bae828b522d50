"""Read sentence pairs one by one, with their links, from files and data sets of every kind that a recipe may name."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import datasets

from hf_seq2seq_attn.probing import BLANK_ENDS, FORMATS, AlignedPair, Gold, Link, format_of, parse_pharaoh
from hf_seq2seq_attn.probing import iterate_pairs as iterate_links
from hf_seq2seq_attn.text_files import InputError, iterate_lines

from .data_recipe import Column, Corpus, CorpusDataset, CorpusFiles, CorpusTable, name_of, table_suffix

NO_LINKS = Gold(frozenset(), frozenset())


@dataclass(frozen=True)
class Pair:
    """One sentence pair as whitespace words; a blank side has none.

    Attributes:
        links: None where the corpus has no links.
        line: its line or row in the corpus, from 1.
    """

    source: list[str]
    target: list[str]
    links: Gold | None
    line: int


def iterate_corpus(corpus: Corpus, *, streaming: bool = False, cache_dir: str | None = None) -> Iterator[Pair]:
    """Yield the pairs of a corpus in order, blank ones too, in constant memory.

    Args:
        streaming: of a `dataset`: read it over the network as it goes, instead of storing it first.
        cache_dir: where `datasets` keeps what it stores; None = its own cache folder.

    Raises:
        InputError: `FILE:LINE: what; remedy`, or `DATASET:SPLIT:ROW: ...`, at the first thing that is wrong.
    """
    if isinstance(corpus, CorpusFiles):
        return _iterate_files(corpus)
    if isinstance(corpus, CorpusDataset):
        return _iterate_rows(corpus, _dataset_rows(corpus, streaming, cache_dir))
    readers: dict[str | None, Callable[[CorpusTable], Rows]] = {
        ".tsv": _tsv_rows,
        ".jsonl": _json_rows,
        ".parquet": _parquet_rows,
    }
    return _iterate_rows(corpus, readers[table_suffix(corpus.file)](corpus))


def check_links(links: Gold, source_length: int, target_length: int, path: str | Path, line: int) -> None:
    """Raise an InputError naming `path:line` for a link that leaves a sentence of so many words."""
    for side, name, length in ((0, "source", source_length), (1, "target", target_length)):
        worst = max((link[side] for link in links.possible), default=-1)
        if worst >= length:
            raise InputError(
                f"{path}:{line}: {name} index {worst} (counted from 0), but the sentence has {length} words; check "
                "that links and text have the same tokens or, if the links count from 1, set links_base: 1"
            )


def _iterate_files(files: CorpusFiles) -> Iterator[Pair]:
    links = None if files.links is None else iterate_links(files.links, base=files.links_base)
    lines = zip_longest(iterate_lines(files.source), iterate_lines(files.target))
    for line, (source, target) in enumerate(lines, start=1):
        if source is None or target is None:
            ended, other = (files.source, files.target) if source is None else (files.target, files.source)
            raise InputError(
                f"{ended}:{line}: {line - 1} lines, but {other} has more; "
                "line N of one file must belong to line N of the other"
            )
        pair = Pair(source.split(), target.split(), None, line)
        if links is not None and files.links is not None:
            gold = _next_links(links, files.links, line)
            check_links(gold, len(pair.source), len(pair.target), files.links, line)
            pair = replace(pair, links=gold)
        yield pair
    if links is not None and next(links, None) is not None:
        raise InputError(f"{files.links}: more lines than {files.source}; line N must belong to sentence N")


def _next_links(links: Iterator[AlignedPair], path: str, line: int) -> Gold:
    pair = next(links, None)
    if pair is not None:
        return pair.gold
    if BLANK_ENDS not in FORMATS[format_of(path)].keeps:
        return NO_LINKS
    raise InputError(
        f"{path}:{line}: {line - 1} lines of links, but there are more sentences; "
        "line N of the links must belong to sentence N"
    )


# A row with the number of its line, and how a column is taken from it.
Rows = Iterator[tuple[int, Any]]


def _iterate_rows(corpus: CorpusTable | CorpusDataset, rows: Rows) -> Iterator[Pair]:
    name = name_of(corpus)
    tsv = isinstance(corpus, CorpusTable) and table_suffix(corpus.file) == ".tsv"
    source_column = corpus.source_column if corpus.source_column is not None else (0 if tsv else "source")
    target_column = corpus.target_column if corpus.target_column is not None else (1 if tsv else "target")
    known: dict[str, tuple[Link, bool]] = {}
    for line, row in rows:
        source = _text(row, source_column, "source_column", name, line).split()
        target = _text(row, target_column, "target_column", name, line).split()
        links = None
        if corpus.links_column is not None:
            text = _text(row, corpus.links_column, "links_column", name, line)
            links = parse_pharaoh(text, corpus.links_base or 0, name, line, known).gold
            check_links(links, len(source), len(target), name, line)
        yield Pair(source, target, links, line)


def _text(row: Any, column: Column, field: str, name: str, line: int) -> str:
    """Return the text in a column of a row; a null is blank."""
    value = row
    if row is None:
        return ""
    if isinstance(column, int):
        if column >= len(row):
            raise InputError(
                f"{name}:{line}: {len(row)} column(s), but {field} is {column} (counted from 0); "
                "separate columns by tabs, or choose other columns"
            )
        value = row[column]
    elif column in row:
        value = row[column]
    else:
        for part in column.split("."):
            if not isinstance(value, Mapping) or part not in value:
                has = ", ".join(_names(row)) or "none"
                raise InputError(f"{name}:{line}: no field {column!r}; there are {has}; set {field} to one of them")
            value = value[part]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{name}:{line}: field {column!r} is {value!r:.40}, not text; set {field} to a field of text")
    return value


def _names(row: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the names of all fields, inner ones with dots."""
    names = []
    for name, value in row.items():
        names += _names(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [f"{prefix}{name}"]
    return names


def _tsv_rows(table: CorpusTable) -> Rows:
    lines = enumerate(iterate_lines(table.file), start=1)
    given = (table.source_column, table.target_column, table.links_column)
    named = [column for column in given if isinstance(column, str)]
    if not named:
        for number, line in lines:
            yield number, line.split("\t") if line.strip() else None
        return
    header = next(lines, (1, ""))[1].split("\t")
    for column in named:
        if column not in header:
            raise InputError(
                f"{table.file}:1: no column {column!r} in the first line; there are {', '.join(header)}; "
                "choose one of them, or columns by number, from 0"
            )
    needed = max(header.index(column) for column in named) + 1
    for number, line in lines:
        cells = line.split("\t") if line.strip() else []
        if cells and len(cells) < needed:
            raise InputError(
                f"{table.file}:{number}: {len(cells)} column(s), but the first line has {len(header)}; "
                "separate columns by tabs"
            )
        yield number, dict(zip(header, cells, strict=False)) if cells else None


def _json_rows(table: CorpusTable) -> Rows:
    for number, line in enumerate(iterate_lines(table.file), start=1):
        if not line.strip():
            yield number, None
            continue
        try:
            row = json.loads(line)
            # A lone half of a character pair, "\ud83d", is JSON but no text.
            line.encode() if "\\u" not in line else json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{table.file}:{number}: half a character ({error.reason}); mend this line") from error
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{table.file}:{number}: not JSON ({error}); write one JSON object on each line"
            ) from error
        if not isinstance(row, dict):
            raise InputError(f"{table.file}:{number}: not a JSON object, but {line!r:.40}; write one on each line")
        yield number, row


def _parquet_rows(table: CorpusTable) -> Rows:
    if not Path(table.file).is_file():
        raise InputError(f"{table.file}: no such file; check the path")
    rows = _load(
        table.file,
        lambda: datasets.load_dataset("parquet", data_files={"train": table.file}, split="train", streaming=True),
        "check the file",
    )
    return _checked_rows(table, rows)


def _dataset_rows(corpus: CorpusDataset, streaming: bool, cache_dir: str | None) -> Rows:
    folder = Path(corpus.dataset)

    def load() -> Any:
        if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
            saved = datasets.load_from_disk(folder)
            if isinstance(saved, datasets.DatasetDict):
                if corpus.split not in saved:
                    raise ValueError(f"no split {corpus.split!r}; there are {', '.join(saved)}")
                return saved[corpus.split]
            return saved
        return datasets.load_dataset(
            corpus.dataset,
            corpus.config,
            split=corpus.split,
            revision=corpus.revision,
            streaming=streaming,
            cache_dir=cache_dir,
        )

    return _checked_rows(corpus, _load(name_of(corpus), load, "check id, config, split and network"))


def _load(name: str, load: Callable[[], Any], remedy: str) -> Any:
    try:
        return load()
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{name}: cannot be loaded ({problem:.300}); {remedy}") from error


def _checked_rows(corpus: CorpusTable | CorpusDataset, rows: Any) -> Rows:
    """Yield the rows of a data set, only the columns asked for; refuse a column that is not there before the first."""
    name = name_of(corpus)
    columns = [
        str(column)
        for column in (corpus.source_column or "source", corpus.target_column or "target", corpus.links_column)
        if column is not None
    ]
    if rows.column_names is not None:
        tops = dict.fromkeys(column if column in rows.column_names else column.partition(".")[0] for column in columns)
        missing = [top for top in tops if top not in rows.column_names]
        if missing:
            raise InputError(
                f"{name}:1: no column {missing[0]!r}; there are {', '.join(rows.column_names)}; "
                "set source_column, target_column and links_column"
            )
        rows = rows.select_columns(list(tops))
    number = 0
    try:
        for number, row in enumerate(rows, start=1):
            yield number, row
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        if isinstance(error, InputError):
            raise
        problem = " ".join(str(error).split())
        raise InputError(f"{name}:{number + 1}: cannot be read ({problem:.300}); check the data") from error
