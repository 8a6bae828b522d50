"""The sweep: every point is what align finds, the model runs once for each kind of rows, test pairs stay apart."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from probes import foreign_model, subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import (
    SPECIALS,
    WEIGHTS,
    Aligner,
    Gold,
    GoldText,
    Reading,
    SweepGrid,
    alignment_error_rate,
    extract,
    sweep,
)
from hf_seq2seq_attn.probing.sweep_choices import shared_pair

Side = tuple[Any, Any]
SOURCES = ["the cats love today.", "", "understand this today.", "I love", "cats love the day"]
TARGETS = ["love cats unloved", "day", "the day I understand", "", "this day"]
GOLD = [
    Gold(frozenset({(0, 1), (2, 0)}), frozenset({(3, 2)})),
    Gold(frozenset(), frozenset()),
    Gold(frozenset({(2, 1), (0, 3)}), frozenset()),
    Gold(frozenset(), frozenset()),
    Gold(frozenset({(3, 1)}), frozenset({(2, 0)})),
]
DEV = GoldText(SOURCES, TARGETS, GOLD)
TEST = GoldText(["love the cats", ""], ["cats day", ""], [Gold(frozenset({(2, 0)}), frozenset()), GOLD[1]])
TOKENIZER = subword_tokenizer()


@pytest.fixture(scope="module")
def forward() -> Side:
    return foreign_model("marian"), TOKENIZER


@pytest.fixture(scope="module")
def reverse() -> Side:
    return foreign_model("bart"), TOKENIZER


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch, forward: Side, reverse: Side) -> Iterator[list[str]]:
    """Note each forward pass of the two models."""
    noted: list[str] = []
    handles = [
        side[0].get_encoder().register_forward_pre_hook(lambda *_, name=name: noted.append(name))
        for side, name in ((forward, "forward"), (reverse, "reverse"))
    ]
    yield noted
    for handle in handles:
        handle.remove()


def aer_of(side: Side, other: Side | None, reading: Reading, text: GoldText) -> float:
    aligner = Aligner(side, other if reading.symmetrize or reading.combine else None, reading)
    jumps = aligner.learn(text.sources, text.targets)
    found = [each.pair.gold.sure for each in aligner.align(text.sources, text.targets, jumps)]
    return alignment_error_rate(found, text.gold)


def test_every_point_is_what_align_finds(forward: Side, reverse: Side) -> None:
    grid = SweepGrid(
        specials=("mask", "null"),
        layers=(0, 2),
        heads=("mean", 1),
        links=("argmax", "hmm:0.1"),
        symmetrize=("union",),
        combine=("harmonic",),
    )
    result = sweep(forward, DEV, reverse=reverse, grid=grid)
    # rows, weights, layers, heads, specials, links; sub-words: matrix has three ways, links two.
    assert len(result.points) == 2 * 2 * 2 * 2 * 2 * 2 * (3 + 2)
    assert len({point.reading for point in result.points}) == len(result.points)
    for point in result.points[::23]:
        assert point.aer == pytest.approx(aer_of(forward, reverse, point.reading, DEV), abs=1e-12), point
    aers = [point.aer for point in result.points]
    assert aers == sorted(aers) and aers[0] < aers[-1]
    assert result.chosen is result.points[0]
    assert result.dev.aer == pytest.approx(aers[0])
    assert result.test is None and result.skipped == ()


def test_the_model_runs_once_for_each_kind_of_rows(forward: Side, reverse: Side, passes: list[str]) -> None:
    grid = SweepGrid(links=("argmax", "mutual", "itermax", "threshold:0.2"))
    result = sweep(forward, DEV, grid=grid)
    assert len(result.points) == 2 * 2 * 3 * len(SPECIALS) * 2 * 4
    # Both kinds of rows, then the chosen reading alone.
    assert passes == ["forward"] * 3
    passes.clear()
    sweep(forward, DEV, reverse=reverse, grid=SweepGrid(align_with=("input",)))
    assert passes[:2] == ["forward", "reverse"] and len(passes) <= 4


def test_the_choice_is_made_on_dev_and_reported_on_test(forward: Side, reverse: Side) -> None:
    alone = sweep(forward, DEV, reverse=reverse)
    result = sweep(forward, DEV, reverse=reverse, test=TEST)
    assert result.points == alone.points
    assert result.test is not None
    assert result.test.aer == pytest.approx(aer_of(forward, reverse, result.chosen.reading, TEST))
    assert result.test.sentences == 2
    assert result.test.ci95[0] <= result.test.aer <= result.test.ci95[1]


def test_a_planted_layer_and_rows_are_found(forward: Side) -> None:
    """Gold that is what one reading finds makes that reading the choice."""
    planted = Reading(align_with="output", weights="norm", layer=1, heads=(2,), links="mutual")
    aligner = Aligner(forward, reading=planted)
    links = [each.pair.gold.sure for each in aligner.align(SOURCES, TARGETS)]
    gold = [Gold(each, frozenset()) for each in links]
    result = sweep(forward, GoldText(SOURCES, TARGETS, gold), grid=SweepGrid(heads=("mean", 0, 1, 2)))
    assert result.dev.aer == 0
    perfect = {point.reading for point in result.points if point.aer == 0}
    assert planted.filled() in perfect and result.chosen.reading in perfect


def test_prefixes_reach_both_models(forward: Side, reverse: Side) -> None:
    base = Reading(source_prefix="love the ", reverse_prefix="day ")
    grid = SweepGrid(layers=(1,), specials=("mask",), symmetrize=("union",), combine=())
    result = sweep(forward, DEV, reverse=reverse, grid=grid, base=base)
    for point in result.points:
        two = point.reading.symmetrize is not None
        assert (point.reading.source_prefix, point.reading.reverse_prefix) == ("love the ", "day " if two else "")
        assert point.aer == pytest.approx(aer_of(forward, reverse, point.reading, DEV), abs=1e-12)


def test_a_pair_of_both_sets_is_refused(forward: Side) -> None:
    shared = GoldText(["else", " understand  this today."], ["x", "the day I\tunderstand"], GOLD[:2])
    assert shared_pair(DEV, shared) == (2, 1)
    with pytest.raises(ValueError, match="pair 2 of the test set is pair 3 of the development set"):
        sweep(forward, DEV, test=shared)
    with pytest.raises(ValueError, match="pair 1 of the test set is pair 1"):
        sweep(forward, DEV, test=DEV)
    one_side = GoldText(SOURCES[:1], ["another"], GOLD[:1])
    assert shared_pair(DEV, one_side) is None
    blank = GoldText([""], ["day"], GOLD[1:2])
    assert shared_pair(DEV, blank) is None, "a blank pair is no pair"


def test_weights_that_a_model_cannot_give_are_left_out_and_named(
    forward: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hf_seq2seq_attn.errors import UnusableError
    from hf_seq2seq_attn.probing import extract, sweep_choices

    def without_norms(*arguments: Any, **choices: Any) -> Any:
        if choices.get("weights", "attention") != "attention":
            raise UnusableError("no norms of this model")
        return extract(*arguments, **choices)

    monkeypatch.setattr(sweep_choices, "extract", without_norms)
    result = sweep(forward, DEV)
    assert {point.reading.weights for point in result.points} == {"attention"}
    assert result.skipped == ("weights norm: no norms of this model",)
    with pytest.raises(ValueError, match="no norms of this model"):
        sweep(forward, DEV, grid=SweepGrid(weights=("norm",)))


def test_progress_ends_at_its_total(forward: Side, reverse: Side) -> None:
    seen: list[tuple[int, int]] = []
    grid = SweepGrid(layers=(-1,), specials=("mask",))
    result = sweep(forward, DEV, reverse=reverse, grid=grid, progress=lambda done, total: seen.append((done, total)))
    total = len(result.points)
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_models_of_unequal_depth_share_the_layers_that_both_have(forward: Side) -> None:
    shallow = tiny_model(vocab_size=73, decoder_layers=2), TOKENIZER
    result = sweep(forward, DEV, reverse=shallow, grid=SweepGrid(weights=("attention",), specials=("mask",)))
    assert {point.reading.layer for point in result.points} == {0, 1}
    one_head = tiny_model(vocab_size=73, decoder_type="gru", encoder_type="gru"), TOKENIZER
    with pytest.raises(ValueError, match="unequal numbers of heads"):
        sweep(forward, DEV, reverse=one_head)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (SweepGrid(links=("best",)), "links is 'best'"),
        (SweepGrid(links=()), "links is empty"),
        (SweepGrid(weights=("values",)), "weights is 'values'"),
        (SweepGrid(align_with=("both",)), "align_with is 'both'"),
        (SweepGrid(specials=("x",)), "specials is 'x'"),
        (SweepGrid(subwords=("x",)), "subwords is 'x'"),
        (SweepGrid(symmetrize=("grow-diag",)), "grow-diag-moses"),
        (SweepGrid(combine=("sum",)), "combine is 'sum'"),
        (SweepGrid(heads=(9,)), "head 9 does not exist"),
        (SweepGrid(layers=(9,)), "layer 9 does not exist"),
    ],
)
def test_unknown_choices_are_refused(forward: Side, grid: SweepGrid, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sweep(forward, DEV, grid=grid)


def test_what_is_no_hand_aligned_text(forward: Side) -> None:
    with pytest.raises(ValueError, match="2 sources, 1 targets and 1 sentences of gold"):
        GoldText(["a", "b"], ["c"], GOLD[:1])
    with pytest.raises(ValueError, match="no development pairs"):
        sweep(forward, GoldText([], [], []))


def test_a_point_as_plain_values(forward: Side) -> None:
    result = sweep(forward, DEV, grid=SweepGrid(layers=(1,), heads=(2,), links=("mutual",)))
    content = result.chosen.as_dict()
    assert (content["layer"], content["heads"], content["links"]) == (1, 2, "mutual")
    assert content["found"] == result.chosen.links
    assert content["aer"] == result.dev.aer


@pytest.mark.parametrize("null_key", [False, True])
def test_one_pass_holds_every_kind_of_weights(null_key: bool) -> None:
    """What the sweep reads off one pass is what a pass of its own gives."""
    side = tiny_model(vocab_size=73, null_key=null_key), TOKENIZER
    held = list(extract(*side, SOURCES, TARGETS, weights="norm"))
    for kind in WEIGHTS:
        for maps, own in zip(held, extract(*side, SOURCES, TARGETS, weights=kind), strict=True):
            turned = maps.of_kind(kind)
            assert turned.weight_kind == kind
            np.testing.assert_array_equal(turned.weights, own.weights)
            np.testing.assert_array_equal(turned.matrix(0, [2, 0]), own.matrix(0, [2, 0]))
            np.testing.assert_array_equal(turned.null_weights(), own.null_weights())
    with pytest.raises(ValueError, match=r"weights is 'norm'; these maps hold attention$"):
        held[0].of_kind("attention").of_kind("norm")
    with pytest.raises(ValueError, match="weights is 'values'; these maps hold attention, norm, raw_norm"):
        held[0].of_kind("values")


def test_layers_that_only_one_model_has_are_named(forward: Side) -> None:
    grid = SweepGrid(
        align_with=("input",), weights=("attention",), specials=("mask",), subwords=("matrix",), links=("argmax",),
        heads=(0,), symmetrize=("union",), combine=(),
    )  # fmt: skip
    result = sweep(forward, DEV, reverse=(tiny_model(vocab_size=73), TOKENIZER), grid=grid)
    assert {point.reading.layer for point in result.points} == {0, 1}
    assert result.skipped == ("layers 2: only one of the two models has them",)
