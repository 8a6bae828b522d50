"""How fast is additive attention for many queries at once, and what memory does it take, against its plain form?

    python benchmarks/speed/attention_speed.py [--threads N] [--minutes M] [-o FILE]

Forward and backward pass of the scores v . tanh(q + k) in f32; (B, T, S, H) are batch, queries, keys, width.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from measuring import Turns, measured_rows, options, taken
from memory import extra_bytes_in_child
from rows import ATTENTION, AttentionRow
from torch import Tensor
from workloads import SEED

from hf_seq2seq_attn.additive_scores import additive_scores, additive_scores_reference
from hf_seq2seq_attn.cpu_kernels import kernels_switched


def inputs(row: AttentionRow) -> list[Tensor]:
    """Return queries (B, 1, T, H), keys (B, 1, S, H), score vector (1, H)."""
    draw = torch.Generator().manual_seed(SEED)
    shapes = (row.batch, 1, row.queries, row.width), (row.batch, 1, row.keys, row.width), (1, row.width)
    return [torch.randn(shape, generator=draw).requires_grad_() for shape in shapes]


def gradients(form: Callable[..., Tensor], tensors: list[Tensor]) -> list[Tensor]:
    """Return the gradients of all three under a gradient of 1 for each score."""
    scores = form(*tensors)
    return list(torch.autograd.grad(scores, tensors, torch.ones_like(scores)))


def gradients_without_kernels(tensors: list[Tensor]) -> list[Tensor]:
    """Return them as they are computed where numba is not installed."""
    with kernels_switched(False):
        return gradients(additive_scores, tensors)


FORMS: dict[str, Callable[[list[Tensor]], list[Tensor]]] = {
    "ours": partial(gradients, additive_scores),
    "ours without kernels": gradients_without_kernels,
    "plain form": partial(gradients, additive_scores_reference),
}


def step(key: str, form: str) -> Callable[[], Any]:
    """Return the call whose memory is measured in a process of its own."""
    row = next(row for row in ATTENTION if row.key == key)
    return partial(FORMS[form], inputs(row))


def measure(row: AttentionRow, until: float) -> dict[str, Any]:
    """Return the record of a row: seconds and extra bytes of both forms, and how far their gradients are apart."""
    tensors = inputs(row)
    take = {name: partial(taken, partial(_call, form, tensors)) for name, form in FORMS.items()}
    turns = Turns(take, lambda number: 1)
    start = time.perf_counter()
    rounds = turns.run(until)
    extra = {name: extra_bytes_in_child("attention_speed", row.key, name) for name in FORMS}
    ratio, share = turns.ratio("ours", "plain form"), extra["ours"] / extra["plain form"]
    contestants = {
        name: {
            "calls/s": round(1 / sorted(turns.wall[name])[rounds // 2], 3),
            "seconds": [round(value, 4) for value in turns.wall[name]],
            "computing_seconds": [round(value, 4) for value in turns.computing[name]],
            "extra_bytes": extra[name],
        }
        for name in FORMS
    }
    return {
        "row": row.key,
        "job": f"additive scores for parallel queries, (B, T, S, H) = {row.shape}, forward + backward",
        "precision": "f32",
        "unit": "calls/s",
        "contestants": contestants,
        "ours_against": {name: round(turns.ratio("ours", name), 3) for name in FORMS if name != "ours"},
        "ours_against_by_computing_time": {
            name: round(turns.ratio("ours", name, True), 3) for name in FORMS if name != "ours"
        },
        "memory_share": round(share, 4),
        "largest_relative_gradient_error": _gradient_error(tensors),
        "targets": [
            _target("speed", ratio, row.faster, ratio >= row.faster),
            _target("memory, plain / ours", 1 / share, row.smaller, 1 / share >= row.smaller),
        ],
        "cores_busy_for_others": round(sorted(turns.others)[len(turns.others) // 2], 2),
        "left_out": [],
        "rounds": rounds,
        "took": round(time.perf_counter() - start, 1),
    }


def _call(form: Callable[..., list[Tensor]], tensors: list[Tensor], number: int) -> list[Tensor]:
    return form(tensors)


def _target(what: str, measured: float, at_least: float, reached: bool) -> dict[str, Any]:
    return {
        "best_peer": f"plain form ({what})",
        "of": ["plain form"],
        "at_least": at_least,
        "measured": round(measured, 3),
        "reached": reached,
    }


def _gradient_error(tensors: list[Tensor]) -> float:
    """Return the largest difference of the forms' gradients, relative to each gradient's largest number."""
    *ours, plain = (form(tensors) for form in FORMS.values())
    pairs = (pair for form in ours for pair in zip(form, plain, strict=True))
    return max(float((mine - exact).abs().max() / exact.abs().max()) for mine, exact in pairs)


def main() -> None:
    """Measure the chosen rows and write the result file."""
    chosen = options("additive attention", [row.key for row in ATTENTION], "speed_attention.json")
    measured_rows(ATTENTION, measure, chosen)


if __name__ == "__main__":
    main()
