"""The pictures of a run: its learning curve, and what one sentence's target words looked at."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from transformers import PreTrainedModel

from hf_seq2seq_attn.probing import alignment_heads, default_rows, extract, save_heatmap, to_words
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer

from .data import ParallelCorpus

CURVES = {
    "loss": "training loss, guidance included",
    "guided_loss": "guided loss (training)",
    "eval_loss": "dev loss",
    "eval_guided_loss": "guided loss (dev)",
}


def draw_curve(history: Sequence[Mapping[str, float]], path: str | Path) -> None:
    """Draw the losses in a Trainer's `log_history` over the steps, as PNG, SVG or PDF by the file's ending.

    A run without a logged loss gives a picture that says so.
    """
    # Not pyplot: it keeps global state and looks for a display.
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    logged = set().union(*history) if history else set()
    for key, label in CURVES.items():
        points = [(entry["step"], entry[key]) for entry in history if key in entry]
        if points:
            steps, values = zip(*points, strict=True)
            if key == "loss" and "guided_loss" not in logged:
                label = "training loss"
            axes.plot(steps, values, marker="o" if len(points) < 20 else None, markersize=3, label=label)
    if axes.lines:
        axes.legend(frameon=False)
    else:
        axes.text(0.5, 0.5, "no loss was logged in this run", ha="center", transform=axes.transAxes)
    axes.set_xlabel("optimiser steps")
    axes.set_ylabel("loss (nats per token or row)")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def draw_attention(model: PreTrainedModel, tokenizer: AnyTokenizer, corpus: ParallelCorpus, path: str | Path) -> None:
    """Draw one sentence pair's attention between words, read where the model's alignment is read by default."""
    index = choose_example(corpus)
    layer, heads = alignment_heads(model.config)
    maps = next(
        extract(model, tokenizer, [corpus.sources[index]], [corpus.targets[index]], layers=[layer], heads=heads)
    )
    save_heatmap(
        path,
        to_words(maps).weights,
        corpus.sources[index],
        corpus.targets[index],
        title=f"rows: target word as decoder {default_rows(model.config)}",
    )


def choose_example(corpus: ParallelCorpus) -> int:
    """Return the index of the first pair of readable length, else of the first with words on both sides."""
    lengths = [(len(s), len(t)) for s, t in zip(corpus.sources, corpus.targets, strict=True)]
    readable = (i for i, pair in enumerate(lengths) if min(pair) >= 5 and max(pair) <= 14)
    full = (i for i, pair in enumerate(lengths) if min(pair) > 0)
    return next(readable, next(full))
