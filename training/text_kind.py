"""What kind of text a bitext is: of words or of letters, and which of its words take part in the alignment."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from .aligner_data import LinkWeights, Sentences, StoredWeights

FEW_MARKS = 0.001
SHORTEST_MEAN = 1.5
_SYLLABLES = ("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA", "KATAKANA", "HANGUL")
"""How the Unicode names of such signs begin."""


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


@dataclass(frozen=True)
class TextKind:
    """What was found out about the text of the training, and holds for texts to come.

    Attributes:
        letters: its tokens are letters or sounds, not words.
        drop_source, drop_target: whether a side's punctuation is left out.
    """

    letters: bool
    drop_source: bool
    drop_target: bool

    @classmethod
    def of(cls, source: Sentences, target: Sentences) -> "TextKind":
        """Look at a text."""
        return cls(are_letters(source, target), *droppable_punctuation(source, target))

    def left_out(self, source: Sentences, target: Sentences) -> LeftOut:
        """Return which words of a text of this kind take part."""
        return linkable_words(source, target, drop=(self.drop_source, self.drop_target))


def is_punctuation(word: str) -> bool:
    """Say whether the word has neither letter nor digit."""
    return bool(word) and not any(unicodedata.category(letter)[0] in "LNM" for letter in word)


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


def are_letters(source: Sentences, target: Sentences) -> bool:
    """Say whether both sides are letters or sounds.

    Two texts cut into Han characters, kana or Hangul are not: such a sign is a word or a good part of one.
    """
    return (
        is_character_level(source)
        and is_character_level(target)
        and not (_is_of_syllables(source) and _is_of_syllables(target))
    )


def _is_of_syllables(sentences: Sentences) -> bool:
    """Say whether most tokens begin with a Han character, kana or Hangul."""
    counts = Counter(word[0] for words in sentences for word in words)
    syllables = sum(n for sign, n in counts.items() if unicodedata.name(sign, "").startswith(_SYLLABLES))
    return 2 * syllables > counts.total()


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
