"""The pictures of a run: its learning curve, and what one sentence's target words looked at."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from transformers import PreTrainedModel

from hf_seq2seq_attn.probing import extract_chosen, save_heatmap, to_words
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer

from .data import ParallelCorpus

PANELS: dict[str, dict[str, str]] = {
    "loss (nats per token or row)": {
        "loss": "training loss, guidance included",
        "guided_loss": "guided loss (training)",
        "eval_loss": "dev loss",
        "eval_guided_loss": "guided loss (dev)",
    },
    "dev score (0 to 100)": {"eval_bleu": "BLEU", "eval_chrf": "chrF"},
    "dev rate": {
        "eval_wer": "word error rate",
        "eval_per": "phoneme error rate",
        "eval_word_error_rate": "share of wrong words",
        "eval_exact_match": "exact match",
        "eval_aer": "alignment error rate",
    },
    "learning rate": {"learning_rate": "learning rate"},
}
"""What is drawn together, by the label of its axis: key in the history -> name in the legend."""


def draw_curve(history: Sequence[Mapping[str, float]], path: str | Path) -> None:
    """Draw what a Trainer's `log_history` holds over the steps, as PNG, SVG or PDF by the file's ending.

    One panel for each of `PANELS` of which something was logged. A run without a logged loss gives a picture that says
    so.
    """
    logged = set().union(*history) if history else set()
    panels = {label: [key for key in keys if key in logged] for label, keys in PANELS.items()}
    losses, *others = panels
    shown = [losses, *(label for label in others if panels[label])]
    heights = [4.0, *([2.0] * (len(shown) - 1))]
    # Not pyplot: it keeps global state and looks for a display.
    figure = Figure(figsize=(6.4, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(shown), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, label in zip(grid, shown, strict=True):
        for key in panels[label]:
            # Of one step the first: the evaluation that ends a run may be of weights from an earlier step.
            points = {entry["step"]: entry[key] for entry in reversed(history) if key in entry}
            name = PANELS[label][key]
            if key == "loss" and "guided_loss" not in logged:
                name = "training loss"
            steps, values = zip(*sorted(points.items()), strict=True)
            axes.plot(steps, values, marker="o" if len(points) < 20 else None, markersize=3, label=name)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        if len(axes.lines) > 1 or (axes.lines and label != "learning rate"):
            axes.legend(frameon=False)
    if not grid[0].lines:
        grid[0].text(0.5, 0.5, "no loss was logged in this run", ha="center", transform=grid[0].transAxes)
    grid[-1].set_xlabel("optimiser steps")
    figure.savefig(path, dpi=120)


def draw_attention(model: PreTrainedModel, tokenizer: AnyTokenizer, corpus: ParallelCorpus, path: str | Path) -> None:
    """Draw one sentence pair's attention between words, read where the model's alignment is read by default."""
    index = choose_example(corpus)
    maps = next(extract_chosen(model, tokenizer, [corpus.sources[index]], [corpus.targets[index]]))
    save_heatmap(
        path,
        to_words(maps, layer="all").weights,
        corpus.sources[index],
        corpus.targets[index],
        title=f"rows: target word as decoder {maps.align_with}",
    )


def choose_example(corpus: ParallelCorpus) -> int:
    """Return the index of the first pair of readable length, else of the first with words on both sides."""
    lengths = [(len(s), len(t)) for s, t in zip(corpus.sources, corpus.targets, strict=True)]
    readable = (i for i, pair in enumerate(lengths) if min(pair) >= 5 and max(pair) <= 14)
    full = (i for i, pair in enumerate(lengths) if min(pair) > 0)
    return next(readable, next(full))
