"""Label smoothing that the model does by itself, without all logits, against the Trainer's own smoother."""

from pathlib import Path

import pytest
import torch
from one_step import LEARNING_RATE, examples, model_to_train
from probes import word_tokenizer
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

from hf_seq2seq_attn.training.trainer import Seq2SeqAttnTrainer


def trained(kind: type[Seq2SeqTrainer], folder: Path, smoothing: float) -> dict[str, torch.Tensor]:
    """Return the weights after one step of two accumulated batches."""
    model = model_to_train({"encoder_type": "gru", "decoder_type": "gru"})
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(folder), label_smoothing_factor=smoothing, optim="sgd", learning_rate=LEARNING_RATE, max_steps=1,
        per_device_train_batch_size=2, gradient_accumulation_steps=2, max_grad_norm=0.0, report_to="none",
        lr_scheduler_type="constant", train_sampling_strategy="sequential", save_strategy="no", use_cpu=True,
    )  # fmt: skip
    collator = DataCollatorForSeq2Seq(word_tokenizer(), model=model)
    kind(model=model, args=arguments, train_dataset=examples(), data_collator=collator).train()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_a_step_is_that_of_the_trainer_s_own_smoother(smoothing: float, tmp_path: Path) -> None:
    wanted, got = (trained(kind, tmp_path, smoothing) for kind in (Seq2SeqTrainer, Seq2SeqAttnTrainer))
    for name, weight in wanted.items():
        torch.testing.assert_close(got[name], weight, rtol=1e-5, atol=1e-6, msg=name)


def test_smoothing_makes_a_difference(tmp_path: Path) -> None:
    plain, smoothed = (trained(Seq2SeqAttnTrainer, tmp_path, smoothing) for smoothing in (0.0, 0.3))
    assert any(not torch.allclose(plain[name], weight, atol=1e-5) for name, weight in smoothed.items())
