"""Where attention rests when it has nothing to look at: end tokens, tags, a NULL key, the final punctuation.

Such "sinks" draw much of the weight and carry no alignment. How much is a figure to report beside every alignment; what
to do about it is a choice (`SPECIALS`).
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .attention_maps import AttentionMaps, LayerChoice
from .tokens import ROLES, TokenizedText

SINKS = (*(role for role in ROLES if role != "word"), "punctuation", "null")
"""What weight can rest on: the roles of structural tokens, the final punctuation, the NULL key."""
_NAMES = {
    "start": "start tokens",
    "end": "the end token",
    "padding": "padding",
    "tag": "tags",
    "prefix": "the prefix",
    "blank": "tokens of no character",
    "punctuation": "final punctuation",
    "null": "the NULL key",
}


@dataclass(frozen=True)
class SinkReport:
    """Share of the attention of target words that rests on sinks.

    Attributes:
        layers, heads: the model's numbers of the L layers and H heads.
        shares: for each of `SINKS` (L, H) float64, its mean share of a row, from 0 to 1.
        rows: how many rows, those of target tokens that belong to words, the means are taken over.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    shares: dict[str, np.ndarray]
    rows: int

    @property
    def total(self) -> np.ndarray:
        """Return the share of all sinks together, (L, H)."""
        return np.sum(list(self.shares.values()), axis=0)

    def to_dict(self) -> dict[str, object]:
        """Return plain lists for JSON, one row for each layer."""
        shares = {name: share.round(6).tolist() for name, share in self.shares.items()}
        return {"layers": list(self.layers), "heads": list(self.heads), "rows": self.rows, "shares": shares}


def sink_report(maps: AttentionMaps | Iterable[AttentionMaps]) -> SinkReport:
    """Return for each layer and head the share of attention on sinks, over the target words of one or more pairs.

    Shares are of rows scaled to sum to 1 with the NULL key, so that raw norms have them too. Final punctuation counts
    in all rows but those of the target's own final punctuation.

    Raises:
        ValueError: no maps, or maps of different layers and heads.
    """
    pairs = [maps] if isinstance(maps, AttentionMaps) else maps
    held: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    total: dict[str, np.ndarray] = {}
    rows = 0
    for pair in pairs:
        if held not in (None, (pair.layers, pair.heads)):
            raise ValueError(f"maps of {(pair.layers, pair.heads)} after maps of {held}; give maps of the same heads")
        held = pair.layers, pair.heads
        masses, count = _masses(pair, pair.weights, _null_per_head(pair))
        total = {name: total.get(name, 0) + mass for name, mass in masses.items()}
        rows += count
    if held is None:
        raise ValueError("there are no maps to report on")
    return SinkReport(*held, {name: mass / max(rows, 1) for name, mass in total.items()}, rows)


@dataclass
class SinkTally:
    """The share of sinks in the maps that alignments were read off, pair after pair.

    Attributes:
        rows: rows of target tokens that belong to words.
        words, unlooked: target words, and those of them whose whole weight rests on sinks.
        masses: for each of `SINKS` the sum of its shares over the rows.
    """

    rows: int = 0
    words: int = 0
    unlooked: int = 0
    masses: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SINKS, 0.0))

    def add(self, maps: AttentionMaps, layer: LayerChoice = None, heads: Sequence[int] | None = None) -> None:
        """Count one sentence pair, by the map of these layers and heads, as in `AttentionMaps.matrix`."""
        matrix, null = maps.matrix(layer, heads), maps.null_weights(layer, heads)
        masses, rows = _masses(maps, matrix, null)
        self.rows += rows
        for name, mass in masses.items():
            self.masses[name] += float(mass)
        looking = ~np.array(maps.source.structural, dtype=bool)
        seen = np.flatnonzero(np.any(matrix[:, looking] > 0, axis=1)).tolist()
        seen_words = {maps.target.word_of[row] for row in seen} - {None}
        self.words += len(maps.target_words)
        self.unlooked += len(maps.target_words) - len(seen_words)

    def merge(self, other: "SinkTally") -> None:
        """Add what another tally counted."""
        self.rows += other.rows
        self.words += other.words
        self.unlooked += other.unlooked
        for name, mass in other.masses.items():
            self.masses[name] += mass

    def describe(self) -> str:
        """Return the shares in words, e.g. `of the weight 41.0% rests on the end token, 3.1% on tags`."""
        shares = {name: mass / max(self.rows, 1) for name, mass in self.masses.items()}
        named = [f"{share:.1%} rests on {_NAMES[name]}" for name, share in shares.items() if share >= 0.0005]
        text = "of the weight " + ", ".join(named or ["nothing rests on sinks"])
        if self.unlooked:
            text += f"; {self.unlooked} of {self.words} target words have no weight on any source word"
        return text


def final_punctuation(text: TokenizedText) -> np.ndarray:
    """Return which tokens are the punctuation that ends a text, (tokens,) bool; none in a text of nothing else."""
    final = np.zeros(len(text.ids), dtype=bool)
    found = False
    for index in range(len(text.ids) - 1, -1, -1):
        span = text.spans[index]
        if text.word_of[index] is None or span is None:
            continue
        surface = text.text[slice(*span)].strip()
        if not all(unicodedata.category(character).startswith("P") for character in surface):
            return final if found else np.zeros_like(final)
        final[index] = True
        found = found or bool(surface)
    return np.zeros_like(final)


def pair_final_punctuation(maps: AttentionMaps, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Let only the final punctuation of the target look at that of the source (Chen et al. 2020).

    Unlike the paper's, this rule takes all trailing punctuation, be it one token or several.

    Args:
        tokens: (T, S) weights.

    Returns:
        The weights with the rule applied, and what was taken from the final punctuation's columns, both (T, S). In the
        rows of the target's final punctuation the whole weight goes to the source's.
    """
    columns, rows = final_punctuation(maps.source), final_punctuation(maps.target)
    taken = np.zeros_like(tokens)
    if not columns.any():
        return tokens.copy(), taken
    taken[np.ix_(~rows, columns)] = tokens[np.ix_(~rows, columns)]
    kept = tokens - taken
    if rows.any():
        forced = np.where(columns, tokens[rows], 0)
        share = forced.sum(axis=1, keepdims=True)
        whole = np.maximum(tokens[rows].sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        even = np.where(columns, whole / columns.sum(), 0)
        kept[rows] = np.where(
            share > 0, forced * np.divide(whole, share, out=np.zeros_like(share), where=share > 0), even
        )
    return kept, taken


def _null_per_head(maps: AttentionMaps) -> np.ndarray:
    """Return what a NULL key takes, (L, H, T)."""
    if maps.weight_kind == "raw_norm":
        shape = maps.weights.shape[:2]
        nulls = [maps.null_weights(layer, [head]) for layer in maps.layers for head in maps.heads]
        return np.reshape(nulls, (*shape, -1))
    return np.clip(1 - maps.weights.sum(axis=-1), 0, None)


def _masses(maps: AttentionMaps, weights: np.ndarray, null: np.ndarray) -> tuple[dict[str, np.ndarray], int]:
    """Return for each sink its shares of weights (..., T, S) with null (..., T), summed over the rows of target words,
    and how many rows these are."""
    inside = ~np.array(maps.target.structural, dtype=bool)
    rows, null = weights[..., inside, :].astype(np.float64), null[..., inside].astype(np.float64)
    total = rows.sum(axis=-1) + null
    scale = np.divide(1, total, out=np.zeros_like(total), where=total > 0)
    rows, null = rows * scale[..., None], null * scale
    roles = _roles(maps.source)
    masses = {
        role: rows[..., [index for index, each in enumerate(roles) if each == role]].sum(axis=(-1, -2))
        for role in SINKS[:-2]
    }
    open_rows = ~final_punctuation(maps.target)[inside]
    masses["punctuation"] = rows[..., open_rows, :][..., final_punctuation(maps.source)].sum(axis=(-1, -2))
    masses["null"] = null.sum(axis=-1)
    return masses, int(inside.sum())


def _roles(text: TokenizedText) -> Sequence[str]:
    """Return the role of each token; where nobody said, structural tokens after the last word are the end."""
    if len(text.roles) == len(text.ids):
        return text.roles
    words = [index for index, word in enumerate(text.word_of) if word is not None]
    last = words[-1] if words else -1
    return ["word" if word is not None else "end" if index > last else "tag" for index, word in enumerate(text.word_of)]
