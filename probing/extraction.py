"""One teacher-forced pass over sentence pairs -> their cross-attention maps, for any Hugging Face encoder-decoder.

Notation: B batch, L decoder layers, H heads, S source tokens, T target tokens y_1..y_T (the last is the end token).
The decoder reads [start, y_1, ..., y_T]; the map has one row for each of these inputs. Which row speaks of y_i?
- output: the row that predicts y_i, where y_{i-1} is the input.
- input: the first row that y_i can change: its own for Transformer and `current_state` decoders, the next one for
  `previous_state` decoders, which attend before they read ("shift"; Chen et al. 2020).
One row off turns correct alignments into noise, so every result names its rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.limits import max_positions, vocabulary_size
from hf_seq2seq_attn.tokenizer_pair import sides

from .capture import capture_cross_attention, check_model, evaluating
from .tokens import Sentence, TokenizedText, from_ids, tokenize

ROWS = ("output", "input")
# Sentences are sorted by length within this many batches: little padding, and results flow in input order.
_BATCHES_SORTED_TOGETHER = 64


class SentenceError(UnusableError):
    """A sentence that this model cannot read.

    Attributes:
        side: "source" or "target".
        number: which sentence, counted from 1.
        what: what is wrong and what to do.
    """

    def __init__(self, side: str, number: int, what: str) -> None:
        super().__init__(f"{side} sentence {number}: {what}")
        self.side, self.number, self.what = side, number, what


@dataclass(frozen=True)
class AttentionMaps:
    """The cross-attention of one sentence pair.

    Attributes:
        weights: (L, H, T, S) float32. Row t is the row of target token t, so rows are labelled by the token they
            align; each sums to 1 over S (less the share of a NULL key).
        source, target: the two sides as tokens and words; T and S count tokens, special ones included.
        align_with: what a row means, "output" or "input" (see the module).
        layers, heads: which of the model's layers and heads these are.
    """

    weights: np.ndarray
    source: TokenizedText
    target: TokenizedText
    align_with: str
    layers: tuple[int, ...]
    heads: tuple[int, ...]

    @property
    def source_tokens(self) -> list[str]:
        return self.source.tokens

    @property
    def target_tokens(self) -> list[str]:
        return self.target.tokens

    @property
    def source_words(self) -> list[str]:
        return self.source.words

    @property
    def target_words(self) -> list[str]:
        return self.target.words

    def matrix(self, layer: int | None = None, heads: Sequence[int] | None = None) -> np.ndarray:
        """Return one layer's map, averaged over heads: (T, S) float32.

        Args:
            layer: the model's number of the layer, negative from the end of those held; None = the last one held.
            heads: the model's numbers of the heads; None = all that are held.

        Raises:
            ValueError: a layer or head that is not held.
        """
        layer = self.layers[-1] if layer is None else layer
        if layer not in self.layers and -len(self.layers) <= layer < 0:
            layer = self.layers[layer]
        chosen = self.heads if heads is None else tuple(heads)
        if layer not in self.layers:
            raise UnusableError(f"layer is {layer}; these maps hold the layers {list(self.layers)}")
        if not chosen or not set(chosen) <= set(self.heads):
            raise UnusableError(f"heads is {list(chosen)}; these maps hold the heads {list(self.heads)}")
        return self.weights[self.layers.index(layer)][[self.heads.index(head) for head in chosen]].mean(axis=0)


def extract(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Sentence],
    targets: Sequence[Sentence] | None = None,
    *,
    align_with: str | None = None,
    batch_size: int = 32,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    generate_kwargs: dict[str, Any] | None = None,
) -> Iterator[AttentionMaps]:
    """Yield the cross-attention maps of sentence pairs, in input order, one for each pair (blank lines too).

    The model is left as it was. Layers and heads that are not asked for are dropped batch by batch.

    Args:
        model: an encoder-decoder with cross-attention, of any Hugging Face family.
        tokenizer: its tokenizer, or a `TokenizerPair` if each side has its own.
        sources, targets: raw strings or lists of words. Without targets the model generates them first, with its own
            generation settings; the maps then come from a teacher-forced pass on the chosen ids.
        align_with: "output" or "input", see the module; None = `default_rows(model.config)`.
        layers, heads: decoder layers and heads to keep, negative from the end; None = all.
        generate_kwargs: for `model.generate` when there are no targets, e.g. `{"num_beams": 4}`.

    Raises:
        ValueError: the model has no cross-attention maps to give, or an argument is none of the allowed values.
        SentenceError: a sentence is longer than the model's positions, has a token outside its vocabulary, or makes
            weights that are not finite.
    """
    check_model(model)
    rows = default_rows(model.config) if align_with is None else align_with
    check_rows(rows)
    if batch_size < 1:
        raise UnusableError(f"batch_size is {batch_size}; it must be at least 1")
    if targets is None:
        if not callable(getattr(model, "generate", None)):
            raise UnusableError(
                f"{type(model).__name__} cannot generate; give targets, or load the model with its output layer"
            )
    elif len(sources) != len(targets):
        raise UnusableError(f"{len(sources)} sources but {len(targets)} targets; they must belong together one by one")
    extractor = _Extractor(model, tokenizer, rows, layers, heads, generate_kwargs or {})
    return _in_order(extractor, sources, targets, batch_size)


def check_rows(align_with: str) -> None:
    """Raise a ValueError unless `align_with` is "output" or "input"."""
    if align_with not in ROWS:
        raise UnusableError(f"align_with is {align_with!r}; allowed are {', '.join(ROWS)}")


def default_rows(config: Any) -> str:
    """Return where a model's alignment is read by default: the config's `alignment_rows`; else "input" for
    Transformer decoders and "output" for recurrent ones."""
    chosen = getattr(config, "alignment_rows", None)
    if chosen is not None:
        return str(chosen)
    return "output" if _decoder_is_recurrent(config) else "input"


def row_offset(config: Any, align_with: str) -> int:
    """Return the decoder position of target token 0's row, counting the start token as position 0.

    Raises:
        ValueError: `align_with` is neither "output" nor "input".
    """
    check_rows(align_with)
    if align_with == "output":
        return 0
    attends_first = _decoder_is_recurrent(config) and getattr(config, "attend_with", None) == "previous_state"
    return 2 if attends_first else 1


def _decoder_is_recurrent(config: Any) -> bool:
    return config.model_type == "seq2seq_attn" and config.decoder_type != "transformer"


def _in_order(
    extractor: "_Extractor", sources: Sequence[Sentence], targets: Sequence[Sentence] | None, batch_size: int
) -> Iterator[AttentionMaps]:
    window = batch_size * _BATCHES_SORTED_TOGETHER
    for first in range(0, len(sources), window):
        some_sources = tokenize(extractor.tokenizer, sources[first : first + window])
        some_targets = None
        if targets is not None:
            some_targets = tokenize(extractor.tokenizer, targets[first : first + window], target=True)
        lengths = [
            (len(source.ids), len(some_targets[index].ids) if some_targets else 0)
            for index, source in enumerate(some_sources)
        ]
        order = sorted(range(len(some_sources)), key=lengths.__getitem__)
        done: dict[int, AttentionMaps] = {}
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            pairs = [
                (first + index, some_sources[index], some_targets[index] if some_targets else None) for index in batch
            ]
            done.update(zip(batch, extractor.run(pairs), strict=True))
        for index in range(len(some_sources)):
            yield done.pop(index)


class _Extractor:
    """Run batches of tokenised sentence pairs through one model."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        align_with: str,
        layers: Sequence[int] | None,
        heads: Sequence[int] | None,
        generate_kwargs: dict[str, Any],
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.align_with = align_with
        self.layers, self.heads = layers, heads
        self.generate_kwargs = generate_kwargs
        config, generation = model.config, getattr(model, "generation_config", None)
        self.start = _first_id(config, generation, "decoder_start_token_id", "bos_token_id")
        self.ends = _id_list(getattr(config, "eos_token_id", None)) or _id_list(
            getattr(generation, "eos_token_id", None)
        )
        pad = getattr(config, "pad_token_id", None)
        source_tokenizer, target_tokenizer = sides(tokenizer)
        self.tokenizer_of = {"source": source_tokenizer, "target": target_tokenizer}
        self.pad = next((value for value in (pad, source_tokenizer.pad_token_id, self.start) if value is not None), 0)

    def run(self, pairs: Sequence[tuple[int, TokenizedText, TokenizedText | None]]) -> list[AttentionMaps]:
        """Return the maps of one batch; each pair is (its place in the input, source, target or None)."""
        sources = [self._not_empty(source) for _, source, _ in pairs]
        self._check_ids("source", [place for place, _, _ in pairs], sources)
        input_ids, attention_mask = self._pad([source.ids for source in sources])
        with evaluating(self.model), torch.no_grad():
            if pairs[0][2] is None:
                targets = self._generate(input_ids, attention_mask)
            else:
                targets = [self._ended(target) for _, _, target in pairs if target is not None]
            self._check_ids("target", [place for place, _, _ in pairs], targets)
            offset = row_offset(self.model.config, self.align_with)
            # The last token's row exists only if something follows it; what that is cannot change the row.
            tail = [self.pad] * max(0, offset - 1)
            decoder_ids, _ = self._pad([[self.start, *target.ids, *tail] for target in targets])
            captured, layers, heads = capture_cross_attention(
                self.model, input_ids, attention_mask, decoder_ids, self.layers, self.heads
            )
            weights = torch.stack([layer.float() for layer in captured], dim=1).cpu().numpy()
        self._check_weights([place for place, _, _ in pairs], weights)
        return [
            AttentionMaps(
                weights=weights[index, :, :, offset : offset + len(target.ids), : len(source.ids)].copy(),
                source=source,
                target=target,
                align_with=self.align_with,
                layers=layers,
                heads=heads,
            )
            for index, (source, target) in enumerate(zip(sources, targets, strict=True))
        ]

    def _generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> list[TokenizedText]:
        # Some configs keep the library's 20 tokens, which would cut sentences in silence.
        limit = (
            {}
            if {"max_length", "max_new_tokens"} & set(self.generate_kwargs)
            else {"max_new_tokens": self._generation_limit(input_ids.shape[1]), "max_length": None}
        )
        sequences = self.model.generate(
            input_ids=input_ids, attention_mask=attention_mask, **limit, **self.generate_kwargs
        )
        sequences = getattr(sequences, "sequences", sequences)
        if len(sequences) != len(input_ids):
            raise UnusableError(
                "generate_kwargs must leave one sequence for each source; take num_return_sequences out"
            )
        targets = []
        for sequence in sequences.tolist():
            ids = sequence[1:]
            end = next((index for index, token in enumerate(ids) if token in self.ends), len(ids) - 1)
            targets.append(self._ended(from_ids(self.tokenizer, ids[: end + 1])))
        return targets

    def _generation_limit(self, source_length: int) -> int:
        generation = self.model.generation_config
        chosen = generation.max_new_tokens or generation.max_length or 2 * source_length + 20
        positions = max_positions(self.model.config, "target")
        return chosen if positions is None else min(chosen, positions - 2)

    def _not_empty(self, source: TokenizedText) -> TokenizedText:
        """Return `source` as its tokenizer wrote it, which is what the encoder was trained on; where that is nothing,
        as one structural token, so that its maps have a column."""
        if source.ids:
            return source
        return self._followed_by(self.ends[0] if self.ends else self.pad, source, "source")

    def _ended(self, target: TokenizedText) -> TokenizedText:
        """Return `target` with an end token: not every tokenizer adds one, and the last word's input row needs it."""
        if not self.ends or set(target.ids[-2:]) & set(self.ends):
            return target
        return self._followed_by(self.ends[0], target, "target")

    def _followed_by(self, token_id: int, text: TokenizedText, side: str) -> TokenizedText:
        token = str(self.tokenizer_of[side].convert_ids_to_tokens(token_id))
        return TokenizedText(
            text.text,
            [*text.ids, token_id],
            [*text.tokens, token],
            [*text.spans, None],
            text.words,
            [*text.word_of, None],
        )

    def _pad(self, sequences: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids (B, longest) int64, padded on the right, and their mask, 1 = read."""
        device = self.model.device
        length = max(len(ids) for ids in sequences)
        ids = torch.tensor([[*row, *[self.pad] * (length - len(row))] for row in sequences], device=device)
        mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in sequences], device=device)
        return ids, mask

    @staticmethod
    def _check_weights(places: Sequence[int], weights: np.ndarray) -> None:
        for place, each in zip(places, weights, strict=True):
            if not np.isfinite(each).all():
                raise SentenceError(
                    "source",
                    place + 1,
                    "the model's attention to it is not a number; the model is broken, or its dtype too narrow for it",
                )

    def _check_ids(self, name: str, places: Sequence[int], sides: Sequence[TokenizedText]) -> None:
        config = self.model.config
        size, positions = vocabulary_size(config, name), max_positions(config, name)
        for place, side in zip(places, sides, strict=True):
            if size is not None and max(side.ids, default=0) >= size:
                raise SentenceError(
                    name,
                    place + 1,
                    f"token id {max(side.ids)} is outside the model's {name} vocabulary of {size}; load the tokenizer "
                    "that belongs to this model",
                )
            # The decoder reads a start token as well.
            if positions is not None and len(side.ids) + (name == "target") > positions:
                raise SentenceError(
                    name,
                    place + 1,
                    f"{len(side.ids)} tokens are more than the model's max_position_embeddings={positions} can hold; "
                    "split the sentence",
                )


def _id_list(value: int | Sequence[int] | None) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)


def _first_id(config: Any, generation: Any, *names: str) -> int:
    for name in names:
        for holder in (config, generation):
            value = getattr(holder, name, None)
            if value is not None:
                return int(value)
    raise UnusableError("the model's config has no decoder_start_token_id; set model.config.decoder_start_token_id")
