import logging
from itertools import islice

import pytest

from hf_seq2seq_attn.training.cleaning import Cleaner, draws
from hf_seq2seq_attn.training.data_recipe import CleaningRecipe

PAIRS = [
    ("a b", "A B"),
    ("", "A"),
    ("a", ""),
    ("same words", "same words"),
    ("a b c d e f", "A B C D E F"),
    ("a", "A B C D"),
    ("A B C D", "a"),
    ("a b", "A B"),
    ("a", "b A B"),
    ("a b", "A  B"),
]


def kept(**rules: object) -> tuple[list[int], dict[str, int]]:
    cleaner = Cleaner(CleaningRecipe(**rules))  # type: ignore[arg-type]
    numbers = [n for n, (source, target) in enumerate(PAIRS) if cleaner.keeps(source.split(), target.split(), f"f:{n}")]
    return numbers, dict(cleaner.counts)


@pytest.mark.parametrize(
    ("rules", "left_out", "counts"),
    [
        ({}, {1, 2}, {"blank": 2}),
        ({"drop_copies": True}, {1, 2, 3}, {"blank": 2, "copies": 1}),
        ({"max_words": 4}, {1, 2, 4}, {"blank": 2, "over_max_words": 1}),
        ({"max_words": 3}, {1, 2, 4, 5, 6}, {"blank": 2, "over_max_words": 3}),
        ({"max_ratio": 3.0}, {1, 2, 5, 6}, {"blank": 2, "over_max_ratio": 2}),
        ({"max_ratio": 2.9}, {1, 2, 5, 6, 8}, {"blank": 2, "over_max_ratio": 3}),
        ({"drop_duplicates": True}, {1, 2, 7, 9}, {"blank": 2, "duplicates": 2}),
        # Each pair counts under the first rule that it breaks.
        (
            {"drop_copies": True, "max_words": 1, "max_ratio": 1, "drop_duplicates": True},
            set(range(10)),
            {"blank": 2, "copies": 1, "over_max_words": 7},
        ),
    ],
)
def test_rules(rules: dict[str, object], left_out: set[int], counts: dict[str, int]) -> None:
    assert kept(**rules) == ([n for n in range(len(PAIRS)) if n not in left_out], counts)


def test_words_that_only_read_alike_in_a_row_are_no_duplicates() -> None:
    cleaner = Cleaner(CleaningRecipe(drop_duplicates=True))
    assert cleaner.keeps(["a", "b"], ["c"])
    assert cleaner.keeps(["a"], ["b", "c"])
    assert not cleaner.keeps(["a"], ["b", "c"])


def test_the_report_names_the_first_place_of_each_rule(caplog: pytest.LogCaptureFixture) -> None:
    cleaner = Cleaner(CleaningRecipe(drop_duplicates=True))
    for number, (source, target) in enumerate(PAIRS, start=1):
        cleaner.keeps(source.split(), target.split(), f"a.de:{number}")
    with caplog.at_level(logging.WARNING):
        cleaner.report("a.de", len(PAIRS))
    assert caplog.messages == [
        "a.de: 2 of 10 pairs left out with a blank side, first at a.de:2",
        "a.de: 2 of 10 pairs left out seen before in the corpus, first at a.de:8",
    ]


def test_draws() -> None:
    assert list(islice(draws(1.0, 5), 9)) == [1] * 9
    assert list(islice(draws(3.0, 5), 9)) == [3] * 9
    half = list(islice(draws(0.5, 5), 1000))
    assert set(half) == {0, 1}
    assert 440 < sum(half) < 560
    assert half == list(islice(draws(0.5, 5), 1000)) != list(islice(draws(0.5, 6), 1000))
    assert set(islice(draws(2.25, 5), 1000)) == {2, 3}
    assert 2200 < sum(islice(draws(2.25, 5), 1000)) < 2300
