"""Leave training pairs out by stated rules, and count them by rule."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from random import Random

from .data_recipe import CleaningRecipe

logger = logging.getLogger(__name__)

BLANK = "blank"
RULES = {
    BLANK: "with a blank side",
    "copies": "with the same words on both sides",
    "over_max_words": "with more than cleaning.max_words words on a side",
    "over_max_ratio": "with sides more unequal than cleaning.max_ratio",
    "duplicates": "seen before in the corpus",
}
"""Every rule, by its name in the metrics file, in the order in which they are tried."""


class Cleaner:
    """Judge the pairs of one corpus, one after the other.

    Attributes:
        counts: pairs left out so far, by rule.
        first: where the first pair stood that broke a rule, as given.
    """

    def __init__(self, rules: CleaningRecipe) -> None:
        self.rules = rules
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self._seen: set[bytes] = set()

    def keeps(self, source: Sequence[str], target: Sequence[str], place: str = "") -> bool:
        """Tell whether a pair breaks no rule; count it if it does."""
        rule = self._broken_rule(source, target)
        if rule is None:
            return True
        self.counts[rule] += 1
        self.first.setdefault(rule, place)
        return False

    def report(self, name: str, pairs: int) -> None:
        """Log what was left out of a corpus of so many pairs, with the place of the first pair for each rule."""
        for rule, what in RULES.items():
            if self.counts[rule]:
                place = f", first at {self.first[rule]}" if self.first[rule] else ""
                logger.warning("%s: %d of %d pairs left out %s%s", name, self.counts[rule], pairs, what, place)

    def _broken_rule(self, source: Sequence[str], target: Sequence[str]) -> str | None:
        rules = self.rules
        if not source or not target:
            return BLANK
        if rules.drop_copies and list(source) == list(target):
            return "copies"
        shorter, longer = sorted((len(source), len(target)))
        if rules.max_words is not None and longer > rules.max_words:
            return "over_max_words"
        if rules.max_ratio is not None and longer > rules.max_ratio * shorter:
            return "over_max_ratio"
        if rules.drop_duplicates:
            text = " ".join(source) + "\n" + " ".join(target)
            key = blake2b(text.encode(), digest_size=16).digest()
            if key in self._seen:
                return "duplicates"
            self._seen.add(key)
        return None


def draws(weight: float, seed: int) -> Iterator[int]:
    """Yield how often each pair of a corpus, in order, is drawn in one epoch; on average `weight` times.

    The whole part of the weight counts for every pair, the rest for pairs chosen at random, the same for the same seed.
    """
    whole, rest = int(weight), weight % 1
    random = Random(seed)
    while True:
        yield whole + (random.random() < rest)
