"""From two aligned text files, and links if there are any, to the data set that a Trainer takes."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import datasets

from hf_seq2seq_attn.probing import Gold, read_link_file
from hf_seq2seq_attn.text_files import InputError, read_aligned
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer, sides

from .recipe import CorpusFiles

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ParallelCorpus:
    """Sentence pairs as whitespace words, blank ones kept, so that index N is line N + 1 of the files."""

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


def read_corpus(files: CorpusFiles) -> ParallelCorpus:
    """Read the files of one part (train, dev or test).

    Raises:
        InputError: `FILE:LINE: what; remedy`: a missing file, broken UTF-8, unequal numbers of lines, no pair at all,
            or a link that leaves its sentence.
    """
    source_lines, target_lines = read_aligned(files.source, files.target)
    sources = [line.split() for line in source_lines]
    targets = [line.split() for line in target_lines]
    if not any(source and target for source, target in zip(sources, targets, strict=True)):
        raise InputError(f"{files.source}:1: no sentence pair with words on both sides; check the file")
    if files.links is None:
        return ParallelCorpus(sources, targets)
    links = read_link_file(
        files.links,
        source_lengths=[len(words) for words in sources],
        target_lengths=[len(words) for words in targets],
    )
    if links.base != 0:
        logger.warning("%s counts words from %d: %s", files.links, links.base, links.evidence)
    return ParallelCorpus(sources, targets, links.sentences)


def encode_corpus(
    corpus: ParallelCorpus,
    tokenizer: AnyTokenizer,
    max_source_length: int = 128,
    max_target_length: int = 128,
) -> tuple[datasets.Dataset, EncodingCounts]:
    """Return the pairs as token ids, ready for `Seq2SeqCollator`.

    Columns: `input_ids`, `attention_mask`, `labels` (end token last), `length` (source plus target, to group batches
    by), and, where the corpus has links, `guide`: pairs [label position, source position] at sub-word level.
    A pair with a blank side, or longer than the limits (in sub-words, end token included), is left out and counted.

    Raises:
        ValueError: nothing is left, or the tokenizer is not a fast one (it cannot tell words).
    """
    source_tokenizer, target_tokenizer = sides(tokenizer)
    if not (source_tokenizer.is_fast and target_tokenizer.is_fast):
        raise ValueError("the tokenizer tells no words (it is not a fast one); load it with use_fast=True")
    full = [index for index in range(len(corpus)) if corpus.sources[index] and corpus.targets[index]]
    if not full:
        raise ValueError(f"none of {len(corpus)} pairs has words on both sides; check the files")
    sources = source_tokenizer([corpus.sources[index] for index in full], is_split_into_words=True)
    targets = target_tokenizer(text_target=[corpus.targets[index] for index in full], is_split_into_words=True)
    rows: list[dict[str, object]] = []
    source_tokens = target_tokens = source_unknown = target_unknown = 0
    for number, index in enumerate(full):
        input_ids, labels = sources["input_ids"][number], targets["input_ids"][number]
        if len(input_ids) > max_source_length or len(labels) > max_target_length:
            continue
        row: dict[str, object] = {
            "input_ids": input_ids,
            "attention_mask": sources["attention_mask"][number],
            "labels": labels,
            "length": len(input_ids) + len(labels),
        }
        if corpus.gold is not None:
            row["guide"] = project_links(
                corpus.gold[index].possible, sources.word_ids(number), targets.word_ids(number)
            )
        rows.append(row)
        source_tokens += len(input_ids)
        target_tokens += len(labels)
        source_unknown += input_ids.count(source_tokenizer.unk_token_id)
        target_unknown += labels.count(target_tokenizer.unk_token_id)
    blank, too_long = len(corpus) - len(full), len(full) - len(rows)
    counts = EncodingCounts(
        len(corpus), len(rows), blank, too_long, source_tokens, target_tokens, source_unknown, target_unknown
    )
    if source_unknown or target_unknown:
        logger.warning(
            "unknown to the tokenizer: %d of %d source and %d of %d target tokens",
            source_unknown,
            source_tokens,
            target_unknown,
            target_tokens,
        )
    if blank or too_long:
        logger.warning(
            "%d of %d pairs left out: %d with a blank side, %d longer than %d source or %d target sub-words",
            blank + too_long,
            len(corpus),
            blank,
            too_long,
            max_source_length,
            max_target_length,
        )
    if not rows:
        raise ValueError(
            f"none of {len(corpus)} pairs is left ({blank} blank, {too_long} too long); "
            "raise data.max_source_length and data.max_target_length"
        )
    return datasets.Dataset.from_list(rows), counts


def project_links(
    links: Iterable[tuple[int, int]], source_word_ids: Sequence[int | None], target_word_ids: Sequence[int | None]
) -> list[list[int]]:
    """Return word links as sorted sub-word pairs [target position, source position].

    A word stands for all its sub-words. The word ids are a fast tokenizer's `word_ids()`; None marks special tokens,
    which no link touches.
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
