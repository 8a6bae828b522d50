"""The aligners of sil-thot (`pip install sil-thot`), which the Bible translation tools of SIL use, for comparison."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from thot import alignment

from hf_seq2seq_attn.probing import Links, reverse_links

ROUNDS = 5
"""Of EM for each model, as SIL's machine library does it."""
Sentences = Sequence[Sequence[str]]


def thot_models(source: Sentences, target: Sentences) -> dict[str, Any]:
    """Return trained source-to-target models by name."""
    first = _trained(alignment.Ibm1AlignmentModel(), source, target)
    return {
        "thot fast_align": _trained(alignment.FastAlignModel(), source, target),
        # The HMM takes model 1's probabilities, and its text with them.
        "thot hmm": _trained(alignment.HmmAlignmentModel(first), [], []),
        "thot eflomal": _trained(alignment.EflomalAlignmentModel(), source, target),
    }


def thot_links(source: Sentences, target: Sentences, first: int) -> dict[str, tuple[list[Links], list[Links]]]:
    """Return each aligner's links of both directions, source word first, of the pairs from number `first` on."""
    forward, reverse = thot_models(source, target), thot_models(target, source)
    return {
        name: (
            _links(forward[name], source[first:], target[first:]),
            [reverse_links(links) for links in _links(reverse[name], target[first:], source[first:])],
        )
        for name in forward
    }


def _trained(model: Any, source: Sentences, target: Sentences) -> Any:
    for words, others in zip(source, target, strict=True):
        model.add_sentence_pair(list(words), list(others))
    model.start_training()
    # Its eflomal plans its own rounds.
    for _ in range(getattr(model, "scheduled_iterations", ROUNDS)):
        model.train()
    model.end_training()
    return model


def _links(model: Any, source: Sentences, target: Sentences) -> list[Links]:
    found = model.get_best_alignments([list(words) for words in source], [list(words) for words in target])
    return [frozenset(zip(*map(np.ndarray.tolist, matrix.to_numpy().nonzero()), strict=True)) for _, matrix in found]
