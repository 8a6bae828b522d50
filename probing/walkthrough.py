"""Walk through one decoder step of a trained model: the six steps of attention in its own numbers."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.tokenizer_pair import sides

from .attention_parts import attention_parts, named_attention_layers
from .attention_steps import AttentionSteps
from .capture import attend_eagerly, check_model, private_copy
from .choices import alignment_heads
from .explanation import plain_values
from .explanation_formats import STEPS_CSS, to_html, to_html_list
from .extraction import check_rows, extract, row_offset
from .saved_choice import saved_choice
from .tokens import Sentence, TokenizedText
from .walk_pass import redo_row, run_row
from .walk_steps import walk_steps, walk_title

WALK_CSS = STEPS_CSS
TOP_TOKENS = 5


@dataclass(frozen=True)
class Walk:
    """One decoder row of one sentence pair, in one layer and under one head.

    Attributes:
        source_tokens: S tokens. read: decoder inputs up to and with this row, the start token first.
        row: the decoder row, from 0. layer, heads, head: where attention was read.
        is_top_layer: whether `layer` is the decoder's last, so that `fused` is what the output layer reads.
        attention: `scaled_dot_product` or `additive`. has_null: position 0 of `steps` is the NULL key.
        encoder_states: (S, D). state: (D,) the query's decoder state. steps: steps 2 to 5 under `head`.
        context: (D,) the context of all heads together, as the decoder takes it.
        fusion: how state and context are fused. fused: (D,) the result: readout, or this layer's state.
        top: the most likely next tokens with their probabilities. true_token, cross_entropy: what came next in the
            target and -log of its probability, None after the last token.
        largest_difference: between the numbers done again and the model's own: weights, context, readout, logits.
    """

    source_tokens: list[str]
    read: list[str]
    row: int
    layer: int
    heads: int
    head: int
    is_top_layer: bool
    attention: str
    has_null: bool
    encoder_states: np.ndarray
    state: np.ndarray
    steps: AttentionSteps
    context: np.ndarray
    fusion: str
    fused: np.ndarray
    top: list[tuple[str, float]]
    true_token: str | None
    cross_entropy: float | None
    largest_difference: float

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers, unfolded, as plain JSON values."""
        return plain_values(asdict(self))


def walk_through(
    model: Any,
    tokenizer: Any,
    source: Sentence,
    target: Sentence | None = None,
    *,
    row: int | None = None,
    word: int | None = None,
    align_with: str = "output",
    layer: int | None = None,
    head: int | None = None,
    **extraction: Any,
) -> Walk:
    """Run one sentence pair and return all numbers of one decoder row.

    Args:
        model: one of ours with attention, or one whose cross-attention has query, key, value and output projections
            of a known name: Marian, BART, mBART, M2M100, Pegasus, T5 and their kin.
        source, target: raw strings or lists of words; without a target the model generates it.
        row: the decoder row, from 0 (the row that reads the start token).
        word: instead of `row`, a target word: the row where its first token is decoder `output` or `input`
            (`align_with`).
        layer, head: negative from the end. Without either: the first head of the choice saved with the model, else
            of those that the config names for alignment, else head 0 of the last layer. Without a head: the config's
            first in its own layer, 0 in others.
        extraction: `source_prefix`, `source_language`, `target_language`, `generate_kwargs`, as for `extract`.

    Raises:
        ValueError: a model that cannot be walked through, neither or both of row and word, one that does not exist,
            or another `align_with`; also if the numbers done again step by step differ from the model's.
    """
    check_model(model)
    check_rows(align_with)
    config, copied = model.config, private_copy(model)
    attend_eagerly(copied)
    layers = named_attention_layers(copied)
    layer, head = _place(model, layer, head)
    layer = _checked("layer", layer, len(layers))
    parts = attention_parts(layers[layer])
    head = _checked("head", head, parts.heads)
    targets = None if target is None else [target]
    maps = next(extract(copied, tokenizer, [source], targets, layers=[layer], align_with="output", **extraction))
    row = _row(config, maps.target, row, word, align_with)
    computed = run_row(copied, layers, layer, maps, row)
    redone = redo_row(copied, layers[layer], parts, computed)

    probabilities, ids = redone.probabilities, computed.decoder_ids
    tokens = sides(tokenizer)[1].convert_ids_to_tokens
    best = np.argsort(-probabilities, kind="stable")[:TOP_TOKENS]
    next_id = ids[row + 1] if row + 1 < len(ids) else None
    return Walk(
        source_tokens=maps.source_tokens,
        read=tokens(ids[: row + 1]),
        row=row,
        layer=layer,
        heads=parts.heads,
        head=head,
        is_top_layer=layer == len(layers) - 1,
        attention="scaled_dot_product" if parts.score_vector is None else "additive",
        has_null=parts.null_key is not None,
        encoder_states=computed.encoder_states,
        state=computed.state,
        steps=redone.steps[head],
        context=redone.context,
        fusion=getattr(config, "context_fusion", None) or "residual",
        fused=computed.fused,
        top=[(tokens(int(index)), float(probabilities[index])) for index in best],
        true_token=None if next_id is None else tokens(next_id),
        cross_entropy=None if next_id is None else -float(np.log(probabilities[next_id])),
        largest_difference=redone.largest_difference,
    )


def walk_html(walk: Walk, lang: str = "en") -> str:
    """Return the walk as HTML: an ordered list of the six steps, to be put into a page with `WALK_CSS`."""
    return to_html_list(walk_steps(walk, lang))


def walk_page(walk: Walk, lang: str = "en") -> str:
    """Return a whole page that shows the walk and needs nothing from outside."""
    return to_html(walk_title(walk, lang), walk_steps(walk, lang), lang)


def _row(config: Any, target: TokenizedText, row: int | None, word: int | None, align_with: str) -> int:
    """Return the decoder row that was asked for, by its number or by a target word."""
    if (row is None) == (word is None):
        raise UnusableError(f"give either a row or a word, not {'neither' if row is None else 'both'}")
    if word is not None:
        if word not in target.word_of:
            raise UnusableError(f"word={word}: the target has words 0 to {len(target.words) - 1}")
        row = target.word_of.index(word) + row_offset(config, align_with)
    if row is None or not 0 <= row <= len(target.ids):
        raise UnusableError(f"row={row}: the decoder has rows 0 to {len(target.ids)}")
    return row


def _place(model: Any, layer: int | None, head: int | None) -> tuple[int, int]:
    """Return the layer and head to walk through, where nothing is said the first that alignments are read from."""
    saved = saved_choice(model) if layer is None and head is None else None
    if saved is not None:
        return saved.heads[0]
    layer, heads = alignment_heads(model.config, layer, None if head is None else [head])
    return layer, 0 if heads is None else heads[0]


def _checked(name: str, value: int, count: int) -> int:
    if not -count <= value < count:
        raise UnusableError(f"{name}={value}: this model has {count}, counted from 0")
    return value % count
