"""The folder of a run from its first minute to its last: whose it is, what it goes on from, when it is finished.

While a run is unfinished, `checkpoints/run.json` says which run it is: its recipe, the bytes of its files, its number
of processes. The finished files are gathered in `checkpoints/finished`, sealed, and then moved up, the weights and the
metrics last; when `checkpoints` is gone, the run is finished.

An unfinished run that is to be overwritten lies in `checkpoints/replaced` until the new one has read its data, and is
put back if that comes to nothing.
"""

import dataclasses
import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.probing import CHOICE_FILE, write_atomically
from hf_seq2seq_attn.text_files import InputError

from .checkpoints import (
    MANIFEST_FILE,
    clear_leavings,
    find_checkpoint,
    find_damage,
    flush_to_disk,
    is_sealed_file,
    list_checkpoints,
    publish,
    read_manifest,
    remove,
    seal,
    sha256,
)
from .data_recipe import CorpusDataset, corpora_of, local_files
from .processes import from_first, is_first_process, process_count
from .recipe import Recipe
from .run_record import CARD_FILE, METRICS_FILE, REPORT_FILE, versions

logger = logging.getLogger(__name__)

CHECKPOINTS_FOLDER = "checkpoints"
WEIGHTS_FILE = "model.safetensors"
_IDENTITY_FILE = "run.json"
_LOCK_FILE = "lock"
_FINISHED_FOLDER = "finished"
_TOKENIZER_FOLDER = "tokenizer"
_REPLACED_FOLDER = "replaced"
_LOCKS: dict[Path, Any] = {}


@dataclass(frozen=True)
class RunFolder:
    """A folder that this run may write into.

    Attributes:
        run_dir: what the user named.
        checkpoint: what to continue from; None = from the start.
        is_written: all files of the finished run are there; an earlier start was ended before it could tidy up.
        started: when the run began, the first time.
    """

    run_dir: Path
    started: str = ""
    checkpoint: Path | None = None
    is_written: bool = False

    @property
    def checkpoints(self) -> Path:
        """Where the Trainer saves. Checkpoints hold pickles, so they stay out of what is shared."""
        return self.run_dir / CHECKPOINTS_FOLDER

    @property
    def tokenizer(self) -> Path:
        """Where the tokenizer of this run is kept from its start on, once it is trained."""
        return self.checkpoints / _TOKENIZER_FOLDER

    def keep_tokenizer(self, tokenizer: Any) -> None:
        """Keep a tokenizer, whole or not at all, so that a restart has the same, however it was trained."""
        written = self.checkpoints / f"saving-{_TOKENIZER_FOLDER}"
        remove(written)
        tokenizer.save_pretrained(written)
        seal(written)
        publish(written, self.tokenizer)

    def has_tokenizer(self) -> bool:
        """Tell whether a whole tokenizer is kept."""
        return find_damage(self.tokenizer) is None

    def start_finished(self) -> Path:
        """Return an empty folder for the files that the finished run consists of."""
        remove(self._finished)
        self._finished.mkdir(parents=True)
        return self._finished

    def finish(self) -> None:
        """Move the finished files up, the metrics last, and delete the checkpoints.

        Raises:
            OSError: the disk is full, or a file cannot be moved; the same call may be made again.
        """
        if find_damage(self._finished) is not None and not self.is_written:
            seal(self._finished)
        names = sorted(path.name for path in self._finished.iterdir() if path.name != MANIFEST_FILE)
        last = [name for name in (WEIGHTS_FILE, METRICS_FILE) if name in names]
        # A choice of heads or a report that was made of an earlier model is not this one's, unless it was moved up by
        # an earlier call.
        own = read_manifest(self._finished) or {}
        foreign = [name for name in (CHOICE_FILE, REPORT_FILE) if name not in own]
        # What an earlier run left under the last names would make a mixture of two look finished.
        for name in [*last, *foreign]:
            (self.run_dir / name).unlink(missing_ok=True)
        for name in [*(name for name in names if name not in last), *last]:
            goal = self.run_dir / name
            if goal.is_dir():
                shutil.rmtree(goal)
            (self._finished / name).replace(goal)
        flush_to_disk(self.run_dir)
        (self.checkpoints / _IDENTITY_FILE).unlink(missing_ok=True)
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def forget_replaced(self) -> None:
        """Delete the unfinished run that this one takes the place of: it is about to train."""
        if is_first_process():
            remove(self.replaced)

    def abandon(self) -> None:
        """Leave nothing of a run that came to nothing; one with checkpoints stays, one that it replaced comes back."""
        if not is_first_process():
            return
        if self.replaced.exists():
            _put_back(self)
        elif not list_checkpoints(self.checkpoints) and not _is_written(self):
            shutil.rmtree(self.checkpoints, ignore_errors=True)
            with suppress(OSError):
                self.run_dir.rmdir()

    def release(self) -> None:
        """Let others train here; the end of the process does it too."""
        stream = _LOCKS.pop(self.checkpoints.absolute(), None)
        if stream is not None:
            stream.close()

    @property
    def replaced(self) -> Path:
        """Where an unfinished run waits while the one that overwrites it reads its data."""
        return self.checkpoints / _REPLACED_FOLDER

    @property
    def _finished(self) -> Path:
        return self.checkpoints / _FINISHED_FOLDER


def open_run(run_dir: Path, recipe: Recipe, *, overwrite: bool = False, needs_older: bool = False) -> RunFolder:
    """Return the folder of this run, new or continued. The first process looks; all get the same answer.

    Args:
        overwrite: start anew, whatever is there. A finished model stays until the new one takes its place, the
            checkpoints of an unfinished run until `RunFolder.forget_replaced`.
        needs_older: as in `checkpoints.find_checkpoint`.

    Raises:
        InputError: the folder holds a finished model, an unfinished run by another recipe, on other files or on
            another number of processes, or a run that is going on now.
    """
    found = from_first(lambda: _open(run_dir, recipe, overwrite, needs_older))
    checkpoint = None if found["checkpoint"] is None else Path(found["checkpoint"])
    return RunFolder(run_dir, found["started"], checkpoint, found["is_written"])


def identify(recipe: Recipe, known_files: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what makes a run this run: its recipe, the files that it names, its number of processes; and versions.

    Args:
        known_files: the `files` of an earlier identity: a file of the same size and time is not read again.
    """
    known = known_files or {}
    identity = {
        "recipe": dataclasses.asdict(recipe),
        "files": {str(path): _file_identity(path, known.get(str(path))) for path in sorted(set(_files(recipe)))},
        "processes": process_count(),
        "versions": versions(),
    }
    return json.loads(json.dumps(identity, default=str))


def _files(recipe: Recipe) -> Iterator[Path]:
    """Yield the local files that the run reads: of its corpora, and of the model that it begins with."""
    for corpus in (*corpora_of(recipe.data), recipe.data.dev, recipe.data.test):
        if isinstance(corpus, CorpusDataset):
            yield from (path for path in Path(corpus.dataset).rglob("*") if path.is_file())
        elif corpus is not None:
            # A file that is missing is refused where it is read.
            yield from (path for path in local_files(corpus) if path.is_file())
    init_from = recipe.model.get("init_from")
    if init_from is not None:
        yield from (path for path in Path(init_from).rglob("*") if path.is_file())


def _file_identity(path: Path, known: Mapping[str, Any] | None) -> dict[str, Any]:
    state = {"size": path.stat().st_size, "time": path.stat().st_mtime_ns}
    if known is not None and all(known.get(key) == value for key, value in state.items()):
        return dict(known)
    return state | {"sha256": sha256(path)}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return what is not the same in two identities, each in words; versions aside."""
    found = []
    before, now = dict(_leaves(old["recipe"])), dict(_leaves(new["recipe"]))
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            found.append(f"{name} was {before.get(name)!r}, is now {now.get(name)!r}")
    for name in sorted(old["files"].keys() | new["files"].keys()):
        if name not in new["files"]:
            found.append(f"{name} is gone")
        elif name in old["files"] and old["files"][name]["sha256"] != new["files"][name]["sha256"]:
            found.append(f"{name} holds other bytes than when the run began")
    if old["processes"] != new["processes"]:
        found.append(f"it had {old['processes']} process(es), now {new['processes']}")
    return found


def _open(run_dir: Path, recipe: Recipe, overwrite: bool, needs_older: bool) -> dict[str, Any]:
    run = RunFolder(run_dir)
    identity_file = run.checkpoints / _IDENTITY_FILE
    waiting = run.replaced / _IDENTITY_FILE
    old = None if overwrite else _read_identity(waiting if waiting.exists() else identity_file)
    if old is None and not overwrite and any((run_dir / name).exists() for name in (WEIGHTS_FILE, METRICS_FILE)):
        raise InputError(f"{run_dir}: already holds a model; choose another folder, or overwrite it by --overwrite")
    if old is None and not overwrite and (run_dir / CARD_FILE).exists():
        raise InputError(
            f"{run_dir}: already holds a {CARD_FILE}, which the run's card would replace; choose another folder, or "
            "replace it by --overwrite"
        )
    try:
        run.checkpoints.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{run_dir}: cannot be made ({error.strerror}); choose another folder") from error
    _lock(run.checkpoints)
    try:
        _put_back(run)
        return _examine(run, recipe, old, needs_older)
    except BaseException:
        run.release()
        raise


def _examine(run: RunFolder, recipe: Recipe, old: dict[str, Any] | None, needs_older: bool) -> dict[str, Any]:
    """Return what `_open` returns, for a folder that this process holds."""
    run_dir, identity_file = run.run_dir, run.checkpoints / _IDENTITY_FILE
    identity = identify(recipe, None if old is None else old["files"])
    has_work = bool(list_checkpoints(run.checkpoints)) or _is_written(run)
    different = [] if old is None else differences(old, identity)
    # Where nothing was trained yet, nothing is lost by another recipe.
    if old is None or (different and not has_work):
        _start_anew(run, keeps_old=has_work and identity_file.exists())
        identity["started"] = datetime.now(UTC).isoformat(timespec="seconds")
        write_atomically(identity_file, [json.dumps(identity, indent=1) + "\n"])
        return {"started": identity["started"], "checkpoint": None, "is_written": False}
    if different:
        shown = "; ".join(different[:3]) + (f"; and {len(different) - 3} more" if len(different) > 3 else "")
        raise InputError(
            f"{run_dir}: holds an unfinished run that is not this one ({shown}); give its own recipe and files to go "
            "on with it, choose another folder, or start anew by --overwrite"
        )
    for name, version in identity["versions"].items():
        if old["versions"].get(name) != version:
            logger.warning("the run began with %s %s, goes on with %s", name, old["versions"].get(name), version)
    clear_leavings(run.checkpoints)
    if _is_written(run):
        logger.warning("%s: was trained already; its files are put in place", run_dir)
        return {"started": old["started"], "checkpoint": None, "is_written": True}
    checkpoint = find_checkpoint(run.checkpoints, needs_older=needs_older)
    if checkpoint is not None:
        logger.warning("%s: going on from %s", run_dir, checkpoint.name)
    found = None if checkpoint is None else str(checkpoint)
    return {"started": old["started"], "checkpoint": found, "is_written": False}


def _read_identity(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}); start anew by --overwrite") from error


def _start_anew(run: RunFolder, *, keeps_old: bool) -> None:
    """Set what an earlier run left among the checkpoints aside, or delete it."""
    old = list_checkpoints(run.checkpoints)
    if old:
        logger.warning("%s: takes the place of a run with %d checkpoint(s)", run.run_dir, len(old))
    if keeps_old:
        run.replaced.mkdir()
        for path in _parts(run.checkpoints, last=_IDENTITY_FILE):
            path.replace(run.replaced / path.name)
        return
    # What says whose they are goes first.
    (run.checkpoints / _IDENTITY_FILE).unlink(missing_ok=True)
    _delete(_parts(run.checkpoints))


def _put_back(run: RunFolder) -> None:
    """Undo `_start_anew` of a run that came to nothing, wherever it was killed.

    Whose they are is set aside last and put back first: where it lies there, what is left here is the newer run's.
    """
    if not run.replaced.exists():
        return
    if (run.replaced / _IDENTITY_FILE).exists():
        _delete(_parts(run.checkpoints))
        (run.replaced / _IDENTITY_FILE).replace(run.checkpoints / _IDENTITY_FILE)
    for path in _parts(run.replaced):
        path.replace(run.checkpoints / path.name)
    run.replaced.rmdir()


def _parts(folder: Path, last: str = "") -> list[Path]:
    """Return what belongs to one run in `folder`; the name `last` at the end."""
    parts = [path for path in folder.iterdir() if path.name not in (_LOCK_FILE, _REPLACED_FOLDER)]
    return sorted(parts, key=lambda path: (path.name == last, path.name))


def _delete(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _is_written(run: RunFolder) -> bool:
    """Tell whether each finished file is whole, here or already moved up."""
    finished = run.checkpoints / _FINISHED_FOLDER
    files = read_manifest(finished)
    return files is not None and all(
        any(is_sealed_file(folder / name, sealed) for folder in (finished, run.run_dir))
        for name, sealed in files.items()
    )


def _lock(folder: Path) -> None:
    """Hold `folder` until this process ends, however it ends; where the file system has no locks, do without."""
    try:
        import fcntl
    except ImportError:
        return
    stream = (folder / _LOCK_FILE).open("w")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        stream.close()
        raise InputError(f"{folder}: another process is training here; wait for it, or end it") from error
    except OSError:
        logger.warning("%s: the file system has no locks; start no second run in this folder", folder)
    _LOCKS[folder.absolute()] = stream


def _leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a tree of tables, with its dotted name."""
    if not isinstance(tree, Mapping):
        yield name, tree
        return
    for key, part in tree.items():
        yield from _leaves(part, f"{name}.{key}" if name else str(key))
