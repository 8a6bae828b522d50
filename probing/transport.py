"""Links as transport: every word sends its weight to words of the other side, as far as they can take it."""

import numpy as np

from .link_types import Links, as_links, checked_matrix, checked_null

# Both by AER of IBM model 1 matrices on two Bible development sets (Hebrew and Greek to English).
THRESHOLD = 0.25
_RELAXATION = 0.9
_ROUNDS = 1000
_SETTLED = 1e-9


def transport_plan(
    matrix: np.ndarray, null: np.ndarray | None = None, *, relaxation: float = _RELAXATION
) -> np.ndarray:
    """Return the unbalanced optimal transport plan between target and source words.

    Arase et al. 2023 align words by unbalanced optimal transport: with the cost C = -log W (ours: attention, scaled
    to a sum of min(T, S)) the plan minimises
        <P, C> + sum P (log P - 1) + tau KL(P 1 | 1) + tau KL(P' 1 | 1),
    one unit of mass for each word, which it need not spend in full: what a word keeps, `1 - P.sum()` over its row or
    column, went to NULL. The solution is P = diag(u) W diag(v); the iteration of Chizat et al. 2018 (Sinkhorn's, with
    an exponent) sets u = (W v)^-r and v = (W' u)^-r in turn, r = tau / (1 + tau).

    Args:
        matrix: (T, S) float, one row for each target word.
        null: (T,) float, the weight of "no source word" in each row; takes its share of the total mass away.
        relaxation: r, at least 0 and below 1; 0 returns the scaled matrix, near 1 every word spends its whole unit.

    Returns:
        (T, S) float, at least 0. Transposing `matrix` transposes it.
    """
    if not 0 <= relaxation < 1:
        raise ValueError(f"relaxation is {relaxation!r}; it must be at least 0 and below 1")
    matrix = checked_matrix(matrix).astype(np.float64)
    mass = matrix.sum()
    if mass == 0:
        return np.zeros(matrix.shape)
    kernel = matrix / (mass + checked_null(matrix, null).sum()) * min(matrix.shape)
    rows, columns = kernel.any(axis=1), kernel.any(axis=0)
    row_scale, column_scale = rows.astype(np.float64), columns.astype(np.float64)
    for _ in range(_ROUNDS):
        before = row_scale
        row_scale = np.where(rows, np.where(rows, kernel @ column_scale, 1) ** -relaxation, 0)
        column_scale = np.where(columns, np.where(columns, row_scale @ kernel, 1) ** -relaxation, 0)
        if np.abs(row_scale - before).max() <= _SETTLED * row_scale.max():
            break
    return row_scale[:, None] * kernel * column_scale


def transport_links(matrix: np.ndarray, null: np.ndarray | None = None, *, threshold: float = THRESHOLD) -> Links:
    """Link every cell that gets at least `threshold` of the `transport_plan`, in units of one word's mass."""
    if not threshold > 0:
        raise ValueError(f"threshold is {threshold!r}; it must be above 0, e.g. {THRESHOLD}")
    targets, sources = np.nonzero(transport_plan(matrix, null) >= threshold)
    return as_links(sources, targets)
