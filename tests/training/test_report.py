"""A report as a page and as figures, of our model and of another's."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probes import foreign_model, subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import Gold, SentenceView
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.data import ParallelCorpus
from hf_seq2seq_attn.training.data_recipe import CorpusFiles, DataRecipe
from hf_seq2seq_attn.training.loop_recipe import ValidationRecipe
from hf_seq2seq_attn.training.recipe import AlignmentRecipe, Recipe, save_recipe
from hf_seq2seq_attn.training.report import Report, Run, make_report, report_page
from hf_seq2seq_attn.training.report_figures import ReportSettings
from hf_seq2seq_attn.training.report_sentences import SentenceGroup, ShownSentence

CORPUS = ParallelCorpus(
    [["the", "cats", "love"], ["love"], ["I", "love", "cats"]],
    [["I", "love", "cats"], ["day"], ["the", "cats"]],
    [Gold(frozenset({(0, 0)}), frozenset())] * 3,
)
FAST = ReportSettings(num_beams=1, head_pairs=2, faithfulness_pairs=1, shown=1)


def made(model: Any, limit: int | None = None, **more: Any) -> Report:
    data = {"name": "test.src", "files": {"source": {"name": "test.src", "sha256": "0" * 64}}, "limit": limit}
    return make_report(model, subword_tokenizer(), CORPUS, FAST, name="org/name", data=data, progress=False, **more)


@pytest.mark.parametrize("model", [tiny_model(vocab_size=73), foreign_model("marian")], ids=["ours", "marian"])
def test_the_page_has_every_section_and_the_json_its_figures(model: Any) -> None:
    report = made(model)
    figures = json.loads(json.dumps(report.figures, allow_nan=False))
    assert figures["model"]["name"] == "org/name" and figures["model"]["parameters"] == model.num_parameters()
    assert figures["settings"]["reading"]["layer"] is None and figures["versions"]["torch"]
    page = report_page(report)
    anchors = ["translation", "alignment", "sentences", "heads", "faithfulness", "provenance"]
    assert re.findall(r'<h2 id="(\w+)">', page) == anchors == re.findall(r'<a href="#(\w+)">', page)
    aer = figures["alignment"]["scores"]["aer"]
    assert f"{aer['value']:.3f}" in page and f"{aer['ci95'][0]:.3f} to {aer['ci95'][1]:.3f}" in page
    assert "test.src, sha256 0000000000000000" in page
    assert "the first 3 of the files" not in page
    assert len(page.encode()) < 300_000


def test_a_page_on_a_part_of_the_files_says_so() -> None:
    assert "the first 3 of the files" in report_page(made(tiny_model(vocab_size=73), limit=3))


def test_lines_are_counted_from_where_the_first_pair_stands() -> None:
    model = tiny_model(vocab_size=73)
    for first in (1, 2):
        groups = made(model, first_line=first).groups
        assert {group.score for group in groups} == {"chrf", "aer"}
        for sentence in (each for group in groups for each in group.sentences):
            assert sentence.source == " ".join(CORPUS.sources[sentence.line - first])


def big_report(model: Any) -> Report:
    report = made(model)
    views = [
        SentenceView(["s"] * size, ["t"] * size, np.random.default_rng(size).random((size, size)))
        for size in (12, 40, 30)
    ]
    shown = [ShownSentence(n, "s", ("r",), "t", {"chrf": 1.0}, "translation", view) for n, view in enumerate(views)]
    return Report(report.figures, (SentenceGroup("worst", "chrf", 3, tuple(shown)),))


def test_a_page_keeps_to_its_size_and_says_so() -> None:
    report = big_report(tiny_model(vocab_size=73))
    whole = report_page(report)
    assert whole.count("<figure") == 3 and "To stay under" not in whole
    smaller = report_page(report, len(whole.encode()) - 10)
    assert smaller.count("<figure") == 2 and len(smaller.encode()) < len(whole.encode())
    assert "1 sentences, those with the largest maps" in smaller
    # The largest map is the second's.
    assert 'aria-label="attention, line 1"' not in smaller
    with pytest.raises(ValueError, match="without any map"):
        report_page(report, 5000)


def run_folder(folder: Path, recipe: Recipe | None = None, **metrics: Any) -> Run:
    (folder / "metrics.json").write_text(json.dumps({"name": "toy", "steps": 3, **metrics}), encoding="utf-8")
    if recipe is not None:
        save_recipe(recipe, folder / "recipe.yaml")
    return Run(folder)


def test_a_run_reports_as_it_measures(tmp_path: Path) -> None:
    data = DataRecipe(CorpusFiles("s", "t", "l"), dev=CorpusFiles("s", "t", "l"))
    validation = ValidationRecipe(["per", "aer"], beams=2, batch_size=7, bleu_tokenize="char", several_references=True)
    training = {"label_smoothing_factor": 0.1}
    history = [{"step": 1, "loss": 2.0, "note": "text"}, {"loss": 1.0}]
    run = run_folder(tmp_path, Recipe("g2p", data, validation=validation, training=training), history=history)
    settings = run.settings()
    assert (settings.metrics, settings.num_beams, settings.batch_size) == (("per",), 2, 7)
    assert (settings.bleu_tokenize, settings.several_references) == ("char", True)
    assert run.history == ({"step": 1, "loss": 2.0},) and run.label_smoothing == 0.1
    assert run.name == "g2p" and run.record() == {"name": "toy", "steps": 3}
    aligner = Recipe("a", data, alignment=AlignmentRecipe(alignment_only=True))
    assert run_folder(tmp_path, aligner).settings().metrics == ()
    plain = run_folder(tmp_path, Recipe("p", data, training={"generation_num_beams": 7})).settings()
    assert (plain.metrics, plain.num_beams, plain.bleu_tokenize) == (("chrf", "bleu"), 7, "none")


def test_another_folder_gives_what_it_has(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert (run.recipe, run.history, run.record(), run.settings().bleu_tokenize) == (None, (), None, "13a")
    state = {"log_history": [{"step": 5, "eval_loss": 1.5, "loss": math.nan}]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert Run(tmp_path).history == ({"step": 5, "eval_loss": 1.5},)
    (tmp_path / "metrics.json").write_text("{")
    with pytest.raises(InputError, match=r"metrics.json: is not JSON"):
        Run(tmp_path)


def test_curves_are_shown_where_there_is_a_history(tmp_path: Path) -> None:
    run = run_folder(tmp_path, history=[{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}])
    report = made(tiny_model(vocab_size=73), run=run)
    page = report_page(report)
    assert '<h2 id="curves">' in page and "training loss" in page
    assert report.figures["history"] == [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
