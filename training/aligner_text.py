"""Words as features: whole forms and character n-grams, so that forms of one lemma share what is learnt."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .aligner_data import Sentences

UNKNOWN = 0
_SPARED_MARKS = ("COMBINING", "HEBREW", "ARABIC", "SYRIAC", "VARIATION SELECTOR")
"""How the Unicode names of marks begin that a word can do without."""


def stripped(word: str) -> str:
    """Return the word in lower case without accents and vowel points, unless nothing would be left.

    Signs that are letters by their use, such as the vowels of Indic scripts and the voiced sound marks of kana, stay.
    """
    decomposed = unicodedata.normalize("NFD", word.lower())
    bare = "".join(sign for sign in decomposed if not _can_be_left_out(sign))
    return unicodedata.normalize("NFC", bare) or word.lower()


@cache
def _can_be_left_out(sign: str) -> bool:
    """Say whether a sign is a mark without which readers of its script still know the word."""
    name = unicodedata.name(sign, "")
    return unicodedata.category(sign)[0] == "M" and name.startswith(_SPARED_MARKS) and "KATAKANA" not in name


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
