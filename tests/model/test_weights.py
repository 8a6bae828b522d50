"""Weights that travel: tied or not, resized, in shards, in half precision, with keys missing; never as a pickle."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from probes import word_tokenizer
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainingArguments
from variants import CASES, SOURCE_VOCAB, TARGET_VOCAB, source_batch, target_batch, tiny_model

from hf_seq2seq_attn import Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.training.trainer import Seq2SeqAttnTrainer

all_cases = pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": TARGET_VOCAB}
FORMS = [
    {**vocabularies, "tie_word_embeddings": tied, "decoder_type": decoder}
    for vocabularies, tied, decoder in itertools.product(({}, SEPARATE), (True, False), ("transformer", "lstm"))
]
every_form = pytest.mark.parametrize(
    "fields",
    FORMS,
    ids=lambda f: "-".join(
        [
            "two" if "decoder_vocab_size" in f else "one",
            "tied" if f["tie_word_embeddings"] else "untied",
            f["decoder_type"],
        ]
    ),
)


def tables(model: Any) -> tuple[torch.nn.Parameter, torch.nn.Parameter, torch.nn.Parameter]:
    return model.model.encoder.embed_tokens.weight, model.model.decoder.embed_tokens.weight, model.lm_head.weight


def logits(model: Any) -> torch.Tensor:
    ids, mask = source_batch()
    with torch.no_grad():
        return model(ids.clamp(max=18), attention_mask=mask, decoder_input_ids=target_batch().clamp(max=18)).logits


def assert_equal(model: Any, again: Any) -> None:
    assert again.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def assert_tied_as_configured(model: Any) -> None:
    source, target, output = tables(model)
    assert (source is target) == model.config.share_encoder_decoder_embeddings
    assert (output is target) == model.config.tie_word_embeddings
    assert model.get_output_embeddings().weight is output and model.get_input_embeddings().weight is source


@every_form
@pytest.mark.parametrize(("source_size", "target_size"), [(37, 31), (19, 19)], ids=["up", "down"])
def test_resized_models_keep_what_they_knew_and_reload(
    fields: dict, source_size: int, target_size: int, tmp_path: Path
) -> None:
    model = tiny_model(**fields)
    before = [table.detach().clone() for table in tables(model)]
    wanted = logits(model)
    model.resize_token_embeddings(source_size)
    if fields.get("share_encoder_decoder_embeddings", True):
        target_size = source_size
    else:
        model.resize_decoder_token_embeddings(target_size)
    model.save_pretrained(tmp_path)
    again = Seq2SeqAttnForConditionalGeneration.from_pretrained(tmp_path)
    for one in (model, again):
        assert_tied_as_configured(one)
        assert (one.config.vocab_size, one.config.target_vocab_size) == (source_size, target_size)
        assert [len(table) for table in tables(one)] == [source_size, target_size, target_size]
        assert (one.lm_head.in_features, one.lm_head.out_features) == (one.config.d_model, target_size)
        for table, old in zip(tables(one), before, strict=True):
            kept = min(len(table), len(old))
            assert torch.equal(table[:kept], old[:kept]) and torch.isfinite(table).all()
        found = logits(one)
        kept = min(found.shape[-1], wanted.shape[-1])
        assert torch.allclose(found[..., :kept], wanted[..., :kept], atol=1e-5)
    assert_equal(model, again)
    ids, mask = source_batch()
    assert model.generate(ids.clamp(max=18), attention_mask=mask, num_beams=3, max_new_tokens=9).max() < target_size


@every_form
def test_a_step_after_reloading_moves_tied_tables_as_one(fields: dict, tmp_path: Path) -> None:
    tiny_model(**fields).save_pretrained(tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert_tied_as_configured(model)
    ids, mask = source_batch()
    model(ids, attention_mask=mask, labels=target_batch()).loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert_tied_as_configured(model)
    assert len({id(table) for table in tables(model)}) == 3 - fields["tie_word_embeddings"] - (len(fields) == 2)


def test_resizing_the_target_of_a_shared_table_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="one table serves both sides: use resize_token_embeddings"):
        tiny_model().resize_decoder_token_embeddings(31)


@all_cases
def test_missing_keys_are_initialised_as_in_a_new_model(fields: dict, tmp_path: Path) -> None:
    model = tiny_model(sharp=None, **fields)
    kept = "model.encoder.embed_tokens.weight"
    model.save_pretrained(tmp_path, state_dict={kept: model.state_dict()[kept]})
    again = Seq2SeqAttnForConditionalGeneration.from_pretrained(tmp_path)
    assert torch.equal(again.state_dict()[kept], model.state_dict()[kept])
    for (name, found), new in zip(again.named_parameters(), model.parameters(), strict=True):
        constant = bool((new == new.flatten()[0]).all())
        if constant:
            assert torch.equal(found, new), name
        else:
            assert found.unique().numel() > found.numel() // 2, f"{name} was left as it lay in memory"
            assert 0.4 < found.std() / new.std() < 2.5 and found.abs().max() < 10 * new.std(), name


@every_form
def test_shards_are_put_together_again(fields: dict, tmp_path: Path) -> None:
    model = tiny_model(**fields)
    model.save_pretrained(tmp_path, max_shard_size="3KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 2 and not (tmp_path / "model.safetensors").exists()
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(index) == {name for shard in shards for name in load_file(shard)}
    assert_equal(model, AutoModelForSeq2SeqLM.from_pretrained(tmp_path))


@every_form
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_what_it_is(fields: dict, dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny_model(**fields).to(dtype)
    model.save_pretrained(tmp_path)
    assert {tensor.dtype for tensor in load_file(tmp_path / "model.safetensors").values()} == {dtype}
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert {p.dtype for p in again.parameters()} == {dtype} and again.config.dtype == dtype
    assert_equal(model, again)
    wide = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert {p.dtype for p in wide.parameters()} == {torch.float32}
    assert_equal(model.float(), wide)


def test_nothing_that_is_saved_is_a_pickle(tmp_path: Path) -> None:
    model = tiny_model()
    model.save_pretrained(tmp_path / "plain")
    trainer = Seq2SeqAttnTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            output_dir=str(tmp_path / "run"), use_cpu=True, report_to="none", disable_tqdm=True
        ),
        processing_class=word_tokenizer(),
    )
    trainer.save_model()
    trainer.save_model(str(tmp_path / "named"))
    for folder in ("plain", "run", "named"):
        files = {file for file in (tmp_path / folder).rglob("*") if file.is_file()}
        assert {file.name for file in files} >= {"config.json", "model.safetensors", "generation_config.json"}
        assert {file.suffix for file in files} <= {".json", ".safetensors", ".py", ".jinja"}
        for file in files:
            # A pickle of protocol 2 or later begins with \\x80, torch's archive of one with PK.
            assert file.read_bytes()[:1] != b"\x80" and file.read_bytes()[:2] != b"PK", file
    assert (tmp_path / "run" / "tokenizer.json").exists() and model.config.vocab_size == SOURCE_VOCAB
