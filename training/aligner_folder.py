"""The folder of an aligner, from its first minute to its last.

aligner.json          what it is: settings, teachers, seeds, text, versions; the last file to appear
network*              weights and vocabulary
builtin/FORM/         a statistical aligner for each form of the text, for texts to come
README.md             the card
training/             while it is unfinished: whose it is, teachers' links, checkpoints, the finished files
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.probing import write_atomically
from hf_seq2seq_attn.text_files import InputError, check_output_folder

from .run_record import CARD_FILE

RECORD_FILE = "aligner.json"
FORMAT = 1
"""Counted up when a folder can no longer be read by older versions."""
_TRAINING, _IDENTITY, _FINISHED = "training", "identity.json", "finished"


@dataclass(frozen=True)
class AlignerFolder:
    """A folder that this run may write into.

    Attributes:
        path: what the user named.
        record: of the finished aligner that this run would make; None = there is none yet.
    """

    path: Path
    record: dict[str, Any] | None = None

    @property
    def training(self) -> Path:
        """Where the unfinished run keeps its state."""
        return self.path / _TRAINING

    def start_finished(self) -> Path:
        """Return an empty folder for the files that the finished aligner consists of."""
        finished = self.training / _FINISHED
        shutil.rmtree(finished, ignore_errors=True)
        finished.mkdir(parents=True)
        return finished

    def finish(self, record: Mapping[str, Any]) -> None:
        """Move the finished files up, the record last, and delete the training's state."""
        # What an older aligner left under these names would make a mixture of two look finished.
        (self.path / RECORD_FILE).unlink(missing_ok=True)
        for part in sorted((self.training / _FINISHED).iterdir()):
            goal = self.path / part.name
            if goal.is_dir():
                shutil.rmtree(goal)
            part.replace(goal)
        write_atomically(self.path / RECORD_FILE, [json.dumps(record, indent=1, ensure_ascii=False) + "\n"])
        shutil.rmtree(self.training)


def open_folder(path: Path, identity: Mapping[str, Any], *, overwrite: bool = False) -> AlignerFolder:
    """Return the folder of a run: a new one, one to go on with, or one that is finished.

    Args:
        identity: what makes a run this run, JSON-able; its words are used in messages.
        overwrite: start anew, whatever is there. A finished aligner stays until the new one takes its place.

    Raises:
        InputError: the folder holds another aligner, another unfinished run, or a README.md that is none's.
    """
    check_output_folder(path)
    plain = json.loads(json.dumps(identity))
    record = read_record(path) if is_aligner_folder(path) else None
    if record is not None and not overwrite:
        _check_same(path, record["identity"], plain, "an aligner that")
        return AlignerFolder(path, record)
    folder = AlignerFolder(path)
    identity_file = folder.training / _IDENTITY
    if folder.training.exists() and not overwrite:
        _check_same(path, _read(identity_file), plain, "an unfinished aligner that")
        return folder
    if record is None and (path / CARD_FILE).exists() and not folder.training.exists():
        raise InputError(f"{path}: holds a {CARD_FILE} that is no aligner's; choose another folder")
    if folder.training.exists():
        shutil.rmtree(folder.training)
    try:
        folder.training.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}); choose another folder") from error
    write_atomically(identity_file, [json.dumps(plain, indent=1, ensure_ascii=False) + "\n"])
    return folder


def is_aligner_folder(path: str | Path) -> bool:
    """Tell whether a folder holds a finished aligner."""
    return (Path(path) / RECORD_FILE).is_file()


def read_record(path: str | Path) -> dict[str, Any]:
    """Return the record of a finished aligner.

    Raises:
        InputError: it cannot be read, or was written by a newer version.
    """
    record = _read(Path(path) / RECORD_FILE)
    if record.get("format") != FORMAT:
        raise InputError(
            f"{Path(path) / RECORD_FILE}: format {record.get('format')!r}, but this version reads {FORMAT}; train the "
            "aligner again, or install the version that it names"
        )
    return record


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}); start anew by --overwrite") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds no JSON object; start anew by --overwrite")
    return content


def _check_same(path: Path, old: Mapping[str, Any], new: Mapping[str, Any], what: str) -> None:
    differing = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    if differing:
        raise InputError(
            f"{path}: holds {what} is not this one (it differs in: {', '.join(differing)}); repeat its own command, "
            "choose another folder, or start anew by --overwrite"
        )
