"""The sections of a report as HTML, each from the figures that were measured."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hf_seq2seq_attn.probing import RESAMPLES, heatmap_svg

from .card import SCORES
from .length_quality import LengthScore, draw_quality_by_length
from .page_parts import GOLD_LEGEND, LEGEND, Cell, Number, definitions, legend, link_list, table, text
from .pictures import PANELS, draw_panel
from .report_sentences import LONGEST_MAP, SentenceGroup, ShownSentence
from .scoring import METRICS
from .svg_figures import figure_svg

LABELS = {key: (label, form) for key, label, form in SCORES} | {"f1": ("link F1", "{:.3f}")}
_ALIGNMENT_NAMES = ("aer", "precision", "recall", "f1")
_REFERENCES_SHOWN = 5
_UNCOMPARED = ("link", "link, where there is no manual one to compare with")
_FAITHFULNESS = {
    "erasure": {
        "top": "drop of log p when the most attended source word is masked (nats)",
        "random": "drop when another source word is masked (nats)",
        "difference": "difference (nats)",
        "top_is_larger": "share of other words whose drop is smaller (0 to 1)",
    },
    "leave_one_out": {
        "kendall_tau": "Kendall's tau-b of attention and leave-one-out (-1 to 1)",
        "positive": "share of target tokens with a positive tau (0 to 1)",
    },
    "permutation": {
        "chosen": "change of the output when the chosen heads' weights are permuted (total variation, 0 to 1)",
        "all": "the same, weights of all heads permuted",
    },
    "uniform": {
        "loss": "loss of the model as it is (nats per token)",
        "chosen": "loss with uniform weights in the chosen heads",
        "all": "loss with uniform weights in all heads",
    },
}


def left_out(figures: Mapping[str, Any]) -> str | None:
    """Return the paragraph that says why a section has no figures; None where it has some."""
    reason = figures.get("left_out")
    return None if reason is None else f'<p class="quiet">Not measured: {text(reason)}.</p>'


def tiles(figures: Mapping[str, Any]) -> str:
    """Return the first figures of a report, each with its interval."""
    found = []
    for section, names in (("translation", METRICS), ("alignment", ("aer",))):
        scores = figures[section].get("scores", {})
        found += [(name, scores[name]) for name in names if name in scores]
    items = (
        f'<div class="tile"><span>{text(LABELS[name][0])}</span><b>{_shown(name, score["value"])}</b>'
        f"<span>95%: {_interval(name, score['ci95'])}</span></div>"
        for name, score in found
    )
    return f'<div class="tiles">{"".join(items)}</div>' if found else ""


def translation_section(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the scores of the translations, and quality against the length of the source."""
    if (note := left_out(figures)) is not None:
        yield note
        return
    scores = figures["scores"]
    rows: list[list[Cell]] = [
        [
            LABELS[name][0],
            Number(_shown(name, score["value"]), score["value"]),
            Number(_interval(name, score["ci95"]), score["ci95"][0]),
            Number("higher" if METRICS[name] else "lower", 0),
        ]
        for name, score in scores.items()
    ]
    beams = f"{figures['num_beams']} beam" + ("" if figures["num_beams"] == 1 else "s")
    yield table(
        ("measure", "value", "95% interval", "better is"),
        rows,
        caption=f"{figures['sentences']:,} sentences, {beams}",
    )
    yield (
        f'<p class="quiet">Intervals: bootstrap over the sentences of this test set, {text(_resamples(scores))}; they '
        "say nothing about other texts or other training seeds. A translation has at most "
        f"{text(figures['limit'])}.</p>"
    )
    signed = [
        f"{LABELS[name][0]} <code>{text(score['signature'])}</code>"
        for name, score in scores.items()
        if "signature" in score
    ]
    if signed:
        yield f'<p class="quiet">sacrebleu: {"; ".join(signed)}</p>'
    yield "<h3>Quality by length of the source</h3>"
    yield from _by_length(figures)


def _resamples(scores: Mapping[str, Any]) -> str:
    """Return how many resamples the intervals come from: of a large test set those of BLEU and chrF from fewer."""
    names: dict[int, list[str]] = {}
    for name, score in scores.items():
        names.setdefault(score["resamples"], []).append(LABELS[name][0])
    if len(names) == 1:
        return f"{next(iter(names)):,} resamples"
    return ", ".join(f"{number:,} resamples of {' and '.join(labels)}" for number, labels in names.items())


def _by_length(figures: Mapping[str, Any]) -> Iterator[str]:
    unit, bands = figures["length_unit"], figures["by_source_length"]
    names = list(figures["scores"])
    drawn = names[0]

    def draw(ax: Any) -> None:
        draw_quality_by_length({"this model": [LengthScore(**band) for band in bands]}, drawn, ax)
        ax.set_xlabel(f"source length in {unit}")
        ax.get_legend().remove()

    if len(bands) > 1:
        drawing = figure_svg(draw, f"{LABELS[drawn][0]} against source length in {unit}; n: sentences")
        yield f'<div class="wide" role="region" tabindex="0" aria-label="quality by length">{drawing}</div>'
    rows: list[list[Cell]] = [
        [
            Number(f"{band['first']}" + ("+" if band["last"] is None else f"–{band['last']}"), band["first"]),
            Number(f"{band['sentences']:,}", band["sentences"]),
            *(Number(_shown(name, band["scores"][name]), band["scores"][name]) for name in names),
        ]
        for band in bands
    ]
    yield table(
        (f"source {unit}", "sentences", *(LABELS[name][0] for name in names)),
        rows,
        caption="Each range is a corpus of its own; of few sentences a score says little",
        sortable=True,
    )


def alignment_section(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the scores of the word links against manual ones, whole and by sentence length."""
    if "reading" in figures:
        yield f'<p class="quiet">Links are read off the attention: {text(figures["reading"])}.</p>'
    if (note := left_out(figures)) is not None:
        yield note
        return
    rows: list[list[Cell]] = [
        [
            LABELS[name][0],
            Number(_shown(name, score["value"]), score["value"]),
            Number(_interval(name, score["ci95"]), score["ci95"][0]),
            Number(_shown(name, figures["diagonal"][name]), figures["diagonal"][name]),
        ]
        for name, score in figures["scores"].items()
    ]
    yield table(
        ("measure", "value", "95% interval", "diagonal"),
        rows,
        caption=f"{figures['links']:,} links against {figures['sure']:,} sure and {figures['possible']:,} possible "
        f"manual links (possible holds sure) of {figures['sentences']:,} sentences",
    )
    yield (
        '<p class="quiet">Alignment error rate: lower is better (Och and Ney 2003); all figures are sums over the '
        f"corpus. Intervals: bootstrap over sentences, {RESAMPLES:,} resamples. Diagonal: the links that lie nearest "
        f"to the diagonal, which need no model. {text(figures['sinks'][:1].upper() + figures['sinks'][1:])}.</p>"
    )
    for side, bands in figures["by_length"].items():
        rows = [
            [
                Number(band.replace("-", "–"), int(band.split("-")[0].rstrip("+"))),
                Number(f"{part['sentences']:,}", part["sentences"]),
                Number(f"{part['links']:,}", part["links"]),
                Number(_shown("aer", part["aer"]), part["aer"]),
                Number(_interval("aer", part["ci95"]), part["ci95"][0]),
                *(Number(_shown(name, part[name]), part[name]) for name in ("precision", "recall")),
            ]
            for band, part in bands.items()
        ]
        yield table(
            (f"{side} words", "sentences", "links", "AER", "95% interval", "precision", "recall"),
            rows,
            caption=f"By length of the {side}",
            sortable=True,
        )


def sentences_section(groups: Sequence[SentenceGroup], dropped: frozenset[int] = frozenset()) -> Iterator[str]:
    """Yield the best and the worst sentences, with a selector for those who have scripts.

    Args:
        dropped: numbers of sentences, counted through all groups, that are shown by links although they had a map.
    """
    if not groups:
        yield '<p class="quiet">Nothing was ranked.</p>'
        return
    options = [f'<option value="group-{number}">{text(_title(group))}</option>' for number, group in enumerate(groups)]
    yield (
        f'<label class="picker" hidden>Show <select id="groups">{"".join(options)}<option value="all">all of them'
        "</option></select></label>"
    )
    shown = [sentence for group in groups for sentence in group.sentences]
    if any(sentence.view is not None for sentence in shown):
        with_gold = any(sentence.view is not None and sentence.view.gold is not None for sentence in shown)
        yield legend((*GOLD_LEGEND, _UNCOMPARED) if with_gold else LEGEND)
        yield (
            '<p class="quiet">Rows are target words, columns source words. A pair of more than '
            f"{LONGEST_MAP} words on a side is shown by its links alone.</p>"
        )
    count = 0
    for number, group in enumerate(groups):
        articles = []
        for sentence in group.sentences:
            articles.append(_sentence(sentence, drawn=count not in dropped))
            count += 1
        heading = f"<h3>{text(_title(group))}</h3>{_unranked(group)}"
        yield f'<div class="group" id="group-{number}">{heading}{"".join(articles)}</div>'


def _title(group: SentenceGroup) -> str:
    name = "chrF of the translation" if group.score == "chrf" else "alignment error rate"
    extreme = "lowest" if (group.end == "worst") == (group.score == "chrf") else "highest"
    return f"{group.end.capitalize()}: {extreme} {name} ({len(group.sentences)} of {group.among:,} sentences)"


def _unranked(group: SentenceGroup) -> str:
    if not group.unranked:
        return ""
    reason = "have no words on one side" if group.score == "chrf" else "have no manual link"
    return f'<p class="quiet">Not ranked: {group.unranked:,}, which {reason}.</p>'


def _sentence(sentence: ShownSentence, *, drawn: bool) -> str:
    scores = ", ".join(
        f"{'chrF' if name == 'chrf' else 'AER'} {_shown(name, value)}" for name, value in sentence.scores.items()
    )
    texts = [("source", sentence.source)]
    texts += [("reference", reference) for reference in sentence.references[:_REFERENCES_SHOWN]]
    if len(sentence.references) > _REFERENCES_SHOWN:
        texts.append(("", f"and {len(sentence.references) - _REFERENCES_SHOWN} more references"))
    if sentence.translation is not None:
        texts.append(("translation", sentence.translation or "(nothing)"))
    parts = [f'<h4>Line {sentence.line:,}<span class="score">{scores}</span></h4>', definitions(texts)]
    view = sentence.view
    if view is not None:
        counted = f"{len(view.links)} links"
        if view.gold is not None:
            counted = f"{len(view.hits)} found, {len(view.false_links)} false, {len(view.misses)} missed"
        about = f"{counted}; rows: words of the {sentence.of}"
        if sentence.has_map and drawn:
            parts.append(
                f'<figure tabindex="0" aria-label="attention, line {sentence.line}">{heatmap_svg(view)}'
                f"<figcaption>{text(about)}</figcaption></figure>"
            )
        else:
            parts.append(f'<p class="quiet">{text(about)}</p>{link_list(view)}')
    return f'<article class="sentence">{"".join(parts)}</article>'


def heads_section(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of heads, shaded by column, and what its columns mean."""
    if (note := left_out(figures)) is not None:
        yield note
        return
    names = list(figures["definitions"])
    heads = figures["heads"]
    shades = {name: _shades([head[name] for head in heads]) for name in names}
    rows: list[list[Cell]] = [
        [
            Number(str(head["layer"]), head["layer"]),
            Number(str(head["head"]), head["head"]),
            *(
                Number(f"{head[name]:.0f}" if name == "offset" else f"{head[name]:.3f}", head[name], shades[name][row])
                for name in names
            ),
        ]
        for row, head in enumerate(heads)
    ]
    yield table(
        ("layer", "head", *(name.replace("_", " ") for name in names)),
        rows,
        caption=f"{figures['pairs']:,} pairs, {figures['align_with']} rows, specials {figures['specials']}, links "
        f"{figures['links']}; the deeper the shade, the larger in its column",
        sortable=True,
        dense=True,
    )
    if "aer" in names:
        yield (
            '<p class="quiet">The error rates describe this test set: heads that are chosen by them make its score '
            "worthless. Choose on a development set (seq2seq-attn heads).</p>"
        )
    yield _sample_note(figures)
    if "note" in figures:
        yield f'<p class="quiet">{text(figures["note"])}.</p>'
    meanings = definitions((name.replace("_", " "), meaning) for name, meaning in figures["definitions"].items())
    yield f"<details><summary>What the columns mean</summary>{meanings}</details>"


def faithfulness_section(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tests of faithfulness, each with its definition and its caveat."""
    if (note := left_out(figures)) is not None:
        yield note
        return
    heads = ", ".join(f"{layer}.{head}" for layer, head in figures["heads"])
    yield (
        f"<p>Does the prediction depend on what the attention points at? {figures['pairs']:,} pairs, output rows; "
        f"heads tested (layer.head): {heads}.</p>"
    )
    yield _sample_note(figures)
    if figures["short"]:
        yield (
            f'<p class="quiet">Pairs with fewer than two source words: {figures["short"]:,}; they count in the loss '
            "only.</p>"
        )
    for name, labels in _FAITHFULNESS.items():
        test = figures[name]
        rows: list[list[Cell]] = []
        for key, label in labels.items():
            shown = "–" if test[key] is None else f"{test[key]:.3f}"
            if key == "difference" and test["ci95"][0] is not None:
                shown += " (95%: {:.3f} to {:.3f})".format(*test["ci95"])
            rows.append([label, Number(shown, test[key] or 0)])
        counted = f"{test['rows']:,} target tokens" if "rows" in test else "all target tokens"
        yield f"<h3>{text(name.replace('_', ' ').capitalize())}</h3>"
        yield table((counted, "value"), rows)
        about = f"<p>It is: {text(test['definition'])}.</p><p>But: {text(test['caveat'])}.</p>"
        yield f"<details><summary>What it is, and what it is not</summary>{about}</details>"
    yield f'<p class="quiet">{text(figures["caveat"])}</p>'


def curves_section(history: Sequence[Mapping[str, Any]], label_smoothing: float = 0.0) -> Iterator[str]:
    """Yield a drawing for each panel of which a Trainer's history holds something."""
    logged = {key for entry in history for key in entry}
    for label, keys in PANELS.items():
        if not logged & set(keys):
            continue

        def draw(ax: Any, label: str = label) -> None:
            draw_panel(history, label, ax, label_smoothing=label_smoothing)
            ax.set_xlabel("optimiser steps")

        yield f"<figure tabindex='0'>{figure_svg(draw, f'learning curve: {label}', (6.4, 2.8))}</figure>"


def _sample_note(figures: Mapping[str, Any]) -> str:
    return (
        f'<p class="quiet">Drawn at random from {figures["sample_drawn_from"]:,} of the {figures["sample_corpus"]:,} '
        f"pairs, those with words on both sides and at most {figures['sample_words']} words a side "
        f"(seed {figures['sample_seed']}).</p>"
    )


def _shades(values: Sequence[float]) -> list[float]:
    array = np.asarray(values, dtype=np.float64)
    spread = np.ptp(array)
    return ((array - array.min()) / spread).tolist() if spread > 0 else [0.0] * len(values)


def _shown(name: str, value: float) -> str:
    return LABELS[name][1].format(value)


def _interval(name: str, interval: Sequence[float]) -> str:
    return " to ".join(_shown(name, end) for end in interval)
