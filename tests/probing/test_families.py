"""Every family of encoder-decoders gives its own eager maps, by name of output or module, under any backend."""

from typing import Any

import numpy as np
import pytest
import torch
from families import FAMILIES, family_model
from peft import LoraConfig, PromptTuningConfig, TaskType, get_peft_model
from probes import EOS, subword_tokenizer
from transformers import BertConfig, EncoderDecoderConfig, EncoderDecoderModel

from hf_seq2seq_attn.probing import AttentionMaps, SentenceError, extract

TOKENIZER = subword_tokenizer()
SOURCES = ["the cats love", ["I", "love", "cats,"], "", "understand  this unloved day today."]
TARGETS = [["love", "cats"], "you don't", "this", "the cats today"]
# Told apart by nothing in the code; LED, FSMT, LongT5 return weights only to those who ask.
READABLE = [name for name in FAMILIES if name != "prophetnet"]
WITH_SDPA = ["mbart", "pegasus", "bert2bert", "bert2gpt2", "blenderbot", "m2m_100", "t5"]


def teacher_forced(model: Any, maps: AttentionMaps) -> np.ndarray:
    """Return the model's own maps (L, H, 1 + T, S) of one pair by itself."""
    with torch.no_grad():
        outputs = model(
            input_ids=torch.tensor([maps.source.ids]),
            attention_mask=torch.ones(1, len(maps.source.ids), dtype=torch.long),
            decoder_input_ids=torch.tensor([[model.config.decoder_start_token_id, *maps.target.ids]]),
            output_attentions=True,
            # FSMT decodes without a causal mask otherwise.
            use_cache=False,
        )
    return torch.cat(outputs.cross_attentions).numpy()


def assert_equal_to_eager(found: list[AttentionMaps], eager: Any, offset: int) -> None:
    assert len(found) == len(SOURCES)
    for maps in found:
        rows = len(maps.target.ids)
        np.testing.assert_allclose(maps.weights, teacher_forced(eager, maps)[:, :, offset : offset + rows], atol=1e-5)
        np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-5)
    # The maps are not all alike, so that a wrong row or layer would show.
    assert np.ptp(found[3].weights, axis=3).min() > 1e-5


@pytest.mark.parametrize("family", READABLE)
def test_equal_to_the_models_own_eager_attentions(family: str) -> None:
    eager = family_model(family)
    for align_with, offset in (("output", 0), ("input", 1)):
        found = list(extract(eager, TOKENIZER, SOURCES, TARGETS, align_with=align_with, batch_size=3))
        assert_equal_to_eager(found, eager, offset)


@pytest.mark.parametrize("family", WITH_SDPA)
def test_under_sdpa_the_same_maps(family: str) -> None:
    model = family_model(family, "sdpa")
    assert model.config._attn_implementation == "sdpa"
    found = list(extract(model, TOKENIZER, SOURCES, TARGETS, align_with="input", batch_size=2))
    assert_equal_to_eager(found, family_model(family), 1)
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("family", ["pegasus", "bert2gpt2", "led", "longt5", "fsmt"])
def test_chosen_layers_and_heads_of_every_way_to_return_weights(family: str) -> None:
    model = family_model(family, "own")
    (whole,) = extract(model, TOKENIZER, SOURCES[:1], TARGETS[:1])
    (part,) = extract(model, TOKENIZER, SOURCES[:1], TARGETS[:1], layers=[-1, 0], heads=[2, 0])
    assert part.layers == (len(whole.layers) - 1, 0)
    assert part.heads == (2, 0)
    np.testing.assert_array_equal(part.weights, whole.weights[[-1, 0]][:, [2, 0]])
    for wrong in (dict(layers=[7]), dict(heads=[3])):
        with pytest.raises(ValueError, match="does not exist"):
            list(extract(model, TOKENIZER, SOURCES[:1], TARGETS[:1], **wrong))


def test_what_is_no_attention_is_refused_in_words() -> None:
    # ProphetNet reports scores before softmax, for its n-gram streams too.
    with pytest.raises(ValueError, match=r"ProphetNet.* is not attention of"):
        list(extract(family_model("prophetnet"), TOKENIZER, SOURCES[:1], TARGETS[:1]))


def test_a_decoder_without_cross_attention_is_refused_in_words() -> None:
    sizes = dict(vocab_size=73, hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=10)
    config = EncoderDecoderConfig.from_encoder_decoder_configs(BertConfig(**sizes), BertConfig(**sizes))
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 1, 0, EOS
    model = EncoderDecoderModel(config=config)
    model.config.decoder.add_cross_attention = False
    with pytest.raises(ValueError, match="add_cross_attention=False: there is no attention"):
        extract(model, TOKENIZER, SOURCES[:1], TARGETS[:1])


@pytest.mark.parametrize(("family", "side", "limit"), [("bert2gpt2", "target", 40), ("bert2bert", "source", 40),
                                                       ("led", "source", 60), ("led", "target", 40)])  # fmt: skip
def test_positions_of_models_that_count_them_elsewhere(family: str, side: str, limit: int) -> None:
    short, long = ["cats"], ["cats " * 70]
    sides = (long, short) if side == "source" else (short, long)
    with pytest.raises(SentenceError, match=f"{side} sentence 1: .*max_position_embeddings={limit}.*split"):
        list(extract(family_model(family), TOKENIZER, *sides))


def adapted(model: Any) -> Any:
    config = LoraConfig(r=2, target_modules=["q_proj", "k_proj", "v_proj", "out_proj"], task_type=TaskType.SEQ_2_SEQ_LM,
                        lora_dropout=0.4)  # fmt: skip
    wrapped = get_peft_model(model, config)
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.5)
    return wrapped


# What peft asks transformers for, not we.
PEFT_ASKS = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


@PEFT_ASKS
@pytest.mark.parametrize("weights", ["attention", "norm"])
def test_adapters_count(weights: str) -> None:
    plain = [maps.weights for maps in extract(family_model("mbart"), TOKENIZER, SOURCES, TARGETS, weights=weights)]
    wrapped = adapted(family_model("mbart", "sdpa"))
    assert wrapped.training
    found = list(extract(wrapped, TOKENIZER, SOURCES, TARGETS, weights=weights, batch_size=2))
    assert wrapped.training
    assert np.abs(found[0].weights - plain[0]).max() > 0.01
    if weights == "attention":
        wrapped.eval()
        wrapped.set_attn_implementation("eager")
        assert_equal_to_eager(found, wrapped, 1)
    merged = wrapped.eval().merge_and_unload()
    for maps, own in zip(found, extract(merged, TOKENIZER, SOURCES, TARGETS, weights=weights), strict=True):
        np.testing.assert_allclose(maps.weights, own.weights, atol=1e-4)


@PEFT_ASKS
def test_prompts_that_add_source_positions_are_refused_in_words() -> None:
    config = PromptTuningConfig(task_type=TaskType.SEQ_2_SEQ_LM, num_virtual_tokens=3)
    with pytest.raises(ValueError, match="this model cannot be probed"):
        list(extract(get_peft_model(family_model("bart"), config), TOKENIZER, SOURCES[:1], TARGETS[:1]))


@pytest.mark.parametrize("offloaded", [False, True])
def test_dispatched_models(offloaded: bool, tmp_path: Any) -> None:
    from accelerate import cpu_offload, dispatch_model

    expected = list(extract(family_model("t5"), TOKENIZER, SOURCES, TARGETS, weights="norm"))
    model = family_model("t5", "sdpa")
    if offloaded:
        model = cpu_offload(model, execution_device=torch.device("cpu"))
        assert model.device.type == "meta"
    else:
        placed = dict.fromkeys(("shared", "encoder", "decoder", "lm_head"), "cpu")
        model = dispatch_model(model, placed, force_hooks=True)
    found = list(extract(model, TOKENIZER, SOURCES, TARGETS, weights="norm", batch_size=2))
    for maps, own in zip(found, expected, strict=True):
        np.testing.assert_allclose(maps.weights, own.weights, atol=1e-5)
    if offloaded:
        assert all(parameter.is_meta for parameter in model.parameters())
