"""What stands around the kernels: the switch, the fall-back with its notice, threads, forks; and their exponential."""

import logging
import multiprocessing
import os
import queue
import runpy
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from hf_seq2seq_attn import cpu_kernels
from hf_seq2seq_attn.additive_scores import additive_scores, prepare_keys, score_rows
from hf_seq2seq_attn.cpu_kernels import Kernel, kernels_switched


def scores() -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    queries, keys, vector = (torch.randn(shape, generator=generator) for shape in ((5, 3, 2, 7), (5, 3, 4, 7), (3, 7)))
    return additive_scores(queries, keys, vector)


@pytest.fixture
def notices(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.LogCaptureFixture]:
    """Catch what the kernels' logger says; look for numba afresh before and after."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    cpu_kernels._numba_njit.cache_clear()
    with caplog.at_level(logging.WARNING):
        yield caplog
    cpu_kernels._numba_njit.cache_clear()


def add_one(numbers: np.ndarray, first: int, last: int) -> None:
    for i in range(first, last):
        numbers[i] += cpu_kernels.ONE


def beyond_numba(numbers: np.ndarray, first: int, last: int) -> None:
    numbers[first] = open(str(last))  # noqa: SIM115


def test_without_numba_the_torch_form_stands_in_with_one_line(
    notices: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    kernels = [Kernel("void(f4[::1], i8, i8)", add_one) for _ in range(3)]
    assert [kernel.ready_for(torch.zeros(3)) for kernel in kernels] == [False, False, False]
    (notice,) = notices.messages
    assert "pip install 'hf-seq2seq-attn[fast]'" in notice and "\n" not in notice


def test_a_kernel_that_does_not_compile_is_told_once(notices: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("numba")
    kernel = Kernel("void(f4[::1], i8, i8)", beyond_numba)
    assert not kernel.ready_for(torch.zeros(3)) and not kernel.ready_for(torch.zeros(3))
    (notice,) = notices.messages
    assert notice.startswith("numba cannot compile beyond_numba") and "\n" not in notice


def test_only_float32_on_a_cpu_is_taken() -> None:
    pytest.importorskip("numba")
    kernel = Kernel("void(f4[::1], i8, i8)", add_one)
    assert kernel.ready_for(torch.zeros(3))
    assert not kernel.ready_for(torch.zeros(3), torch.zeros(3, dtype=torch.float64))
    assert not kernel.ready_for(torch.zeros(3, device="meta"))


def test_the_switch_leads_to_the_torch_form_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    calls = []
    run = Kernel.run
    monkeypatch.setattr(Kernel, "run", lambda self, *rest, **more: (calls.append(self), run(self, *rest, **more)))
    by_kernel = scores()
    assert len(calls) == 1
    with kernels_switched(False):
        by_torch = scores()
    assert len(calls) == 1
    scores()
    assert len(calls) == 2
    torch.testing.assert_close(by_kernel, by_torch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("value", "on"), [("0", False), ("1", True)])
def test_the_environment_switches_too(value: str, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cpu_kernels.SWITCH, value)
    pytest.importorskip("numba")
    copy = runpy.run_path(cpu_kernels.__file__)
    assert copy["Kernel"]("void(f4[::1], i8, i8)", add_one).ready_for(torch.zeros(3)) == on


@pytest.mark.parametrize(("count", "parts"), [(7, 1), (7, 2), (7, 3), (2, 2)])
def test_parts_cover_every_row_once(count: int, parts: int) -> None:
    pytest.importorskip("numba")
    numbers = np.zeros(count, np.float32)
    Kernel("void(f4[::1], i8, i8)", add_one).run(count, numbers, of_parts=[()] * parts)
    assert numbers.tolist() == [1.0] * count


def test_parts_follow_rows_threads_and_work() -> None:
    before, enough = torch.get_num_threads(), 8 * cpu_kernels.WORK_OF_A_THREAD
    torch.set_num_threads(3)
    try:
        assert cpu_kernels.parts_of(100, enough) == 3
        assert cpu_kernels.parts_of(2, enough) == 2
        assert cpu_kernels.parts_of(100, 2 * cpu_kernels.WORK_OF_A_THREAD) == 2
        assert cpu_kernels.parts_of(100, 5) == cpu_kernels.parts_of(0, 0) == 1
    finally:
        torch.set_num_threads(before)


def add_one_in_two_threads(results: object) -> None:
    numbers = np.zeros(5, np.float32)
    Kernel("void(f4[::1], i8, i8)", add_one).run(5, numbers, of_parts=[(), ()])
    results.put(numbers.tolist())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are a matter of Unix")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    """The parent's threads do not exist in the child, which would wait for them without end."""
    pytest.importorskip("numba")
    mine = queue.Queue()
    add_one_in_two_threads(mine)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=add_one_in_two_threads, args=(results,), daemon=True)
    child.start()
    try:
        assert results.get(timeout=60) == mine.get() == [1.0] * 5
    finally:
        child.kill()
        child.join()


def test_the_exponential_is_within_two_units_of_the_last_place() -> None:
    x = np.concatenate([np.linspace(-87, 88, 3001), np.linspace(-1e-3, 1e-3, 31)]).astype(np.float32)
    found = np.array([cpu_kernels.exp(number) for number in x])
    assert found.dtype == np.float32
    exact = np.exp(x.astype(np.float64))
    assert np.abs(found / exact - 1).max() < 2 * np.finfo(np.float32).eps


def test_the_plain_functions_compute_what_the_machine_code_does() -> None:
    """Interpreted, with bounds checked, the same text gives the same scores: nothing is read beyond the arrays."""
    queries, keys, vector = torch.randn(3, 2, 2, 5), torch.randn(3, 2, 3, 5), torch.randn(2, 5)
    prepared = prepare_keys(keys)
    found = np.full((6, 2, 3), np.nan, np.float32)
    arrays = queries.flatten(0, 1).numpy(), prepared.exponentials.flatten(0, 1).numpy(), vector.numpy()
    cpu_kernels._score_rows.function(*arrays, np.float32(43), found, 0, 6)
    with kernels_switched(False):
        expected = score_rows(queries, prepared, vector).flatten(0, 1).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
