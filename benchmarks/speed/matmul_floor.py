"""What could a training step reach at most on this machine: one that did nothing but its matrix products?

    python benchmarks/speed/matmul_floor.py [--rows recurrent-bf16-4096 ...] [--threads N] [-o FILE]

Counted are the floating-point operations of the products in one step of ours, and of the peer to pass where it is
installed; measured is how many this machine does in a second on products as large as the step's. The quotient bounds
every implementation of the function with these kernels, and so the ratio that ours can have to a peer. A peer's own
figure is taken from the result file of `training_speed.py`.
"""

import json
import time
from pathlib import Path
from typing import Any

import torch
from contestant import Training
from measuring import contestants_of, machine, options, write
from rows import TRAINING, TrainingRow
from torch.utils.flop_counter import FlopCounterMode
from workloads import training_batches

from hf_seq2seq_attn.fast_linear import training_linear

RESULTS = Path(__file__).parents[1] / "results" / "speed_training.json"
# Rows, inner and columns of products as they come in the recurrent steps: a batch against the gates, and the output.
SHAPES = ((204, 1024, 1536), (2048, 512, 8000), (1536, 4080, 1024))
ROUNDS, MANY_STEPS = 9, 1000


def _operations_added(into: Any, left: Any, right: Any, **rest: Any) -> int:
    return 2 * left[0] * left[1] * right[1]


def _operations_of_linear(inputs: Any, weight: Any, *rest: Any, **named: Any) -> int:
    return 2 * inputs[0] * weight[0] * weight[1]


# Products that torch's own counter does not know.
COUNTED = {torch.ops.aten.addmm_: _operations_added, torch.ops.mkldnn._linear_pointwise: _operations_of_linear}


def operations_of_a_second(precision: str) -> float:
    """Return the most floating-point operations a second, by torch's product or ours, over shapes and rounds."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    best = 0.0
    for rows, inner, columns in SHAPES:
        left, right = torch.randn(rows, inner, dtype=dtype), torch.randn(inner, columns, dtype=dtype)
        for times in (lambda x, matrix=right: x @ matrix, training_linear(right.T, None, rows, MANY_STEPS)):
            for _ in range(ROUNDS):
                start = time.perf_counter()
                times(left)
                best = max(best, 2 * rows * inner * columns / (time.perf_counter() - start))
    return best


def measure(row: TrainingRow) -> dict[str, Any]:
    """Return the record of a row."""
    (ours, *_), _ = contestants_of(row)
    batch = training_batches(row.corpus, 1, row.tokens)[0]
    training, prepared = Training(ours, row.precision), ours.prepare(batch)
    with FlopCounterMode(display=False, custom_mapping=COUNTED) as counter:
        training.step(prepared)
    operations = counter.get_total_flops()
    speed = operations_of_a_second(row.precision)
    floor = batch.tokens * speed / operations
    record: dict[str, Any] = {
        "row": row.key,
        "precision": row.precision,
        "gigaflop_a_token": round(operations / batch.tokens / 1e9, 4),
        "gigaflop_a_second": round(speed / 1e9, 1),
        "tokens/s_at_most": round(floor, 1),
    }
    if RESULTS.exists():
        measured = {each["row"]: each["contestants"] for each in json.loads(RESULTS.read_text())["rows"]}.get(row.key)
        if measured:
            speeds = {name: figures["tokens/s"] for name, figures in measured.items()}
            record["ours_reaches"] = round(speeds.pop("ours") / floor, 3)
            record["ratio_at_most"] = {name: round(floor / speed, 2) for name, speed in speeds.items()}
    return record


def main() -> None:
    """Measure the chosen rows, print them and write the result file."""
    chosen = options("the floor of the matrix products", [row.key for row in TRAINING], "speed_floor.json")
    records = [measure(row) for row in TRAINING if not chosen.rows or row.key in chosen.rows]
    write(chosen.output, {"machine": machine(chosen.threads), "rows": records})
    for record in records:
        print(json.dumps(record))


if __name__ == "__main__":
    main()
