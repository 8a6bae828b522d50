"""One step, then unroll: step, unrolled loop and scan are one function, gradients included."""

import pytest
import torch
from torch import nn
from variants import BATCH, OPTIONS, SOURCE, TARGET, WIDTH, source_batch, target_batch, tiny_config, tiny_model

from hf_seq2seq_attn.recurrent import DecoderState, RecurrentDecoder, RecurrentEncoder, summarise

SCANNED = [
    {"decoder_type": cell, "cross_attention_type": attention, "encoder_type": "gru"}
    for cell in ("gru", "lstm")
    for attention in ("scaled_dot_product", "additive", "none")
]
LOOPED = [fields for fields in OPTIONS.values() if fields.get("attend_with") or fields.get("input_feeding")]


def decoder_inputs(model: nn.Module) -> tuple[RecurrentDecoder, torch.Tensor, DecoderState, object]:
    """Return the decoder, embedded target inputs, its first state and what it attends to."""
    ids, mask = source_batch(batch=BATCH)
    decoder = model.model.decoder
    states = model.model.encoder(ids, mask).last_hidden_state
    inputs = decoder.embed(target_batch(batch=BATCH), None)
    return decoder, inputs, decoder._state(states, mask, None), decoder._memory(states, mask, None)


def gradients(model: nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("fields", SCANNED, ids=lambda f: f"{f['decoder_type']}-{f['cross_attention_type']}")
def test_scan_equals_the_unrolled_steps_with_gradients(fields: dict) -> None:
    results = []
    for run in ("unroll", "scan"):
        model = tiny_model(**fields)
        decoder, inputs, state, memory = decoder_inputs(model)
        output, last = getattr(decoder, run)(inputs, state, memory, output_weights=True)
        weights = output.weights
        loss = output.readouts.square().sum() + last.layers[0][0].sum()
        loss = loss if weights is None else loss + weights[..., 1].sum()
        results.append((output, last, gradients(model, loss)))
    (slow, slow_last, slow_grads), (fast, fast_last, fast_grads) = results
    assert torch.allclose(slow.readouts, fast.readouts, atol=1e-5)
    for one, other in zip(slow.hidden, fast.hidden, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    if fields["cross_attention_type"] == "none":
        assert slow.weights is None and fast.weights is None
    else:
        assert torch.allclose(slow.weights, fast.weights, atol=1e-5)
    for one, other in zip(slow_last.layers, fast_last.layers, strict=True):
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(one, other, strict=True))
    assert slow_grads.keys() == fast_grads.keys()
    for name, grad in slow_grads.items():
        assert torch.allclose(grad, fast_grads[name], atol=1e-4, rtol=1e-4), name


def test_one_gru_step_by_hand() -> None:
    model = tiny_model(encoder_type="gru", decoder_type="gru", decoder_layers=1)
    decoder, inputs, state, memory = decoder_inputs(model)
    output, after = decoder.step(inputs[:, 0], state, memory, output_weights=True)
    cell = decoder.layers[0]
    gates_x = inputs[:, 0] @ cell.weight_ih_l0.T + cell.bias_ih_l0
    gates_h = state.layers[0][0] @ cell.weight_hh_l0.T + cell.bias_hh_l0
    (rx, zx, nx), (rh, zh, nh) = gates_x.chunk(3, -1), gates_h.chunk(3, -1)
    update = torch.sigmoid(zx + zh)
    h = (1 - update) * torch.tanh(nx + torch.sigmoid(rx + rh) * nh) + update * state.layers[0][0]
    assert torch.allclose(after.layers[0][0], h, atol=1e-5)
    context, weights = decoder.encoder_attn(h[:, None], memory, output_weights=True)
    assert torch.allclose(output.weights, weights, atol=1e-5)
    assert torch.allclose(output.readouts, decoder.context_fusion(h[:, None], context), atol=1e-5)


@pytest.mark.parametrize("fields", LOOPED, ids=lambda f: "-".join(str(v) for v in f.values()))
def test_a_run_in_two_parts_equals_one_run(fields: dict) -> None:
    decoder, inputs, state, memory = decoder_inputs(tiny_model(**fields))
    whole, last = decoder.unroll(inputs, state, memory)
    first, middle = decoder.unroll(inputs[:, :2], state, memory)
    second, end = decoder.unroll(inputs[:, 2:], middle, memory)
    assert torch.allclose(whole.readouts, torch.cat([first.readouts, second.readouts], 1), atol=1e-6)
    assert torch.allclose(last.layers[-1][0], end.layers[-1][0], atol=1e-6)


def test_previous_state_queries_before_it_reads_the_token() -> None:
    """Row t's weights must not depend on token t with `previous_state`, and must with `current_state`."""
    for attend_with in ("previous_state", "current_state"):
        model = tiny_model(encoder_type="gru", decoder_type="gru", attend_with=attend_with)
        decoder, inputs, state, memory = decoder_inputs(model)
        changed = inputs.clone()
        changed[:, 2] += 1
        before = decoder.unroll(inputs, state, memory, output_weights=True)[0].weights
        after = decoder.unroll(changed, state, memory, output_weights=True)[0].weights
        first_changed = int((before - after).abs().amax((0, 1, 3)).gt(1e-6).nonzero()[0])
        assert first_changed == (3 if attend_with == "previous_state" else 2)


def test_the_state_stands_still_where_the_mask_is_zero() -> None:
    for fields in (SCANNED[0], SCANNED[4], LOOPED[0], LOOPED[3]):
        decoder, inputs, state, memory = decoder_inputs(tiny_model(**fields))
        keep = torch.tensor([[True, False, True, False, False], [True] * 5])
        _, masked = decoder._decode(inputs, state, memory, keep, False)
        kept = inputs[:1, [0, 2]]
        first = DecoderState(
            tuple(tuple(part[:1] for part in layer) for layer in state.layers),
            None if state.readout is None else state.readout[:1],
        )
        memory_of_first = type(memory)(*(None if part is None else part[:1] for part in memory))
        _, alone = decoder.unroll(kept, first, memory_of_first)
        for got, wanted in zip(masked.layers, alone.layers, strict=True):
            assert all(torch.allclose(a[:1], b, atol=1e-5) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_encoder_does_not_see_padding_anywhere(cell: str, bidirectional: bool) -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder(tiny_config(encoder_type=cell, encoder_bidirectional=bidirectional)).eval()
    alone = torch.randint(3, 29, (1, 4))
    expected = encoder(alone).last_hidden_state[0]
    for places in ([0, 1, 2, 3], [3, 4, 5, 6], [0, 2, 3, 6]):
        ids, mask = torch.zeros(2, SOURCE, dtype=torch.long), torch.zeros(2, SOURCE, dtype=torch.long)
        ids[0, places], mask[0, places] = alone[0], 1
        ids[1], mask[1] = torch.randint(3, 29, (SOURCE,)), 1
        states = encoder(ids, mask).last_hidden_state
        assert states.shape == (2, SOURCE, WIDTH)
        assert torch.allclose(states[0, places], expected, atol=1e-6)
        assert (states[0, mask[0] == 0] == 0).all()
        summary = summarise(states, mask, encoder.config)
        half = WIDTH // 2
        wanted = torch.cat([expected[3, :half], expected[0, half:]]) if bidirectional else expected[3]
        assert torch.allclose(summary[0], wanted, atol=1e-6)


def test_summary_of_a_transformer_encoder_is_the_mean_of_real_states() -> None:
    states = torch.randn(2, 3, WIDTH)
    mask = torch.tensor([[0, 1, 1], [0, 0, 0]])
    summary = summarise(states, mask, tiny_config(decoder_type="gru"))
    assert torch.allclose(summary[0], states[0, 1:].mean(0), atol=1e-6)
    assert (summary[1] == 0).all()


def test_an_empty_source_row_is_defined() -> None:
    for fields in SCANNED:
        model = tiny_model(**fields)
        ids, mask = source_batch()
        mask[1] = 0
        output = model(ids, attention_mask=mask, decoder_input_ids=target_batch(), output_attentions=True)
        assert torch.isfinite(output.logits).all()
        assert output.cross_attentions is None or (output.cross_attentions[0][1] == 0).all()


@pytest.mark.parametrize(
    "name", ["previous_state", "input_feeding", "previous_state_lstm_heads", "add_heads", "previous_state_none"]
)
def test_checkpointed_segments_give_the_same_gradients(name: str) -> None:
    ids, mask = source_batch()
    labels = target_batch(length=35)  # three segments, the last one short
    results = []
    for reentrant in (None, False, True):
        model = tiny_model(sharp=0.3, dropout=0.0, **OPTIONS[name]).train()
        if reentrant is not None:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
        results.append(gradients(model, model(ids, attention_mask=mask, labels=labels).loss))
    for recomputed in results[1:]:
        assert recomputed.keys() == results[0].keys()
        for parameter, grad in results[0].items():
            assert torch.allclose(grad, recomputed[parameter], atol=1e-5), parameter


def test_sizes_of_the_target_do_not_leak_into_the_source() -> None:
    model = tiny_model(encoder_type="gru", decoder_type="gru")
    ids, mask = source_batch()
    output = model(ids, attention_mask=mask, decoder_input_ids=target_batch(), output_attentions=True)
    assert output.cross_attentions[0].shape == (3, 1, TARGET, SOURCE)
