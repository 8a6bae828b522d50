"""What the report command does with files, and the report that a run makes of itself."""

import hashlib
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from hf_seq2seq_attn.probing import Reading, parse_heads, parse_layer, refused, write_atomically
from hf_seq2seq_attn.text_files import InputError, check_output_file
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer
from hf_seq2seq_attn.translation import SentenceTooLongError, load_seq2seq

from .card import link_report
from .data import ParallelCorpus, read_corpus
from .data_recipe import Corpus, CorpusDataset, CorpusFiles, first_line_of, is_local, local_files, name_of
from .report import Report, Run, make_report, report_page
from .report_figures import ReportSettings
from .run_record import REPORT_FILE
from .scoring import BLEU_TOKENIZERS, TEXT_METRICS

logger = logging.getLogger(__name__)


def report_files(
    model_name: str,
    source: Path | None,
    target: Path | None,
    output: Path | None = None,
    *,
    gold: Path | None = None,
    limit: int | None = None,
    as_json: bool = False,
    metrics: str | None = None,
    settings: Mapping[str, Any] | None = None,
    layer: str = "auto",
    heads: str = "auto",
    reading: Mapping[str, Any] | None = None,
) -> Report:
    """Report on a model and two text files, or on a run and its own test set; write the page, print the scores.

    Args:
        source, target: None = the run's test part, else its dev part.
        output: the page; None = `report.html` in the folder of a run, whose card then links it.
        gold: manual links of the two files.
        limit: only the first so many pairs.
        as_json: print all figures instead of the scores.
        metrics: with commas; None = the run's or the default.
        settings: other fields of `ReportSettings` other than the run's or the default; None = as there.
        layer, heads: as on the command line. reading: the other fields of `Reading`.

    Raises:
        InputError: bad files, choices, sentences or places, or a model that is no encoder-decoder.
    """
    run = Run(model_name)
    place = _checked_output(output, run)
    named = None if metrics is None else tuple(metrics.split(","))
    chosen = _settings(run, {"metrics": named, **(settings or {})}, layer, heads, reading or {})
    files, corpus = _test_set(run, source, target, gold)
    data, first = _data_record(files, limit), first_line_of(files)
    with _refused(files):
        model, tokenizer = load_seq2seq(model_name)
        report = make_report(
            model, tokenizer, _first(corpus, limit), chosen, name=model_name, data=data, first_line=first, run=run
        )
        page = report_page(report)
    write_atomically(place, [page])
    if as_json:
        print(json.dumps(report.figures, ensure_ascii=False, allow_nan=False))
    else:
        print("\n".join([*describe_scores(report.figures), f"REPORT {place}"]))
    if run.recipe is not None and place.resolve() == (run.folder / REPORT_FILE).resolve():
        remark = link_report(run.folder)
        if remark:
            print(remark, file=sys.stderr)
    return report


def report_run(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: AnyTokenizer,
    corpora: Mapping[str, ParallelCorpus],
) -> None:
    """Leave the report of a run on its test part, else its dev part, in its folder, which holds its metrics already.

    A model that cannot be reported on is no reason to lose it: what is wrong is logged.
    """
    run = Run(folder)
    own = run.test_set()
    assert own is not None
    part, files = own
    try:
        report = make_report(
            model,
            tokenizer,
            corpora[part],
            run.settings(),
            name=folder,
            data=_data_record(files),
            first_line=first_line_of(files),
            run=run,
            progress=False,
        )
        write_atomically(folder / REPORT_FILE, [report_page(report)])
    except ValueError as error:
        logger.warning("no report: %s", error)


def describe_scores(figures: Mapping[str, Any]) -> list[str]:
    """Return each score with its interval in one line of text."""
    scores = {**figures["translation"].get("scores", {}), **figures["alignment"].get("scores", {})}
    return [
        f"{name:16}{score['value']:10.4f}   (95% {score['ci95'][0]:.4f} to {score['ci95'][1]:.4f})"
        for name, score in scores.items()
    ]


def _checked_output(output: Path | None, run: Run) -> Path:
    if output is None:
        if run.recipe is None:
            raise InputError(f"{run.folder}: is no folder of a run; say where the page goes: -o {REPORT_FILE}")
        return run.folder / REPORT_FILE
    if output.suffix != ".html":
        raise InputError(f"{output}: a report is a page; let the output end in .html")
    check_output_file(output)
    return output


def _settings(
    run: Run, settings: Mapping[str, Any], layer: str, heads: str, reading: Mapping[str, Any]
) -> ReportSettings:
    """Return the run's own settings with those that were asked for; what nobody knows is refused."""
    chosen = replace(run.settings(), **{name: value for name, value in settings.items() if value is not None})
    if set(chosen.metrics) - set(TEXT_METRICS):
        raise InputError(f"metrics is {','.join(chosen.metrics)}; allowed are {', '.join(TEXT_METRICS)}")
    if chosen.bleu_tokenize not in BLEU_TOKENIZERS:
        raise InputError(f"bleu_tokenize is {chosen.bleu_tokenize!r}; allowed are {', '.join(BLEU_TOKENIZERS)}")
    if reading.get("weights") == "raw_norm":
        raise InputError("weights is 'raw_norm'; the maps of a report are shares of a row: give attention or norm")
    try:
        numbers = parse_heads(heads)
        found = Reading(
            layer=parse_layer(layer), heads=tuple(numbers) if isinstance(numbers, list) else numbers, **reading
        )
        found.checked(False)
    except ValueError as error:
        raise InputError(str(error)) from error
    return replace(chosen, reading=found)


@contextmanager
def _refused(files: Corpus) -> Iterator[None]:
    """Turn what a model refuses into bad input, a sentence by its file and line."""
    name, first = name_of(files), first_line_of(files)
    source, target = (files.source, files.target) if isinstance(files, CorpusFiles) else (name, name)
    with refused(Path(source), Path(target), first):
        try:
            yield
        except SentenceTooLongError as error:
            raise InputError(f"{name}:{first - 1 + error.number}: {error}") from error


def _first(corpus: ParallelCorpus, limit: int | None) -> ParallelCorpus:
    gold = None if corpus.gold is None else corpus.gold[:limit]
    return ParallelCorpus(corpus.sources[:limit], corpus.targets[:limit], gold)


def _test_set(run: Run, source: Path | None, target: Path | None, gold: Path | None) -> tuple[Corpus, ParallelCorpus]:
    """Return where the test set lies and what it holds; the run's own is refused where it is no longer what it was."""
    if source is not None and target is not None:
        files = CorpusFiles(str(source), str(target), None if gold is None else str(gold))
        return files, read_corpus(files)
    if source is not None or gold is not None:
        raise InputError(f"{source or gold}: one file alone is not enough; give SOURCE and TARGET")
    own = run.test_set()
    if run.recipe is None or own is None:
        raise InputError(f"{run.folder}: names no test set of its own; give SOURCE and TARGET")
    part, held_out = own
    corpus = read_corpus(held_out, run.recipe.data.cache_dir)
    scored = run.metrics.get(part, {}).get("pairs", len(corpus))
    if scored != len(corpus):
        raise InputError(
            f"{name_of(held_out)}: has {len(corpus):,} pairs, but the run in {run.folder} was scored on {scored:,} of "
            "this name; run from the folder that it was trained in, or give SOURCE and TARGET"
        )
    return held_out, corpus


def _data_record(files: Corpus, limit: int | None = None) -> dict[str, Any]:
    # Where a file lies is nobody's business; the owner of a data set on the Hub is.
    on_hub = isinstance(files, CorpusDataset) and not is_local(files)
    name = name_of(files) if on_hub else Path(name_of(files)).name
    return {"name": name, "files": _file_records(files), "limit": limit}


def _file_records(files: Corpus) -> dict[str, dict[str, str]]:
    paths = local_files(files)
    sides = ("source", "target", "gold") if isinstance(files, CorpusFiles) else ("table",)
    return {
        side: {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for side, path in zip(sides, paths, strict=False)
    }
