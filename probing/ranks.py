"""One process among several that a launcher (torchrun, accelerate launch) started."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

# Ranks wait for each other at the end, which may be long after the first is done.
_PATIENCE = timedelta(days=7)


@dataclass(frozen=True)
class Rank:
    """Which of the launched processes this one is.

    Attributes:
        number: from 0 to size - 1.
        size: number of processes; 1 without a launcher.
        local: this process's number on its machine.
    """

    number: int
    size: int
    local: int

    def wait(self) -> None:
        """Wait until every rank is here."""
        if self.size > 1:
            import torch.distributed

            torch.distributed.barrier()


@contextmanager
def launched_rank() -> Iterator[Rank]:
    """Give this process's rank, by the variables that launchers set; connects the ranks for the block."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Rank(0, 1, 0)
        return
    import torch.distributed

    # Ranks exchange no tensors, so that gloo does on every machine.
    torch.distributed.init_process_group("gloo", timeout=_PATIENCE)
    try:
        yield Rank(torch.distributed.get_rank(), size, int(os.environ.get("LOCAL_RANK", "0")))
    finally:
        torch.distributed.destroy_process_group()
