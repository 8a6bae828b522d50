"""What a report measures, beside the functions that measure each alone."""

import json
from typing import Any

import numpy as np
import pytest
from probes import foreign_model, subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import Aligner, Gold, Reading, SentenceError, align, score_intervals, score_links
from hf_seq2seq_attn.training.data import ParallelCorpus
from hf_seq2seq_attn.training.report_figures import (
    ReportSettings,
    _Measurement,
    measure_report,
    no_progress,
    source_lengths,
)
from hf_seq2seq_attn.training.scoring import score_corpus
from hf_seq2seq_attn.training.text_intervals import sentence_scores
from hf_seq2seq_attn.translation import SentenceTooLongError, translate

SOURCES = ["the cats love today.", "", "I love cats", "understand this unloved day", "love", "I love cats"]
TARGETS = ["I love cats", "", "the day", "cats love this unloved day today.", "love", "cats"]
GOLD = [[(0, 0), (3, 2)], [], [(1, 1)], [(0, 0), (2, 3)], [(0, 0)], []]
FAST: dict[str, Any] = dict(num_beams=1, head_pairs=3, faithfulness_pairs=2, shown=2)


def corpus(linked: bool = True) -> ParallelCorpus:
    gold = [Gold(frozenset(links), frozenset()) for links in GOLD] if linked else None
    return ParallelCorpus([text.split() for text in SOURCES], [text.split() for text in TARGETS], gold)


@pytest.mark.parametrize("family", ["ours", "marian"])
def test_every_figure_is_that_of_its_own_function(family: str) -> None:
    model: Any = foreign_model("marian") if family == "marian" else tiny_model(vocab_size=73)
    tokenizer = subword_tokenizer()
    found = measure_report(model, tokenizer, corpus(), ReportSettings(**FAST))
    json.dumps(found.sections, allow_nan=False)
    alone = score_corpus(model, tokenizer, corpus(), num_beams=1)
    translation, alignment = found.sections["translation"], found.sections["alignment"]
    assert {name: score["value"] for name, score in translation["scores"].items()} == {
        name: alone[name] for name in ("chrf", "bleu")
    }
    assert sum(band["sentences"] for band in translation["by_source_length"]) == 6
    links = align(model, tokenizer, corpus().sources, corpus().targets)
    gold = corpus().gold or []
    score, intervals = score_links(links, gold), score_intervals(links, gold)
    assert alignment["scores"]["aer"] == {"value": alone["aer"], "ci95": list(score.ci95)}
    assert alignment["scores"]["recall"] == {"value": score.recall, "ci95": list(intervals["recall"])}
    assert sum(part["links"] for part in alignment["by_length"]["source"].values()) == score.links
    heads = found.sections["heads"]
    assert len(heads["heads"]) == (9 if family == "marian" else 6) and heads["pairs"] == 3
    assert {"aer", "gradient", "ablation", "entropy"} <= set(heads["definitions"])
    assert found.sections["faithfulness"]["pairs"] == 2
    hypotheses = translate(model, tokenizer, SOURCES, num_beams=1)
    chrf = sentence_scores(hypotheses, TARGETS)
    groups = {(group.score, group.end): group for group in found.groups}
    assert set(groups) == {(score, end) for score in ("chrf", "aer") for end in ("worst", "best")}
    worst = groups["chrf", "worst"]
    assert (worst.among, worst.unranked) == (5, 1)
    assert (groups["aer", "best"].among, groups["aer", "best"].unranked) == (4, 2)
    sample = {"sample_words": 60, "sample_seed": 0, "sample_drawn_from": 5, "sample_corpus": 6}
    assert sample.items() <= heads.items() and sample.items() <= found.sections["faithfulness"].items()
    filled = [index for index, source in enumerate(SOURCES) if source]
    assert worst.sentences[0].scores["chrf"] == min(chrf[index] for index in filled)
    for group in found.groups:
        for sentence in group.sentences:
            assert SOURCES[sentence.line - 1] == sentence.source
            assert sentence.translation == hypotheses[sentence.line - 1]
            if group.score == "aer":
                assert sentence.view is not None
                assert sentence.view.links == links[sentence.line - 1]
                assert sentence.view.gold == gold[sentence.line - 1]


def test_a_sample_is_drawn_by_its_seed_from_short_pairs() -> None:
    model, tokenizer = tiny_model(vocab_size=73), subword_tokenizer()
    settings = ReportSettings(metrics=(), head_pairs=2, faithfulness_pairs=0)
    found = [measure_report(model, tokenizer, corpus(False), settings).sections for _ in range(2)]
    assert found[0] == found[1]
    assert found[0]["faithfulness"] == {"left_out": "not asked for"}
    assert "aer" not in found[0]["heads"]["definitions"]
    assert found[0]["alignment"]["left_out"] == "no manual links were given"
    assert "not trained to translate" in found[0]["translation"]["left_out"]


def test_without_attention_the_translations_are_left() -> None:
    model = tiny_model(vocab_size=73, encoder_type="gru", decoder_type="gru", cross_attention_type="none")
    found = measure_report(model, subword_tokenizer(), corpus(), ReportSettings(**FAST))
    for section in ("alignment", "heads", "faithfulness"):
        assert "cross_attention_type" in found.sections[section]["left_out"]
    assert found.sections["translation"]["scores"]
    assert [group.score for group in found.groups] == ["chrf", "chrf"]
    assert all(sentence.view is None for group in found.groups for sentence in group.sentences)


def test_a_translation_that_cannot_be_read_leaves_the_map_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ["", "", "understand " * 20, "cats", "love", "I"]
    monkeypatch.setattr("hf_seq2seq_attn.training.report_figures.translate", lambda *_, **__: said)
    model = tiny_model(vocab_size=73, max_position_embeddings=30, position_embedding_type="learned")
    found = measure_report(model, subword_tokenizer(), corpus(False), ReportSettings(**FAST | {"shown": 5}))
    of = {sentence.line: sentence.of for group in found.groups for sentence in group.sentences}
    assert of == {1: "reference", 3: "reference", 4: "translation", 5: "translation", 6: "translation"}
    (longest,) = (sentence for group in found.groups for sentence in group.sentences if sentence.line == 3)
    assert longest.view is not None and list(longest.view.target) == TARGETS[2].split()


def test_lines_that_share_a_source_are_one_sentence() -> None:
    model = tiny_model(vocab_size=73)
    settings = ReportSettings(several_references=True, metrics=("wer", "chrf"), **FAST)
    found = measure_report(model, subword_tokenizer(), corpus(), settings)
    assert found.sections["translation"]["sentences"] == 5
    several = [
        sentence for group in found.groups for sentence in group.sentences if sentence.references == ("the day", "cats")
    ]
    assert all(sentence.line == 3 for sentence in several)
    assert list(found.sections["translation"]["scores"]) == ["chrf", "wer"]


def test_a_sentence_that_lines_share_is_refused_by_its_own_line() -> None:
    model = tiny_model(vocab_size=73, max_position_embeddings=20, position_embedding_type="learned")
    shared = ParallelCorpus([["love"], ["love"], ["understand"] * 9], [["love"], ["I"], ["cats"]])
    with pytest.raises(SentenceTooLongError, match="sentence 3 has") as refused:
        measure_report(model, subword_tokenizer(), shared, ReportSettings(several_references=True, **FAST))
    assert refused.value.number == 3


def test_a_translation_is_that_of_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ["one", "", "two", "three", "four", "five"]
    monkeypatch.setattr("hf_seq2seq_attn.training.report_figures.translate", lambda *_, **__: said)
    linked = corpus()
    gold = [Gold(frozenset({(0, 0)}) if source else frozenset(), frozenset()) for source in linked.sources]
    twice = ParallelCorpus(linked.sources, linked.targets, gold)
    found = measure_report(tiny_model(vocab_size=73), subword_tokenizer(), twice, ReportSettings(**FAST | {"shown": 5}))
    shown = {each.line: each.translation for group in found.groups if group.score == "aer" for each in group.sentences}
    assert shown == {1: "one", 3: "two", 4: "three", 5: "four", 6: "five"}


def test_jumps_are_learned_without_manual_links_too() -> None:
    model, tokenizer, reading = tiny_model(vocab_size=73), subword_tokenizer(), Reading(links="hmm")
    learned = Aligner((model, tokenizer), reading=reading).learn(corpus().sources, corpus().targets).forward
    assert learned is not None
    for linked in (False, True):
        settings = ReportSettings(reading=reading)
        jumps = _Measurement(model, tokenizer, corpus(linked), settings, no_progress, 1).jumps
        assert jumps is not None and jumps.forward is not None
        np.testing.assert_allclose(jumps.forward.weights, learned.weights)


def test_a_layer_that_is_not_there_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_work(*_: object, **__: object) -> None:
        raise AssertionError("it translates")

    monkeypatch.setattr("hf_seq2seq_attn.training.report_figures.translate", no_work)
    settings = ReportSettings(reading=Reading(layer=7))
    with pytest.raises(ValueError, match="layer 7 does not exist"):
        measure_report(tiny_model(vocab_size=73), subword_tokenizer(), corpus(), settings)


def test_a_sentence_of_the_sample_is_named_by_its_own_line() -> None:
    model = tiny_model(vocab_size=73, max_position_embeddings=30, position_embedding_type="learned")
    long = corpus(False)
    long.targets[3] = ["understand"] * 20
    with pytest.raises(SentenceError) as refused:
        measure_report(model, subword_tokenizer(), long, ReportSettings(metrics=(), head_pairs=9))
    assert (refused.value.side, refused.value.number) == ("target", 4)


def test_length_is_counted_in_what_the_language_has() -> None:
    assert source_lengths(["a b c", ""]) == ("words", [3, 0])
    chinese = ["我今天早上在花园里看见三只猫", "老师晚上在学校里读书写字。", "好 吗"]
    assert source_lengths(chinese) == ("characters", [14, 13, 2])
    assert np.sum(source_lengths(["supercalifragilistic", "one two three four"])[1]) == 5
