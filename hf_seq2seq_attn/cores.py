"""How many CPU cores there are for this process."""

import os


def usable_cores() -> int:
    """Return the number of cores that this process may run on, where the system says it; else of all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
