"""Which sentences a report shows, the best and the worst, and what is shown of each: texts, scores, map or links."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_seq2seq_attn.probing import Aligner, Gold, LearnedJumps, Links, SentenceError, SentenceView

LONGEST_MAP = 40
"""A pair with more words than this on a side is shown by its links alone."""


@dataclass(frozen=True)
class Ranking:
    """Sentences by one score.

    Attributes:
        name: key of the score among a sentence's figures.
        scores: of each sentence; NaN = it does not count.
        greater_is_better: False for error rates.
    """

    name: str
    scores: Sequence[float]
    greater_is_better: bool

    def worst_and_best(self, count: int) -> dict[str, list[int]]:
        """Return up to `count` indices of each end under "worst" and "best", the extreme one first.

        Of equal sentences the earlier comes first; no sentence is in both.
        """
        scores = np.asarray(self.scores, dtype=np.float64)
        inside = np.flatnonzero(~np.isnan(scores))
        badness = -scores if self.greater_is_better else scores
        order = inside[np.argsort(-badness[inside], kind="stable")].tolist()
        worst = order[:count]
        others = inside[np.argsort(badness[inside], kind="stable")].tolist()
        best = [index for index in others if index not in set(worst)][:count]
        return {"worst": worst, "best": best}


@dataclass(frozen=True)
class ShownSentence:
    """One sentence pair of a report.

    Attributes:
        line: in the files, from 1.
        source, references, translation: texts; the translation is None where the model was not asked to translate.
        scores: by name, e.g. `chrf` of the translation, `aer` of the links with the reference.
        of: whose words the map's rows and the links are of, "translation" or "reference": of the reference also where
            the translation cannot be read.
        view: map and links; None where there is nothing to read them from.
    """

    line: int
    source: str
    references: tuple[str, ...]
    translation: str | None
    scores: dict[str, float]
    of: str
    view: SentenceView | None

    @property
    def has_map(self) -> bool:
        """Tell whether the pair is short enough for a map."""
        return self.view is not None and max(len(self.view.source), len(self.view.target)) <= LONGEST_MAP

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the map."""
        shown: dict[str, Any] = {
            "line": self.line,
            "source": self.source,
            "references": list(self.references),
            "translation": self.translation,
            **self.scores,
        }
        if self.view is not None:
            shown |= {"links_of": self.of, "links": sorted(map(list, self.view.links))}
            if self.view.gold is not None:
                shown["gold"] = {
                    "sure": sorted(map(list, self.view.gold.sure)),
                    "possible": sorted(map(list, self.view.gold.possible)),
                }
        return shown


@dataclass(frozen=True)
class SentenceGroup:
    """The worst or the best sentences by one score.

    Attributes:
        end: "worst" or "best". score: the name of the ranking. among: how many sentences were ranked.
        unranked: how many do not count, for want of words or of manual links.
    """

    end: str
    score: str
    among: int
    sentences: tuple[ShownSentence, ...]
    unranked: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the maps."""
        return {
            "end": self.end,
            "score": self.score,
            "among": self.among,
            "unranked": self.unranked,
            "sentences": [sentence.as_dict() for sentence in self.sentences],
        }


def alignment_errors(links: Sequence[Links], gold: Sequence[Gold]) -> list[float]:
    """Return the AER of each sentence; NaN for one without a manual link, which shows nothing."""
    errors = []
    for found, manual in zip(links, gold, strict=True):
        hits, size = len(found & manual.sure) + len(found & manual.possible), len(found) + len(manual.sure)
        errors.append(1 - hits / size if manual.possible and size else np.nan)
    return errors


def view_pair(
    aligner: Aligner | None,
    source: Sequence[str],
    target: Sequence[str],
    gold: Gold | None = None,
    jumps: LearnedJumps | None = None,
) -> SentenceView | None:
    """Return the map and the links of one pair, None where there is nothing to see.

    That is so without an aligner, without words, or where the pair is too long for the model: a translation, read anew,
    may have more tokens than it was generated with.
    """
    if aligner is None or not (source and target):
        return None
    try:
        (aligned,) = aligner.align([list(source)], [list(target)], jumps)
    except SentenceError:
        return None
    return SentenceView(source, target, aligned.matrix, aligned.pair.gold.sure, gold)
