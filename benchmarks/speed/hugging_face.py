"""How any Hugging Face encoder-decoder is trained and decodes: the public calls, for ours and for Marian alike."""

from typing import Any

import torch
from contestant import Contestant
from torch import Tensor
from transformers import PreTrainedModel
from workloads import END, NEW_TOKENS, PAD, START, Batch

IDS = dict(pad_token_id=PAD, bos_token_id=START, eos_token_id=END, decoder_start_token_id=START)


def contestant(name: str, model: PreTrainedModel, function: str = "") -> Contestant:
    """Return a model of transformers' interface as a contestant; the Trainer's default optimizer is fused."""

    def mean_loss(inputs: dict[str, Tensor]) -> Tensor:
        return model(**inputs).loss

    def decode(batch: Batch, beams: int) -> Tensor:
        return generated(model, batch, beams)

    return Contestant(name, model, collated, mean_loss, fused_adam=True, decode=decode, function=function)


def collated(batch: Batch) -> dict[str, Tensor]:
    """Return what a Hugging Face collator would give the model."""
    return dict(
        input_ids=batch.source,
        attention_mask=(batch.source != PAD).long(),
        decoder_input_ids=batch.target_inputs,
        labels=batch.target.masked_fill(batch.target == PAD, -100),
    )


@torch.no_grad()
def generated(model: Any, batch: Batch, beams: int) -> Tensor:
    """Return exactly NEW_TOKENS tokens a sentence, (B, NEW_TOKENS), the start token left out."""
    tokens = model.generate(
        input_ids=batch.source,
        attention_mask=(batch.source != PAD).long(),
        num_beams=beams,
        do_sample=False,
        min_new_tokens=NEW_TOKENS,
        max_new_tokens=NEW_TOKENS,
    )
    return tokens[:, 1:]
