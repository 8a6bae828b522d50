"""Alignment error rate as a module of Hugging Face's `evaluate`; this file needs nothing beside that library."""

import re
from typing import Any

import datasets
import evaluate

_DESCRIPTION = """\
Alignment error rate (AER) scores word links between two sentences against manual ones, which are sure or possible. With
links A, sure links S and possible links P (P holds S):
    precision = |A & P| / |A|,  recall = |A & S| / |S|,  AER = 1 - (|A & S| + |A & P|) / (|A| + |S|).
All figures come from sums over the corpus. Lower AER is better; 0 is perfect.
"""

_INPUTS = """\
Args:
    predictions: one entry for each sentence pair: a Pharaoh string such as "0-0 1-2", blank for no link, or a list of
        pairs [source word, target word].
    references: one entry for each sentence pair: a string with sure links "0-0" and possible ones "1p2", or a list of
        pairs (all sure), or {"sure": [pairs], "possible": [pairs]}; sure links are possible too.
    prediction_base, reference_base: what each side counts words from, 0 (default) or 1.

Returns:
    aer, precision, recall, f1: fractions; a ratio of nothing to nothing counts as 1, so AER is 0 there.
    links, sure, possible, sentences: numbers of predicted, sure and possible links, and of sentence pairs.

Raises:
    ValueError: text that is no link, or a word counted below its base.

Examples:
    >>> aer = evaluate.load("aer")
    >>> aer.compute(predictions=["0-0 1-1 2-2"], references=["0-0 1p1 2-1"])["aer"]
    0.4
"""

_CITATION = """\
@article{och-ney-2003-systematic,
    title = "A Systematic Comparison of Various Statistical Alignment Models",
    author = "Och, Franz Josef and Ney, Hermann",
    journal = "Computational Linguistics",
    volume = "29",
    number = "1",
    year = "2003",
    pages = "19--51",
}
"""

_LINK = re.compile(r"([0-9]+)([-p])([0-9]+)(?::[0-9.eE+-]+)?")

Pairs = set[tuple[int, int]]


def _features() -> list[datasets.Features]:
    """Return every pairing of the forms that predictions and references may have; two strings come first."""
    text = datasets.Value("string")
    pairs = datasets.Sequence(datasets.Sequence(datasets.Value("int64")))
    both = {"sure": pairs, "possible": pairs}
    return [
        datasets.Features({"predictions": prediction, "references": reference})
        for prediction in (text, pairs)
        for reference in (text, pairs, both)
    ]


class Aer(evaluate.Metric):
    """The metric; see `_INPUTS`."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=_features(),
            reference_urls=["https://aclanthology.org/J03-1002"],
        )

    def _compute(
        self, predictions: list[Any], references: list[Any], prediction_base: int = 0, reference_base: int = 0
    ) -> dict[str, float | int]:
        found = sure = possible = found_sure = found_possible = 0
        for number, (prediction, reference) in enumerate(zip(predictions, references, strict=True), start=1):
            certain, maybe = _read(prediction, prediction_base, f"prediction {number}")
            links = certain | maybe
            certain, maybe = _read(reference, reference_base, f"reference {number}")
            allowed = certain | maybe
            found += len(links)
            sure += len(certain)
            possible += len(allowed)
            found_sure += len(links & certain)
            found_possible += len(links & allowed)
        precision, recall = _ratio(found_possible, found), _ratio(found_sure, sure)
        return {
            "aer": 1 - _ratio(found_sure + found_possible, found + sure),
            "precision": precision,
            "recall": recall,
            "f1": 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
            "links": found,
            "sure": sure,
            "possible": possible,
            "sentences": len(predictions),
        }


def _read(entry: Any, base: int, name: str) -> tuple[Pairs, Pairs]:
    """Return the sure links of an entry, and those that are only possible, counted from 0."""
    if base not in (0, 1):
        raise ValueError(f"base is {base!r}; words are counted from 0 or 1")
    if isinstance(entry, str):
        matches = [(token, _LINK.fullmatch(token)) for token in entry.split()]
        wrong = next((token for token, match in matches if match is None), None)
        if wrong is not None:
            raise ValueError(f"{name}: {wrong!r} is no link; write i-j (sure) or ipj (possible), source word first")
        parts = [match for _, match in matches if match is not None]
        sure = {(int(match[1]), int(match[3])) for match in parts if match[2] == "-"}
        possible = {(int(match[1]), int(match[3])) for match in parts if match[2] == "p"}
    elif isinstance(entry, dict):
        sure, possible = _pairs(entry["sure"], name), _pairs(entry["possible"], name)
    else:
        sure, possible = _pairs(entry, name), set()
    if any(min(link) < base for link in sure | possible):
        raise ValueError(f"{name}: a word below {base}, from which this side is said to count; check the base")
    return tuple({(i - base, j - base) for i, j in links} for links in (sure, possible))  # type: ignore[return-value]


def _pairs(entry: Any, name: str) -> Pairs:
    if any(len(pair) != 2 for pair in entry):
        raise ValueError(f"{name}: a link is a pair [source word, target word]")
    return {(int(i), int(j)) for i, j in entry}


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
