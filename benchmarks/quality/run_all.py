"""Train and score the quality runs one after the other, the most valuable first.

    python benchmarks/quality/run_all.py --data ../shared/data -w runs/quality [--minutes 60] [--only NAME ...]
    python benchmarks/quality/run_all.py --list

Give the same command again after whatever stopped it: finished runs are passed over, and the one that was under way
goes on from its last checkpoint. Everything happens in this one process, so that SIGSTOP and SIGCONT halt and resume it
all. Results come to --results/RUN: metrics.json (with the scores under `quality` and the CPU minutes), recipe.yaml and
curve.png; a trial's to trials.md there.
"""

import argparse
import contextlib
import json
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from comparisons import compare_all
from runs import ABLATION, MAIN, RUNS, TRIALS, Run
from scores import score_run

from hf_seq2seq_attn.probing import write_atomically
from hf_seq2seq_attn.training.run_record import CURVE_FILE, METRICS_FILE, RECIPE_FILE, read_metrics, write_metrics
from hf_seq2seq_attn.training.train import train

RESULTS = Path(__file__).parents[1] / "results" / "quality"
KINDS = {"row": MAIN, "ablation": ABLATION, "trial": TRIALS}
TRIALS_FILE = "trials.md"
WRITTEN_EVERY = 60.0
"""Seconds between two records of the CPU time."""
TRIALS_HEAD = "| trial | what it changes | score on dev (greedy) | epochs | CPU minutes |\n|---|---|---|---|---|\n"


class Stopped(BaseException):
    """The time is over, or the process was told to end; not an error of the run that it meets."""


class CpuMinutes:
    """The CPU time that a run has taken, over all processes that worked at it, in a file beside its folder.

    What an interrupted run had done since its last checkpoint, and does again, is in it twice. The file is written each
    minute, so that a process that is killed leaves its time there, too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def value(self) -> float:
        return float(json.loads(self.path.read_text(encoding="utf-8"))["minutes"]) if self.path.exists() else 0.0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Add what the block takes, however it ends."""
        before, started, ended = self.value(), time.process_time(), threading.Event()

        def write() -> None:
            minutes = before + (time.process_time() - started) / 60
            write_atomically(self.path, [json.dumps({"minutes": round(minutes, 2)}) + "\n"])

        def write_now_and_then() -> None:
            while not ended.wait(WRITTEN_EVERY):
                write()

        writer = threading.Thread(target=write_now_and_then, daemon=True)
        writer.start()
        try:
            yield
        finally:
            ended.set()
            writer.join()
            write()


def do_run(run: Run, data: Path, work: Path, results: Path) -> bool:
    """Train and score a run unless that is done; return whether there was anything to do.

    Results of another recipe are replaced, the model of it is kept as `NAME.earlier`. A noted trial is not done again.
    """
    folder = work / run.name
    if is_noted(run, results) or is_done(run, results / run.name):
        return False
    if (folder / RECIPE_FILE).exists() and not run.is_of(folder / RECIPE_FILE):
        earlier = folder.with_name(f"{run.name}.earlier")
        shutil.rmtree(earlier, ignore_errors=True)
        folder.rename(earlier)
    clock = CpuMinutes(work / f"{run.name}.cpu.json")
    with clock.counted():
        if not (folder / METRICS_FILE).exists():
            train(run.load(data, work), folder)
        if run.kind != "trial":
            tests = {name: run.corpus.files(name, data, work) for name in run.corpus.tests}
            score_run(folder, run.corpus.files("dev", data, work), tests, run.corpus.metric)
    metrics = read_metrics(folder / METRICS_FILE)
    metrics["cpu_minutes"] = round(clock.value(), 2)
    results.mkdir(parents=True, exist_ok=True)
    if run.kind == "trial":
        note_trial(run, metrics, results)
    else:
        keep(folder, metrics, results / run.name)
    return True


def is_done(run: Run, kept: Path) -> bool:
    """Tell whether there are results of the run as it is today."""
    return (kept / METRICS_FILE).exists() and run.is_of(kept / RECIPE_FILE)


def keep(folder: Path, metrics: dict[str, Any], target: Path) -> None:
    """Leave a run's results in `target`; metrics.json last, since it says that they are there."""
    target.mkdir(parents=True, exist_ok=True)
    (target / METRICS_FILE).unlink(missing_ok=True)
    for name in (RECIPE_FILE, CURVE_FILE):
        shutil.copyfile(folder / name, target / name)
    write_metrics(target / "partial.json", metrics)
    (target / "partial.json").replace(target / METRICS_FILE)


def is_noted(run: Run, results: Path) -> bool:
    path = results / TRIALS_FILE
    return path.exists() and f"| `{run.name}` |" in path.read_text(encoding="utf-8")


def note_trial(run: Run, metrics: dict[str, Any], results: Path) -> None:
    """Add a line to the list of trials."""
    path = results / TRIALS_FILE
    before = path.read_text(encoding="utf-8") if path.exists() else TRIALS_HEAD
    name = "bleu" if run.corpus.metric == "bleu" else "word_error_rate"
    shown = f"cased BLEU {metrics['dev'][name]:.2f}" if name == "bleu" else f"WER {100 * metrics['dev'][name]:.2f}"
    changed = ", ".join(f"`{override}`" for override in run.overrides)
    cells = (
        f"`{run.name}`",
        f"`{run.recipe}`: {changed}",
        shown,
        f"{metrics['epochs']:g}",
        str(metrics["cpu_minutes"]),
    )
    write_atomically(path, [before, f"| {' | '.join(cells)} |\n"])


def stop_after(minutes: float | None) -> None:
    """Let SIGTERM, and the alarm after so many minutes, end the process as the last checkpoint can go on from."""

    def stop(number: int, frame: Any) -> None:
        raise Stopped(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, stop)
    if minutes is not None:
        signal.setitimer(signal.ITIMER_REAL, minutes * 60)


def run_queue(runs: Sequence[Run], do: Callable[[Run], bool], say: Callable[[str], None]) -> int:
    """Do the runs in order; one that fails is said and passed over. Return 0, or 1 where one failed or time was up."""
    failed = []
    for run in runs:
        say(f"{run.name}: begins")
        try:
            say(f"{run.name}: {'done' if do(run) else 'was done already'}")
        except Stopped as reason:
            say(f"{run.name}: stopped ({reason}); the same command goes on")
            return 1
        except Exception:
            failed.append(run.name)
            say(f"{run.name}: failed\n{traceback.format_exc()}")
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def chosen_runs(names: Sequence[str] | None, kinds: Sequence[str]) -> list[Run]:
    """Return the runs of these names, or all of these kinds, in the order of the queue.

    Raises:
        SystemExit: a name that is not known.
    """
    unknown = set(names or ()) - RUNS.keys()
    if unknown:
        sys.exit(f"no such run: {', '.join(sorted(unknown))}; known are {', '.join(RUNS)}")
    if names:
        return [run for run in RUNS.values() if run.name in names]
    return [run for kind in kinds for run in KINDS[kind]]


def say(line: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), line, flush=True)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return 0 when everything is done, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="holds multi30k/raw and g2p-sigmorphon2021")
    parser.add_argument("-w", "--work", type=Path, help="for the run folders")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--minutes", type=float, help="stop after so many, to be continued")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these runs alone, in the order of the queue")
    parser.add_argument("--kind", nargs="+", choices=tuple(KINDS), default=["row", "ablation"])
    parser.add_argument("--list", action="store_true", help="show the runs with their minutes, and do nothing")
    chosen = parser.parse_args(words)
    runs = chosen_runs(chosen.only, chosen.kind)
    if chosen.list:
        for run in runs:
            print(f"{run.name:32} {run.minutes:4g} min  {run.recipe}  {' '.join(run.overrides)}")
        print(f"{len(runs)} runs, {sum(run.minutes for run in runs) / 60:.1f} CPU hours")
        return 0
    if chosen.data is None or chosen.work is None:
        parser.error("give --data and -w, or --list")
    work = chosen.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    data, results = chosen.data.resolve(), chosen.results.resolve()
    stop_after(chosen.minutes)
    code = run_queue(runs, lambda run: do_run(run, data, work, results), say)
    if code == 0:
        try:
            say(f"compared: {', '.join(compare_all(data, work, results)) or 'nothing'}")
        except Stopped as reason:
            say(f"stopped ({reason}); the same command goes on")
            return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
