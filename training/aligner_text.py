"""Words as features: whole forms and character n-grams, so that forms of one lemma share what is learnt."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .aligner_data import LinkWeights, Sentences, StoredWeights

UNKNOWN = 0
FEW_MARKS = 0.001
SHORTEST_MEAN = 1.5


def stripped(word: str) -> str:
    """Return the word in lower case without combining marks (accents, vowel points), unless nothing would be left."""
    decomposed = unicodedata.normalize("NFD", word.lower())
    bare = "".join(letter for letter in decomposed if not unicodedata.category(letter).startswith("M"))
    return bare or word.lower()


def is_punctuation(word: str) -> bool:
    """Say whether the word has neither letter nor digit."""
    return bool(word) and not any(unicodedata.category(letter)[0] in "LNM" for letter in word)


def whole_forms(word: str, lemma: str | None = None) -> list[str]:
    """Return the features that name the word as a whole: as written, in lower case, bare, its lemma."""
    forms = [f"c:{word}", f"l:{word.lower()}", f"b:{stripped(word)}"]
    return forms if lemma is None else [*forms, f"m:{lemma}"]


def character_ngrams(word: str, shortest: int = 2, longest: int = 5) -> list[str]:
    """Return the n-grams of the bare word between boundary marks (Bojanowski et al. 2017, section 3.2)."""
    marked = f"<{stripped(word)}>"
    return [
        marked[start : start + size]
        for size in range(shortest, longest + 1)
        for start in range(len(marked) - size + 1)
        if size < len(marked)
    ]


@dataclass
class Lexemes:
    """The types of one side and their features in compressed rows: of type k those from `starts[k]` to `starts[k+1]`.

    Type 0 stands for padding and has no features.
    """

    ids: dict[tuple[str, str | None], int]
    features: np.ndarray
    starts: np.ndarray


class FeatureIndex:
    """Numbers the features that are frequent enough to be learnt; 0 is the unknown one.

    Args:
        forms, ngrams: the features kept, most frequent first.
    """

    def __init__(self, forms: Sequence[str], ngrams: Sequence[str]) -> None:
        self.forms = list(forms)
        self.ngrams = list(ngrams)
        self._form_ids = {form: place for place, form in enumerate(self.forms, start=1)}
        self._ngram_ids = {ngram: place for place, ngram in enumerate(self.ngrams, start=1)}

    @classmethod
    def build(
        cls, sentences: Sentences, lemmas: Sentences | None = None, *, least: int = 2, most: int = 30000
    ) -> "FeatureIndex":
        """Keep whole forms met `least` times and the n-grams of `least` types, at most `most` of each."""
        tokens = Counter(zip_types(sentences, lemmas))
        forms: Counter[str] = Counter()
        ngrams: Counter[str] = Counter()
        for (word, lemma), count in tokens.items():
            for form in whole_forms(word, lemma):
                forms[form] += count
            ngrams.update(set(character_ngrams(word)))
        return cls(_frequent(forms, least, most), _frequent(ngrams, least, most))

    def lexemes(
        self, sentences: Sentences, lemmas: Sentences | None = None
    ) -> tuple[Lexemes, Lexemes, list[np.ndarray]]:
        """Number the types of a text.

        Returns:
            The types with their whole forms, the same types with their n-grams, and each sentence as type numbers.
        """
        ids: dict[tuple[str, str | None], int] = {}
        rows = [
            np.array([ids.setdefault(each, len(ids) + 1) for each in zip_types([words], lemmas and [lemmas[place]])])
            for place, words in enumerate(sentences)
        ]
        forms: list[list[int]] = [[]]
        ngrams: list[list[int]] = [[]]
        for word, lemma in ids:
            known = [self._form_ids[form] for form in whole_forms(word, lemma) if form in self._form_ids]
            forms.append(known or [UNKNOWN])
            pieces = [self._ngram_ids[ngram] for ngram in character_ngrams(word) if ngram in self._ngram_ids]
            ngrams.append(pieces or [UNKNOWN])
        return Lexemes(ids, *_compressed(forms)), Lexemes(ids, *_compressed(ngrams)), rows

    def state(self) -> dict[str, Any]:
        """Return what `FeatureIndex` is made of, as plain JSON values."""
        return {"forms": self.forms, "ngrams": self.ngrams}


def zip_types(sentences: Sentences, lemmas: Sentences | None) -> Iterable[tuple[str, str | None]]:
    """Yield (word, lemma or None) of every token."""
    for place, words in enumerate(sentences):
        if lemmas is None:
            yield from ((word, None) for word in words)
        else:
            yield from zip(words, lemmas[place], strict=True)


def gather(lexemes: Lexemes, types: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of `types` one after another, and where those of each begin."""
    begins, ends = lexemes.starts[types], lexemes.starts[types + 1]
    lengths = ends - begins
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(types) else np.zeros(0, dtype=np.int64)
    within = np.arange(lengths.sum()) - np.repeat(offsets, lengths)
    return lexemes.features[np.repeat(begins, lengths) + within], offsets


def _frequent(counts: Counter[str], least: int, most: int) -> list[str]:
    kept = [(feature, count) for feature, count in counts.items() if count >= least]
    return [feature for feature, _ in sorted(kept, key=lambda each: (-each[1], each[0]))[:most]]


def _compressed(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    features = np.array([feature for row in rows for feature in row], dtype=np.int64)
    return features, np.concatenate([[0], np.cumsum(lengths)])


@dataclass(frozen=True)
class LeftOut:
    """Which words of each sentence take part: those that cannot be linked are left out, and put back at the end.

    Attributes:
        source, target: for each pair the places of the words that stay.
    """

    source: list[list[int]]
    target: list[list[int]]

    def apply(self, source: Sentences, target: Sentences) -> tuple[list[list[str]], list[list[str]]]:
        """Return both sides with the words that stay."""
        return (
            [[words[i] for i in kept] for words, kept in zip(source, self.source, strict=True)],
            [[words[j] for j in kept] for words, kept in zip(target, self.target, strict=True)],
        )

    def channels(
        self, source: Sentences, target: Sentences, source_lemmas: Sentences | None, target_lemmas: Sentences | None
    ) -> list[tuple[list[list[str]], list[list[str]] | None]]:
        """Return (words, lemmas or None) of the source and of the target, of the words that stay."""
        lemmas = self.apply(source_lemmas or source, target_lemmas or target)
        given = (source_lemmas is not None, target_lemmas is not None)
        return [
            (words, kept if has else None)
            for words, kept, has in zip(self.apply(source, target), lemmas, given, strict=True)
        ]

    def restored(self, links: Iterable[LinkWeights]) -> StoredWeights:
        """Return links between the words that stayed with the places that they have in the whole sentences."""
        return StoredWeights(
            {(left[i], right[j]): weight for (i, j), weight in weights.items()}
            for weights, left, right in zip(links, self.source, self.target, strict=True)
        )

    def reduced(self, links: Iterable[LinkWeights]) -> StoredWeights:
        """Return links of whole sentences with the places among the words that stay; other links are dropped."""
        return StoredWeights(self.reduced_pair(place, weights) for place, weights in enumerate(links))

    def reduced_pair(self, place: int, weights: LinkWeights) -> LinkWeights:
        """Return the links of one pair with the places among the words that stay; see `reduced`."""
        left = {i: new for new, i in enumerate(self.source[place])}
        right = {j: new for new, j in enumerate(self.target[place])}
        return {(left[i], right[j]): weight for (i, j), weight in weights.items() if i in left and j in right}


def linkable_words(source: Sentences, target: Sentences, *, drop: tuple[bool, bool] | None = None) -> LeftOut:
    """Find the words that take part: punctuation does not where the other side's text has none at all.

    Statistical aligners link such marks with whatever word has no better partner. In texts whose tokens are single
    letters or sounds, signs are symbols like others and stay.

    Args:
        drop: whether to leave out the source's and the target's punctuation; None = find out from the text.
    """
    if drop is None:
        drop = droppable_punctuation(source, target)
    return LeftOut(*(_kept(sentences, leave) for sentences, leave in zip((source, target), drop, strict=True)))


def droppable_punctuation(source: Sentences, target: Sentences) -> tuple[bool, bool]:
    """Say for each side whether its punctuation has no counterpart: less than one token in 1000 on the other side."""
    shares = [_share_of_punctuation(sentences) for sentences in (source, target)]
    if is_character_level(source) or is_character_level(target):
        return False, False
    return shares[1] < FEW_MARKS, shares[0] < FEW_MARKS


def is_character_level(sentences: Sentences) -> bool:
    """Say whether the tokens are letters or sounds rather than words: shorter than 1.5 characters on average."""
    return _mean_length(sentences) < SHORTEST_MEAN


def _share_of_punctuation(sentences: Sentences) -> float:
    counts = Counter(word for words in sentences for word in words)
    marks = sum(count for word, count in counts.items() if is_punctuation(word))
    return marks / max(1, counts.total())


def _mean_length(sentences: Sentences) -> float:
    counts = Counter(word for words in sentences for word in words)
    return sum(len(word) * count for word, count in counts.items()) / max(1, counts.total())


def _kept(sentences: Sentences, leave: bool) -> list[list[int]]:
    if not leave:
        return [list(range(len(words))) for words in sentences]
    marks: dict[str, bool] = {}
    return [
        [place for place, word in enumerate(words) if not marks.setdefault(word, is_punctuation(word))]
        for words in sentences
    ]
