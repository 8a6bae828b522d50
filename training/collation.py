"""Collate encoded sentence pairs, with the links that guide attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_seq2seq_attn.limits import vocabulary_size
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer, sides

IGNORED_LABEL = -100
GUIDE = "guide"
"""The key of the links in a row and in a batch."""


def decoder_inputs(model: Any, labels: Tensor) -> Tensor:
    """Return the labels one place later, the start token first: what the decoder reads under teacher forcing.

    The model's own shift is asked for. M2M100, NLLB-MoE and Blenderbot have it inside `forward` only: theirs is BART's
    (start token, then all labels but the last, -100 read as padding).

    Args:
        labels: (B, T) int64, -100 = padding.

    Returns:
        (B, T) int64.

    Raises:
        ValueError: neither a shift of its own nor the ids for BART's.
    """
    prepare = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if prepare is not None:
        return prepare(labels=labels)
    start, pad = (getattr(model.config, name, None) for name in ("decoder_start_token_id", "pad_token_id"))
    if start is None or pad is None:
        raise ValueError(
            f"{type(model).__name__} does not say how labels become decoder inputs; set decoder_start_token_id and "
            "pad_token_id in its config"
        )
    shifted = labels.new_full(labels.shape, start)
    shifted[:, 1:] = labels[:, :-1]
    return shifted.masked_fill(shifted == IGNORED_LABEL, pad)


@dataclass
class Seq2SeqCollator:
    """Pad rows to one batch, on the right.

    A row holds `input_ids` and `labels`, may hold `attention_mask`, and may hold `guide`: pairs
    [label position t, source position s] at sub-word level (`data.project_links`). Other keys are left out.

    The batch (B rows, S the longest source, T the longest target):
        input_ids, attention_mask (B, S) int64: mask 1 = read, 0 = padding;
        labels (B, T) int64: -100 on padding;
        decoder_input_ids (B, T) int64, given a model: `decoder_inputs`, so that label smoothing, for which the Trainer
            takes the labels away, works;
        guide (B, T, S) float32, only if a row has one: 1 where label t is linked to source token s, else 0.
    """

    tokenizer: AnyTokenizer
    model: PreTrainedModel | None = None
    pad_to_multiple_of: int | None = None

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        pad = sides(self.tokenizer)[0].pad_token_id
        if pad is None:
            raise ValueError("the tokenizer has no pad_token; set tokenizer.pad_token before collating")
        sources = [list(row["input_ids"]) for row in rows]
        masks = [list(row.get("attention_mask") or [1] * len(row["input_ids"])) for row in rows]
        batch = {
            "input_ids": self._stack(sources, pad),
            "attention_mask": self._stack(masks, 0),
            "labels": self._stack([list(row["labels"]) for row in rows], IGNORED_LABEL),
        }
        self._check_ids(batch)
        if self.model is not None:
            batch["decoder_input_ids"] = decoder_inputs(self.model, batch["labels"])
        if any(row.get(GUIDE) is not None for row in rows):
            batch[GUIDE] = self._guide(rows, batch["labels"].shape[1], batch["input_ids"].shape[1])
        return batch

    def _check_ids(self, batch: Mapping[str, Tensor]) -> None:
        """Raise a ValueError for an id that its side of the model does not know; a GPU's own error names neither."""
        config = getattr(self.model, "config", None)
        for side, key in (("source", "input_ids"), ("target", "labels")):
            size = vocabulary_size(config, side)
            if size is not None and int(batch[key].max()) >= size:
                raise ValueError(
                    f"{key} hold the id {int(batch[key].max())}, but the model's {side} vocabulary has {size} entries; "
                    f"encode the {side} with the tokenizer that belongs to this model"
                )

    def _stack(self, rows: list[list[int]], fill: int) -> Tensor:
        length = max(len(row) for row in rows)
        if self.pad_to_multiple_of:
            length = -(-length // self.pad_to_multiple_of) * self.pad_to_multiple_of
        return torch.tensor([row + [fill] * (length - len(row)) for row in rows], dtype=torch.int64)

    @staticmethod
    def _guide(rows: Sequence[Mapping[str, Any]], target_length: int, source_length: int) -> Tensor:
        guide = torch.zeros(len(rows), target_length, source_length)
        for number, row in enumerate(rows):
            pairs = row.get(GUIDE)
            if not pairs:
                continue
            links = torch.as_tensor(pairs, dtype=torch.int64)
            if links.min() < 0 or int(links[:, 0].max()) >= len(row["labels"]):
                raise ValueError(
                    f"guide of row {number} leaves the {len(row['labels'])} labels; project the links anew"
                )
            if int(links[:, 1].max()) >= len(row["input_ids"]):
                raise ValueError(
                    f"guide of row {number} leaves the {len(row['input_ids'])} source tokens; project the links anew"
                )
            guide[number, links[:, 0], links[:, 1]] = 1.0
        return guide
