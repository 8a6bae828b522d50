"""The sections of a report say what the figures are, with units and numbers, and say why one is missing."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hf_seq2seq_attn.probing import Gold, SentenceView
from hf_seq2seq_attn.training.report_sections import (
    alignment_section,
    curves_section,
    faithfulness_section,
    heads_section,
    sentences_section,
    tiles,
    translation_section,
)
from hf_seq2seq_attn.training.report_sentences import SentenceGroup, ShownSentence

HOSTILE = "</script><img src=x onerror=alert(1)>"
SCORE = {"value": 12.34, "ci95": [11.0, 13.5], "resamples": 1000, "signature": f"tok:{HOSTILE}"}
TRANSLATION: dict[str, Any] = {
    "sentences": 1234,
    "num_beams": 4,
    "limit": "2 times",
    "scores": {"chrf": SCORE, "wer": {"value": 0.5, "ci95": [0.4, 0.6], "resamples": 1000}},
    "length_unit": "words",
    "by_source_length": [
        {"first": 0, "last": 5, "sentences": 1000, "mean_length": 3.5, "scores": {"chrf": 20.0, "wer": 0.25}},
        {"first": 6, "last": None, "sentences": 234, "mean_length": 8.0, "scores": {"chrf": 10.0, "wer": 0.75}},
    ],
}
NAMES = ("aer", "precision", "recall", "f1")
PART = dict(aer=0.25, precision=0.5, recall=0.6, f1=0.55, ci95=[0.2, 0.3], links=7, sure=6, possible=9, sentences=3)
ALIGNMENT: dict[str, Any] = {
    "reading": "rows input, layer -1",
    "scores": {name: {"value": PART[name], "ci95": [0.2, 0.7]} for name in NAMES},
    "diagonal": dict.fromkeys(NAMES, 0.125),
    "by_length": {"source": {"0-10": PART, "11+": PART}, "target": {"0-10": PART}},
    "sinks": "of the weight 1.0% rests on tags",
    **{name: PART[name] for name in ("links", "sure", "possible", "sentences")},
}
SAMPLE = {"sample_words": 60, "sample_seed": 3, "sample_drawn_from": 1200, "sample_corpus": 1234}


def cells(html: str) -> list[str]:
    return [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", html)]


def test_translations_with_intervals_signatures_and_lengths() -> None:
    html = "".join(translation_section(TRANSLATION))
    assert cells(html)[:8] == [
        *("chrF", "12.3", "11.0 to 13.5", "higher"),
        *("word error rate (edits per word)", "0.500", "0.400 to 0.600", "lower"),
    ]
    assert cells(html)[8:] == ["0–5", "1,000", "20.0", "0.250", "6+", "234", "10.0", "0.750"]
    assert "1,234 sentences, 4 beams" in html
    assert "<code>tok:&lt;/script" in html and "<img" not in html
    assert html.count("<svg") == 1
    assert "of this test set, 1,000 resamples; they" in html
    # sacrebleu draws fewer resamples of a large test set than are drawn for rates.
    fewer = TRANSLATION | {"scores": TRANSLATION["scores"] | {"chrf": SCORE | {"resamples": 500}}}
    assert "500 resamples of chrF, 1,000 resamples of word error rate" in "".join(translation_section(fewer))


def test_alignment_with_intervals_and_bands() -> None:
    html = "".join(alignment_section(ALIGNMENT))
    assert cells(html)[:4] == ["alignment error rate", "0.250", "0.200 to 0.700", "0.125"]
    assert "7 links against 6 sure and 9 possible" in html
    assert cells(html).count("0.200 to 0.300") == 3
    assert "11+" in cells(html)
    assert "need no model. Of the weight 1.0% rests on tags.</p>" in html


@pytest.mark.parametrize("section", [translation_section, alignment_section, heads_section, faithfulness_section])
def test_what_was_left_out_says_why(section: Any) -> None:
    assert "".join(section({"left_out": HOSTILE})) == (
        '<p class="quiet">Not measured: &lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;.</p>'
    )


def test_tiles_are_the_first_scores() -> None:
    html = tiles({"translation": TRANSLATION, "alignment": ALIGNMENT})
    assert re.findall(r"<b>(.*?)</b>", html) == ["12.3", "0.500", "0.250"]
    assert tiles({"translation": {"left_out": "x"}, "alignment": {"left_out": "y"}}) == ""


def sentence(size: int = 2, gold: Gold | None = None, **more: Any) -> ShownSentence:
    view = SentenceView(["source"] + [HOSTILE] * (size - 1), ["w"], np.full((1, size), 0.5), frozenset({(0, 0)}), gold)
    given: dict[str, Any] = dict(
        line=7, source=HOSTILE, references=("ref",), translation="", scores={"chrf": 1.0}, of="translation", view=view
    )
    return ShownSentence(**given | more)


def test_sentences_are_maps_or_lists_of_links() -> None:
    gold = Gold(frozenset({(1, 0)}), frozenset())
    group = SentenceGroup("worst", "chrf", 99, (sentence(), sentence(41), sentence(view=None)))
    other = SentenceGroup("worst", "aer", 5, (sentence(gold=gold, of="reference", scores={"aer": 0.5}),))
    html = "".join(sentences_section([group, other]))
    assert html.count("<figure") == 2 and html.count('<ul class="links">') == 1
    assert "<img" not in html
    assert "Worst: lowest chrF of the translation (3 of 99 sentences)" in html
    assert "Worst: highest alignment error rate (1 of 5 sentences)" in html
    assert "0 found, 1 false, 1 missed; rows: words of the reference" in html
    assert "(nothing)" in html and "where there is no manual one" in html
    assert "Not ranked" not in html
    unranked = "".join(sentences_section([replace(group, unranked=7), replace(other, unranked=1500)]))
    assert "Not ranked: 7, which have no words on one side." in unranked
    assert "Not ranked: 1,500, which have no manual link." in unranked
    dropped = "".join(sentences_section([group, other], frozenset({3})))
    assert dropped.count("<figure") == 1 and dropped.count('<ul class="links">') == 2


def test_many_references_end() -> None:
    html = "".join(sentences_section([SentenceGroup("best", "chrf", 1, (sentence(references=("r",) * 8),))]))
    assert html.count("<dt>reference</dt>") == 5 and "and 3 more references" in html


def test_heads_are_shaded_within_their_column() -> None:
    heads = [{"layer": 0, "head": n, "aer": aer, "offset": 1.0} for n, aer in enumerate((0.2, 0.6, 0.4))]
    figures = {
        "definitions": {"aer": "error", "offset": "distance"},
        "heads": heads,
        "pairs": 9,
        "align_with": "input",
        "specials": "mask",
        "links": "argmax",
        "note": "no importance: why",
        **SAMPLE,
    }
    html = "".join(heads_section(figures))
    assert re.findall(r"--share:(\d+)%", html) == ["0", "0", "50", "0", "25", "0"]
    assert "make its score worthless" in html and "no importance: why." in html
    assert "from 1,200 of the 1,234 pairs" in html and "at most 60 words a side (seed 3)" in html


def test_faithfulness_gives_tests_their_caveats() -> None:
    test = {"definition": "it", "caveat": "not"}
    figures = {
        "pairs": 4,
        "heads": [[1, 2]],
        "caveat": "read together",
        "short": 2,
        "erasure": dict(test, top=0.5, random=0.25, difference=0.25, ci95=[0.1, 0.4], top_is_larger=None, rows=31),
        "leave_one_out": dict(test, kendall_tau=None, positive=0.5, rows=0),
        "permutation": dict(test, chosen=0.125, all=0.25, rows=31),
        "uniform": dict(test, loss=1.0, chosen=2.0, all=3.0),
        **SAMPLE,
    }
    html = "".join(faithfulness_section(figures))
    assert "0.250 (95%: 0.100 to 0.400)" in cells(html)
    assert cells(html).count("–") == 2
    assert "(layer.head): 1.2" in html and html.count("But: not.") == 4 and "31 target tokens" in html
    assert "fewer than two source words: 2;" in html
    assert "two source words" not in "".join(faithfulness_section(figures | {"short": 0}))


def test_curves_of_what_was_logged() -> None:
    history = [{"step": 1, "loss": 2.0, "eval_bleu": 3.0}, {"step": 2, "loss": 1.0}]
    assert "".join(curves_section(history)).count("<svg") == 2
    assert "".join(curves_section([])) == ""
