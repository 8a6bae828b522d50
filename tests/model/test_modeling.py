"""What every variant promises, over the whole grid."""

import pytest
import torch
import torch.nn.functional as F
from transformers.modeling_outputs import BaseModelOutput
from variants import ATTENTIVE, CASES, PAD, SOURCE, TARGET, source_batch, target_batch, tiny_config, tiny_model

from hf_seq2seq_attn import Seq2SeqAttnForConditionalGeneration

all_cases = pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
attentive = pytest.mark.parametrize("fields", ATTENTIVE.values(), ids=ATTENTIVE)


@all_cases
def test_shapes(fields: dict) -> None:
    model = tiny_model(**fields)
    config = model.config
    ids, mask = source_batch()
    output = model(
        ids, attention_mask=mask, decoder_input_ids=target_batch(), output_attentions=True, output_hidden_states=True
    )
    assert output.logits.shape == (3, TARGET, config.decoder_vocab_size)
    assert [tuple(s.shape) for s in output.encoder_hidden_states] == [(3, SOURCE, config.d_model)] * 3
    assert [tuple(s.shape) for s in output.decoder_hidden_states] == [(3, TARGET, config.d_model)] * 3
    if config.cross_attention_type == "none":
        assert output.cross_attentions is None
    else:
        layers = 1 if config.decoder_is_recurrent else 2
        assert [tuple(w.shape) for w in output.cross_attentions] == [
            (3, config.cross_attention_heads, TARGET, SOURCE)
        ] * layers


@attentive
@pytest.mark.parametrize("training", [False, True])
def test_maps_are_distributions_and_zero_on_padding(fields: dict, training: bool) -> None:
    model = tiny_model(dropout=0.3, attention_dropout=0.3, **fields).train(training)
    ids, mask = source_batch()
    output = model(ids, attention_mask=mask, decoder_input_ids=target_batch(), output_attentions=True)
    for weights in output.cross_attentions:
        assert (weights >= 0).all()
        assert (weights.masked_select((mask == 0)[:, None, None].expand_as(weights)) == 0).all()
        sums = weights.sum(-1)
        if model.config.null_key:
            assert (sums < 1).all()
        else:
            assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5)
    for weights in output.encoder_attentions or ():
        assert (weights.masked_select((mask == 0)[:, None, None].expand_as(weights)) == 0).all()
        assert torch.allclose(weights.sum(-1), torch.ones_like(weights.sum(-1)), atol=1e-5)


@attentive
def test_asking_for_maps_changes_nothing_and_works_under_every_backend(fields: dict) -> None:
    model = tiny_model(**fields)
    ids, mask = source_batch()
    maps, logits = [], []
    for backend in ("sdpa", "eager"):
        model.set_attn_implementation(backend)
        plain = model(ids, attention_mask=mask, decoder_input_ids=target_batch())
        asked = model(ids, attention_mask=mask, decoder_input_ids=target_batch(), output_attentions=True)
        assert plain.cross_attentions is None
        assert len(asked.cross_attentions) >= 1
        logits += [plain.logits, asked.logits]
        maps.append(torch.stack(asked.cross_attentions))
    assert torch.allclose(maps[0], maps[1], atol=1e-5)
    for other in logits[1:]:
        assert torch.allclose(logits[0], other, atol=1e-4, rtol=1e-5)


@all_cases
def test_padding_on_either_side_and_company_change_nothing(fields: dict) -> None:
    model = tiny_model(**fields)
    alone, target = torch.tensor([[5, 9, 4, 7]]), target_batch(batch=1)
    wanted = model(alone, decoder_input_ids=target, output_attentions=True)
    for places in (slice(0, 4), slice(3, 7)):
        ids, mask = torch.full((2, SOURCE), PAD), torch.zeros(2, SOURCE, dtype=torch.long)
        ids[0, places], mask[0, places] = alone[0], 1
        ids[1], mask[1] = torch.arange(3, 3 + SOURCE), 1
        got = model(ids, attention_mask=mask, decoder_input_ids=target.expand(2, -1), output_attentions=True)
        assert torch.allclose(got.logits[:1], wanted.logits, atol=1e-4)
        for some, other in zip(got.cross_attentions or (), wanted.cross_attentions or (), strict=True):
            assert torch.allclose(some[:1, :, :, places], other, atol=1e-5)
        unmasked = model(ids, decoder_input_ids=target.expand(2, -1))
        assert torch.allclose(unmasked.logits, got.logits, atol=1e-4), "padding ids must be masked without a mask too"


@all_cases
def test_padding_of_the_decoder_prompt_changes_nothing(fields: dict) -> None:
    model = tiny_model(**fields)
    ids, mask = source_batch()
    target = target_batch()
    wanted = model(ids, attention_mask=mask, decoder_input_ids=target).logits
    padded = F.pad(target, (2, 1), value=PAD)
    target_mask = F.pad(torch.ones_like(target), (2, 1))
    got = model(ids, attention_mask=mask, decoder_input_ids=padded, decoder_attention_mask=target_mask).logits
    assert torch.allclose(got[:, 2:-1], wanted, atol=1e-4)


@all_cases
def test_loss_is_the_cross_entropy_by_hand(fields: dict) -> None:
    model = tiny_model(**fields)
    ids, mask = source_batch()
    labels = target_batch()
    labels[1, 3:] = -100
    labels[2, 1:] = -100
    output = model(ids, attention_mask=mask, labels=labels)
    log_probabilities = torch.log_softmax(output.logits.double(), -1)
    terms = [-log_probabilities[b, t, labels[b, t]] for b in range(3) for t in range(TARGET) if labels[b, t] != -100]
    assert len(terms) == 9
    assert output.loss.item() == pytest.approx(sum(terms).item() / 9, rel=1e-5)
    summed = model(ids, attention_mask=mask, labels=labels, num_items_in_batch=18).loss
    assert summed.item() == pytest.approx(output.loss.item() / 2, rel=1e-5)
    shifted = model.prepare_decoder_input_ids_from_labels(labels)
    assert shifted[1].tolist() == [1, *labels[1, :3].tolist(), PAD]
    given = model(ids, attention_mask=mask, labels=labels, decoder_input_ids=shifted)
    assert given.loss.item() == pytest.approx(output.loss.item(), rel=1e-6)


def test_no_label_gives_no_loss() -> None:
    model = tiny_model()
    ids, mask = source_batch()
    assert model(ids, attention_mask=mask, labels=torch.full((3, 2), -100)).loss.item() == 0


@all_cases
def test_every_parameter_gets_a_gradient(fields: dict) -> None:
    model = tiny_model(sharp=0.4, **fields)
    ids, mask = source_batch()
    model(ids, attention_mask=mask, labels=target_batch()).loss.backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or p.grad.abs().max() == 0]
    assert without == []


@attentive
def test_a_loss_on_the_maps_reaches_the_parameters(fields: dict) -> None:
    model = tiny_model(sharp=0.4, **fields)
    ids, mask = source_batch()
    maps = model(ids, attention_mask=mask, labels=target_batch(), output_attentions=True).cross_attentions
    maps[-1][..., 0].sum().backward()
    assert model.model.encoder.embed_tokens.weight.grad.abs().max() > 0


@all_cases
def test_bfloat16_is_finite_and_close(fields: dict) -> None:
    model = tiny_model(sharp=0.3, **fields)
    ids, mask = source_batch()
    wanted = model(ids, attention_mask=mask, decoder_input_ids=target_batch()).logits
    with torch.autocast("cpu", torch.bfloat16):
        auto = model(ids, attention_mask=mask, labels=target_batch())
    auto.loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    half = model.to(torch.bfloat16)(ids, attention_mask=mask, decoder_input_ids=target_batch(), output_attentions=True)
    assert half.logits.dtype == torch.bfloat16
    assert (half.logits.float() - wanted).abs().mean() < 0.1 * wanted.abs().mean() + 0.02


@all_cases
def test_encoder_outputs_may_be_given(fields: dict) -> None:
    model = tiny_model(**fields)
    ids, mask = source_batch()
    wanted = model(ids, attention_mask=mask, decoder_input_ids=target_batch()).logits
    states = model.get_encoder()(ids, attention_mask=mask).last_hidden_state
    for encoder_outputs in (BaseModelOutput(last_hidden_state=states), (states,)):
        got = model(attention_mask=mask, encoder_outputs=encoder_outputs, decoder_input_ids=target_batch()).logits
        assert torch.equal(got, wanted)
    embeds = model.get_input_embeddings()(ids)
    assert torch.equal(
        model(inputs_embeds=embeds, attention_mask=mask, decoder_input_ids=target_batch()).logits, wanted
    )


def test_return_dict_false_gives_a_tuple() -> None:
    model = tiny_model()
    ids, mask = source_batch()
    output = model(ids, attention_mask=mask, labels=target_batch(), return_dict=False)
    assert isinstance(output, tuple) and output[0].ndim == 0 and output[1].shape[-1] == 29


def test_no_unknown_argument_is_swallowed() -> None:
    with pytest.raises(TypeError, match="past_key_value_states"):
        tiny_model()(*source_batch(), decoder_input_ids=target_batch(), past_key_value_states=None)


@pytest.mark.filterwarnings("default::FutureWarning")
@pytest.mark.parametrize("decoder", ["transformer", "gru"])
def test_the_old_name_of_the_cache_means_the_cache(decoder: str) -> None:
    model = tiny_model(decoder_type=decoder)
    (ids, mask), target = source_batch(), target_batch()
    wanted = model(ids, attention_mask=mask, decoder_input_ids=target).logits[:, -1]
    first = model(ids, attention_mask=mask, decoder_input_ids=target[:, :-1], use_cache=True)
    with pytest.warns(FutureWarning, match="cache"):
        last = model(ids, attention_mask=mask, decoder_input_ids=target[:, -1:], past_key_values=first.cache)
    assert torch.allclose(last.logits[:, 0], wanted, atol=1e-5)


def test_initial_weights_are_finite_and_reproducible() -> None:
    for fields in CASES.values():
        one, other = tiny_model(sharp=None, **fields), tiny_model(sharp=None, **fields)
        for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
            assert torch.isfinite(a).all() and torch.equal(a, b), name


def test_two_vocabularies_are_kept_apart() -> None:
    model = tiny_model(decoder_vocab_size=23, share_encoder_decoder_embeddings=False)
    assert model.model.encoder.embed_tokens.num_embeddings == 29
    assert model.model.decoder.embed_tokens.num_embeddings == 23
    assert model.lm_head.weight is model.model.decoder.embed_tokens.weight
    model.resize_token_embeddings(31)
    model.resize_decoder_token_embeddings(25)
    ids, mask = source_batch()
    assert model(ids, attention_mask=mask, decoder_input_ids=target_batch()).logits.shape[-1] == 25
    assert (model.config.vocab_size, model.config.decoder_vocab_size) == (31, 25)
    assert model.lm_head.weight is model.model.decoder.embed_tokens.weight


def test_one_vocabulary_resizes_as_one() -> None:
    for tied in (True, False):
        model = tiny_model(tie_word_embeddings=tied)
        model.resize_token_embeddings(33)
        assert model.config.vocab_size == model.config.decoder_vocab_size == 33
        assert model.model.encoder.embed_tokens.weight is model.model.decoder.embed_tokens.weight
        assert (model.lm_head.weight is model.model.decoder.embed_tokens.weight) == tied
        ids, mask = source_batch()
        assert model(ids, attention_mask=mask, decoder_input_ids=target_batch()).logits.shape[-1] == 33


@all_cases
def test_modules_that_must_not_be_split_are_there(fields: dict) -> None:
    """FSDP wraps each class by its name, and dies on one that the model lacks."""
    model = tiny_model(**fields)
    encoder, decoder = (
        "EncoderLayer" if model.config.encoder_type == "transformer" else "RecurrentEncoder",
        "DecoderLayer" if model.config.decoder_type == "transformer" else "RecurrentDecoder",
    )
    assert set(model._no_split_modules) == {encoder, decoder} == set(model.model._no_split_modules)


def test_zero_width_is_refused() -> None:
    with pytest.raises(ValueError, match="d_model=0"):
        Seq2SeqAttnForConditionalGeneration(tiny_config(d_model=0))
