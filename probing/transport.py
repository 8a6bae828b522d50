"""Links as transport: every word sends its weight to words of the other side, as far as they can take it."""

import numpy as np

from .link_types import Links, as_links, checked_matrix, checked_null

# Chosen by AER of IBM model 1 matrices on two Bible development sets (Hebrew and Greek to English), where the AER
# changes little around them.
THRESHOLD = 0.25
_RELAXATION = 0.7
_ROUNDS = 1000
_SETTLED = 1e-9


def transport_plan(
    matrix: np.ndarray, null: np.ndarray | None = None, *, relaxation: float = _RELAXATION
) -> tuple[np.ndarray, np.ndarray]:
    """Return the unbalanced optimal transport plan between target and source words, and what goes to NULL.

    Arase et al. 2023 align words by unbalanced optimal transport: with the cost C = -log W (here W is the matrix,
    scaled with its NULLs to a sum of min(T, S)) the plan minimises
        <P, C> + sum P (log P - 1) + tau KL(P 1 | 1) + tau KL(P' 1 | 1),
    one unit of mass for each word, which it need not spend in full. The solution is P = diag(u) W diag(v); the
    iteration of Chizat et al. 2018 (Sinkhorn's, with an exponent) sets u = (W v)^-r and v = (W' u)^-r in turn,
    r = tau / (1 + tau). `null` is one more column of W, on which nothing presses: it takes whatever it is sent, so
    that u = (W v + null)^-r.

    Args:
        matrix: (T, S) float, one row for each target word.
        null: (T,) float, the weight of "no source word" in each row; None = none.
        relaxation: r, at least 0 and below 1; 0 returns the scaled matrix, near 1 every word spends its whole unit.

    Returns:
        (T, S) and (T,) float, at least 0. Without `null`, transposing `matrix` transposes the plan.
    """
    if not 0 <= relaxation < 1:
        raise ValueError(f"relaxation is {relaxation!r}; it must be at least 0 and below 1")
    matrix = checked_matrix(matrix).astype(np.float64)
    to_null = checked_null(matrix, null).astype(np.float64)
    mass = matrix.sum() + to_null.sum()
    if mass == 0 or matrix.size == 0:
        return np.zeros(matrix.shape), to_null
    kernel, to_null = matrix / mass * min(matrix.shape), to_null / mass * min(matrix.shape)
    rows, columns = np.ones(len(kernel)), np.ones(kernel.shape[1])
    for _ in range(_ROUNDS):
        before = rows, columns
        rows = _scaling(kernel @ columns + to_null, relaxation)
        columns = _scaling(rows @ kernel, relaxation)
        if all(
            np.abs(new - old).max() <= _SETTLED * new.max() for new, old in zip((rows, columns), before, strict=True)
        ):
            break
    return rows[:, None] * kernel * columns, rows * to_null


def _scaling(spent: np.ndarray, relaxation: float) -> np.ndarray:
    """Return spent^-relaxation, 0 for a word without any weight."""
    return np.where(spent > 0, np.where(spent > 0, spent, 1) ** -relaxation, 0)


def transport_links(matrix: np.ndarray, null: np.ndarray | None = None, *, threshold: float = THRESHOLD) -> Links:
    """Link every cell that gets at least `threshold` of a word's unit in the `transport_plan`, and more than NULL."""
    if not threshold > 0:
        raise ValueError(f"threshold is {threshold!r}; it must be above 0, e.g. {THRESHOLD}")
    plan, nothing = transport_plan(matrix, null)
    targets, sources = np.nonzero((plan >= threshold) & (plan > nothing[:, None]))
    return as_links(sources, targets)
