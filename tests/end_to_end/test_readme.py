"""The README's Python runs as pasted, block after block, and prints what it says."""

import contextlib
import io
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
