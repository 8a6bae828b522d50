"""From link probabilities to links."""

from collections.abc import Mapping, Sequence

import numpy as np

from hf_seq2seq_attn.probing import Link, Links


def mixed(probabilities: np.ndarray, teacher: np.ndarray, teacher_weight: float) -> np.ndarray:
    """Return (1 - w) p + w q, cell by cell."""
    return (1 - teacher_weight) * probabilities + teacher_weight * teacher


def tuned_threshold(
    matrices: Sequence[np.ndarray], sure: Sequence[np.ndarray], possible: Sequence[np.ndarray]
) -> tuple[float, float]:
    """Return the threshold with the lowest alignment error rate (Och and Ney 2003, section 5) and that rate.

    The mean of the thresholds within 0.001 of the best, so that one cell does not decide.

    Args:
        matrices: probabilities, of any shape.
        sure, possible: hand-made links, bool of the same shapes; sure ones are possible, too.
    """
    grid = np.arange(0.05, 0.951, 0.01)
    cells = np.concatenate([matrix.ravel() for matrix in matrices])
    wanted, allowed = (np.concatenate([links.ravel() for links in grids]) for grids in (sure, possible))
    linked = [cells > threshold for threshold in grid]
    right = np.array([(wanted & links).sum() + (allowed & links).sum() for links in linked])
    errors = 1 - right / np.array([max(1, links.sum() + wanted.sum()) for links in linked])
    good = np.flatnonzero(errors <= errors.min() + 0.001)
    return float(grid[good].mean()), float(errors.min())


def centred(probabilities: np.ndarray, threshold: float) -> np.ndarray:
    """Move probabilities so that the threshold lies at 0.5: linear below it, linear above it, 0 and 1 stay.

    Where a threshold was chosen, this is what the probabilities then say about links.
    """
    return np.interp(probabilities, [0.0, threshold, 1.0], [0.0, 0.5, 1.0]).astype(np.float32)


def linked_cells(matrix: np.ndarray) -> dict[Link, float]:
    """Return the cells of (T, S) above 0.5 as links with their probability."""
    return {(int(i), int(j)): float(matrix[j, i]) for j, i in zip(*np.nonzero(matrix > 0.5), strict=True)}


def with_fixed(matrices: Sequence[np.ndarray], fixed: Mapping[int, Links]) -> Sequence[np.ndarray]:
    """Give the fixed links of some of the pairs the probability 1, in place; return the matrices."""
    for place, links in fixed.items():
        for i, j in links:
            matrices[place][j, i] = 1.0
    return matrices
