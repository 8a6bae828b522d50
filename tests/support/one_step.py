"""One plain gradient step of every kind of model: by hand, and on one of several processes."""

from pathlib import Path
from typing import Any

import torch
from probes import word_tokenizer
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from transformers import DataCollatorForSeq2Seq
from variants import CASES, tiny_model

LEARNING_RATE = 0.5
# Every kind of decoder, encoder and option that changes which parameters there are.
KINDS = {
    name: CASES[name]
    for name in (
        "transformer-transformer-scaled_dot_product",
        "gru-transformer-additive",
        "transformer-gru-additive",
        "input_feeding_gate",
        "previous_state_lstm_heads",
        "lstm-lstm-none",
        "null_key",
        "two_vocabularies_untied",
    )
}
# Four examples with 5, 2, 1 and 3 labels: the two halves have unequally many.
SOURCES = [[5, 9, 4, 7, 8, 2], [6, 3, 2], [11, 4, 14, 15, 2], [8, 2]]
TARGETS = [[7, 12, 9, 4, 2], [5, 2], [2], [20, 3, 2]]


def examples() -> list[dict[str, list[int]]]:
    return [
        {"input_ids": source, "attention_mask": [1] * len(source), "labels": target}
        for source, target in zip(SOURCES, TARGETS, strict=True)
    ]


def batch(model: Any = None) -> dict[str, Tensor]:
    """Return all examples as one padded batch; given a model, with decoder inputs too."""
    return dict(DataCollatorForSeq2Seq(word_tokenizer(), model=model)(examples()))


def model_to_train(fields: dict) -> Any:
    return tiny_model(sharp=0.3, dropout=0.0, **fields).train()


def after_one_step_by_hand(model: Any, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: (p - LEARNING_RATE * p.grad).detach() for name, p in model.named_parameters()}


def step_of_one_process(rank: int, processes: int, folder: str) -> None:
    """Make a step on this process' share, for every kind; a parameter without gradient would fail the second step."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=processes
    )
    weights = {}
    for name, fields in KINDS.items():
        model = model_to_train(fields)
        parallel = DistributedDataParallel(model, find_unused_parameters=False)
        whole = batch()
        items = (whole["labels"] != -100).sum()
        share = {key: value[rank::processes] for key, value in whole.items()}
        # The processes' gradients are averaged, so each of their losses is scaled up.
        for _ in range(2):
            parallel.zero_grad()
            (parallel(**share, num_items_in_batch=items).loss * processes).backward()
        assert all(p.grad is not None for p in model.parameters())
        weights[name] = {key: (p - LEARNING_RATE * p.grad).detach() for key, p in model.named_parameters()}
    if rank == 0:
        torch.save(weights, Path(folder) / "weights.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
