"""Say the six steps of a `Walk` in words and numbers, ready for any format."""

from typing import TYPE_CHECKING, Any

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .explanation import (
    NUMBERS_SHOWN,
    Formula,
    Part,
    Sentence,
    Share,
    Step,
    Token,
    fill,
    formula,
    is_folded,
    number,
    table,
    vector,
)
from .walk_phrases import LANGUAGES, PHRASES

if TYPE_CHECKING:
    from .walkthrough import Walk

_STATE = formula("s")
_QUERY = formula("q")
_ENCODED = formula("hᵢ", "h_i", "h<sub>i</sub>")
_KEY = formula("kᵢ", "k_i", "k<sub>i</sub>")
_VALUE = formula("vᵢ", "v_i", "v<sub>i</sub>")
_DOT = formula("q·kᵢ", r"q \cdot k_i", "q&middot;k<sub>i</sub>")
_SCALED = formula("q·kᵢ / √d_k", r"q \cdot k_i / \sqrt{d_k}", "q&middot;k<sub>i</sub> / &radic;d<sub>k</sub>")
_HIDDEN = formula("tanh(q + kᵢ)", r"\tanh(q + k_i)", "tanh(q + k<sub>i</sub>)")
_ADDITIVE = formula("v·tanh(q + kᵢ)", r"v \cdot \tanh(q + k_i)", "v&middot;tanh(q + k<sub>i</sub>)")
_SUM = formula("c = Σ aᵢ vᵢ", r"c = \sum_i a_i v_i", "c = &sum; a<sub>i</sub> v<sub>i</sub>")
_EXPONENTIAL = formula("e^score", r"e^{\mathrm{score}}", "e<sup>score</sup>")
_SHIFTED = formula("e^(score - highest)", r"e^{\mathrm{score} - \mathrm{highest}}", "e<sup>score &minus; highest</sup>")


def walk_title(walk: "Walk", lang: str = "en") -> Sentence:
    """Return the headline of a walk."""
    return fill(PHRASES[checked_language(lang)]["title"], token=Token(walk.read[-1]))


def walk_steps(walk: "Walk", lang: str = "en") -> list[Step]:
    """Return the six steps of a walk, in English (`en`) or Chinese (`zh`).

    Raises:
        ValueError: another language.
    """
    say = _Speaker(checked_language(lang))
    return [_encode(walk, say), _project(walk, say), _score(walk, say), _weigh(walk, say), _sum(walk, say),
            _predict(walk, say)]  # fmt: skip


def checked_language(lang: str) -> str:
    """Return `lang`, or raise a ValueError where there are no phrases in it."""
    if lang not in LANGUAGES:
        raise UnusableError(f"lang is {lang!r}; allowed are {', '.join(LANGUAGES)}")
    return lang


class _Speaker:
    """Fill the phrases of one language."""

    def __init__(self, lang: str) -> None:
        self.phrases = PHRASES[lang]

    def __call__(self, key: str, **parts: Part | Sentence | int) -> Sentence:
        given: dict[str, Any] = {name: str(part) if isinstance(part, int) else part for name, part in parts.items()}
        return fill(self.phrases[key], **given)

    def word(self, key: str) -> str:
        return self.phrases[key]


def _encode(walk: "Walk", say: _Speaker) -> Step:
    rows = ((Token(token), vector(state)) for token, state in zip(walk.source_tokens, walk.encoder_states, strict=True))
    text = say("encode.text", width=walk.encoder_states.shape[1])
    if any(map(is_folded, (walk.encoder_states[0], walk.state, walk.steps.query, walk.steps.context))):
        text += (" ", *say("folded", shown=NUMBERS_SHOWN))
    return Step(say.word("encode"), text, table(["", _ENCODED], rows))


def _project(walk: "Walk", say: _Speaker) -> Step:
    text = say(
        "project.text",
        read=Token(" ".join(walk.read)),
        s=_STATE,
        state=vector(walk.state),
        q=_QUERY,
        query=vector(walk.steps.query),
        head=walk.head,
        heads=walk.heads,
        layer=walk.layer,
        h=_ENCODED,
        k=_KEY,
        v=_VALUE,
    )
    rows = (
        (position, vector(key), vector(value))
        for position, key, value in zip(_positions(walk), walk.steps.keys, walk.steps.values, strict=True)
    )
    return Step(say.word("project"), text, table(["", _KEY, _VALUE], rows))


def _score(walk: "Walk", say: _Speaker) -> Step:
    steps, middle = walk.steps, _DOT
    cells: list[Formula]
    if steps.hidden is None:
        scaled = steps.scale != 1
        scale = say("score.dot.scaled" if scaled else "score.dot.unscaled")
        text = say("score.dot", formula=_SCALED if scaled else _DOT, scale=scale)
        cells = [number(value) for value in steps.raw]
    else:
        text = say("score.additive", formula=_ADDITIVE, vector=vector(steps.score_vector))
        middle, cells = _HIDDEN, [vector(row) for row in steps.hidden]
    rows = zip(_positions(walk), cells, map(number, steps.scores), strict=True)
    return Step(say.word("score"), text, table(["", middle, say.word("score.column")], rows))


def _weigh(walk: "Walk", say: _Speaker) -> Step:
    steps = walk.steps
    text = say("weigh.text", total=_digits(steps.total))
    if steps.shift:
        text += say("weigh.shift", shift=number(steps.shift))
    rows = zip(_positions(walk), map(number, steps.exponentials), map(Share, steps.weights), strict=True)
    header: list[Part] = ["", _SHIFTED if steps.shift else _EXPONENTIAL, say.word("weigh.column")]
    return Step(say.word("weigh"), text, table(header, rows))


def _sum(walk: "Walk", say: _Speaker) -> Step:
    together: Sentence = ()
    if walk.heads > 1:
        together = say("sum.together", heads=walk.heads, context=vector(walk.context))
    text = say("sum.text", formula=_SUM, context=vector(walk.steps.context), together=together)
    rows = zip(_positions(walk), map(vector, walk.steps.weighted), strict=True)
    return Step(say.word("sum"), text, table(["", say.word("sum.weighted")], rows))


def _predict(walk: "Walk", say: _Speaker) -> Step:
    text = say("predict.fuse", fusion=walk.fusion, fused=vector(walk.fused))
    text += say("predict.top" if walk.is_top_layer else "predict.below")
    rows = ((Token(token), Share(share)) for token, share in walk.top)
    header: list[Part] = [say.word("predict.column.token"), say.word("predict.column.share")]
    after: Sentence = ()
    if walk.cross_entropy is not None:
        after = (*say("predict.truth", token=Token(str(walk.true_token)), loss=number(walk.cross_entropy)), " ")
    after += say("checked", difference=formula(f"{walk.largest_difference:.1e}"))
    return Step(say.word("predict"), text, table(header, rows), after)


def _positions(walk: "Walk") -> list[Token]:
    return [Token(token) for token in (["NULL"] if walk.has_null else []) + walk.source_tokens]


def _digits(value: float | np.floating) -> Formula:
    return formula(f"{value:.4g}")
