"""Signals of bad lines, and planted faults found by them."""

import math
import random
from pathlib import Path

import numpy as np
import pytest

from hf_seq2seq_attn.probing.bitext import BitextLine
from hf_seq2seq_attn.probing.model_signals import ModelSignals
from hf_seq2seq_attn.probing.planted_faults import FAULTS, plant_faults, roc_auc
from hf_seq2seq_attn.probing.quality import (
    LineQuality,
    by_rank,
    measure_quality,
    standardise,
    surprisals,
    unlinked_runs,
)
from hf_seq2seq_attn.probing.verses import Verse

Words = list[str]


def line(
    source: str,
    target: str,
    links: set[tuple[int, int]] | None,
    probabilities: dict[tuple[int, int], float] | None = None,
) -> BitextLine:
    found = None if links is None else frozenset(links)
    return BitextLine(Verse(1, (source, target)), source.split(), target.split(), found, probabilities or {})


def measured(*lines: BitextLine, signals: list[ModelSignals] | None = None) -> list[LineQuality]:
    return measure_quality(list(lines), signals)


def test_signals_of_a_line() -> None:
    first, second, blank = measured(
        line("a b , c d e", "A X . B Y Z e", {(0, 0), (1, 3), (2, 2)}, {(0, 0): 0.5, (1, 3): 0.25}),
        line("a b", "A A", {(0, 0)}),
        line(" , ", "", set()),
    )
    assert first.words == 11
    assert first.values == {
        "link_probability": 0.375,
        # a-A: one link beside it, 1 of a and 2 of A elsewhere; the others have none.
        "link_support": pytest.approx(2 * 1 / 3 / 3),
        "source_coverage": 2 / 5,
        "target_coverage": 2 / 6,
        "omitted": 3,
        "added": 3,
        "repetition": 0,
        "length_ratio": pytest.approx(math.log(8 / 7)),
    }
    assert first.omitted_spans == ("c d e",)
    assert first.added_spans == ("Y Z e",)
    assert "link_probability" not in second.values
    assert (blank.words, blank.values, blank.badness, blank.rank) == (0, {}, 0, 3)


def test_repetition_and_copies_are_less_what_the_source_has() -> None:
    first, second = measured(
        line("aa bb cc dd", "xx yy zz xx yy zz bb 12", set()), line("aa bb cc aa bb cc", "xx yy zz xx yy zz", set())
    )
    assert first.values["repetition"] == pytest.approx(1 / 6)
    assert second.values["repetition"] == 0
    # Of seven words, as 12 is none.
    assert first.values["copies"] == pytest.approx(1 / 7)


def test_a_models_links_stand_in_and_its_scores_count() -> None:
    said = [ModelSignals(-2.5, frozenset({(0, 0)}), {(0, 0): 0.75}, 0.25), ModelSignals(None, frozenset(), {}, None)]
    first, second = measured(line("a b", "A", None), line("a", "", None), signals=said)
    assert first.values["model_score"] == -2.5
    assert first.values["sink_mass"] == 0.25
    assert first.values["link_probability"] == 0.75
    assert first.values["source_coverage"] == 0.5
    assert "model_score" not in second.values
    # Links of a file go before the model's.
    kept, _ = measured(line("a b", "A", {(1, 0), (0, 0)}), line("a", "", None), signals=said)
    assert kept.values["source_coverage"] == 1
    with pytest.raises(ValueError, match="shorter"):
        measured(line("a", "b", None), line("a", "b", None), signals=said[:1])
    with pytest.raises(ValueError, match="read only once"):
        measure_quality(iter([]))


def test_unlinked_runs_pass_over_punctuation() -> None:
    content = [True, True, False, True, True, False, True]
    assert unlinked_runs(content, {0, 4}) == [(1, 4), (6, 7)]
    assert unlinked_runs(content, {2}) == [(0, 2), (3, 7)]
    assert unlinked_runs([False, False], set()) == []


def test_standardise_takes_out_length_and_its_scatter() -> None:
    chance = np.random.default_rng(5)
    lengths = chance.integers(1, 90, size=4000)
    values = 0.3 + 0.1 * np.log(lengths + 1) + chance.normal(size=4000) / np.sqrt(lengths)
    z = standardise(values, lengths, is_mean=True)
    for part in (lengths < 5, lengths > 60):
        assert abs(z[part].mean()) < 0.15
        assert z[part].std() == pytest.approx(1, abs=0.15)
    # One line of another length cannot explain itself.
    assert standardise(np.array([1.0] * 29 + [0.0]), np.array([9] * 29 + [2]), True)[-1] < -2
    assert standardise(np.array([]), np.array([]), True).size == 0
    assert (standardise(np.full(7, 0.5), np.arange(7) + 1, True) == 0).all()
    # Where most are equal the standard deviation scales.
    few = np.array([0.0] * 20 + [1.0])
    assert standardise(few, np.full(21, 9), False)[-1] == pytest.approx(21 / math.sqrt(20))


def test_surprisals_are_shares_of_lines_at_least_as_bad() -> None:
    values = np.array([0.5, 2.0, 0.5, -1.0, 2.0 + 1e-12])
    expected = [math.log(5 / 4), math.log(5 / 2), math.log(5 / 4), 0, math.log(5 / 2)]
    assert surprisals(values).tolist() == pytest.approx(expected)
    assert surprisals(np.array([])).size == 0


def test_badness_and_reason() -> None:
    found = measured(*(line("a b c d", "A B C D", {(n, n) for n in range(linked)}) for linked in (4, 4, 2, 4, 4)))
    assert found[2].reason == "source_coverage"
    assert found[2].surprisal["source_coverage"] == pytest.approx(math.log(5))
    mean = sum(value**4 for value in found[2].surprisal.values()) / len(found[2].surprisal)
    assert found[2].badness == pytest.approx(mean**0.25)
    assert found[2].rank == 1


def test_roc_auc_counts_pairs() -> None:
    chance = random.Random(2)
    bad, good = ([chance.randrange(6) for _ in range(size)] for size in (17, 23))
    pairs = [(one > other) + 0.5 * (one == other) for one in bad for other in good]
    assert roc_auc(bad, good) == pytest.approx(sum(pairs) / len(pairs))
    with pytest.raises(ValueError, match="0 bad and 1 good"):
        roc_auc([], [1.0])


def corpus(lines: int) -> tuple[list[Words], list[Words]]:
    """Return a language and its translation: word by word, two words changed over, some words without a partner."""
    chance = random.Random(11)
    words = [f"w{n}" for n in range(60)]
    sources = [chance.choices(words, k=chance.randint(5, 20)) for _ in range(lines)]
    targets = []
    for source in sources:
        target = [word.replace("w", "v") for word in source if chance.random() > 0.1]
        if len(target) > 3:
            at = chance.randrange(len(target) - 1)
            target[at : at + 2] = reversed(target[at : at + 2])
        target.insert(chance.randint(0, len(target)), "the")
        targets.append(target)
    return sources, targets


def aligned(source: Words, target: Words, chance: random.Random) -> BitextLine:
    """Return the line with links between translations, each source word linked once, and some stray ones."""
    free = list(range(len(target)))
    links = set()
    for i, word in enumerate(source):
        match = next((j for j in free if target[j] == word.replace("w", "v")), None)
        if match is not None:
            free.remove(match)
            links.add((i, match))
        elif chance.random() < 0.3:
            links.add((i, chance.randrange(len(target))))
    return line(" ".join(source), " ".join(target), links)


def test_planted_faults_are_found() -> None:
    sources, targets = corpus(600)
    planted, faults = plant_faults(sources, targets, 0.04, seed=5)
    chance = random.Random(7)
    found = measured(*(aligned(*pair, chance) for pair in zip(sources, planted, strict=True)))
    sound = [each.badness for each, fault in zip(found, faults, strict=True) if fault is None]
    for fault in FAULTS:
        bad = [each.badness for each, its_fault in zip(found, faults, strict=True) if its_fault == fault]
        assert roc_auc(bad, sound) > 0.95, fault
    worst = by_rank(found)
    assert [each.rank for each in worst] == list(range(1, 601))
    assert worst[0].badness == max(each.badness for each in found)


def test_plant_faults_does_what_it_says(tmp_path: Path) -> None:
    sources, targets = corpus(300)
    planted, faults = plant_faults(sources, targets, 0.1, seed=3)
    assert (
        (planted, faults) == plant_faults(sources, targets, 0.1, seed=3) != plant_faults(sources, targets, 0.1, seed=4)
    )
    counts = {fault: faults.count(fault) for fault in FAULTS}
    assert set(counts.values()) == {counts["swapped"]} and counts["swapped"] % 2 == 0 and counts["swapped"] > 10
    swapped = [row for row, fault in enumerate(faults) if fault == "swapped"]
    assert sorted(planted[row] for row in swapped) == sorted(targets[row] for row in swapped)
    for row, fault in enumerate(faults):
        words = targets[row]
        if fault is None:
            assert planted[row] == words
        elif fault == "dropped":
            missing = len(words) - len(planted[row])
            assert round(0.3 * len(words)) <= missing <= round(0.5 * len(words))
            assert any(words[:at] + words[at + missing :] == planted[row] for at in range(len(words)))
        elif fault == "doubled":
            assert planted[row] == words + words
        elif fault == "copied":
            assert planted[row] == sources[row]
        assert fault is None or min(len(words), len(sources[row])) >= 8
    with pytest.raises(ValueError, match=r"share is 0\.3"):
        plant_faults(sources, targets, 0.3, 1)
    with pytest.raises(ValueError, match="too few"):
        plant_faults(sources[:3], targets[:3], 0.1, 1)
