"""The teachers of an aligner: which there are, and links by the statistical ones, kept so that a restart has the same.

A statistical aligner is run once on each form of the text (as it is, without marks, shortened), see `aligner_forms`.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.probing import read_links
from hf_seq2seq_attn.text_files import InputError

from .aligner_data import StoredWeights, TeacherLinks
from .aligner_forms import TeacherForm
from .aligner_progress import fraction_bar
from .statistical_aligner import WORDS_FILE, StatisticalAligner, teacher_links
from .statistical_links import statistical_links

EFLOMAL, BUILTIN, NONE = "eflomal", "builtin", "none"
STATISTICAL = (EFLOMAL, BUILTIN)
_NULL_PRIOR = 0.02
"""For eflomal, whose default of 0.2 leaves too many words without a partner in small texts: on Greek-English verses
0.02 takes the AER of both directions together from 0.218 to 0.195."""


def check_teachers(names: Sequence[str]) -> tuple[str, ...]:
    """Return the teachers to use: those named, or by default eflomal where it is installed, else `builtin`.

    Raises:
        InputError: a name that is neither a known teacher nor a file, `none` beside others, eflomal not installed.
    """
    if not names:
        return (EFLOMAL,) if _has_eflomal() else (BUILTIN,)
    for name in names:
        if name in (BUILTIN, NONE):
            continue
        if name == EFLOMAL:
            if not _has_eflomal():
                raise InputError(
                    "--teacher eflomal needs the package eflomal: pip install 'hf-seq2seq-attn[eflomal]', or take "
                    "--teacher builtin"
                )
        elif not Path(name).is_file():
            raise InputError(
                f"--teacher: {name!r} is no teacher and no file; give {EFLOMAL}, {BUILTIN}, {NONE} or a file of links"
            )
    if NONE in names:
        if len(names) > 1:
            raise InputError(f"--teacher: {NONE} stands beside another; leave one of them out")
        return ()
    return tuple(dict.fromkeys(names))


def run_teacher(name: str, forms: Sequence[TeacherForm], folder: Path) -> list[TeacherLinks]:
    """Return what a statistical aligner says about each form of a text, one of `STATISTICAL`.

    What it made is kept in `folder` and read back from there.

    Raises:
        UnusableError: no pair has words on both sides, or `folder` holds what was made of another text.
    """
    make = _eflomal if name == EFLOMAL else _builtin
    return [make(form, folder / name / form.name) for form in forms]


def keep_builtin(forms: Sequence[TeacherForm], folder: Path) -> None:
    """Train the builtin aligner on each form of a text, unless it is in `folder` already, for texts to come."""
    for form in forms:
        _builtin_aligner(form, folder / BUILTIN / form.name)


def builtin_on_new_text(forms: Sequence[TeacherForm], folder: Path) -> list[TeacherLinks]:
    """Return what the builtin aligners that `keep_builtin` left say about a new text; forms they lack are left out."""
    return [
        _restored(form, StatisticalAligner.load(kept))
        for form in forms
        if ((kept := folder / BUILTIN / form.name) / WORDS_FILE).is_file()
    ]


def _builtin(form: TeacherForm, folder: Path) -> TeacherLinks:
    return _restored(form, _builtin_aligner(form, folder))


def _builtin_aligner(form: TeacherForm, folder: Path) -> StatisticalAligner:
    if not (folder / WORDS_FILE).is_file():
        with fraction_bar(f"builtin aligner of the form {form.name!r}") as report:
            aligner = StatisticalAligner.fit(
                form.source, form.target, progress=lambda done, total: report(done / total, f"round {done} of {total}")
            )
        folder.mkdir(parents=True, exist_ok=True)
        aligner.save(folder)
    # Read back in any case, so that a run that was stopped here goes on with the very same numbers.
    aligner = StatisticalAligner.load(folder)
    for known, sentences in ((aligner.words.source_words, form.source), (aligner.words.target_words, form.target)):
        if known.keys() != {word for words in sentences for word in words}:
            raise UnusableError(f"{folder}: holds the tables of another text; delete it, or name another folder")
    return aligner


def _restored(form: TeacherForm, aligner: StatisticalAligner) -> TeacherLinks:
    links = teacher_links(aligner.posteriors(form.source, form.target))
    return form.restored(links.forward, links.reverse)


def teacher_identity(name: str) -> str:
    """Return what tells one teacher from another: its name, of a file the SHA-256 of its bytes too."""
    if name in STATISTICAL:
        return name
    return f"{Path(name).name} {file_identity(Path(name))}"


def file_identity(path: Path | None) -> str | None:
    """Return the SHA-256 of a file's bytes; None without a file."""
    return None if path is None else f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def _eflomal(form: TeacherForm, folder: Path) -> TeacherLinks:
    statistical_links(form.source, form.target, folder, null_prior=_NULL_PRIOR)
    lengths = [len(words) for words in form.source], [len(words) for words in form.target]
    forward, reverse = (
        StoredWeights(dict.fromkeys(links, 1.0) for links in read_links(folder / f"{name}.align", *lengths, base=0))
        for name in ("forward", "reverse")
    )
    return form.restored(forward, reverse)


def _has_eflomal() -> bool:
    try:
        import eflomal  # noqa: F401
    except ImportError:
        return False
    return True
