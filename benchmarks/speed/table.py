"""Make the README's table from the result files.

python benchmarks/speed/table.py [--short] [benchmarks/results/speed_training.json ...]

`--short` leaves the targets out and gives each job one line, against the best of its peers.
"""

import json
import sys
from pathlib import Path
from typing import Any

from measuring import QUIET

RESULTS = Path(__file__).parents[1] / "results"
NAMES = ("speed_training.json", "speed_attention.json", "speed_decoding.json", "speed_memory.json")
HEAD = ("job", "precision", "ours", "against", "measured", "target", "")
SHORT_HEAD = ("one thread", "", "ours", "best other", "ratio")


def rows_of(record: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the lines of one row's record: one for each target, or one for the best peer where there is none."""
    unit = record["unit"]
    ours = record["contestants"]["ours"][unit]
    shown = f"{ours:,.0f} {unit}" if ours >= 100 else f"{ours:.1f} {unit}"
    lines = [
        (
            _peer(record, target["best_peer"]),
            _ratio(record, target["best_peer"], target["measured"]),
            f"{target['at_least']:g}x",
            "reached" if target["reached"] else "**missed**",
        )
        for target in record["targets"]
    ]
    if not lines and record["ours_against"]:
        best = min(record["ours_against"], key=record["ours_against"].__getitem__)
        lines = [(_peer(record, best), _ratio(record, best, record["ours_against"][best]), "", "stated")]
    return [(record["job"], record["precision"], shown, *line) for line in lines]


def _ratio(record: dict[str, Any], peer: str, measured: float) -> str:
    """Return a ratio; where others kept the machine busy, with that of the time the process itself computed."""
    if record["cores_busy_for_others"] <= QUIET:
        return f"{measured:.2f}x"
    computed = record.get("ours_against_by_computing_time", {}).get(peer)
    return f"{measured:.2f}x (loaded" + (")" if computed is None else f"; {computed:.2f}x by computing time)")


def _peer(record: dict[str, Any], name: str) -> str:
    measured = record["contestants"].get(name)
    return name if measured is None else f"{name}, {measured[record['unit']]:,.1f}"


def short_rows_of(record: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the line of one row's record: against the first target's peer."""
    return [line[: len(SHORT_HEAD)] for line in rows_of(record)[:1] if record["targets"]]


def markdown(results: list[dict[str, Any]], short: bool = False) -> str:
    """Return the table, with where and with what it was measured below it."""
    head, rows = (SHORT_HEAD, short_rows_of) if short else (HEAD, rows_of)
    lines = [head, *(line for result in results for record in result["rows"] for line in rows(record))]
    cells = [f"| {' | '.join(line)} |" for line in lines]
    cells.insert(1, "|---" * len(head) + "|")
    notes = []
    for machine in dict.fromkeys(json.dumps(result["machine"]) for result in results):
        told = json.loads(machine)
        versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
        notes.append(
            f"{told['cpu']} ({told['capability']}), {told['threads']} of {told['cores']} cores, seed {told['seed']}; "
            f"Python {told['python']}, {versions}."
        )
    left_out = {words for result in results for record in result["rows"] for words in record["left_out"]}
    return "\n".join([*cells, "", *notes, *sorted(left_out)])


def main() -> None:
    """Print the table of the files given, or of those that lie in the results folder."""
    names = [name for name in sys.argv[1:] if name != "--short"]
    paths = [Path(name) for name in names] or [RESULTS / name for name in NAMES if (RESULTS / name).exists()]
    print(markdown([json.loads(path.read_text()) for path in paths], short="--short" in sys.argv))


if __name__ == "__main__":
    main()
