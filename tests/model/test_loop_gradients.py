"""Operands of a loop: the values and gradients of plain autograd, however the backward pass is asked for."""

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hf_seq2seq_attn import fast_linear
from hf_seq2seq_attn.additive_scores import additive_scores_reference
from hf_seq2seq_attn.loop_gradients import LoopProduct, LoopScores, gru_step, lstm_step

BATCH, HEADS, KEYS, WIDTH, STEPS = 2, 3, 7, 5, 4


def loop(step: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Return all states of a loop whose steps depend on each other."""
    states = [start]
    for _ in range(STEPS):
        states.append(torch.tanh(states[-1] + step(states[-1])))
    return torch.stack(states)


@pytest.fixture(params=["matrix", "matrix of each head", "scores"])
def case(request) -> tuple[list[Tensor], Callable, Callable]:
    """Return leaves (the first: where the loop starts), and the steps by hand and by the class under test."""
    generator = torch.Generator().manual_seed(0)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    if request.param == "matrix":
        leaves = [leaf(BATCH, WIDTH), leaf(WIDTH, WIDTH), leaf(WIDTH)]
        return leaves, lambda m, b: lambda x: x @ m + b, LoopProduct
    if request.param == "matrix of each head":
        leaves = [leaf(BATCH, HEADS, 1, KEYS), leaf(BATCH, HEADS, KEYS, KEYS)]
        return leaves, lambda m: lambda x: x @ m, LoopProduct
    leaves = [leaf(BATCH, HEADS, 1, KEYS), leaf(BATCH, HEADS, KEYS, KEYS), leaf(HEADS, KEYS)]
    return leaves, lambda k, v: lambda x: additive_scores_reference(x, k, v), LoopScores


def test_values_and_gradients_are_those_of_plain_autograd(case) -> None:
    (start, *operands), by_hand, ours = case
    wanted, got = loop(by_hand(*operands), start), loop(ours(*operands), start)
    torch.testing.assert_close(got, wanted)
    weights = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for some in (slice(None), slice(1, 3)):  # all steps, and a loss that sees only the middle ones
        leaves = [start, *operands]
        expected = torch.autograd.grad((wanted * weights)[some].sum(), leaves, retain_graph=True)
        found = torch.autograd.grad((got * weights)[some].sum(), leaves, retain_graph=True)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


def test_a_backward_pass_leaves_nothing_behind_for_the_next(case) -> None:
    (start, *operands), by_hand, ours = case
    expected = torch.autograd.grad(loop(by_hand(*operands), start).sum(), operands)
    total = loop(ours(*operands), start)
    # This one asks for none of the operands, so nothing gathers what its steps write down.
    torch.autograd.grad(total.sum() * 3, start, retain_graph=True)
    for _ in range(2):
        for one, other in zip(torch.autograd.grad(total.sum(), operands, retain_graph=True), expected, strict=True):
            torch.testing.assert_close(one, other)


def test_operands_that_need_no_gradient_are_left_alone(case) -> None:
    (start, *operands), by_hand, ours = case
    frozen = [operand.detach() for operand in operands]
    expected = torch.autograd.grad(loop(by_hand(*frozen), start).sum(), start)
    found = torch.autograd.grad(loop(ours(*frozen), start).sum(), start)
    torch.testing.assert_close(found, expected)
    with torch.no_grad():
        assert not loop(ours(*operands), start).requires_grad


def test_a_second_derivative_is_refused(case) -> None:
    (start, *operands), _, ours = case
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(loop(ours(*operands), start).sum(), start, create_graph=True)


def test_nothing_is_kept_alive_after_the_loop() -> None:
    matrix = torch.randn(WIDTH, WIDTH, requires_grad=True)
    product = LoopProduct(matrix)
    result = loop(product, torch.randn(BATCH, WIDTH))
    store = weakref.ref(product._store)
    result.sum().backward()
    gc.disable()
    try:
        del product, result
        assert store() is None, "a cycle through autograd, which no collector can see, would keep every batch"
    finally:
        gc.enable()


def test_products_in_half_precision_add_up_in_their_operand_s_type() -> None:
    matrix, bias = torch.randn(WIDTH, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    product = LoopProduct(matrix, bias, torch.bfloat16)
    inputs = torch.randn(BATCH, WIDTH)
    result = product(inputs)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.float(), inputs @ matrix + bias, rtol=0.02, atol=0.05)
    result.float().sum().backward()
    assert matrix.grad is not None and matrix.grad.dtype == torch.float32 and matrix.grad.stride() == matrix.stride()


@pytest.mark.parametrize("steps", [1, 1000], ids=["few steps", "many steps"])
def test_rearranged_weights_give_the_same_values_and_gradients(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_linear, "PACKED_TRAINING_WEIGHTS", 1)
    packed = []
    pack = fast_linear._packed
    monkeypatch.setattr(fast_linear, "_packed", lambda *arguments: packed.append(1) or pack(*arguments))
    torch.manual_seed(0)
    weight, bias, inputs = (torch.randn(*shape, requires_grad=True) for shape in ((WIDTH, 3), (WIDTH,), (BATCH, 3)))
    product = LoopProduct(weight.T, bias, steps=steps)
    weights = torch.randn(BATCH, WIDTH)
    got, wanted = product(inputs), torch.nn.functional.linear(inputs, weight, bias)
    torch.testing.assert_close(got, wanted)
    leaves = [weight, bias, inputs]
    for one, other in zip(
        torch.autograd.grad((got * weights).sum(), leaves),
        torch.autograd.grad((wanted * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
    assert len(packed) == (2 if steps > 1 and fast_linear.can_pack() else 0)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_steps_of_the_cells_are_those_of_torch(kind: str) -> None:
    torch.manual_seed(0)
    cell = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}[kind](3, WIDTH)
    inputs, state, memory = (torch.randn(BATCH, width, requires_grad=True) for width in (3, WIDTH, WIDTH))
    of_input = inputs @ cell.weight_ih.T + cell.bias_ih
    of_state = state @ cell.weight_hh.T + cell.bias_hh
    if kind == "gru":
        wanted, got = (cell(inputs, state),), (gru_step(of_input, of_state, state),)
    else:
        wanted, got = cell(inputs, (state, memory)), lstm_step(of_input, of_state, memory)
    torch.testing.assert_close(got, wanted)
    leaves = [inputs, state, *cell.parameters(), *([] if kind == "gru" else [memory])]
    weights = [torch.randn(BATCH, WIDTH) for _ in got]
    for ours, theirs in zip(
        torch.autograd.grad(sum((g * w).sum() for g, w in zip(got, weights, strict=True)), leaves),
        torch.autograd.grad(sum((g * w).sum() for g, w in zip(wanted, weights, strict=True)), leaves),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)
