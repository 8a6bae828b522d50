"""The suite can fail: it does for each of four planted faults, and not without one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mutants import MUTANTS

ROOT = Path(__file__).parents[2]


def run_suite(mutant: str, variant: str) -> subprocess.CompletedProcess[str]:
    """Run the model's tests of one variant with the fault planted ('' = none)."""
    return subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "mutants", "-p", "no:cacheprovider", "-p", "no:xdist", "-x",
            "-k", variant, "tests/model/test_generation.py", "tests/model/test_modeling.py",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support"), "SEQ2SEQ_MUTANT": mutant},
        capture_output=True,
        text=True,
    )  # fmt: skip


@pytest.mark.parametrize("variant", ["gru-gru-additive", "transformer-transformer-scaled_dot_product"])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_fault_is_found(mutant: str, variant: str) -> None:
    if mutant == "cached_state_stale" and variant.startswith("transformer"):
        pytest.skip("a Transformer decoder has no state to go stale")
    run = run_suite(mutant, variant)
    # A promise must break, not the mutant: code 1 = tests failed, by an assertion in a test.
    assert run.returncode == 1 and "FAILED tests/model" in run.stdout, run.stdout[-2000:]
    assert "AssertionError" in run.stdout, run.stdout[-2000:]


@pytest.mark.parametrize("variant", ["gru-gru-additive", "transformer-transformer-scaled_dot_product"])
def test_without_a_fault_the_same_tests_pass(variant: str) -> None:
    run = run_suite("", variant)
    assert run.returncode == 0, run.stdout[-2000:]
