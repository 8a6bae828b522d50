"""Additive scores by blocks and by kernels against the formula, values and gradients."""

import shutil
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from hf_seq2seq_attn import additive_scores as module
from hf_seq2seq_attn import cpu_kernels, plain_forms
from hf_seq2seq_attn.additive_scores import (
    additive_scores,
    additive_scores_reference,
    prepare_keys,
    score_rows,
    score_rows_backward,
)
from hf_seq2seq_attn.cpu_kernels import kernels_switched

B, S, T, H, W = 2, 7, 5, 3, 5


@pytest.fixture(params=["torch", "kernels"])
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test by the torch form and, where numba is installed, by the kernels."""
    if request.param == "kernels":
        pytest.importorskip("numba")
    with kernels_switched(request.param == "kernels"):
        yield request.param


def drawn(
    dtype: torch.dtype, scale: float = 1.0, sizes: tuple[int, ...] = (B, H, T, S, W)
) -> tuple[list[Tensor], Tensor]:
    """Return queries, keys and score vector, and a gradient of the scores."""
    batch, heads, length, positions, width = sizes
    shapes = (batch, heads, length, width), (batch, heads, positions, width), (heads, width)
    queries, keys, vector = (torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes)
    return [queries * scale, keys * scale, vector], torch.randn(batch, heads, length, positions).to(dtype)


def outcome(scores_of: object, inputs: list[Tensor], gradient: Tensor) -> list[Tensor]:
    """Return scores and the gradients of all inputs."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    scores = scores_of(*leaves)
    return [scores.detach(), *torch.autograd.grad(scores, leaves, gradient.to(scores.dtype))]


def assert_equal_to_the_formula(inputs: list[Tensor], gradient: Tensor, tolerance: float) -> None:
    expected = outcome(additive_scores_reference, [tensor.double() for tensor in inputs], gradient.double())
    for result, formula in zip(outcome(additive_scores, inputs, gradient), expected, strict=True):
        assert result.shape == formula.shape
        torch.testing.assert_close(result.double(), formula, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 5e-6)])
@pytest.mark.parametrize("sizes", [(B, H, T, S, W), (B, H, 1, S, W), (B, 1, T, 1, 33), (1, 2, 3, 4, 1)])
def test_scores_equal_the_formula_with_gradients(
    dtype: torch.dtype, tolerance: float, sizes: tuple[int, ...], form: str
) -> None:
    assert_equal_to_the_formula(*drawn(dtype, sizes=sizes), tolerance)


@pytest.mark.parametrize("buffer", [1, 70, 2 * S * W, T * S * W + 1, 2**20])
@pytest.mark.parametrize("scale", [1.0, 200.0])
def test_blocks_of_any_size_give_the_same(buffer: int, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one row, of two with a last one of one, of one sentence, of all; by exponentials and by tanh."""
    monkeypatch.setattr(module, "BUFFER", buffer)
    with kernels_switched(False):
        assert_equal_to_the_formula(*drawn(torch.float64, scale), 1e-11)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("bound", [10.0, 33.0, 40.0, 200.0, 400.0])
def test_saturated_and_cancelling_pairs_equal_the_formula(
    dtype: torch.dtype, tolerance: float, bound: float, form: str
) -> None:
    """Up to `KEY_BOUND` by exponentials, beyond it by tanh; queries far beyond the bound either way."""
    (queries, keys, vector), gradient = drawn(dtype)
    keys = torch.linspace(-bound, bound, keys.numel(), dtype=dtype).view_as(keys)
    queries = queries * 5
    queries[:, :, 0] = -keys[:, :, 0] + 0.3
    queries[:, :, 1] = -keys[:, :, -1] - 0.2
    queries[:, :, 2] = 200.0
    queries[:, :, 3] = -1e30
    assert (prepare_keys(keys).exponentials is not None) == (bound <= module.KEY_BOUND[dtype])
    assert_equal_to_the_formula([queries, keys, vector], gradient, tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bounds_hold_what_they_promise(dtype: torch.dtype) -> None:
    farthest = 2 * (module.KEY_BOUND[dtype] + module.SATURATION[dtype])
    smallest, largest = torch.exp(torch.tensor([-farthest, farthest], dtype=dtype)).tolist()
    limits = torch.finfo(dtype)
    assert limits.tiny <= smallest and largest <= limits.max
    assert torch.tanh(torch.tensor(module.SATURATION[dtype], dtype=dtype)) == 1


@pytest.mark.parametrize("where", ["queries", "keys", "score vector"])
def test_what_is_not_a_number_is_not_hidden(where: str, form: str) -> None:
    (queries, keys, vector), _ = drawn(torch.float32)
    {"queries": queries[0, 1, 2], "keys": keys[0, 1, 3], "score vector": vector[1]}[where][4] = torch.nan
    found = additive_scores(queries, keys, vector).isnan()
    torch.testing.assert_close(found, additive_scores_reference(queries, keys, vector).isnan())
    assert found.any() and not found.all()


def test_infinite_queries_saturate(form: str) -> None:
    (queries, keys, vector), _ = drawn(torch.float32)
    queries[:, :, 0], queries[:, :, 1] = torch.inf, -torch.inf
    expected = additive_scores_reference(queries, keys, vector)
    torch.testing.assert_close(additive_scores(queries, keys, vector), expected, rtol=1e-5, atol=1e-5)


def test_any_strides_are_taken(form: str) -> None:
    """Heads split off a projection, every second key, and a gradient expanded from one number."""
    queries = torch.randn(B, T, H, W).transpose(1, 2)
    keys = torch.randn(B, 2 * S, H, W)[:, ::2].transpose(1, 2)
    vector = torch.randn(W, H).T
    assert not (queries.is_contiguous() or keys.is_contiguous() or vector.is_contiguous())
    assert_equal_to_the_formula([queries, keys, vector], torch.tensor(0.7).expand(B, H, T, S), 1e-5)


def test_steps_add_up_to_all_rows_at_once(form: str) -> None:
    """A recurrent decoder scores row by row and adds the gradients of keys and score vector in place."""
    (queries, keys, vector), gradient = drawn(torch.float32)
    scores, of_queries, of_keys, of_vector = outcome(additive_scores, [queries, keys, vector], gradient)
    prepared = prepare_keys(keys)
    # A buffer that is not contiguous, and one that held something before.
    into_keys = torch.zeros(B, S, H, W).transpose(1, 2)
    into_vector = torch.ones_like(vector)
    for row in range(T):
        query = queries[:, :, row : row + 1]
        torch.testing.assert_close(score_rows(query, prepared, vector), scores[:, :, row : row + 1])
        of_query = score_rows_backward(query, prepared, vector, gradient[:, :, row : row + 1], into_keys, into_vector)
        torch.testing.assert_close(of_query, of_queries[:, :, row : row + 1])
    torch.testing.assert_close(into_keys, of_keys)
    torch.testing.assert_close(into_vector - 1, of_vector, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_more_threads_give_the_same(threads: int, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_kernels, "WORK_OF_A_THREAD", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_equal_to_the_formula(*drawn(torch.float32, sizes=(5, H, T, S, W)), 5e-6)
    finally:
        torch.set_num_threads(before)


def test_autocast_leaves_the_scores_in_float32(form: str) -> None:
    (queries, keys, vector), _ = drawn(torch.bfloat16)
    leaves = [tensor.requires_grad_() for tensor in (queries, keys, vector)]
    with torch.autocast("cpu", torch.bfloat16):
        scores = additive_scores(*leaves)
    assert scores.dtype == torch.float32
    expected = additive_scores_reference(*(tensor.detach().float() for tensor in leaves))
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)
    assert {gradient.dtype for gradient in torch.autograd.grad(scores.sum(), leaves)} == {torch.bfloat16}


def test_a_second_derivative_is_refused(form: str) -> None:
    (queries, keys, vector), _ = drawn(torch.float32)
    scores = additive_scores(queries.requires_grad_(), keys, vector)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(scores.sum(), queries, create_graph=True)
    with plain_forms():
        scores = additive_scores(queries, keys, vector)
    (gradient,) = torch.autograd.grad(scores.sum(), queries, create_graph=True)
    assert torch.autograd.grad(gradient.sum(), queries)[0].any()


@pytest.mark.parametrize("sizes", [(B, H, 0, S, W), (B, H, T, 0, W), (0, H, T, S, W)])
def test_empty_sides_give_empty_scores_and_gradients_of_zero(sizes: tuple[int, ...], form: str) -> None:
    scores, *gradients = outcome(additive_scores, *drawn(torch.float32, sizes=sizes))
    assert scores.shape == (sizes[0], H, *sizes[2:4])
    assert all(gradient.eq(0).all() for gradient in gradients)


def test_gradients_that_nobody_asked_for_change_nothing(form: str) -> None:
    (queries, keys, vector), gradient = drawn(torch.float32)
    expected = outcome(additive_scores, [queries, keys, vector], gradient)[3]
    vector.requires_grad_()
    (found,) = torch.autograd.grad(additive_scores(queries, keys, vector), vector, gradient)
    torch.testing.assert_close(found, expected)


def test_compiled_scores_equal_the_formula_with_gradients() -> None:
    """The form that a compiler fuses, for GPUs; here without code generation, so that the trace alone is tested."""
    compiled = torch.compile(additive_scores, backend="aot_eager", fullgraph=True)
    inputs, gradient = drawn(torch.float32)
    for result, formula in zip(
        outcome(compiled, inputs, gradient), outcome(additive_scores_reference, inputs, gradient), strict=True
    ):
        torch.testing.assert_close(result, formula, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor compiles with g++")
def test_the_form_that_the_compiler_fuses_is_the_same_function() -> None:
    leaves, _ = drawn(torch.float32)
    leaves = [leaf.requires_grad_() for leaf in leaves]
    torch.compiler.reset()
    found = torch.compile(additive_scores)(*leaves)
    expected = additive_scores_reference(*leaves)
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad(found.sum(), leaves), torch.autograd.grad(expected.sum(), leaves), strict=True
    ):
        torch.testing.assert_close(one, other)
