"""Training pairs read, cleaned, tokenised and shuffled while training, in constant memory.

The stream has no end: after the last pair of the corpora it goes on with the first, in another order. To the Trainer
the whole run is therefore one epoch, and to go on after an interruption it skips as many batches as it had read, which
gives the very batches that would have come. Each process (and each of its data loader workers) reads all text, and
tokenises only every n-th pair: its share. Accelerate gives the shares out, as the shards of a `datasets` stream.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import islice, repeat
from operator import itemgetter
from random import Random
from typing import Any, TypeVar

import datasets

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer

from .cleaning import Cleaner, draws
from .corpus_reading import NO_LINKS, Pair, iterate_corpus
from .data import PairEncoder, Row
from .data_recipe import Corpus, DataRecipe, corpora_of, name_of
from .sampling import LengthGroupedBatches

_TOKENISED_AT_ONCE = 1_000


@dataclass(frozen=True)
class StreamPlan:
    """What decides the order and content of a stream.

    Attributes:
        drawn: pairs of each corpus that one epoch draws; they say how corpora are mixed. Of a single one: not needed.
        links: carry the corpora's links as `guide`.
        shares: among how many processes and workers the pairs are dealt out.
        step_size: pairs of one share in one optimiser step.
        strategy: group_by_length, random (both within a window of `data.stream_window` pairs) or sequential.
    """

    data: DataRecipe
    drawn: tuple[int, ...]
    tokenizer: AnyTokenizer
    links: bool
    seed: int
    shares: int
    step_size: int
    strategy: str


def make_stream(plan: StreamPlan) -> datasets.IterableDataset:
    """Return the stream of rows, as `PairEncoder` makes them, for a Trainer; it has `plan.shares` shards."""
    return datasets.IterableDataset.from_generator(
        _rows_of_shares, gen_kwargs={"shares": list(range(plan.shares)), "plan": plan}
    )


def clean_pairs(corpus: Corpus, data: DataRecipe, cleaner: Cleaner, *, streaming: bool) -> Iterator[Pair]:
    """Yield the pairs of a corpus that the cleaner keeps; none is blank."""
    name = name_of(corpus)
    for pair in iterate_corpus(corpus, streaming=streaming, cache_dir=data.cache_dir):
        if cleaner.keeps(pair.source, pair.target, f"{name}:{pair.line}"):
            yield pair


def mixed_pairs(plan: StreamPlan) -> Iterator[Pair]:
    """Yield the pairs of one epoch: each as often as its corpus's weight says, the corpora evenly mixed."""
    streams = [_drawn_pairs(plan, number) for number in range(len(corpora_of(plan.data)))]
    if len(streams) == 1:
        return streams[0]
    placed = [_placed(stream, plan.drawn[number], number) for number, stream in enumerate(streams)]
    return (pair for _, _, pair in merge(*placed, key=itemgetter(0, 1)))


def _drawn_pairs(plan: StreamPlan, number: int) -> Iterator[Pair]:
    corpus = corpora_of(plan.data)[number]
    pairs = clean_pairs(corpus, plan.data, Cleaner(plan.data.cleaning), streaming=True)
    for pair, times in zip(pairs, draws(corpus.weight, plan.seed + number), strict=False):
        yield from repeat(pair, times)


def _placed(pairs: Iterator[Pair], total: int, number: int) -> Iterator[tuple[float, int, Pair]]:
    """Yield pair i of n with its place, (i + 1/2) / n of the epoch, whichever corpus it belongs to."""
    for index, pair in enumerate(pairs):
        yield (index + 0.5) / total, number, pair


def rows_of_share(plan: StreamPlan, share: int) -> Iterator[Row]:
    """Yield the rows of one share, epoch after epoch, without end.

    Raises:
        InputError: bad data, or an epoch without a single pair for this share.
    """
    encoder = PairEncoder(plan.tokenizer, plan.data.max_source_length, plan.data.max_target_length)
    # Only whole steps are put in order, so that sentences of like length stay together in batches.
    size = max(plan.data.stream_window // plan.step_size, 1) * plan.step_size
    window: list[Row] = []
    number = 0
    while True:
        before = encoder.counts["kept"]
        for pairs in _batches(islice(mixed_pairs(plan), share, None, plan.shares), _TOKENISED_AT_ONCE):
            links = [pair.links or NO_LINKS for pair in pairs] if plan.links else None
            window += encoder.encode([pair.source for pair in pairs], [pair.target for pair in pairs], links)
            while len(window) >= size:
                yield from _in_order(window[:size], plan, share, number)
                window, number = window[size:], number + 1
        if encoder.counts["kept"] == before:
            raise InputError(
                f"{name_of(corpora_of(plan.data)[0])}: no pair is left for process or worker {share + 1} of "
                f"{plan.shares}; use fewer, or raise data.max_source_length and data.max_target_length"
            )
        whole = len(window) // plan.step_size * plan.step_size
        yield from _in_order(window[:whole], plan, share, number)
        window, number = window[whole:], number + 1


def _rows_of_shares(shares: list[int], plan: StreamPlan) -> Iterator[Row]:
    for share in shares:
        yield from rows_of_share(plan, share)


def _in_order(rows: list[Row], plan: StreamPlan, share: int, number: int) -> Iterator[Row]:
    """Yield the rows of a window in the order that the strategy wants; the order depends on the seed alone."""
    seed = plan.seed + 7_919 * share
    indices: Iterable[int] = range(len(rows))
    if plan.strategy == "group_by_length":
        batches = LengthGroupedBatches([row["length"] for row in rows], plan.step_size, seed)
        batches.set_epoch(number)
        indices = batches
    elif plan.strategy == "random":
        indices = Random(seed + 1_000_003 * number).sample(range(len(rows)), len(rows))
    for index in indices:
        yield rows[index]


_T = TypeVar("_T")


def _batches(items: Iterator[_T], size: int) -> Iterator[list[_T]]:
    while batch := list(islice(items, size)):
        yield batch


def reservoir(items: Iterable[_T], size: int, random: Any) -> list[_T]:
    """Return `size` items drawn at random, or all if there are fewer, in their order, holding no more (algorithm R)."""
    kept: list[tuple[int, _T]] = []
    for number, item in enumerate(items):
        if number < size:
            kept.append((number, item))
        elif (place := random.randrange(number + 1)) < size:
            kept[place] = (number, item)
    return [item for _, item in sorted(kept, key=itemgetter(0))]
