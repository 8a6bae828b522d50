"""Sharing shown whole: push a trained folder with the real client, load it back by its name where we do not exist."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hub_server import TOKEN, USER, HubServer, running_hub
from safetensors.torch import load as load_tensors

from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.train import train
from hf_seq2seq_attn.translation import load_seq2seq

REPO = f"{USER}/toy-model"
SENTENCES = ["ab cd ef", "gh ef", "cd cd ab gh ij"]

RECIPE = """\
name: toy
data: {train: {source: train.source, target: train.target}, max_target_length: 12}
tokenizer: {vocab_size: 60}
model: {encoder_type: gru, decoder_type: lstm, cross_attention_type: additive, encoder_layers: 1, decoder_layers: 1,
  d_model: 16, dropout: 0.0, init_std: 0.4}
training: {max_steps: 3, per_device_train_batch_size: 8, learning_rate: 1e-2}
"""

BARE_PROCESS = """
import importlib.util, json, sys
sys.path = [p for p in sys.path if p]
sys.meta_path = [f for f in sys.meta_path if "editable" not in getattr(f, "__name__", type(f).__name__).lower()]
assert importlib.util.find_spec("hf_seq2seq_attn") is None, "the package must not be here"
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
repo, revision, result = sys.argv[1:4]
there = {"revision": revision, "trust_remote_code": True}
assert AutoConfig.from_pretrained(repo, **there).model_type == "seq2seq_attn"
tokenizer = AutoTokenizer.from_pretrained(repo, **there)
batch = tokenizer(json.loads(sys.argv[4]), padding=True, return_tensors="pt")
model = AutoModelForSeq2SeqLM.from_pretrained(repo, **there).eval()
assert type(model).__module__.startswith("transformers_modules.")
base = AutoModel.from_pretrained(repo, **there).eval()
with torch.no_grad():
    out = model(**batch, decoder_input_ids=batch["input_ids"], output_attentions=True)
    states = base(**batch, decoder_input_ids=batch["input_ids"]).last_hidden_state
    beams = model.generate(**batch, num_beams=4, max_new_tokens=8)
torch.save([out.logits, torch.stack(out.cross_attentions), states, beams], result)
"""

PUSH_FROM_PYTHON = """
import sys
from hf_seq2seq_attn.translation import load_seq2seq
model, tokenizer = load_seq2seq(sys.argv[1])
model.push_to_hub(sys.argv[2], private=True)
tokenizer.push_to_hub(sys.argv[2])
"""


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with running_hub() as server:
        yield server
        assert server.unknown == []


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    words = ["ab", "cd", "ef", "gh", "ij"]
    sources = [[words[(i * k + k) % 5] for k in range(1, 3 + i % 4)] for i in range(24)]
    (folder / "toy.yaml").write_text(RECIPE)
    for side, lines in (("source", sources), ("target", [[w.upper() for w in reversed(s)] for s in sources])):
        (folder / f"train.{side}").write_text("".join(" ".join(line) + "\n" for line in lines))
    files = [f"data.train.{side}={folder / f'train.{side}'}" for side in ("source", "target")]
    return train(load_recipe(folder / "toy.yaml", files), folder / "run", progress=False).run_dir


def environment(hub: HubServer, home: Path, **more: str) -> dict[str, str]:
    """Return the variables of a process that knows this Hub and nothing of this test run."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV", "HF_"))}
    # The local Hub speaks the older of the two upload protocols.
    kept |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1"}
    kept |= {"NO_PROXY": "127.0.0.1,localhost"}
    return kept | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "HF_TOKEN": TOKEN} | more


def run(arguments: list[str | Path], variables: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)], env=variables, cwd=folder, capture_output=True, text=True, check=False
    )


def push(hub: HubServer, folder: Path, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    variables = environment(hub, folder / "home", **more)
    variables = {name: value for name, value in variables.items() if value}
    return run(["-m", "hf_seq2seq_attn.cli", "push", *arguments], variables, folder)


def load_in_a_bare_process(hub: HubServer, folder: Path, repo: str, revision: str = "main") -> list[torch.Tensor]:
    (folder / "bare.py").write_text(BARE_PROCESS)
    variables = environment(hub, folder / "other_home", HF_MODULES_CACHE=str(folder / "modules"))
    arguments = ["-P", folder / "bare.py", repo, revision, folder / "result.pt", json.dumps(SENTENCES)]
    done = run(arguments, variables, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(folder / "result.pt")


def what_the_folder_gives(run_dir: Path) -> list[torch.Tensor]:
    model, tokenizer = load_seq2seq(run_dir)
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        out = model(**batch, decoder_input_ids=batch["input_ids"], output_attentions=True)
        states = model.model(**batch, decoder_input_ids=batch["input_ids"]).last_hidden_state
        beams = model.generate(**batch, num_beams=4, max_new_tokens=8)
    return [out.logits, torch.stack(out.cross_attentions), states, beams]


def test_push_and_load_where_the_package_does_not_exist(hub: HubServer, run_dir: Path, tmp_path: Path) -> None:
    listed = push(hub, tmp_path, run_dir, REPO, "--dry-run")
    assert listed.returncode == 0, listed.stderr
    assert hub.requests == [] and "nothing was uploaded" in listed.stderr

    done = push(hub, tmp_path, run_dir, REPO)
    assert done.returncode == 0, done.stderr
    assert done.stdout == listed.stdout
    assert f"are at {hub.endpoint}/{REPO}" in done.stderr
    sizes = {name: int(size) for name, size in (line.split("\t") for line in done.stdout.splitlines())}
    uploaded = hub.files(REPO)
    assert {name: len(content) for name, content in uploaded.items() if name != ".gitattributes"} == sizes
    assert {name: (run_dir / name).read_bytes() for name in sizes}.items() <= uploaded.items()
    assert {"README.md", "config.json", "tokenizer.json", "recurrent.py", "metrics.json"} <= sizes.keys()
    assert f"PUT /large-files/{next(iter(hub.large_files))}" in hub.requests

    for ours, theirs in zip(what_the_folder_gives(run_dir), load_in_a_bare_process(hub, tmp_path, REPO), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)

    # A second push changes nothing that is there, on a branch neither.
    again = push(hub, tmp_path, run_dir, REPO, "--revision", "v2")
    assert again.returncode == 0, again.stderr
    assert hub.files(REPO, "v2") == uploaded
    assert len(load_in_a_bare_process(hub, tmp_path, REPO, "v2")) == 4


def test_push_to_hub_from_python(hub: HubServer, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "push.py").write_text(PUSH_FROM_PYTHON)
    done = run([tmp_path / "push.py", run_dir, "toy-model"], environment(hub, tmp_path / "home"), tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert hub.repositories[REPO].private
    uploaded = hub.files(REPO)
    assert {"modeling_seq2seq_attn.py", "tokenizer.json", "README.md"} <= uploaded.keys()
    ours = load_tensors((run_dir / "model.safetensors").read_bytes())
    theirs = load_tensors(uploaded["model.safetensors"])
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    for mine, back in zip(what_the_folder_gives(run_dir), load_in_a_bare_process(hub, tmp_path, REPO), strict=True):
        torch.testing.assert_close(mine, back, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("variables", "repo", "message"),
    [
        ({"HF_TOKEN": ""}, REPO, "push: no token of the Hub; log in by `hf auth login`, or set HF_TOKEN"),
        ({"HF_TOKEN": "hf_wrong"}, REPO, "check the token"),
        ({"HF_HUB_OFFLINE": "1"}, REPO, "push: HF_HUB_OFFLINE is set"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, REPO, "push: no answer from http://127.0.0.1:9"),
        ({}, "somebody/toy-model", "take a token that may write there"),
    ],
)
def test_what_stands_in_the_way_is_one_line(
    hub: HubServer, run_dir: Path, tmp_path: Path, variables: dict[str, str], repo: str, message: str
) -> None:
    done = push(hub, tmp_path, run_dir, repo, **variables)
    assert done.returncode == 2, done.stderr
    assert done.stdout == "" and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert hub.repositories == {}
