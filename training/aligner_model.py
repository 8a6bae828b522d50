"""The network of the word aligner: two encoders, cross-attention in both directions, and a look at the whole grid.

Both sides are read with full context. Each target word attends to the source words or to NULL, each source word to the
target words or to NULL; both maps, what a statistical teacher says, where the cells lie and which words meet there are
then read as one picture by a small convolution, which corrects both maps and gives every cell a probability of its own:
a link rarely stands alone, and what a word's neighbours link to says much about where it links.

Shapes: B pairs, T target words, S source words, E `width`. Masks are bool, True = a word.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hf_seq2seq_attn.cross_attention import AdditiveAttention, Attention, ScaledDotProductAttention

ATTENTIONS: Mapping[str, type[Attention]] = {"dot": ScaledDotProductAttention, "additive": AdditiveAttention}
DISTANCES = 33
"""Buckets of the distance from the diagonal: from 16 words before it, or more, to 16 after."""
TEACHER_CHANNELS = 2
_FLOOR = -8.0


@dataclass(frozen=True)
class NetworkSize:
    """The measures of an `AlignerNetwork`.

    Attributes:
        source_forms, source_ngrams, target_forms, target_ngrams: rows of the tables of features, unknown included.
        width: of word vectors and of states.
        layers: of each encoder, a convolution over five words each.
        attention: one of `ATTENTIONS`.
        grid_width: channels of the convolution over the grid.
        dropout: of word vectors and states; form_dropout: share of words known by their n-grams only while training.
    """

    source_forms: int
    source_ngrams: int
    target_forms: int
    target_ngrams: int
    width: int = 128
    layers: int = 2
    attention: str = "dot"
    grid_width: int = 32
    dropout: float = 0.2
    form_dropout: float = 0.1


class Features(NamedTuple):
    """The types of one side of a batch: bags of whole forms and of n-grams, and the type of every token (B, L).

    Token types count from 1; 0 is padding.
    """

    forms: Tensor
    form_offsets: Tensor
    ngrams: Tensor
    ngram_offsets: Tensor
    tokens: Tensor


class AlignerMaps(NamedTuple):
    """What the network says about a batch.

    Attributes:
        forward: (B, T, 1 + S) log probabilities over NULL (column 0) and the source words, -inf at padding.
        reverse: (B, S, 1 + T) likewise over NULL and the target words.
        first_forward, first_reverse: the same before the grid was looked at.
        links: (B, T, S) logits of each cell being a link.
        source_states, target_states: (B, S, E), (B, T, E).
        source_types, target_types: (U, E) vectors of the types of the batch, without context.
    """

    forward: Tensor
    reverse: Tensor
    first_forward: Tensor
    first_reverse: Tensor
    links: Tensor
    source_states: Tensor
    target_states: Tensor
    source_types: Tensor
    target_types: Tensor


class WordVectors(nn.Module):
    """A vector for each type: the mean of its whole forms' vectors plus the mean of its n-grams'."""

    def __init__(self, forms: int, ngrams: int, width: int, form_dropout: float) -> None:
        super().__init__()
        # A batch touches few of the rows: sparse gradients save the optimiser the rest.
        self.forms = nn.EmbeddingBag(forms, width, mode="mean", sparse=True)
        self.ngrams = nn.EmbeddingBag(ngrams, width, mode="mean", sparse=True)
        self.form_dropout = form_dropout
        for table in (self.forms, self.ngrams):
            nn.init.normal_(table.weight, std=0.5)

    def forward(self, features: Features) -> Tensor:
        """Return (U, E) for the U types of a batch."""
        forms = self.forms(features.forms, features.form_offsets)
        ngrams = self.ngrams(features.ngrams, features.ngram_offsets)
        if self.training and self.form_dropout:
            forms = forms * (torch.rand(len(forms), 1, device=forms.device) >= self.form_dropout)
        return forms + ngrams


class SideEncoder(nn.Module):
    """Word vectors, then residual convolutions over the neighbouring words."""

    def __init__(self, forms: int, ngrams: int, size: NetworkSize) -> None:
        super().__init__()
        self.words = WordVectors(forms, ngrams, size.width, size.form_dropout)
        self.dropout = nn.Dropout(size.dropout)
        self.layers = nn.ModuleList(nn.Conv1d(size.width, size.width, 5, padding=2) for _ in range(size.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(size.width) for _ in range(size.layers))

    def forward(self, features: Features) -> tuple[Tensor, Tensor]:
        """Return states (B, L, E), 0 at padding, and the types' vectors (U, E)."""
        types = self.words(features)
        real = (features.tokens > 0)[..., None].to(types.dtype)
        states = F.embedding((features.tokens - 1).clamp(min=0), types) * real
        for layer, norm in zip(self.layers, self.norms, strict=True):
            context = layer(self.dropout(norm(states) * real).transpose(1, 2)).transpose(1, 2)
            states = (states + self.dropout(F.gelu(context))) * real
        return states, types


class Direction(nn.Module):
    """One direction: scores of each word against NULL and the words of the other side, with a bias by position."""

    def __init__(self, size: NetworkSize) -> None:
        super().__init__()
        self.attention = ATTENTIONS[size.attention](
            size.width, size.width, size.width, heads=1, project_values=False, null_key=True
        )
        self.query_norm, self.key_norm = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.position = nn.Embedding(DISTANCES, 1)
        # The null key starts at 0: let NULL depend on the word that asks from the first step on.
        if self.attention.null_key is not None:
            nn.init.normal_(self.attention.null_key, std=0.5)
        distance = torch.arange(DISTANCES) - DISTANCES // 2
        with torch.no_grad():
            self.position.weight[:, 0] = -distance.abs() / 8.0

    def forward(self, queries: Tensor, keys: Tensor, buckets: Tensor) -> Tensor:
        """Return scores (B, Q, 1 + K) of queries (B, Q, E) against NULL and keys (B, K, E); buckets (B, Q, K)."""
        memory = self.attention.remember(self.key_norm(keys))
        asked = self.attention.q_proj(self.query_norm(queries))[:, None]
        scores = self.attention.score(asked, memory.keys)[:, 0]
        return scores + F.pad(self.position(buckets)[..., 0], (1, 0))


class GridReader(nn.Module):
    """Two convolutions over the grid of a sentence pair: to corrections of both maps and link logits.

    Scores alone would not do: annotators link "of" here and leave it there, for reasons that lie in the words. So those
    are seen, too: each side's states along the rows or columns of the picture, and `PRODUCTS` bilinear forms of both.
    """

    CHANNELS = 6 + TEACHER_CHANNELS + 1
    PRODUCTS, PRODUCT_WIDTH = 8, 16

    def __init__(self, size: NetworkSize) -> None:
        super().__init__()
        width = size.grid_width
        self.source_norm, self.target_norm = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.dropout = nn.Dropout(size.dropout)
        self.source_factors = nn.Linear(size.width, self.PRODUCTS * self.PRODUCT_WIDTH)
        self.target_factors = nn.Linear(size.width, self.PRODUCTS * self.PRODUCT_WIDTH)
        self.columns, self.rows = nn.Linear(size.width, width), nn.Linear(size.width, width)
        self.wide = nn.Conv2d(self.CHANNELS + self.PRODUCTS, width, 5, padding=2)
        self.narrow = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, 3, 1)
        # Twice as fast on CPUs, with the same numbers.
        for layer in (self.wide, self.narrow, self.out):
            layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
        nn.init.zeros_(self.out.weight)
        if self.out.bias is not None:
            nn.init.zeros_(self.out.bias)

    def forward(self, channels: Tensor, cells: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Return (B, 3, T, S).

        Args:
            channels: (B, C, T, S); cells: (B, 1, T, S), 1 = inside the sentence.
            source, target: (B, S, E), (B, T, E) states.
        """
        source, target = self.dropout(self.source_norm(source)), self.dropout(self.target_norm(target))
        picture = torch.cat([channels, self._products(source, target)], dim=1) * cells
        hidden = self.wide(picture.contiguous(memory_format=torch.channels_last))
        words = self.rows(target)[:, :, None] + self.columns(source)[:, None]
        hidden = F.relu(hidden + words.permute(0, 3, 1, 2)) * cells
        hidden = hidden + F.relu(self.narrow(hidden)) * cells
        return self.out(hidden)

    def _products(self, source: Tensor, target: Tensor) -> Tensor:
        source, target = (
            factors(states).unflatten(-1, (self.PRODUCTS, self.PRODUCT_WIDTH)).transpose(1, 2)
            for factors, states in ((self.source_factors, source), (self.target_factors, target))
        )
        return target @ source.transpose(-1, -2) / math.sqrt(self.PRODUCT_WIDTH)


class AlignerNetwork(nn.Module):
    """Maps of both directions and link probabilities of a batch of sentence pairs."""

    def __init__(self, size: NetworkSize) -> None:
        super().__init__()
        self.size = size
        self.source = SideEncoder(size.source_forms, size.source_ngrams, size)
        self.target = SideEncoder(size.target_forms, size.target_ngrams, size)
        self.forward_direction = Direction(size)
        self.reverse_direction = Direction(size)
        self.grid = GridReader(size)
        self.link_scale = nn.Parameter(torch.tensor([0.5, 0.5, 2.0]))
        # The network starts from what the teacher says, and learns where it errs.
        self.map_trust = nn.Parameter(torch.tensor([1.0, 1.0]))
        self.link_trust = nn.Parameter(torch.tensor([1.5, 1.5, -0.5]))
        self.emission = nn.Linear(size.width, size.width)
        self.reverse_emission = nn.Linear(size.width, size.width)

    def tables(self) -> list[Tensor]:
        """Return the parameters whose gradients are sparse."""
        bags = [bag for side in (self.source, self.target) for bag in (side.words.forms, side.words.ngrams)]
        return [bag.weight for bag in bags]

    def forward(
        self,
        source: Features,
        target: Features,
        teacher: Tensor | None = None,
        same: Tensor | None = None,
        known: Tensor | None = None,
    ) -> AlignerMaps:
        """Align a batch.

        Args:
            teacher: (B, TEACHER_CHANNELS, T, S) what the teacher says in each direction, 0..1; None = unknown.
            known: (B,) 1 where the teacher's say on the pair is given; None = everywhere.
            same: (B, T, S) 1 where a word is known to be the other side's (same spelling, or in the lexicon).
        """
        source_states, source_types = self.source(source)
        target_states, target_types = self.target(target)
        source_real, target_real = source.tokens > 0, target.tokens > 0
        offset = diagonal_distance(source_real, target_real)
        buckets = (offset.round().long() + DISTANCES // 2).clamp(0, DISTANCES - 1)
        forward = self.forward_direction(target_states, source_states, buckets)
        # Seen from the source the distance has the other sign.
        back = (DISTANCES - 1 - buckets).transpose(1, 2)
        reverse = self.reverse_direction(source_states, target_states, back)
        first_forward = log_shares(forward, source_real)
        first_reverse = log_shares(reverse, target_real)
        cells = (target_real[:, :, None] & source_real[:, None, :])[:, None].to(forward.dtype)
        channels = _picture(first_forward, first_reverse, offset, same)
        told = channels.new_full((len(channels),), float(teacher is not None)) if known is None else known
        if teacher is None:
            teacher = channels.new_zeros(len(channels), TEACHER_CHANNELS, *channels.shape[2:])
        said_forward, said_reverse = teacher[:, 0], teacher[:, 1].transpose(1, 2)
        forward = forward + self.map_trust[0] * _evidence(said_forward) * told[:, None, None]
        reverse = reverse + self.map_trust[1] * _evidence(said_reverse) * told[:, None, None]
        told = told[:, None, None, None].expand(-1, 1, *channels.shape[2:])
        with torch.autocast(channels.device.type, torch.bfloat16, enabled=has_fast_bfloat16(channels.device)):
            channels = torch.cat([channels, teacher, told], dim=1)
            change = self.grid(channels, cells, source_states, target_states).float()
        last_forward = log_shares(forward + F.pad(change[:, 0], (1, 0)), source_real)
        last_reverse = log_shares(reverse + F.pad(change[:, 1].transpose(1, 2), (1, 0)), target_real)
        links = self._links(last_forward, last_reverse, change[:, 2], teacher, told[:, 0])
        return AlignerMaps(
            last_forward, last_reverse, first_forward, first_reverse, links,
            source_states, target_states, source_types, target_types,
        )  # fmt: skip

    def _links(
        self, last_forward: Tensor, last_reverse: Tensor, change: Tensor, teacher: Tensor, told: Tensor
    ) -> Tensor:
        """Return link logits (B, T, S): what both maps, the grid reader and, where it is told, the teacher say."""
        return (
            self.link_scale[0] * last_forward[..., 1:].clamp(min=_FLOOR)
            + self.link_scale[1] * last_reverse[..., 1:].transpose(1, 2).clamp(min=_FLOOR)
            + self.link_scale[2]
            + change
            + told * (teacher * self.link_trust[:2, None, None]).sum(1)
            + told * self.link_trust[2]
        )


def _picture(first_forward: Tensor, first_reverse: Tensor, offset: Tensor, same: Tensor | None) -> Tensor:
    """Return (B, 6, T, S): log shares and shares of both maps, distance from the diagonal, which words are the same."""
    forward, reverse = first_forward[..., 1:], first_reverse[..., 1:].transpose(1, 2)
    return torch.stack(
        [
            forward.clamp(min=_FLOOR) / 4,
            reverse.clamp(min=_FLOOR) / 4,
            forward.exp(),
            reverse.exp(),
            torch.tanh(offset / 4),
            torch.zeros_like(offset) if same is None else same,
        ],
        dim=1,
    )


@cache
def has_fast_bfloat16(device: torch.device) -> bool:
    """Say whether convolutions in bfloat16 are faster than in float32 there: on CPUs only with instructions for it."""
    if device.type == "cpu":
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return device.type == "cuda" and torch.cuda.is_bf16_supported()


def diagonal_distance(source_real: Tensor, target_real: Tensor) -> Tensor:
    """Return (B, T, S): by how many words, of the longer side, a cell's source place lies after its target place."""
    source_place, target_place = _places(source_real), _places(target_real)
    longer = torch.maximum(source_real.sum(1), target_real.sum(1))[:, None, None]
    return (source_place[:, None, :] - target_place[:, :, None]) * longer


def _places(real: Tensor) -> Tensor:
    """Return (B, L): where in its sentence the middle of each word lies, 0..1."""
    return (torch.arange(real.shape[1], device=real.device) + 0.5) / real.sum(1)[:, None].clamp(min=1)


def _evidence(weights: Tensor) -> Tensor:
    """Turn a teacher's weights (B, Q, K) into scores (B, Q, 1 + K), 0 for what it rejects; NULL has what is left."""
    null = (1 - weights.sum(-1, keepdim=True)).clamp(min=0)
    return torch.log1p(20 * torch.cat([null, weights], -1))


def log_shares(scores: Tensor, real: Tensor) -> Tensor:
    """Return log softmax of scores (B, Q, 1 + K) over NULL and the real keys (B, K), in float32."""
    readable = F.pad(real, (1, 0), value=True)[:, None]
    return torch.log_softmax(scores.float().masked_fill(~readable, -1e4), dim=-1)
