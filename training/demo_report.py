"""The demo's report: one HTML page that needs nothing from outside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.probing import HEATMAP_CSS, WALK_CSS, SentenceView, heatmap_svg, legend_svg

_LEGEND = (
    ("heat", "attention, 0 to 1"),
    ("sure", "manual link"),
    ("hit", "found"),
    ("false", "false link"),
    ("miss", "missed"),
)

_CSS = """
:root { color-scheme: light dark;
  --ink: #1c2430; --soft: #667085; --line: #e4e7ec; --ground: #ffffff; --raised: #f7f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #2c333d; --ground: #101418; --raised: #171b21; } }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 68rem; color: var(--ink); background: var(--ground);
  font: 16px/1.55 system-ui, "Segoe UI", "Noto Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; }
p.lead, .quiet { color: var(--soft); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem 1rem .35rem 0; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
tr.ours td { font-weight: 650; }
figure { margin: 1rem 0 2rem; padding: 1rem; background: var(--raised); border: 1px solid var(--line);
  border-radius: 8px; overflow-x: auto; }
figcaption { margin-top: .75rem; font-size: .92rem; }
.legend { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; font-size: .9rem; }
.legend span { display: inline-flex; align-items: center; gap: .4rem; }
footer { margin-top: 3rem; font-size: .85rem; color: var(--soft); }
"""


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
        f'<div class="legend">{_legend()}</div>',
        *(_figure(view) for view in views),
    ]
    if six_steps is not None:
        sections += ["<h2>One word in six steps</h2>", six_steps]
    versions = ", ".join(f"{name} {version}" for name, version in metrics["versions"].items())
    sections.append(
        f"<footer><p>{escape(attribution)}</p><p>Seed {metrics['seed']}, {metrics['training_seconds']:,} seconds of "
        f"training on {escape(str(metrics['hardware']['device']))}; {escape(versions)}.</p></footer>"
    )
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Word alignment by attention</title>\n<style>{_CSS}{HEATMAP_CSS}{WALK_CSS}</style>\n</head>\n<body>\n"
    )
    Path(path).write_text(page + "\n".join(sections) + "\n</body>\n</html>\n", encoding="utf-8")


def _score_table(metrics: Mapping[str, Any]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("", *SCORE_HEADS))
    rows = "".join(
        f"<tr{'' if number else ' class=ours'}><td>{escape(name)}</td>"
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
        for number, (name, cells) in enumerate(score_rows(metrics))
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _legend() -> str:
    return "".join(f"<span>{legend_svg(kind)}{text}</span>" for kind, text in _LEGEND)


def _figure(verse: TranslatedView) -> str:
    return (
        f"<figure>{heatmap_svg(verse.view)}<figcaption><b>{escape(verse.name)}</b>: "
        f"{len(verse.view.hits)} links found, {len(verse.view.false_links)} false, {len(verse.view.misses)} missed.<br>"
        f"Reference: {escape(' '.join(verse.view.target))}<br>"
        f"The model, from the Greek alone: {escape(verse.translation) or '(nothing)'}</figcaption></figure>"
    )
