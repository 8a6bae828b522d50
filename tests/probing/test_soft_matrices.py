"""Matrices on disk: plain numpy reads them, N in gives N out."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from hf_seq2seq_attn.probing import iterate_matrices, write_matrices
from hf_seq2seq_attn.text_files import InputError

GENERATOR = np.random.default_rng(0)
MATRICES = [GENERATOR.random(shape, dtype=np.float32) for shape in ((3, 5), (0, 4), (2, 0), (0, 0), (7, 2))] * 3


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_plain_numpy_reads_what_is_written(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "m.npz"
    assert write_matrices(path, iter(MATRICES), dtype=dtype) == 15
    with np.load(path, allow_pickle=False) as arrays:
        assert arrays.files == [str(number) for number in range(15)]
        for number, matrix in enumerate(MATRICES):
            assert arrays[str(number)].dtype == dtype
            np.testing.assert_array_equal(arrays[str(number)], matrix.astype(dtype))
    read = list(iterate_matrices(path))
    assert [matrix.shape for matrix in read] == [matrix.shape for matrix in MATRICES]
    assert {matrix.dtype for matrix in read} == {np.dtype(np.float32)}
    first = path.read_bytes()
    write_matrices(path, MATRICES, dtype=dtype)
    assert path.read_bytes() == first


def test_what_numpy_writes_is_read_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", **{"1": MATRICES[4], "0": MATRICES[0].astype(np.float64)})
    first, second = iterate_matrices(tmp_path / "m.npz")
    np.testing.assert_array_equal(first, MATRICES[0])
    np.testing.assert_array_equal(second, MATRICES[4])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"0": MATRICES[0], "2": MATRICES[0]}, "array 1 is missing; the names must be 0, 1, 2"),
        ({"0": np.zeros(3)}, r"array 0 has shape \(3,\)"),
        ({"0": np.array([["a"]])}, "array 0 has shape .* and type <U1"),
        ({"0": np.array([[-1.0]])}, "array 0 holds a weight that is negative"),
        ({"0": np.array([[np.nan]])}, "array 0 holds a weight"),
        ({"0": np.array([[None]])}, "array 0 cannot be read .*allow_pickle"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "m.npz", **arrays)
    with pytest.raises(InputError, match=rf"m\.npz: {message}"):
        list(iterate_matrices(tmp_path / "m.npz"))


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.npz").write_text("0-0\n")
    with pytest.raises(InputError, match="no readable NPZ file"):
        list(iterate_matrices(tmp_path / "m.npz"))
    with pytest.raises(InputError, match="no such file"):
        list(iterate_matrices(tmp_path / "n.npz"))
    write_matrices(tmp_path / "m.npz", MATRICES)
    whole = (tmp_path / "m.npz").read_bytes()
    (tmp_path / "m.npz").write_bytes(whole[:200])
    with pytest.raises(InputError, match="no readable NPZ file"):
        list(iterate_matrices(tmp_path / "m.npz"))


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"matrix 1 has shape \(3,\)"):
        write_matrices(tmp_path / "m.npz", [MATRICES[0], np.zeros(3)])
    with pytest.raises(ValueError, match="dtype is 'float64'; allowed are float32, float16"):
        write_matrices(tmp_path / "m.npz", MATRICES, dtype="float64")
    with pytest.raises(InputError, match="cannot be written"):
        write_matrices(tmp_path / "no" / "m.npz", MATRICES)
    assert list(tmp_path.iterdir()) == []


def test_more_members_than_the_old_zip_format_holds(tmp_path: Path) -> None:
    blank = np.zeros((0, 1), dtype=np.float32)
    assert write_matrices(tmp_path / "m.npz", (blank for _ in range(70_000)), dtype="float16") == 70_000
    with zipfile.ZipFile(tmp_path / "m.npz") as archive:
        assert len(archive.namelist()) == 70_000
