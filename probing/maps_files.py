"""Attention maps on disk: one NPZ file for many sentence pairs, which plain numpy reads; no pickle.

    with numpy.load("maps.npz", allow_pickle=False) as file:
        file["0.weights"]                          # (L, H, T, S) of the first pair
        json.loads(file["0.json"])                 # its tokens, spans and words, rows, layers and heads
        json.loads(file["maps.json"])              # number of pairs, model, revision, versions

What is read equals what was written, bit by bit. A file that was cut off or altered is refused.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from hf_seq2seq_attn.text_files import InputError

from .attention_maps import AttentionMaps
from .formats import write_bytes_atomically
from .provenance import library_versions, model_record
from .tokens import TokenizedText
from .value_norms import ValueNorms

_RECORD = "maps.json"
_FORMAT = "hf_seq2seq_attn attention maps"
_VERSION = 1
_TEXTS = ("source", "target")


def write_maps(path: str | Path, maps: Iterable[AttentionMaps], *, model: Any = None) -> int:
    """Write the maps of sentence pairs one by one, in constant memory, and return how many there were.

    The same maps give the same bytes. The file appears only when it is complete.

    Args:
        model: the model that gave them, or its folder or Hub id; its name and revision are kept with the maps.

    Raises:
        InputError: the file cannot be written.
    """
    written = 0

    def write(temporary: Path) -> None:
        nonlocal written
        with zipfile.ZipFile(temporary, "w") as archive:
            for number, each in enumerate(maps):
                _add(archive, f"{number}.json", json.dumps(_described(each), ensure_ascii=False).encode())
                for name, array in _arrays(each).items():
                    stream = io.BytesIO()
                    np.lib.format.write_array(stream, np.asarray(array, dtype=np.float32), allow_pickle=False)
                    _add(archive, f"{number}.{name}.npy", stream.getvalue())
                written += 1
            # Last, so that a file without it is known to be incomplete.
            _add(archive, _RECORD, json.dumps(_record(written, model), ensure_ascii=False).encode())

    write_bytes_atomically(Path(path), write)
    return written


def iterate_maps(path: str | Path) -> Iterator[AttentionMaps]:
    """Yield the maps of a file in order, one pair in memory at a time.

    Raises:
        InputError: no such file, another kind of file, or one that is torn or altered; names the pair.
    """
    path = Path(path)
    with _Opened(path) as archive:
        for number in range(_read_record(archive, path)["pairs"]):
            yield _read_pair(archive, path, number)


def read_maps_record(path: str | Path) -> dict[str, Any]:
    """Return what a file of maps says of itself: `pairs`, `model`, `revision`, `versions`; errors as `iterate_maps`."""
    path = Path(path)
    with _Opened(path) as archive:
        record = _read_record(archive, path)
    return {name: record[name] for name in ("pairs", "model", "revision", "versions")}


def _record(pairs: int, model: Any) -> dict[str, Any]:
    known = {"name": None, "revision": None} if model is None else model_record(model)
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "pairs": pairs,
        "model": known["name"],
        "revision": known["revision"],
        "versions": library_versions(),
    }


def _described(maps: AttentionMaps) -> dict[str, Any]:
    """Return all of the maps but the arrays."""
    plain = {
        field.name: getattr(maps, field.name)
        for field in fields(maps)
        if field.name not in ("weights", "norms", *_TEXTS)
    }
    texts = {
        side: {field.name: getattr(getattr(maps, side), field.name) for field in fields(TokenizedText)}
        for side in _TEXTS
    }
    return {**plain, **texts, "norms": None if maps.norms is None else {"has_null": maps.norms.has_null}}


def _arrays(maps: AttentionMaps) -> dict[str, np.ndarray]:
    arrays = {"weights": maps.weights}
    if maps.norms is not None:
        arrays |= {"norms.attention": maps.norms.attention, "norms.products": maps.norms.products}
    return arrays


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    # Without a time the same maps give the same bytes.
    member = zipfile.ZipInfo(name)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, content)


class _Opened:
    """The archive while it is read; what goes wrong with it becomes bad input."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> zipfile.ZipFile:
        try:
            self._archive = zipfile.ZipFile(self.path)
        except FileNotFoundError as error:
            raise InputError(f"{self.path}: no such file; check the path") from error
        except (OSError, zipfile.BadZipFile) as error:
            raise InputError(f"{self.path}: no readable file of maps ({error}); write it again") from error
        return self._archive

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._archive.close()
        if isinstance(error, OSError | zipfile.BadZipFile | zlib.error | EOFError):
            raise InputError(f"{self.path}: no readable file of maps ({error}); write it again") from error


def _read_record(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    try:
        record = json.loads(archive.read(_RECORD))
        if record["format"] != _FORMAT or not isinstance(record["pairs"], int):
            raise ValueError("it is not ours")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: no file of maps ({error}); write it with AttentionMaps.save or write_maps"
        ) from error
    if record["version"] > _VERSION:
        raise InputError(f"{path}: was written by a newer version of this package ({record['versions']}); update")
    result: dict[str, Any] = record
    return result


def _read_pair(archive: zipfile.ZipFile, path: Path, number: int) -> AttentionMaps:
    try:
        content = json.loads(archive.read(f"{number}.json"))
        source, target = (_text(content.pop(side)) for side in _TEXTS)
        norms = content.pop("norms")
        if norms is not None:
            attention, products = (
                _array(archive, f"{number}.norms.{name}.npy", 4) for name in ("attention", "products")
            )
            norms = ValueNorms(attention, products, norms["has_null"])
        weights = _array(archive, f"{number}.weights.npy", 4)
        layers, heads = tuple(content.pop("layers")), tuple(content.pop("heads"))
        if weights.shape != (len(layers), len(heads), len(target.ids), len(source.ids)):
            raise ValueError(f"weights of shape {weights.shape} do not fit its tokens, layers and heads")
        return AttentionMaps(
            weights=weights, source=source, target=target, layers=layers, heads=heads, norms=norms, **content
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: pair {number} cannot be read ({error}); write the file again") from error


def _text(content: dict[str, Any]) -> TokenizedText:
    content["spans"] = [None if span is None else tuple(span) for span in content["spans"]]
    content["roles"] = tuple(content["roles"])
    return TokenizedText(**content)


def _array(archive: zipfile.ZipFile, name: str, dimensions: int) -> np.ndarray:
    with archive.open(name) as stream:
        array = np.lib.format.read_array(stream, allow_pickle=False)
    if array.ndim != dimensions or array.dtype != np.float32:
        raise ValueError(f"{name} has shape {array.shape} and type {array.dtype}")
    return array
