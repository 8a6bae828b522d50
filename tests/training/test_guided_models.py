"""Guided attention on models of ours and of others, in every way that a Trainer may be asked to run."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guided_toys import FOREIGN, NAMES, flat_weights, guided_model
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast, Seq2SeqTrainer, set_seed

from hf_seq2seq_attn.training.guided_attention import GuidedAttention, GuidedAttentionMixin, guided_attention_loss
from hf_seq2seq_attn.training.guided_attention import settle as settle_guidance

MakeTrainer = Callable[..., Any]
GUIDANCE = GuidedAttention(weight=2.0, rows="output")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", NAMES)
def test_accumulation_gives_the_step_of_one_big_batch(
    name: str, smoothing: float, toy_tokenizer: PreTrainedTokenizerFast, make_trainer: MakeTrainer
) -> None:
    ends = []
    for size, accumulation in ((12, 1), (4, 3)):
        model = guided_model(name, len(toy_tokenizer))
        # Plain gradient steps: Adam would hide a gradient three times too large.
        trainer = make_trainer(
            model,
            GUIDANCE,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulation,
            max_steps=2,
            optim="sgd",
            learning_rate=0.1,
            max_grad_norm=0.0,
            label_smoothing_factor=smoothing,
            train_sampling_strategy="sequential",
        )
        labels = [len(trainer.train_dataset[i]["labels"]) for i in range(12)]
        assert len({sum(labels[i : i + 4]) for i in (0, 4, 8)}) > 1, (
            "micro-batches with equally many labels show nothing"
        )
        start = flat_weights(model)
        trainer.train()
        ends.append(flat_weights(model))
        assert (ends[-1] - start).norm() > 1e-3
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        ends[-1] = torch.cat([ends[-1], torch.tensor(losses)])
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_translation_plus_weighted_guidance(
    name: str, smoothing: float, toy_tokenizer: PreTrainedTokenizerFast, make_trainer: MakeTrainer
) -> None:
    model = guided_model(name, len(toy_tokenizer)).train()
    trainer = make_trainer(model, GUIDANCE, label_smoothing_factor=smoothing)
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(5)])
    more = {"skip_logits": False} if name.startswith("ours") else {}
    outputs = model(**{key: value for key, value in batch.items() if key != "guide"}, output_attentions=True, **more)
    logs = outputs.logits.log_softmax(-1)
    real = batch["labels"] != -100
    of_label = -logs.gather(-1, batch["labels"].clamp(min=0).unsqueeze(-1)).squeeze(-1)[real].mean()
    translation = (1 - smoothing) * of_label + smoothing * -logs.mean(-1)[real].mean()
    settled = settle_guidance(GUIDANCE, model.config)
    total, rows = guided_attention_loss(outputs.cross_attentions, batch["guide"], settled, batch["labels"])
    loss = trainer.compute_loss(model, dict(batch), num_items_in_batch=real.sum())
    assert loss.item() == pytest.approx((translation + 2 * total / rows).item(), rel=1e-5)


# peft asks transformers by an old name.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
@pytest.mark.parametrize("name", NAMES)
def test_adapters_are_guided(name: str, toy_tokenizer: PreTrainedTokenizerFast, make_trainer: MakeTrainer) -> None:
    """LoRA on queries and keys: the weights below stay, the guided loss falls, and alone equals accumulated."""
    peft = pytest.importorskip("peft")
    modules = ["q", "k"] if name == "t5" else ["q_proj", "k_proj"]
    ends = []
    for size, accumulation in ((8, 1), (4, 2)):
        base = guided_model(name, len(toy_tokenizer))
        before = {key: value.clone() for key, value in base.state_dict().items()}
        set_seed(1)
        adapters = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", r=4, lora_alpha=16, target_modules=modules)
        model = peft.get_peft_model(base, adapters)
        trainer = make_trainer(
            model,
            GUIDANCE,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulation,
            max_steps=8,
            learning_rate=0.03,
            adam_epsilon=1e-3,  # so that rounding of a tiny gradient is no step of its own
            train_sampling_strategy="sequential",
        )
        start = trainer.evaluate()["eval_guided_loss"]
        trainer.train()
        assert trainer.evaluate()["eval_guided_loss"] < start
        kept = {key.replace(".base_layer", ""): value for key, value in base.state_dict().items() if "lora_" not in key}
        assert kept.keys() == before.keys()
        assert all(torch.equal(value, kept[key]) for key, value in before.items())
        ends.append(flat_weights(model))
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_bf16_trains_close_to_float32(
    name: str, toy_tokenizer: PreTrainedTokenizerFast, make_trainer: MakeTrainer
) -> None:
    losses = []
    for half in (False, True):
        trainer = make_trainer(
            guided_model(name, len(toy_tokenizer)), GUIDANCE, bf16=half, max_steps=4, learning_rate=0.01
        )
        trainer.train()
        found = trainer.evaluate()
        logged = [entry["guided_loss"] for entry in trainer.state.log_history if "guided_loss" in entry]
        assert all(map(math.isfinite, logged))
        assert all(torch.isfinite(p).all() for p in trainer.model.parameters())
        losses.append([found["eval_loss"], found["eval_guided_loss"]])
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


class Mine(GuidedAttentionMixin, Seq2SeqTrainer):
    """Somebody else's Trainer."""


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_evaluation_is_the_models_own_loss(
    name: str, toy_tokenizer: PreTrainedTokenizerFast, make_trainer: MakeTrainer
) -> None:
    model = guided_model(name, len(toy_tokenizer))
    trainer = make_trainer(model, GUIDANCE, Mine, per_device_eval_batch_size=7)
    batch = trainer.data_collator([trainer.eval_dataset[i] for i in range(7)])
    del batch["guide"]
    with torch.no_grad():
        own = model.eval()(**batch).loss.item()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(own, rel=1e-5)


def test_a_collator_that_knows_no_model_serves_too(
    toy_tokenizer: PreTrainedTokenizerFast, make_trainer: MakeTrainer
) -> None:
    """Hugging Face's own collator gives no decoder inputs without a model; the Trainer then takes the labels away."""
    model = guided_model("marian", len(toy_tokenizer))
    trainer = make_trainer(model, None, Mine, max_steps=1, label_smoothing_factor=0.1)
    for part in ("train_dataset", "eval_dataset"):
        setattr(trainer, part, getattr(trainer, part).remove_columns(["guide", "length"]))
    trainer.data_collator = DataCollatorForSeq2Seq(toy_tokenizer)
    trainer.train()
    assert math.isfinite(trainer.evaluate()["eval_loss"])
