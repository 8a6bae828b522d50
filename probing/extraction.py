"""One teacher-forced pass over sentence pairs -> their cross-attention maps, for any Hugging Face encoder-decoder.

Notation: B batch, L decoder layers, H heads, S source tokens, T target tokens y_1..y_T (the last is the end token).
The decoder reads [start, y_1, ..., y_T]; the map has one row for each of these inputs. Which row speaks of y_i?
- output: the row that predicts y_i, where y_{i-1} is the input.
- input: the first row that y_i can change: its own for Transformer and `current_state` decoders, the next one for
  `previous_state` decoders, which attend before they read ("shift"; Chen et al. 2020).
One row off turns correct alignments into noise, so every result names its rows.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.limits import max_positions, vocabulary_size
from hf_seq2seq_attn.tokenizer_pair import sides

from .attention_maps import WEIGHTS, AttentionMaps
from .capture import CrossAttentionReader, LayerMaps, check_model, input_device, private_copy
from .languages import Languages, set_languages
from .tokens import Sentence, TokenizedText, from_ids, tokenize
from .value_norms import ValueNorms

ROWS = ("output", "input")
# Sentences are sorted by length within this many batches: little padding, and results flow in input order.
_BATCHES_SORTED_TOGETHER = 64
_DEFAULT_LAYERS, _DEFAULT_HEADS = 12, 16
# Of maps that wait for those of earlier sentences, 256 MiB of float32.
_NUMBERS_WAITING = 2**26


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
    weights: str = "attention",
    source_prefix: str = "",
    source_language: str | None = None,
    target_language: str | None = None,
    generate_kwargs: dict[str, Any] | None = None,
) -> Iterator[AttentionMaps]:
    """Yield the cross-attention maps of sentence pairs, in input order, one for each pair (blank lines too).

    Nothing is written to the model or the tokenizer, so other threads may use them meanwhile. Maps of layers and
    heads that are not asked for are not kept.

    Args:
        model: an encoder-decoder with cross-attention, of any Hugging Face family.
        tokenizer: its tokenizer, or a `TokenizerPair` if each side has its own.
        sources, targets: raw strings or lists of words. Without targets the model generates them first, with its own
            generation settings; the maps then come from a teacher-forced pass on the chosen ids.
        align_with: "output" or "input", see the module; None = `default_rows(model.config)`.
        layers, heads: decoder layers and heads to keep, negative from the end; None = all.
        weights: "attention", or the norms of the weighted values, "norm" (rows sum to 1) or "raw_norm" (Kobayashi et
            al. 2020; see `value_norms`).
        source_prefix: what the model wants before each source, e.g. T5's `translate English to German: `; its tokens
            are structural, and spans count from the user's own text.
        source_language, target_language: of a multilingual model, by the tokenizer's names; None = the tokenizer's
            `src_lang` and `tgt_lang` (see `set_languages`).
        generate_kwargs: for `model.generate` when there are no targets, e.g. `{"num_beams": 4}`.

    Raises:
        ValueError: the model has no cross-attention maps to give, or an argument is none of the allowed values.
        SentenceError: a sentence is longer than the model's positions, has a token outside its vocabulary, or makes
            weights that are not finite.
    """
    check_model(model)
    rows = default_rows(model.config) if align_with is None else align_with
    check_rows(rows)
    check_weights(weights)
    if batch_size < 1:
        raise UnusableError(f"batch_size is {batch_size}; it must be at least 1")
    if targets is None:
        if not callable(getattr(model, "generate", None)):
            raise UnusableError(
                f"{type(model).__name__} cannot generate; give targets, or load the model with its output layer"
            )
    elif len(sources) != len(targets):
        raise UnusableError(f"{len(sources)} sources but {len(targets)} targets; they must belong together one by one")
    languages = set_languages(model, tokenizer, source_language, target_language)
    reader = CrossAttentionReader(model, layers, heads, values=weights != "attention")
    extractor = _Extractor(model, languages, reader, rows, weights, generate_kwargs or {})
    prefix = languages.source_prefix + source_prefix
    return _in_order(extractor, sources, targets, batch_size, prefix)


def check_weights(weights: str) -> None:
    """Raise a ValueError unless `weights` is one of `WEIGHTS`."""
    if weights not in WEIGHTS:
        raise UnusableError(f"weights is {weights!r}; allowed are {', '.join(WEIGHTS)}")


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
    extractor: "_Extractor",
    sources: Sequence[Sentence],
    targets: Sequence[Sentence] | None,
    batch_size: int,
    prefix: str,
) -> Iterator[AttentionMaps]:
    window = batch_size * _BATCHES_SORTED_TOGETHER
    for first in range(0, len(sources), window):
        some_sources = tokenize(extractor.tokenizer, sources[first : first + window], prefix=prefix)
        some_targets = None
        if targets is not None:
            some_targets = tokenize(extractor.tokenizer, targets[first : first + window], target=True)
        lengths = [
            (len(source.ids), len(some_targets[index].ids) if some_targets else 0)
            for index, source in enumerate(some_sources)
        ]
        for part in _parts(lengths, batch_size, extractor.maps_per_pair):
            order = sorted(part, key=lengths.__getitem__)
            done: dict[int, AttentionMaps] = {}
            for start in range(0, len(order), batch_size):
                batch = order[start : start + batch_size]
                pairs = [
                    (first + index, some_sources[index], some_targets[index] if some_targets else None)
                    for index in batch
                ]
                done.update(zip(batch, extractor.run(pairs), strict=True))
            for index in part:
                yield done.pop(index)


def _parts(lengths: Sequence[tuple[int, int]], batch_size: int, maps_per_pair: int) -> Iterator[range]:
    """Yield ranges of pairs whose maps may wait for each other, of at least a batch and at most `_NUMBERS_WAITING`."""
    start = waiting = 0
    for index, (source, target) in enumerate(lengths):
        # Targets that are still to be generated are about as long as their sources.
        numbers = maps_per_pair * source * (target or source)
        if index - start >= batch_size and waiting + numbers > _NUMBERS_WAITING:
            yield range(start, index)
            start, waiting = index, 0
        waiting += numbers
    if start < len(lengths):
        yield range(start, len(lengths))


class _Extractor:
    """Run batches of tokenised sentence pairs through one model."""

    def __init__(
        self,
        model: Any,
        languages: Languages,
        reader: CrossAttentionReader,
        align_with: str,
        weights: str,
        generate_kwargs: dict[str, Any],
    ) -> None:
        self.model, self.languages, self.reader = model, languages, reader
        self.tokenizer = languages.tokenizer
        self.align_with, self.weights = align_with, weights
        self.generate_kwargs = languages.generate_kwargs() | generate_kwargs
        self.generator: Any = None
        config, generation = model.config, getattr(model, "generation_config", None)
        own_start = languages.start_token
        self.start: int = (
            _first_id(config, generation, "decoder_start_token_id", "bos_token_id") if own_start is None else own_start
        )
        self.ends = _id_list(getattr(config, "eos_token_id", None)) or _id_list(
            getattr(generation, "eos_token_id", None)
        )
        pad = getattr(config, "pad_token_id", None)
        source_tokenizer, target_tokenizer = sides(self.tokenizer)
        self.tokenizer_of = {"source": source_tokenizer, "target": target_tokenizer}
        self.pad = next((value for value in (pad, source_tokenizer.pad_token_id, self.start) if value is not None), 0)

    @property
    def maps_per_pair(self) -> int:
        """Return how many (T, S) maps a pair has, about: heads are counted when the first batch is read."""
        config = self.model.config
        layers = len(self.reader.layers) or _DEFAULT_LAYERS
        heads = len(self.reader.heads) or getattr(config, "decoder_attention_heads", None) or _DEFAULT_HEADS
        return layers * heads * (1 if self.weights == "attention" else 2)

    @torch.no_grad()
    def run(self, pairs: Sequence[tuple[int, TokenizedText, TokenizedText | None]]) -> list[AttentionMaps]:
        """Return the maps of one batch; each pair is (its place in the input, source, target or None)."""
        places = [place for place, _, _ in pairs]
        sources = [self._not_empty(source) for _, source, _ in pairs]
        self._check_ids("source", places, sources)
        input_ids, attention_mask = self._pad([source.ids for source in sources])
        if pairs[0][2] is None:
            started = self._generate(input_ids, attention_mask)
        else:
            started = [self._started(target) for _, _, target in pairs if target is not None]
        targets = [target for _, target in started]
        self._check_ids("target", places, targets)
        offset = row_offset(self.model.config, self.align_with)
        # The last token's row exists only if something follows it; what that is cannot change the row.
        tail = [self.pad] * max(0, offset - 1)
        decoder_ids, _ = self._pad([[start, *target.ids, *tail] for start, target in started])
        captured = self.reader.read(input_ids, attention_mask, decoder_ids)
        weights, products = _on_host(captured)
        self._check_weights(places, weights)
        if products is not None:
            self._check_products(places, products)
        return [
            self._maps(
                source,
                start,
                target,
                weights[index, :, :, offset : offset + len(target.ids), : len(source.ids)].copy(),
                None if products is None else products[index],
            )
            for index, (source, (start, target)) in enumerate(zip(sources, started, strict=True))
        ]

    def _maps(
        self,
        source: TokenizedText,
        start: int,
        target: TokenizedText,
        attention: np.ndarray,
        products: np.ndarray | None,
    ) -> AttentionMaps:
        norms, weights = None, attention
        if products is not None:
            has_null = bool(getattr(self.model.config, "null_key", False))
            if has_null:
                null = np.clip(1 - attention.sum(axis=-1, keepdims=True), 0, None)
                attention = np.concatenate([null, attention], axis=-1)
            norms = ValueNorms(attention, products[..., : attention.shape[-1]].copy(), has_null)
            weights = norms.per_head(self.weights == "norm")
        return AttentionMaps(
            weights=weights,
            source=source,
            target=target,
            align_with=self.align_with,
            layers=self.reader.layers,
            heads=self.reader.heads,
            weight_kind=self.weights,
            norms=norms,
            start=start,
        )

    def _generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> list[tuple[int, TokenizedText]]:
        """Return for each source the token that its target starts with, and the target."""
        if self.generator is None:
            self.generator = private_copy(self.model)
        # Some configs keep the library's 20 tokens, which would cut sentences in silence.
        limit = (
            {}
            if {"max_length", "max_new_tokens"} & set(self.generate_kwargs)
            else {"max_new_tokens": self._generation_limit(input_ids.shape[1]), "max_length": None}
        )
        sequences = self.generator.generate(
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
            targets.append((sequence[0], self._ended(from_ids(self.tokenizer, ids[: end + 1]))))
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

    def _started(self, target: TokenizedText) -> tuple[int, TokenizedText]:
        """Return the token that a given target starts with, and the target as the decoder is to produce it."""
        start, target = self.languages.decoder_view(self._ended(target))
        return self.start if start is None else start, target

    def _ended(self, target: TokenizedText) -> TokenizedText:
        """Return `target` with an end token: not every tokenizer adds one, and the last word's input row needs it."""
        if not self.ends or set(target.ids[-2:]) & set(self.ends):
            return target
        return self._followed_by(self.ends[0], target, "target")

    def _followed_by(self, token_id: int, text: TokenizedText, side: str) -> TokenizedText:
        token = str(self.tokenizer_of[side].convert_ids_to_tokens(token_id))
        return text.with_structural(len(text.ids), token_id, token, "end")

    def _pad(self, sequences: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids (B, longest) int64, padded on the right, and their mask, 1 = read."""
        device = input_device(self.model)
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

    def _check_products(self, places: Sequence[int], products: np.ndarray) -> None:
        """Refuse values that have no length, whose norms would be all 0."""
        for place, each in zip(places, products, strict=True):
            for number, layer in zip(self.reader.layers, each, strict=True):
                if not layer.any():
                    raise SentenceError(
                        "source",
                        place + 1,
                        f"the values of layer {number} have no length, so norms say nothing there; choose other layers "
                        "or weights='attention'",
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


def _on_host(captured: Sequence[LayerMaps]) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the weights (B, L, H, T, S) and products (B, L, H, H, N) of a batch; layers may lie on several devices."""
    weights = torch.stack([layer.weights.cpu() for layer in captured], dim=1).numpy()
    products = [layer.products.cpu() for layer in captured if layer.products is not None]
    return weights, torch.stack(products, dim=1).numpy() if products else None


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
