"""Plant faults in a bitext, to see how well a measure finds them."""

import random
from collections.abc import Sequence

FAULTS = ("swapped", "dropped", "doubled", "copied")
_SHORTEST = 8
_DROPPED = (0.3, 0.5)


def plant_faults(
    sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], share: float, seed: int
) -> tuple[list[list[str]], list[str | None]]:
    """Return the targets with faults, and the name of each line's fault, None for a line as it was.

    - swapped: two lines have each other's target;
    - dropped: 30 to 50% of the target's words are missing, from one place;
    - doubled: the target stands there twice;
    - copied: the target is the source.

    Args:
        sources, targets: words of each line; only lines with at least 8 on both sides get a fault.
        share: of the lines, for each kind of fault, above 0, at most 1/4; swaps come in pairs.
        seed: the same seed plants the same faults.

    Raises:
        ValueError: a share that is not allowed, or too few lines for one fault of each kind.
    """
    if not 0 < share <= 1 / len(FAULTS):
        raise ValueError(f"share is {share}; it must lie above 0 and be at most 1/{len(FAULTS)}")
    chance = random.Random(seed)
    long_enough = [
        row for row, pair in enumerate(zip(sources, targets, strict=True)) if min(map(len, pair)) >= _SHORTEST
    ]
    chance.shuffle(long_enough)
    count = int(share * len(long_enough)) // 2 * 2
    if not count:
        raise ValueError(f"{len(long_enough)} lines of {_SHORTEST} words or more are too few for a share of {share}")
    planted = [list(words) for words in targets]
    faults: list[str | None] = [None] * len(planted)
    for number, fault in enumerate(FAULTS):
        rows = long_enough[number * count : (number + 1) * count]
        for row in rows:
            faults[row] = fault
            words = targets[row]
            if fault == "swapped":
                continue
            if fault == "dropped":
                missing = round(chance.uniform(*_DROPPED) * len(words))
                first = chance.randint(0, len(words) - missing)
                planted[row] = [*words[:first], *words[first + missing :]]
            elif fault == "doubled":
                planted[row] = [*words, *words]
            else:
                planted[row] = list(sources[row])
        if fault == "swapped":
            for one, other in zip(rows[::2], rows[1::2], strict=True):
                planted[one], planted[other] = list(targets[other]), list(targets[one])
    return planted, faults


def roc_auc(bad: Sequence[float], good: Sequence[float]) -> float:
    """Return the chance that a bad line has a higher score than a good one, ties counted half (area under the ROC).

    Raises:
        ValueError: one of the two is empty.
    """
    if not bad or not good:
        raise ValueError(f"{len(bad)} bad and {len(good)} good scores; the area needs at least one of each")
    ranked = sorted([(score, 1) for score in bad] + [(score, 0) for score in good])
    rank_sum, first = 0.0, 0
    while first < len(ranked):
        last = first
        while last < len(ranked) and ranked[last][0] == ranked[first][0]:
            last += 1
        # Ranks count from 1; equal scores share their mean rank.
        rank_sum += (first + 1 + last) / 2 * sum(is_bad for _, is_bad in ranked[first:last])
        first = last
    wins = rank_sum - len(bad) * (len(bad) + 1) / 2
    return wins / (len(bad) * len(good))
