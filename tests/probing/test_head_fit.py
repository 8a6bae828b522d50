"""The logistic combination of heads: the optimum, calibration on held-out pairs, refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from planted_heads import aligning, corpus, plant

from hf_seq2seq_attn.probing import AttentionMaps, Gold, alignment_error_rate, threshold_links
from hf_seq2seq_attn.probing import head_fit as module
from hf_seq2seq_attn.probing.head_choice import choose_by_aer
from hf_seq2seq_attn.probing.head_fit import HeadFit, calibration_error, fit_heads


def noisy_corpus(pairs: int, seed: int) -> tuple[dict[str, list[AttentionMaps]], list[Gold]]:
    """Return maps in which three heads know the alignment, each wrong on other words of its own."""
    maps, gold = corpus(pairs, seed)
    generator = np.random.default_rng(seed + 1)
    for pair, manual in zip(maps, gold, strict=True):
        size = len(pair.source_words)
        for layer, head in ((0, 1), (1, 3), (2, 0)):
            links = set(manual.sure)
            for i, j in sorted(manual.sure):
                if generator.random() < 0.3:
                    links = links - {(i, j)} | {(int(generator.integers(size)), j)}
            pair.weights[layer, head] = aligning(Gold(frozenset(links), frozenset(links)), size, size, 0.7)
    return {"output": maps, "input": corpus(pairs, seed + 2, "input")[0]}, gold


def test_a_fit_beats_every_head_on_pairs_that_it_has_not_seen() -> None:
    maps, gold = noisy_corpus(30, 1)
    found = fit_heads(maps, gold)
    assert (found.pairs, found.folds) == (30, 5)
    new, new_gold = noisy_corpus(25, 77)
    probabilities = [
        found.fit.probabilities({rows: new[rows][place] for rows in ("output", "input")}) for place in range(25)
    ]
    error = alignment_error_rate([threshold_links(each, found.fit.threshold) for each in probabilities], new_gold)
    assert error < choose_by_aer(new, new_gold, max_heads=1).best.score - 0.03
    # What cross-validation foretold.
    assert error == pytest.approx(found.aer, abs=0.05)
    informed = np.zeros((3, 4), dtype=bool)
    informed[[0, 1, 2], [1, 3, 0]] = True
    weights = found.fit.weights[found.fit.rows.index("output")]
    assert weights[informed].min() > 3 * np.abs(weights[~informed]).max()


def test_probabilities_are_calibrated_where_the_model_is_true() -> None:
    """Labels drawn from the very model: on held-out pairs the stated probabilities come true."""
    maps, _ = corpus(60, 5)
    truth = HeadFit(("output",), (0, 1, 2), (0, 1, 2, 3), np.zeros((1, 3, 4)), -2.0, 2.0, 0.5, "mask")
    truth.weights[0, 1, 2] = 1.5
    generator = np.random.default_rng(9)
    drawn = []
    for pair in maps:
        links = frozenset(
            (int(i), int(j))
            for j, i in np.argwhere(
                generator.random((len(pair.target_words),) * 2) < truth.probabilities({"output": pair})
            )
        )
        drawn.append(Gold(links, links))
    found = fit_heads({"output": maps}, drawn)
    assert found.ece < 0.03
    assert found.ece_links < 0.1
    assert found.fit.weights[0, 1, 2] == pytest.approx(1.5, abs=0.3)
    # A fit that is sure of everything is not.
    sure = replace(found.fit, weights=found.fit.weights * 20)
    labels = np.concatenate([_cells(each, len(pair.target_words)) for each, pair in zip(drawn, maps, strict=True)])
    stated = np.concatenate([sure.probabilities({"output": pair}).ravel() for pair in maps])
    assert calibration_error(stated, labels)[0] > 0.1
    assert sum(each["cells"] for each in found.bins) == len(labels)


def _cells(gold: Gold, size: int) -> np.ndarray:
    cells = np.zeros((size, size))
    for i, j in gold.possible:
        cells[j, i] = 1
    return cells.ravel()


def test_newton_finds_the_minimum_that_lbfgs_finds() -> None:
    generator = np.random.default_rng(2)
    features = generator.normal(size=(300, 5)) * [1, 3, 0.2, 1, 0] + [0, 5, 0, -2, 7]
    labels = generator.integers(0, 3, 300) / 2
    weights, intercept = module._fit(features, labels, 2.5)
    scale = features.std(axis=0)
    inputs = torch.tensor((features - features.mean(axis=0)) / np.where(scale > 1e-12, scale, np.inf))
    solution = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([solution], max_iter=200, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        scores = inputs @ solution[:5] + solution[5]
        value = torch.nn.functional.binary_cross_entropy_with_logits(scores, torch.tensor(labels), reduction="sum")
        value = value + 2.5 / 2 * solution[:5].square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    expected = solution.detach().numpy()
    np.testing.assert_allclose(weights * scale, expected[:5], atol=1e-4)
    assert weights[4] == 0
    np.testing.assert_allclose(features @ weights + intercept, inputs.numpy() @ expected[:5] + expected[5], atol=1e-3)


def test_cross_validation_never_fits_a_pair_that_it_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    maps, gold = corpus(7, 3)
    seen: list[int] = []
    fit = module._fit

    def watched(features: np.ndarray, labels: np.ndarray, l2: float) -> tuple[np.ndarray, float]:
        seen.append(len(labels))
        return fit(features, labels, l2)

    monkeypatch.setattr(module, "_fit", watched)
    found = fit_heads({"output": maps}, gold, l2=3.0, folds=3)
    cells = sum(len(pair.source_words) ** 2 for pair in maps)
    assert found.l2 == 3
    assert len(seen) == 4
    # Each cell is left out once; then all are fitted.
    assert sum(cells - each for each in seen[:3]) == cells
    assert seen[3] == cells


def test_the_strength_of_the_penalty_is_the_best_on_held_out_pairs() -> None:
    maps, gold = noisy_corpus(12, 8)
    losses = {each: fit_heads(maps, gold, l2=each).log_loss for each in module.L2}
    chosen = fit_heads(maps, gold)
    assert chosen.l2 == min(losses, key=lambda each: losses[each])
    assert chosen.log_loss == pytest.approx(min(losses.values()))


def test_possible_links_count_half() -> None:
    maps, gold = corpus(10, 4)
    plant(maps, gold, 0, 0)
    unsure = [Gold(frozenset(), manual.sure) for manual in gold]
    found = fit_heads({"output": maps}, unsure, l2=1.0)
    probabilities = found.fit.probabilities({"output": maps[0]})
    assert max(probabilities[j, i] for i, j in gold[0].sure) == pytest.approx(0.5, abs=0.1)


def test_expected_calibration_error_by_hand() -> None:
    probabilities, labels = np.array([0.05, 0.05, 0.92, 0.98, 1.0]), np.array([0, 1, 1, 1, 0.5])
    error, bins = calibration_error(probabilities, labels)
    assert error == pytest.approx((abs(0.1 - 1) + abs(2.9 - 2.5)) / 5)
    assert [each["cells"] for each in bins] == [2, 3]
    assert bins[0]["links"] == 0.5
    assert calibration_error(np.zeros(0), np.zeros(0)) == (0, ())


def test_a_fit_survives_json_to_the_last_bit() -> None:
    maps, gold = noisy_corpus(8, 2)
    fit = fit_heads(maps, gold, l2=1.0).fit
    again = HeadFit.from_dict(json.loads(json.dumps(fit.as_dict())))
    pair = {rows: maps[rows][3] for rows in maps}
    assert np.array_equal(again.probabilities(pair), fit.probabilities(pair))
    assert (again.threshold, again.specials, again.rows) == (fit.threshold, "mask", ("output", "input"))


def test_the_same_pairs_give_the_same_fit_and_blank_ones_change_nothing() -> None:
    maps, gold = noisy_corpus(9, 6)
    one, two = fit_heads(maps, gold), fit_heads(maps, gold)
    assert one.as_dict() == two.as_dict()
    from planted_heads import text

    blank = replace(maps["output"][0], weights=np.ones((3, 4, 1, 1), dtype=np.float32), source=text(0), target=text(0))
    more = {rows: [*pairs, replace(blank, align_with=rows)] for rows, pairs in maps.items()}
    with_blank = fit_heads(more, [*gold, Gold(frozenset(), frozenset())])
    assert with_blank.as_dict() == one.as_dict()
    assert with_blank.fit.probabilities({rows: pairs[-1] for rows, pairs in more.items()}).shape == (0, 0)


def test_what_cannot_be_fitted_is_refused() -> None:
    maps, gold = corpus(3)
    with pytest.raises(ValueError, match=r"maps hold \[3\] pairs, dev 2"):
        fit_heads({"output": maps}, gold[:2])
    with pytest.raises(ValueError, match="1 pairs have words"):
        fit_heads({"output": maps[:1]}, gold[:1])
    with pytest.raises(ValueError, match="dev has no link"):
        fit_heads({"output": maps}, [Gold(frozenset(), frozenset())] * 3)
    with pytest.raises(ValueError, match="folds is 1"):
        fit_heads({"output": maps}, gold, folds=1)
    fit = fit_heads({"output": maps}, gold, l2=1.0).fit
    with pytest.raises(ValueError, match="maps of output are missing"):
        fit.probabilities({"input": maps[0]})
    with pytest.raises(ValueError, match=r"heads \[0, 1, 2, 3\]; these maps hold"):
        fit.probabilities({"output": replace(maps[0], heads=(0, 1, 2, 4))})
    with pytest.raises(ValueError, match="fit cannot be read"):
        HeadFit.from_dict({"rows": ["output"]})
    with pytest.raises(ValueError, match="must be"):
        HeadFit.from_dict(fit.as_dict() | {"heads": [0, 1]})
