"""Kernels for CPUs, in float32, compiled by numba where it is installed: pip install 'hf-seq2seq-attn[fast]'.

Each kernel is a plain Python function of NumPy arrays and stands beside a torch form that gives the same results
where numba is absent, cannot compile, or is switched off: by HF_SEQ2SEQ_ATTN_KERNELS=0 in the environment or within
`kernels_switched(False)`. The first use compiles, some seconds per kernel, and keeps the result beside this file or
in the user's cache. Threads are Python's, as many as torch.get_num_threads(): kernels hold no lock of the interpreter.
"""

import functools
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging

logger = logging.get_logger(__name__)

F = TypeVar("F", bound=Callable[..., Any])
_helpers: list[Callable[..., Any]] = []

SWITCH = "HF_SEQ2SEQ_ATTN_KERNELS"
_switched_on = os.environ.get(SWITCH, "1") != "0"
# Numbers of work below which starting a thread costs more than it saves.
WORK_OF_A_THREAD = 2**19

# NaN and infinity keep their meaning; sums may be taken in any order.
FAST_MATH = {"reassoc", "contract", "arcp", "nsz"}
# Literals would turn the arithmetic into float64.
HALF, ONE, TWO, FOUR = np.float32(0.5), np.float32(1), np.float32(2), np.float32(4)
# From here on 1 / (1 + x) is 0 beside 1, and products of two such numbers are finite.
LARGE = np.float32(1e9)
# Within it exp(x) is a normal number.
EXP_BOUND = np.float32(87)
LOG2_E = np.float32(1.4426950408889634)
# ln 2 in two parts, the first exact in few bits: n ln 2 then loses nothing for small integers n.
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
# exp(x) = 1 + x + x^2 (...) for |x| <= ln(2) / 2: the minimax polynomial of Cephes' expf.
C5, C4, C3, C2, C1, C0 = (
    np.float32(c) for c in (1.98756915e-4, 1.39819995e-3, 8.33345191e-3, 4.16657959e-2, 1.66666655e-1, 5.00000012e-1)
)


@contextmanager
def kernels_switched(on: bool) -> Iterator[None]:
    """Use the kernels, or the torch forms only, within the block; for tests and comparisons."""
    global _switched_on
    before, _switched_on = _switched_on, on
    try:
        yield
    finally:
        _switched_on = before


class Kernel:
    """A function of arrays that numba compiles for one signature, at its first use."""

    def __init__(self, signature: str, function: Callable[..., None]) -> None:
        self.signature = signature
        self.function = function

    def ready_for(self, *tensors: Tensor, dtype: torch.dtype = torch.float32) -> bool:
        """Say whether to run it on these: switched on, of this type, on a CPU, and compiled."""
        fits = all(tensor.is_cpu and tensor.dtype == dtype for tensor in tensors)
        return _switched_on and fits and self.compiled is not None

    @functools.cached_property
    def compiled(self) -> Callable[..., None] | None:
        """The machine code, or None after one line of notice."""
        njit = _numba_njit()
        if njit is None:
            return None
        settings = dict(nogil=True, fastmath=FAST_MATH, error_model="numpy")
        try:
            try:
                return njit(self.signature, cache=True, **settings)(self.function)
            except RuntimeError:  # no folder to keep the machine code in
                return njit(self.signature, **settings)(self.function)
        except Exception as error:
            first_line = str(error).partition("\n")[0]
            logger.warning(f"numba cannot compile {self.function.__name__}: {first_line}; using the slower torch form")
            return None

    def run(self, count: int, *arguments: Any, of_parts: Sequence[Any] = ((),)) -> None:
        """Run over the rows 0..count, in parts, each in a thread of its own.

        arguments: What all parts take. `of_parts`: what each takes after that; first and last row come last.
        """
        assert self.compiled is not None
        if len(of_parts) == 1:
            self.compiled(*arguments, *of_parts[0], 0, count)
            return
        bounds = [count * part // len(of_parts) for part in range(len(of_parts) + 1)]
        pool = _pool(os.getpid(), len(of_parts))
        futures = [
            pool.submit(self.compiled, *arguments, *own, first, last)
            for own, first, last in zip(of_parts, bounds, bounds[1:], strict=False)
        ]
        for future in futures:
            future.result()


def helper(function: F) -> F:
    """Let kernels call a plain function of some module."""
    _helpers.append(function)
    return function


def kernel(signature: str) -> Callable[[Callable[..., None]], Kernel]:
    """Make a `Kernel` of a function; the signature is numba's."""
    return functools.partial(Kernel, signature)


@functools.cache
def _numba_njit() -> Callable[..., Any] | None:
    try:
        # By name: an import statement would make the Hub's copy of this file ask its users for numba.
        numba, extending = importlib.import_module("numba"), importlib.import_module("numba.extending")
    except ImportError as error:
        logger.warning_once(f"slower without compiled kernels ({error}): pip install 'hf-seq2seq-attn[fast]'")
        return None
    # Sums in any order would undo the two parts of ln 2.
    extending.register_jitable(fastmath={"contract"})(exp)
    for function in _helpers:
        extending.register_jitable(fastmath=FAST_MATH, error_model="numpy")(function)
    return numba.njit


@functools.lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return a pool of this very process: a forked child has none of its parent's threads."""
    return ThreadPoolExecutor(threads, "cpu-kernels")


def parts_of(count: int, work: int) -> int:
    """Return how many threads shall share rows 0..count, of so much work in all (numbers computed)."""
    return max(1, min(count, torch.get_num_threads(), work // WORK_OF_A_THREAD))


def exp(x: Any) -> Any:
    """Return exp(x) in float32, within one unit of the last place for |x| <= 87; branchless, so that it vectorises."""
    n = np.rint(x * LOG2_E)
    x = (x - n * LN2_HIGH) - n * LN2_LOW
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return (((((((C5 * x + C4) * x + C3) * x + C2) * x + C1) * x + C0) * x * x) + x + ONE) * power


@helper
def bounded(x: Any, bound: Any) -> Any:
    """Return x within +-bound; NaN stays NaN."""
    return bound if x > bound else (-bound if x < -bound else x)


@helper
def from_bfloat16(bits: Any) -> Any:
    """Return the float32 of a bfloat16 that is given by its 16 bits: they are the upper half of its own."""
    return np.int32(np.int32(bits) << np.int32(16)).view(np.float32)


@helper
def to_bfloat16(x: Any) -> Any:
    """Return the 16 bits of the bfloat16 nearest to a float32, of two as near the one with an even last bit."""
    bits = np.float32(x).view(np.int32)
    odd = (bits >> np.int32(16)) & np.int32(1)
    return np.int16(np.int32(bits + np.int32(0x7FFF) + odd) >> np.int32(16))


@kernel("void(f4[:,:,::1], f4[:,:,::1], f4[:,::1], f4, f4[:,:,::1], i8, i8)")
def _score_rows(queries: Any, exponentials: Any, vectors: Any, bound: Any, scores: Any, first: int, last: int) -> None:
    length, width, positions = queries.shape[1], queries.shape[2], exponentials.shape[1]
    of_query = np.empty(width, np.float32)
    for sentence in range(first, last):
        keys, vector = exponentials[sentence], vectors[sentence % vectors.shape[0]]
        total = vector.sum()
        for row in range(length):
            query, row_scores = queries[sentence, row], scores[sentence, row]
            for w in range(width):
                of_query[w] = exp(TWO * bounded(query[w], bound))
            for s in range(0, positions, 2):
                other = min(s + 1, positions - 1)
                left, right = keys[s], keys[other]
                of_left = of_right = np.float32(0)
                for w in range(width):
                    # Two reciprocals by one division: 1 / x = y / (x y), 1 / y = x / (x y).
                    x, y = of_query[w] * left[w], of_query[w] * right[w]
                    x, y = ONE + (LARGE if x > LARGE else x), ONE + (LARGE if y > LARGE else y)
                    quotient = vector[w] / (x * y)
                    of_left += quotient * y
                    of_right += quotient * x
                row_scores[s] = total - TWO * of_left
                row_scores[other] = total - TWO * of_right


@kernel("void(f4[:,:,::1], f4[:,:,::1], f4[:,::1], f4, f4[:,:,::1], f4[:,:,::1], f4[:,:,::1], f4[:,::1], i8, i8)")
def _score_rows_backward(
    queries: Any,
    exponentials: Any,
    vectors: Any,
    bound: Any,
    gradient: Any,
    of_queries: Any,
    of_keys: Any,
    of_vectors: Any,
    first: int,
    last: int,
) -> None:
    length, width, positions = queries.shape[1], queries.shape[2], exponentials.shape[1]
    of_query, of_row, spare = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    for sentence in range(first, last):
        head = sentence % vectors.shape[0]
        keys, vector, of_vector = exponentials[sentence], vectors[head] * FOUR, of_vectors[head]
        for row in range(length):
            query, into = queries[sentence, row], of_queries[sentence, row]
            for w in range(width):
                of_query[w] = exp(TWO * bounded(query[w], bound))
            into[:] = 0
            of_row[:] = 0
            for s in range(0, positions, 2):
                paired = s + 1 < positions
                left, into_left, d_left = keys[s], of_keys[sentence, s], gradient[sentence, row, s]
                right = keys[s + 1] if paired else left
                into_right = of_keys[sentence, s + 1] if paired else spare
                d_right = gradient[sentence, row, s + 1] if paired else np.float32(0)
                # tanh(q + k) = -2 (r - 1/2): taken pair by pair, large sums do not cancel at the end.
                half_left, half_right = HALF * d_left, HALF * d_right
                for w in range(width):
                    r_left, r_right = ONE / (ONE + of_query[w] * left[w]), ONE / (ONE + of_query[w] * right[w])
                    t_left, t_right = d_left * r_left, d_right * r_right
                    of_row[w] += (t_left - half_left) + (t_right - half_right)
                    t_left, t_right = t_left - t_left * r_left, t_right - t_right * r_right
                    into[w] += t_left + t_right
                    into_left[w] += t_left * vector[w]
                    into_right[w] += t_right * vector[w]
            for w in range(width):
                of_vector[w] -= TWO * of_row[w]
                into[w] *= vector[w]


def score_kernels_ready(*tensors: Tensor) -> bool:
    """Say whether the two fused functions can take these tensors."""
    return _score_rows.ready_for(*tensors) and _score_rows_backward.ready_for(*tensors)


def fused_score_rows(queries: Tensor, exponentials: Tensor, score_vector: Tensor, bound: float) -> Tensor:
    """Return scores (B, H, T, S) of queries (B, H, T, W) and score_vector (H, W), given exp(2 keys) (B, H, S, W).

    Queries beyond +-bound count as at it.
    """
    scores = queries.new_empty(*queries.shape[:3], exponentials.shape[2])
    arrays = _sentences(queries), _sentences(exponentials), _array(score_vector), np.float32(bound), _sentences(scores)
    count = len(arrays[0])
    _score_rows.run(count, *arrays, of_parts=[()] * parts_of(count, exponentials.numel() * queries.shape[2]))
    return scores


def fused_score_rows_backward(
    queries: Tensor,
    exponentials: Tensor,
    score_vector: Tensor,
    bound: float,
    gradient: Tensor,
    of_keys: Tensor,
    of_vector: Tensor,
) -> Tensor:
    """Return the gradient of the queries; add those of keys and score vector to of_keys and of_vector in place."""
    of_queries = torch.empty_like(queries, memory_format=torch.contiguous_format)
    into_keys = of_keys if of_keys.is_contiguous() else torch.zeros_like(exponentials)
    arrays = (
        _sentences(queries),
        _sentences(exponentials),
        _array(score_vector),
        np.float32(bound),
        _sentences(gradient),
        _sentences(of_queries),
        _sentences(into_keys),
    )
    count = len(arrays[0])
    # Each thread sums the gradient of the score vector for itself.
    of_vectors = queries.new_zeros(parts_of(count, exponentials.numel() * queries.shape[2]), *score_vector.shape)
    _score_rows_backward.run(count, *arrays, of_parts=[(array,) for array in of_vectors.numpy()])
    if into_keys is not of_keys:
        of_keys += into_keys
    of_vector += of_vectors.sum(0)
    return of_queries


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def _sentences(tensor: Tensor) -> Any:
    """Return (B, H, L, W) as an array (B * H, L, W); of the same memory where the tensor is contiguous."""
    return _array(tensor).reshape(-1, *tensor.shape[2:])
