"""The pictures of a run: its learning curve, and what one sentence's target words looked at."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
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


def draw_curve(history: Sequence[Mapping[str, float]], path: str | Path, label_smoothing: float = 0.0) -> None:
    """Draw what a Trainer's `log_history` holds over the steps, as PNG, SVG or PDF by the file's ending.

    One panel for each of `PANELS` of which something was logged. A run without a logged loss gives a picture that says
    so. The training loss is named as smoothed where it is, since the dev loss never is.
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
    for ax, label in zip(grid, shown, strict=True):
        draw_panel(history, label, ax, label_smoothing=label_smoothing)
    if not grid[0].lines:
        grid[0].text(0.5, 0.5, "no loss was logged in this run", ha="center", transform=grid[0].transAxes)
    grid[-1].set_xlabel("optimiser steps")
    figure.savefig(path, dpi=120)


def draw_panel(
    history: Sequence[Mapping[str, float]], label: str, ax: Axes | None = None, *, label_smoothing: float = 0.0
) -> Axes:
    """Draw what was logged of one of `PANELS` over the steps, and return the axes.

    Args:
        ax: axes to draw on; None makes a figure (`ax.figure`).
        label_smoothing: as in `draw_curve`.

    Raises:
        ValueError: another label.
    """
    if label not in PANELS:
        raise ValueError(f"label is {label!r}; allowed are {', '.join(PANELS)}")
    logged = set().union(*history) if history else set()
    ax = ax or Figure(figsize=(6.4, 4.0), layout="constrained").add_subplot()
    for key, name in PANELS[label].items():
        # Of one step the first: the evaluation that ends a run may be of weights from an earlier step.
        points = {entry["step"]: entry[key] for entry in reversed(history) if key in entry}
        if not points:
            continue
        if key == "loss" and "guided_loss" not in logged:
            name = "training loss"
        if key == "loss" and label_smoothing:
            name += f", smoothed by {label_smoothing:g}"
        steps, values = zip(*sorted(points.items()), strict=True)
        ax.plot(steps, values, marker="o" if len(points) < 20 else None, markersize=3, label=name)
    ax.set_ylabel(label)
    ax.grid(alpha=0.3)
    if len(ax.lines) > 1 or (ax.lines and label != "learning rate"):
        ax.legend(frameon=False)
    return ax


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
