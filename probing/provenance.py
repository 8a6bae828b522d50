"""Where a result comes from: the model, its revision and the versions of the libraries."""

import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

_LIBRARIES = ("hf-seq2seq-attn", "torch", "transformers", "numpy")
# What decides a model's maps: weights, configuration, tokenizers, code. Cards, metrics and pictures do not.
_SUFFIXES = (".safetensors", ".bin", ".model", ".spm", ".json", ".txt", ".py")
_BESIDE_THE_MODEL = ("metrics.json", "trainer_state.json", "requirements.txt")
_BLOCK = 1 << 20


def library_versions() -> dict[str, str]:
    """Return the versions of this package, of what it computes with, and of Python."""
    return {name: importlib.metadata.version(name) for name in _LIBRARIES} | {"python": platform.python_version()}


def model_record(model: Any) -> dict[str, str | None]:
    """Return a model's `name` and `revision`.

    The revision is the Hub's commit; for a folder `sha256:` and the first 16 digits over its weights, configuration,
    tokenizers and code; None for a model that was never saved.

    Args:
        model: a model, or the folder or Hub id that one is loaded from.
    """
    if isinstance(model, str | Path):
        name, commit = str(model), None
        if not Path(name).is_dir():
            from transformers import AutoConfig

            # A name that cannot be loaded is for the loader to refuse.
            with suppress(OSError, ValueError):
                commit = getattr(AutoConfig.from_pretrained(name), "_commit_hash", None)
    else:
        name = str(getattr(model, "name_or_path", "") or "") or type(model).__name__
        commit = getattr(model.config, "_commit_hash", None)
    if commit is None and Path(name).is_dir():
        commit = _folder_digest(Path(name))
    return {"name": name, "revision": commit}


def describe_origin(result: Mapping[str, Any]) -> list[str]:
    """Return in words, a line each, the `model`, the `reverse_model` if there is one, and the `versions` of a result.

    Args:
        result: holds what `model_record` and `library_versions` return under these names.
    """
    records = {"model": result["model"], "reverse model": result.get("reverse_model")}
    lines = [
        f"{name} {record['name']} (revision {record['revision'] or 'unknown'})"
        for name, record in records.items()
        if record is not None
    ]
    return [*lines, ", ".join(f"{name} {version}" for name, version in result["versions"].items())]


def _folder_digest(folder: Path) -> str:
    files = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and path.suffix in _SUFFIXES and path.name not in _BESIDE_THE_MODEL
    )
    digest = hashlib.sha256()
    for path in files:
        status = path.stat()
        digest.update(f"{path.name}\0{_file_digest(path, status.st_size, status.st_mtime_ns)}\0".encode())
    return f"sha256:{digest.hexdigest()[:16]}"


@cache
def _file_digest(path: Path, size: int, modified: int) -> str:
    """Hash a file once for each state it is in: `size` and `modified` tell a changed file from the one hashed."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
