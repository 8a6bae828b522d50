"""The folder of an aligner, from its first minute to its last.

aligner.json          what it is: settings, teachers, seeds, text, versions; the last file to appear
network*              weights and vocabulary
builtin/FORM/         a statistical aligner for each form of the text, for texts to come
README.md             the card
.aligner-training/    while it is unfinished: whose it is, teachers' links, checkpoints, the finished files
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
_TRAINING, _IDENTITY, _FINISHED = ".aligner-training", "identity.json", "finished"
_PARTS = (
    RECORD_FILE,
    CARD_FILE,
    "network.json",
    "network-*.safetensors",
    "builtin",
    "links.pharaoh-p.gz",
    "suggestions.tsv",
)
"""What an aligner consists of, as patterns of names."""


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
        # What is left of an older aligner would make a mixture of two look finished; the record, first, says it is one.
        for part in _parts_in(self.path):
            if part.is_dir():
                shutil.rmtree(part)
            else:
                part.unlink()
        for part in sorted((self.training / _FINISHED).iterdir()):
            part.replace(self.path / part.name)
        write_atomically(self.path / RECORD_FILE, [json.dumps(record, indent=1, ensure_ascii=False) + "\n"])
        shutil.rmtree(self.training)


def open_folder(path: Path, identity: Mapping[str, Any], *, overwrite: bool = False) -> AlignerFolder:
    """Return the folder of a run: a new one, one to go on with, or one that is finished.

    An unfinished run of this identity goes on in any case, as it comes to the same links or, where it was given
    minutes, has part of them left.

    Args:
        identity: what makes a run this run, JSON-able; its words are used in messages.
        overwrite: another aligner or unfinished run may be there. A finished one stays until the new one takes its
            place.

    Raises:
        InputError: the folder holds another aligner, another unfinished run, or files of these names that are none's.
    """
    check_output_folder(path)
    plain = json.loads(json.dumps(identity))
    folder = AlignerFolder(path)
    identity_file = folder.training / _IDENTITY
    begun = folder.training.exists()
    if begun and _said(identity_file) == plain:
        return folder
    record = read_record(path) if is_aligner_folder(path) else None
    if not overwrite and record is not None:
        _check_same(path, record["identity"], plain, "an aligner that")
        return AlignerFolder(path, record)
    if not overwrite and begun:
        _check_same(path, _read(identity_file), plain, "an unfinished aligner that")
    if record is None and not begun and (foreign := _parts_in(path)):
        raise InputError(f"{path}: holds a {foreign[0].name} that is no aligner's; choose another folder")
    if begun:
        shutil.rmtree(folder.training)
    try:
        folder.training.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}); choose another folder") from error
    write_atomically(identity_file, [json.dumps(plain, indent=1, ensure_ascii=False) + "\n"])
    return folder


def _parts_in(path: Path) -> list[Path]:
    """Return what lies in a folder under the names of an aligner's parts, the record first."""
    return [part for pattern in _PARTS for part in sorted(path.glob(pattern))]


def _said(identity_file: Path) -> dict[str, Any] | None:
    try:
        return _read(identity_file)
    except InputError:
        return None


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
