"""Where the word alignment of a model is read whose attention nobody guided: in the heads and rows that agree best with
the links of a statistical aligner.

By the family alone it cannot be told. A decoder layer reads the source for the word to come in some heads and for the
word just read in others, and an alignment that is read one row off is wrong in almost every word. No gold is
taken, so that scores on gold stay honest.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.probing import (
    ROWS,
    AlignmentChoice,
    AttentionMaps,
    Gold,
    HeadChoice,
    Links,
    ScoredCandidate,
    SentenceError,
    choose_by_aer,
    default_rows,
    extract,
    save_choice,
    symmetrize,
)
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer

from .data import ParallelCorpus
from .guided_attention import layers_and_heads
from .statistical_aligner import StatisticalAligner
from .statistical_links import SYMMETRIZATION

logger = logging.getLogger(__name__)

MOST_LEARNT = 20_000
"""Pairs that the statistical aligner is trained on: about a minute."""
MOST_COMPARED = 300
MOST_BYTES = 400_000_000
"""Of the maps of all heads, which are kept while heads are compared."""
FEWEST = 100
"""Pairs that say something: with fewer the best of many heads is best by chance."""
LEAST_GAIN = 0.02
"""In agreement, over the heads and rows that are read by default."""
Pair = tuple[list[str], list[str]]


def is_unread(config: Any) -> bool:
    """Tell whether a model has attention of which its config does not say where the alignment is read."""
    said = any(getattr(config, f"alignment_{what}", None) is not None for what in ("rows", "layer", "heads"))
    return not said and getattr(config, "cross_attention_type", None) != "none"


def inherit_reading(model: PreTrainedModel) -> None:
    """Let a model that training begins with say itself where its alignment is read, not the folder that it is from.

    What was chosen for it stays in its `generation_config` until training chooses anew, but not the numbers of heads
    that it no longer has.
    """
    # The choice beside the weights would go before what guided training says of the model.
    model.name_or_path = ""
    generation: Any = getattr(model, "generation_config", None)
    chosen = _inherited(model)
    if chosen:
        layers, heads = layers_and_heads(model.config)
        if any(layer >= layers or head >= heads for layer, head in chosen):
            generation.alignment_heads = generation.alignment_rows = None


def inherited_reading(model: PreTrainedModel) -> dict[str, Any] | None:
    """Return the `heads` and rows (`align_with`) that were chosen for the model that training began with."""
    heads = _inherited(model)
    if not heads:
        return None
    rows = getattr(model.generation_config, "alignment_rows", None) or default_rows(model.config)
    return {"heads": heads, "align_with": rows}


def choose_reading(
    run_dir: Path, model: PreTrainedModel, tokenizer: AnyTokenizer, shown: ParallelCorpus, train: ParallelCorpus
) -> dict[str, Any] | None:
    """Choose the heads and rows that a model's alignment is read from, and return the record.

    They are saved with the model if they agree clearly better with the statistical aligner than the default.

    Args:
        run_dir: the folder that the model is saved in.
        shown: pairs to compare links on, `MOST_COMPARED` of them at most.
        train: text from which the statistical aligner learns the words, beside those of `shown`.

    Returns:
        `heads`, [[layer, head], ...], and `align_with`, the rows, that are now read; `agreement`, 2 |A & B| /
        (|A| + |B|), of the links A that are read there and B of the `aligner`; `default`, in words, and
        `default_agreement`; on how many `pairs`. None where fewer than `FEWEST` pairs can be read, or nothing
        can be said.
    """
    learnt = _spread(_pairs_of_words(train), MOST_LEARNT)
    try:
        maps, compared = _maps(model, tokenizer, _spread(_pairs_of_words(shown), MOST_COMPARED))
        if min(len(compared), len(learnt)) < FEWEST:
            return None
        links = _statistical_links(learnt, compared)
        # With the other aligner's links for gold, AER is 1 - agreement.
        choice = choose_by_aer(maps, [Gold(each, each) for each in links])
    except UnusableError as error:
        # No reason to lose what was trained.
        logger.warning("where the alignment is best read is not known: %s", error)
        return None
    default = _default(choice, default_rows(model.config), maps[ROWS[0]][0])
    read = choice.best if choice.best.score < default.score - LEAST_GAIN else default
    record = {
        "heads": [list(head) for head in read.candidate.heads],
        "align_with": read.candidate.align_with,
        "agreement": round(1 - read.score, 4),
        "default": default.candidate.name,
        "default_agreement": round(1 - default.score, 4),
        "pairs": len(compared),
        "aligner": f"builtin statistical aligner, {len(learnt)} training pairs, {SYMMETRIZATION}",
    }
    if read is not default or _inherited(model):
        save_choice(run_dir, AlignmentChoice(read.candidate.heads, read.candidate.align_with, provenance=record), model)
    return record


def _inherited(model: PreTrainedModel) -> list[list[int]]:
    return getattr(getattr(model, "generation_config", None), "alignment_heads", None) or []


def _pairs_of_words(corpus: ParallelCorpus) -> list[Pair]:
    """Return the pairs with several words on both sides: of one alone every head says the same."""
    pairs = zip(corpus.sources, corpus.targets, strict=True)
    return [pair for pair in pairs if min(map(len, pair)) > 1]


def _spread(pairs: Sequence[Pair], most: int) -> Sequence[Pair]:
    """Return at most so many, from everywhere: corpora stand one after the other."""
    return [pairs[place * len(pairs) // most] for place in range(most)] if len(pairs) > most else pairs


def _maps(
    model: PreTrainedModel, tokenizer: AnyTokenizer, pairs: Sequence[Pair]
) -> tuple[dict[str, list[AttentionMaps]], list[Pair]]:
    """Return the maps of both kinds of rows, and the pairs that they are of: those that the model can read."""
    maps: dict[str, list[AttentionMaps]] = {rows: [] for rows in ROWS}
    read: list[Pair] = []
    size = 0
    for source, target in pairs:
        try:
            found = [next(extract(model, tokenizer, [source], [target], align_with=rows)) for rows in ROWS]
        except SentenceError:
            continue
        size += sum(each.weights.nbytes for each in found)
        if size > MOST_BYTES:
            break
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


def _default(choice: HeadChoice, rows: str, maps: AttentionMaps) -> ScoredCandidate:
    """Return what is read where nothing is said: all heads of the last layer."""
    heads = tuple((maps.layers[-1], head) for head in maps.heads)
    return next(each for each in choice.tried if (each.candidate.align_with, each.candidate.heads) == (rows, heads))
