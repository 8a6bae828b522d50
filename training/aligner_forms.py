"""The forms of a text that a statistical teacher is run on: the fewer the types, the more often each is seen."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hf_seq2seq_attn.probing import Link

from .aligner_data import LinkWeights, Sentences, TeacherLinks, shared_out
from .aligner_text import stripped
from .text_kind import LeftOut, are_letters, linkable_words

PREFIX = 4
"""Letters kept of a word: enough to tell words apart, few enough to join the forms of one lemma."""


@dataclass(frozen=True)
class TeacherForm:
    """A text to run a teacher on.

    Attributes:
        name: says what was done to either side.
        source, target: its sentences; some may be empty.
        left_out: which words of the user's text they hold.
        letters: tokens are letters or sounds.
    """

    name: str
    source: list[list[str]]
    target: list[list[str]]
    left_out: LeftOut
    letters: bool = False

    def restored(self, forward: Iterable[LinkWeights], reverse: Iterable[LinkWeights]) -> TeacherLinks:
        """Return the teacher's links of this form with the places of the words in the user's text.

        Of a double letter the first takes the link (`first_of_doubles`).
        """
        if self.letters:
            forward, reverse = (
                [_without_doubles(*pair, side) for pair in zip(links, self.source, self.target, strict=True)]
                for links, side in ((forward, 1), (reverse, 0))
            )
        return TeacherLinks(self.left_out.restored(forward), self.left_out.restored(reverse))


def teacher_forms(
    source: Sentences,
    target: Sentences,
    source_lemmas: Sentences | None = None,
    target_lemmas: Sentences | None = None,
    *,
    left_out: LeftOut | None = None,
    letters: bool | None = None,
    distinct: bool = True,
) -> list[TeacherForm]:
    """Return the forms of a text, the most useful first.

    - prefixes: the first letters of each word, without marks; lemmas in full where there are some;
    - bare: lower case without marks on the source side, prefixes on the target side;
    - lower: lower case.

    Texts of single letters or sounds have one form, which keeps the difference of small and capital letters.

    Args:
        left_out, letters: which words take part, and whether tokens are letters or sounds, as an earlier text of the
            same kind says; None = find out from this one.
        distinct: give forms that do not differ once. For a text to come, all are wanted: which forms teachers were run
            on was decided by the text of the training, and a line's links must not depend on the lines beside it.
    """
    left_out = linkable_words(source, target) if left_out is None else left_out
    (source_words, source_kept), (target_words, target_kept) = left_out.channels(
        source, target, source_lemmas, target_lemmas
    )
    if letters is None:
        letters = are_letters(source, target)
    if letters:
        return [TeacherForm("cased", _formed(source_words, _cased), _formed(target_words, _cased), left_out, True)]
    source_short, target_short = (
        _formed(words, _prefix) if lemmas is None else _formed(lemmas, str.lower)
        for words, lemmas in ((source_words, source_kept), (target_words, target_kept))
    )
    candidates = {
        "prefixes": (source_short, target_short),
        "bare-prefixes": (_formed(source_words, stripped), target_short),
        "lower": (_formed(source_words, str.lower), _formed(target_words, str.lower)),
    }
    forms: list[TeacherForm] = []
    for name, (left, right) in candidates.items():
        if not distinct or not any(form.source == left and form.target == right for form in forms):
            forms.append(TeacherForm(name, left, right, left_out))
    return forms


def first_of_doubles(links: LinkWeights, source: Sequence[str], target: Sequence[str]) -> LinkWeights:
    """Return the links with those of a letter that repeats the one before it moved there, if it has none of its own.

    Which letter of "ss" makes the sound cannot be told from a text: a statistical aligner says now this, now that.
    Those who align by hand take the first.
    """
    for side, letters in enumerate((source, target)):
        for place in range(1, len(letters)):
            if letters[place] != letters[place - 1]:
                continue
            (first, strength), (second, other) = (_best(links, side, where) for where in (place - 1, place))
            if second is not None and (first in (None, second) or strength < other):
                links = _moved(links, side, place)
    return links


def _without_doubles(links: LinkWeights, source: Sequence[str], target: Sequence[str], side: int) -> LinkWeights:
    """Return `first_of_doubles` of one direction's weights, in which two letters' may have come together in one row."""
    moved = first_of_doubles(links, source, target)
    return links if moved is links else shared_out(moved, side)


def _best(links: LinkWeights, side: int, place: int) -> tuple[int | None, float]:
    """Return what a letter of a side is linked with most, and how much."""
    weights = {link[1 - side]: weight for link, weight in links.items() if link[side] == place}
    best = max(weights, key=weights.__getitem__, default=None)
    return best, 0.0 if best is None else weights[best]


def _moved(links: LinkWeights, side: int, place: int) -> LinkWeights:
    """Return the links with those of a letter added to the one before it."""
    moved: dict[Link, float] = {}
    for link, weight in links.items():
        ends = list(link)
        ends[side] -= link[side] == place
        moved[ends[0], ends[1]] = min(1.0, moved.get((ends[0], ends[1]), 0.0) + weight)
    return moved


def _formed(sentences: Sentences, change: Callable[[str], str]) -> list[list[str]]:
    known: dict[str, str] = {}
    return [
        [known[word] if word in known else known.setdefault(word, change(word)) for word in words]
        for words in sentences
    ]


def _prefix(word: str) -> str:
    return stripped(word)[:PREFIX]


def _cased(word: str) -> str:
    """Spell out capitals, for teachers that compare words in lower case."""
    return word if word == word.lower() else f"^{word.lower()}"
