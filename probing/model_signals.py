"""What a translation model says about sentence pairs: how likely each is, what its attention links, what sinks take."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from .attention_maps import AttentionMaps
from .capture import input_device, private_copy
from .chosen_maps import extract_chosen_tokens
from .link_types import Link, Links
from .links import extract_links, link_probabilities
from .words import to_words

_BATCHES_TOGETHER = 64
_IGNORED = -100


@dataclass(frozen=True)
class ModelSignals:
    """What a model says about one sentence pair.

    Attributes:
        score: mean log-probability of a target token, the end token included; None for a blank side.
        links: argmax links between words, none for a target word that looks at a sink most.
        probabilities: of the links, see `link_probabilities`.
        sink_mass: mean over the target's tokens of the attention on structural source tokens and a NULL key, 0..1; None
            for a blank side.
    """

    score: float | None
    links: Links
    probabilities: Mapping[Link, float]
    sink_mass: float | None


_BLANK = ModelSignals(None, frozenset(), {}, None)


def model_signals(
    model: Any, tokenizer: Any, pairs: Iterable[tuple[str, str]], *, batch_size: int = 32
) -> Iterator[ModelSignals]:
    """Yield what an encoder-decoder says about each pair of source and target, in order and in constant memory.

    Words are split at white space; layer and heads are those of `align`, a saved fit aside.

    Raises:
        ValueError: a model without cross-attention, or a sentence it cannot read, counted from 1 within all pairs.
    """
    reader = private_copy(model)
    rest = iter(pairs)
    while window := list(islice(rest, batch_size * _BATCHES_TOGETHER)):
        full = [row for row, (source, target) in enumerate(window) if source.strip() and target.strip()]
        sources, targets = [window[row][0] for row in full], [window[row][1] for row in full]
        found = list(extract_chosen_tokens(model, tokenizer, sources, targets, batch_size=batch_size))
        scores = _scores(reader, found, batch_size)
        signals = {row: _signals(maps, score) for row, maps, score in zip(full, found, scores, strict=True)}
        yield from (signals.get(row, _BLANK) for row in range(len(window)))


def _signals(maps: AttentionMaps, score: float) -> ModelSignals:
    words = to_words(maps, specials="null", layer="all")
    links = extract_links(words.weights, "argmax", words.null)
    rows = ~np.array(maps.target.structural)
    columns = ~np.array(maps.source.structural)
    on_words = maps.matrix("all")[rows][:, columns].sum(axis=1)
    sink_mass = float(np.clip(1 - on_words, 0, 1).mean()) if rows.any() else None
    return ModelSignals(score, links, link_probabilities(words.weights, links, words.null), sink_mass)


@torch.no_grad()
def _scores(model: Any, found: Sequence[AttentionMaps], batch_size: int) -> list[float]:
    """Return the mean log-probability of each pair's target tokens, teacher-forced."""
    order = sorted(range(len(found)), key=lambda row: (len(found[row].source.ids), len(found[row].target.ids)))
    scores = [0.0] * len(found)
    pad = getattr(model.config, "pad_token_id", None) or 0
    device = input_device(model)
    for first in range(0, len(order), batch_size):
        batch = order[first : first + batch_size]
        sources = [found[row].source.ids for row in batch]
        targets = [found[row].target.ids for row in batch]
        labels = _padded(targets, _IGNORED).to(device)
        outputs = model(
            input_ids=_padded(sources, pad).to(device),
            attention_mask=_padded([[1] * len(ids) for ids in sources], 0).to(device),
            decoder_input_ids=_padded([[_start(found[row]), *found[row].target.ids[:-1]] for row in batch], pad).to(
                device
            ),
            use_cache=False,
            return_dict=True,
        )
        # reduction="none" keeps padding at 0.
        losses = torch.nn.functional.cross_entropy(
            outputs.logits.float().transpose(1, 2), labels, ignore_index=_IGNORED, reduction="none"
        )
        means = -losses.sum(dim=1) / (labels != _IGNORED).sum(dim=1)
        for row, mean in zip(batch, means.tolist(), strict=True):
            scores[row] = mean
    return scores


def _padded(rows: Sequence[Sequence[int]], value: int) -> torch.Tensor:
    """Return (B, longest) int64, filled up on the right."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])


def _start(maps: AttentionMaps) -> int:
    if maps.start is None:
        raise ValueError("the maps do not say which token their target starts with; extract them anew")
    return maps.start
