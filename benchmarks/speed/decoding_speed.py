"""How many sentences a second get their translation of exactly 20 tokens, by ours and by the peers?

    python benchmarks/speed/decoding_speed.py [--rows recurrent-greedy-batch-32 ...] [--threads N] [-o FILE]

Timed is all of decoding: the encoder, twenty steps, the search. Weights are random, in f32. CTranslate2 is shown
where it is installed, its int8 too; no target is set against an engine that cannot train.
"""

import time
from functools import partial
from typing import Any

from contestant import decoding
from measuring import Turns, contestants_of, measured_rows, options, row_record, taken
from rows import DECODING, DecodingRow
from workloads import NEW_TOKENS, decoding_batch


def measure(row: DecodingRow, until: float) -> dict[str, Any]:
    """Return the record of a row; rounds are added until that time of `time.perf_counter`."""
    contestants, missing = contestants_of(row)
    batch = decoding_batch("multi30k", row.sentences)
    take = {one.name: partial(taken, partial(_decode, decoding(one, batch, row.beams))) for one in contestants}
    turns = Turns(take, lambda number: row.sentences)
    start = time.perf_counter()
    rounds = turns.run(until)
    record = row_record(row, contestants, missing, turns, "sentences/s")
    work = {"sentences": row.sentences, "beams": row.beams, "tokens_of_each": NEW_TOKENS}
    return record | {"precision": "f32", "work": work, "rounds": rounds, "took": round(time.perf_counter() - start, 1)}


def _decode(decode: Any, number: int) -> Any:
    return decode()


def main() -> None:
    """Measure the chosen rows and write the result file."""
    chosen = options("decoding speed", [row.key for row in DECODING], "speed_decoding.json")
    measured_rows(DECODING, measure, chosen)


if __name__ == "__main__":
    main()
