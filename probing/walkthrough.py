"""Walk through one decoder step of a trained model of ours: the six steps of attention in its own numbers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.tokenizer_pair import sides

from .attention_steps import AttentionSteps, attention_steps
from .capture import check_model, evaluating
from .extraction import check_rows, row_offset
from .tokens import Sentence, TokenizedText, tokenize

# Vectors longer than this are folded: the first numbers, then how many there are in all.
NUMBERS_SHOWN = 4
TOP_TOKENS = 5


@dataclass(frozen=True)
class Walk:
    """One decoder row of one sentence pair, in one layer and under one head.

    Attributes:
        source_tokens: S tokens. read: decoder inputs up to and with this row, the start token first.
        row: the decoder row, from 0. layer, heads, head: where attention was read.
        attention: `scaled_dot_product` or `additive`. has_null: position 0 of `steps` is the NULL key.
        encoder_states: (S, D). state: (D,) the query's decoder state. steps: steps 2 to 5 under `head`.
        context: (D,) the context of all heads together, as the decoder takes it.
        fusion: how state and context are fused. fused: (D,) the result: readout, or this layer's state.
        top: the most likely next tokens with their probabilities. true_token, cross_entropy: what came next in the
            target and -log of its probability, None after the last token.
    """

    source_tokens: list[str]
    read: list[str]
    row: int
    layer: int
    heads: int
    head: int
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


def walk_through(
    model: Any,
    tokenizer: Any,
    source: Sentence,
    target: Sentence,
    *,
    row: int | None = None,
    word: int | None = None,
    align_with: str = "output",
    layer: int | None = None,
    head: int | None = None,
) -> Walk:
    """Run one sentence pair and return all numbers of one decoder row.

    Args:
        model: one of ours, with attention.
        source, target: raw strings or lists of words.
        row: the decoder row, from 0 (the row that reads the start token).
        word: instead of `row`, a target word: the row where its first token is decoder `output` or `input`
            (`align_with`).
        layer, head: negative from the end; None = the ones that the config names for alignment, else the last layer,
            head 0.

    Raises:
        ValueError: not a model of ours, neither or both of row and word, one that does not exist, or another
            `align_with`; also if the numbers recomputed step by step differ from the model's.
    """
    check_model(model)
    check_rows(align_with)
    config = model.config
    if config.model_type != "seq2seq_attn":
        raise UnusableError(
            f"model_type={config.model_type!r}: only models of this package can be walked through so far"
        )
    (source_side,), (target_side,) = tokenize(tokenizer, [source]), tokenize(tokenizer, [target], target=True)
    decoder_ids = [config.decoder_start_token_id, *target_side.ids]
    row = _row(config, target_side, row, word, align_with)
    layers = 1 if config.decoder_is_recurrent else config.decoder_layers
    layer = _chosen("layer", layer, config.alignment_layer, layers - 1, layers)
    heads = config.cross_attention_heads
    head = _chosen("head", head, (config.alignment_heads or [None])[0], 0, heads)
    ids = torch.tensor([source_side.ids], device=model.device)
    inputs = torch.tensor([decoder_ids], device=model.device)
    with evaluating(model), torch.no_grad():
        with _recording(model, layer) as seen:
            output = model(ids, attention_mask=torch.ones_like(ids), decoder_input_ids=inputs, use_cache=False)
        # Teacher forcing calls a recurrent decoder's attention once, or once a step; rows follow one another.
        state, context, fused = (torch.cat(parts, dim=1)[0, row] for parts in (seen.queries, seen.contexts, seen.fused))
        steps = attention_steps(_block(model, layer).encoder_attn, state, seen.memories[0], head)
    probabilities = torch.softmax(output.logits[0, row].double(), dim=-1)
    best = probabilities.topk(min(TOP_TOKENS, len(probabilities)))
    next_id = decoder_ids[row + 1] if row + 1 < len(decoder_ids) else None
    tokens = sides(tokenizer)[1].convert_ids_to_tokens
    return Walk(
        source_tokens=source_side.tokens,
        read=tokens(decoder_ids[: row + 1]),
        row=row,
        layer=layer,
        heads=heads,
        head=head,
        attention=config.cross_attention_type,
        has_null=bool(config.null_key),
        encoder_states=_numbers(output.encoder_last_hidden_state[0]),
        state=_numbers(state),
        steps=steps,
        context=_numbers(context),
        fusion=config.context_fusion or "add",
        fused=_numbers(fused),
        top=list(zip(tokens(best.indices.tolist()), best.values.tolist(), strict=True)),
        true_token=None if next_id is None else tokens(next_id),
        cross_entropy=None if next_id is None else -float(probabilities[next_id].log()),
    )


@dataclass
class _Seen:
    """What went into one layer's attention and what came out of it and of its fusion, call by call."""

    queries: list[Tensor] = field(default_factory=list)
    memories: list[Any] = field(default_factory=list)
    contexts: list[Tensor] = field(default_factory=list)
    fused: list[Tensor] = field(default_factory=list)


@contextmanager
def _recording(model: Any, layer: int) -> Iterator[_Seen]:
    """Record the layer's attention and fusion while the context is open."""
    seen, block = _Seen(), _block(model, layer)

    def after_attention(module: nn.Module, args: tuple, output: tuple) -> None:
        seen.queries.append(args[0])
        seen.memories.append(args[1])
        seen.contexts.append(output[0])

    def after_fusion(module: nn.Module, args: tuple, output: Any) -> None:
        seen.fused.append(output if isinstance(output, Tensor) else output[0])

    # A Transformer layer fuses by its residual additions, so the layer's own output is the fusion.
    fusion = block.context_fusion if model.config.decoder_is_recurrent else block
    handles = [block.encoder_attn.register_forward_hook(after_attention), fusion.register_forward_hook(after_fusion)]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _block(model: Any, layer: int) -> Any:
    """Return the module that holds the layer's attention: a Transformer layer, or the recurrent decoder itself."""
    decoder = model.get_decoder()
    return decoder if model.config.decoder_is_recurrent else decoder.layers[layer]


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


def walk_html(walk: Walk) -> str:
    """Return the walk as HTML: an ordered list of the six steps, to be put into a page with `WALK_CSS`."""
    steps = [_encode(walk), _project(walk), _score(walk), _weigh(walk), _sum_up(walk), _predict(walk)]
    return '<ol class="walk">' + "".join(f"<li>{step}</li>" for step in steps) + "</ol>"


def walk_page(walk: Walk) -> str:
    """Return a whole page that shows the walk and needs nothing from outside."""
    title = f"What the decoder does after {walk.read[-1]}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        "<style>:root { color-scheme: light dark; } body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; "
        f"margin: 2rem auto; padding: 0 1rem; }} {WALK_CSS}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>{walk_html(walk)}</body></html>\n"
    )


WALK_CSS = """
.walk li { margin: 0 0 1.1rem; padding-left: .3rem; }
.walk table { margin: .5rem 0; font-size: .88rem; border-collapse: collapse; }
.walk td, .walk th { padding: .12rem .9rem .12rem 0; text-align: left; font-weight: 400; }
.walk .bar { display: inline-block; height: .7em; margin-right: .5em; vertical-align: baseline; background: #3b76af; }
"""


def _encode(walk: Walk) -> str:
    states = _table(["", "h<sub>i</sub>"], zip(walk.source_tokens, map(_fold, walk.encoder_states), strict=True))
    return f"<b>Encode.</b> Each source token becomes a state of {walk.encoder_states.shape[1]} numbers.{states}"


def _project(walk: Walk) -> str:
    return (
        f"<b>Query, keys, values.</b> The decoder has read {_text(' '.join(walk.read))}; its state "
        f"s = {_fold(walk.state)} becomes the query q = {_fold(walk.steps.query)} (head {walk.head} of {walk.heads}, "
        f"decoder layer {walk.layer}, both from 0). Each h<sub>i</sub> becomes a key k<sub>i</sub> and a value "
        "v<sub>i</sub>."
    )


def _score(walk: Walk) -> str:
    steps, positions = walk.steps, _positions(walk)
    if steps.hidden is None:
        says = f"q&middot;k<sub>i</sub> &times; {steps.scale:.4f}" + (
            " (1/&radic;d<sub>k</sub>)" if steps.scale != 1 else ""
        )
        middle, name = [f"{value:.3f}" for value in steps.raw], "q&middot;k<sub>i</sub>"
    else:
        says = f"v&middot;tanh(q + k<sub>i</sub>), v = {_fold(steps.score_vector)}"
        middle, name = [_fold(row) for row in steps.hidden], "tanh(q + k<sub>i</sub>)"
    rows = zip(positions, map(_fold, steps.keys), middle, map(_number, steps.scores), strict=True)
    return f"<b>Score.</b> {says}" + _table(["", "k<sub>i</sub>", name, "score"], rows)


def _weigh(walk: Walk) -> str:
    steps = walk.steps
    rows = zip(_positions(walk), map(_number, steps.exponentials), map(_bar, steps.weights), strict=True)
    exponent, remark = "score", ""
    if steps.shift:
        exponent = "score &minus; highest"
        remark = (
            f" The highest score, {_number(steps.shift)}, is first taken from each, so that the numbers stay small; "
            "the weights are the same."
        )
    head = ["", f"e<sup>{exponent}</sup>", "weight"]
    return f"<b>Softmax.</b> Exponentials divided by their sum, {steps.total:.4g}.{remark}" + _table(head, rows)


def _sum_up(walk: Walk) -> str:
    together = f"; all {walk.heads} heads together: {_fold(walk.context)}" if walk.heads > 1 else ""
    return f"<b>Context.</b> &sum; weight<sub>i</sub> v<sub>i</sub> = {_fold(walk.steps.context)}{together}."


def _predict(walk: Walk) -> str:
    top = _table(["next token", "probability"], ((token, _bar(share)) for token, share in walk.top))
    truth = ""
    if walk.cross_entropy is not None:
        truth = f"The true next token is {_text(str(walk.true_token))}: cross-entropy {walk.cross_entropy:.3f}."
    return (
        f"<b>Fuse and predict.</b> State and context ({escape(walk.fusion)}) give {_fold(walk.fused)}; output layer "
        f"and softmax make of the last layer's:{top}{truth}"
    )


def _positions(walk: Walk) -> list[str]:
    return (["NULL"] if walk.has_null else []) + walk.source_tokens


def _text(text: str) -> str:
    return f"<bdi>{escape(text)}</bdi>"


def _chosen(name: str, given: int | None, configured: int | None, default: int, count: int) -> int:
    value = next(option for option in (given, configured, default) if option is not None)
    if not -count <= value < count:
        raise UnusableError(f"{name}={value}: this model has {count}, counted from 0")
    return value % count


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()


def _fold(vector: np.ndarray | None) -> str:
    """Write a vector: all of up to NUMBERS_SHOWN numbers, else the first ones and how many there are."""
    if vector is None:
        return ""
    shown = ", ".join(_number(value) for value in vector[:NUMBERS_SHOWN])
    more = f", &hellip; ({len(vector)})" if len(vector) > NUMBERS_SHOWN else ""
    return f"[{shown}{more}]"


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.3g}"


def _bar(share: float) -> str:
    return f'<span class="bar" style="width:{share * 8:.2f}em"></span>{share:.3f}'


def _table(head: Sequence[str], rows: Any) -> str:
    """Lay out rows whose first cell is a token of the user's text (made harmless) and whose others are ours."""
    body = "".join(
        f"<tr><td>{_text(str(token))}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        for token, *cells in rows
    )
    return f"<table><tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>{body}</table>"
