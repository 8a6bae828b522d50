"""Check that key terms were rendered as agreed: every occurrence of a source term, and what it is linked to.

A source term is found where its words stand next to each other, compared by lemma or by word without regard to case
and to punctuation at the edges of words; inside a longer term a shorter one does not count.

A word renders a word of an allowed rendering if
- their lemmas are equal (where lemmas are given), or
- they are equal, a possessive 's left out, or
- they share a beginning of at least max(4, 70% of the longer word, rounded up) characters: `baptize` and `baptized`,
  but not `king` and `kingdom`.
Case counts only if asked for.
"""

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hf_seq2seq_attn.text_files import InputError, iterate_lines

from .bitext import BitextLine
from .lexicon import rendering

VERDICTS = ("allowed", "otherwise", "unaligned")
SHORTEST_PREFIX, PREFIX_SHARE = 4, 0.7
_POSSESSIVES = ("'s", "’s", "'S", "’S")


@dataclass(frozen=True)
class Term:
    """A source term and its allowed renderings, each a sequence of words."""

    source: tuple[str, ...]
    allowed: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        return " ".join(self.source)


@dataclass(frozen=True)
class TermOccurrence:
    """What became of one occurrence of a term.

    Attributes:
        line, verse_id: where it stands; verse_id is None without names of verses.
        term: as in the list of terms.
        source: the words as they stand in the source.
        positions: of these words, 0-based.
        verdict: `allowed`, `otherwise` (linked to something else) or `unaligned` (linked to nothing).
        rendering: the target words that it is linked to.
        matched: the allowed rendering that was found there; None for the other verdicts.
        elsewhere: an allowed rendering that stands in the target, but is not linked to the term; else None.
        confidence: mean over the term's words of the probability of the best link: 0 for a word without a link, 1 for a
            link without a probability. So without probabilities the share of the words that are linked.
    """

    line: int
    verse_id: str | None
    term: str
    source: str
    positions: tuple[int, ...]
    verdict: str
    rendering: str
    matched: str | None
    elsewhere: str | None
    confidence: float


def read_terms(path: str | Path) -> list[Term]:
    """Read terms, one a line: the source term, a tab, its allowed renderings with `|` between them.

    Further columns are notes; blank lines and lines that begin with `#` are skipped. Lines with the same source term
    add up.

    Raises:
        InputError: a line without a rendering, or no term at all; names the line.
    """
    terms: dict[tuple[str, ...], dict[tuple[str, ...], None]] = {}
    for number, line in enumerate(iterate_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        source, tab, rest = line.partition("\t")
        allowed = [tuple(part.split()) for part in rest.partition("\t")[0].split("|")]
        if not tab or not source.split() or not all(allowed):
            raise InputError(
                f"{path}:{number}: {line!r} is no term; write the source term, a tab, and its allowed renderings "
                "with | between them"
            )
        terms.setdefault(tuple(source.split()), {}).update(dict.fromkeys(allowed))
    if not terms:
        raise InputError(f"{path}: no term in it; write lines of: source term, tab, allowed renderings with | between")
    return [Term(source, tuple(allowed)) for source, allowed in terms.items()]


class TermChecker:
    """Finds terms and judges their renderings.

    Args:
        terms: see `read_terms`.
        match_case: renderings must have the case that the list gives them.
    """

    def __init__(self, terms: Sequence[Term], *, match_case: bool = False) -> None:
        self._match_case = match_case
        self._allowed = {term: [self._forms(words) for words in term.allowed] for term in terms}
        # Longer terms first, so that shorter ones do not take their words.
        self._terms_of_word: dict[str, list[tuple[tuple[str, ...], Term]]] = {}
        for term in sorted(terms, key=lambda term: -len(term.source)):
            key = tuple(normalised(word).casefold() for word in term.source)
            self._terms_of_word.setdefault(key[0], []).append((key, term))

    def check(self, line: BitextLine) -> Iterator[TermOccurrence]:
        """Yield the occurrences of one sentence pair from left to right.

        Raises:
            ValueError: a line without links.
        """
        if line.links is None:
            raise ValueError(f"line {line.verse.place} has no links; terms are checked by them")
        target = _Target(line, self)
        for start, term in self._found(line):
            positions = range(start, start + len(term.source))
            linked = sorted({j for i, j in line.links if i in positions})
            matched = next((words for words in self._allowed[term] if target.renders(words, linked)), None)
            elsewhere = None
            if matched is None:
                elsewhere = next((words for words in self._allowed[term] if target.has(words)), None)
            yield TermOccurrence(
                line=line.verse.line,
                verse_id=line.verse.verse_id,
                term=term.name,
                source=" ".join(line.source[i] for i in positions),
                positions=tuple(positions),
                verdict="allowed" if matched else "otherwise" if linked else "unaligned",
                rendering=rendering(line.target, linked),
                matched=None if matched is None else self._name(term, matched),
                elsewhere=None if elsewhere is None else self._name(term, elsewhere),
                confidence=_confidence(line, positions),
            )

    def _found(self, line: BitextLine) -> list[tuple[int, Term]]:
        """Return where each term begins; the longest terms of the sentence take their words first."""
        forms = [{normalised(word).casefold()} for word in line.source]
        for lemma, form in zip(line.source_lemmas or (), forms, strict=False):
            form.add(normalised(lemma).casefold())
        candidates = []
        for start, form in enumerate(forms):
            for word in form:
                for key, term in self._terms_of_word.get(word, ()):
                    here = forms[start : start + len(key)]
                    if len(here) == len(key) and all(part in each for part, each in zip(key, here, strict=True)):
                        candidates.append((start, term))
        candidates.sort(key=lambda found: (-len(found[1].source), found[0]))
        taken: set[int] = set()
        kept = []
        for start, term in candidates:
            positions = range(start, start + len(term.source))
            if taken.isdisjoint(positions):
                taken.update(positions)
                kept.append((start, term))
        return sorted(kept, key=lambda found: found[0])

    def _forms(self, words: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.form(word) for word in words)

    def form(self, word: str) -> str:
        """Return a word as it is compared."""
        word = normalised(word)
        return word if self._match_case else word.casefold()

    def _name(self, term: Term, words: tuple[str, ...]) -> str:
        return " ".join(term.allowed[self._allowed[term].index(words)])


class _Target:
    """The target side of one line, as terms are looked for in it."""

    def __init__(self, line: BitextLine, checker: TermChecker) -> None:
        self.words = [checker.form(word) for word in line.target]
        self.lemmas = None if line.target_lemmas is None else [checker.form(lemma) for lemma in line.target_lemmas]

    def renders(self, allowed: tuple[str, ...], linked: Sequence[int]) -> bool:
        """Tell whether an allowed rendering stands at the linked words: its words in order among them, or next to each
        other with at least one of them linked."""
        rest = iter(linked)
        if all(any(self._is(word, j) for j in rest) for word in allowed):
            return True
        starts = {j - offset for j in linked for offset in range(len(allowed))}
        return any(self._stands(allowed, start) for start in starts)

    def has(self, allowed: tuple[str, ...]) -> bool:
        """Tell whether an allowed rendering stands anywhere."""
        return any(self._stands(allowed, start) for start in range(len(self.words)))

    def _stands(self, allowed: tuple[str, ...], start: int) -> bool:
        return 0 <= start <= len(self.words) - len(allowed) and all(
            self._is(word, start + offset) for offset, word in enumerate(allowed)
        )

    def _is(self, word: str, j: int) -> bool:
        return (self.lemmas is not None and self.lemmas[j] == word) or is_inflected(self.words[j], word)


def is_inflected(one: str, other: str) -> bool:
    """Tell whether two words are equal or share a beginning of at least max(4, 70% of the longer) characters."""
    if one == other:
        return True
    needed = max(SHORTEST_PREFIX, math.ceil(PREFIX_SHARE * max(len(one), len(other))))
    return len(one) >= needed and len(other) >= needed and one[:needed] == other[:needed]


def normalised(word: str) -> str:
    """Return a word in composed Unicode form without a possessive 's and punctuation at its edges; one of punctuation
    only as it is."""
    word = unicodedata.normalize("NFC", word)
    start, end = 0, len(word)
    while start < end and _is_edge(word[start]):
        start += 1
    while end > start and _is_edge(word[end - 1]):
        end -= 1
    for possessive in _POSSESSIVES:
        if word.endswith(possessive, start, end) and end - start > len(possessive):
            end -= len(possessive)
    return word[start:end] or word


def _is_edge(character: str) -> bool:
    return unicodedata.category(character)[0] == "P"


def _confidence(line: BitextLine, positions: range) -> float:
    best = dict.fromkeys(positions, 0.0)
    for link in line.links or ():
        if link[0] in best:
            best[link[0]] = max(best[link[0]], line.probabilities.get(link, 1.0))
    return sum(best.values()) / len(best)


def summarise(occurrences: Iterable[TermOccurrence], terms: Sequence[Term]) -> dict[str, Counter[str]]:
    """Return how often each verdict fell for each term, in the order of the list; terms that do not occur too."""
    counts: dict[str, Counter[str]] = {term.name: Counter() for term in terms}
    for occurrence in occurrences:
        counts[occurrence.term][occurrence.verdict] += 1
    return counts
