"""One-to-one links: words of the two sides that prefer each other, and the best matching of all."""

import numpy as np

from .link_types import Links, as_links, checked_matrix, checked_null

# The discount on a cell whose one word is linked already (Jalili Sabet et al. 2020).
_HALF_LINKED = 0.9


def mutual_links(matrix: np.ndarray, null: np.ndarray | None = None) -> Links:
    """Link the words that are each other's heaviest cell (mutual argmax; "Argmax" of Jalili Sabet et al. 2020).

    Ties go to the first word. A cell must be positive and above `null`.

    Args:
        matrix: (T, S) float, one row for each target word.
        null: (T,) float, the weight of "no source word" in each row.
    """
    matrix = checked_matrix(matrix)
    if matrix.size == 0:
        return frozenset()
    targets = np.arange(len(matrix))
    best = matrix.argmax(axis=1)
    linked = (matrix.argmax(axis=0)[best] == targets) & (matrix[targets, best] > checked_null(matrix, null))
    return as_links(best[linked], targets[linked])


def itermax_links(matrix: np.ndarray, null: np.ndarray | None = None, *, rounds: int = 2) -> Links:
    """Link mutual argmaxes again and again, so that a word may get more than one partner ("Itermax", Jalili Sabet et
    al. 2020).

    Each round adds the mutual argmaxes of the matrix weighted by M: 1 where both words are unlinked so far, 0.9 where
    one is linked, 0 where both are. It ends early when nothing is added.

    Args:
        matrix, null: as in `mutual_links`.
        rounds: at least 1; 1 is `mutual_links`.
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; it must be at least 1")
    matrix = checked_matrix(matrix)
    linked_targets = np.zeros((len(matrix), 1), dtype=bool)
    linked_sources = np.zeros((1, matrix.shape[1]), dtype=bool)
    links: Links = frozenset()
    for _ in range(rounds):
        weight = np.where(linked_targets | linked_sources, _HALF_LINKED, 1.0)
        weight[linked_targets & linked_sources] = 0
        added = mutual_links(matrix * weight, null)
        if not added:
            break
        links |= added
        sources, targets = zip(*added, strict=True)
        linked_targets[list(targets)] = True
        linked_sources[:, list(sources)] = True
    return links


def match_links(matrix: np.ndarray, null: np.ndarray | None = None) -> Links:
    """Link words one to one so that the sum of the linked weights is largest ("Match", Jalili Sabet et al. 2020).

    With `null` the sum counts null[j] for a target word j that stays unlinked, so a word is linked only where that
    gains. Cells without weight are never linked.

    Args:
        matrix, null: as in `mutual_links`.
    """
    matrix = checked_matrix(matrix)
    gain = np.maximum(matrix.astype(np.float64) - checked_null(matrix, null)[:, None], 0)
    if len(gain) <= gain.shape[1]:
        targets, sources = best_assignment(gain)
    else:
        sources, targets = best_assignment(gain.T)
    kept = gain[targets, sources] > 0
    return as_links(sources[kept], targets[kept])


def best_assignment(gain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give every row of `gain` (n, m), n <= m, a column of its own so that the sum of the chosen cells is largest.

    The Hungarian method by shortest augmenting paths (Kuhn 1955; Jonker and Volgenant 1987): rows enter one by one,
    each along the cheapest path through the columns taken so far, with prices on rows and columns that keep every
    reduced cost at 0 or above. n * m operations on arrays for each row in the worst case.

    Returns:
        Row and column indices, both (n,) int.
    """
    rows, columns = gain.shape
    if rows > columns:
        raise ValueError(f"gain has {rows} rows and {columns} columns; it needs at least as many columns as rows")
    cost = gain.max(initial=0) - gain
    row_price, column_price = np.zeros(rows), np.zeros(columns)
    row_of = np.full(columns, -1)
    for new_row in range(rows):
        distance = np.full(columns, np.inf)
        came_from = np.full(columns, -1)  # the column before on the cheapest path; -1 = the new row itself
        settled = np.zeros(columns, dtype=bool)
        row, length, last = new_row, 0.0, -1
        while row >= 0:
            through = length + cost[row] - row_price[row] - column_price
            shorter = ~settled & (through < distance)
            distance[shorter] = through[shorter]
            came_from[shorter] = last
            last = int(np.where(settled, np.inf, distance).argmin())
            length = distance[last]
            settled[last] = True
            row = row_of[last]
        seen = np.flatnonzero(settled & (row_of >= 0))
        row_price[new_row] += length
        row_price[row_of[seen]] += length - distance[seen]
        column_price[seen] -= length - distance[seen]
        while last >= 0:
            before = came_from[last]
            row_of[last] = new_row if before < 0 else row_of[before]
            last = before
    chosen = np.flatnonzero(row_of >= 0)
    return row_of[chosen], chosen
