"""From link probabilities to links."""

from collections.abc import Sequence

import numpy as np

from hf_seq2seq_attn.probing import Link, Links


def mixed(probabilities: np.ndarray, teacher: np.ndarray, teacher_weight: float) -> np.ndarray:
    """Return (1 - w) p + w q, cell by cell."""
    return (1 - teacher_weight) * probabilities + teacher_weight * teacher


def tuned_threshold(matrices: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the threshold with the lowest alignment error rate on hand-made links, (T, S) of 0 or 1, and that rate.

    The mean of the thresholds within 0.001 of the best, so that one cell does not decide.
    """
    grid = np.arange(0.05, 0.951, 0.01)
    cells = np.concatenate([matrix.ravel() for matrix in matrices])
    wanted = np.concatenate([links.ravel() for links in gold]) > 0
    linked = np.array([(cells > threshold).sum() for threshold in grid])
    right = np.array([(wanted & (cells > threshold)).sum() for threshold in grid])
    errors = 1 - 2 * right / np.maximum(1, linked + wanted.sum())
    good = np.flatnonzero(errors <= errors.min() + 0.001)
    return float(grid[good].mean()), float(errors.min())


def centred(probabilities: np.ndarray, threshold: float) -> np.ndarray:
    """Move probabilities so that the threshold lies at 0.5: linear below it, linear above it, 0 and 1 stay.

    Where a threshold was chosen, this is what the probabilities then say about links.
    """
    return np.interp(probabilities, [0.0, threshold, 1.0], [0.0, 0.5, 1.0]).astype(np.float32)


def linked_cells(matrix: np.ndarray, fixed: Links = frozenset()) -> dict[Link, float]:
    """Return the cells of (T, S) above 0.5 as links with their probability; fixed links have 1."""
    links: dict[Link, float] = {
        (int(i), int(j)): float(matrix[j, i]) for j, i in zip(*np.nonzero(matrix > 0.5), strict=True)
    }
    return {**links, **dict.fromkeys(fixed, 1.0)}
