"""Faults that silently give wrong translations or maps; the suite must fail for each (see test_mutants.py).

A pytest plugin: `SEQ2SEQ_MUTANT=NAME PYTHONPATH=tests/support pytest -p mutants ...` plants the fault NAME.
"""

import os

import torch
from transformers.cache_utils import EncoderDecoderCache

from hf_seq2seq_attn.cross_attention import Attention, Memory
from hf_seq2seq_attn.recurrent import RecurrentDecoder
from hf_seq2seq_attn.recurrent_cache import StateLayer
from hf_seq2seq_attn.transformer import DecoderLayer


def beam_reordering_off() -> None:
    """Let each beam go on from whatever state its row held."""
    EncoderDecoderCache.reorder_cache = lambda self, beam_idx: None


def source_mask_off() -> None:
    """Let attention read padding."""
    Attention.readable = lambda self, attention_mask: None


def cached_state_stale() -> None:
    """Keep the state of the first call for ever."""
    update = StateLayer.update

    def stale(self, *states, tokens=0):
        return update(self, *(self.states if self.is_initialized else states), tokens=tokens)

    StateLayer.update = stale


def keys_of_another_beam() -> None:
    """Hand each row of the batch the cached keys of its neighbour."""

    def shifted(method):
        def neighbour(self, states, attention_mask, cache):
            cached = cache is not None and cache.get_seq_length() > 0
            memory = method(self, states, attention_mask, cache)
            if not cached or not isinstance(memory, Memory):
                return memory
            return memory._replace(keys=torch.roll(memory.keys, 1, dims=0))

        return neighbour

    RecurrentDecoder._memory = shifted(RecurrentDecoder._memory)
    DecoderLayer._source = shifted(DecoderLayer._source)


MUTANTS = {
    mutant.__name__: mutant
    for mutant in (beam_reordering_off, source_mask_off, cached_state_stale, keys_of_another_beam)
}

if name := os.environ.get("SEQ2SEQ_MUTANT"):
    MUTANTS[name]()
