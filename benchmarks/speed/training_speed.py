"""How many target tokens a second does a training step get through, ours and the peers'?

    python benchmarks/speed/training_speed.py [--rows recurrent-bf16-4096 ...] [--threads N] [--minutes M] [-o FILE]

Timed is what trains: forward, loss, backward, Adam; no data loading, no dropout, no statistics. All get the same
batches and take turns in each round.
"""

import time
from functools import partial
from typing import Any

from contestant import Training
from measuring import ROUNDS_AT_MOST, Turns, contestants_of, measured_rows, options, row_record
from rows import TRAINING, TrainingRow
from workloads import training_batches


def measure(row: TrainingRow, until: float, same_adam: bool = False) -> dict[str, Any]:
    """Return the record of a row; rounds are added until that time of `time.perf_counter`."""
    contestants, missing = contestants_of(row)
    batches = training_batches(row.corpus, ROUNDS_AT_MOST, row.tokens)
    calls, adam = {}, {}
    for contestant in contestants:
        training = Training(contestant, row.precision, same_adam)
        calls[contestant.name] = partial(_step, training, [contestant.prepare(batch) for batch in batches])
        adam[contestant.name] = "fused" if training.fused else "plain"
    turns = Turns(calls, lambda number: batches[number].tokens)
    start = time.perf_counter()
    rounds = turns.run(until)
    record = row_record(row, contestants, missing, turns, "tokens/s")
    for name, kind_of_adam in adam.items():
        record["contestants"][name]["adam"] = kind_of_adam
    work = {"corpus": row.corpus, "vocabulary": row.size.vocabulary, "tokens_of_a_batch": row.tokens}
    measured = {"rounds": rounds, "took": round(time.perf_counter() - start, 1)}
    return record | {"precision": row.precision, "work": work} | measured


def _step(training: Training, prepared: list[Any], number: int) -> float:
    return training.step(prepared[number])


def main() -> None:
    """Measure the chosen rows and write the result file."""
    chosen = options("training speed", [row.key for row in TRAINING], "speed_training.json")
    measured_rows(TRAINING, partial(measure, same_adam=chosen.same_adam), chosen)


if __name__ == "__main__":
    main()
