"""How far the training of an aligner is, on stderr: a bar where there is a terminal, else a few lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LINES = 10
SECONDS = 5.0
"""Between two lines at least, but for the last."""
Report = Callable[[float, str], None]
"""Called with the share that is done, 0..1, and a note."""


@contextmanager
def fraction_bar(what: str) -> Iterator[Report]:
    """Show a bar from the first call of the function that the block is given.

    The time left goes by the speed of this process alone: what a stopped run did before does not count.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(file=sys.stderr)
    clock = _Clock()
    if not console.is_terminal:
        yield _lines(what, clock)
        return
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[note]}"))
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(what, total=1.0, note="")

    def update(done: float, note: str) -> None:
        bar.start()
        bar.update(task, completed=done, note=clock.note(done, note))

    try:
        yield update
    finally:
        if bar.live.is_started:
            bar.stop()


class _Clock:
    def __init__(self) -> None:
        self.started = time.monotonic()
        self.first: float | None = None

    def note(self, done: float, note: str) -> str:
        """Return the note with the time left, once there is something to tell it by."""
        if self.first is None:
            self.first = done
        gone = done - self.first
        if gone <= 0 or done >= 1:
            return note
        left = (time.monotonic() - self.started) / gone * (1 - done)
        return f"{note}, {left / 60:.0f} min left" if left >= 90 else f"{note}, {left:.0f} s left"


def _lines(what: str, clock: _Clock) -> Report:
    printed, last = -1, clock.started

    def update(done: float, note: str) -> None:
        nonlocal printed, last
        text, step, now = clock.note(done, note), int(done * LINES), time.monotonic()
        if step > printed and (now - last >= SECONDS or done >= 1):
            printed, last = step, now
            print(f"{what} {done:.0%} {text}".rstrip(), file=sys.stderr, flush=True)

    return update
