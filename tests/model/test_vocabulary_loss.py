"""The loss in blocks against the formula as it stands."""

import numpy
import pytest
import torch
from torch import nn
from variants import source_batch, target_batch, tiny_model

from hf_seq2seq_attn import vocabulary_loss as module
from hf_seq2seq_attn.cpu_kernels import from_bfloat16, kernels_switched, to_bfloat16
from hf_seq2seq_attn.vocabulary_loss import (
    to_slopes,
    to_slopes_by_torch,
    vocabulary_loss,
    vocabulary_loss_reference,
)

TOKENS, WIDTH, VOCABULARY = 11, 5, 17


@pytest.fixture(params=["kernels", "torch"])
def case(monkeypatch, request):
    with kernels_switched(request.param == "kernels"):
        yield drawn(monkeypatch)


def drawn(monkeypatch):
    # A whole group and a rest, of whole blocks and a rest.
    monkeypatch.setattr(module, "BLOCK", 3 * VOCABULARY)
    monkeypatch.setattr(module, "GROUP", 7 * VOCABULARY)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(TOKENS, WIDTH, generator=generator, dtype=torch.float64).float().requires_grad_()
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator).requires_grad_()
    labels = torch.randint(VOCABULARY, (TOKENS,), generator=generator)
    return states, weight, labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("frozen", ["nothing", "states", "weight"])
def test_value_and_gradients_are_those_of_the_formula(case, smoothing, frozen):
    states, weight, _ = case
    states.requires_grad_(frozen != "states")
    weight.requires_grad_(frozen != "weight")
    trained = [part for part in (states, weight) if part.requires_grad]
    got, wanted = vocabulary_loss(*case, smoothing), vocabulary_loss_reference(*case, smoothing)
    torch.testing.assert_close(got, wanted)
    for ours, theirs in zip(
        torch.autograd.grad(got / 3, trained), torch.autograd.grad(wanted / 3, trained), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_logits_far_apart_neither_overflow_nor_vanish(case):
    states, weight, labels = case
    far = (states.detach() * 300).requires_grad_()
    got, wanted = vocabulary_loss(far, weight, labels), vocabulary_loss_reference(far, weight, labels)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(torch.autograd.grad(got, far)[0], torch.autograd.grad(wanted, far)[0])


def test_under_autocast_softmax_and_sums_stay_in_float32(case):
    states, weight, _ = case
    with torch.autocast("cpu", torch.bfloat16):
        got, wanted = vocabulary_loss(*case), vocabulary_loss_reference(*case)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, wanted)
    ours, theirs = torch.autograd.grad(got, [states, weight]), torch.autograd.grad(wanted, [states, weight])
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)


def test_without_any_token_the_loss_and_its_gradients_are_zero(case):
    states, weight, labels = case
    loss = vocabulary_loss(states[:0], weight, labels[:0])
    assert loss == 0
    assert not torch.autograd.grad(loss, weight)[0].any()


def test_a_second_pass_over_a_kept_graph_gives_the_same_gradients(case):
    states, weight, _ = case
    loss = vocabulary_loss(*case) / 3
    first = torch.autograd.grad(loss, [states, weight], retain_graph=True)
    for one, other in zip(first, torch.autograd.grad(loss, [states, weight]), strict=True):
        assert one.data_ptr() != other.data_ptr()
        assert torch.equal(one, other)


def test_a_second_derivative_is_refused(case):
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(vocabulary_loss(*case), case[0], create_graph=True)


@pytest.mark.parametrize("decoder", ["gru", "transformer"])
def test_a_model_in_training_gives_the_same_loss_without_logits(decoder):
    model = tiny_model(decoder_type=decoder).train()
    ids, mask = source_batch()
    labels = target_batch().masked_fill(torch.rand(target_batch().shape) < 0.3, -100)
    inputs = dict(input_ids=ids, attention_mask=mask, labels=labels, smoothing=0.1)
    model.config.dropout = 0
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0
    found = {}
    for skip in (None, True, False):
        model.zero_grad()
        output = model(**inputs, skip_logits=skip)
        output.loss.backward()
        assert (output.logits is None) == (skip is not False)
        found[skip] = [output.loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]
    for skip in (None, True):
        for one, other in zip(found[skip], found[False], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert model(input_ids=ids, decoder_input_ids=labels.clamp(min=0)).logits is not None, (
        "nothing to compute but logits"
    )
    assert model.eval()(**inputs).logits is not None, "an evaluation shows what was predicted"


def test_an_output_layer_that_is_more_than_its_weight_is_called():
    model = tiny_model().train()
    ids, mask = source_batch()
    calls = []
    model.lm_head.register_forward_hook(lambda *_: calls.append(1))
    assert model(input_ids=ids, attention_mask=mask, labels=target_batch()).logits is None
    assert calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("scale", [1.0, 90.0])
@pytest.mark.parametrize("in_place", [False, True])
def test_kernels_make_the_same_slopes(dtype, smoothing, scale, in_place):
    logits = (torch.randn(TOKENS, VOCABULARY) * scale).to(dtype)
    labels = torch.randint(VOCABULARY, (TOKENS, 1))
    theirs, ours = (logits.clone() for _ in range(2))
    given = ours if in_place else logits.clone()
    torch.testing.assert_close(
        to_slopes(given, labels, smoothing, out=ours),
        to_slopes_by_torch(logits, labels, smoothing, out=theirs),
        rtol=1e-5,
        atol=1e-4,
    )
    assert in_place or torch.equal(given, logits)
    torch.testing.assert_close(ours, theirs, rtol=1e-5 if dtype == torch.float32 else 1e-2, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_kernels_hide_no_number_that_is_none(dtype, value):
    logits = torch.randn(TOKENS, VOCABULARY).to(dtype)
    logits[3, 4] = value
    labels = torch.zeros(TOKENS, 1, dtype=torch.long)
    ours, theirs = logits.clone(), logits.clone()
    loss = to_slopes(logits, labels, 0.0, out=ours)
    wanted = to_slopes_by_torch(logits, labels, 0.0, out=theirs)
    assert loss.isfinite() == wanted.isfinite() == (value == float("-inf"))
    torch.testing.assert_close(ours.isfinite().all(1), theirs.isfinite().all(1))


def test_bits_of_bfloat16_are_those_of_torch():
    numbers = torch.cat([torch.randn(500) * 10.0**power for power in range(-30, 30, 5)]).tolist()
    numbers += [0.0, -0.0, 1.00390625, 1.01171875, 3.0e38, float("inf")]  # two of them halfway between neighbours
    exact = torch.tensor(numbers).to(torch.bfloat16)
    bits = torch.tensor([int(to_bfloat16(numpy.float32(x))) for x in numbers], dtype=torch.int16)
    assert torch.equal(bits, exact.view(torch.int16))
    assert [float(from_bfloat16(int(each))) for each in exact.view(torch.int16)] == exact.float().tolist()


@pytest.mark.parametrize("label", [-1, VOCABULARY])
def test_a_label_that_is_no_token_is_refused_in_words(case, label):
    states, weight, labels = case
    labels[3] = label
    with pytest.raises(IndexError, match=f"labels hold {label}; allowed are 0 to {VOCABULARY - 1}"):
        vocabulary_loss(states, weight, labels)
    model = tiny_model().train()
    ids, mask = source_batch()
    targets = target_batch()
    targets[0, -1] = model.config.target_vocab_size  # the last label is not fed, so no embedding refuses it
    with pytest.raises(IndexError, match="allowed are 0 to"):
        model(input_ids=ids, attention_mask=mask, labels=targets)
