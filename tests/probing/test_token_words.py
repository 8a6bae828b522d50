"""Which word a token belongs to, against the slow rule: count the characters of each word that it covers."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from hf_seq2seq_attn.probing.tokens import _words_of

Spans = list[tuple[int, int]]


def slowly(words: Spans, tokens: Spans) -> list[int | None]:
    found: list[int | None] = []
    for start, end in tokens:
        counts = Counter(
            number for place in range(start, end) for number, (first, last) in enumerate(words) if first <= place < last
        )
        # Ties go to the first word.
        found.append(min(counts, key=lambda number: (-counts[number], number)) if counts else None)
    return found


@st.composite
def word_spans(draw: st.DrawFn) -> Spans:
    """Draw words that follow each other with gaps, some of them empty."""
    spans, place = [], 0
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=6)):
        spans.append((place + gap, place + gap + length))
        place += gap + length
    return spans


token_spans = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda span: (span[0], span[0] + span[1])), max_size=7
)


@settings(max_examples=300)
@given(word_spans(), token_spans)
def test_a_token_belongs_to_the_word_that_it_covers_most_of(words: Spans, tokens: Spans) -> None:
    assert _words_of(words, tokens) == slowly(words, tokens)


def test_ties_gaps_and_nothing() -> None:
    words = [(0, 2), (3, 5), (5, 5), (6, 9)]
    tokens = [(0, 1), (1, 4), (2, 3), (3, 9), (5, 6), (9, 12), (4, 4)]
    assert _words_of(words, tokens) == [0, 0, None, 3, None, None, None]
    assert _words_of([], [(0, 3)]) == [None]
    assert _words_of([(0, 0)], [(0, 1)]) == [None]
    assert _words_of(words, []) == []
