"""Rounds in which all contestants take turns, and the record that is written of them."""

import argparse
import gc
import importlib
import json
import logging
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch
from contestant import Contestant
from rows import DecodingRow, Entry, Target, TrainingRow, kind
from workloads import NEW_TOKENS, SEED

ROUNDS_AT_LEAST, ROUNDS_AT_MOST = 3, 7
# A turn repeats short calls until it has taken this long, in seconds.
TURN = 0.4
# Calls shorter than this are warmed up twice.
WARM = 2.0
# How much the number of parameters may differ from ours.
PARAMETERS_WITHIN = 0.15
# Above this many cores at work for others a row says that the machine was loaded.
QUIET = 0.1
DISTRIBUTIONS = (
    *("hf-seq2seq-attn", "torch", "transformers", "numba", "joeynmt", "eole", "OpenNMT-py", "fairseq-fixed"),
    "ctranslate2",
)


def built(entry: Entry, row: TrainingRow | DecodingRow) -> Contestant | str:
    """Return the contestant, its weights drawn from SEED; or, where the peer is not installed, say so."""
    try:
        module = importlib.import_module(entry.module)
    except ImportError as error:
        if entry.module == "ours":
            raise
        return left_out(entry, error)
    logging.disable(logging.INFO)
    torch.manual_seed(SEED)
    return getattr(module, kind(row.size))(row.size, **entry.arguments)


def left_out(entry: Entry, error: ImportError) -> str:
    """Return in words that a peer takes no part."""
    return f"{entry.module.removeprefix('peers.')} is left out: {error}"


def contestants_of(row: TrainingRow | DecodingRow) -> tuple[list[Contestant], list[str]]:
    """Return who can take part, ours first, and who is left out, in words.

    Raises:
        ValueError: somebody has far more or fewer parameters than ours.
    """
    return present_of(row, [built(entry, row) for entry in row.entries])


def present_of(row: TrainingRow | DecodingRow, made: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Return those of `made` that are no words, and those that are.

    Raises:
        ValueError: somebody has far more or fewer parameters than ours.
    """
    present = [one for one in made if not isinstance(one, str)]
    for one in present:
        if abs(one.parameters / present[0].parameters - 1) > PARAMETERS_WITHIN:
            raise ValueError(
                f"{row.key}: {one.name} has {one.parameters:,} parameters, ours {present[0].parameters:,}; "
                f"they must be within {PARAMETERS_WITHIN:.0%}"
            )
    return present, [one for one in made if isinstance(one, str)]


class Taken(NamedTuple):
    """What a turn took, in seconds for each call: on the clock, and computing; and how many cores worked for others."""

    wall: float
    computing: float
    others: float


def taken(call: Callable[[int], Any], number: int, repeats: int) -> Taken:
    """Call so many times with the number of the round, and return what that took."""
    before = busy_seconds(), sum(os.times()[:4])
    start = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        call(number)
    wall, computing = time.perf_counter() - start[0], time.process_time() - start[1]
    others = busy_seconds() - before[0] - (sum(os.times()[:4]) - before[1])
    return Taken(wall / repeats, computing / repeats, max(0.0, others) / wall)


class Turns:
    """The times of each contestant, round by round."""

    def __init__(self, take: dict[str, Callable[[int, int], Taken]], units: Callable[[int], float]) -> None:
        """`take` are given the number of the round and of calls; `units` says what a call of that round gets done."""
        self.take, self.units = take, units
        self.wall: dict[str, list[float]] = {name: [] for name in take}
        self.computing: dict[str, list[float]] = {name: [] for name in take}
        self.others: list[float] = []
        self.repeats: dict[str, int] = {}

    def warm_up(self) -> None:
        """Let each make a call that does not count, and settle how often a turn repeats it."""
        for name, take in self.take.items():
            wall = take(0, 1).wall
            if wall < WARM:
                # The first call may have compiled or allocated what later ones find.
                wall = min(wall, take(0, 1).wall)
            self.repeats[name] = max(1, round(TURN / wall))

    def round(self, number: int) -> None:
        """Let each have its turn."""
        for name, take in self.take.items():
            turn = take(number, self.repeats[name])
            self.wall[name].append(turn.wall)
            self.computing[name].append(turn.computing)
            self.others.append(turn.others)

    def run(self, until: float) -> int:
        """Take ROUNDS_AT_LEAST rounds, and more until that time of the clock; return how many."""
        self.warm_up()
        for number in range(ROUNDS_AT_MOST):
            start = time.perf_counter()
            self.round(number)
            if number + 1 >= ROUNDS_AT_LEAST and 2 * time.perf_counter() - start > until:
                break
        return number + 1

    def rates(self, name: str) -> list[float]:
        """Return units a second, for each round."""
        return [self.units(number) / seconds for number, seconds in enumerate(self.wall[name])]

    def ratio(self, ours: str, other: str, computing: bool = False) -> float:
        """Return how many times as fast ours is: the median of the rounds' ratios."""
        times = self.computing if computing else self.wall
        return statistics.median(theirs / mine for mine, theirs in zip(times[ours], times[other], strict=True))


def busy_seconds() -> float:
    """Return how long the machine's cores have worked since it started, all together; 0 where nobody tells."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _idle, _waiting, *rest = map(int, stat.read_text().splitlines()[0].split()[1:])
    return (user + nice + system + sum(rest[:3])) / os.sysconf("SC_CLK_TCK")


def row_record(
    row: TrainingRow | DecodingRow, contestants: Sequence[Any], missing: Sequence[str], turns: Turns, unit: str
) -> dict[str, Any]:
    """Return what is written of a row."""
    ours, *others = [one.name for one in contestants]
    measured = {
        one.name: {
            "parameters": one.parameters,
            "computes": one.function or "as ours",
            unit: round(statistics.median(turns.rates(one.name)), 1),
            "seconds": [round(value, 4) for value in turns.wall[one.name]],
            "computing_seconds": [round(value, 4) for value in turns.computing[one.name]],
        }
        for one in contestants
    }
    ratios = {name: round(turns.ratio(ours, name), 3) for name in others}
    return {
        "row": row.key,
        "job": row.job,
        "unit": unit,
        "contestants": measured,
        "ours_against": ratios,
        "ours_against_by_computing_time": {name: round(turns.ratio(ours, name, True), 3) for name in others},
        "targets": [reached for target in row.targets if (reached := judged(target, ratios))],
        "cores_busy_for_others": round(statistics.median(turns.others), 2),
        "left_out": list(missing),
    }


def judged(target: Target, ratios: dict[str, float]) -> dict[str, Any] | None:
    """Return the target with what was measured against the best of its peers; None if none of them took part."""
    there = {name: ratios[name] for name in target.against if name in ratios}
    if not there:
        return None
    best = min(there, key=there.__getitem__)
    return {
        "best_peer": best,
        "of": list(target.against),
        "at_least": target.at_least,
        "measured": there[best],
        "reached": there[best] >= target.at_least,
    }


def machine(threads: int) -> dict[str, Any]:
    """Return where this was measured, and with what."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = named[0] if named else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "python": platform.python_version(),
        "versions": {name: version for name in DISTRIBUTIONS if (version := installed_version(name))},
        "seed": SEED,
        "decoded_tokens": NEW_TOKENS,
    }


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def options(description: str, keys: Iterable[str], result: str) -> argparse.Namespace:
    """Read the command line that all scripts of this folder share, and set the threads."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rows", nargs="+", choices=[*keys], metavar="ROW", help="only these: " + ", ".join(keys))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10, help="more rounds than the least while this lasts")
    parser.add_argument("--same-adam", action="store_true", help="the fused Adam for everybody")
    parser.add_argument("--keep-memory", action="store_true", help="freed memory stays with everybody's process")
    default = Path(__file__).parents[1] / "results" / result
    parser.add_argument("-o", "--output", type=Path, default=default)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    return chosen


def measured_rows(
    rows: Sequence[Any], measure: Callable[[Any, float], dict[str, Any]], chosen: argparse.Namespace
) -> list[dict[str, Any]]:
    """Measure each chosen row with its share of the time that is left; write what there is after each."""
    end = time.perf_counter() + chosen.minutes * 60
    todo = [row for row in rows if not chosen.rows or row.key in chosen.rows]
    records: list[dict[str, Any]] = []
    for index, row in enumerate(todo):
        now = time.perf_counter()
        records.append(measure(row, now + (end - now) / (len(todo) - index)))
        write(chosen.output, {"machine": machine(chosen.threads), "rows": records})
        print(told(records[-1]), flush=True)
        gc.collect()
    return records


def write(path: Path, result: dict[str, Any]) -> None:
    """Write a result file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(result, indent=1) + "\n")
    unfinished.replace(path)


def told(record: dict[str, Any]) -> str:
    """Return a row in a few lines."""
    unit = record["unit"]
    lines = [f"{record['row']} ({record['cores_busy_for_others']} cores busy for others)"]
    for name, measured in record["contestants"].items():
        ratio = record["ours_against"].get(name)
        against = "" if ratio is None else f"  ours x{ratio:.2f}"
        lines.append(f"  {name:22} {measured[unit]:10,.1f} {unit}{against}")
    for target in record["targets"]:
        verdict = "reached" if target["reached"] else "missed"
        lines.append(f"  target x{target['at_least']} of {target['best_peer']}: {verdict}, x{target['measured']:.2f}")
    return "\n".join([*lines, *(f"  {words}" for words in record["left_out"])])
