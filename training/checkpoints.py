"""Checkpoints that are whole or count as none: sealed by a manifest, named last, deleted at one stroke.

A checkpoint is written into a folder of another name, sealed by a manifest with the size and SHA-256 of each file, and
then renamed. Whatever moment a process is killed at, a folder named `checkpoint-STEP` holds either all that was
written or, after a fault of disk or machine, something that the manifest gives away.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

MANIFEST_FILE = "manifest.json"
CHECKPOINT = "checkpoint"
RESCUE = "rescue"
"""Name of the checkpoints that time, not the number of steps, asked for; choosing and averaging leaves them out."""
_NAME = re.compile(rf"({CHECKPOINT}|{RESCUE})-(\d+)")
_REMOVING = "removing-"


def seal(folder: Path) -> None:
    """Write the manifest of everything in `folder`, after all of it has reached the disk.

    Raises:
        OSError: the disk is full, or a file cannot be read back.
    """
    files = {}
    for path in _files(folder):
        flush_to_disk(path)
        files[path.relative_to(folder).as_posix()] = {"size": path.stat().st_size, "sha256": sha256(path)}
    manifest = folder / MANIFEST_FILE
    manifest.write_text(json.dumps(files, indent=1) + "\n", encoding="utf-8")
    for path in (manifest, *(part for part in folder.rglob("*") if part.is_dir()), folder):
        flush_to_disk(path)


def read_manifest(folder: Path) -> dict[str, dict[str, str | int]] | None:
    """Return name -> size and sha256 of the files that were sealed; None if there is no manifest to read."""
    try:
        files = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return files if isinstance(files, dict) else None


def find_damage(folder: Path) -> str | None:
    """Return what is wrong with a sealed folder, in words; None if it is whole."""
    files = read_manifest(folder)
    if files is None:
        return f"no readable {MANIFEST_FILE}"
    for name, sealed in files.items():
        damage = _damage_of_file(folder / name, sealed)
        if damage:
            return f"{name} {damage}"
    return None


def is_sealed_file(path: Path, sealed: dict[str, str | int]) -> bool:
    """Tell whether a file is there and is what the manifest says."""
    return _damage_of_file(path, sealed) is None


def publish(written: Path, name: Path) -> None:
    """Give a sealed folder its name, in place of a folder that has it."""
    if name.exists():
        remove(name)
    written.rename(name)
    flush_to_disk(name.parent)


def remove(folder: Path) -> None:
    """Delete a folder under another name, so that a deletion cut short leaves no half of it under this one."""
    if not folder.exists():
        return
    going = folder.with_name(_REMOVING + folder.name)
    shutil.rmtree(going, ignore_errors=True)
    folder.rename(going)
    shutil.rmtree(going, ignore_errors=True)


def step_of(checkpoint: Path) -> int:
    """Return the step that stands in the name of a checkpoint."""
    match = _NAME.fullmatch(checkpoint.name)
    if match is None:
        raise ValueError(f"{checkpoint}: not the name of a checkpoint")
    return int(match[2])


def list_checkpoints(folder: Path, kind: str | None = None) -> list[Path]:
    """Return the checkpoints in `folder`, oldest step first, whole or not; of one kind, or of both."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if path.is_dir() and _NAME.fullmatch(path.name)]
    return sorted((path for path in found if kind is None or path.name.startswith(f"{kind}-")), key=step_of)


def rotate(folder: Path, limit: int | None, keep: Collection[Path] = ()) -> None:
    """Delete the oldest checkpoints beyond `limit`, but never the last two, nor `keep`; and rescues that are outdated.

    Two, so that one is left if the last turns out damaged.
    """
    for path in list_checkpoints(folder, RESCUE):
        if path != list_checkpoints(folder)[-1]:
            remove(path)
    if limit is None or limit <= 0:
        return
    checkpoints = list_checkpoints(folder, CHECKPOINT)
    spare = [path for path in checkpoints[:-2] if path not in keep]
    for path in spare[: max(len(checkpoints) - max(limit, 2), 0)]:
        remove(path)


def find_checkpoint(folder: Path, *, needs_older: bool = False) -> Path | None:
    """Return the last whole checkpoint, None if there is none; say in a line which ones are not whole.

    Every later folder, and what killed processes left half written, is deleted: the run makes them anew.

    Args:
        needs_older: the end of the run reads older checkpoints too (the best one, or several to average), so that a
            checkpoint counts only if all that stand before it are whole.
    """
    found: Path | None = None
    damaged: list[str] = []
    for path in list_checkpoints(folder):
        damage = find_damage(path)
        if damage is None:
            found = path
            continue
        damaged.append(f"{path} is not whole ({damage})")
        if needs_older and path.name.startswith(CHECKPOINT):
            break
    for line in damaged:
        logger.warning("%s; %s", line, f"going on from {found.name}" if found else "starting from step 0")
    for path in list_checkpoints(folder):
        if found is None or step_of(path) > step_of(found) or (path != found and find_damage(path)):
            remove(path)
    clear_leavings(folder)
    return found


def clear_leavings(folder: Path) -> None:
    """Delete what killed processes left half deleted."""
    for path in folder.glob(_REMOVING + "*"):
        shutil.rmtree(path, ignore_errors=True)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def flush_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, have reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST_FILE)


def _damage_of_file(path: Path, sealed: dict[str, str | int]) -> str | None:
    try:
        if path.stat().st_size != sealed["size"]:
            return f"has {path.stat().st_size:,} bytes, not {sealed['size']:,}"
        return None if sha256(path) == sealed["sha256"] else "holds other bytes than were written"
    except FileNotFoundError:
        return "is missing"
    except (OSError, KeyError, TypeError, ValueError) as error:
        return f"cannot be checked ({error})"
