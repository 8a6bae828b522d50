"""generate(): what users set and hook in acts on every kind of decoder as it does on the library's own models."""

import itertools
import threading
from typing import Any

import pytest
import torch
from probes import word_tokenizer
from torch import Tensor
from transformers import (
    CompileConfig,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    TextIteratorStreamer,
    TextStreamer,
)
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from variants import BOS, CASES, EOS, PAD, source_batch, tiny_model

from hf_seq2seq_attn import Seq2SeqAttnForConditionalGeneration

# Every kind of decoder once.
KINDS = {
    name: CASES[name]
    for name in (
        "transformer-transformer-scaled_dot_product",
        "transformer-transformer-additive",
        "gru-gru-additive",
        "input_feeding",
        "previous_state",
        "lstm-lstm-none",
        "two_vocabularies",
        "two_vocabularies_untied",
    )
}
every_kind = pytest.mark.parametrize("fields", KINDS.values(), ids=KINDS)
TRANSFORMERS = {
    name: fields for name, fields in CASES.items() if fields.get("decoder_type", "transformer") == "transformer"
}
RECURRENT = ("gru-gru-additive", "input_feeding", "previous_state", "lstm-lstm-none")


def generate(model: Any, *, seed: int = 1, **settings: Any) -> Any:
    ids, mask = source_batch()
    torch.manual_seed(seed)
    return model.generate(ids, attention_mask=mask, **{"max_new_tokens": 12, **settings})


def endless(fields: dict, seed: int = 0) -> Seq2SeqAttnForConditionalGeneration:
    """Return a model that never says the end token, so that lengths are those asked for."""
    model = tiny_model(seed=seed, **fields)
    model.generation_config.eos_token_id = None
    return model


def step_logits(model: Any, sequences: Tensor, copies: int = 1) -> Tensor:
    """Return the logits (N, T, V) that predict sequences[:, 1:], from one forward without a cache."""
    ids, mask = source_batch()
    with torch.no_grad():
        return model(
            ids.repeat_interleave(copies, 0),
            attention_mask=mask.repeat_interleave(copies, 0),
            decoder_input_ids=sequences[:, :-1],
            use_cache=False,
        ).logits


# What comes out


@every_kind
def test_logits_and_scores_are_those_of_a_full_forward(fields: dict) -> None:
    model = endless(fields)
    out = generate(model, do_sample=True, top_k=5, return_dict_in_generate=True, output_logits=True, output_scores=True)
    wanted = step_logits(model, out.sequences)
    logits, scores = torch.stack(out.logits, 1), torch.stack(out.scores, 1)
    assert torch.allclose(logits, wanted, atol=1e-4)
    assert (torch.isfinite(scores).sum(-1) == 5).all()
    assert torch.equal(scores.max(-1).values, logits.max(-1).values)
    assert out.encoder_attentions is None and out.cross_attentions is None


@every_kind
def test_hidden_states_and_encoder_states_are_there_on_request(fields: dict) -> None:
    model = endless(fields)
    out = generate(model, return_dict_in_generate=True, output_hidden_states=True)
    assert len(out.decoder_hidden_states) == 12 and len(out.encoder_hidden_states) == 3
    ids, mask = source_batch()
    with torch.no_grad():
        wanted = model(
            ids, attention_mask=mask, decoder_input_ids=out.sequences[:, :-1], output_hidden_states=True
        ).decoder_hidden_states
    for layer, states in enumerate(wanted):
        got = torch.cat([step[layer] for step in out.decoder_hidden_states], 1)
        assert torch.allclose(got, states, atol=1e-4)


@every_kind
def test_several_sampled_sequences_are_a_matter_of_the_seed(fields: dict) -> None:
    model = tiny_model(**fields)
    settings: dict[str, Any] = {"do_sample": True, "top_p": 0.9, "temperature": 1.5, "num_return_sequences": 3}
    one, again, other = (generate(model, seed=seed, **settings) for seed in (4, 4, 5))
    assert one.shape[0] == 9 and torch.equal(one, again)
    assert one.shape != other.shape or not torch.equal(one, other)
    assert any(len({tuple(row) for row in rows.tolist()}) > 1 for rows in one.split(3)), "three times the same"
    plain = generate(model, seed=4, use_cache=False, **settings)
    assert torch.equal(one, plain)


# What is set


@every_kind
def test_top_p_keeps_the_fewest_tokens_that_reach_p(fields: dict) -> None:
    model = endless(fields)
    out = generate(model, do_sample=True, top_p=0.6, top_k=0, return_dict_in_generate=True, output_scores=True)
    probabilities = torch.softmax(step_logits(model, out.sequences), -1)
    kept = torch.isfinite(torch.stack(out.scores, 1))
    assert (kept.sum(-1) < kept.shape[-1]).any()
    mass = (probabilities * kept).sum(-1)
    least = probabilities.masked_fill(~kept, 2.0).amin(-1)
    assert (mass >= 0.6 - 1e-5).all() and (mass - least < 0.6 + 1e-5).all()
    assert kept.gather(2, out.sequences[:, 1:, None]).all()


@every_kind
def test_repetition_is_punished(fields: dict) -> None:
    model = endless(fields)
    out = generate(model, repetition_penalty=1.7, return_dict_in_generate=True, output_scores=True)
    logits = step_logits(model, out.sequences)
    for t, scores in enumerate(out.scores):
        said = torch.zeros_like(scores, dtype=torch.bool).scatter(1, out.sequences[:, : t + 1], True)
        punished = torch.where(logits[:, t] > 0, logits[:, t] / 1.7, logits[:, t] * 1.7)
        assert torch.allclose(scores, torch.where(said, punished, logits[:, t]), atol=1e-4)
        assert torch.equal(out.sequences[:, t + 1], scores.argmax(-1))
    assert not torch.equal(out.sequences, generate(model))
    bigrams = generate(model, no_repeat_ngram_size=2)
    for row in bigrams.tolist():
        pairs = list(itertools.pairwise(row))
        assert len(set(pairs)) == len(pairs)


@every_kind
def test_length_penalty_prefers_what_it_says(fields: dict) -> None:
    shorter = longer = 0
    for seed in range(4):
        model = tiny_model(seed=seed, eos_token_id=[EOS, 5, 9, 14], **fields)
        for penalty in (-3.0, 3.0):
            out = generate(model, num_beams=4, length_penalty=penalty, return_dict_in_generate=True, output_scores=True)
            lengths = (out.beam_indices >= 0).sum(1)
            log_probabilities = torch.log_softmax(step_logits(model, out.sequences), -1)
            spoken = log_probabilities.gather(2, out.sequences[:, 1:, None])[..., 0]
            total = (spoken * (torch.arange(spoken.shape[1]) < lengths[:, None])).sum(1)
            assert torch.allclose(total / lengths**penalty, out.sequences_scores, rtol=1e-3, atol=1e-5)
            if penalty < 0:
                shorter += int(lengths.sum())
            else:
                longer += int(lengths.sum())
    assert shorter < longer


@every_kind
@pytest.mark.parametrize("beams", [1, 3])
def test_lengths_are_kept(fields: dict, beams: int) -> None:
    for seed in range(3):
        model = tiny_model(seed=seed, **fields)
        least = generate(model, num_beams=beams, min_new_tokens=7)
        assert (least[:, 1:8] != EOS).all() and least.shape[1] > 7
        assert generate(model, num_beams=beams, min_length=5, max_length=5, max_new_tokens=None).shape[1] == 5
        assert generate(model, num_beams=beams, max_new_tokens=3).shape[1] <= 4
    model = endless(fields)
    assert generate(model, num_beams=beams, max_new_tokens=9).shape[1] == 10
    prompt = torch.tensor([[BOS, 4, 6]]).expand(3, -1)
    assert generate(model, num_beams=beams, max_new_tokens=9, decoder_input_ids=prompt).shape[1] == 12


# What is hooked in


class Forbid(LogitsProcessor):
    """Forbid a token, and remember the shapes that came by."""

    def __init__(self, token: int) -> None:
        self.token, self.seen = token, []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.seen.append((tuple(input_ids.shape), tuple(scores.shape)))
        scores = scores.clone()
        scores[:, self.token] = -torch.inf
        return scores


class StopAfter(StoppingCriteria):
    """Stop a row once it has said this token."""

    def __init__(self, token: int) -> None:
        self.token = token

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        return (input_ids[:, 1:] == self.token).any(1)


@every_kind
def test_logits_processors_of_ones_own(fields: dict) -> None:
    model = endless(fields)
    favourite = int(generate(model).flatten()[1:].mode().values)
    for beams in (1, 3):
        forbid = Forbid(favourite)
        out = generate(model, num_beams=beams, logits_processor=LogitsProcessorList([forbid]))
        assert (out[:, 1:] != favourite).all()
        assert forbid.seen == [((3 * beams, 1 + t), (3 * beams, model.config.target_vocab_size)) for t in range(12)]


@every_kind
def test_stopping_criteria_of_ones_own(fields: dict) -> None:
    model = tiny_model(**fields)
    free = generate(model, min_new_tokens=12)
    token = int(free[0, 4])
    stopped = generate(model, min_new_tokens=12, stopping_criteria=StoppingCriteriaList([StopAfter(token)]))
    for row, whole in zip(stopped.tolist(), free.tolist(), strict=True):
        end = whole.index(token, 1) + 1 if token in whole[1:] else len(whole)
        assert row[:end] == whole[: min(end, len(row))] and set(row[end:]) <= {PAD}
    assert stopped[0].tolist().index(token, 1) <= 4


@every_kind
def test_text_streams_token_by_token(fields: dict, capsys: pytest.CaptureFixture[str]) -> None:
    model = endless({**fields, "vocab_size": 23})
    tokenizer = word_tokenizer()
    batch = tokenizer("w4 w9 w5 w17", return_tensors="pt")
    inputs: dict[str, Any] = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    settings = {"max_new_tokens": 8, "suppress_tokens": [PAD, BOS, EOS, 3]}
    whole = tokenizer.decode(model.generate(**inputs, **settings)[0], skip_special_tokens=True)
    assert len(whole.split()) == 8
    streamer = TextIteratorStreamer(tokenizer, skip_special_tokens=True, timeout=60)
    writer = threading.Thread(target=model.generate, kwargs={**inputs, **settings, "streamer": streamer})
    writer.start()
    pieces = list(streamer)
    writer.join()
    assert "".join(pieces).strip() == whole and len([piece for piece in pieces if piece]) > 3
    model.generate(**inputs, **settings, streamer=TextStreamer(tokenizer, skip_special_tokens=True))
    assert capsys.readouterr().out.strip() == whole


# What goes in


@every_kind
@pytest.mark.parametrize("beams", [1, 3])
def test_embeddings_and_encoder_outputs_stand_for_ids(fields: dict, beams: int) -> None:
    model = tiny_model(**fields)
    ids, mask = source_batch()
    wanted = generate(model, num_beams=beams)
    settings: dict[str, Any] = {"attention_mask": mask, "num_beams": beams, "max_new_tokens": 12}
    embeds = model.get_input_embeddings()(ids).detach()
    assert torch.equal(model.generate(inputs_embeds=embeds, **settings), wanted)
    encoded = model.get_encoder()(ids, attention_mask=mask)
    assert torch.equal(model.generate(encoder_outputs=encoded, **settings), wanted)


@every_kind
@pytest.mark.parametrize("beams", [1, 3])
def test_a_decoder_prompt_is_gone_on_from(fields: dict, beams: int) -> None:
    model = endless(fields)
    prompt = torch.tensor([[BOS, 8, 5, 8]]).expand(3, -1)
    cached, plain = (generate(model, decoder_input_ids=prompt, num_beams=beams, use_cache=use) for use in (True, False))
    assert torch.equal(cached, plain) and torch.equal(cached[:, :4], prompt)
    if beams == 1:
        free = generate(model)
        went_on = generate(model, decoder_input_ids=free[:, :4], max_new_tokens=9)
        assert torch.equal(went_on, free)


# Precision, settings that travel, other caches


@every_kind
def test_bfloat16_cached_equals_uncached_but_for_rounding(fields: dict) -> None:
    model = endless(fields).to(torch.bfloat16)
    out = generate(model, return_dict_in_generate=True, output_logits=True)
    cached, plain = torch.stack(out.logits, 1).float(), step_logits(model, out.sequences).float()
    # A recurrent layer rounds otherwise over many steps than over one: 3 of bfloat16's 8 bits at most.
    rounding = plain.abs().max() * 2**-5
    assert torch.allclose(cached, plain, atol=float(rounding))
    best_but_one, best = plain.topk(2).values.unbind(-1)[::-1]
    clear = best - best_but_one > 2 * rounding
    assert clear.float().mean() > 0.5
    assert torch.equal(plain.argmax(-1)[clear], out.sequences[:, 1:][clear])


@every_kind
def test_the_generation_config_travels_with_the_model(fields: dict, tmp_path) -> None:
    model = tiny_model(**fields)
    model.generation_config = GenerationConfig(
        num_beams=3, length_penalty=0.5, max_new_tokens=6, repetition_penalty=1.3, pad_token_id=PAD,
        eos_token_id=EOS, decoder_start_token_id=BOS,
    )  # fmt: skip
    ids, mask = source_batch()
    wanted = model.generate(ids, attention_mask=mask)
    model.save_pretrained(tmp_path)
    again = Seq2SeqAttnForConditionalGeneration.from_pretrained(tmp_path)
    assert again.generation_config.num_beams == 3 and again.generation_config.max_new_tokens == 6
    assert torch.equal(again.generate(ids, attention_mask=mask), wanted)


def test_a_new_model_knows_its_special_tokens() -> None:
    config = tiny_model(eos_token_id=[2, 7], decoder_start_token_id=5).generation_config
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id, config.decoder_start_token_id) == (
        PAD, BOS, [2, 7], 5,
    )  # fmt: skip


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("kind", ["static", "offloaded", "offloaded_static", "quantized"])
def test_a_recurrent_decoder_refuses_other_caches_in_words(name: str, kind: str) -> None:
    with pytest.raises(ValueError, match=f"cache_implementation='{kind}': a recurrent decoder carries a state"):
        generate(tiny_model(**CASES[name]), cache_implementation=kind)


@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_decoder_refuses_prompt_lookup_in_words(name: str) -> None:
    ids, mask = source_batch(batch=1)
    with pytest.raises(ValueError, match="stateful models"):
        tiny_model(**CASES[name]).generate(ids, attention_mask=mask, prompt_lookup_num_tokens=3)


@pytest.mark.parametrize("fields", TRANSFORMERS.values(), ids=TRANSFORMERS)
def test_prompt_lookup_equals_greedy(fields: dict) -> None:
    ids, mask = source_batch(batch=1)
    for seed in range(2):
        model = endless(fields, seed)
        settings: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 20}
        wanted = model.generate(ids, **settings)
        assert torch.equal(model.generate(ids, prompt_lookup_num_tokens=3, **settings), wanted)


@pytest.mark.parametrize("fields", TRANSFORMERS.values(), ids=TRANSFORMERS)
def test_a_static_cache_gives_the_same_tokens(fields: dict) -> None:
    model = tiny_model(**fields)
    if model.config.null_key:
        with pytest.raises(ValueError, match=r"cache_implementation='static'.*null_key=True adds a key"):
            generate(model, cache_implementation="static")
        return
    prompts = torch.tensor([[BOS, 5, 8], [PAD, BOS, 9], [PAD, PAD, BOS]])
    prompted = {"decoder_input_ids": prompts, "decoder_attention_mask": (prompts != PAD).long()}
    for mode in ({}, {"num_beams": 4, "num_return_sequences": 2}, {"do_sample": True}, prompted):
        static, growing = (generate(model, cache_implementation=kind, **mode) for kind in ("static", "dynamic"))
        assert torch.equal(static, growing)


@pytest.mark.parametrize("attention", ["scaled_dot_product", "additive"])
def test_a_step_on_a_static_cache_compiles_as_one_graph(attention: str) -> None:
    torch.compiler.reset()
    model = tiny_model(cross_attention_type=attention)
    settings = CompileConfig(backend="aot_eager", mode=None, fullgraph=True)
    settings._compile_all_devices = True
    compiled = generate(model, cache_implementation="static", compile_config=settings)
    assert hasattr(model, "_compiled_call") and torch.equal(compiled, generate(model))


@every_kind
def test_what_is_no_cache_is_refused_in_words(fields: dict) -> None:
    model = tiny_model(**fields)
    (ids, mask), start = source_batch(), torch.full((3, 1), BOS)
    old_form = ((torch.zeros(3, 3, 1, 4),) * 4,) * 2
    for wrong in (old_form, DynamicCache()):
        with pytest.raises(TypeError, match=f"not {type(wrong).__name__}; leave it out"):
            model(ids, attention_mask=mask, decoder_input_ids=start, cache=wrong)
    with pytest.raises((TypeError, ValueError), match="tuple"):
        generate(model, cache=old_form)
    if model.config.decoder_is_recurrent:
        with pytest.raises(TypeError, match="must be a RecurrentCache"):
            generate(model, cache=EncoderDecoderCache(DynamicCache(), DynamicCache()))
