"""What is saved is what is loaded: by class, by Auto class, and where our package does not exist."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSeq2SeqLM
from variants import CASES, source_batch, target_batch, tiny_model

from hf_seq2seq_attn import Seq2SeqAttnForConditionalGeneration, Seq2SeqAttnModel

BARE_PROCESS = """
import importlib.util, json, sys
sys.path = [p for p in sys.path if p]
sys.meta_path = [f for f in sys.meta_path if "editable" not in getattr(f, "__name__", type(f).__name__).lower()]
assert importlib.util.find_spec("hf_seq2seq_attn") is None, "the package must not be here"
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM
folder, again = sys.argv[1:3]
inputs = json.load(open(sys.argv[3]))
ids, mask, target = (torch.tensor(inputs[name]) for name in ("ids", "mask", "target"))
for loader in (AutoConfig, AutoModelForSeq2SeqLM):
    try:
        loader.from_pretrained(folder)
    except ValueError as error:
        assert "trust_remote_code=True" in str(error)
    else:
        raise AssertionError("code of strangers ran unasked")
config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
assert config.model_type == "seq2seq_attn"
model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True).eval()
assert type(model).__module__.startswith("transformers_modules.")
base = AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
with torch.no_grad():
    out = model(ids, attention_mask=mask, decoder_input_ids=target, output_attentions=True)
    states = base(ids, attention_mask=mask, decoder_input_ids=target).last_hidden_state
    beams = model.generate(ids, attention_mask=mask, num_beams=4, max_new_tokens=8)
model.save_pretrained(again)
reloaded = AutoModelForSeq2SeqLM.from_pretrained(again, trust_remote_code=True).eval()
assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), reloaded.state_dict().values()))
tensors = model.state_dict() | dict(model.named_buffers())
torch.save([out.logits, states, beams, torch.stack(out.cross_attentions), tensors], sys.argv[4])
"""


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
def test_reload_is_bit_equal(fields: dict, tmp_path) -> None:
    model = tiny_model(**fields)
    model.save_pretrained(tmp_path)
    for loader in (Seq2SeqAttnForConditionalGeneration, AutoModelForSeq2SeqLM):
        again, info = loader.from_pretrained(tmp_path, output_loading_info=True)
        assert type(again) is Seq2SeqAttnForConditionalGeneration
        assert not info["missing_keys"] and not info["unexpected_keys"]
        assert again.state_dict().keys() == model.state_dict().keys()
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, again.state_dict()[name]), name
    base = AutoModel.from_pretrained(tmp_path)
    assert type(base) is Seq2SeqAttnModel
    for name, tensor in model.model.state_dict().items():
        assert torch.equal(tensor, base.state_dict()[name]), name


@pytest.mark.parametrize(
    ("fields", "tables"),
    [
        ({}, {"model.encoder.embed_tokens.weight"}),
        ({"tie_word_embeddings": False}, {"model.encoder.embed_tokens.weight", "lm_head.weight"}),
        (
            {"share_encoder_decoder_embeddings": False},
            {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"},
        ),
        (
            {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
            {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"},
        ),
    ],
)
def test_a_shared_table_is_saved_once(fields: dict, tables: set[str], tmp_path) -> None:
    tiny_model(**fields).save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert {name for name in saved if "embed_tokens" in name or "lm_head" in name} == tables


def test_missing_weights_are_initialised_not_left_as_they_lie_in_memory(tmp_path) -> None:
    for fields in (
        {"encoder_type": "gru", "decoder_type": "lstm", "cross_attention_type": "additive", "null_key": True},
        {},
    ):
        model = tiny_model(**fields)
        model.save_pretrained(tmp_path, state_dict={"lm_head.weight": model.lm_head.weight})
        again = Seq2SeqAttnForConditionalGeneration.from_pretrained(tmp_path)
        for name, parameter in again.named_parameters():
            assert torch.isfinite(parameter).all() and parameter.abs().max() <= 6, name


@pytest.mark.parametrize(
    "name", ["gru-gru-additive", "transformer-transformer-scaled_dot_product", "input_feeding_gate"]
)
def test_loads_where_the_package_does_not_exist(name: str, tmp_path) -> None:
    model = tiny_model(**CASES[name])
    folder, again, result = tmp_path / "model", tmp_path / "again", tmp_path / "result.pt"
    model.save_pretrained(folder)
    assert not [file.name for file in folder.iterdir() if file.suffix in (".bin", ".pt", ".pkl")]
    (ids, mask), target = source_batch(), target_batch()
    inputs = tmp_path / "inputs.json"
    inputs.write_text(json.dumps({"ids": ids.tolist(), "mask": mask.tolist(), "target": target.tolist()}))
    script = tmp_path / "bare.py"
    script.write_text(BARE_PROCESS)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV"))}
    environment |= {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path / "home"),
        "HF_MODULES_CACHE": str(tmp_path / "modules"),
    }
    run = subprocess.run(
        [sys.executable, "-P", script, folder, again, inputs, result],
        env=environment, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    logits, states, beams, maps, tensors = torch.load(result)
    own = model.state_dict() | dict(model.named_buffers())
    assert tensors.keys() == own.keys() and all(torch.equal(tensors[name], own[name]) for name in own)
    with torch.no_grad():
        wanted = model(ids, attention_mask=mask, decoder_input_ids=target, output_attentions=True)
        wanted_states = model.model(ids, attention_mask=mask, decoder_input_ids=target).last_hidden_state
    assert torch.allclose(logits, wanted.logits, atol=1e-6)
    assert torch.allclose(maps, torch.stack(wanted.cross_attentions), atol=1e-6)
    assert torch.allclose(states, wanted_states, atol=1e-6)
    assert torch.equal(beams, model.generate(ids, attention_mask=mask, num_beams=4, max_new_tokens=8))
    assert {file.name for file in again.glob("*.py")} == {file.name for file in folder.glob("*.py")}


def test_the_folder_holds_exactly_the_files_that_the_model_needs(tmp_path) -> None:
    tiny_model().save_pretrained(tmp_path)
    assert {file.name for file in tmp_path.glob("*.py")} == {
        "configuration_seq2seq_attn.py", "context_fusion.py", "cross_attention.py", "modeling_seq2seq_attn.py",
        "recurrent.py", "recurrent_cache.py", "side.py", "transformer.py",
        "fast_attention.py", "fast_beams.py", "fast_generation.py", "fast_linear.py", "fast_recurrent.py",
        "fast_scores.py", "fast_transformer.py", "additive_scores.py", "cpu_kernels.py", "loop_gradients.py",
        "loop_twins.py", "plain_forms.py", "recurrent_gates.py", "vocabulary_loss.py",
    }  # fmt: skip
    auto_map = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    assert auto_map == {
        "AutoConfig": "configuration_seq2seq_attn.Seq2SeqAttnConfig",
        "AutoModel": "modeling_seq2seq_attn.Seq2SeqAttnModel",
        "AutoModelForSeq2SeqLM": "modeling_seq2seq_attn.Seq2SeqAttnForConditionalGeneration",
    }
