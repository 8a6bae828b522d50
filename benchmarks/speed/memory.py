"""What is the peak memory of a training step, ours, ours by the plain forms, and the peers'?

    python benchmarks/speed/memory.py [--rows ...] [--threads N] [-o FILE]     (Linux)

Each is measured in a process of its own, on its second step, when gradients and Adam's moments have had their place:
the kernel's high-water mark of resident memory (VmHWM of /proc/self/status) during the step, less what was resident
before it, once the allocator has given back what it held free. So weights, moments and the batch are not counted;
gradients and all that the passes hold are.
"""

import ctypes
import importlib
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from contestant import Contestant, Training
from measuring import built, left_out, measured_rows, options
from rows import MEMORY, Entry, MemoryRow
from workloads import training_batches

HERE = Path(__file__).parent


def extra_bytes(call: Callable[[], Any]) -> int:
    """Return how far resident memory rises above where it was while the second of two calls runs."""
    call()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    # 5: the high-water mark starts anew from what is resident now.
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    call()
    return _status("VmHWM") - before


def extra_bytes_in_child(module: str, *arguments: str) -> int:
    """Return the extra bytes of the call that `module.step(*arguments)` returns, in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--child", str(torch.get_num_threads()), module, *arguments]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return int(done.stdout.split()[-1])


def step(key: str, index: str) -> Callable[[], Any]:
    """Return a training step of an entry of a row."""
    row = next(row for row in MEMORY if row.key == key)
    contestant = built(row.entries[int(index)], row)
    assert isinstance(contestant, Contestant), contestant
    (batch,) = training_batches(row.corpus, 1, row.tokens)
    return partial(_own_step, Training(contestant, row.precision), contestant.prepare(batch))


def _own_step(training: Training, prepared: Any) -> None:
    training.step(prepared)
    training.optimizer.zero_grad(set_to_none=True)


def measure(row: MemoryRow, until: float) -> dict[str, Any]:
    """Return the record of a row; `until` is not needed, memory does not vary."""
    extra, missing = {}, []
    for index, entry in enumerate(row.entries):
        try:
            name = entry.arguments.get("name", "ours") if entry.module == "ours" else _name(entry)
        except ImportError as error:
            missing.append(left_out(entry, error))
            continue
        extra[name] = extra_bytes_in_child("memory", row.key, str(index))
    ratios = {name: round(size / extra["ours"], 3) for name, size in extra.items() if name != "ours"}
    plain = ratios["ours, plain forms"]
    return {
        "row": row.key,
        "job": row.job,
        "precision": row.precision,
        "unit": "MB",
        "contestants": {name: {"MB": round(size / 1e6, 1)} for name, size in extra.items()},
        "ours_against": ratios,
        "targets": [
            {
                "best_peer": "ours, plain forms",
                "of": ["ours, plain forms"],
                "at_least": 1.0,
                "measured": plain,
                "reached": plain > 1,
            }
        ],
        "cores_busy_for_others": 0.0,
        "left_out": missing,
    }


def _name(entry: Entry) -> str:
    """Return what a peer is called; its import fails if it is not installed."""
    return importlib.import_module(entry.module).NAME


def _status(field: str) -> int:
    """Return a size from /proc/self/status in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def _child(threads: str, module: str, *arguments: str) -> None:
    torch.set_num_threads(int(threads))
    print(extra_bytes(importlib.import_module(module).step(*arguments)))


def main() -> None:
    """Measure the chosen rows and write the result file."""
    chosen = options("memory of a training step", [row.key for row in MEMORY], "speed_memory.json")
    measured_rows(MEMORY, measure, chosen)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(*sys.argv[2:])
    else:
        main()
