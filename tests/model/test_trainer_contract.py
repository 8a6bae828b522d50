"""What the HF Trainer, mixed precision, checkpointing, compilation and several processes ask of a model."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from one_step import KINDS, LEARNING_RATE, after_one_step_by_hand, batch, examples, model_to_train, step_of_one_process
from probes import word_tokenizer
from torch import Tensor, nn
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments
from variants import CASES, PAD, source_batch, target_batch, tiny_model

every_kind = pytest.mark.parametrize("fields", KINDS.values(), ids=KINDS)


def trainer(model: Any, folder: Path, **settings: Any) -> Seq2SeqTrainer:
    """Return a Trainer for one plain gradient step over all examples, in their order."""
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(folder),
        **{
            "per_device_train_batch_size": 4,
            "max_steps": 1,
            "optim": "sgd",
            "learning_rate": LEARNING_RATE,
            "lr_scheduler_type": "constant",
            "max_grad_norm": 0.0,
            "train_sampling_strategy": "sequential",
            "use_cpu": True,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            **settings,
        },
    )
    return Seq2SeqTrainer(
        model=model,
        args=arguments,
        train_dataset=examples(),
        eval_dataset=examples(),
        data_collator=DataCollatorForSeq2Seq(word_tokenizer(), model=model),
        processing_class=word_tokenizer(),
    )


def assert_same(found: nn.Module, wanted: dict[str, Tensor], atol: float = 1e-6) -> None:
    for name, parameter in found.named_parameters():
        assert torch.allclose(parameter, wanted[name], atol=atol, rtol=1e-5), name


# Loss and accumulation


@every_kind
def test_accumulated_batches_make_the_step_of_one_big_batch(fields: dict, tmp_path: Path) -> None:
    by_hand = model_to_train(fields)
    wanted = after_one_step_by_hand(by_hand, by_hand(**batch()).loss)
    for size, accumulated in ((4, 1), (2, 2), (1, 4)):
        model = model_to_train(fields)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        trainer(model, tmp_path, per_device_train_batch_size=size, gradient_accumulation_steps=accumulated).train()
        assert_same(model, wanted)
        assert all(not torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_a_mean_of_means_would_not_pass_as_one_big_batch() -> None:
    """Show that the labels above are unequal enough for the test before this to see that fault."""
    model = model_to_train({})
    whole = batch()
    halves = [model(**{name: value[part] for name, value in whole.items()}).loss for part in ([0, 1], [2, 3])]
    wanted = after_one_step_by_hand(model, model(**whole).loss)
    mean = after_one_step_by_hand(model, sum(halves) / 2)
    assert any(not torch.allclose(mean[name], wanted[name], atol=1e-3) for name in wanted)


@every_kind
def test_label_smoothing_follows_the_formula(fields: dict, tmp_path: Path) -> None:
    epsilon = 0.2
    by_hand = model_to_train(fields)
    inputs = batch(by_hand)
    labels = inputs.pop("labels")
    log_probabilities = torch.log_softmax(by_hand(**inputs).logits, -1)
    real = labels != -100
    nll = -log_probabilities.gather(2, labels.clamp(min=0)[..., None])[..., 0][real].mean()
    uniform = -log_probabilities.mean(-1)[real].mean()
    wanted = after_one_step_by_hand(by_hand, (1 - epsilon) * nll + epsilon * uniform)
    for size, accumulated in ((4, 1), (2, 2)):
        model = model_to_train(fields)
        trainer(
            model,
            tmp_path,
            label_smoothing_factor=epsilon,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulated,
        ).train()
        assert_same(model, wanted)


@every_kind
def test_labels_of_minus_100_count_for_nothing(fields: dict) -> None:
    model = model_to_train(fields)
    whole = batch()
    wanted = after_one_step_by_hand(model, model(**whole).loss)
    # Three more columns of padding, and a fifth example without a single label.
    labels = torch.full((5, 8), -100)
    labels[:4, :5] = whole["labels"]
    longer = {
        "input_ids": torch.cat([whole["input_ids"], torch.tensor([[9, 9, 9, 9, 9, 2]])]),
        "attention_mask": torch.cat([whole["attention_mask"], torch.ones(1, 6, dtype=torch.long)]),
        "labels": labels,
    }
    found = after_one_step_by_hand(model, model(**longer).loss)
    for name, parameter in found.items():
        assert torch.allclose(parameter, wanted[name], atol=1e-5), name


# Evaluation


@every_kind
def test_predict_with_generate_pads_unequal_lengths(fields: dict, tmp_path: Path) -> None:
    model = model_to_train(fields)
    seen: list[Any] = []
    evaluator = trainer(
        model,
        tmp_path,
        predict_with_generate=True,
        per_device_eval_batch_size=2,
        generation_max_length=9,
        generation_num_beams=2,
    )
    evaluator.compute_metrics = lambda prediction: seen.append(prediction) or {"rows": len(prediction.predictions)}
    metrics = evaluator.evaluate()
    (prediction,) = seen
    assert metrics["eval_rows"] == 4 and metrics["eval_loss"] > 0
    model.eval()
    assert metrics["eval_loss"] == pytest.approx(weighted_loss(model), rel=1e-4)
    for row, labels, example in zip(prediction.predictions, prediction.label_ids, examples(), strict=True):
        alone = model.generate(torch.tensor([example["input_ids"]]), num_beams=2, max_length=9)[0].tolist()
        said = [int(token) for token in row if token != -100]
        assert said[: len(alone)] == alone and set(said[len(alone) :]) <= {PAD}
        assert [int(token) for token in labels if token not in (-100, PAD)] == example["labels"]


def weighted_loss(model: Any) -> float:
    """Return the evaluation loss as the Trainer takes it: the mean of the means of batches of 2."""
    whole = batch()
    with torch.no_grad():
        losses = [model(**{name: value[part] for name, value in whole.items()}).loss for part in ([0, 1], [2, 3])]
    return float(sum(losses) / 2)


@every_kind
def test_evaluation_gathers_no_cache(fields: dict, tmp_path: Path) -> None:
    model = model_to_train(fields)
    inputs = {name: value for name, value in batch(model).items() if name != "labels"}
    outputs = model(**inputs)
    assert outputs.cache is not None
    _, gathered, _ = trainer(model, tmp_path).prediction_step(model, inputs, prediction_loss_only=False)
    wanted = [value for key, value in outputs.items() if key != "cache"]
    assert len(gathered) == len(wanted) >= 2
    for one, other in zip(gathered, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@every_kind
def test_maps_of_unequal_batches_can_be_left_out_of_evaluation(fields: dict, tmp_path: Path) -> None:
    model = model_to_train(fields)
    model.set_attn_implementation("eager")
    model.config.output_attentions = True
    evaluator = trainer(model, tmp_path, per_device_eval_batch_size=2)
    seen: list[Any] = []
    evaluator.compute_metrics = lambda prediction: seen.append(prediction.predictions) or {}
    evaluator.evaluate(ignore_keys=["encoder_attentions", "decoder_attentions", "cross_attentions"])
    (logits, states), *more = seen
    assert not more
    assert logits.shape == (4, 5, model.config.target_vocab_size) and states.shape == (4, 6, model.config.d_model)


# Precision


@every_kind
def test_a_bfloat16_autocast_step_is_finite(fields: dict, tmp_path: Path) -> None:
    model = model_to_train(fields)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer(model, tmp_path, bf16=True).train()
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.float32 and torch.isfinite(parameter).all(), name
        assert not torch.equal(parameter, before[name]), name


@every_kind
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_masks_hold_in_float16(fields: dict, backend: str) -> None:
    """A mask of float32's least number would be -inf in float16, and a row with nothing to read NaN."""
    model = tiny_model(sharp=0.3, **fields).eval()
    model.set_attn_implementation(backend)
    ids, mask = source_batch()
    mask[2] = 0
    inputs = {"attention_mask": mask, "decoder_input_ids": target_batch()}
    wanted = model(ids, **inputs, output_attentions=True)
    half = model.half()
    for asked in (True, False):
        found = half(ids, **inputs, output_attentions=asked)
        assert found.logits.dtype == torch.float16
        assert torch.allclose(found.logits.float(), wanted.logits, atol=0.05)
    found = half(ids, **inputs, output_attentions=True)
    for one, other in zip(found.cross_attentions or (), wanted.cross_attentions or (), strict=True):
        assert torch.allclose(one.float(), other, atol=0.02)
        assert (one.float() * (mask == 0)[:, None, None]).abs().max() == 0


# Recomputing, compiling, several processes


@every_kind
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_changes_no_step(fields: dict, reentrant: bool, tmp_path: Path) -> None:
    model = model_to_train(fields)
    wanted = after_one_step_by_hand(model, model(**batch()).loss)
    recomputing = model_to_train(fields)
    runner = trainer(
        recomputing,
        tmp_path,
        activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": reentrant},
    )
    runner.train()
    assert recomputing.is_activation_checkpointing
    assert_same(recomputing, wanted, atol=1e-5)


@pytest.mark.parametrize("name", ["transformer-transformer-additive", "input_feeding"])
def test_a_compiled_model_is_the_same_function(name: str) -> None:
    torch.compiler.reset()
    model = model_to_train(CASES[name])
    inputs = batch()
    wanted = model(**inputs, output_attentions=True, skip_logits=False)
    wanted_step = after_one_step_by_hand(model, wanted.loss)
    compiled = torch.compile(model, backend="aot_eager")
    found = compiled(**inputs, output_attentions=True, skip_logits=False)
    assert torch.allclose(found.logits, wanted.logits, atol=1e-5)
    assert torch.allclose(found.cross_attentions[-1], wanted.cross_attentions[-1], atol=1e-6)
    found_step = after_one_step_by_hand(model, found.loss)
    for parameter, value in wanted_step.items():
        assert torch.allclose(found_step[parameter], value, atol=1e-5), parameter


def test_two_processes_make_the_step_of_one() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # Spawned: a fork of a process that runs threads, as this one does, can inherit a lock that nobody will free.
        torch.multiprocessing.spawn(step_of_one_process, args=(2, folder), nprocs=2)
        found = torch.load(Path(folder) / "weights.pt")
    assert found.keys() == KINDS.keys()
    for name, fields in KINDS.items():
        model = model_to_train(fields)
        wanted = after_one_step_by_hand(model, model(**batch()).loss)
        for parameter, value in wanted.items():
            assert torch.allclose(found[name][parameter], value, atol=1e-6), (name, parameter)
