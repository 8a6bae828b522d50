"""Which form of a function is taken."""

import pytest
import torch
from torch import nn

from hf_seq2seq_attn.plain_forms import first_derivative_only, is_bare, plain_forms, takes_fast_path


def test_plain_forms_hold_inside_the_block_only() -> None:
    assert takes_fast_path()
    with plain_forms():
        assert not takes_fast_path()
        with plain_forms():
            assert not takes_fast_path()
        assert not takes_fast_path()
    with pytest.raises(KeyError), plain_forms():
        raise KeyError
    assert takes_fast_path()


def test_only_a_module_that_is_nothing_else_is_bare() -> None:
    layer = nn.Linear(2, 3)
    assert is_bare(layer, nn.GRU, nn.Linear)
    assert not is_bare(layer, nn.GRU) and not is_bare(None, nn.Linear)
    assert not is_bare(nn.Sequential(layer), nn.Linear)
    assert not is_bare(type("Adapted", (nn.Linear,), {})(2, 3), nn.Linear)
    assert is_bare(layer, nn.Linear)


@pytest.mark.parametrize(
    "listen",
    [
        lambda layer: layer.register_forward_hook(lambda *_: None),
        lambda layer: layer.register_forward_pre_hook(lambda *_: None),
        lambda layer: layer.register_full_backward_hook(lambda *_: None),
        lambda layer: layer.register_full_backward_pre_hook(lambda *_: None),
        lambda layer: nn.modules.module.register_module_forward_hook(lambda *_: None),
    ],
)
def test_a_module_that_somebody_listens_to_is_called(listen) -> None:
    layer = nn.Linear(2, 3)
    handle = listen(layer)
    try:
        assert not is_bare(layer, nn.Linear)
    finally:
        handle.remove()
    assert is_bare(layer, nn.Linear)


def test_a_module_with_a_forward_of_its_own_is_called() -> None:
    layer = nn.Linear(2, 3)
    layer.forward = layer.forward  # as accelerate does to move weights between devices
    assert not is_bare(layer, nn.Linear)


def test_a_second_derivative_is_refused_even_without_a_history() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @first_derivative_only
        def backward(ctx, gradient):
            return gradient * 2 * ctx.saved_tensors[0]

    x = torch.tensor(3.0, requires_grad=True)
    assert torch.autograd.grad(Square.apply(x), x)[0] == 6
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(Square.apply(x), x, create_graph=True)
