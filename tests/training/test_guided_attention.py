import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from guided_toys import FOREIGN, SIZES, guided_model
from transformers import MarianConfig, PreTrainedTokenizerFast, Seq2SeqTrainer, T5Config, set_seed

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.training.guided_attention import (
    GuidedAttention,
    GuidedAttentionMixin,
    GuidedRows,
    count_guided_rows,
    extra_rows,
    guided_attention_loss,
    settle,
)
from hf_seq2seq_attn.training.trainer import Seq2SeqAttnTrainer

MakeTrainer = Callable[..., Any]


def ours(**fields: Any) -> Seq2SeqAttnConfig:
    return Seq2SeqAttnConfig(**{"vocab_size": 40, **SIZES, "dropout": 0.0, **fields})


def recurrent(**fields: Any) -> Seq2SeqAttnConfig:
    return ours(encoder_type="gru", decoder_type="gru", cross_attention_type="additive", decoder_layers=1, **fields)


def test_loss_is_the_cross_entropy_by_hand() -> None:
    weights = torch.tensor([[[[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [0.0, 1.0, 0.0]]]])
    guide = torch.tensor([[[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    total, rows = guided_attention_loss([weights], guide, GuidedRows(0, (0,), "output", 0))
    # Row 0 is linked to two tokens, each half; row 1 to none; row 2 is right already.
    assert rows == 2
    assert total.item() == pytest.approx(-(math.log(0.5) + math.log(0.25)) / 2)


@pytest.mark.parametrize(("offset", "seen"), [(0, [0.1, 0.2]), (1, [0.2, 0.3]), (2, [0.3, 0.4])])
def test_rows_are_shifted_and_dropped_beyond_the_end(offset: int, seen: list[float]) -> None:
    first = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5])
    length = 5 - extra_rows(offset)
    weights = torch.stack([first, 1 - first], dim=-1).view(1, 1, 5, 2).repeat(2, 3, 1, 1)
    guide = torch.zeros(2, length, 2)
    guide[:, :2, 0] = 1
    # The second sentence ends after its two linked labels: whatever lies beyond must not count.
    labels = torch.tensor([[7, 8, 9, 9, 2], [7, 8, -100, -100, -100]])[:, :length]
    total, rows = guided_attention_loss([weights], guide, GuidedRows(0, (2,), "x", offset), labels)
    expected = -sum(math.log(weight) for weight in seen)
    inside = seen[: 2 - min(offset, 1)]
    assert rows == 2 + len(inside)
    assert total.item() == pytest.approx(expected - sum(math.log(weight) for weight in inside))
    assert count_guided_rows({"guide": guide, "labels": labels}, offset) == rows


def test_layer_and_heads_are_chosen_and_each_head_guided() -> None:
    weights = torch.full((3, 1, 4, 2, 2), 0.5)
    weights[1, :, 1] = torch.tensor([0.9, 0.1])
    weights[1, :, 3] = torch.tensor([0.2, 0.8])
    guide = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]])
    total, _ = guided_attention_loss(list(weights), guide, GuidedRows(1, (1, 3), "output", 0))
    assert total.item() == pytest.approx(-(math.log(0.9) + math.log(0.2)) / 2)


def test_a_weight_of_zero_gives_a_finite_loss_and_gradient() -> None:
    weights = torch.tensor([[[[0.0, 1.0]]]], requires_grad=True)
    total, _ = guided_attention_loss([weights], torch.tensor([[[1.0, 0.0]]]), GuidedRows(0, (0,), "output", 0))
    total.backward()
    assert torch.isfinite(total)
    assert weights.grad is not None
    assert torch.isfinite(weights.grad).all()


def test_a_guide_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"guide \(1, 2, 3\) does not fit"):
        guided_attention_loss([torch.ones(1, 1, 2, 2)], torch.ones(1, 2, 3), GuidedRows(0, (0,), "output", 0))


@pytest.mark.parametrize(
    ("config", "guidance", "settled"),
    [
        (ours(), {}, GuidedRows(1, (0,), "input", 1)),
        (ours(), {"rows": "output"}, GuidedRows(1, (0,), "output", 0)),
        (ours(decoder_layers=6), {}, GuidedRows(2, (0,), "input", 1)),
        (ours(decoder_layers=6), {"rows": "output"}, GuidedRows(4, (0,), "output", 0)),
        (ours(alignment_rows="output", alignment_layer=-1), {"heads": [1]}, GuidedRows(2, (1,), "output", 0)),
        (ours(), {"layer": -3}, GuidedRows(0, (0,), "input", 1)),
        (ours(alignment_rows="output", alignment_layer=2), {"heads": [1]}, GuidedRows(2, (1,), "output", 0)),
        (recurrent(), {}, GuidedRows(0, (0,), "output", 0)),
        (recurrent(cross_attention_heads=2), {"rows": "input"}, GuidedRows(0, (0,), "input", 1)),
        (
            recurrent(cross_attention_heads=2, attend_with="previous_state"),
            {"rows": "input"},
            GuidedRows(0, (0,), "input", 2),
        ),
        (recurrent(), {"rows": "input", "alignment_only": True}, GuidedRows(0, (0,), "input", 1)),
        (MarianConfig(decoder_layers=6, decoder_attention_heads=4), {}, GuidedRows(2, (0,), "input", 1)),
        (T5Config(num_decoder_layers=2, num_layers=5, num_heads=3), {"heads": [2]}, GuidedRows(0, (2,), "input", 1)),
    ],
)
def test_what_is_guided(config: Any, guidance: dict[str, Any], settled: GuidedRows) -> None:
    assert settle(GuidedAttention(**guidance), config) == settled


@pytest.mark.parametrize(
    ("config", "guidance", "message"),
    [
        (recurrent(), {"rows": "input"}, r"rows='input' takes 1 of 1 head\(s\)"),
        (ours(), {"rows": "input", "heads": [0, 1, 2]}, r"takes 3 of 3 head\(s\)"),
        (ours(), {"layer": 3}, r"layer=3: this decoder gives 3 layer\(s\) of maps; use 0\.\.2"),
        (ours(), {"layer": -4}, r"layer=-4: this decoder"),
        (recurrent(), {"layer": 1}, r"gives 1 layer\(s\)"),
        (ours(), {"heads": [3]}, r"has 3 head\(s\); use 0\.\.2"),
        (ours(decoder_type="gru", cross_attention_type="none", attention_dropout=0.0), {}, "no attention to guide"),
    ],
)
def test_what_cannot_be_guided_is_refused(config: Any, guidance: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settle(GuidedAttention(**guidance), config)


@pytest.mark.parametrize("bad", [{"rows": "both"}, {"weight": 0.0}, {"heads": []}, {"heads": [1, 1]}])
def test_bad_guidance_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        GuidedAttention(**bad)


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_any_encoder_decoder_is_guided(
    name: str, toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, make_trainer: MakeTrainer
) -> None:
    set_seed(0)
    model = guided_model(name, len(toy_tokenizer))
    trainer = make_trainer(model, GuidedAttention(weight=2.0), learning_rate=0.02, max_steps=12)
    before = trainer.evaluate()["eval_guided_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_guided_loss"] < before
    assert all(entry["guided_loss"] > 0 for entry in trainer.state.log_history if "loss" in entry)


def test_fused_attention_is_refused_in_words(
    toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, make_trainer: MakeTrainer
) -> None:
    model = guided_model("marian", len(toy_tokenizer))
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="attn_implementation='eager'"):
        make_trainer(model, GuidedAttention()).train()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_step_loss_is_translation_plus_weight_times_mean(
    smoothing: float, toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, make_trainer: MakeTrainer
) -> None:
    set_seed(0)
    model = Seq2SeqAttnForConditionalGeneration(recurrent(vocab_size=len(toy_tokenizer)))
    guided, plain = (
        make_trainer(model, guidance, label_smoothing_factor=smoothing)
        for guidance in (GuidedAttention(weight=0.25), None)
    )
    batch = guided.data_collator([guided.train_dataset[i] for i in range(5)])
    model.train()
    total, rows = guided_attention_loss(
        model(**{k: v for k, v in batch.items() if k != "guide"}, output_attentions=True).cross_attentions,
        batch["guide"],
        GuidedRows(0, (0,), "output", 0),
        batch["labels"],
    )
    assert rows == (batch["labels"] > 3).sum()
    with_guide = guided.compute_loss(model, dict(batch))
    without = plain.compute_loss(model, dict(batch))
    assert with_guide.item() == pytest.approx(without.item() + 0.25 * (total / rows).item(), rel=1e-5)
    model.eval()
    assert guided.compute_loss(model, dict(batch)).item() == pytest.approx(
        plain.compute_loss(model, dict(batch)).item()
    )


class Tally(Seq2SeqAttnTrainer):
    """Return the guided sum, and the rows seen and counted, of one batch in evaluation."""

    def guided(self, batch: dict[str, Any]) -> tuple[float, float, float]:
        self._guided_sums.clear()
        self.compute_loss(self.model.eval(), dict(batch))
        total, rows = self._guided_sums[False].tolist()
        assert self._guided is not None
        return total, rows, count_guided_rows(batch, self._guided.row_offset).item()


@pytest.mark.parametrize("attend_with", ["current_state", "previous_state"])
@pytest.mark.parametrize("rows", ["output", "input"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_every_linked_word_has_a_row_alone_and_in_a_batch(
    attend_with: str, rows: str, smoothing: float, toy_tokenizer: PreTrainedTokenizerFast, make_trainer: MakeTrainer
) -> None:
    model = Seq2SeqAttnForConditionalGeneration(
        recurrent(
            vocab_size=len(toy_tokenizer), attend_with=attend_with, cross_attention_heads=2, attention_dropout=0.0
        )
    )
    guided = make_trainer(model, GuidedAttention(rows=rows), Tally, label_smoothing_factor=smoothing)
    samples = [guided.train_dataset[i] for i in range(5)]
    assert len({len(sample["labels"]) for sample in samples}) > 1
    batch = guided.data_collator(samples)
    linked = batch["guide"].any(-1).sum().item()
    total, seen, counted = guided.guided(batch)
    assert seen == counted == linked == batch["labels"].gt(3).sum()
    alone = [guided.guided(guided.data_collator([sample])) for sample in samples]
    assert sum(each for each, _, _ in alone) == pytest.approx(total, rel=1e-5)
    assert sum(each for _, each, _ in alone) == linked
    # The rows beyond the end leave the translation loss and the predictions alone.
    plain = make_trainer(model, label_smoothing_factor=smoothing)
    for items in (None, torch.tensor(7)):
        ours_, theirs = (
            trainer.compute_loss(model, dict(batch), return_outputs=True, num_items_in_batch=items)
            for trainer in (guided, plain)
        )
        torch.testing.assert_close(ours_[0], theirs[0])
        torch.testing.assert_close(ours_[1].logits, theirs[1].logits)


def test_accumulated_micro_batches_give_the_step_of_one_batch(
    toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, make_trainer: MakeTrainer
) -> None:
    ends = []
    for size, accumulation in ((8, 1), (4, 2)):
        set_seed(0)
        model = Seq2SeqAttnForConditionalGeneration(recurrent(vocab_size=len(toy_tokenizer)))
        make_trainer(
            model,
            GuidedAttention(weight=3.0),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulation,
            max_steps=2,
            train_sampling_strategy="sequential",
        ).train()
        ends.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-5)


def test_alignment_only_leaves_translation_alone(
    toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, make_trainer: MakeTrainer
) -> None:
    model = Seq2SeqAttnForConditionalGeneration(
        recurrent(vocab_size=len(toy_tokenizer), tie_word_embeddings=False, share_encoder_decoder_embeddings=False)
    )
    guidance = GuidedAttention(rows="input", alignment_only=True)
    trainer = make_trainer(model, guidance, weight_decay=0.0)
    before = model.lm_head.weight.detach().clone()
    trainer.train()
    assert torch.equal(before, model.lm_head.weight)


def test_config_says_where_the_alignment_is(
    toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, make_trainer: MakeTrainer
) -> None:
    model = Seq2SeqAttnForConditionalGeneration(ours(vocab_size=len(toy_tokenizer)))
    make_trainer(model, GuidedAttention(rows="output", layer=2, heads=[1]))
    model.save_pretrained(tmp_path / "saved")
    config = Seq2SeqAttnConfig.from_pretrained(tmp_path / "saved")
    assert (config.alignment_rows, config.alignment_layer, config.alignment_heads) == ("output", 2, [1])


def test_generation_in_evaluation_gets_no_guide(
    toy_tokenizer: PreTrainedTokenizerFast, make_trainer: MakeTrainer, toy_data: Callable[[int], Dataset]
) -> None:
    model = Seq2SeqAttnForConditionalGeneration(recurrent(vocab_size=len(toy_tokenizer)))
    trainer = make_trainer(model, GuidedAttention(), predict_with_generate=True, generation_max_length=6)
    predictions = trainer.predict(toy_data(7)).predictions
    assert predictions.shape[0] == 7


def test_predictions_hold_no_maps(
    toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, make_trainer: MakeTrainer
) -> None:
    model = Seq2SeqAttnForConditionalGeneration(recurrent(vocab_size=len(toy_tokenizer)))
    trainer = make_trainer(model, GuidedAttention(), per_device_eval_batch_size=3)
    inputs = trainer.data_collator([trainer.train_dataset[0]])
    _, outputs = trainer.compute_loss(model, inputs, return_outputs=True)
    assert "cross_attentions" not in outputs
    assert "logits" in outputs


def test_the_mixin_serves_any_trainer(
    toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, make_trainer: MakeTrainer
) -> None:
    class Mine(GuidedAttentionMixin, Seq2SeqTrainer):
        pass

    trainer = make_trainer(guided_model("marian", len(toy_tokenizer)), GuidedAttention(), Mine)
    trainer.train()
    assert trainer.state.log_history[0]["guided_loss"] > 0


def test_no_pickle_of_the_arguments_is_saved(
    toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, make_trainer: MakeTrainer
) -> None:
    model = Seq2SeqAttnForConditionalGeneration(recurrent(vocab_size=len(toy_tokenizer)))
    make_trainer(model).save_model(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "model.safetensors").is_file()
    assert not list((tmp_path / "saved").glob("*.bin"))
