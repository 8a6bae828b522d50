"""What a word link is: a pair `(i, j)`, 0-based, source word first; a sentence pair's links are a frozenset of them."""

from collections.abc import Iterable

import numpy as np

Link = tuple[int, int]
Links = frozenset[Link]


def reverse_links(links: Iterable[Link]) -> Links:
    """Swap source and target of every link."""
    return frozenset((j, i) for i, j in links)


def as_links(sources: np.ndarray, targets: np.ndarray) -> Links:
    """Pair up two index arrays of equal length."""
    return frozenset(zip(sources.tolist(), targets.tolist(), strict=True))


def checked_matrix(matrix: np.ndarray) -> np.ndarray:
    """Return `matrix` as an array, or raise a ValueError if it is not (T, S) with finite weights of at least 0."""
    matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(f"matrix has shape {matrix.shape}; links are read off one (target words, source words) matrix")
    if not np.isfinite(matrix).all():
        raise ValueError("matrix holds NaN or infinite weights; the model that made it is broken")
    if matrix.size and matrix.min() < 0:
        raise ValueError(f"matrix holds the weight {matrix.min()}; weights must be at least 0")
    return matrix


def checked_null(matrix: np.ndarray, null: np.ndarray | None) -> np.ndarray:
    """Return the weight of "no source word" in each row, (T,) of at least 0; zeros for None."""
    if null is None:
        return np.zeros(len(matrix))
    null = np.asarray(null)
    if null.shape != matrix.shape[:1]:
        raise ValueError(f"null has shape {null.shape}; it must hold one weight for each of the {len(matrix)} rows")
    return np.maximum(null, 0)
