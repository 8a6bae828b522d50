"""The work that every contestant is given: the same sizes, the same batches, the same sentences to decode.

Ids: 0 unknown, 1 padding, 2 start, 3 end, words from 4. Lengths and word frequencies are like those of Multi30k
(`multi30k`, 8,000 words) or of WMT news text (`wmt`, 32,000 words); the text itself is drawn at random from a seed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

UNKNOWN, PAD, START, END, FIRST_WORD = 0, 1, 2, 3, 4
NEW_TOKENS = 20
SEED = 0
# How many sentences are sorted by length at a time, as in a bucketing loader.
POOL = 8192
SENTENCES = 29000


@dataclass(frozen=True)
class Corpus:
    """Lengths of made-up text: words a sentence are normal(mean, deviation) within 3..longest."""

    vocabulary: int
    mean: float
    deviation: float
    longest: int


CORPORA = {"multi30k": Corpus(8000, 14, 5, 45), "wmt": Corpus(32000, 25, 12, 80)}


@dataclass(frozen=True)
class Recurrent:
    """A bidirectional encoder of one layer, a decoder of one layer with attention over it."""

    vocabulary: int
    cell: str = "gru"
    width: int = 512
    """Of embeddings, decoder state, keys and readout; half of it a direction of the encoder."""


@dataclass(frozen=True)
class Transformer:
    """Post-norm encoder-decoder with sinusoidal positions and one table for both sides and the output."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    inner: int


TINY = Transformer(8000, width=128, layers=4, heads=4, inner=512)
BASE = Transformer(8000, width=512, layers=6, heads=8, inner=2048)


@dataclass(frozen=True)
class Batch:
    """Sentence pairs, sorted by falling source length, padded on the right.

    `source` (B, S) ends in END; `target_inputs` (B, T) is START, words; `target` (B, T) is words, END.
    """

    source: Tensor
    target_inputs: Tensor
    target: Tensor

    @property
    def source_lengths(self) -> Tensor:
        """Return (B,) the number of real tokens, END included."""
        return (self.source != PAD).sum(1)

    @property
    def target_lengths(self) -> Tensor:
        """Return (B,) the number of real tokens, END included, START not."""
        return (self.target != PAD).sum(1)

    @property
    def tokens(self) -> int:
        """Return how many target tokens are to be predicted; padding does not count."""
        return int((self.target != PAD).sum())


def training_batches(corpus: str, count: int, tokens: int, seed: int = SEED) -> list[Batch]:
    """Return `count` bucketed batches of at most `tokens` target tokens, padding included."""
    draw = torch.Generator().manual_seed(seed)
    lengths = pair_lengths(CORPORA[corpus], draw)
    groups = []
    for pool in torch.randperm(SENTENCES, generator=draw).split(POOL):
        groups += cut(sorted(lengths[pool].tolist(), key=lambda pair: (pair[1], pair[0])), tokens)
    chosen = torch.randperm(len(groups), generator=draw)[:count].tolist()
    return [made_batch(CORPORA[corpus], groups[index], draw) for index in chosen]


def decoding_batch(corpus: str, sentences: int, seed: int = SEED + 5) -> Batch:
    """Return sentences to decode; one alone has the corpus's mean length."""
    kind, draw = CORPORA[corpus], torch.Generator().manual_seed(seed)
    lengths = pair_lengths(kind, draw)[:sentences]
    if sentences == 1:
        lengths[:] = round(kind.mean)
    return made_batch(kind, lengths.tolist(), draw)


def pair_lengths(corpus: Corpus, draw: torch.Generator) -> Tensor:
    """Return words of source and target, (SENTENCES, 2); their correlation is 0.85."""
    source, noise = torch.randn(2, SENTENCES, generator=draw)
    target = 0.85 * source + (1 - 0.85**2) ** 0.5 * noise
    words = corpus.mean + corpus.deviation * torch.stack([source, target], dim=1)
    return words.round().clamp(3, corpus.longest).long()


def cut(pairs: list[list[int]], tokens: int) -> list[list[list[int]]]:
    """Cut pairs of lengths, sorted by target, where one more pair would pass the tokens of a batch."""
    batches: list[list[list[int]]] = [[]]
    for pair in pairs:
        if batches[-1] and (pair[1] + 1) * (len(batches[-1]) + 1) > tokens:
            batches.append([])
        batches[-1].append(pair)
    return batches


def made_batch(corpus: Corpus, lengths: list[list[int]], draw: torch.Generator) -> Batch:
    """Return a batch of random words with these lengths; word k is about as frequent as 1 / k."""
    lengths = sorted(lengths, reverse=True)
    source, target = (torch.full((len(lengths), max(side) + 1), PAD) for side in zip(*lengths, strict=True))
    for row, (read, written) in enumerate(lengths):
        source[row, : read + 1] = torch.cat([words(corpus, read, draw), torch.tensor([END])])
        target[row, : written + 1] = torch.cat([words(corpus, written, draw), torch.tensor([END])])
    inputs = torch.cat([torch.full((len(lengths), 1), START), target[:, :-1]], dim=1)
    return Batch(source, inputs.masked_fill(inputs == END, PAD), target)


def words(corpus: Corpus, count: int, draw: torch.Generator) -> Tensor:
    """Return `count` word ids, log-uniform, which is near Zipf's law."""
    uniform = torch.rand(count, generator=draw)
    ranks = (corpus.vocabulary - FIRST_WORD) ** uniform - 1
    return (FIRST_WORD + ranks).long().clamp(FIRST_WORD, corpus.vocabulary - 1)
