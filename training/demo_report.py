"""The demo's report: one HTML page that needs nothing from outside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.probing import WALK_CSS, SentenceView, heatmap_svg

from .page_parts import GOLD_LEGEND, legend, page, table

_LEGEND = [mark for mark in GOLD_LEGEND if mark[0] != "possible"]


@dataclass(frozen=True)
class TranslatedView:
    """One verse of the report: its name, its heat map, and what the model made of the source alone."""

    name: str
    view: SentenceView
    translation: str


def score_rows(metrics: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the score table, for the terminal and for the page: (name, [AER, precision, recall, chrF])."""
    rows = [(f"this model, {metrics['attention'].replace('_', ' ')} attention", metrics)]
    rows += [("IBM model 1", metrics["baselines"]["ibm1"]), ("diagonal", metrics["baselines"]["diagonal"])]
    return [
        (
            name,
            [
                *(f"{scores[key]:.3f}" for key in ("aer", "precision", "recall")),
                f"{scores['chrf']:.1f}" if "chrf" in scores else "-",
            ],
        )
        for name, scores in rows
    ]


SCORE_HEADS = ("AER", "precision", "recall", "chrF")


def write_demo_report(
    path: str | Path,
    metrics: Mapping[str, Any],
    views: Sequence[TranslatedView],
    six_steps: str | None,
    attribution: str,
) -> None:
    """Write the page.

    Args:
        metrics: as in the demo's metrics.json.
        six_steps: HTML of the walk through one word, safe as it is; None leaves the section out.
    """
    low, high = metrics["aer_ci95"]
    sections = [
        f"<h1>{escape('Which Greek word did each English word come from?')}</h1>",
        f'<p class="lead">A small encoder-decoder learned to translate {metrics["train_verses"]:,} verses in '
        f"{metrics['steps']:,} steps, its attention guided by manual word links. Below: what its attention says about "
        f"{metrics['test_verses']:,} verses that it never saw, beside the manual links.</p>",
        "<h2>Scores on the test verses</h2>",
        _score_table(metrics),
        f'<p class="quiet">AER: alignment error rate, lower is better; 95% interval of this model\'s {low:.3f} to '
        f"{high:.3f}. IBM model 1 and this model learned from the same verses; IBM model 1 sees no links. "
        "chrF: higher is better, against one reference.</p>",
        "<h2>Attention and manual links</h2>",
        legend(_LEGEND),
        *(_figure(view) for view in views),
    ]
    if six_steps is not None:
        sections += ["<h2>One word in six steps</h2>", six_steps]
    versions = ", ".join(f"{name} {version}" for name, version in metrics["versions"].items())
    sections.append(
        f"<footer><p>{escape(attribution)}</p><p>Seed {metrics['seed']}, {metrics['training_seconds']:,} seconds of "
        f"training on {escape(str(metrics['hardware']['device']))}; {escape(versions)}.</p></footer>"
    )
    Path(path).write_text(page("Word alignment by attention", sections, WALK_CSS), encoding="utf-8")


def _score_table(metrics: Mapping[str, Any]) -> str:
    rows = [[name, *cells] for name, cells in score_rows(metrics)]
    return table(("", *SCORE_HEADS), rows, caption="Word links and translations", marked=0)


def _figure(verse: TranslatedView) -> str:
    return (
        f"<figure>{heatmap_svg(verse.view)}<figcaption><b>{escape(verse.name)}</b>: "
        f"{len(verse.view.hits)} links found, {len(verse.view.false_links)} false, {len(verse.view.misses)} missed.<br>"
        f"Reference: {escape(' '.join(verse.view.target))}<br>"
        f"The model, from the Greek alone: {escape(verse.translation) or '(nothing)'}</figcaption></figure>"
    )
