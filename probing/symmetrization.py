"""Two directions into one: of links (set methods), or of the matrices before links are read off."""

from collections.abc import Callable, Iterable

import numpy as np

from .link_types import Link, Links, checked_matrix

_NEIGHBOURS = tuple((di, dj) for di in (-1, 0, 1) for dj in (-1, 0, 1) if (di, dj) != (0, 0))


def symmetrize(forward: Iterable[Link], reverse: Iterable[Link], method: str) -> Links:
    """Combine the links of two directions, both given as (source, target) pairs.

    Two published algorithms share the name "grow-diag". Both start from the intersection and add neighbours (8
    directions) that lie in the union: `-moses` (Moses symal, fast_align atools; Koehn et al. 2003) when at least one
    of the two words is still unlinked, `-lilt` (the lilt alignment scripts, Zenkel et al. 2019) only when both are.
    Same links in, AER out differs by -2 to +4 points. `-final` then adds what is left of `forward`, then of
    `reverse`, when a word is unlinked (moses: at least one; lilt: both), `-final-and` only when both are. Points are
    visited in sorted order until nothing changes, as in atools.

    Args:
        method: one of `SYMMETRIZATIONS`.

    Raises:
        ValueError: an unknown method.
    """
    check_symmetrization(method)
    return _METHODS[method](frozenset(forward), frozenset(reverse))


def check_symmetrization(method: str) -> None:
    """Raise a ValueError unless `symmetrize` knows `method`."""
    if method not in _METHODS:
        raise ValueError(f"method is {method!r}; allowed are {', '.join(SYMMETRIZATIONS)}")


def combine(forward: np.ndarray, reverse: np.ndarray, how: str) -> np.ndarray:
    """Combine the matrices of two directions, cell by cell, into one (T, S) matrix.

    - mean: (F + R) / 2, as Nagata et al. 2020 average the two directions' probabilities;
    - product: F * R, both directions must agree (Liang et al. 2006, on posteriors);
    - harmonic: 2 F R / (F + R), 0 where both are 0 (Mask-Align, Chen et al. 2021), between the two: near the lower.

    All three are symmetric: swapping the directions transposes the result.

    Args:
        forward: (T, S) weights of the source-to-target model, rows are target words.
        reverse: (S, T) weights of the target-to-source model as that model gives them: its rows are source words.
        how: one of `COMBINATIONS`.

    Raises:
        ValueError: an unknown `how`, or shapes that do not belong together.
    """
    if how not in COMBINATIONS:
        raise ValueError(f"how is {how!r}; allowed are {', '.join(COMBINATIONS)}")
    forward, reverse = checked_matrix(forward), checked_matrix(reverse)
    if forward.shape != reverse.shape[::-1]:
        raise ValueError(
            f"forward has shape {forward.shape} and reverse {reverse.shape}; the reverse model's matrix must have one "
            f"row for each source word: {forward.shape[::-1]}"
        )
    return COMBINATIONS[how](forward, reverse.T)


def _harmonic(forward: np.ndarray, reverse: np.ndarray) -> np.ndarray:
    total = forward + reverse
    # Dividing first keeps products of very small weights from vanishing.
    return 2 * forward * np.divide(reverse, total, out=np.zeros_like(total), where=total > 0)


COMBINATIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "mean": lambda forward, reverse: (forward + reverse) / 2,
    "product": lambda forward, reverse: forward * reverse,
    "harmonic": _harmonic,
}


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
