"""Memory that is freed stays with the process."""

import subprocess
import sys
from pathlib import Path

import pytest

from hf_seq2seq_attn.training import kept_memory

BLOCK, ROUNDS = 2**26, 10
PROBE = f"""
import resource, runpy, sys
keeps = runpy.run_path({kept_memory.__file__!r})["keep_freed_memory"]() if sys.argv[1] == "keep" else None
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
data = b"x"
data * {BLOCK}
before = faults()
for _ in range({ROUNDS}):
    data * {BLOCK}
print(keeps, faults() - before)
"""


def probed(how):
    run = subprocess.run([sys.executable, "-c", PROBE, how], capture_output=True, text=True, check=True)
    keeps, faults = run.stdout.split()
    return keeps, int(faults)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
def test_freed_blocks_are_not_asked_for_again():
    keeps, faults = probed("keep")
    if keeps == "False":
        pytest.skip("this C library has no such choice")
    pages_of_a_block = BLOCK // 4096
    assert faults < pages_of_a_block / 10
    # Otherwise each round faults in each page anew: the test would notice if nothing was kept.
    assert probed("leave")[1] > faults


def test_another_system_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(kept_memory.sys, "platform", "darwin")
    assert kept_memory.keep_freed_memory() is False
