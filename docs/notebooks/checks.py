"""Check the answers of the notebooks' exercises; a wrong one is told what it looks like."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hf_seq2seq_attn.probing import Gold, Links, WorkedExample, alignment_error_rate, argmax_links, worked_example
from hf_seq2seq_attn.probing.worked_example import ENCODER, SOURCE, STATE

# An answer worked out with the lesson's three decimals is right too.
BY_HAND = 1.5e-3


def compare(answer: object, wanted: Any, mistakes: Mapping[str, Any], tolerance: float = BY_HAND) -> str:
    """Return "Right." or what is wrong with an answer of numbers.

    Args:
        mistakes: what one may have done instead -> the numbers that come out of it.
    """
    if answer is ... or answer is None:
        return "Not answered yet: put your answer in place of the three dots."
    wanted = np.asarray(wanted, dtype=float)
    try:
        numbers = np.asarray(answer, dtype=float)
    except (TypeError, ValueError):
        return f"Not yet: numbers are wanted, and this is {type(answer).__name__}."
    if numbers.shape == wanted.shape and np.allclose(numbers, wanted, atol=tolerance, rtol=0):
        return "Right."
    for what, numbers_of_it in mistakes.items():
        common = np.asarray(numbers_of_it, dtype=float)
        if numbers.shape == common.shape and np.allclose(numbers, common, atol=tolerance, rtol=0):
            return f"Not yet: {what}."
    if numbers.shape != wanted.shape:
        return f"Not yet: the shape is {numbers.shape}, and {wanted.shape} is wanted."
    if not np.isfinite(numbers).all():
        return "Not yet: there is a number that is none (nan or infinite)."
    worst = np.unravel_index(np.abs(numbers - wanted).argmax(), wanted.shape)
    place = ", ".join(str(int(index)) for index in worst)
    return f"Not yet: look at {f'number [{place}]' if place else 'the number'} again; {numbers[worst]:.3f} is off."


# 1. Attention by hand


def check_scores(answer: object) -> str:
    """Check the three scaled dot-product scores of the lesson."""
    dot = worked_example().dot
    mistakes = {
        "these are Q·K as they are; divide them by √d_k": dot.raw,
        "this is divided by d_k; divide by its root": dot.raw / 2,
        "this is multiplied by √d_k; divide by it": dot.raw * np.sqrt(2),
        "this is h·h; the query is the decoder's state": [np.dot(h, h) / np.sqrt(2) for h in ENCODER],
    }
    return compare(answer, dot.scores, mistakes)


def check_weights(answer: object) -> str:
    """Check the three attention weights of the lesson."""
    dot = worked_example().dot
    unscaled = np.exp(dot.raw)
    mistakes = {
        "these are the exponentials; divide them by their sum": dot.exponentials,
        "these are shares of the scores themselves; take the exponentials first": dot.scores / dot.scores.sum(),
        "this is the softmax of Q·K before scaling": unscaled / unscaled.sum(),
    }
    return compare(answer, dot.weights, mistakes)


def check_context(answer: object) -> str:
    """Check the context vector of the lesson."""
    dot = worked_example().dot
    mistakes = {
        "every value counts the same here; weigh each by its attention": dot.values.mean(0),
        "this is the plain sum of the values; weigh each by its attention": dot.values.sum(0),
        "these are the three weighted values; add them up": dot.weighted,
        "the weights are in the reverse order": dot.weights[::-1] @ dot.values,
        "the scores stand where the weights belong": dot.scores @ dot.values,
    }
    return compare(answer, dot.context, mistakes)


def check_additive_scores(answer: object) -> str:
    """Check the three additive scores of the lesson's vectors, v = (1, 1)."""
    example = worked_example()
    together = example.state + example.encoder
    mistakes = {
        "there is no tanh in it": together.sum(1),
        "tanh is taken of the sum; take it of each number, then add them with v": np.tanh(together.sum(1)),
        "these are the dot products": example.dot.raw,
        "these are the hidden vectors tanh(Q + K); multiply each by v": np.tanh(together),
        "this is divided by √d_k, which additive scores are not": example.additive.scores / np.sqrt(2),
    }
    return compare(answer, example.additive.scores, mistakes)


def check_favourite(encoder: object, word: str = "love") -> str:
    """Check encoder outputs under which a word gets the most attention of the lesson's state; only its own may move."""
    if encoder is ... or encoder is None:
        return "Not answered yet: put your answer in place of the three dots."
    wanted = np.asarray(ENCODER)
    try:
        numbers = np.asarray(encoder, dtype=float)
    except (TypeError, ValueError):
        return "Not yet: give three pairs of numbers, one for each source word."
    if numbers.shape != wanted.shape or not np.isfinite(numbers).all():
        return "Not yet: give three pairs of numbers, one for each source word."
    place = SOURCE.index(word)
    if not np.allclose(np.delete(numbers, place, 0), np.delete(wanted, place, 0)):
        return f"Not yet: only the encoder output of {word} may move."
    if np.abs(numbers).max() > 1:
        return "Not yet: keep each number between -1 and 1."
    example: WorkedExample = worked_example(STATE, numbers.tolist())
    winner = SOURCE[int(example.dot.weights.argmax())]
    shares = ", ".join(f"{each} {share:.3f}" for each, share in zip(SOURCE, example.dot.weights, strict=True))
    return f"Right: {shares}." if winner == word else f"Not yet: {winner} gets the most ({shares})."


def check_jacobian(answer: object, weights: Sequence[float]) -> str:
    """Check d a_i / d score_j of a softmax with these weights."""
    a = np.asarray(weights, dtype=float)
    wanted = np.diag(a) - np.outer(a, a)
    mistakes = {
        "these are the weights on the diagonal alone; a_i a_j is to be taken off everywhere": np.diag(a),
        "only the diagonal is there; raising one score lowers the other weights": np.diag(a * (1 - a)),
        "the sign is turned round": -wanted,
        "a_i a_j is added; take it off": np.diag(a) + np.outer(a, a),
    }
    return compare(answer, wanted, mistakes, 1e-6)


def check_variances(unscaled: object, scaled: object, width: int) -> str:
    """Check the variances of q·k and of q·k / √d_k for standard normal q and k of this width."""
    if unscaled is ... or scaled is ...:
        return "Not answered yet: put your answers in place of the three dots."
    one, other = float(np.asarray(unscaled)), float(np.asarray(scaled))
    for value, wanted, name in ((one, width, "q·k"), (other, 1.0, "q·k / √d_k")):
        if 0.85 < value / wanted < 1.15:
            continue
        if 0.85 < value / np.sqrt(wanted) < 1.15:
            return f"Not yet: {value:.3f} for {name} looks like its standard deviation; the variance is its square."
        if 0.85 < value * width / wanted < 1.15:
            return f"Not yet: {value:.3g} for {name} looks divided by d_k; divide by its root."
        return f"Not yet: the variance of {name} is not near {value:.3g}."
    return f"Right: {one:.1f} and {other:.2f}."


# 2. Train and look


def check_links(answer: object, matrix: np.ndarray) -> str:
    """Check the links of a matrix (T, S): each target word with the source word that gets the most of its weight."""
    if answer is ... or answer is None:
        return "Not answered yet: put your answer in place of the three dots."
    try:
        links = {(int(i), int(j)) for i, j in answer}  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        return "Not yet: a set of pairs (source position, target position) is wanted."
    wanted = argmax_links(matrix)
    if links == wanted:
        return "Right."
    if links == {(j, i) for i, j in wanted}:
        return "Not yet: the pairs are turned round; the source position comes first."
    if links == {(i, int(matrix[:, i].argmax())) for i in range(matrix.shape[1])}:
        return "Not yet: this takes the best target word of each source word; take the best source word of each row."
    if links == {(i + 1, j + 1) for i, j in wanted}:
        return "Not yet: positions count from 0."
    return f"Not yet: {len(wanted - links)} links are missing and {len(links - wanted)} are too many."


def check_aer(answer: object, links: Sequence[Links], gold: Sequence[Gold]) -> str:
    """Check the alignment error rate of links against gold."""
    found = sum(len(each & manual.sure) for each, manual in zip(links, gold, strict=True))
    ours, sure = sum(map(len, links)), sum(len(manual.sure) for manual in gold)
    mean = np.mean([alignment_error_rate([each], [manual]) for each, manual in zip(links, gold, strict=True)])
    mistakes = {
        "this is the share that is right; the error rate is 1 minus it": 1 - alignment_error_rate(links, gold),
        "this is 1 - precision; what was missed counts too": 1 - found / ours,
        "this is 1 - recall; what is too much counts too": 1 - found / sure,
        "this is the mean over sentences; add the counts of all sentences up first": mean,
    }
    return compare(answer, alignment_error_rate(links, gold), mistakes, 1e-4)


# 3. Any model


def check_input_rows(answer: object, output_rows: np.ndarray) -> str:
    """Check the rows that have read each target token but the last, made of those that predict them, (..., T, S)."""
    mistakes = {
        "these are still the rows that predict": output_rows[..., :-1, :],
        "this is one row too early": np.roll(output_rows, 1, axis=-2)[..., :-1, :],
        "the last row has nothing after it; leave it out": np.roll(output_rows, -1, axis=-2),
    }
    return compare(answer, output_rows[..., 1:, :], mistakes, 1e-6)


def check_word_matrix(
    answer: object, tokens: np.ndarray, target_word_of: Sequence[int], source_word_of: Sequence[int]
) -> str:
    """Check a matrix of words made of one of tokens, (T, S), whose tokens belong to these words."""
    rows, columns = (np.eye(max(each) + 1)[list(each)] for each in (target_word_of, source_word_of))
    summed = rows.T @ tokens @ columns
    wanted = summed / rows.sum(0)[:, None]
    mistakes = {
        "source tokens of a word are averaged; their weights add up": wanted / columns.sum(0),
        "target tokens of a word are added up; take their mean, so that a row still sums to 1": summed,
        "rows and columns are exchanged": wanted.T,
    }
    return compare(answer, wanted, mistakes, 1e-5)


def check_best_head(answer: object, error_rates: np.ndarray) -> str:
    """Check the (layer, head) of the lowest error rate, (L, H)."""
    best, worst = (
        tuple(map(int, np.unravel_index(place, error_rates.shape)))
        for place in (error_rates.argmin(), error_rates.argmax())
    )
    mistakes = {"this is the head with the most errors": worst, "layer comes first, then head": best[::-1]}
    if isinstance(answer, int | np.integer):
        return "Not yet: a pair is wanted, (layer, head); np.unravel_index makes one of a flat index."
    return compare(answer, best, {what: pair for what, pair in mistakes.items() if pair != best}, 0)
