"""Changes of cross-attention: those of models whose weights make the change, in every family; no model is touched."""

import copy
import threading
from typing import Any

import pytest
import torch
from probes import SENTENCES, foreign_model, subword_tokenizer
from variants import OPTIONS, tiny_model

from hf_seq2seq_attn.probing import extract
from hf_seq2seq_attn.probing.importance import padded_weights
from hf_seq2seq_attn.probing.interventions import ChangeableModel, LayerCall
from hf_seq2seq_attn.probing.teacher_forcing import encode, make_batch, next_token_logits

TOKENIZER = subword_tokenizer()
OURS = {
    name: fields
    for name, fields in OPTIONS.items()
    if fields.get("cross_attention_type") != "none" and "decoder_vocab_size" not in fields
}
FOREIGN = [(family, backend) for family in ("marian", "bart", "m2m_100", "t5") for backend in ("eager", "sdpa")]


def bert_model() -> Any:
    from transformers import BertConfig, EncoderDecoderConfig, EncoderDecoderModel

    torch.manual_seed(2)
    sizes = dict(vocab_size=73, hidden_size=18, num_hidden_layers=2, num_attention_heads=3, intermediate_size=11)
    config = EncoderDecoderConfig.from_encoder_decoder_configs(BertConfig(**sizes), BertConfig(**sizes))
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 1, 0, 2
    return EncoderDecoderModel(config=config).eval()


def models() -> dict[str, Any]:
    """Return makers of a model of every kind."""
    makers: dict[str, Any] = {
        f"{family}-{backend}": lambda family=family, backend=backend: foreign_model(family, backend)
        for family, backend in FOREIGN
    }
    makers["bert"] = bert_model
    makers |= {name: lambda fields=fields: tiny_model(vocab_size=73, **fields) for name, fields in OURS.items()}
    return makers


MODELS = models()


def prepared(model: Any) -> tuple[ChangeableModel, Any, list[torch.Tensor]]:
    maps = list(extract(model, TOKENIZER, SENTENCES[:3], SENTENCES[1:4], align_with="output"))
    changeable = ChangeableModel(model, maps[0].weights.shape[1])
    batch = make_batch(changeable.model, maps)
    return changeable, batch, padded_weights(maps, batch)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_leaving_contexts_as_they_are_changes_nothing_and_they_are_weighted_sums(name: str) -> None:
    model = MODELS[name]()
    changeable, batch, weights = prepared(model)
    plain = next_token_logits(changeable.model, batch)
    calls: list[LayerCall] = []

    def keep(call: LayerCall) -> torch.Tensor:
        calls.append(call)
        return call.context

    with changeable.changed(keep):
        kept = next_token_logits(changeable.model, batch)
    assert torch.equal(kept, plain)
    changeable.check_sums(lambda: next_token_logits(changeable.model, batch), weights)
    # Every row of every layer was seen once, in order.
    for layer in range(changeable.layers):
        rows = [row for call in calls if call.layer == layer for row in range(call.rows.start, call.rows.stop)]
        assert rows == list(range(batch.labels.shape[1]))
    wrong = [each.roll(1, dims=-1) for each in weights]
    with pytest.raises(ValueError, match="does not sum the values of each head"):
        changeable.check_sums(lambda: next_token_logits(changeable.model, batch), wrong)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_encoding_once_and_one_row_give_the_same_logits(name: str) -> None:
    changeable, batch, _ = prepared(MODELS[name]())
    full = next_token_logits(changeable.model, batch)
    again = next_token_logits(changeable.model, batch, encode(changeable.model, batch))
    torch.testing.assert_close(again, full, atol=1e-5, rtol=1e-5)
    rows = torch.tensor([2, 0, 1])
    torch.testing.assert_close(
        next_token_logits(changeable.model, batch, rows=rows), full[torch.arange(3), rows], atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(next_token_logits(changeable.model, batch), full)


def with_parts_zeroed(model: Any, part: str, layer: int, head: int, heads: int) -> Any:
    """Return the model with a head's value (or query) projection set to zero: it is silent (or looks everywhere)."""
    changed = copy.deepcopy(model)
    names = {"value": (".v_proj", ".v", ".value"), "query": (".q_proj", ".q", ".query")}[part]
    cross = ("encoder_attn", "EncDecAttention", "crossattention.self")
    found = [
        module
        for name, module in changed.named_modules()
        if name.endswith(names) and any(part in name for part in cross)
    ]
    projection = found[layer]
    width = projection.weight.shape[0] // heads
    with torch.no_grad():
        projection.weight[head * width : (head + 1) * width] = 0
        if projection.bias is not None:
            projection.bias[head * width : (head + 1) * width] = 0
    return changed


@pytest.mark.parametrize(
    "name", ["marian-sdpa", "t5-eager", "bert", "previous_state_lstm_heads", "pre_norm_learned", "add_heads"]
)
@torch.no_grad()
def test_a_silent_head_and_a_uniform_one_are_those_of_models_made_so(name: str) -> None:
    model = MODELS[name]()
    changeable, batch, weights = prepared(model)
    layer, head = changeable.layers - 1, 1

    def silence(call: LayerCall) -> torch.Tensor:
        context = call.context.clone()
        if call.layer == layer:
            context[:, head] = 0
        return context

    with changeable.changed(silence):
        silent = next_token_logits(changeable.model, batch)
    expected = next_token_logits(with_parts_zeroed(model, "value", layer, head, changeable.heads), batch)
    torch.testing.assert_close(silent, expected, atol=1e-5, rtol=1e-4)
    assert (silent - next_token_logits(model, batch)).abs().max() > 1e-4
    if OURS.get(name, {}).get("cross_attention_type") == "additive":
        return
    readable = batch.attention_mask.float()
    even = (readable / readable.sum(1, keepdim=True))[:, None]

    def spread(call: LayerCall) -> torch.Tensor:
        context = call.context.clone()
        if call.layer == layer:
            own = weights[layer][:, head, call.rows]
            context[:, head] += (even - own) @ call.values[:, head]
        return context

    with changeable.changed(spread):
        uniform = next_token_logits(changeable.model, batch)
    torch.testing.assert_close(
        uniform[:, 0],
        next_token_logits(with_parts_zeroed(model, "query", layer, head, changeable.heads), batch)[:, 0],
        atol=1e-4,
        rtol=1e-4,
    )


@torch.no_grad()
def test_other_threads_compute_as_ever_and_the_model_keeps_no_hooks() -> None:
    model = foreign_model("bart", "sdpa")
    model.train()
    changeable, batch, _ = prepared(model)
    model.eval()
    before = next_token_logits(model, batch)
    seen: list[torch.Tensor] = []
    with changeable.changed(lambda call: torch.zeros_like(call.context)):
        silent = next_token_logits(changeable.model, batch)
        other = threading.Thread(target=lambda: seen.append(next_token_logits(model, batch)))
        other.start()
        other.join()
    assert torch.equal(seen[0], before)
    assert not torch.allclose(silent, before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.equal(next_token_logits(model, batch), before)
    # The change ends with its block.
    assert torch.allclose(next_token_logits(changeable.model, batch), before, atol=1e-5)


def test_a_pass_that_goes_round_the_hooks_is_noticed() -> None:
    changeable = ChangeableModel(foreign_model("marian"), 3)
    with (
        pytest.raises(ValueError, match="layer 0 of MarianMTModel never called"),
        changeable.changed(lambda call: call.context),
    ):
        pass


def test_models_that_cannot_be_changed_are_refused_in_words() -> None:
    model = foreign_model("marian")
    for module in model.modules():
        if hasattr(module, "encoder_attn"):
            module.encoder_attn.renamed = module.encoder_attn.v_proj
            del module.encoder_attn.v_proj
    with pytest.raises(ValueError, match="no value and output projection of a known name"):
        ChangeableModel(model, 3)
    from transformers import GPT2Config, GPT2LMHeadModel

    with pytest.raises(ValueError, match="not an encoder-decoder"):
        ChangeableModel(GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=4, vocab_size=7)), 1)
