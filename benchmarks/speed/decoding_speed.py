"""How many sentences a second get their translation of exactly 20 tokens, by ours and by the peers?

    python benchmarks/speed/decoding_speed.py [--rows recurrent-greedy-batch-32 ...] [--threads N] [-o FILE]

Timed is all of decoding: the encoder, twenty steps, the search. Each has a process of its own. Weights are random, in
f32. CTranslate2 is shown where it is installed, its int8 too; no target is set against an engine that cannot train.
"""

import time
from functools import partial
from typing import Any

from measuring import ROUNDS_AT_MOST, Turns, measured_rows, options, row_record
from own_process import AS_THEY_ARE, Ways, at_work
from rows import DECODING, DecodingRow
from workloads import NEW_TOKENS, decoding_batch


def measure(row: DecodingRow, until: float, ways: Ways = AS_THEY_ARE) -> dict[str, Any]:
    """Return the record of a row; rounds are added until that time of `time.perf_counter`."""
    # The same sentences in each round.
    batches = [decoding_batch("multi30k", row.sentences)] * ROUNDS_AT_MOST
    with at_work(row, batches, ways) as (take, present, missing):
        turns = Turns(take, lambda number: row.sentences)
        start = time.perf_counter()
        rounds = turns.run(until)
        took = round(time.perf_counter() - start, 1)
    record = row_record(row, present, missing, turns, "sentences/s")
    work = {"sentences": row.sentences, "beams": row.beams, "tokens_of_each": NEW_TOKENS}
    return record | {"precision": "f32", "work": work, "rounds": rounds, "took": took}


def main() -> None:
    """Measure the chosen rows and write the result file."""
    chosen = options("decoding speed", [row.key for row in DECODING], "speed_decoding.json")
    measured_rows(DECODING, partial(measure, ways=Ways(chosen.threads)), chosen)


if __name__ == "__main__":
    main()
