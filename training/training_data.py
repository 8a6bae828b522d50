"""The training pairs of a recipe, held in memory or streamed: cleaned, counted, tokenised, mixed."""

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from random import Random
from typing import Any

import datasets
import numpy
from transformers import TrainerState, TrainingArguments

from hf_seq2seq_attn.probing import Gold
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer

from .cleaning import BLANK, RULES, Cleaner, draws
from .corpus_reading import NO_LINKS, Pair
from .data import EncodingCounts, PairEncoder, ParallelCorpus, encode_corpus, read_corpus
from .data_recipe import Corpus, DataRecipe, corpora_of, first_line_of, has_links, is_local, name_of
from .processes import in_turn
from .streaming import StreamPlan, clean_pairs, make_stream, reservoir
from .token_cache import cache_folder, encode_cached

STREAM_SAMPLE = 100_000
"""Pairs of a stream that the tokenizer learns from, unless `data.tokenizer_sample` says otherwise."""

_SAMPLE_ENCODED = 10_000


def open_training_data(data: DataRecipe, arguments: TrainingArguments) -> "LoadedTraining | StreamedTraining":
    """Read and clean the training corpora, or, for a stream, read them once to find bad input and count.

    Raises:
        InputError: `FILE:LINE: what; remedy`, or no pair is left by the cleaning rules.
    """
    seed = arguments.seed if arguments.data_seed is None else arguments.data_seed
    return StreamedTraining(data, arguments, seed) if data.streaming else LoadedTraining(data, seed)


def encode_part(
    corpus: ParallelCorpus, tokenizer: AnyTokenizer, data: DataRecipe
) -> tuple[datasets.Dataset, dict[str, Any]]:
    """Tokenise a corpus, by way of the cache; return it, and for the metrics file its counts.

    On several processes the first one tokenises, and the others read what it kept.

    Raises:
        ValueError: no pair is short enough.
    """
    limits = (data.max_source_length, data.max_target_length)
    if not data.cache:
        dataset, counts = encode_corpus(corpus, tokenizer, *limits)
        return dataset, dataclasses.asdict(counts)
    folder = cache_folder(data.cache_dir)
    dataset, counts, reused = in_turn(lambda: encode_cached(corpus, tokenizer, *limits, folder))
    return dataset, dataclasses.asdict(counts) | {"from_cache": reused}


class LoadedTraining:
    """Training corpora in memory.

    Attributes:
        corpora: of the recipe, cleaned.
    """

    def __init__(self, data: DataRecipe, seed: int) -> None:
        self.data, self.seed = data, seed
        self.corpora: list[ParallelCorpus] = []
        self._cleaned: list[tuple[int, Cleaner]] = []
        for corpus in corpora_of(data):
            text = read_corpus(corpus, data.cache_dir)
            cleaner = Cleaner(data.cleaning)
            self.corpora.append(_clean(text, cleaner, corpus))
            self._cleaned.append((len(text), cleaner))

    def text(self) -> ParallelCorpus:
        """Return all pairs, each once, with their links if any has some; pairs of corpora without links have none."""
        if len(self.corpora) == 1:
            return self.corpora[0]
        gold: list[Gold] | None = None
        if any(corpus.gold is not None for corpus in self.corpora):
            gold = [links for corpus in self.corpora for links in corpus.gold or [NO_LINKS] * len(corpus)]
        sources = list(chain.from_iterable(corpus.sources for corpus in self.corpora))
        return ParallelCorpus(sources, list(chain.from_iterable(corpus.targets for corpus in self.corpora)), gold)

    def sample(self) -> ParallelCorpus:
        """Return what the tokenizer learns from: all pairs, or `data.tokenizer_sample` of them."""
        text = self.text()
        wanted = self.data.tokenizer_sample
        if wanted is None or wanted >= len(text):
            return text
        chosen = sorted(Random(self.seed).sample(range(len(text)), wanted))
        gold = None if text.gold is None else [text.gold[index] for index in chosen]
        return ParallelCorpus([text.sources[i] for i in chosen], [text.targets[i] for i in chosen], gold)

    def put_links(self, gold: Sequence[Gold]) -> None:
        """Take these links, one for each pair of `text()`, in place of those that the corpora came with."""
        rest = iter(gold)
        self.corpora = [dataclasses.replace(corpus, gold=list(islice(rest, len(corpus)))) for corpus in self.corpora]

    def encode(self, tokenizer: AnyTokenizer, *, links: bool) -> tuple[datasets.Dataset, dict[str, Any]]:
        """Tokenise, and draw each pair as often as its corpus's weight says.

        Args:
            links: carry them as `guide`.

        Raises:
            ValueError: no pair is short enough.
        """
        parts: list[datasets.Dataset] = []
        records: list[dict[str, Any]] = []
        links = links and any(corpus.gold is not None for corpus in self.corpora)
        for number, (corpus, text) in enumerate(zip(corpora_of(self.data), self.corpora, strict=True)):
            gold = (text.gold or [NO_LINKS] * len(text)) if links else None
            dataset, record = encode_part(dataclasses.replace(text, gold=gold), tokenizer, self.data)
            pairs, cleaner = self._cleaned[number]
            record |= {"pairs": pairs} | {rule: cleaner.counts[rule] for rule in RULES}
            if corpus.weight != 1:
                times = numpy.fromiter(draws(corpus.weight, self.seed + number), int, count=len(dataset))
                dataset = dataset.select(numpy.repeat(numpy.arange(len(dataset)), times))
            if not len(dataset):
                raise InputError(
                    f"{name_of(corpus)}: weight {corpus.weight:g} draws none of its {len(text)} pairs; raise it"
                )
            parts.append(dataset)
            records.append(record | {"name": name_of(corpus), "weight": corpus.weight, "drawn": len(dataset)})
        if len(parts) == 1 and corpora_of(self.data)[0].weight == 1:
            return parts[0], {key: records[0][key] for key in records[0] if key not in ("name", "weight", "drawn")}
        return datasets.concatenate_datasets(parts), _total(records)

    def epochs(self, state: TrainerState) -> float | None:
        """Return how many times the pairs have been gone through."""
        return round(state.epoch or 0.0, 3)


class StreamedTraining:
    """Training corpora read while training; see `streaming`.

    They are read once before: files and folders to their end, so that bad input is found before training starts, a data
    set of the Hub as far as the tokenizer's sample reaches.
    """

    def __init__(self, data: DataRecipe, arguments: TrainingArguments, seed: int) -> None:
        self.data, self.arguments, self.seed = data, arguments, seed
        self.records: list[dict[str, Any]] = []
        self._sample = self._read_once()

    def _read_once(self) -> list[Pair]:
        size = self.data.tokenizer_sample or STREAM_SAMPLE
        return reservoir(
            chain.from_iterable(self._read_corpus(number, size) for number in range(len(corpora_of(self.data)))),
            size,
            Random(self.seed),
        )

    def _read_corpus(self, number: int, size: int) -> Iterator[Pair]:
        """Yield the clean pairs of a corpus; at its end note its counts."""
        corpus = corpora_of(self.data)[number]
        cleaner = Cleaner(self.data.cleaning)
        pairs = clean_pairs(corpus, self.data, cleaner, streaming=True)
        kept = drawn = 0
        for pair, times in zip(
            pairs if is_local(corpus) else islice(pairs, size), draws(corpus.weight, self.seed + number), strict=False
        ):
            kept, drawn = kept + 1, drawn + times
            yield pair
        counts = {rule: cleaner.counts[rule] for rule in RULES}
        read = kept + sum(counts.values())
        cleaner.report(name_of(corpus), read)
        if not kept:
            raise _nothing_left(name_of(corpus), read, cleaner)
        if not drawn:
            raise InputError(f"{name_of(corpus)}: weight {corpus.weight:g} draws none of its {kept} pairs; raise it")
        self.records.append(
            {"name": name_of(corpus), "weight": corpus.weight, "pairs": read, "kept": kept, **counts, "drawn": drawn}
            | ({} if is_local(corpus) else {"first_pairs_only": True})
        )

    def sample(self) -> ParallelCorpus:
        """Return what the tokenizer learns from: pairs drawn at random from all that was read."""
        gold = None
        if any(has_links(corpus) for corpus in corpora_of(self.data)):
            gold = [pair.links or NO_LINKS for pair in self._sample]
        return ParallelCorpus([pair.source for pair in self._sample], [pair.target for pair in self._sample], gold)

    def encode(self, tokenizer: AnyTokenizer, *, links: bool) -> tuple[datasets.IterableDataset, dict[str, Any]]:
        """Return the stream, and for the metrics file its counts, with those of a tokenised sample beside them.

        Raises:
            ValueError: no pair of the sample is short enough.
        """
        arguments = self.arguments
        links = links and any(has_links(corpus) for corpus in corpora_of(self.data))
        encoder = PairEncoder(tokenizer, self.data.max_source_length, self.data.max_target_length)
        some = self._sample[:: -(-len(self._sample) // _SAMPLE_ENCODED)]
        encoder.encode([pair.source for pair in some], [pair.target for pair in some])
        sample = encoder.result(len(some), 0)
        plan = StreamPlan(
            data=self.data,
            drawn=tuple(record["drawn"] for record in self.records),
            tokenizer=tokenizer,
            links=links,
            seed=self.seed,
            shares=arguments.world_size * max(arguments.dataloader_num_workers, 1),
            step_size=arguments.train_batch_size * arguments.gradient_accumulation_steps,
            strategy=str(getattr(arguments.train_sampling_strategy, "value", arguments.train_sampling_strategy)),
        )
        names = ("pairs", "kept", "source_tokens", "target_tokens", "source_unknown", "target_unknown", "too_long")
        record = _total(self.records) if len(self.records) > 1 else dict(self.records[0])
        record |= {"streamed": True, "sample": {name: getattr(sample, name) for name in names}}
        return make_stream(plan), record

    def epochs(self, state: TrainerState) -> float | None:
        """Return how many times the pairs have been gone through; None if their number is not known."""
        if any("first_pairs_only" in record for record in self.records):
            return None
        step = self.arguments.train_batch_size * self.arguments.gradient_accumulation_steps * self.arguments.world_size
        return round(state.global_step * step / sum(record["drawn"] for record in self.records), 3)


def streaming_arguments(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the training section with what a stream needs: each process fetches its own batches."""
    accelerator = dict(settings.get("accelerator_config") or {}) | {"dispatch_batches": False}
    return settings | {"accelerator_config": accelerator}


def _clean(text: ParallelCorpus, cleaner: Cleaner, corpus: Corpus) -> ParallelCorpus:
    name, first = name_of(corpus), first_line_of(corpus)
    kept = [
        index
        for index in range(len(text))
        if cleaner.keeps(text.sources[index], text.targets[index], f"{name}:{index + first}")
    ]
    cleaner.report(name, len(text))
    if not kept:
        raise _nothing_left(name, len(text), cleaner)
    if len(kept) == len(text):
        return text
    gold = None if text.gold is None else [text.gold[index] for index in kept]
    return ParallelCorpus([text.sources[index] for index in kept], [text.targets[index] for index in kept], gold)


def _nothing_left(name: str, pairs: int, cleaner: Cleaner) -> InputError:
    if cleaner.counts[BLANK] == pairs:
        return InputError(f"{name}:1: no sentence pair with words on both sides; check the file")
    broken = ", ".join(f"{cleaner.counts[rule]} {what}" for rule, what in RULES.items() if cleaner.counts[rule])
    return InputError(f"{name}:1: none of {pairs} pairs is left ({broken}); loosen data.cleaning")


def _total(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of the counts of several corpora, and the counts of each."""
    names = {field.name for field in dataclasses.fields(EncodingCounts)} | {"drawn"}
    sums = {name: sum(record[name] for record in records) for name in records[0] if name in names}
    return sums | {"corpora": records}
