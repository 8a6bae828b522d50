"""Where the word alignment of a model is read whose attention nobody guided: in the heads and rows that agree best with
the links of a statistical aligner.

By the family alone it cannot be told. A decoder layer reads the source for the word to come in some heads and for the
word just read in others, and an alignment that is read one row off is wrong in almost every word. Garg et al. 2019
(section 4.1) found their layer by AER on gold; here no gold is taken, so that scores on gold stay honest.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from hf_seq2seq_attn.probing import (
    ROWS,
    AlignmentChoice,
    AttentionMaps,
    Gold,
    Links,
    SentenceError,
    choose_by_aer,
    extract,
    save_choice,
    symmetrize,
)
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer

from .data import ParallelCorpus
from .statistical_aligner import StatisticalAligner
from .statistical_links import SYMMETRIZATION

MOST_LEARNT = 20_000
"""Pairs that the statistical aligner is trained on: about a minute."""
MOST_COMPARED = 300
FEWEST = 100
"""Pairs that say something: with fewer the best of many heads is best by chance."""
LONGEST = 60
"""Words on a side of the pairs compared: their maps are kept, of all heads."""
Pair = tuple[list[str], list[str]]


def is_unread(config: Any) -> bool:
    """Tell whether a model has attention of which its config does not say where the alignment is read."""
    said = any(getattr(config, f"alignment_{what}", None) is not None for what in ("rows", "layer", "heads"))
    return not said and getattr(config, "cross_attention_type", None) != "none"


def choose_reading(
    run_dir: Path, model: PreTrainedModel, tokenizer: AnyTokenizer, shown: ParallelCorpus, train: ParallelCorpus
) -> dict[str, Any] | None:
    """Choose the heads and rows that a model's alignment is read from, save them with it, and return the record.

    Args:
        run_dir: the folder that the model is saved in.
        shown: pairs to compare links on, `MOST_COMPARED` of them at most.
        train: text from which the statistical aligner learns the words, beside those of `shown`.

    Returns:
        `heads`, [[layer, head], ...]; `align_with`; `agreement`, 2 |A & B| / (|A| + |B|) of the links A of these heads
        and B of the `aligner`; on how many `pairs`. None, and nothing saved, where there are fewer than `FEWEST` pairs.
    """
    learnt = _short_pairs(train)[:MOST_LEARNT]
    maps, compared = _maps(model, tokenizer, _short_pairs(shown)[:MOST_COMPARED])
    if min(len(compared), len(learnt)) < FEWEST:
        return None
    links = _statistical_links(learnt, compared)
    # With the other aligner's links for gold, AER is 1 - agreement.
    best = choose_by_aer(maps, [Gold(each, each) for each in links]).best
    record = {
        "heads": [list(head) for head in best.candidate.heads],
        "align_with": best.candidate.align_with,
        "agreement": round(1 - best.score, 4),
        "pairs": len(compared),
        "aligner": f"builtin statistical aligner, {len(learnt)} training pairs, {SYMMETRIZATION}",
    }
    save_choice(run_dir, AlignmentChoice(best.candidate.heads, best.candidate.align_with, provenance=record), model)
    return record


def _short_pairs(corpus: ParallelCorpus) -> list[Pair]:
    pairs = zip(corpus.sources, corpus.targets, strict=True)
    return [pair for pair in pairs if all(0 < len(words) <= LONGEST for words in pair)]


def _maps(
    model: PreTrainedModel, tokenizer: AnyTokenizer, pairs: Sequence[Pair]
) -> tuple[dict[str, list[AttentionMaps]], list[Pair]]:
    """Return the maps of both kinds of rows, and the pairs that they are of: those that the model can read."""
    maps: dict[str, list[AttentionMaps]] = {rows: [] for rows in ROWS}
    read = []
    for source, target in pairs:
        try:
            found = [next(extract(model, tokenizer, [source], [target], align_with=rows)) for rows in ROWS]
        except SentenceError:
            continue
        for rows, of_pair in zip(ROWS, found, strict=True):
            maps[rows].append(of_pair)
        read.append((source, target))
    return maps, read


def _statistical_links(learnt: Sequence[Pair], compared: Sequence[Pair]) -> list[Links]:
    """Return the links of a statistical aligner in the pairs compared; it learns from these, too, and ignores case."""
    sources, targets = ([[word.lower() for word in pair[side]] for pair in (*compared, *learnt)] for side in (0, 1))
    aligner = StatisticalAligner.fit(sources, targets)
    both = aligner.links(sources[: len(compared)], targets[: len(compared)])
    return [symmetrize(forward, reverse, SYMMETRIZATION) for forward, reverse in zip(*both, strict=True)]
