"""The diagonal, and IBM model 1 against a plain reference."""

from collections import defaultdict

import pytest

from hf_seq2seq_attn.probing import Ibm1, diagonal_links

SOURCES = [s.split() for s in ("das Haus", "das Buch", "ein Buch", "", "das")]
TARGETS = [s.split() for s in ("the house", "the book", "a book a", "x", "")]


def test_diagonal() -> None:
    assert diagonal_links(3, 3) == {(0, 0), (1, 1), (2, 2)}
    assert diagonal_links(2, 5) == {(0, 0), (0, 1), (1, 2), (1, 3), (1, 4)}
    assert diagonal_links(5, 2) == {(1, 0), (3, 1)}
    assert diagonal_links(0, 2) == diagonal_links(2, 0) == frozenset()


def reference(iterations: int) -> dict[tuple[str, str], float]:
    """IBM model 1 as in the textbook, pair by pair."""
    table: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts: dict[tuple[str, str], float] = defaultdict(float)
        totals: dict[str, float] = defaultdict(float)
        for source, target in zip(SOURCES, TARGETS, strict=True):
            words = ["NULL", *source]
            for t in target:
                whole = sum(table[s, t] for s in words)
                for s in words:
                    counts[s, t] += table[s, t] / whole
                    totals[s] += table[s, t] / whole
        table = defaultdict(float, {pair: count / totals[pair[0]] for pair, count in counts.items()})
    return table


def test_em_equals_the_textbook() -> None:
    model = Ibm1(iterations=4, lowercase=False).fit(SOURCES, TARGETS)
    expected = reference(4)
    matrix = model.matrix(["Haus", "Buch", "nie"], ["the", "house", "a", "never"])
    assert matrix.shape == (4, 4)
    for row, t in enumerate(["the", "house", "a"]):
        for column, s in enumerate(["NULL", "Haus", "Buch"]):
            assert matrix[row, column] == pytest.approx(expected[s, t])
    assert (matrix[:, 3] == 0).all()
    assert (matrix[3] == 0).all()


def test_links_find_the_translation_and_leave_the_unknown() -> None:
    model = Ibm1(iterations=10).fit(SOURCES, TARGETS)
    assert model.links(["DAS", "haus", "nie"], ["The", "house", "never"]) == {(0, 0), (1, 1)}
    assert model.links([], ["a"]) == model.links(["das"], []) == frozenset()


def test_repeated_source_words_are_told_apart_by_place() -> None:
    model = Ibm1().fit(SOURCES, TARGETS)
    assert model.links(["Buch", "ein", "Buch"], ["book", "zz", "book"]) == {(0, 0), (2, 2)}


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="2 source but 1 target"):
        Ibm1().fit(SOURCES[:2], TARGETS[:1])
    with pytest.raises(ValueError, match="at least 1"):
        Ibm1(iterations=0)
    assert Ibm1().fit([], []).links(["a"], ["b"]) == frozenset()
