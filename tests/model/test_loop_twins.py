"""The decoder's twin against the decoder itself: `unroll` with all gradients at the end, and plain `unroll`."""

import pytest
import torch
from torch import nn
from variants import CASES, source_batch, target_batch, tiny_model

from hf_seq2seq_attn import AdditiveAttention, plain_forms
from hf_seq2seq_attn.loop_twins import LoopLinear, attention_twin, cell_twin, fusion_twin, twin

LOOPS = {
    name: fields
    for name, fields in CASES.items()
    if fields.get("decoder_type") in ("gru", "lstm")
    and (fields.get("input_feeding") or fields.get("attend_with") == "previous_state")
} | {
    "dot": dict(encoder_type="gru", decoder_type="gru", cross_attention_type="scaled_dot_product", input_feeding=True),
    "deep": dict(encoder_type="lstm", decoder_type="lstm", attend_with="previous_state", decoder_layers=3),
    "deep feeding": dict(
        encoder_type="gru", decoder_type="gru", input_feeding=True, decoder_layers=2, context_fusion="gate"
    ),
    "heads and null": dict(
        encoder_type="gru",
        decoder_type="gru",
        cross_attention_type="additive",
        cross_attention_heads=2,
        null_key=True,
        attend_with="previous_state",
    ),
}
loops = pytest.mark.parametrize("fields", LOOPS.values(), ids=LOOPS)


def run(model, **more):
    ids, mask = source_batch()
    model.zero_grad()
    output = model(input_ids=ids, attention_mask=mask, labels=target_batch(), skip_logits=False, **more)
    output.loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return output, {name: gradient.clone() for name, gradient in gradients.items() if gradient is not None}


@loops
@pytest.mark.parametrize("training", [True, False])
def test_the_twin_is_the_same_function(fields, training) -> None:
    model = tiny_model(dropout=0.3, attention_dropout=0.2, **fields).train(training)
    found = []
    for plain in (False, True):
        torch.manual_seed(3)  # the same dropout
        if plain:
            with plain_forms():
                found.append(run(model, output_attentions=True))
        else:
            found.append(run(model, output_attentions=True))
    (ours, our_gradients), (theirs, their_gradients) = found
    torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.cross_attentions, theirs.cross_attentions)
    assert our_gradients.keys() == their_gradients.keys()
    for name, gradient in their_gradients.items():
        torch.testing.assert_close(our_gradients[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


@loops
def test_under_autocast_states_and_scores_stay_in_float32(fields) -> None:
    model = tiny_model(**fields)
    wanted, exact = run(model)
    with torch.autocast("cpu", torch.bfloat16):
        got, gradients = run(model)
    torch.testing.assert_close(got.loss, wanted.loss, rtol=0.02, atol=0.02)
    for name, gradient in exact.items():
        assert gradients[name].dtype == torch.float32
        scale = gradient.norm() + 1e-4
        assert (gradients[name] - gradient).norm() / scale < 0.15, name


@loops
def test_a_model_in_half_precision_stays_in_it(fields) -> None:
    model = tiny_model(**fields).bfloat16()
    ids, mask = source_batch()
    output = model(input_ids=ids, attention_mask=mask, decoder_input_ids=target_batch(), use_cache=True)
    assert output.logits.dtype == torch.bfloat16
    assert {part.dtype for layer in output.cache.states for part in layer.states} == {torch.bfloat16}
    more = model(
        input_ids=ids, attention_mask=mask, decoder_input_ids=target_batch()[:, :1], cache=output.cache, use_cache=True
    )
    assert torch.isfinite(more.logits).all()


def test_the_twin_shares_weights_and_leaves_the_decoder_as_it_was() -> None:
    model = tiny_model(**LOOPS["deep feeding"])
    decoder = model.model.decoder
    before = {name: id(module) for name, module in decoder.named_modules()}
    run(model)
    assert {name: id(module) for name, module in decoder.named_modules()} == before
    made = twin(decoder, layers=nn.ModuleList(cell_twin(layer, 5) for layer in decoder.layers))
    assert made.init_proj is decoder.init_proj and made.layers is not decoder.layers


def test_an_attention_that_we_do_not_know_is_asked_itself() -> None:
    """Its scores may be anything: a twin that takes it for a dot product would silently be another function."""

    class Doubled(AdditiveAttention):
        def score(self, queries, keys):
            return 2 * super().score(queries, keys)

    model = tiny_model(**LOOPS["deep"], cross_attention_type="additive")
    model.model.decoder.encoder_attn.__class__ = Doubled
    ours, our_gradients = run(model)
    with plain_forms():
        theirs, their_gradients = run(model)
    torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-5, atol=1e-5)
    for name, gradient in their_gradients.items():
        torch.testing.assert_close(our_gradients[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_layers_in_disguise_are_called_as_they_are() -> None:
    model = tiny_model(**LOOPS["deep feeding"])
    decoder = model.model.decoder

    class Adapted(nn.Linear):
        """What an adapter library puts in the place of a Linear."""

    adapted = Adapted(decoder.encoder_attn.q_proj.in_features, decoder.encoder_attn.q_proj.out_features)
    decoder.encoder_attn.q_proj = adapted
    memory = decoder.encoder_attn.remember(torch.randn(2, 7, model.config.d_model))
    assert attention_twin(decoder.encoder_attn, memory, 5).q_proj is adapted
    assert isinstance(fusion_twin(decoder.context_fusion, 5).readout_proj, LoopLinear)
    seen = []
    handle = decoder.layers[0].register_forward_hook(lambda *_: seen.append(1))
    assert cell_twin(decoder.layers[0], 5) is decoder.layers[0]
    ids, mask = source_batch()
    model(input_ids=ids, attention_mask=mask, labels=target_batch()).loss.backward()
    handle.remove()
    assert len(seen) == target_batch().shape[1] and adapted.weight.grad is not None
