"""What the commands that put alignments to work do with files: lexicon, check, quality.

Tables go to a file or to stdout as TSV with a header, or as JSON lines; summaries and progress to stderr.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError

from .bitext import Bitext
from .extraction import SentenceError
from .formats import write_atomically
from .lexicon import LEXICON_COLUMNS, LexiconEntry, build_lexicon
from .link_commands import remark
from .model_signals import ModelSignals, model_signals
from .quality import SIGNALS, LineQuality, by_rank, measure_quality
from .term_check import VERDICTS, TermChecker, TermOccurrence, read_terms, summarise

Row = dict[str, Any]
_DIGITS = 4


def lexicon_files(
    corpus: Bitext,
    output: Path | None,
    *,
    min_count: int = 1,
    top_words: int | None = None,
    top_targets: int | None = None,
    examples: int = 3,
    ignore_case: bool = False,
    as_json: bool = False,
) -> None:
    """Write the lexicon of an aligned corpus, see `lexicon`."""
    lexicon = build_lexicon(corpus, examples=examples, ignore_case=ignore_case)
    entries = lexicon.entries(min_count=min_count, top_words=top_words, top_targets=top_targets)
    count = _write((_lexicon_row(entry) for entry in entries), LEXICON_COLUMNS, output, as_json)
    remark(f"{count} entries")


def _lexicon_row(entry: LexiconEntry) -> Row:
    values = (
        entry.source,
        entry.target,
        entry.count,
        entry.source_count,
        entry.target_count,
        entry.target_given_source,
        entry.source_given_target,
        list(entry.examples),
    )
    return dict(zip(LEXICON_COLUMNS, values, strict=True))


def check_files(
    terms_file: Path,
    corpus: Bitext,
    output: Path | None,
    *,
    match_case: bool = False,
    summary_only: bool = False,
    as_json: bool = False,
) -> bool:
    """Write what became of every occurrence of the terms, see `term_check`; the summary goes to stderr, or to the
    output in the place of the occurrences.

    Returns:
        Whether every occurrence is rendered as allowed.
    """
    terms = read_terms(terms_file)
    checker = TermChecker(terms, match_case=match_case)
    counts = summarise((), terms)

    def counted() -> Iterator[TermOccurrence]:
        for line in corpus:
            for occurrence in checker.check(line):
                counts[occurrence.term][occurrence.verdict] += 1
                yield occurrence

    if summary_only:
        for _ in counted():
            pass
        rows = (
            {"term": name, "occurrences": each.total()} | {v: each[v] for v in VERDICTS}
            for name, each in counts.items()
        )
        _write(rows, ("term", "occurrences", *VERDICTS), output, as_json)
    else:
        _write((_term_row(each) for each in counted()), _TERM_COLUMNS, output, as_json)
        for name, each in counts.items():
            remark(f"{name}: {_verdicts(each)}" if each else f"{name}: does not occur")
    totals = {verdict: sum(each[verdict] for each in counts.values()) for verdict in VERDICTS}
    remark(f"{sum(totals.values())} occurrences of {len(terms)} terms: {_verdicts(totals)}")
    return totals["otherwise"] == totals["unaligned"] == 0


_TERM_COLUMNS = (
    "line",
    "verse",
    "term",
    "verdict",
    "source",
    "rendering",
    "matched",
    "elsewhere",
    "confidence",
    "positions",
)


def _term_row(found: TermOccurrence) -> Row:
    values = (
        found.line,
        found.verse_id,
        found.term,
        found.verdict,
        found.source,
        found.rendering,
        found.matched,
        found.elsewhere,
        found.confidence,
        list(found.positions),
    )
    return dict(zip(_TERM_COLUMNS, values, strict=True))


def _verdicts(counts: dict[str, int]) -> str:
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)


def quality_files(
    corpus: Bitext,
    output: Path | None,
    *,
    model_name: str | None = None,
    batch_size: int = 32,
    shortest_span: int = 2,
    input_order: bool = False,
    as_json: bool = False,
) -> None:
    """Write the signals and the badness of every line, worst first or in the order of the input, see `quality`."""
    if corpus.links is None and model_name is None:
        raise InputError("quality: nothing to judge lines by; give LINKS, --model, or both")
    signals = None if model_name is None else _signals(model_name, corpus, batch_size)
    found: Sequence[LineQuality] = measure_quality(corpus, signals, shortest_span=shortest_span)
    measured = {name for each in found for name in each.values}
    names = [signal.name for signal in SIGNALS if signal.name in measured]
    rows = (_quality_row(each, names) for each in (found if input_order else by_rank(found)))
    columns = ("rank", "line", "verse", "badness", "reason", *names, "length_z", "omitted_spans", "added_spans")
    count = _write(rows, columns, output, as_json)
    remark(f"{count} lines, judged by {', '.join(names)}")


def _quality_row(found: LineQuality, names: Sequence[str]) -> Row:
    return {
        "rank": found.rank,
        "line": found.line,
        "verse": found.verse_id,
        "badness": found.badness,
        "reason": found.reason,
        **{name: _as_count(name, found.values.get(name)) for name in names},
        "length_z": found.z.get("length_ratio"),
        "omitted_spans": list(found.omitted_spans),
        "added_spans": list(found.added_spans),
    }


def _as_count(name: str, value: float | None) -> float | int | None:
    return int(value) if value is not None and name in ("omitted", "added") else value


def _signals(model_name: str, corpus: Bitext, batch_size: int) -> list[ModelSignals]:
    from hf_seq2seq_attn.translation import load_seq2seq

    model, tokenizer = load_seq2seq(model_name)
    lines = [line.verse.line for line in corpus]
    pairs = ((line.verse.texts[0], line.verse.texts[1]) for line in corpus)
    signals: list[ModelSignals] = []
    try:
        for each in model_signals(model, tokenizer, pairs, batch_size=batch_size):
            signals.append(each)
            print(f"\rread {len(signals)}/{len(lines)}", end="", file=sys.stderr, flush=True)
    except SentenceError as error:
        path = corpus.source if error.side == "source" else corpus.target
        raise InputError(f"{path}:{lines[error.number - 1]}: {error.what}") from error
    except UnusableError as error:
        raise InputError(f"quality --model {model_name}: {error}") from error
    finally:
        print(file=sys.stderr)
    return signals


def _write(rows: Iterable[Row], columns: Sequence[str], output: Path | None, as_json: bool) -> int:
    """Write a table as TSV, or as JSON lines, to a file that appears when it is complete, or to stdout."""
    count = 0

    def written() -> Iterator[str]:
        nonlocal count
        for row in rows:
            count += 1
            if as_json:
                yield json.dumps({name: _rounded(row[name]) for name in columns}, ensure_ascii=False) + "\n"
            else:
                yield "\t".join(_cell(row[name]) for name in columns) + "\n"

    header = [] if as_json else ["\t".join(columns) + "\n"]
    chunks = chain(header, written())
    if output is None:
        sys.stdout.writelines(chunks)
    else:
        write_atomically(output, chunks)
    return count


def _rounded(value: Any) -> Any:
    return round(value, _DIGITS) if isinstance(value, float) else value


def _cell(value: Any) -> str:
    """Write a value for TSV: nothing for None, lists with ` | ` between their parts."""
    if value is None:
        return ""
    if isinstance(value, list):
        return " | ".join(str(part) for part in value)
    return f"{value:.{_DIGITS}f}" if isinstance(value, float) else str(value)
