import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.training.jump_chain import chain_expectations, first_jumps
from hf_seq2seq_attn.training.statistical_aligner import (
    TABLES_FILE,
    HmmSettings,
    StatisticalAligner,
    directed_links,
    teacher_links,
)
from hf_seq2seq_attn.training.word_pairs import WordPairs

Text = list[list[str]]
PLAIN = HmmSettings(agreement=False, longest_jump=3)
TEXT: tuple[Text, Text] = (
    [["a", "b"], ["b", "c", "a"], ["c"], [], ["a", "a", "c"], ["b", "c"]],
    [["B", "A"], ["C", "B", "A"], ["C", "x"], ["x"], ["A", "C"], ["B"]],
)


def _enumerated(
    emissions: np.ndarray, nulls: np.ndarray, jumps: np.ndarray, null: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Sum over every path of one pair: links (T, S), expected jumps by distance, likelihood."""
    targets, sources = emissions.shape
    longest = len(jumps) // 2

    def step(before: int, after: int) -> float:
        weights = [jumps[np.clip(each - before, -longest, longest) + longest] for each in range(sources)]
        return weights[after] / sum(weights)

    links, made, total = np.zeros((targets, sources)), np.zeros(len(jumps)), 0.0
    for path in itertools.product(range(-1, sources), repeat=targets):
        weight, place = 1.0, -1
        jumped: list[int] = []
        for t, state in enumerate(path):
            if state < 0:
                weight *= null * nulls[t]
                continue
            weight *= (1 - null) * step(place, state) * emissions[t, state]
            jumped.append(np.clip(state - place, -longest, longest) + longest)
            place = state
        total += weight
        for t, state in enumerate(path):
            if state >= 0:
                links[t, state] += weight
        for each in jumped:
            made[each] += weight
    return links / total, made / total, np.log(total)


def test_forward_backward_of_a_padded_batch_is_the_sum_over_all_paths() -> None:
    draw = np.random.default_rng(3)
    source_lengths, target_lengths = np.array([3, 2, 1]), np.array([4, 5, 2])
    emissions, nulls = draw.random((3, 5, 3)), draw.random((3, 5))
    for row, length in enumerate(source_lengths):
        emissions[row, :, length:] = 0
    jumps = draw.random(5).astype(np.float32) + 0.1
    found = chain_expectations(emissions, nulls, source_lengths, target_lengths, jumps, 0.3)
    made, likelihood = np.zeros(5), 0.0
    for row, (width, height) in enumerate(zip(source_lengths, target_lengths, strict=True)):
        links, jumped, log_total = _enumerated(emissions[row, :height, :width], nulls[row], jumps, 0.3)
        np.testing.assert_allclose(found.links[row, :height, :width], links, atol=1e-5)
        np.testing.assert_allclose(found.nulls[row, :height], 1 - links.sum(axis=1), atol=1e-5)
        assert not found.links[row, height:].any() and not found.links[row, :, width:].any()
        made += jumped
        likelihood += log_total
    np.testing.assert_allclose(found.made, made, atol=1e-4)
    assert found.log_likelihood == pytest.approx(likelihood, abs=1e-4)


def test_every_round_of_each_model_raises_the_likelihood_of_both_directions() -> None:
    aligner = StatisticalAligner.fit(*_cipher(60, seed=5), HmmSettings(6, 8, agreement=False, longest_jump=4))
    rounds = np.array(aligner.log_likelihoods)
    assert (np.diff(rounds[:6], axis=0) > -1e-3).all()
    assert (np.diff(rounds[6:], axis=0) > -1e-3).all()
    assert (rounds[-1] > rounds[0] + 10).all()


def test_model_1_is_that_of_the_obvious_loops() -> None:
    sources, targets = TEXT
    aligner = StatisticalAligner.fit(sources, targets, HmmSettings(3, 0, agreement=False))
    table, nothing = _slow_model_1(sources, targets, rounds=3, null=0.2)
    for (given, made), probability in table.items():
        code = aligner.words.source_words[given] * len(aligner.words.target_words) + aligner.words.target_words[made]
        assert aligner.forward.pairs[aligner.words.place(np.array([code]))[0]] == pytest.approx(probability, rel=1e-4)
    for word, probability in nothing.items():
        assert aligner.forward.nulls[aligner.words.target_words[word]] == pytest.approx(probability, rel=1e-4)


def _slow_model_1(
    sources: Text, targets: Text, rounds: int, null: float
) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    made = {word for s, t in zip(sources, targets, strict=True) if s for word in t} | {"x"}
    table = {(e, f): 1 / len(made) for s, t in zip(sources, targets, strict=True) for e in s for f in t}
    nothing = dict.fromkeys(made, 1 / len(made))
    for _ in range(rounds):
        counts, nulls = dict.fromkeys(table, 0.0), dict.fromkeys(made, 0.0)
        for s, t in zip(sources, targets, strict=True):
            for f in t if s else ():
                shares = [(1 - null) / len(s) * table[e, f] for e in s]
                total = sum(shares) + null * nothing[f]
                for e, share in zip(s, shares, strict=True):
                    counts[e, f] += share / total
                nulls[f] += null * nothing[f] / total
        given = {e: sum(c for (other, _), c in counts.items() if other == e) for e, _ in counts}
        table = {pair: count / given[pair[0]] for pair, count in counts.items()}
        nothing = {f: count / sum(nulls.values()) for f, count in nulls.items()}
    return table, nothing


def _cipher(count: int, seed: int, swap: float = 0.4) -> tuple[Text, Text]:
    """Return pairs in which each source word has a translation of its own, neighbours sometimes swapped."""
    draw = np.random.default_rng(seed)
    sources, targets = [], []
    for _ in range(count):
        words = draw.integers(0, 25, draw.integers(2, 9)).tolist()
        order = list(range(len(words)))
        for place in range(len(words) - 1):
            if draw.random() < swap:
                order[place], order[place + 1] = order[place + 1], order[place]
        sources.append([f"s{word}" for word in words])
        targets.append([f"t{words[place]}" for place in order])
    return sources, targets


@pytest.mark.parametrize("settings", [HmmSettings(), HmmSettings(agreement=False), HmmSettings(concentration=0.1)])
def test_a_cipher_is_read(settings: HmmSettings) -> None:
    sources, targets = _cipher(300, seed=1)
    aligner = StatisticalAligner.fit(sources, targets, settings)
    right = total = 0
    for links in aligner.links(sources, targets)[:1]:
        for source, target, found in zip(sources, targets, links, strict=True):
            right += sum(source[i][1:] == target[j][1:] for i, j in found)
            total += len(target)
    assert right / total > 0.95


def test_agreement_makes_the_directions_agree() -> None:
    sources, targets = _cipher(80, seed=2)

    def disagreements(settings: HmmSettings) -> int:
        forward, reverse = StatisticalAligner.fit(sources, targets, settings).links(sources, targets)
        return sum(len(f ^ r) for f, r in zip(forward, reverse, strict=True))

    assert disagreements(HmmSettings()) < disagreements(HmmSettings(agreement=False))


def test_posteriors_are_probabilities_of_the_right_shape_also_for_words_never_seen() -> None:
    aligner = StatisticalAligner.fit(*TEXT, PLAIN)
    sources: Text = [["a", "new"], [], ["b"]]
    targets: Text = [["A", "B", "fresh"], ["A"], []]
    matrices = aligner.posteriors(sources, targets)
    assert [one.shape for one, _ in matrices] == [(3, 2), (1, 0), (0, 1)]
    forward, reverse = matrices[0]
    assert (forward.sum(axis=1) <= 1.0001).all() and (reverse.sum(axis=0) <= 1.0001).all()
    assert forward[0].argmax() == 0 and forward.min() >= 0


def test_links_do_not_depend_on_the_batch_that_a_pair_falls_into(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, targets = _cipher(40, seed=7)
    aligner = StatisticalAligner.fit(sources, targets, PLAIN)
    together = aligner.posteriors(sources, targets)
    monkeypatch.setattr("hf_seq2seq_attn.training.word_pairs.CELLS_IN_BATCH", 1)
    for (one, other), (alone, apart) in zip(together, aligner.posteriors(sources, targets), strict=True):
        np.testing.assert_allclose(one, alone, atol=1e-4)
        np.testing.assert_allclose(other, apart, atol=1e-4)


def test_a_saved_aligner_gives_the_same_posteriors(tmp_path: Path) -> None:
    aligner = StatisticalAligner.fit(*TEXT)
    aligner.save(tmp_path)
    assert os.stat(tmp_path / TABLES_FILE).st_mode & 0o044, "others may read it as they may the words"
    again = StatisticalAligner.load(tmp_path)
    for one, other in zip(aligner.posteriors(*TEXT), again.posteriors(*TEXT), strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    assert again.settings == aligner.settings


def test_a_teacher_gives_a_mapping_for_every_pair_and_nothing_for_blank_ones() -> None:
    teacher = teacher_links(StatisticalAligner.fit(*TEXT, PLAIN).posteriors(*TEXT))
    assert len(teacher.forward) == len(teacher.reverse) == 6
    assert teacher.forward[3] == {} and teacher.forward[0]
    for weights in teacher.forward:
        for j in {j for _, j in weights}:
            assert sum(weight for (_, other), weight in weights.items() if other == j) <= 1.001
    with pytest.raises(UnusableError, match="no sentence pair with words on both sides"):
        StatisticalAligner.fit([[], ["a"]], [["x"], []])


def test_a_link_needs_more_than_null_has() -> None:
    forward, reverse = directed_links([(np.array([[0.5, 0.1], [0.2, 0.3]]), np.array([[0.1, 0.6], [0.3, 0.35]]))])
    assert forward == [frozenset({(0, 0)})]
    assert reverse == [frozenset({(1, 0)})]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="2 source and 1 target"):
        StatisticalAligner.fit([["a"], ["b"]], [["A"]])
    with pytest.raises(ValueError, match="no sentence pair"):
        StatisticalAligner.fit([[]], [["A"]])
    with pytest.raises(ValueError, match="null between 0 and 1"):
        HmmSettings(null=1)
    with pytest.raises(ValueError, match="rounds"):
        HmmSettings(model1_rounds=0)


def test_the_table_holds_the_pairs_that_stand_together_and_no_others() -> None:
    words = WordPairs.of(*TEXT)
    names = list(words.source_words), list(words.target_words)
    found = {(names[0][s], names[1][t]) for s, t in zip(words.source_of, words.target_of, strict=True)}
    assert found == {(s, t) for source, target in zip(*TEXT, strict=True) for s in source for t in target}
    assert first_jumps(4).argmax() == 5
