"""The parts of a fast decoding step against what they stand for."""

import itertools

import pytest
import torch
from transformers.generation import logits_process as library

from hf_seq2seq_attn import fast_linear, fast_scores
from hf_seq2seq_attn.fast_linear import linear, training_linear
from hf_seq2seq_attn.fast_scores import Processors, rule_of, top


@pytest.mark.parametrize("columns", [64, 65, 331, 1003])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_top_is_topk(columns: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_scores, "FEW", 0)
    monkeypatch.setattr(fast_scores, "BLOCK", 3)
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        scores = torch.randn(7, columns, generator=generator)
        scores[0, : columns - 5] = float("-inf")
        scores[1, 5:] = float("-inf")
        scores[2, -1] = 9.0
        values, found = top(scores, count)
        wanted = torch.topk(scores, count)
        assert torch.equal(values, wanted.values) and torch.equal(found, wanted.indices)


def test_the_first_of_equals_is_chosen_as_argmax_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_scores, "FEW", 0)
    scores = torch.randint(0, 3, (50, 331), generator=torch.Generator().manual_seed(0)).float()
    assert torch.equal(top(scores, 1)[1][:, 0], scores.argmax(-1))


@pytest.mark.parametrize("most", [1, 3, 8])
@pytest.mark.parametrize("rows", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("sizes", [(13, 29), (29, 13)], ids=str)
def test_a_repeated_product_is_the_general_one_for_any_number_of_rows(
    sizes: tuple[int, int], rows: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_linear, "PACKED_WEIGHTS", 1)
    outputs, width = sizes
    weight, inputs = torch.randn(outputs, width), torch.randn(rows, width)
    for bias in (torch.randn(outputs), None):
        wanted = torch.nn.functional.linear(inputs, weight, bias)
        found = linear(weight, bias, most)(inputs)
        assert found.is_contiguous()
        assert torch.allclose(found, wanted, atol=1e-5)


def test_where_weights_cannot_be_packed_the_general_product_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_linear, "PACKED_WEIGHTS", 1)
    monkeypatch.setattr(fast_linear, "can_pack", lambda *_: False)
    weight, inputs = torch.randn(13, 29), torch.randn(5, 29)
    assert torch.equal(linear(weight, None, 8)(inputs), torch.nn.functional.linear(inputs, weight))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_types_without_such_kernels_take_the_general_product(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_linear, "PACKED_WEIGHTS", 1)
    assert not fast_linear.can_pack(dtype)
    weight, inputs = torch.randn(13, 29).to(dtype), torch.randn(5, 29).to(dtype)
    assert torch.equal(linear(weight, None, 8)(inputs), torch.nn.functional.linear(inputs, weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("steps", [1, 1000], ids=["few steps", "many steps"])
@pytest.mark.parametrize("packs", [True, False], ids=["packs", "cannot pack"])
def test_a_product_of_training_is_the_general_one(
    dtype: torch.dtype, steps: int, packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights and inputs may lie in memory in any order, as gradients do."""
    monkeypatch.setattr(fast_linear, "PACKED_TRAINING_WEIGHTS", 1)
    if not packs:
        monkeypatch.setattr(fast_linear, "can_pack", lambda *_: False)
    generator = torch.Generator().manual_seed(0)
    weight, bias, inputs = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((13, 29), (13,), (7, 29)))
    laid = {
        "rows": inputs,
        "columns": inputs.t().contiguous().t(),
        "every second": torch.randn(7, 58, generator=generator).to(dtype)[:, ::2],
        "one row for all": inputs[:1].expand(7, -1),
    }
    for matrix in (weight, weight.t().contiguous().t()):
        for added in (None, bias):
            product = training_linear(matrix, added, 7, steps)
            for name, rows in laid.items():
                for some in (rows, rows[:3]):
                    wanted = torch.nn.functional.linear(some, matrix, added)
                    torch.testing.assert_close(product(some), wanted, rtol=1e-2, atol=1e-5, msg=name)


PROCESSORS = {
    "suppress": library.SuppressTokensLogitsProcessor([0, 5, 40]),
    "suppress at begin": library.SuppressTokensAtBeginLogitsProcessor([3, 4], 2),
    "length": library.MinLengthLogitsProcessor(3, [2, 7]),
    "new tokens": library.MinNewTokensLengthLogitsProcessor(1, 3, 2),
    "first": library.ForcedBOSTokenLogitsProcessor(6),
    "last": library.ForcedEOSTokenLogitsProcessor(5, [2, 8]),
}


@pytest.mark.parametrize("names", list(itertools.permutations(PROCESSORS, 2)), ids="-".join)
def test_rules_do_what_the_processors_do(names: tuple[str, ...]) -> None:
    chosen = library.LogitsProcessorList(PROCESSORS[name] for name in names)
    ours = Processors(chosen, 11, torch.device("cpu"))
    assert ours.are_rules
    for length in range(1, 6):
        ids, scores = torch.ones(3, length, dtype=torch.long), torch.randn(3, 11)
        wanted = chosen(ids, scores.clone())
        assert torch.equal(ours(ids, scores.clone()), wanted)
        for count in range(1, 12):
            if ours.leave(count, length):
                assert int(wanted.isfinite().sum(1).min()) >= count
    assert ours.leave(4, 3)


def test_a_subclass_is_no_rule() -> None:
    class Own(library.SuppressTokensLogitsProcessor):
        pass

    assert rule_of(Own([1]), 11) is None
    ours = Processors(library.LogitsProcessorList([Own([1]), PROCESSORS["length"]]), 11, torch.device("cpu"))
    assert not ours.are_rules and not ours.leave(1, 1)
    assert torch.isinf(ours(torch.ones(2, 1, dtype=torch.long), torch.randn(2, 11))[:, [1, 2, 7]]).all()
