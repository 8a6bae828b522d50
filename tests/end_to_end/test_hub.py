"""Sharing shown whole: push a trained folder with the real client, load it back by its name where we do not exist."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hub_server import TOKEN, USER, HubServer, running_hub
from safetensors.torch import load as load_tensors
from variants import tiny_model

from hf_seq2seq_attn.tokenizer_pair import TokenizerPair, sides
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.tokenization import train_tokenizer
from hf_seq2seq_attn.training.train import train
from hf_seq2seq_attn.translation import load_seq2seq

REPO = f"{USER}/toy-model"
SENTENCES = ["ab cd ef", "gh ef", "cd cd ab gh ij"]

RECIPE = """\
name: toy
data: {train: {source: train.source, target: train.target}, max_target_length: 12}
tokenizer: {vocab_size: 60, separate: true, target_vocab_size: 19}
model: {encoder_type: gru, decoder_type: lstm, cross_attention_type: additive, encoder_layers: 1, decoder_layers: 1,
  d_model: 16, dropout: 0.0, init_std: 0.4}
training: {max_steps: 12, per_device_train_batch_size: 8, learning_rate: 2e-2}
"""

BARE_PROCESS = """
import importlib.util, json, sys
sys.path = [p for p in sys.path if p]
sys.meta_path = [f for f in sys.meta_path if "editable" not in getattr(f, "__name__", type(f).__name__).lower()]
assert importlib.util.find_spec("hf_seq2seq_attn") is None, "the package must not be here"
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
repo, target_folder, revision, result, sentences = sys.argv[1:]
there = {"revision": revision, "trust_remote_code": True}
assert AutoConfig.from_pretrained(repo, **there).model_type == "seq2seq_attn"
tokenizer = AutoTokenizer.from_pretrained(repo, **there)
target_tokenizer = AutoTokenizer.from_pretrained(repo, subfolder=target_folder, **there)
batch = tokenizer(json.loads(sentences), padding=True, return_tensors="pt")
model = AutoModelForSeq2SeqLM.from_pretrained(repo, **there).eval()
assert type(model).__module__.startswith("transformers_modules.")
base = AutoModel.from_pretrained(repo, **there).eval()
target = torch.tensor([[1, 5, 6, 7]] * len(batch["input_ids"]))
with torch.no_grad():
    out = model(**batch, decoder_input_ids=target, output_attentions=True)
    states = base(**batch, decoder_input_ids=target).last_hidden_state
    beams = model.generate(**batch, num_beams=4, max_new_tokens=8)
texts = target_tokenizer.batch_decode(beams, skip_special_tokens=True)
torch.save([out.logits, torch.stack(out.cross_attentions), states, beams, texts], result)
"""

PUSH_FROM_PYTHON = """
import sys
from hf_seq2seq_attn.training.hub import push
from hf_seq2seq_attn.translation import load_seq2seq
model, tokenizer = load_seq2seq(sys.argv[1])
model.push_to_hub("toy-model", private=True)
tokenizer.push_to_hub("toy-model")
print(push(sys.argv[2], "toy-model", revision="v2").url)
"""


REFUSED = """
import sys
import huggingface_hub.constants
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.hub import push
for owner, token in (("tester", "hf_wrong"), ("somebody", None), ("tester", None)):
    if owner == "tester" and token is None:
        huggingface_hub.constants.ENDPOINT = "http://127.0.0.1:9"
    try:
        push(sys.argv[1], owner + "/toy-model", token=token)
    except InputError as error:
        print(error)
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


def run(
    hub: HubServer, folder: Path, arguments: list[str | Path], **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a process that knows this Hub and nothing of this test run."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV", "HF_"))}
    kept |= {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "HF_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    # The local Hub speaks the older of the client's two protocols for large files.
    kept |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1,localhost"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, env=kept | variables, cwd=folder, capture_output=True, text=True, check=False, timeout=200
    )


def load_in_a_bare_process(hub: HubServer, folder: Path, target_folder: str, revision: str = "main") -> list:
    (folder / "bare.py").write_text(BARE_PROCESS)
    arguments = ["-P", folder / "bare.py", REPO, target_folder, revision, folder / "result.pt", json.dumps(SENTENCES)]
    elsewhere = {"HF_HOME": str(folder / "other_home"), "HF_MODULES_CACHE": str(folder / "modules")}
    done = run(hub, folder, arguments, **elsewhere)
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(folder / "result.pt")


def check_it_gives_the_same(run_dir: Path, loaded: list) -> None:
    model, tokenizer = load_seq2seq(run_dir)
    source_tokenizer, target_tokenizer = sides(tokenizer)
    batch = source_tokenizer(SENTENCES, padding=True, return_tensors="pt")
    target = torch.tensor([[1, 5, 6, 7]] * len(SENTENCES))
    with torch.no_grad():
        out = model(**batch, decoder_input_ids=target, output_attentions=True)
        states = model.model(**batch, decoder_input_ids=target).last_hidden_state
        beams = model.generate(**batch, num_beams=4, max_new_tokens=8)
    for here, there in zip([out.logits, torch.stack(out.cross_attentions), states], loaded[:3], strict=True):
        torch.testing.assert_close(here, there, rtol=0, atol=1e-6)
    assert torch.equal(beams, loaded[3])
    texts = target_tokenizer.batch_decode(beams, skip_special_tokens=True)
    assert texts == loaded[4] and any(texts)


def test_push_and_load_where_the_package_does_not_exist(hub: HubServer, run_dir: Path, tmp_path: Path) -> None:
    done = run(hub, tmp_path, ["-m", "hf_seq2seq_attn.cli", "push", run_dir, REPO])
    assert done.returncode == 0, done.stderr
    assert f"are at {hub.endpoint}/{REPO}" in done.stderr
    sizes = {name: int(size) for name, size in (line.split("\t") for line in done.stdout.splitlines())}
    uploaded = hub.files(REPO)
    assert {name: len(content) for name, content in uploaded.items() if name != ".gitattributes"} == sizes
    assert {name: (run_dir / name).read_bytes() for name in sizes}.items() <= uploaded.items()
    assert {"README.md", "config.json", "tokenizer.json", "target_tokenizer/tokenizer.json"} <= sizes.keys()
    assert {"modeling_seq2seq_attn.py", "recurrent.py", "metrics.json", "recipe.yaml"} <= sizes.keys()
    assert not hub.repositories[REPO].private
    # The weights went by the protocol of large files.
    assert [f"PUT /large-files/{oid}" in hub.requests for oid in hub.large_files] == [True]
    assert isinstance(load_seq2seq(run_dir)[1], TokenizerPair)
    check_it_gives_the_same(run_dir, load_in_a_bare_process(hub, tmp_path, "target_tokenizer"))


def test_push_to_hub_from_python(hub: HubServer, run_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tiny_model(vocab_size=40).save_pretrained(folder)
    train_tokenizer(SENTENCES, vocab_size=40).save_pretrained(folder)
    (tmp_path / "push.py").write_text(PUSH_FROM_PYTHON)
    done = run(hub, tmp_path, [tmp_path / "push.py", folder, run_dir])
    assert done.returncode == 0, done.stderr[-3000:]
    assert hub.repositories[REPO].private
    uploaded = hub.files(REPO)
    assert {"modeling_seq2seq_attn.py", "transformer.py", "tokenizer.json", "README.md"} <= uploaded.keys()
    ours = load_tensors((folder / "model.safetensors").read_bytes())
    theirs = load_tensors(uploaded["model.safetensors"])
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    check_it_gives_the_same(folder, load_in_a_bare_process(hub, tmp_path, ""))

    # The other model lies on a branch beside it, and main is as it was.
    assert done.stdout.strip() == f"{hub.endpoint}/{REPO}/tree/v2"
    assert hub.files(REPO, "v2")["model.safetensors"] == (run_dir / "model.safetensors").read_bytes()
    assert hub.files(REPO) == uploaded


def test_a_refusal_of_the_hub_is_one_line_with_its_remedy(hub: HubServer, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "push.py").write_text(REFUSED)
    done = run(hub, tmp_path, [tmp_path / "push.py", run_dir])
    assert done.returncode == 0, done.stderr[-3000:]
    wrong_token, foreign, no_network = done.stdout.splitlines()
    assert re.search(r"refused by .*Invalid username or password.*; check the token", wrong_token)
    assert re.search(r"refused by .*You don't have the rights .*; take a token that may write there", foreign)
    assert re.search(r"no answer from http://127.0.0.1:9 .*; check the network", no_network)
    assert hub.repositories == {}
