import pytest
import torch

from hf_seq2seq_attn.training.sampling import LengthGroupedBatches

LENGTHS = torch.randint(3, 60, (1003,), generator=torch.Generator().manual_seed(0)).tolist()


def epoch(sampler: LengthGroupedBatches, number: int) -> list[int]:
    sampler.set_epoch(number)
    return list(sampler)


def test_each_example_once_and_each_epoch_anew() -> None:
    sampler = LengthGroupedBatches(LENGTHS, step_size=8, seed=3)
    first, second = epoch(sampler, 0), epoch(sampler, 1)
    assert sorted(first) == sorted(second) == list(range(1003))
    assert first != second
    # Whatever other random numbers were drawn meanwhile.
    torch.rand(17)
    assert epoch(sampler, 0) == first
    assert epoch(LengthGroupedBatches(LENGTHS, step_size=8, seed=4), 0) != first


def test_batches_are_even_and_their_order_is_not() -> None:
    order = epoch(LengthGroupedBatches(LENGTHS, step_size=8, seed=3), 0)
    batches = [[LENGTHS[i] for i in order[start : start + 8]] for start in range(0, 1000, 8)]
    assert len(batches) == 125
    spread = sum(max(batch) - min(batch) for batch in batches) / len(batches)
    assert spread < 3  # at random it is about 45
    means = torch.tensor([sum(batch) / 8 for batch in batches])
    falling = (means[1:] < means[:-1]).float().mean().item()
    assert falling == pytest.approx(0.5, abs=0.15)


def test_a_step_must_hold_something() -> None:
    with pytest.raises(ValueError, match="step_size=0"):
        LengthGroupedBatches([1], step_size=0, seed=0)
