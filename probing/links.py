"""Word links: read them off a matrix, and combine the links of two directions.

A link is a pair `(i, j)`, 0-based, source word first; the links of one sentence pair are a frozenset.
"""

from collections.abc import Callable, Iterable

import numpy as np

Link = tuple[int, int]
Links = frozenset[Link]

_NEIGHBOURS = tuple((di, dj) for di in (-1, 0, 1) for dj in (-1, 0, 1) if (di, dj) != (0, 0))


def argmax_links(matrix: np.ndarray, null: np.ndarray | None = None) -> Links:
    """Link each target word to the source word it attends to most.

    Ties go to the first source word. A row without any positive weight gives no link: it says nothing.

    Args:
        matrix: (T, S) float, one row for each target word.
        null: (T,) float, the weight of "no source word" in each row; where it is at least the row's maximum the
            target word stays unlinked.
    """
    matrix = _checked(matrix)
    if matrix.size == 0:
        return frozenset()
    best = matrix.argmax(axis=1)
    weight = matrix.max(axis=1)
    linked = weight > (0 if null is None else np.maximum(null, 0))
    return _as_links(best[linked], np.flatnonzero(linked))


def mutual_links(matrix: np.ndarray, null: np.ndarray | None = None) -> Links:
    """Keep the argmax links that are also their source word's heaviest cell (mutual argmax, "inter" in SimAlign).

    Arguments as in `argmax_links`.
    """
    matrix = _checked(matrix)
    if matrix.size == 0:
        return frozenset()
    best_target = matrix.argmax(axis=0)
    return frozenset((i, j) for i, j in argmax_links(matrix, null) if best_target[i] == j)


def threshold_links(matrix: np.ndarray, threshold: float) -> Links:
    """Link every cell of `matrix` (T, S) whose weight is at least `threshold`, which must be above 0."""
    if not threshold > 0:
        raise ValueError(f"threshold is {threshold!r}; it must be above 0, e.g. 0.2")
    targets, sources = np.nonzero(_checked(matrix) >= threshold)
    return _as_links(sources, targets)


def extract_links(matrix: np.ndarray, how: str = "argmax", null: np.ndarray | None = None) -> Links:
    """Read links off `matrix` (T, S) in the way that `how` names: `argmax`, `mutual` or `threshold:X`.

    Raises:
        ValueError: `how` is none of these.
    """
    check_extraction(how)
    if how == "argmax":
        return argmax_links(matrix, null)
    if how == "mutual":
        return mutual_links(matrix, null)
    return threshold_links(matrix, float(how.partition(":")[2]))


def check_extraction(how: str) -> None:
    """Raise a ValueError unless `extract_links` knows `how`."""
    if how in ("argmax", "mutual"):
        return
    name, _, value = how.partition(":")
    try:
        if name == "threshold" and float(value) > 0:
            return
    except ValueError:
        pass
    raise ValueError(f"links is {how!r}; allowed are argmax, mutual and threshold:X with X above 0, e.g. threshold:0.2")


def reverse_links(links: Iterable[Link]) -> Links:
    """Swap source and target of every link."""
    return frozenset((j, i) for i, j in links)


def symmetrize(forward: Iterable[Link], reverse: Iterable[Link], method: str) -> Links:
    """Combine the links of two directions, both given as (source, target) pairs.

    Two published algorithms share the name "grow-diag". Both start from the intersection and add neighbours (8
    directions)
    that lie in the union: `-moses` (Moses symal, fast_align atools; Koehn et al. 2003) when at least one of the two
    words is still unlinked, `-lilt` (the lilt alignment scripts, Zenkel et al. 2019) only when both are. Same links
    in, AER out differs by -2 to +4 points. `-final` then adds what is left of `forward`, then of `reverse`, when a
    word is unlinked (moses: at least one; lilt: both), `-final-and` only when both are. Points are visited in sorted
    order until nothing changes, as in atools.

    Args:
        method: one of `SYMMETRIZATIONS`.

    Raises:
        ValueError: an unknown method.
    """
    if method not in _METHODS:
        raise ValueError(f"method is {method!r}; allowed are {', '.join(SYMMETRIZATIONS)}")
    return _METHODS[method](frozenset(forward), frozenset(reverse))


class _Growing:
    """Links that grow, with the words they cover."""

    def __init__(self, links: Links) -> None:
        self.links = set(links)
        self.sources = {i for i, _ in links}
        self.targets = {j for _, j in links}

    def add_if_free(self, link: Link, both: bool) -> bool:
        """Add `link` when one of its words, or with `both` each of them, is still unlinked; tell whether it was
        added."""
        free = (link[0] not in self.sources, link[1] not in self.targets)
        if not (all(free) if both else any(free)):
            return False
        self.links.add(link)
        self.sources.add(link[0])
        self.targets.add(link[1])
        return True

    def touches(self, link: Link) -> bool:
        return any((link[0] + di, link[1] + dj) in self.links for di, dj in _NEIGHBOURS)


def _grow_diag(forward: Links, reverse: Links, *, both: bool) -> _Growing:
    growing = _Growing(forward & reverse)
    waiting = sorted((forward | reverse) - growing.links)
    changed = True
    while changed:
        left = [point for point in waiting if not (growing.touches(point) and growing.add_if_free(point, both))]
        changed = len(left) < len(waiting)
        waiting = left
    return growing


def _grow_diag_final(forward: Links, reverse: Links, *, both_growing: bool, both_final: bool) -> Links:
    growing = _grow_diag(forward, reverse, both=both_growing)
    for direction in (forward, reverse):
        for point in sorted(direction - growing.links):
            growing.add_if_free(point, both_final)
    return frozenset(growing.links)


_METHODS: dict[str, Callable[[Links, Links], Links]] = {
    "intersection": lambda f, r: f & r,
    "union": lambda f, r: f | r,
    "grow-diag-moses": lambda f, r: frozenset(_grow_diag(f, r, both=False).links),
    "grow-diag-lilt": lambda f, r: frozenset(_grow_diag(f, r, both=True).links),
    "grow-diag-final-moses": lambda f, r: _grow_diag_final(f, r, both_growing=False, both_final=False),
    "grow-diag-final-and-moses": lambda f, r: _grow_diag_final(f, r, both_growing=False, both_final=True),
    "grow-diag-final-lilt": lambda f, r: _grow_diag_final(f, r, both_growing=True, both_final=True),
}
SYMMETRIZATIONS = tuple(_METHODS)


def _checked(matrix: np.ndarray) -> np.ndarray:
    matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(f"matrix has shape {matrix.shape}; links are read off one (target words, source words) matrix")
    if not np.isfinite(matrix).all():
        raise ValueError("matrix holds NaN or infinite weights; the model that made it is broken")
    return matrix


def _as_links(sources: np.ndarray, targets: np.ndarray) -> Links:
    return frozenset(zip(sources.tolist(), targets.tolist(), strict=True))
