"""What is shared and what is not, decided on this machine; `tests/end_to_end/test_hub.py` uploads."""

import json
import pickle
import sys
from pathlib import Path

import pytest
import torch
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast
from variants import tiny_model

from hf_seq2seq_attn import cli
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training import hub
from hf_seq2seq_attn.training.hub import PushPlan, plan_push, push


@pytest.fixture
def folder(toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    """A model folder of ours, with all that may lie around in one."""
    folder = tmp_path / "run"
    tiny_model(vocab_size=len(toy_tokenizer)).save_pretrained(folder)
    toy_tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text("---\ntags: []\n---\n# toy\n")
    return folder


def names(plan: PushPlan) -> set[str]:
    return {name for name, _ in plan.files}


def test_everything_that_a_model_needs_is_listed_with_its_size(folder: Path) -> None:
    plan = push(folder, "me/toy", dry_run=True)
    assert dict(plan.files) == {path.name: path.stat().st_size for path in folder.iterdir()}
    assert [name for name, _ in plan.files] == sorted(names(plan))
    assert plan.left_out == plan.remarks == () and plan.url is None


def test_pickles_checkpoints_and_hidden_files_stay_here(folder: Path) -> None:
    wanted = names(plan_push(folder)) | {"target_tokenizer/tokenizer.json", "notes [1].txt"}
    for name in ("checkpoint-30", "checkpoints/checkpoint-3", ".git", "__pycache__", "target_tokenizer"):
        (folder / name).mkdir(parents=True)
        (folder / name / "tokenizer.json").write_text("{}")
    (folder / "notes [1].txt").write_text("brackets are no pattern")
    (folder / ".env").write_text("HF_TOKEN=secret")
    torch.save({"a": torch.ones(2)}, folder / "training_args.bin")
    torch.save({"a": torch.ones(2)}, folder / "named_otherwise.json")
    (folder / "optimizer.txt").write_bytes(pickle.dumps([1, 2]))
    plan = plan_push(folder)
    assert names(plan) == wanted
    reasons = dict(plan.left_out)
    assert reasons.keys() == {
        "checkpoint-30/", "checkpoints/", ".git/", "__pycache__/", ".env",
        "training_args.bin", "named_otherwise.json", "optimizer.txt",
    }  # fmt: skip
    assert reasons["checkpoint-30/"] == "checkpoints hold pickles" and reasons[".env"] == "hidden"
    assert {reasons[name] for name in ("training_args.bin", "named_otherwise.json", "optimizer.txt")} == {
        "a pickle: loading it would run code"
    }


@pytest.mark.parametrize(
    ("removed", "message"),
    [
        ("config.json", "config.json is missing"),
        ("model.safetensors", r"model.safetensors is missing \(weights in a pickle are not shared\)"),
        ("tokenizer.json", "there is no tokenizer"),
        ("modeling_seq2seq_attn.py", "modeling_seq2seq_attn.py, which config.json needs as code, is missing"),
        ("side.py", "side.py, which config.json needs as code, is missing"),
    ],
)
def test_a_folder_that_would_not_load_is_refused(folder: Path, removed: str, message: str) -> None:
    (folder / removed).unlink()
    with pytest.raises(InputError, match=f"not a model to share: {message}"):
        push(folder, "me/toy", dry_run=True)


def test_all_that_is_missing_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config.json is missing .*; model.safetensors is .*; there is no tokenizer"):
        plan_push(tmp_path)
    with pytest.raises(InputError, match="nowhere: no such folder"):
        plan_push(tmp_path / "nowhere")


def test_broken_weights_and_configs_are_refused(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-100])
    with pytest.raises(InputError, match=r"model.safetensors cannot be read .*: is the copy whole\?"):
        plan_push(folder)
    (folder / "model.safetensors").write_bytes(whole)
    (folder / "config.json").write_text('{\n"model_type": }')
    with pytest.raises(InputError, match=r"config.json:2: not JSON"):
        plan_push(folder)


def test_weights_in_parts_and_foreign_models(toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    sizes = {"d_model": 12, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    ids = {"vocab_size": len(toy_tokenizer), "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
    config = MarianConfig(**ids, **sizes, encoder_attention_heads=2, decoder_attention_heads=2)
    MarianMTModel(config).save_pretrained(tmp_path, max_shard_size="8KB")
    toy_tokenizer.save_pretrained(tmp_path)
    shards = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    plan = plan_push(tmp_path)
    assert len(shards) > 1 and set(shards) <= names(plan)
    assert plan.remarks == ("there is no README.md: nobody will know what this model is or where it comes from",)
    (tmp_path / shards[-1]).unlink()
    with pytest.raises(InputError, match=f"{shards[-1]} is missing"):
        plan_push(tmp_path)


def test_code_that_lies_in_another_repository_is_not_looked_for(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "org/other--configuration_x.XConfig"}
    (folder / "config.json").write_text(json.dumps(config))
    assert names(plan_push(folder))


def test_what_stands_in_the_way_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"a/b/c: not a repository name .*; write user/name"):
        push(folder, "a/b/c", dry_run=True)
    with pytest.raises(InputError, match="HF_HUB_OFFLINE is set"):
        push(folder, "me/toy", token="hf_some")
    monkeypatch.setattr(hub, "is_offline_mode", lambda: False)
    monkeypatch.setattr(hub, "get_token", lambda: None)
    with pytest.raises(InputError, match="no token of the Hub; log in by `hf auth login`, or set HF_TOKEN"):
        push(folder, "me/toy")


def test_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "optimizer.pt").write_bytes(b"")
    monkeypatch.setattr(sys, "argv", ["seq2seq-attn", "push", str(folder), "me/toy", "--dry-run"])
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert done.value.code in (0, None)
    captured = capsys.readouterr()
    plan = plan_push(folder)
    assert captured.out == "".join(f"{name}\t{size}\n" for name, size in plan.files)
    assert "left out: optimizer.pt (a pickle: loading it would run code)" in captured.err
    assert f"{len(plan.files)} files, " in captured.err and "nothing was uploaded" in captured.err

    monkeypatch.setattr(sys, "argv", ["seq2seq-attn", "push", str(folder), "me/toy"])
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert done.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and "HF_HUB_OFFLINE" in captured.err
