"""The README's Python runs as pasted, block after block, and prints what it says."""

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[2] / "README.md"
# `print(x)  # => value`, or `# => value: what it is`.
PRINTED = re.compile(r"#\s*=>\s*(.+)$", re.MULTILINE)


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def run_blocks(blocks: list[str]) -> dict[str, Any]:
    """Execute blocks in one namespace; check what each prints against its comments."""
    names: dict[str, Any] = {"__name__": "readme"}
    for block in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            exec(compile(block, README.name, "exec"), names)
        expected, lines = PRINTED.findall(block), shown.getvalue().splitlines()
        assert len(lines) == len(expected), f"{len(expected)} outputs are promised in:\n{block}\nprinted: {lines}"
        for promise, line in zip(expected, lines, strict=True):
            assert promise == line or promise.startswith(line + ":"), (promise, line)
    return names


def test_every_block_runs_and_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(README.read_text(encoding="utf-8"))
    assert blocks
    run_blocks(blocks)


def test_a_wrong_promise_is_found() -> None:
    run_blocks(["print(1 + 1)  # => 2: two\nx = 3", "print(x)  # => 3"])
    for wrong in ("print(2)  # => 3", "print(2)  # => 22", "print(2)", "x = 2  # => 2"):
        with pytest.raises(AssertionError):
            run_blocks([wrong])


def test_the_demo_s_figures_are_those_of_its_metrics_files() -> None:
    text = README.read_text(encoding="utf-8")
    cards = README.parent / "model_cards" / "bible_alignment"
    run = json.loads((cards / "demo_metrics.json").read_text(encoding="utf-8"))
    low, high = run["aer_ci95"]
    rows = [
        f"| this model, additive attention | **{run['aer']:.3f}** (95% {low:.3f} to {high:.3f}) "
        f"| {run['precision']:.3f} | {run['recall']:.3f} | {run['chrf']:.1f} |"
    ]
    for name, key in (("IBM model 1", "ibm1"), ("diagonal", "diagonal")):
        scores = run["baselines"][key]
        rows.append(f"| {name} | {scores['aer']:.3f} | {scores['precision']:.3f} | {scores['recall']:.3f} | - |")
    for row in rows:
        assert row in text
    assert f"{run['steps']:,} steps, {run['training_seconds']:.0f} s of training" in text
    other = json.loads((cards / "demo_metrics_scaled_dot_product.json").read_text(encoding="utf-8"))
    assert other["attention"] == "scaled_dot_product" and f"AER {other['aer']:.3f}" in text
