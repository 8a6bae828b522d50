"""Soft alignments on disk: one matrix for each sentence pair in an NPZ file that plain numpy reads.

    arrays = numpy.load("maps.npz", allow_pickle=False)
    arrays["0"]                                # (T, S) of the first line: target words by source words

The arrays are named 0, 1, ... N - 1 for N lines, blank ones included: a blank side gives a matrix without rows or
without columns.
"""

import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from hf_seq2seq_attn.text_files import InputError

from .formats import write_bytes_atomically

MATRIX_DTYPES = ("float32", "float16")


def write_matrices(path: str | Path, matrices: Iterable[np.ndarray], *, dtype: str = "float32") -> int:
    """Write matrices one by one, in constant memory, and return how many there were.

    The same matrices give the same bytes. The file appears only when it is complete.

    Args:
        matrices: (T, S) each.
        dtype: `float32` or `float16` (half the size, three digits; weights below 6e-8 become 0).

    Raises:
        InputError: the file cannot be written.
        ValueError: another dtype, or an array that is no matrix.
    """
    if dtype not in MATRIX_DTYPES:
        raise ValueError(f"dtype is {dtype!r}; allowed are {', '.join(MATRIX_DTYPES)}")
    written = 0

    def write(temporary: Path) -> None:
        nonlocal written
        with zipfile.ZipFile(temporary, "w") as archive:
            for number, matrix in enumerate(matrices):
                if np.ndim(matrix) != 2:
                    raise ValueError(f"matrix {number} has shape {np.shape(matrix)}; it must be (T, S)")
                member = zipfile.ZipInfo(f"{number}.npy")
                member.compress_type = zipfile.ZIP_DEFLATED
                with archive.open(member, "w") as stream:
                    np.lib.format.write_array(stream, np.asarray(matrix, dtype=dtype), allow_pickle=False)
                written += 1

    write_bytes_atomically(Path(path), write)
    return written


def iterate_matrices(path: str | Path) -> Iterator[np.ndarray]:
    """Yield the matrices of an NPZ file in order, (T, S) float32 each, one in memory at a time.

    Raises:
        InputError: no such file, no NPZ file, a number that is missing, or an array that is no matrix of finite numbers
            of at least 0; names the array.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            for number in range(len(archive.namelist())):
                yield _matrix(archive, number, path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; check the path") from error
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: no readable NPZ file ({error}); write it again") from error


def _matrix(archive: zipfile.ZipFile, number: int, path: Path) -> np.ndarray:
    try:
        with archive.open(f"{number}.npy") as stream:
            matrix = np.lib.format.read_array(stream, allow_pickle=False)
    except KeyError as error:
        raise InputError(f"{path}: array {number} is missing; the names must be 0, 1, 2, ...") from error
    except ValueError as error:
        raise InputError(f"{path}: array {number} cannot be read ({error})") from error
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise InputError(f"{path}: array {number} has shape {matrix.shape} and type {matrix.dtype}; (T, S) is needed")
    if not (np.isfinite(matrix) & (matrix >= 0)).all():
        raise InputError(f"{path}: array {number} holds a weight that is negative, NaN or infinite")
    return matrix.astype(np.float32)
