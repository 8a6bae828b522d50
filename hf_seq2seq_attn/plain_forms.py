"""Each fast path of the model stands beside a plain form of the same function; here one chooses the plain ones."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import torch
from torch import nn

_PLAIN: ContextVar[bool] = ContextVar("plain_forms", default=False)


@contextmanager
def plain_forms() -> Iterator[None]:
    """Compute by the formulas as they stand, slowly and in more memory: to compare, or to differentiate twice."""
    before = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(before)


def takes_fast_path() -> bool:
    """Tell whether a fast path may be taken: not inside `plain_forms`, nor under torch.compile, which fuses itself."""
    return not (torch.compiler.is_compiling() or _PLAIN.get())


def is_bare(module: object, *kinds: type[nn.Module]) -> bool:
    """Tell whether a module is of one of these very classes and nothing else, so that its weights may be used directly.

    An adapter, a quantised layer, or one with a hook (also a hook that moves weights between devices) must be called.
    """
    if type(module) not in kinds:
        return False
    layer: Any = module
    return not (layer._forward_hooks or layer._forward_pre_hooks or hasattr(layer, "_hf_hook"))


def first_derivative_only(backward: Callable) -> Callable:
    """Let a `backward` that autograd cannot see through refuse `create_graph=True`.

    torch's `once_differentiable` refuses only where the incoming gradient has a history itself; elsewhere the second
    derivative would silently lack this function's part.
    """

    @wraps(backward)
    def checked(*args: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a fast path of this model cannot be differentiated twice (create_graph=True); run the forward pass "
                "inside `with hf_seq2seq_attn.plain_forms():`"
            )
        return backward(*args)

    return checked
