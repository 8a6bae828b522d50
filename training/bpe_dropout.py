"""Training text that is cut into sub-words anew each time it is read (BPE-dropout, Provilkov et al. 2020, algorithm 1).

The tokenizers library can leave out merges too, but takes its random numbers from the system: no run could be repeated,
or go on after an interruption, with the same weights.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import datasets
import torch
from torch.utils.data import Dataset

from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer, sides

from .collation import GUIDE
from .data import Row, project_links
from .tokenization import WORD_START
from .word_pieces import WordIds


class BpeDropout:
    """Cut words into sub-words by the merges of a BPE tokenizer, leaving out some of them at random.

    At each step every merge that the word allows is left out with probability `dropout`, and the first of the others,
    in the order in which they were learnt, is done; until none is left. With 0 the pieces are the tokenizer's own, with
    1 the characters.

    Args:
        tokenizer: one that `train_tokenizer` made, of kind "bpe".
    """

    def __init__(self, tokenizer: Any, dropout: float) -> None:
        model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
        ids: dict[str, int] = model["vocab"]
        self.dropout = dropout
        self.specials = {tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}
        self._merges = {(ids[a], ids[b]): (rank, ids[a + b]) for rank, (a, b) in enumerate(model["merges"])}
        self._starts = {index for piece, index in ids.items() if piece.startswith(WORD_START)}
        # What "<unk>" stood for is not known.
        whole = self.specials | {tokenizer.unk_token_id}
        self._characters = {
            index: [ids[character] for character in piece] for piece, index in ids.items() if index not in whole
        }

    def cut(self, ids: Sequence[int], random: Random) -> list[int]:
        """Return the ids of the same text cut anew; special tokens, and words with an unknown sign, as they are."""
        pieces: list[int] = []
        for word in self._words(ids):
            if all(piece in self._characters for piece in word):
                word = self._merge([sign for piece in word for sign in self._characters[piece]], random)
            pieces += word
        return pieces

    def word_ids(self, ids: Sequence[int]) -> WordIds:
        """Return the number of each piece's word, counted from 0; None for a special token."""
        words: WordIds = []
        for number, word in enumerate(self._words(ids)):
            words += [None if word[0] in self.specials else number] * len(word)
        return words

    def _words(self, ids: Sequence[int]) -> Iterator[list[int]]:
        """Yield the pieces of each word, and each special token by itself."""
        word: list[int] = []
        for piece in ids:
            if word and (piece in self._starts or piece in self.specials or word[0] in self.specials):
                yield word
                word = []
            word.append(piece)
        if word:
            yield word

    def _merge(self, pieces: list[int], random: Random) -> list[int]:
        """Do what merges are not left out, in place; return the pieces."""
        merges, dropout, draw = self._merges, self.dropout, random.random
        while True:
            best = None
            for place, pair in enumerate(pairwise(pieces)):
                merge = merges.get(pair)
                if merge is not None and draw() >= dropout and (best is None or merge[0] < best[0]):
                    best = (*merge, place)
            if best is None:
                return pieces
            _, merged, place = best
            pieces[place : place + 2] = [merged]


class RecutRows(Dataset[Row]):
    """Rows of `encode_corpus` whose text is cut anew in each epoch, links and all; the rest of a row is as it was.

    How a row is cut depends on seed, epoch and the row's number alone, so that a resumed run, and any number of
    processes, see the same. Where it would become longer than the limits, it stays as it was.

    Args:
        rows: as encoded by `tokenizer`, in its own way.
        tokenizer: of kind "bpe", or two.
        dropout: the share of merges left out, from 0 to 1; 0.1 in the paper.
        limits: the most source and target tokens of a row, end token included.

    Attributes:
        rows: in the tokenizer's own way; their lengths decide what stands in a batch together.
    """

    def __init__(
        self, rows: datasets.Dataset, tokenizer: AnyTokenizer, dropout: float, limits: tuple[int, int], seed: int
    ) -> None:
        self.rows, self.limits, self.seed = rows, limits, seed
        self._source, self._target = (BpeDropout(side, dropout) for side in sides(tokenizer))
        # Where worker processes that live through all epochs see it change.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; the Trainer does before each."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Row]:
        """Return several rows, which is how a DataLoader asks for a batch."""
        rows = zip(indices, self.rows.__getitems__(indices), strict=True)
        return [self._recut(row, Random(f"{self.seed} {int(self._epoch)} {index}")) for index, row in rows]

    def _recut(self, row: Row, random: Random) -> Row:
        input_ids = self._source.cut(row["input_ids"], random)
        labels = self._target.cut(row["labels"], random)
        if len(input_ids) > self.limits[0] or len(labels) > self.limits[1]:
            return row
        recut = row | {
            "input_ids": input_ids,
            "attention_mask": [1] * len(input_ids),
            "labels": labels,
            "length": len(input_ids) + len(labels),
        }
        if row.get(GUIDE):
            source_words = self._source.word_ids(row["input_ids"])
            target_words = self._target.word_ids(row["labels"])
            links = {(source_words[s], target_words[t]) for t, s in row[GUIDE]}
            recut[GUIDE] = project_links(links, self._source.word_ids(input_ids), self._target.word_ids(labels))
        return recut
