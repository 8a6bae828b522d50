"""With 10 to 50 hand-aligned pairs: a logistic combination of all heads that gives each link a probability.

For target word j and source word i of a sentence pair,
    P(link) = sigmoid(b + sum over rows, layers and heads of w log(a_ij + floor) + d |i'/S - j'/T|),
a the word matrix of the head, i' and j' the words' middles, S and T the words of the sides: a log-linear model of
alignment (Liu et al. 2010) on heads. The weights minimise the log loss plus l2/2 |w|^2 on standardised features, by
Newton's method. A sure link counts 1, one that is only possible 1/2: of two annotators one draws it.

Calibration is measured on pairs that were not fitted: cross-validation over pairs, never over cells of one pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .aligned_pair import Gold
from .attention_maps import AttentionMaps
from .extraction import ROWS
from .head_choice import MapsByRows, gold_mask
from .head_words import stack_words

# Below this a weight says no more than "not here": its logarithm must not run away.
FLOOR = 1e-4
L2 = (1.0, 10.0, 100.0, 1000.0)
FOLDS = 5
BINS = 10
THRESHOLDS = np.arange(0.05, 0.96, 0.05)
_MAX_STEPS = 50


@dataclass(frozen=True)
class HeadFit:
    """A logistic combination of heads.

    Attributes:
        rows: which rows the weights are for, in order.
        layers, heads: the model's numbers of the layers and heads.
        weights: (rows, layers, heads) float64, of log(a + FLOOR).
        diagonal, intercept: d and b above.
        threshold: links are the cells of at least this probability: the lowest AER on held-out pairs.
        specials: how sinks were handled before the words were made.
    """

    rows: tuple[str, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    weights: np.ndarray
    diagonal: float
    intercept: float
    threshold: float
    specials: str

    def probabilities(self, maps: Mapping[str, AttentionMaps]) -> np.ndarray:
        """Return the probability of every link of one sentence pair, (T, S) float32.

        Args:
            maps: for each of `rows`, the pair's maps with the fit's layers and heads.

        Raises:
            ValueError: rows, layers or heads are missing.
        """
        features = self._features(maps)
        scores = features @ np.append(self.weights.reshape(-1), self.diagonal) + self.intercept
        return _sigmoid(scores).astype(np.float32)

    def _features(self, maps: Mapping[str, AttentionMaps]) -> np.ndarray:
        missing = [rows for rows in self.rows if rows not in maps]
        if missing:
            raise UnusableError(f"the fit reads {', '.join(self.rows)} rows; maps of {', '.join(missing)} are missing")
        for rows in self.rows:
            held = maps[rows]
            if held.layers != self.layers or held.heads != self.heads:
                raise UnusableError(
                    f"the fit is of the layers {list(self.layers)} and heads {list(self.heads)}; these maps hold "
                    f"{list(held.layers)} and {list(held.heads)}"
                )
        return _features([maps[rows] for rows in self.rows], self.specials)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **asdict(self),
            "rows": list(self.rows),
            "layers": list(self.layers),
            "heads": list(self.heads),
            "weights": self.weights.tolist(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "HeadFit":
        """Return the fit that `as_dict` wrote.

        Raises:
            ValueError: values that are missing or do not fit together; says which.
        """
        try:
            fit = cls(
                rows=tuple(values["rows"]),
                layers=tuple(map(int, values["layers"])),
                heads=tuple(map(int, values["heads"])),
                weights=np.array(values["weights"], dtype=np.float64),
                diagonal=float(values["diagonal"]),
                intercept=float(values["intercept"]),
                threshold=float(values["threshold"]),
                specials=str(values["specials"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UnusableError(f"fit cannot be read ({error!r}); make it anew with heads --fit --save") from error
        shape = (len(fit.rows), len(fit.layers), len(fit.heads))
        if not fit.rows or not set(fit.rows) <= set(ROWS) or fit.weights.shape != shape:
            raise UnusableError(
                f"fit has rows {list(fit.rows)} and weights of shape {fit.weights.shape}, which must be {shape}; make "
                "it anew with heads --fit --save"
            )
        return fit


@dataclass(frozen=True)
class FitReport:
    """A fit and how it did on pairs that it had not seen.

    Attributes:
        fit: fitted on all pairs.
        pairs, folds: of the cross-validation.
        l2: chosen by the log loss on held-out pairs among `L2`, or given.
        log_loss: per cell, on held-out pairs, in nats.
        ece: expected calibration error on held-out pairs over all cells, 10 bins of equal width (Naeini et al. 2015):
            sum over bins of (share of cells) |mean probability - share of links|.
        ece_links: the same over the cells that become links; most cells are easy noes, which flatter `ece`.
        aer: of the links on held-out pairs, at the threshold that is best there.
        bins: for each bin its cells, mean probability and share of links.
    """

    fit: HeadFit
    pairs: int
    folds: int
    l2: float
    log_loss: float
    ece: float
    ece_links: float
    aer: float
    bins: tuple[dict[str, float], ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the weights."""
        return {
            "pairs": self.pairs,
            "folds": self.folds,
            "l2": self.l2,
            "log_loss": self.log_loss,
            "ece": self.ece,
            "ece_links": self.ece_links,
            "aer": self.aer,
            "threshold": self.fit.threshold,
            "bins": list(self.bins),
            "held_out": "log_loss, ece, ece_links, aer and bins are of pairs that were not fitted, by cross-validation "
            "over pairs; l2 and threshold are the best on them",
        }


def fit_heads(
    maps: MapsByRows,
    dev: Sequence[Gold],
    *,
    specials: str = "mask",
    l2: float | None = None,
    folds: int = FOLDS,
    seed: int = 0,
) -> FitReport:
    """Fit a logistic combination of all heads to hand-aligned pairs.

    Args:
        maps: for "output" and "input" rows, or one of them, the maps of the pairs with all layers and heads.
        dev: their manual links.
        specials: as in `to_words`.
        l2: strength of the penalty on standardised features; None = the best of `L2` on held-out pairs.
        folds: parts of the cross-validation; at most one for each pair.
        seed: of the split into folds.

    Raises:
        ValueError: fewer than 2 pairs with words, other numbers of pairs than of gold, or gold without a link.
    """
    rows = tuple(each for each in ROWS if each in maps)
    columns = [maps[each] for each in rows]
    data = _checked_cells(columns, dev, specials)
    count = len(data.pairs)
    folds = min(folds, count)
    if folds < 2:
        raise UnusableError(f"folds is {folds}; it must be at least 2")
    fold_of = _fold_of(data, folds, seed)
    held_out = _cross_validate(data, fold_of, folds, L2 if l2 is None else (l2,))
    best_l2 = min(held_out, key=lambda each: _log_loss(held_out[each], data.labels))
    probabilities = held_out[best_l2]
    threshold, aer = _best_threshold(probabilities, data)
    weights, intercept = _fit(data.features, data.labels, best_l2)
    first = columns[0][0]
    fit = HeadFit(
        rows=rows,
        layers=first.layers,
        heads=first.heads,
        weights=weights[:-1].reshape(len(rows), len(first.layers), len(first.heads)),
        diagonal=float(weights[-1]),
        intercept=float(intercept),
        threshold=threshold,
        specials=specials,
    )
    links = probabilities >= threshold
    ece, bins = calibration_error(probabilities, data.labels)
    return FitReport(
        fit=fit,
        pairs=count,
        folds=folds,
        l2=float(best_l2),
        log_loss=_log_loss(probabilities, data.labels),
        ece=ece,
        ece_links=calibration_error(probabilities[links], data.labels[links])[0],
        aer=aer,
        bins=bins,
    )


def _checked_cells(columns: Sequence[Sequence[AttentionMaps]], dev: Sequence[Gold], specials: str) -> "_Cells":
    """Return the cells of all pairs, given their maps for each kind of rows; see `fit_heads` for what is refused."""
    if {len(column) for column in columns} != {len(dev)}:
        raise UnusableError(
            f"maps hold {[len(column) for column in columns]} pairs, dev {len(dev)}; N of one must be N of the other"
        )
    data = _Cells.of(list(zip(*columns, strict=True)), dev, specials)
    if len(data.pairs) < 2:
        raise UnusableError(
            f"{len(data.pairs)} pairs have words on both sides; a fit needs at least 2, better 10 to 50"
        )
    if not data.labels.any():
        raise UnusableError("dev has no link in any sentence, so nothing can be fitted; check the file")
    return data


def calibration_error(
    probabilities: np.ndarray, labels: np.ndarray, bins: int = BINS
) -> tuple[float, tuple[dict[str, float], ...]]:
    """Return the expected calibration error and its bins of equal width; see `FitReport`. 0 of nothing.

    Args:
        probabilities, labels: (N,) float in 0..1; a label of 1/2 counts as half a link.
    """
    place = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    cells = np.bincount(place, minlength=bins)
    predicted = np.bincount(place, weights=probabilities, minlength=bins)
    true = np.bincount(place, weights=labels, minlength=bins)
    error = float(np.abs(predicted - true).sum() / max(1, len(probabilities)))
    return error, tuple(
        {
            "cells": int(cells[each]),
            "probability": float(predicted[each] / cells[each]),
            "links": float(true[each] / cells[each]),
        }
        for each in np.flatnonzero(cells)
    )


@dataclass(frozen=True)
class _Cells:
    """Every pair of a source and a target word of all sentence pairs.

    features (N, D), labels (N,) 1, 1/2 or 0; pairs: the slice of each sentence pair that has words; sure: |S| of all.
    """

    features: np.ndarray
    labels: np.ndarray
    pairs: list[slice]
    sure: np.ndarray

    @classmethod
    def of(cls, pairs: Sequence[Sequence[AttentionMaps]], gold: Sequence[Gold], specials: str) -> "_Cells":
        features, labels, places, sure, start = [], [], [], [], 0
        for number, (maps, manual) in enumerate(zip(pairs, gold, strict=True), start=1):
            shape = len(maps[0].target_words), len(maps[0].source_words)
            label = (
                gold_mask(manual.possible, shape, number) + gold_mask(manual.sure, shape, number).astype(float)
            ) / 2
            if label.size:
                features.append(_features(maps, specials).reshape(label.size, -1))
                labels.append(label.reshape(-1))
                places.append(slice(start, start + label.size))
                sure.append(len(manual.sure))
                start += label.size
        if not features:
            return cls(np.zeros((0, 0)), np.zeros(0), [], np.zeros(0))
        return cls(np.concatenate(features), np.concatenate(labels), places, np.array(sure))


def _features(maps: Sequence[AttentionMaps], specials: str) -> np.ndarray:
    """Return (T, S, D) float64: the log weights of rows x layers x heads, then the distance from the diagonal."""
    stacks = [
        np.log(stack_words(each, each.weights.reshape(-1, *each.weights.shape[2:]), specials).weights + FLOOR)
        for each in maps
    ]
    targets, sources = stacks[0].shape[1:]
    middles = ((np.arange(size) + 0.5) / max(1, size) for size in (targets, sources))
    distance = np.abs(np.subtract.outer(*middles))
    return np.concatenate([*stacks, distance[None]]).transpose(1, 2, 0).astype(np.float64)


def _fold_of(data: _Cells, folds: int, seed: int) -> np.ndarray:
    """Return the fold of each cell, the same for all cells of a pair."""
    order = np.random.default_rng(seed).permutation(len(data.pairs))
    fold_of = np.empty(len(data.labels), dtype=np.int64)
    for place, pair in zip(order, data.pairs, strict=True):
        fold_of[pair] = place % folds
    return fold_of


def _cross_validate(
    data: _Cells, fold_of: np.ndarray, folds: int, penalties: Sequence[float]
) -> dict[float, np.ndarray]:
    """Return for each penalty the probability of each cell by the fit that had not seen its pair."""
    held_out = {each: np.empty(len(data.labels)) for each in penalties}
    for fold in range(folds):
        test = fold_of == fold
        for penalty in penalties:
            weights, intercept = _fit(data.features[~test], data.labels[~test], penalty)
            held_out[penalty][test] = _sigmoid(data.features[test] @ weights + intercept)
    return held_out


def _fit(features: np.ndarray, labels: np.ndarray, l2: float) -> tuple[np.ndarray, float]:
    """Return weights (D,) and intercept of a penalised logistic regression, in the features' own units."""
    mean, scale = features.mean(axis=0), features.std(axis=0)
    # A feature that is the same everywhere says nothing.
    scale = np.where(scale > 1e-12, scale, np.inf)
    inputs = np.hstack([(features - mean) / scale, np.ones((len(features), 1))])
    solution = _newton(inputs, labels, l2)
    weights = solution[:-1] / scale
    return weights, float(solution[-1] - mean @ weights)


def _newton(inputs: np.ndarray, labels: np.ndarray, l2: float) -> np.ndarray:
    """Minimise sum log loss + l2/2 |w|^2, the last column's weight (the intercept) not penalised."""
    penalty = np.full(inputs.shape[1], l2)
    # Separable data would send the intercept to infinity.
    penalty[-1] = 1e-6
    solution = np.zeros(inputs.shape[1])

    def loss(weights: np.ndarray) -> float:
        scores = inputs @ weights
        return float((np.logaddexp(0, scores) - labels * scores).sum() + (penalty * weights**2).sum() / 2)

    value = loss(solution)
    for _ in range(_MAX_STEPS):
        probability = _sigmoid(inputs @ solution)
        gradient = inputs.T @ (probability - labels) + penalty * solution
        curvature = (inputs * (probability * (1 - probability))[:, None]).T @ inputs + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while (new := loss(solution - size * step)) > value and size > 1e-6:
            size /= 2
        if value - new < 1e-9 * (1 + abs(value)):
            break
        solution, value = solution - size * step, new
    return solution


def _best_threshold(probabilities: np.ndarray, data: _Cells) -> tuple[float, float]:
    """Return the threshold with the lowest AER, and that AER; a label of 1 is sure, of 1/2 possible."""
    linked = probabilities[None] >= THRESHOLDS[:, None]
    hits = linked @ (data.labels == 1).astype(float) + linked @ (data.labels > 0).astype(float)
    total = linked.sum(axis=1) + data.sure.sum()
    aer = 1 - np.divide(hits, total, out=np.ones_like(hits), where=total > 0)
    best = int(aer.argmin())
    return float(THRESHOLDS[best].round(2)), float(aer[best])


def _log_loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    clipped = np.clip(probabilities, 1e-12, 1 - 1e-12)
    return float(-(labels * np.log(clipped) + (1 - labels) * np.log1p(-clipped)).mean())


def _sigmoid(scores: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -scores))
