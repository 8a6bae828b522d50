"""What goes when a page would be too large, in which order, and what it does to the numbers."""

import json

import numpy as np
import pytest
from view_pages import weights_of

from hf_seq2seq_attn.probing import Gold, PairView, ViewedMap, ViewLevel
from hf_seq2seq_attn.probing.view_packing import ViewPacker

SOURCE, TARGET = 7, 5


def matrix(seed: int, rows: int = TARGET, columns: int = SOURCE) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(columns), size=rows)


def level(rows: int = TARGET, columns: int = SOURCE, **words: list[int | None]) -> ViewLevel:
    maps = [
        ViewedMap("reading", "as read", matrix(0, rows, columns), frozenset({(1, 0)})),
        ViewedMap("mean", "mean of all", matrix(1, rows, columns)),
        ViewedMap("mean", "layer 3, mean", matrix(2, rows, columns), layer=3),
        ViewedMap("head", "layer 3, head 2", matrix(3, rows, columns), layer=3, head=2),
        ViewedMap("head", "layer 3, head 4", matrix(4, rows, columns), layer=3, head=4),
    ]
    names = ([f"{side}{n}" for n in range(count)] for side, count in (("s", columns), ("t", rows)))
    return ViewLevel(*names, maps, **words)


def pair() -> PairView:
    columns, rows = SOURCE + 2, TARGET + 1
    tokens = level(rows, columns, source_word=[*range(SOURCE), SOURCE - 1, None], target_word=[*range(TARGET), None])
    return PairView(level(), tokens, Gold(frozenset({(0, 0)}), frozenset({(2, 1)})))


def data_at(step: int) -> tuple[ViewPacker, dict]:
    packer = ViewPacker(10**9)
    assert packer.add(pair())
    packer.step = step
    return packer, json.loads(packer.data())


def kept(data: dict, name: str) -> list[str]:
    found = data["pairs"][0]["levels"].get(name)
    return [each["key"] for each in found["maps"]] if found else []


ALL = ["reading  ", "mean  ", "mean 3 ", "head 3 2", "head 3 4"]


@pytest.mark.parametrize(
    ("step", "words", "tokens"), [(0, 5, 5), (1, 5, 5), (2, 5, 3), (3, 3, 3), (4, 1, 1), (5, 1, 0)]
)
def test_steps_drop_what_the_rule_names(step: int, words: int, tokens: int) -> None:
    packer, data = data_at(step)
    assert (kept(data, "words"), kept(data, "tokens")) == (ALL[:words], ALL[:tokens])
    assert data["tokens"] == (tokens > 0)
    for each in data["pairs"][0]["levels"].values():
        assert all(("low" in packed) == (step == 0) for packed in each["maps"])
        assert all("until" not in packed for packed in each["maps"])
    assert packer.reduced().count(";") == max(0, step - 1)
    assert ("nothing had to go" in packer.rule()) == (step == 0)


def test_weights_come_back_and_lose_digits_by_the_stated_measure() -> None:
    for step, relative in ((0, 2e-4), (1, 0.1)):
        _, data = data_at(step)
        words = data["pairs"][0]["levels"]["words"]
        for number in range(5):
            np.testing.assert_allclose(weights_of(words, number), matrix(number), rtol=relative, atol=3e-5)
    tokens = data_at(0)[1]["pairs"][0]["levels"]["tokens"]
    np.testing.assert_allclose(weights_of(tokens, 4), matrix(4, TARGET + 1, SOURCE + 2), atol=3e-5)
    assert tokens["sourceWord"] == [0, 1, 2, 3, 4, 5, 6, 6, -1]
    assert tokens["targetWord"][-1] == -1


def test_weights_above_one_keep_their_scale_and_zero_stays_zero() -> None:
    norms = np.array([[0.0, 6.5, 1.25]])
    only = ViewLevel(list("abc"), ["x"], [ViewedMap("reading", "norms", norms)])
    packer = ViewPacker(10**6)
    packer.add(PairView(only))
    for step in (0, 1):
        packer.step = step
        read = weights_of(json.loads(packer.data())["pairs"][0]["levels"]["words"])
        np.testing.assert_allclose(read, norms, rtol=0.02)
        assert read[0, 0] == 0


def test_pairs_are_taken_until_the_limit_and_all_are_reduced_alike() -> None:
    whole, _ = data_at(0)
    size = len(whole.data())
    packer = ViewPacker(3 * size)
    taken = 0
    while packer.add(pair()):
        taken += 1
        assert len(packer.data()) <= 3 * size + 100
        if taken == 2:
            assert packer.step == 0
    assert packer.step == 5
    assert packer.left_out
    assert len(packer) == taken == len(json.loads(packer.data())["pairs"]) > 9
    assert not json.loads(packer.data())["tokens"]


def test_a_pair_that_never_fits_is_refused() -> None:
    with pytest.raises(ValueError, match="7 source and 5 target words does not fit into a page of 100 bytes"):
        ViewPacker(100).add(pair())
