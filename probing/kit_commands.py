"""What the commands of the publication kit do with files: sweep and compare."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.text_files import InputError, read_aligned

from .directions import Reading
from .formats import BLANK_ENDS, FORMATS, LinkFile, format_of
from .link_commands import read_reported, remark
from .progress import progress_bar
from .provenance import describe_origin, library_versions, model_record
from .refusals import refused
from .sweep_choices import MEAN, GoldText, SweepGrid, SweepPoint, SweepResult, score_reading, shared_pair, sweep
from .system_comparison import SystemComparison, compare_systems
from .tables import Table, as_json, check_table_suffix, write_table
from .words import SPECIALS

TextFiles = tuple[Path, Path, Path]
_SHOWN = 10
_NO_MODELS = "unknown: link files do not name the models and choices that made them"


def parsed_grid(*, layers: str, heads: str, specials: str, **choices: str) -> SweepGrid:
    """Return the grid that the command line asks for: lists with commas, `all` layers and policies, `mean` among the
    heads.

    Raises:
        InputError: what is no number where one is wanted, or an unknown choice.
    """
    try:
        numbers = None if layers == "all" else tuple(map(int, _listed(layers)))
        own = tuple(part if part == MEAN else int(part) for part in _listed(heads))
    except ValueError:
        raise InputError(
            f"layers is {layers!r} and heads is {heads!r}; write all or numbers with commas for layers, mean or "
            "numbers for heads, e.g. --layers 1,2 --heads mean,0,3"
        ) from None
    policies = SPECIALS if specials == "all" else _listed(specials)
    return SweepGrid(
        layers=numbers, heads=own, specials=policies, **{name: _listed(text) for name, text in choices.items()}
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def sweep_files(
    model_name: str,
    dev: TextFiles,
    *,
    test: TextFiles | None,
    reverse_model: str | None,
    grid: SweepGrid,
    base: Reading,
    batch_size: int,
    as_json_object: bool,
    output: Path | None,
) -> SweepResult:
    """Score a grid of choices on development files, the best on test files; print it and write the table.

    Args:
        dev, test: source text, target text and manual links.
        base: prefixes and languages.
        output: a table of all points, .csv, .tex or .json.

    Raises:
        InputError: bad files or choices, or files of dev and test that share a sentence pair.
    """
    from hf_seq2seq_attn.translation import load_seq2seq

    if output is not None:
        check_table_suffix(output)
    try:
        grid.checked()
    except ValueError as error:
        raise InputError(str(error)) from error
    texts = _read_gold_text(dev), None if test is None else _read_gold_text(test)
    if test is not None and texts[1] is not None:
        _refuse_shared(dev, texts[0], test, texts[1])
    with refused(*dev[:2]):
        forward = load_seq2seq(model_name)
        reverse = None if reverse_model is None else load_seq2seq(reverse_model)
        with progress_bar("scoring choices") as progress:
            result = sweep(
                forward, texts[0], reverse=reverse, grid=grid, base=base, batch_size=batch_size, progress=progress
            )
    if test is not None and texts[1] is not None:
        with refused(*test[:2]):
            score = score_reading(forward, reverse, result.chosen.reading, texts[1], batch_size)
        result = replace(result, test=score)
    record = {
        "model": model_record(model_name),
        "reverse_model": None if reverse_model is None else model_record(reverse_model),
        "versions": library_versions(),
        "dev": [str(path) for path in dev],
        "test": None if test is None else [str(path) for path in test],
        "chosen": align_options(result.chosen, reverse_model),
    }
    if result.skipped:
        remark("left out: " + "; ".join(result.skipped))
    _deliver(
        _sweep_table(result, record),
        _sweep_content(result, record),
        _sweep_lines(result, record),
        output,
        as_json_object,
    )
    return result


def _refuse_shared(dev: TextFiles, dev_text: GoldText, test: TextFiles, test_text: GoldText) -> None:
    shared = shared_pair(dev_text, test_text)
    if shared is not None:
        raise InputError(
            f"{test[0]}:{shared[1] + 1}: this pair is line {shared[0] + 1} of {dev[0]} too; what is chosen on the test "
            "set scores too well there, so take such pairs out of one of them"
        )


def align_options(point: SweepPoint, reverse_model: str | None = None) -> str:
    """Return the options with which `align` reads links as this point does."""
    reading = point.reading
    words = [f"--align-with {reading.align_with}", f"--weights {reading.weights}", f"--layer {reading.layer}"]
    words.append(f"--heads {','.join(map(str, reading.heads or ()))}")
    words += [f"--specials {reading.specials}", f"--subwords {reading.subwords}", f"--links {reading.links}"]
    if reading.symmetrize or reading.combine:
        words.append(f"--reverse-model {shlex.quote(str(reverse_model))}")
    said = {
        "--symmetrize": reading.symmetrize,
        "--combine": reading.combine,
        "--source-prefix": reading.source_prefix,
        "--reverse-prefix": reading.reverse_prefix,
        "--source-language": reading.source_language,
        "--target-language": reading.target_language,
    }
    return " ".join([*words, *(f"{name} {shlex.quote(value)}" for name, value in said.items() if value)])


def _read_gold_text(files: TextFiles) -> GoldText:
    source, target, gold = files
    sources, targets = read_aligned(source, target)
    words = [[line.split() for line in lines] for lines in (sources, targets)]
    return GoldText(sources, targets, read_reported(gold, None, words).sentences)


def _two_directions(point: SweepPoint) -> str:
    reading = point.reading
    return reading.symmetrize or reading.combine or "forward only"


_SWEEP_COLUMNS = ("rows", "weights", "layer", "heads", "specials", "sub-words", "links", "directions")
_SCORE_COLUMNS = ("AER", "precision", "recall", "F1", "found")


def _sweep_table(result: SweepResult, record: dict[str, Any]) -> Table:
    rows = [(*_choices_of(each), each.aer, each.precision, each.recall, each.f1, each.links) for each in result.points]
    scores = {"dev": result.dev.as_dict(), "test": None if result.test is None else result.test.as_dict()}
    return Table((*_SWEEP_COLUMNS, *_SCORE_COLUMNS), rows, {**record, "scores": scores}, bold=0)


def _choices_of(point: SweepPoint) -> tuple[Any, ...]:
    reading = point.reading
    return (
        reading.align_with,
        reading.weights,
        reading.layer,
        str(point.heads),
        reading.specials,
        reading.subwords,
        reading.links,
        _two_directions(point),
    )


def _sweep_content(result: SweepResult, record: dict[str, Any]) -> dict[str, Any]:
    return {
        "chosen": result.chosen.as_dict(),
        "dev": result.dev.as_dict(),
        "test": None if result.test is None else result.test.as_dict(),
        "points": [point.as_dict() for point in result.points],
        "skipped": list(result.skipped),
        "record": record,
    }


def _sweep_lines(result: SweepResult, record: dict[str, Any]) -> Iterator[str]:
    yield from describe_origin(record)
    yield f"{len(result.points)} combinations on {result.dev.sentences} development pairs; the best {_SHOWN}:"
    rows = [[*map(str, _choices_of(point)), f"{point.aer:.4f}"] for point in result.points[:_SHOWN]]
    yield from _aligned_columns([[*_SWEEP_COLUMNS, "AER"], *rows])
    low, high = result.dev.ci95
    yield f"chosen: {record['chosen']}"
    yield f"development AER {result.dev.aer:.4f} (95% {low:.4f} to {high:.4f}): the best of many, so too good"
    if result.test is not None:
        score, (low, high) = result.test, result.test.ci95
        yield (
            f"test AER {score.aer:.4f} (95% {low:.4f} to {high:.4f}), precision {score.precision:.4f}, recall "
            f"{score.recall:.4f}, F1 {score.f1:.4f}; {score.sentences} pairs"
        )


def compare_files(
    gold: Path, systems: Sequence[str], *, gold_base: int | None, as_json_object: bool, output: Path | None
) -> SystemComparison:
    """Compare systems, each with link files of one or more seeds, on the same gold; print it and write the table.

    Args:
        systems: `NAME=links1,links2` each.

    Raises:
        InputError: bad files, or systems that are not written so.
    """
    if output is not None:
        check_table_suffix(output)
    files = _parse_systems(systems)
    manual = read_reported(gold, gold_base)
    if not any(sentence.possible for sentence in manual.sentences):
        raise InputError(f"{gold}: no link in any sentence, so nothing can be compared; check the file")
    read = {name: [_read_system(path, gold, manual) for path in paths] for name, paths in files.items()}
    links = {name: [[sentence.possible for sentence in file.sentences] for file in each] for name, each in read.items()}
    with refused():
        result = compare_systems(links, manual.sentences)
    record = {
        "gold": str(gold),
        "systems": {name: [str(path) for path in paths] for name, paths in files.items()},
        "base": {
            "gold": manual.base,
            **{str(path): file.base for name in files for path, file in zip(files[name], read[name], strict=True)},
        },
        "models": _NO_MODELS,
        "resamples": result.resamples,
        "versions": library_versions(),
    }
    content = {**result.as_dict(), "record": record}
    _deliver(_system_table(result, record), content, _system_lines(result, record), output, as_json_object)
    return result


def _parse_systems(systems: Sequence[str]) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for text in systems:
        name, equals, listed = text.partition("=")
        paths = [Path(part) for part in listed.split(",") if part]
        if not name or not equals or not paths:
            raise InputError(f"{text!r} is no system; write NAME=FILE, or NAME=FILE,FILE with a file for each seed")
        if name in files:
            raise InputError(f"{name!r} is given twice; give the files of all its seeds at once, {name}=FILE,FILE")
        files[name] = paths
    return files


def _read_system(path: Path, gold: Path, manual: LinkFile) -> LinkFile:
    read = read_reported(path, None)
    missing = len(manual.sentences) - len(read.sentences)
    if missing > 0 and BLANK_ENDS not in FORMATS[format_of(path)].keeps:
        blank = type(manual.sentences[0])(frozenset(), frozenset())
        return LinkFile(read.sentences + [blank] * missing, read.base, read.evidence, read.certain)
    if missing:
        raise InputError(
            f"{path}:{min(len(read.sentences), len(manual.sentences)) + 1}: {len(read.sentences)} lines, but {gold} "
            f"has {len(manual.sentences)}; line N of one file must belong to line N of the other"
        )
    return read


def _system_table(result: SystemComparison, record: dict[str, Any]) -> Table:
    """Return one row for each system; each later one is tested against the first."""
    against = {each.other: each for each in result.differences if each.name == result.systems[0].name}
    rows = []
    for system in result.systems:
        test = against.get(system.name)
        rows.append(
            (
                system.name,
                len(system.seeds),
                system.aer,
                system.deviation,
                *system.ci95,
                system.precision,
                system.recall,
                system.f1,
                None if test is None else -test.difference,
                None if test is None else test.p_value,
                None if test is None else test.p_holm,
            )
        )
    columns = ("system", "seeds", "AER", "SD", "95% low", "95% high", "precision", "recall", "F1")
    best = min(range(len(rows)), key=lambda place: result.systems[place].aer)
    return Table((*columns, "difference to first", "p", "p (Holm)"), rows, record, bold=best)


def _system_lines(result: SystemComparison, record: dict[str, Any]) -> Iterator[str]:
    rows = [["system", "seeds", "AER", "SD", "95% interval", "precision", "recall", "F1"]]
    for system in result.systems:
        low, high = system.ci95
        scores = [f"{value:.4f}" for value in (system.precision, system.recall, system.f1)]
        deviation = "-" if system.deviation is None else f"{system.deviation:.4f}"
        rows.append(
            [system.name, str(len(system.seeds)), f"{system.aer:.4f}", deviation, f"{low:.4f} to {high:.4f}", *scores]
        )
    yield from _aligned_columns(rows)
    if result.differences:
        yield ""
        tests = [["difference", "AER", "95% interval", "lower in", "p", "p (Holm)"]]
        for each in result.differences:
            low, high = each.ci95
            tests.append(
                [
                    f"{each.name} - {each.other}",
                    f"{each.difference:+.4f}",
                    f"{low:+.4f} to {high:+.4f}",
                    f"{each.better:.1%}",
                    f"{each.p_value:.4f}",
                    f"{each.p_holm:.4f}",
                ]
            )
        yield from _aligned_columns(tests)
    yield (
        f"{result.sentences} sentences, {result.sure} sure and {result.possible} possible links; paired bootstrap and "
        f"approximate randomisation over sentences, {result.resamples} resamples; SD over seeds"
    )
    yield f"models {_NO_MODELS}"
    yield ", ".join(f"{name} {version}" for name, version in record["versions"].items())


def _aligned_columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _deliver(
    table: Table, content: dict[str, Any], lines: Iterator[str], output: Path | None, as_json_object: bool
) -> None:
    if output is not None:
        write_table(output, table, content)
        remark(f"{output}: {len(table.rows)} rows")
    print(as_json(content) if as_json_object else "\n".join(lines))
