"""The notebooks run from top to bottom, their published solutions are right, and wrong answers are told why."""

import importlib.util
import re
import shutil
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from hf_seq2seq_attn.probing import Gold, worked_example
from hf_seq2seq_attn.probing.worked_example import ENCODER

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("[0-9]*.ipynb"))
PICTURES = {"1_attention_by_hand": 1, "2_train_and_look": 1, "3_any_model_alignment": 2}
SAID = {
    "1_attention_by_hand": "4. Softmax 归一化",
    "2_train_and_look": "The true next token is ▁喜",
    "3_any_model_alignment": "T5, last layer: AER 0.",
}


def tags(cell: Any) -> list[str]:
    return cell.metadata.get("tags", [])


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def solution_of(cell: Any) -> str:
    """Return the code of a folded solution."""
    (code,) = re.findall(r"```python\n(.*?)```", cell.source, re.DOTALL)
    return code


def printed(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == list(PICTURES)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_outputs_and_each_exercise_has_its_solution(path: Path) -> None:
    cells = read(path).cells
    assert all(not cell.outputs and cell.execution_count is None for cell in cells if cell.cell_type == "code")
    exercises = [cell for cell in cells if "exercise" in tags(cell)]
    followed = [after for before, after in pairwise(cells) if "exercise" in tags(before)]
    assert len(exercises) >= 2 and all("solution" in tags(cell) for cell in followed)
    for exercise, solution in zip(exercises, followed, strict=True):
        assert "= ..." in exercise.source
        assert exercise.source.splitlines()[-1] == solution_of(solution).strip().splitlines()[-1], "the same check"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_its_solutions_are_right(path: Path, tmp_path: Path) -> None:
    """Each exercise is run as it is published, and then with its solution."""
    shutil.copy(FOLDER / "checks.py", tmp_path)
    book = read(path)
    cells = []
    for cell in book.cells:
        cells.append(cell)
        if "solution" in tags(cell):
            answer = nbformat.v4.new_code_cell(solution_of(cell))
            answer.metadata["tags"] = ["answer"]
            cells.append(answer)
    book.cells = cells
    NotebookClient(book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell in book.cells:
        if "exercise" in tags(cell):
            assert printed(cell).startswith("Not answered yet"), cell.source
        if "answer" in tags(cell):
            assert printed(cell).startswith("Right"), cell.source + printed(cell)
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == PICTURES[path.stem]
    assert SAID[path.stem] in "".join(printed(cell) for cell in book.cells if cell.cell_type == "code")


# The checks


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("checks", FOLDER / "checks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DOT = worked_example().dot
OUTPUT_ROWS = np.arange(2 * 3 * 5 * 4, dtype=float).reshape(2, 3, 5, 4)
MATRIX = np.array([[0.1, 0.9, 0.0], [0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
TOKENS = np.array([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8], [0.2, 0.2, 0.6]])
WORDS = ([0, 0, 1], [0, 1, 1])
SHARP = np.array([0.9, 0.07, 0.03])
LINKS = [frozenset({(0, 0), (1, 1), (2, 1)}), frozenset({(0, 0)})]
GOLD = [Gold(frozenset({(0, 0), (1, 1), (2, 2), (3, 3)}), frozenset({(0, 0), (1, 1), (2, 2), (3, 3)})),
        Gold(frozenset({(0, 0)}), frozenset({(0, 0)}))]  # fmt: skip
ERRORS = np.array([[0.9, 0.5, 0.7], [0.6, 0.8, 0.2]])


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("check_scores", ([0.410, 0.325, 0.297],), "Right."),
        ("check_scores", (...,), "Not answered yet"),
        ("check_scores", (DOT.raw,), "divide them by √d_k"),
        ("check_scores", (DOT.raw / 2,), "divided by d_k; divide by its root"),
        ("check_scores", ([0.41, 0.33],), r"the shape is \(2,\), and \(3,\) is wanted"),
        ("check_scores", ([0.41, 0.325, 0.397],), r"look at number \[2\] again; 0.397 is off"),
        ("check_scores", ("high",), "numbers are wanted, and this is str"),
        ("check_scores", ([0.41, float("nan"), 0.3],), "a number that is none"),
        ("check_weights", ([0.356, 0.327, 0.318],), "Right."),
        ("check_weights", (DOT.exponentials,), "divide them by their sum"),
        ("check_weights", (DOT.scores / DOT.scores.sum(),), "take the exponentials first"),
        ("check_weights", (np.exp(DOT.raw) / np.exp(DOT.raw).sum(),), "before scaling"),
        ("check_context", ([0.450, 0.551],), "Right."),
        ("check_context", (DOT.weighted,), "add them up"),
        ("check_context", (DOT.values.mean(0),), "counts the same"),
        ("check_additive_scores", (np.tanh(np.array([0.6, 0.4]) + ENCODER).sum(1),), "Right."),
        ("check_additive_scores", ((np.array([0.6, 0.4]) + ENCODER).sum(1),), "no tanh"),
        ("check_favourite", ([[0.9, 0.1], [0.8, 0.7], [0.1, 0.9]],), "Right: I 0"),
        ("check_favourite", (ENCODER,), "I gets the most"),
        ("check_favourite", ([[0.1, 0.1], [0.8, 0.7], [0.1, 0.9]],), "only the encoder output of love"),
        ("check_favourite", ([[0.9, 0.1], [8, 7], [0.1, 0.9]],), "between -1 and 1"),
        ("check_favourite", ([[0.9, 0.1]],), "three pairs"),
        ("check_jacobian", (np.diag(SHARP) - np.outer(SHARP, SHARP), SHARP), "Right."),
        ("check_jacobian", (np.diag(SHARP * (1 - SHARP)), SHARP), "lowers the other weights"),
        ("check_jacobian", (np.diag(SHARP), SHARP), "taken off everywhere"),
        ("check_variances", (500.0, 0.98, 512), "Right: 500.0 and 0.98"),
        ("check_variances", (22.6, 1.0, 512), "standard deviation"),
        ("check_variances", (512.0, 1 / 512, 512), "divide by its root"),
        ("check_variances", (512.0, 3.0, 512), "not near 3"),
        ("check_links", ({(1, 0), (2, 1), (0, 2), (2, 3)}, MATRIX), "Right."),
        ("check_links", ({(0, 1), (1, 2), (2, 0), (3, 2)}, MATRIX), "turned round"),
        ("check_links", ({(0, 2), (1, 0), (2, 3)}, MATRIX), "best target word of each source word"),
        ("check_links", ({(2, 1), (3, 2), (1, 3), (3, 4)}, MATRIX), "count from 0"),
        ("check_links", ({(1, 0), (0, 1)}, MATRIX), "3 links are missing and 1 are too many"),
        ("check_links", (7, MATRIX), "a set of pairs"),
        ("check_aer", (1 - 6 / 9, LINKS, GOLD), "Right."),
        ("check_aer", (6 / 9, LINKS, GOLD), "1 minus it"),
        ("check_aer", (0.25, LINKS, GOLD), "1 - precision"),
        ("check_aer", (0.4, LINKS, GOLD), "1 - recall"),
        ("check_aer", ((1 - 4 / 7) / 2, LINKS, GOLD), "mean over sentences"),
        ("check_input_rows", (OUTPUT_ROWS[..., 1:, :], OUTPUT_ROWS), "Right."),
        ("check_input_rows", (OUTPUT_ROWS[..., :-1, :], OUTPUT_ROWS), "rows that predict"),
        ("check_input_rows", (np.roll(OUTPUT_ROWS, -1, -2), OUTPUT_ROWS), "leave it out"),
        ("check_word_matrix", ([[0.3, 0.7], [0.2, 0.8]], TOKENS, *WORDS), "Right."),
        ("check_word_matrix", ([[0.6, 1.4], [0.2, 0.8]], TOKENS, *WORDS), "take their mean"),
        ("check_word_matrix", ([[0.3, 0.35], [0.2, 0.4]], TOKENS, *WORDS), "their weights add up"),
        ("check_best_head", ((1, 2), ERRORS), "Right."),
        ("check_best_head", ((0, 0), ERRORS), "most errors"),
        ("check_best_head", ((2, 1), ERRORS), "layer comes first"),
        ("check_best_head", (5, ERRORS), "a pair is wanted"),
        ("check_best_head", ((0, 1), ERRORS), r"look at number \[0\]|look at number \[1\]"),
    ],
)  # fmt: skip
def test_an_answer_is_told_what_it_looks_like(checks: ModuleType, name: str, arguments: tuple, said: str) -> None:
    answer = getattr(checks, name)(*arguments)
    assert re.search(said, answer), answer
    assert answer.startswith("Right") == said.startswith("Right")


@pytest.mark.parametrize("row", range(3))
def test_the_dot_product_never_prefers_love_as_the_first_notebook_says(row: int) -> None:
    """It lies on the line between the other two, so no query and no W_K can make its score the highest."""
    i, love, cats = np.array(ENCODER)
    np.testing.assert_allclose(love, i / 4 + cats * 3 / 4)
    for query in np.random.default_rng(row).normal(size=(50, 2)):
        assert np.argmax(np.array(ENCODER) @ query) != 1
