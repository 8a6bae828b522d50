"""From a corpus, and its links if there are any, to the data set that a Trainer takes."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import datasets

from hf_seq2seq_attn.probing import Gold, read_link_file
from hf_seq2seq_attn.text_files import InputError, read_aligned
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer, sides

from .collation import GUIDE
from .corpus_reading import NO_LINKS, iterate_corpus
from .data_recipe import Corpus, CorpusFiles, has_links, name_of
from .word_pieces import encode_words

logger = logging.getLogger(__name__)

Row = dict[str, Any]

_PAIRS_AT_ONCE = 5_000


@dataclass(frozen=True)
class ParallelCorpus:
    """Sentence pairs as whitespace words; as read, blank ones are kept, so that index N is line N + 1 of the files."""

    sources: list[list[str]]
    targets: list[list[str]]
    gold: list[Gold] | None = None
    """The links of each pair, sure and possible; guidance takes both."""

    def __len__(self) -> int:
        return len(self.sources)


@dataclass(frozen=True)
class EncodingCounts:
    """What became of the pairs of a corpus, for the log and for the metrics file."""

    pairs: int
    kept: int
    blank: int
    too_long: int
    source_tokens: int
    target_tokens: int
    source_unknown: int = 0
    target_unknown: int = 0
    """Tokens that the tokenizer does not know; the model sees one and the same token for all of them."""
    copies: int = 0
    over_max_words: int = 0
    over_max_ratio: int = 0
    duplicates: int = 0
    """Pairs left out by a rule of `data.cleaning`; see `cleaning.RULES`."""


def read_corpus(corpus: Corpus, cache_dir: str | None = None) -> ParallelCorpus:
    """Read a corpus whole: one part (train, dev or test), or one of several training corpora.

    Args:
        cache_dir: where `datasets` keeps what it stores; None = its own cache folder.

    Raises:
        InputError: `FILE:LINE: what; remedy`: a missing file, broken UTF-8, unequal numbers of lines, a line that lacks
            a column, no pair at all, or a link that leaves its sentence.
    """
    if isinstance(corpus, CorpusFiles):
        source_lines, target_lines = read_aligned(corpus.source, corpus.target)
        sources = [line.split() for line in source_lines]
        targets = [line.split() for line in target_lines]
        gold = None
    else:
        sources, targets, links_of_pairs = [], [], []
        for pair in iterate_corpus(corpus, cache_dir=cache_dir):
            sources.append(pair.source)
            targets.append(pair.target)
            links_of_pairs.append(pair.links or NO_LINKS)
        gold = links_of_pairs if has_links(corpus) else None
    if not any(source and target for source, target in zip(sources, targets, strict=True)):
        raise InputError(f"{name_of(corpus)}:1: no sentence pair with words on both sides; check the file")
    if not isinstance(corpus, CorpusFiles) or corpus.links is None:
        return ParallelCorpus(sources, targets, gold)
    links = read_link_file(
        corpus.links,
        base=corpus.links_base,
        source_lengths=[len(words) for words in sources],
        target_lengths=[len(words) for words in targets],
    )
    if links.base != 0:
        logger.warning("%s counts words from %d: %s", corpus.links, links.base, links.evidence)
    return ParallelCorpus(sources, targets, links.sentences)


class PairEncoder:
    """Turn pairs of words into rows of token ids, batch by batch, and count what comes out.

    A row holds `input_ids`, `attention_mask`, `labels` (end token last), `length` (source plus target, to group batches
    by), and, where links are given, `guide`: pairs [label position, source position] at sub-word level. Pairs longer
    than the limits (in sub-words, end token included) give no row.

    Attributes:
        counts: so far, by the names of EncodingCounts, but for `pairs` and `blank`.
    """

    def __init__(self, tokenizer: AnyTokenizer, max_source_length: int, max_target_length: int) -> None:
        self.source_tokenizer, self.target_tokenizer = sides(tokenizer)
        self.limits = (max_source_length, max_target_length)
        self.counts: Counter[str] = Counter()

    def encode(
        self, sources: Sequence[list[str]], targets: Sequence[list[str]], links: Sequence[Gold] | None = None
    ) -> list[Row]:
        """Return the rows of some pairs, none of them blank, in their order."""
        encoded, source_words = encode_words(self.source_tokenizer, sources)
        labelled, target_words = encode_words(self.target_tokenizer, targets, target=True)
        # Looking them up is slow.
        unknown = (self.source_tokenizer.unk_token_id, self.target_tokenizer.unk_token_id)
        rows: list[Row] = []
        for number, (input_ids, labels) in enumerate(zip(encoded, labelled, strict=True)):
            if len(input_ids) > self.limits[0] or len(labels) > self.limits[1]:
                self.counts["too_long"] += 1
                continue
            row: Row = {
                "input_ids": input_ids,
                "attention_mask": [1] * len(input_ids),
                "labels": labels,
                "length": len(input_ids) + len(labels),
            }
            if links is not None:
                row[GUIDE] = project_links(links[number].possible, source_words[number], target_words[number])
            rows.append(row)
            self.counts["source_tokens"] += len(input_ids)
            self.counts["target_tokens"] += len(labels)
            self.counts["source_unknown"] += input_ids.count(unknown[0])
            self.counts["target_unknown"] += labels.count(unknown[1])
        self.counts["kept"] += len(rows)
        return rows

    def result(self, pairs: int, blank: int) -> EncodingCounts:
        """Return all counts of a corpus of so many pairs; log what was left out, and what the tokenizer did not know.

        Raises:
            ValueError: nothing is left.
        """
        names = ("kept", "too_long", "source_tokens", "target_tokens", "source_unknown", "target_unknown")
        counts = EncodingCounts(pairs=pairs, blank=blank, **{name: self.counts[name] for name in names})
        if counts.source_unknown or counts.target_unknown:
            logger.warning(
                "unknown to the tokenizer: %d of %d source and %d of %d target tokens",
                counts.source_unknown,
                counts.source_tokens,
                counts.target_unknown,
                counts.target_tokens,
            )
        if blank or counts.too_long:
            logger.warning(
                "%d of %d pairs left out: %d with a blank side, %d longer than %d source or %d target sub-words",
                blank + counts.too_long,
                pairs,
                blank,
                counts.too_long,
                *self.limits,
            )
        if not counts.kept:
            raise ValueError(
                f"none of {pairs} pairs is left ({blank} blank, {counts.too_long} too long); "
                "raise data.max_source_length and data.max_target_length"
            )
        return counts


def encode_corpus(
    corpus: ParallelCorpus,
    tokenizer: AnyTokenizer,
    max_source_length: int = 128,
    max_target_length: int = 128,
) -> tuple[datasets.Dataset, EncodingCounts]:
    """Return the pairs as rows of `PairEncoder`, ready for `Seq2SeqCollator`, with `guide` if the corpus has links.

    A pair with a blank side, or longer than the limits (in sub-words, end token included), is left out and counted.

    Raises:
        ValueError: nothing is left.
    """
    encoder = PairEncoder(tokenizer, max_source_length, max_target_length)
    full = [index for index in range(len(corpus)) if corpus.sources[index] and corpus.targets[index]]
    if not full:
        raise ValueError(f"none of {len(corpus)} pairs has words on both sides; check the files")
    parts = []
    for start in range(0, len(full), _PAIRS_AT_ONCE):
        indices = full[start : start + _PAIRS_AT_ONCE]
        rows = encoder.encode(
            [corpus.sources[index] for index in indices],
            [corpus.targets[index] for index in indices],
            None if corpus.gold is None else [corpus.gold[index] for index in indices],
        )
        if rows:
            parts.append(datasets.Dataset.from_list(rows, features=_features(corpus.gold is not None)))
    counts = encoder.result(len(corpus), len(corpus) - len(full))
    return datasets.concatenate_datasets(parts), counts


def _features(links: bool) -> datasets.Features:
    ids = datasets.List(datasets.Value("int32"))
    features = {
        "input_ids": ids,
        "attention_mask": datasets.List(datasets.Value("int8")),
        "labels": ids,
        "length": datasets.Value("int32"),
    }
    # Stated, because the type of a column of empty lists cannot be found out.
    return datasets.Features(features | ({GUIDE: datasets.List(ids)} if links else {}))


def project_links(
    links: Iterable[tuple[int, int]], source_word_ids: Sequence[int | None], target_word_ids: Sequence[int | None]
) -> list[list[int]]:
    """Return word links as sorted sub-word pairs [target position, source position].

    A word stands for all its sub-words. The word ids are those of `encode_words`; None marks special tokens, which no
    link touches.
    """
    source_positions = _positions_of_words(source_word_ids)
    target_positions = _positions_of_words(target_word_ids)
    return sorted([t, s] for i, j in links for s in source_positions.get(i, ()) for t in target_positions.get(j, ()))


def _positions_of_words(word_ids: Sequence[int | None]) -> dict[int, list[int]]:
    positions: dict[int, list[int]] = {}
    for position, word in enumerate(word_ids):
        if word is not None:
            positions.setdefault(word, []).append(position)
    return positions
