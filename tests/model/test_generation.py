"""generate(): cached equals uncached, beams keep to their hypotheses, and what cannot work says why."""

import pytest
import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from variants import ATTENTIVE, BOS, CASES, EOS, source_batch, tiny_model

from hf_seq2seq_attn import RecurrentCache

all_cases = pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
attentive = pytest.mark.parametrize("fields", ATTENTIVE.values(), ids=ATTENTIVE)
RECURRENT = {"encoder_type": "gru", "decoder_type": "gru"}
MODES = {
    "greedy": {},
    "beams": {"num_beams": 4},
    "several": {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.6},
    "sampling": {"do_sample": True, "top_k": 10},
    "beam_sampling": {"num_beams": 3, "do_sample": True},
}


def generate(model, *, seed: int = 1, **settings: object):
    ids, mask = source_batch()
    torch.manual_seed(seed)
    return model.generate(ids, attention_mask=mask, max_new_tokens=12, **settings)


@all_cases
def test_cached_equals_uncached(fields: dict) -> None:
    seen: set[int] = set()
    for seed in range(2):
        model = tiny_model(seed=seed, **fields)
        for name, mode in MODES.items():
            cached, plain = (generate(model, use_cache=use, **mode) for use in (True, False))
            assert torch.equal(cached, plain), f"{name}:\n{cached}\n{plain}"
            seen |= set(cached.flatten().tolist())
    assert len(seen) >= 5, "the weights are too dull for this test to show anything"


@all_cases
def test_greedy_is_the_argmax_of_full_forwards(fields: dict) -> None:
    model = tiny_model(**fields)
    model.generation_config.eos_token_id = None
    ids, mask = source_batch()
    sequence = torch.full((3, 1), BOS)
    for _ in range(12):
        logits = model(ids, attention_mask=mask, decoder_input_ids=sequence, use_cache=False).logits[:, -1]
        sequence = torch.cat([sequence, logits.argmax(-1, keepdim=True)], 1)
    assert torch.equal(generate(model), sequence)


@all_cases
def test_a_batch_gives_what_its_sentences_give_alone(fields: dict) -> None:
    model = tiny_model(**fields)
    ids, mask = source_batch()
    for beams in (1, 4):
        together = generate(model, num_beams=beams)
        for row in range(3):
            real = int(mask[row].sum())
            alone = model.generate(ids[row : row + 1, :real], num_beams=beams, max_new_tokens=12)[0]
            assert together[row, : len(alone)].tolist() == alone.tolist()


@all_cases
def test_beam_scores_are_the_log_probabilities_of_the_returned_sequences(fields: dict) -> None:
    model = tiny_model(**fields)
    ids, mask = source_batch()
    out = generate(model, num_beams=4, length_penalty=0.0, return_dict_in_generate=True, output_scores=True)
    logits = model(ids, attention_mask=mask, decoder_input_ids=out.sequences[:, :-1]).logits
    steps = torch.log_softmax(logits, -1).gather(2, out.sequences[:, 1:, None])[..., 0]
    ended = (out.sequences[:, 1:] == EOS).int().cumsum(1) - (out.sequences[:, 1:] == EOS).int()
    assert torch.allclose((steps * (ended == 0)).sum(1), out.sequences_scores, atol=1e-4)
    transitions = model.compute_transition_scores(out.sequences, out.scores, out.beam_indices)
    assert torch.allclose(transitions.sum(1), out.sequences_scores, atol=1e-4)


@attentive
def test_maps_of_beams_follow_their_hypotheses(fields: dict) -> None:
    crossed = False
    for seed in range(4):
        model = tiny_model(seed=seed, **fields)
        ids, mask = source_batch()
        out = generate(model, num_beams=4, return_dict_in_generate=True, output_attentions=True, output_scores=True)
        wanted = model(
            ids, attention_mask=mask, decoder_input_ids=out.sequences[:, :-1], output_attentions=True
        ).cross_attentions
        for t in range(out.beam_indices.shape[1]):
            alive = out.beam_indices[:, t] >= 0
            rows = out.beam_indices[alive, t].long()
            crossed |= bool((rows % 4 != 0).any())
            for layer, weights in enumerate(wanted):
                got = out.cross_attentions[t][layer][rows][:, :, -1]
                assert torch.allclose(got, weights[alive][:, :, t], atol=1e-4)
    assert crossed, "no beam ever moved: this test would show nothing"


@all_cases
def test_going_on_from_a_returned_cache_equals_one_run(fields: dict) -> None:
    model = tiny_model(**fields)
    model.generation_config.eos_token_id = None
    ids, mask = source_batch()
    first = model.generate(ids, attention_mask=mask, max_new_tokens=5, return_dict_in_generate=True)
    went_on = model.generate(
        ids, attention_mask=mask, decoder_input_ids=first.sequences, cache=first.cache, max_new_tokens=7
    )
    assert torch.equal(went_on, generate(model))


@all_cases
def test_with_a_cache_one_token_is_read_a_step_and_the_source_once(fields: dict) -> None:
    model = tiny_model(**fields)
    model.generation_config.eos_token_id = None
    lengths, encoded = [], []
    decoder, encoder = model.get_decoder(), model.get_encoder()
    decoder.register_forward_pre_hook(
        lambda _, args, kwargs: lengths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    encoder.register_forward_pre_hook(lambda *_: encoded.append(1))
    generate(model)
    assert lengths == [1] * 12 and encoded == [1]


@all_cases
def test_prompts_of_unequal_length_are_padded_on_the_left(fields: dict) -> None:
    model = tiny_model(**fields)
    model.generation_config.eos_token_id = None
    ids, mask = source_batch()
    prompts = torch.tensor([[BOS, 5, 8, 4], [0, BOS, 9, 9], [0, 0, 0, BOS]])
    together = model.generate(
        ids,
        attention_mask=mask,
        decoder_input_ids=prompts,
        decoder_attention_mask=(prompts != 0).long(),
        max_new_tokens=6,
    )
    for row, padding in enumerate((0, 1, 3)):
        alone = model.generate(
            ids[row : row + 1],
            attention_mask=mask[row : row + 1],
            decoder_input_ids=prompts[row : row + 1, padding:],
            max_new_tokens=6,
        )
        assert together[row, padding:].tolist() == alone[0].tolist()


@pytest.mark.parametrize("name", ["previous_state_lstm_heads", "input_feeding", "previous_state_none"])
def test_the_recurrent_cache_holds_states_with_the_batch_first(name: str) -> None:
    model = tiny_model(**CASES[name])
    ids, mask = source_batch()
    cache = model(ids, attention_mask=mask, decoder_input_ids=torch.full((3, 2), BOS), use_cache=True).cache
    assert isinstance(cache, RecurrentCache) and cache.get_seq_length() == 2
    assert len(cache.states) == model.config.decoder_layers
    tensors = [state for layer in (*cache.states, cache.memory) for state in layer.states]
    before = [state.clone() for state in tensors]
    cache.reorder_cache(torch.tensor([2, 0, 0]))
    after = [state for layer in (*cache.states, cache.memory) for state in layer.states]
    assert all(torch.equal(new, old[[2, 0, 0]]) for new, old in zip(after, before, strict=True))
    cache.batch_select_indices(torch.tensor([0]))
    cache.batch_repeat_interleave(2)
    assert {state.shape[0] for layer in (*cache.states, cache.memory) for state in layer.states} == {2}
    cache.reset()
    assert cache.get_seq_length() == 0 and not cache.memory.is_initialized
    with pytest.raises(ValueError, match="cannot be cropped"):
        cache.crop(1)


def test_what_a_state_cannot_do_is_refused_in_words() -> None:
    model = tiny_model(**RECURRENT)
    ids, mask = source_batch(batch=1)
    with pytest.raises(ValueError, match="state of fixed size"):
        model.generate(ids, attention_mask=mask, cache_implementation="static")
    with pytest.raises(ValueError, match="stateful"):
        model.generate(ids, attention_mask=mask, assistant_model=tiny_model(seed=1, **RECURRENT))
    foreign = EncoderDecoderCache(DynamicCache(), DynamicCache())
    with pytest.raises(TypeError, match="RecurrentCache, not EncoderDecoderCache"):
        model(ids, attention_mask=mask, decoder_input_ids=torch.tensor([[BOS]]), cache=foreign)


def test_a_transformer_decoder_takes_an_assistant() -> None:
    model, assistant = tiny_model(seed=0), tiny_model(seed=1)
    ids, mask = source_batch(batch=1)
    alone = model.generate(ids, attention_mask=mask, max_new_tokens=12)
    assisted = model.generate(ids, attention_mask=mask, max_new_tokens=12, assistant_model=assistant)
    assert torch.equal(alone, assisted)


@all_cases
def test_padding_is_masked_without_a_mask(fields: dict) -> None:
    model = tiny_model(**fields)
    ids, mask = source_batch()
    for beams in (1, 4):
        wanted = model.generate(ids, attention_mask=mask, num_beams=beams, max_new_tokens=8)
        assert torch.equal(model.generate(ids, num_beams=beams, max_new_tokens=8), wanted)
