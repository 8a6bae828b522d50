import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.averaging import KeepWeights, average_kept, average_weights, load_weights


def tied_model(seed: int, dtype: torch.dtype = torch.float32) -> Seq2SeqAttnForConditionalGeneration:
    torch.manual_seed(seed)
    sizes = {"vocab_size": 13, "d_model": 6, "encoder_layers": 1, "decoder_layers": 1}
    config = Seq2SeqAttnConfig(**sizes, encoder_type="gru", decoder_type="gru", tie_word_embeddings=True)
    return Seq2SeqAttnForConditionalGeneration(config).to(dtype)


def test_the_mean_is_of_every_weight_and_ties_stay(tmp_path: Path) -> None:
    models = [tied_model(seed) for seed in range(3)]
    folders = [tmp_path / str(seed) for seed in range(3)]
    for model, folder in zip(models, folders, strict=True):
        model.save_pretrained(folder)
    states = [model.state_dict() for model in models]
    merged = models[0]
    expected = {name: torch.stack([state[name] for state in states]).mean(dim=0) for name in states[0]}
    load_weights(merged, average_weights(folders))
    for name, weight in merged.state_dict().items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-7)
    embedding = merged.get_input_embeddings().weight
    assert merged.get_output_embeddings().weight.data_ptr() == embedding.data_ptr()
    merged.save_pretrained(tmp_path / "merged")
    again = Seq2SeqAttnForConditionalGeneration.from_pretrained(tmp_path / "merged")
    assert again.get_output_embeddings().weight.data_ptr() == again.get_input_embeddings().weight.data_ptr()
    assert torch.equal(again.get_input_embeddings().weight, embedding)


def test_half_precision_is_added_up_in_float32(tmp_path: Path) -> None:
    for number, value in enumerate((256.0, 1.0, 1.0, 2.0)):
        tensors = {"w": torch.full((3,), value, dtype=torch.bfloat16), "steps": torch.tensor(number)}
        (tmp_path / str(number)).mkdir()
        save_file(tensors, tmp_path / str(number) / "model.safetensors")
    mean = average_weights([tmp_path / str(number) for number in range(4)])
    # Added up in bfloat16, 256 + 1 + 1 would stay 256.
    assert mean["w"].tolist() == [65.0] * 3
    assert mean["w"].dtype == torch.bfloat16
    assert mean["steps"] == 3


def test_weights_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    for name, tensors in {
        "a": {"w": torch.ones(2)},
        "b": {"w": torch.ones(3)},
        "c": {},
        "d": {"v": torch.ones(2)},
    }.items():
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")
    for other, message in {"b": "w is not in", "c": "has no w", "d": "v is not in"}.items():
        with pytest.raises(InputError, match=message):
            average_weights([tmp_path / "a", tmp_path / other])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"holds no \*\.safetensors"):
        average_weights([tmp_path / "empty"])
    with pytest.raises(InputError, match="they lack"):
        load_weights(torch.nn.Linear(2, 1), {"weight": torch.ones(1, 2)})


def saved(tmp_path: Path, keeper: KeepWeights, values: dict[int, float]) -> list[str]:
    """Let checkpoints be written at these steps with these values of the metric; return what is kept."""
    state = SimpleNamespace(is_world_process_zero=True, global_step=0, log_history=[])
    for step, value in values.items():
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir(exist_ok=True)
        save_file({"w": torch.tensor([float(step)])}, folder / "model.safetensors")
        state.global_step = step
        state.log_history.append({"step": step, "eval_bleu": value})
        keeper.on_save(SimpleNamespace(output_dir=str(tmp_path)), state, None)  # type: ignore[arg-type]
    return [folder.name for folder in keeper.kept()]


@pytest.mark.parametrize(
    ("choice", "kept"),
    [
        ({}, ["step-30", "step-40", "step-100"]),
        ({"metric": "eval_bleu", "greater_is_better": True}, ["step-20", "step-30", "step-100"]),
        ({"metric": "eval_bleu", "greater_is_better": False}, ["step-10", "step-40", "step-100"]),
    ],
)
def test_the_last_or_the_best_are_kept(tmp_path: Path, choice: dict[str, Any], kept: list[str]) -> None:
    keeper = KeepWeights(tmp_path / "averaging", 3, **choice)
    values = {10: 1.0, 20: 5.0, 30: 7.0, 40: 1.5, 100: 4.0}
    assert saved(tmp_path, keeper, values) == kept
    # The Trainer's own checkpoint may go; what is kept stays.
    (tmp_path / "checkpoint-100" / "model.safetensors").unlink()
    assert load_file(keeper.kept()[-1] / "model.safetensors")["w"].item() == 100
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.zeros(1))
    steps = average_kept(keeper, model)
    assert [f"step-{step}" for step in steps] == kept
    assert model.w.item() == pytest.approx(sum(steps) / 3)


def test_a_restarted_run_forgets_what_came_after_its_start(tmp_path: Path) -> None:
    keeper = KeepWeights(tmp_path / "averaging", 3)
    saved(tmp_path, keeper, {10: 1.0, 20: 2.0, 30: 3.0})
    resumed = SimpleNamespace(is_world_process_zero=True, global_step=20)
    arguments: Any = SimpleNamespace(output_dir=str(tmp_path))
    keeper.on_train_begin(arguments, resumed, None)  # type: ignore[arg-type]
    assert [folder.name for folder in keeper.kept()] == ["step-10", "step-20"]
    # Killed after the checkpoint was written, before it was kept.
    shutil.rmtree(keeper.folder / "step-20")
    keeper.on_train_begin(arguments, resumed, None)  # type: ignore[arg-type]
    assert [folder.name for folder in keeper.kept()] == ["step-10", "step-20"]


def test_one_checkpoint_is_no_average(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keeper = KeepWeights(tmp_path / "averaging", 3)
    saved(tmp_path, keeper, {10: 1.0})
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.zeros(1))
    assert average_kept(keeper, model) == [10]
    assert model.w.item() == 0
    assert "only 1 checkpoint(s) were written, so nothing was averaged" in caplog.text
