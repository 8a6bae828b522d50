"""From two files to a word aligner and links: what the command `train-aligner` does."""

import dataclasses
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.probing import Gold, Link, Links, iterate_pairs, refused, write_pairs
from hf_seq2seq_attn.text_files import InputError, check_overwritten

from .aligner_card import write_aligner_card
from .aligner_corpus import (
    AlignerFiles,
    AlignerText,
    aligner_data,
    check_trainable,
    read_fixed_links,
    read_gold_links,
    read_lexicon,
    read_teacher_links,
    read_text,
)
from .aligner_data import AlignerData, TeacherLinks
from .aligner_fits import fit_seeds
from .aligner_folder import FORMAT, AlignerFolder, open_folder
from .aligner_forms import TeacherForm, teacher_forms
from .aligner_output import aligned_pairs, check_format, write_alignment
from .aligner_progress import fraction_bar
from .aligner_settings import AlignerSettings, parse_settings
from .aligner_teachers import (
    BUILTIN,
    STATISTICAL,
    check_teachers,
    file_identity,
    keep_builtin,
    run_teacher,
    teacher_identity,
)
from .run_record import hardware, versions
from .suggested_lines import print_suggestions, write_suggestions
from .trained_aligner import TrainedAligner

LINKS_FILE = "links.pharaoh-p.gz"
"""Of the text that the aligner was trained on, a line for each line of it."""
_TEACHERS = "teachers"
_SEEDS = 2**32


@dataclass(frozen=True)
class AlignerRequest:
    """What `train-aligner` is asked for.

    Attributes:
        files: the bitext.
        output: the aligner's folder.
        links: a file for the links of the bitext; None = only the folder's own.
        format_name: of that file; None = by its suffix.
        teachers: names or files; none = eflomal where it is installed, else builtin.
        forms: the most forms of the text that a statistical teacher is run on; None = all.
        gold, fixed_links, lexicon: files.
        base: what gold, fixed links and teachers' files count from, where the format leaves it open; None = found.
        minutes: for all of it; None = as long as the settings take.
        seeds: a network for each; their probabilities are averaged.
        processes: how many of them are trained at once.
        suggest: number of lines to suggest for hand alignment; 0 = none.
        settings: `FIELD=VALUE` of `AlignerSettings`.
        overwrite: start anew, whatever the folder holds.
    """

    files: AlignerFiles
    output: Path
    links: Path | None = None
    format_name: str | None = None
    teachers: tuple[str, ...] = ()
    forms: int | None = None
    gold: Path | None = None
    fixed_links: Path | None = None
    lexicon: Path | None = None
    base: int | None = None
    minutes: float | None = None
    seeds: tuple[int, ...] = (1,)
    processes: int = 1
    suggest: int = 0
    settings: tuple[str, ...] = ()
    overwrite: bool = False


@dataclass(frozen=True)
class _Known:
    """Everything that was read before any work is done."""

    text: AlignerText
    settings: AlignerSettings
    teachers: tuple[str, ...]
    gold: dict[int, Gold]
    fixed: dict[int, Links]
    teacher_files: dict[str, TeacherLinks]
    lexicon: list[tuple[str, str]]


def train_aligner(request: AlignerRequest) -> dict[str, Any]:
    """Train an aligner, write its folder, the links of its text and the suggestions; return the aligner's record.

    A run that was stopped goes on when it is asked for again, and, unless `minutes` are given, comes to the same links;
    one that is finished only writes links and suggestions.

    Raises:
        InputError: bad files or choices, before any work; or a folder that belongs to another run.
    """
    started = time.monotonic()
    format_name = check_format(request.links, request.format_name)
    known = _read(request)
    folder = open_folder(request.output, _identity(request, known), overwrite=request.overwrite)
    with refused():
        record = folder.record or _train(request, known, folder, started)
        if request.links is not None:
            write_alignment(_kept_links(folder.path, known.text), request.links, format_name)
        if request.suggest:
            found = write_suggestions(folder.path, known.text, request.suggest, known.gold)
            print_suggestions(known.text, found)
    return record


def _read(request: AlignerRequest) -> _Known:
    """Check the choices, then read the files, whatever is cheap first."""
    teachers = check_teachers(request.teachers)
    settings = parse_settings(request.settings)
    _check_choices(request, teachers)
    text = read_text(request.files)
    check_trainable(text)
    gold = {} if request.gold is None else read_gold_links(request.gold, text, request.base)
    fixed = {} if request.fixed_links is None else read_fixed_links(request.fixed_links, text, request.base)
    lexicon = [] if request.lexicon is None else read_lexicon(request.lexicon)
    if not teachers and not gold and not settings.reconstruction:
        raise InputError(
            "--teacher none: without hand-made links there is nothing to learn from; give --gold, another teacher, or "
            "--set reconstruction=1 to learn from the text alone"
        )
    teacher_files = {name: read_teacher_links(name, text, request.base) for name in teachers if name not in STATISTICAL}
    return _Known(text, settings, teachers, gold, fixed, teacher_files, lexicon)


def _check_choices(request: AlignerRequest, teachers: Sequence[str]) -> None:
    if not request.seeds or len(set(request.seeds)) < len(request.seeds):
        raise InputError(f"--seeds: {request.seeds} must be different numbers, at least one")
    if not all(0 <= seed < _SEEDS for seed in request.seeds):
        raise InputError(f"--seeds: {request.seeds} must be numbers from 0 to {_SEEDS - 1}")
    if request.format_name is not None and request.links is None:
        raise InputError(f"--format {request.format_name} is of the file of links; give --links, or leave it out")
    inputs = {
        **request.files.by_option(),
        "--gold": request.gold,
        "--fixed-links": request.fixed_links,
        "--lexicon": request.lexicon,
        **{f"--teacher {name}": Path(name) for name in teachers if name not in STATISTICAL},
    }
    check_overwritten({"--links": request.links}, inputs)


def _identity(request: AlignerRequest, known: _Known) -> dict[str, Any]:
    """Return what decides the links: texts and files by their content, choices by their value."""
    return {
        "text": known.text.digest,
        "teachers": [teacher_identity(name) for name in known.teachers],
        "forms": request.forms,
        "gold": _digest({place: (gold.sure, gold.possible) for place, gold in known.gold.items()}),
        "fixed links": _digest({place: (links,) for place, links in known.fixed.items()}),
        "lexicon": file_identity(request.lexicon),
        "base": request.base,
        "minutes": request.minutes,
        "seeds": list(request.seeds),
        "settings": dataclasses.asdict(known.settings),
    }


def _digest(links: Mapping[int, Sequence[Links]]) -> str | None:
    """Return a digest of links as they were read: by its name a file's format, and so what it counts from, can change.

    Args:
        links: some sets of links for each pair that has them.
    """
    if not links:
        return None
    rows = [(place, [sorted(each) for each in sets]) for place, sets in sorted(links.items())]
    return f"sha256:{hashlib.sha256(json.dumps(rows).encode()).hexdigest()}"


def _train(request: AlignerRequest, known: _Known, folder: AlignerFolder, started: float) -> dict[str, Any]:
    text = known.text
    forms = teacher_forms(text.source, text.target, text.source_lemmas, text.target_lemmas)[: request.forms]
    teachers = _teachers(known, forms, folder)
    data = aligner_data(text, teachers=teachers, gold=known.gold, fixed=known.fixed, lexicon=known.lexicon)
    minutes = _left(request.minutes, started)
    aligner = fit_seeds(
        data,
        known.settings,
        request.seeds,
        minutes=minutes,
        folder=folder.training,
        processes=request.processes,
    )
    links = _links(aligner, data)
    finished = folder.start_finished()
    aligner.save(finished)
    shutil.copytree(folder.training / _TEACHERS / BUILTIN, finished / BUILTIN)
    write_pairs(finished / LINKS_FILE, aligned_pairs(text, links), format_name="pharaoh-p")
    record = {
        "format": FORMAT,
        "identity": _identity(request, known),
        "settings": dataclasses.asdict(known.settings),
        "teachers": [Path(name).name for name in known.teachers],
        "forms": [form.name for form in forms] if any(name in STATISTICAL for name in known.teachers) else [],
        "letters": aligner.kind.letters,
        "seeds": list(request.seeds),
        "lemmas": {"source": text.source_lemmas is not None, "target": text.target_lemmas is not None},
        **_counts(known, links),
        "minutes": round((time.monotonic() - started) / 60, 2),
        "versions": versions(),
        "hardware": hardware(),
    }
    write_aligner_card(finished, record)
    folder.finish(record)
    return record


def _left(minutes: float | None, started: float) -> float | None:
    """Return the minutes that are left for the networks, and say so where the teachers took most of them."""
    if minutes is None:
        return None
    left = minutes - (time.monotonic() - started) / 60
    if left < minutes / 2:
        print(
            f"the teachers took {minutes - left:.1f} of {minutes:g} minutes; give more, or fewer forms of the text by "
            "--forms",
            file=sys.stderr,
        )
    return left


def _teachers(known: _Known, forms: Sequence[TeacherForm], folder: AlignerFolder) -> list[TeacherLinks]:
    kept = folder.training / _TEACHERS
    keep_builtin(forms, kept)
    found: list[TeacherLinks] = []
    for name in known.teachers:
        given = known.teacher_files.get(name)
        found += run_teacher(name, forms, kept) if given is None else [given]
    return found


def _links(aligner: TrainedAligner, data: AlignerData) -> list[dict[Link, float]]:
    with fraction_bar("reading the links off") as report:
        return aligner.links(
            data.source,
            data.target,
            source_lemmas=data.source_lemmas,
            target_lemmas=data.target_lemmas,
            teachers=data.teachers,
            fixed=data.fixed,
            progress=lambda done: report(done, "all lines"),
        )


def _counts(known: _Known, links: Sequence[dict[Link, float]]) -> dict[str, Any]:
    text = known.text
    return {
        "lines": text.lines,
        "pairs": sum(bool(source and target) for source, target in zip(text.source, text.target, strict=True)),
        "source_words": sum(map(len, text.source)),
        "target_words": sum(map(len, text.target)),
        "gold_pairs": len(known.gold),
        "gold_links": sum(len(gold.possible) for gold in known.gold.values()),
        "fixed_links": sum(map(len, known.fixed.values())),
        "lexicon_pairs": len(known.lexicon),
        "links": sum(map(len, links)),
        "linked_source_words": sum(len({i for i, _ in each}) for each in links),
        "linked_target_words": sum(len({j for _, j in each}) for each in links),
    }


def _kept_links(folder: Path, text: AlignerText) -> Iterator[Any]:
    """Yield the pairs of the links that lie in the folder, with the words of the text."""
    links = [dict(pair.probabilities) for pair in iterate_pairs(folder / LINKS_FILE, base=0)]
    # The file has a line for each line of the text; those of merged lines are blank.
    places = [verse.line - 1 for verse in text.verses]
    return aligned_pairs(text, [links[place] for place in places])
