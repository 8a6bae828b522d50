"""How many target tokens a second does a training step get through, ours and the peers'?

    python benchmarks/speed/training_speed.py [--rows recurrent-bf16-4096 ...] [--threads N] [--minutes M] [-o FILE]

Timed is what trains: forward, loss, backward, Adam; no data loading, no dropout, no statistics. Each has a process of
its own, as its users have; all get the same batches and take turns in each round.
"""

import time
from functools import partial
from typing import Any

from measuring import ROUNDS_AT_MOST, Turns, measured_rows, options, row_record
from own_process import AS_THEY_ARE, Ways, at_work
from rows import TRAINING, TrainingRow
from workloads import training_batches


def measure(row: TrainingRow, until: float, ways: Ways = AS_THEY_ARE) -> dict[str, Any]:
    """Return the record of a row; rounds are added until that time of `time.perf_counter`."""
    batches = training_batches(row.corpus, ROUNDS_AT_MOST, row.tokens)
    with at_work(row, batches, ways) as (take, present, missing):
        turns = Turns(take, lambda number: batches[number].tokens)
        start = time.perf_counter()
        rounds = turns.run(until)
        took = round(time.perf_counter() - start, 1)
    record = row_record(row, present, missing, turns, "tokens/s")
    for one in present:
        record["contestants"][one.name]["adam"] = "fused" if one.fused_adam else "plain"
    work = {"corpus": row.corpus, "vocabulary": row.size.vocabulary, "tokens_of_a_batch": row.tokens}
    measured = {"rounds": rounds, "took": took, "kept_memory": "all" if ways.keep_memory else "ours"}
    return record | {"precision": row.precision, "work": work} | measured


def main() -> None:
    """Measure the chosen rows and write the result file."""
    chosen = options("training speed", [row.key for row in TRAINING], "speed_training.json")
    ways = Ways(chosen.threads, chosen.same_adam, chosen.keep_memory)
    measured_rows(TRAINING, partial(measure, ways=ways), chosen)


if __name__ == "__main__":
    main()
