"""Measure what the model room's rules choose between, with this machine's figures beside the constants of the code.

    python benchmarks/speed/choices.py [--threads N] [-o FILE]

- `fused_is_faster` (cross_attention.py): forward and backward of `F.scaled_dot_product_attention` against the formula,
  with a padding mask, over a fixed number of tokens; a ratio above 1 is for the formula.
- `linear` (fast_linear.py): its product against the general one, and what preparing the weights costs. As in decoding,
  a weight is read again only after others that together no cache holds.
- `training_linear` (same file): the same for the rows of a training step, whose weights the next step finds in the
  caches.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from measuring import machine, options, write
from torch import Tensor

from hf_seq2seq_attn.cross_attention import softmax_over
from hf_seq2seq_attn.fast_linear import PACKED_WEIGHTS, linear, training_linear

TOKENS, ROUNDS = 4096, 7
# (length, width of a head); with four heads.
SHAPES = ((20, 32), (20, 64), (64, 32), (64, 64), (128, 64), (192, 64), (256, 64), (512, 64))
# (rows, outputs, inputs) of a product in decoding.
PRODUCTS = tuple(
    (rows, *sizes)
    for sizes in ((8000, 512), (2048, 512), (512, 2048), (512, 512), (1536, 1024))
    for rows in (1, 3, 5, 32)
)
# The same in training: the decoder's steps of batches of 4,096 and of 512 tokens, the encoder, the loss, and back.
TRAINING_PRODUCTS = (
    *((rows, *sizes) for rows in (40, 315) for sizes in ((1536, 1024), (1024, 1536), (1536, 512), (768, 256))),
    (4096, 512, 512), (262, 8000, 512), (2097, 512, 8000),
)  # fmt: skip
MANY_STEPS, FEW_STEPS = 1000, 0
# Numbers in all weights of a kind together.
UNCACHED = 2**25


def seconds(*calls: Callable[[], Any]) -> list[float]:
    """Return the median time of each, in turns."""
    found: list[list[float]] = [[] for _ in calls]
    for number in range(ROUNDS + 1):
        for call, times in zip(calls, found, strict=True):
            start = time.perf_counter()
            call()
            if number:  # the first round warms up
                times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in found]


def formula(queries: Tensor, keys: Tensor, values: Tensor, readable: Tensor) -> Tensor:
    """Return the context as the model computes it by the formula."""
    scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
    return softmax_over(scores, readable).to(values.dtype) @ values


def fused(queries: Tensor, keys: Tensor, values: Tensor, readable: Tensor) -> Tensor:
    """Return it by the kernel."""
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=readable)


def attention(length: int, width: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the record of one shape."""
    batch = max(1, TOKENS // length)
    parts = [torch.randn(batch, 4, length, width, dtype=dtype).requires_grad_() for _ in range(3)]
    readable = (torch.arange(length) < torch.randint(length // 2, length + 1, (batch, 1)))[:, None, None]

    def both_passes(form: Callable[..., Tensor]) -> None:
        context = form(*parts, readable)
        torch.autograd.grad(context, parts, torch.ones_like(context))

    by_kernel, by_formula = seconds(lambda: both_passes(fused), lambda: both_passes(formula))
    return {
        "length": length,
        "width": width,
        "dtype": str(dtype).removeprefix("torch."),
        "kernel_ms": round(by_kernel * 1e3, 2),
        "formula_ms": round(by_formula * 1e3, 2),
        "kernel_over_formula": round(by_kernel / by_formula, 2),
    }


def product(rows: int, outputs: int, inputs: int) -> dict[str, Any]:
    """Return the record of one product of `linear`."""
    count = -(-UNCACHED // (outputs * inputs))
    weights, x = [torch.randn(outputs, inputs) for _ in range(count)], torch.randn(rows, inputs)

    def prepared() -> list[Callable[[Tensor], Tensor]]:
        return [linear(weight, None, rows) for weight in weights]

    with torch.no_grad():
        made = prepared()
        general, chosen, packing = (
            each / count
            for each in seconds(
                lambda: [F.linear(x, weight) for weight in weights], lambda: [one(x) for one in made], prepared
            )
        )
    return {
        "rows": rows,
        "weight": [outputs, inputs],
        "large_enough": outputs * inputs >= PACKED_WEIGHTS,
        "general_ms": round(general * 1e3, 3),
        "chosen_ms": round(chosen * 1e3, 3),
        "preparation_ms": round(packing * 1e3, 3),
    }


def training_product(rows: int, outputs: int, inputs: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the record of one product of `training_linear`."""
    weight, x = torch.randn(outputs, inputs, dtype=dtype), torch.randn(rows, inputs, dtype=dtype)
    as_it_is, packed = (training_linear(weight, None, rows, steps) for steps in (FEW_STEPS, MANY_STEPS))
    general, few, many, packing = seconds(
        lambda: F.linear(x, weight),
        lambda: as_it_is(x),
        lambda: packed(x),
        lambda: training_linear(weight, None, rows, MANY_STEPS),
    )
    return {
        "rows": rows,
        "weight": [outputs, inputs],
        "dtype": str(dtype).removeprefix("torch."),
        "general_ms": round(general * 1e3, 3),
        "few_steps_ms": round(few * 1e3, 3),
        "many_steps_ms": round(many * 1e3, 3),
        "preparation_ms": round(packing * 1e3, 3),
    }


def main() -> None:
    """Measure, print and write the result file."""
    chosen = options("what the rules choose between", ["all"], "speed_choices.json")
    attentions = [
        attention(*shape, dtype) for dtype in (torch.bfloat16, torch.float32, torch.float16) for shape in SHAPES
    ]
    products = [product(*sizes) for sizes in PRODUCTS]
    training = [
        training_product(*sizes, dtype) for dtype in (torch.float32, torch.bfloat16) for sizes in TRAINING_PRODUCTS
    ]
    for record in (*attentions, *products, *training):
        print(record)
    found = {"attention": attentions, "products": products, "training_products": training}
    write(chosen.output, {"machine": machine(chosen.threads), **found})


if __name__ == "__main__":
    main()
