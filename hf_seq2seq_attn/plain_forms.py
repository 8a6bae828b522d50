"""Each fast path of the model stands beside a plain form of the same function; here one chooses the plain ones."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, cast

import torch
from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
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

    An adapter, a quantised layer, or one that somebody listens to must be called.
    """
    return type(module) in kinds and is_unheard(cast(nn.Module, module))


def is_unheard(module: nn.Module) -> bool:
    """Tell whether nobody listens to a module's passes, or has given this one a `forward` of its own.

    Libraries that move weights between devices do the latter.
    """
    own = vars(module)
    listened = any(own[name] for name in HOOKS) or nn.modules.module._has_any_global_hook()
    return not listened and "forward" not in own


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
