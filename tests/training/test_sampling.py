from typing import Any

import datasets
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard

from hf_seq2seq_attn.training.sampling import COUNTS, LengthGroupedBatches, TokenBatches, token_lengths

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


SOURCES = torch.randint(3, 60, (1003,), generator=torch.Generator().manual_seed(1)).tolist()
TARGETS = [max(2, round(length * 1.3) - length % 7) for length in SOURCES]


def token_batches(number: int = 0, **settings: Any) -> list[list[int]]:
    sampler = TokenBatches(SOURCES, TARGETS, **{"tokens": 700, "seed": 3} | settings)
    sampler.set_epoch(number)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    return batches


def cost(batch: list[int], count: str) -> int:
    source, target = max(SOURCES[i] for i in batch), max(TARGETS[i] for i in batch)
    return len(batch) * {"both": source + target, "source": source, "target": target}.get(count, max(source, target))


@pytest.mark.parametrize("count", COUNTS)
def test_token_batches_stay_within_the_budget_and_fill_it(count: str) -> None:
    batches = token_batches(count=count)
    assert sorted(i for batch in batches for i in batch) == list(range(1003))
    costs = [cost(batch, count) for batch in batches]
    assert max(costs) <= 700
    assert sum(costs) / len(costs) > 0.75 * 700
    real = {"both": sum(SOURCES) + sum(TARGETS), "source": sum(SOURCES), "target": sum(TARGETS)}
    if count in real:
        assert real[count] / sum(costs) > 0.85  # shuffled without bucketing it is about 0.5


def test_token_batches_are_drawn_anew_each_epoch_and_alike_on_each_process() -> None:
    first, second = token_batches(0), token_batches(1)
    assert len(first) == len(second)
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}
    torch.rand(17)
    assert token_batches(0) == first
    assert token_batches(0, seed=4) != first
    sums = torch.tensor([sum(SOURCES[i] for i in batch) / len(batch) for batch in first])
    falling = (sums[1:] < sums[:-1]).float().mean().item()
    assert falling == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize("processes", [2, 3, 8])
def test_token_batches_come_out_even_for_all_processes(processes: int) -> None:
    batches = token_batches(tokens=997, multiple_of=processes)
    assert len(batches) % processes == 0
    assert len(batches) - len(token_batches(tokens=997)) < processes
    assert sorted(i for batch in batches for i in batch) == list(range(1003))
    shards = [list(BatchSamplerShard(shard_of(997, processes), processes, rank)) for rank in range(processes)]
    assert {len(shard) for shard in shards} == {len(batches) // processes}
    assert sorted(i for shard in shards for batch in shard for i in batch) == list(range(1003))


def shard_of(tokens: int, processes: int) -> Any:
    return TokenBatches(SOURCES, TARGETS, tokens, seed=3, multiple_of=processes)


def test_the_number_of_pairs_can_be_limited_too() -> None:
    assert max(len(batch) for batch in token_batches()) > 12
    assert max(len(batch) for batch in token_batches(sentences=12)) == 12


def test_a_pair_that_fills_a_batch_alone() -> None:
    sampler = TokenBatches([30, 41, 5, 5], [30, 41, 6, 6], tokens=82)
    assert sorted(map(sorted, sampler)) == [[0], [1], [2, 3]]
    with pytest.raises(ValueError, match=r"batching.tokens=81: one pair alone has 82 tokens \(count: both\)"):
        TokenBatches([30, 41, 5, 5], [30, 41, 6, 6], tokens=81)
    with pytest.raises(ValueError, match="at least one"):
        TokenBatches([], [], tokens=81)


def test_lengths_from_an_arrow_table_are_those_of_its_rows() -> None:
    rows = [{"input_ids": list(range(n + 1)), "labels": list(range(2 * n + 1))} for n in (4, 0, 7)]
    shuffled = datasets.Dataset.from_list(rows).select([2, 0, 1])
    for dataset, order in ((rows, (4, 0, 7)), (shuffled, (7, 4, 0))):
        sources, targets = token_lengths(dataset)
        assert sources.tolist() == [n + 1 for n in order]
        assert targets.tolist() == [2 * n + 1 for n in order]
