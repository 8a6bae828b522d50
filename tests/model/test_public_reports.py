"""What users of such models report in public, tried on ours; each test names the thread it comes from."""

import inspect
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from one_step import KINDS, examples
from probes import word_tokenizer
from transformers import (
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    GenerationMixin,
    PreTrainedModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    pipelines,
)
from variants import ATTENTIVE, CASES, EOS, PAD, SOURCE, source_batch, target_batch, tiny_config, tiny_model

from hf_seq2seq_attn import Seq2SeqAttnForConditionalGeneration, Seq2SeqAttnModel

every_kind = pytest.mark.parametrize("fields", KINDS.values(), ids=KINDS)
attentive = pytest.mark.parametrize("fields", ATTENTIVE.values(), ids=ATTENTIVE)
DECODERS = {
    name: CASES[name]
    for name in ("transformer-transformer-additive", "gru-gru-additive", "input_feeding", "previous_state_lstm_heads")
}
every_decoder = pytest.mark.parametrize("fields", DECODERS.values(), ids=DECODERS)


@attentive
def test_a_model_loaded_for_fused_attention_gives_maps(fields: dict, tmp_path: Path) -> None:
    """transformers #26572, #30652: attentions are an empty tuple under sdpa, in forward and in generate."""
    tiny_model(**fields).save_pretrained(tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, attn_implementation="sdpa").eval()
    assert model.config._attn_implementation == "sdpa"
    layers, heads = (1 if model.config.decoder_is_recurrent else 2), model.config.cross_attention_heads
    ids, mask = source_batch()
    target = target_batch()
    plain = model(ids, attention_mask=mask, decoder_input_ids=target)
    asked = model(ids, attention_mask=mask, decoder_input_ids=target, output_attentions=True)
    torch.testing.assert_close(asked.logits, plain.logits, rtol=1e-5, atol=1e-4)
    assert [tuple(each.shape) for each in asked.cross_attentions] == [(3, heads, target.shape[1], SOURCE)] * layers
    model.generation_config.eos_token_id = None
    said = model.generate(
        ids, attention_mask=mask, max_new_tokens=4, return_dict_in_generate=True, output_attentions=True
    )
    shapes = [[tuple(each.shape) for each in step] for step in said.cross_attentions]
    assert shapes == [[(3, heads, 1, SOURCE)] * layers] * 4


@every_decoder
@pytest.mark.parametrize("beams", [1, 2, 5])
def test_any_number_of_beams_and_sentences(fields: dict, beams: int) -> None:
    """transformers #46612, #29730, neuralmonkey #679: a state that is not reordered, or right for one sentence only."""
    model = tiny_model(seed=3, **fields)
    for batch in (1, 3):
        ids, mask = source_batch(seed=batch, batch=batch)
        asked = {"num_beams": beams, "num_return_sequences": beams, "max_new_tokens": 9}
        cached, plain = (model.generate(ids, attention_mask=mask, use_cache=use, **asked) for use in (True, False))
        assert torch.equal(cached, plain) and len(cached) == batch * beams


def best_of_all(model: Any, ids: torch.Tensor, length: int) -> tuple[list[int], float]:
    """Return the most probable sentence of at most `length` tokens, and its log-probability, by trying each one."""
    size, start = model.config.target_vocab_size, model.config.decoder_start_token_id
    every = torch.tensor(list(itertools.product(range(size), repeat=length)))
    inputs = torch.cat([torch.full((len(every), 1), start), every[:, :-1]], 1)
    with torch.no_grad():
        logits = model(ids.expand(len(every), -1), decoder_input_ids=inputs).logits
    steps = torch.log_softmax(logits, -1).gather(2, every[..., None])[..., 0]
    ended = (every == EOS).int()
    steps = steps.masked_fill(ended.cumsum(1) - ended > 0, 0)
    best = int(steps.sum(1).argmax())
    tokens = every[best].tolist()
    return tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens, float(steps[best].sum())


@every_decoder
def test_as_many_beams_as_sentences_find_the_best_of_all(fields: dict) -> None:
    """transformers #29730: more beams give worse sentences. With room for all of them nothing better may exist."""
    length, worse = 3, 0
    for seed in range(6):
        model = tiny_model(seed=seed, **fields, vocab_size=6)
        ids = torch.tensor([[4, 3, 5, 2]])
        tokens, score = best_of_all(model, ids, length)
        asked = {"max_new_tokens": length, "return_dict_in_generate": True, "output_scores": True}
        found = model.generate(ids, num_beams=36, length_penalty=0.0, **asked)
        assert found.sequences_scores.item() == pytest.approx(score, abs=1e-4)
        said = found.sequences[0, 1:].tolist()
        assert said[: len(tokens)] == tokens and set(said[len(tokens) :]) <= {PAD}
        greedy = model.generate(ids, **asked).sequences[0, 1:].tolist()
        worse += greedy[: len(tokens)] != tokens
    assert worse, "the most probable word was right each time: this test would show nothing"


def test_beams_find_more_probable_sentences_than_greedy() -> None:
    """Beams may lose the greedy sentence on the way, so 'never worse' is no theorem; 'seldom, and not on average' is
    what a state that follows the wrong beam does not reach."""
    gains = []
    for seed in range(50):
        model = tiny_model(seed=seed, encoder_type="gru", decoder_type="gru")
        ids, mask = source_batch(batch=1)
        asked = {"max_new_tokens": 8, "return_dict_in_generate": True, "output_scores": True}
        beams = model.generate(ids, attention_mask=mask, num_beams=4, length_penalty=0.0, **asked)
        greedy = model.generate(ids, attention_mask=mask, **asked)
        steps = model.compute_transition_scores(greedy.sequences, greedy.scores, normalize_logits=True)[0]
        said = greedy.sequences[0, 1:].tolist()
        length = said.index(EOS) + 1 if EOS in said else len(said)
        gains.append(beams.sequences_scores.item() - steps[:length].sum().item())
    assert sum(gain > -1e-4 for gain in gains) >= 45
    assert sum(gains) / len(gains) > 1


@every_kind
def test_a_batch_padded_beyond_its_longest_sentence(fields: dict) -> None:
    """pytorch #43227, ParlAI PR #2910: packing drops the columns that are padding in every row."""
    model = tiny_model(**fields)
    ids, mask = source_batch(batch=2, length=5)
    mask[:, 4:] = 0
    ids = ids.masked_fill(mask == 0, PAD)
    inputs = {"decoder_input_ids": target_batch(batch=2), "output_attentions": True}
    long, short = model(ids, attention_mask=mask, **inputs), model(ids[:, :4], attention_mask=mask[:, :4], **inputs)
    assert long.encoder_last_hidden_state.shape[1] == 5
    torch.testing.assert_close(long.logits, short.logits, rtol=1e-5, atol=1e-4)
    for one, other in zip(long.cross_attentions or (), short.cross_attentions or (), strict=True):
        assert one.shape[-1] == 5 and (one[..., 4] == 0).all()
        torch.testing.assert_close(one[..., :4], other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
def test_no_tensor_is_initialised_anew_by_loading(fields: dict, tmp_path: Path) -> None:
    """transformers #46620, #45591: weights of custom models quietly random after loading, with clean loading info."""
    torch.manual_seed(1)
    model = tiny_model(sharp=None, **fields)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 + torch.rand_like(parameter))
    assert model.get_input_embeddings().weight[PAD].min() >= 0.5
    model.save_pretrained(tmp_path)
    for loader in (Seq2SeqAttnForConditionalGeneration, AutoModelForSeq2SeqLM):
        again = loader.from_pretrained(tmp_path)
        for kind in ("named_parameters", "named_buffers"):
            wanted, found = (dict(getattr(each, kind)()) for each in (model, again))
            assert found.keys() == wanted.keys()
            for name, tensor in wanted.items():
                assert torch.equal(found[name], tensor), name
        assert all((each >= 0.5).all() for each in again.parameters())


def test_it_is_what_auto_classes_and_generate_look_for() -> None:
    """transformers PR #33150, #38050: no `generate` on a model whose class does not name the mixin itself."""
    bases = Seq2SeqAttnForConditionalGeneration.__mro__
    assert bases.index(PreTrainedModel) < bases.index(GenerationMixin)
    assert GenerationMixin in Seq2SeqAttnForConditionalGeneration.__bases__
    assert Seq2SeqAttnForConditionalGeneration.can_generate() and not Seq2SeqAttnModel.can_generate()
    model = AutoModelForSeq2SeqLM.from_config(tiny_config())
    assert type(model) is Seq2SeqAttnForConditionalGeneration
    assert model.can_generate() and model.main_input_name == "input_ids"
    assert "input_ids" in inspect.signature(model.forward).parameters
    # `hf_seq2seq_attn.translation.translate` stands in for what the library no longer has.
    assert not {"translation", "text2text-generation"} & set(pipelines.SUPPORTED_TASKS)


@every_kind
def test_evaluation_of_a_model_whose_config_asks_for_maps(fields: dict, tmp_path: Path) -> None:
    """transformers PR #8633, #29892, #9387: the Trainer gathers caches, and maps that do not join."""
    model = tiny_model(**fields)
    model.set_attn_implementation("eager")
    model.config.output_attentions = True
    names = {"cache", "encoder_attentions", "decoder_attentions", "cross_attentions"}
    assert names <= set(model.config.keys_to_ignore_at_inference)
    seen: list[Any] = []
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path), per_device_eval_batch_size=3, use_cpu=True, report_to="none", disable_tqdm=True
    )
    tokenizer = word_tokenizer()
    evaluator = Seq2SeqTrainer(
        model=model,
        args=arguments,
        eval_dataset=examples(),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
        compute_metrics=lambda prediction: seen.append(prediction.predictions) or {"rows": 4},
    )
    assert evaluator.evaluate()["eval_rows"] == 4
    ((logits, states),) = seen
    assert logits.shape == (4, 5, model.config.target_vocab_size) and states.shape[::2] == (4, model.config.d_model)
