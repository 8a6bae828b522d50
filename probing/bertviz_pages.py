"""BertViz's head view and model view of any encoder-decoder, as pages that need no network.

BertViz (Vig 2019) is called once for each kind of attention, since it takes the layers and heads of all from the first.
Its pages load their scripts from the network; here they are part of the page, taken from installed packages. Tokens
are escaped so that none can end the script that holds them, and weights are rounded to three digits.
"""

import importlib.util
import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from hf_seq2seq_attn.errors import UnusableError

from .heatmap_svg import drawable
from .pair_attentions import PairAttentions, pair_attentions
from .tokens import Sentence

VIEWS = ("head", "model")
# One line of SVG for each weight that a page draws: more make a browser wait, and a page large.
WEIGHTS_IN_PAGE = 500_000
_HEADINGS = {
    "encoder": "Encoder: source tokens look at source tokens",
    "decoder": "Decoder: what it reads looks at what it has read",
    "cross": "Cross: target tokens look at source tokens",
}
# The packages that ship a script, as files beside them.
_SCRIPTS = (("mpld3", "js/d3.v5.min.js"), ("xstatic.pkg.jquery", "data/jquery.min.js"))
# BertViz asks require.js for its two scripts; they are there already.
_REQUIRE = """
function requirejs(names, run) { run(...names.map((name) => ({ jquery: window.jQuery, d3: window.d3 })[name])); }
const require = { config() {} };
"""
_PAGE_WIDTH, _HEADS_ACROSS = 1010, 6
_FRAME = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="color-scheme" content="light">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{title}</title>
<style>body {{ font: 15px/1.5 "Helvetica Neue", Helvetica, Arial, "Noto Sans", "Noto Sans CJK SC", sans-serif;
  margin: 24px; background: #fff; color: #222; }} h1 {{ font-size: 20px; }} h2 {{ font-size: 16px; }}
  .note {{ color: #667085; }} svg {{ max-width: {width}px; }}</style>
</head>
<body>
<h1>{title}</h1>
<p class="note">{note}</p>
{sections}
</body>
</html>
"""


@dataclass(frozen=True)
class BertvizPage:
    """A page by BertViz; in a notebook it shows itself.

    Attributes:
        html: the whole page.
        view: "head" or "model".
        shown: what is on it, by kind of attention.
        left_out: what the size rule took away, in words.
        height: pixels that it needs to be seen whole, about.
    """

    html: str
    view: str
    shown: dict[str, str]
    left_out: str
    height: int

    def describe(self) -> str:
        """Return in words what the page shows and what it had to leave out."""
        shown = "; ".join(f"{kind}: {what}" for kind, what in self.shown.items())
        return f"BertViz {self.view} view of {shown}" + (f" ({self.left_out})" if self.left_out else "")

    def _repr_html_(self) -> str:
        # A frame of its own keeps the page's scripts and the notebook's apart.
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" title="BertViz {self.view} view" '
            f'style="width:100%;height:{min(self.height, 900)}px;border:0"></iframe>'
        )


def head_view(model: Any, tokenizer: Any, source: Sentence, target: Sentence | None = None, **options: Any) -> Any:
    """Return BertViz's head view of a sentence pair: lines between tokens, a colour for each head, layer by layer.

    Args:
        target: None = the model's own translation.
        options: `layers`, `heads`, `kinds` and `title` of `bertviz_page`; the others of `pair_attentions`.
    """
    return _view("head", model, tokenizer, source, target, options)


def model_view(model: Any, tokenizer: Any, source: Sentence, target: Sentence | None = None, **options: Any) -> Any:
    """Return BertViz's model view of a sentence pair: every layer and head at once; arguments as in `head_view`."""
    return _view("model", model, tokenizer, source, target, options)


def bertviz_page(
    attentions: PairAttentions,
    view: str = "head",
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    kinds: Sequence[str] | None = None,
    title: str = "Attention",
    limit: int = WEIGHTS_IN_PAGE,
) -> BertvizPage:
    """Return a page with a view for each kind of attention that the model has; it loads nothing from anywhere.

    Args:
        view: "head" or "model".
        layers, heads: numbers to show, where a kind of attention has them; negative from the end; None = all.
        kinds: some of "encoder", "decoder", "cross"; None = all that there are.
        limit: weights in the page. Each kind may use an equal share of it; beyond that its last layers are shown, as
            many as fit, and of a single layer that is too much its first heads. The page says so.

    Raises:
        ValueError: an unknown view or kind, a layer or head that no kind has, or a single head that is over the limit.
        ModuleNotFoundError: bertviz or a package that ships its scripts is not installed.
    """
    check_bertviz(view)
    sections, shown, left_out, height = [], {}, [], 160
    parts = _parts(attentions, kinds)
    for kind, (weights, rows, columns) in parts.items():
        chosen = _Chosen.of(kind, weights, layers, heads, limit // len(parts))
        if chosen is None:
            continue
        sections.append(
            f"<h2>{_HEADINGS[kind]}</h2>\n{_section(view, kind, chosen.cut(weights), rows, columns, chosen)}"
        )
        shown[kind] = chosen.describe()
        left_out += chosen.left_out
        height += 120 + 23 * max(len(rows), len(columns)) * (1 if view == "head" else len(chosen.layers))
    if not sections:
        raise UnusableError(f"layers {layers} and heads {heads} are in none of {', '.join(parts)}; leave them out")
    rows_mean = f"rows of the cross-attention: target token as decoder {attentions.cross.align_with}"
    page = _FRAME.format(
        title=escape(drawable(title)),
        note=escape("; ".join([rows_mean, *left_out])),
        width=_PAGE_WIDTH,
        sections="\n".join([_scripts(), *sections]),
    )
    return BertvizPage(page, view, shown, "; ".join(left_out), height)


def check_bertviz(view: str) -> None:
    """Raise unless `view` is one that BertViz has and all that its pages need is installed.

    Raises:
        ValueError: another view.
        ModuleNotFoundError: a package is missing.
    """
    if view not in VIEWS:
        raise UnusableError(f"bertviz is {view!r}; allowed are {', '.join(VIEWS)}")
    import bertviz  # noqa: F401

    for package, _ in _SCRIPTS:
        _folder_of(package)


def _view(
    view: str, model: Any, tokenizer: Any, source: Sentence, target: Sentence | None, options: dict[str, Any]
) -> BertvizPage:
    check_bertviz(view)
    of_page = {name: options.pop(name) for name in ("layers", "heads", "kinds", "title", "limit") if name in options}
    return bertviz_page(pair_attentions(model, tokenizer, source, target, **options), view, **of_page)


@dataclass(frozen=True)
class _Chosen:
    """The layers and heads of one kind that are shown, by their positions, which are the model's numbers."""

    layers: list[int]
    heads: list[int]
    left_out: list[str]

    @classmethod
    def of(
        cls, kind: str, weights: np.ndarray, layers: Sequence[int] | None, heads: Sequence[int] | None, limit: int
    ) -> "_Chosen | None":
        """Choose among what is there and what fits; None if nothing that was asked for is there."""
        there = [_present(wanted, count) for wanted, count in zip((layers, heads), weights.shape[:2], strict=True)]
        if not all(there):
            return None
        some_layers, some_heads = there
        size = weights.shape[2] * weights.shape[3]
        if size > limit:
            raise UnusableError(
                f"one head's {kind} attention of {weights.shape[2]} by {weights.shape[3]} tokens is more than the "
                f"{limit:,} weights that a BertViz page can take; split the sentence, or use the page without --bertviz"
            )
        fit_heads = min(len(some_heads), limit // size)
        fit_layers = max(1, min(len(some_layers), limit // (size * len(some_heads))))
        said = []
        if fit_layers < len(some_layers):
            said.append(f"{kind}: the last {fit_layers} of {len(some_layers)} layers, to keep the page small")
        if fit_heads < len(some_heads):
            said.append(f"{kind}: the first {fit_heads} of {len(some_heads)} heads, to keep the page small")
        return cls(some_layers[-fit_layers:], some_heads[:fit_heads], said)

    def cut(self, weights: np.ndarray) -> np.ndarray:
        return weights[self.layers][:, self.heads]

    def describe(self) -> str:
        return f"layers {_ranges(self.layers)}, heads {_ranges(self.heads)}"


def _parts(
    attentions: PairAttentions, kinds: Sequence[str] | None
) -> dict[str, tuple[np.ndarray, list[str], list[str]]]:
    """Return weights, labels of rows and labels of columns of each kind of attention that is there and asked for."""
    source, decoder, target = attentions.source_tokens, attentions.decoder_tokens, attentions.target_tokens
    found: dict[str, tuple[np.ndarray, list[str], list[str]]] = {}
    if attentions.encoder is not None:
        found["encoder"] = (attentions.encoder, source, source)
    if attentions.decoder is not None:
        found["decoder"] = (attentions.decoder, decoder, decoder)
    found["cross"] = (attentions.cross.weights, target, source)
    for kind in kinds or ():
        if kind not in found:
            raise UnusableError(f"kinds holds {kind!r}; this model has {', '.join(found)}")
    return {kind: part for kind, part in found.items() if kinds is None or kind in kinds}


def _present(wanted: Sequence[int] | None, count: int) -> list[int]:
    if wanted is None:
        return list(range(count))
    return sorted({number % count for number in wanted if -count <= number < count})


def _ranges(numbers: list[int]) -> str:
    whole = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]} to {numbers[-1]}" if whole else ", ".join(map(str, numbers))


def _section(view: str, kind: str, weights: np.ndarray, rows: list[str], columns: list[str], chosen: _Chosen) -> str:
    """Return BertViz's own HTML for one kind of attention, with its scripts' addresses taken out and tokens escaped."""
    import bertviz
    import torch

    # Numbers of Python with three digits: a float32 would be written with seventeen.
    rounded = [torch.from_numpy(np.round(layer[None].astype(np.float64), 3)) for layer in weights]
    tokens = dict(encoder_tokens=[drawable(each) for each in columns], decoder_tokens=[drawable(each) for each in rows])
    if kind == "encoder":
        given = dict(encoder_attention=rounded, encoder_tokens=tokens["encoder_tokens"])
    elif kind == "decoder":
        given = dict(decoder_attention=rounded, decoder_tokens=tokens["decoder_tokens"])
    else:
        given = dict(cross_attention=rounded, **tokens)
    draw = bertviz.head_view if view == "head" else bertviz.model_view
    html = draw(
        **given, html_action="return", prettify_tokens=False, **({} if view == "head" else {"display_mode": "light"})
    )
    return _offline(html.data, chosen)


def _offline(html: str, chosen: _Chosen) -> str:
    """Return BertViz's HTML so that it needs no network and no token can leave its string.

    Raises:
        RuntimeError: BertViz writes its pages in another way than version 1.4 does.
    """
    html, loads = re.subn(r'<script src="https?:[^"]*"></script>', "", html)
    html, configurations = re.subn(r"require\.config\(\{.*?\}\);", "", html, flags=re.DOTALL)
    start = re.search(r"^\s*const params = ", html, flags=re.MULTILINE)
    if not (loads == configurations == 1 and start):
        raise RuntimeError("this version of bertviz writes its pages in an unknown way; install bertviz 1.4.1")
    params, end = json.JSONDecoder().raw_decode(html, start.end())
    # In the rest of the line, a comment, BertViz has written it all again.
    end = html.index("\n", end)
    # The numbers of what is shown, which BertViz counts from 0.
    params["include_layers"] = chosen.layers
    if "include_heads" in params:
        params["include_heads"] = chosen.heads
        # The width of a head's cell is the page's divided by this: with few heads cells would be huge.
        params["total_heads"] = max(len(chosen.heads), _HEADS_ACROSS)
    # BertViz draws its name by chance; the same page has the same bytes.
    by_chance, name = (
        params["root_div_id"],
        f"bertviz-{uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(params['attention']))}",
    )
    written = json.dumps(params | {"root_div_id": name}, separators=(",", ":")).replace("<", "\\u003c")
    before, after = (part.replace(by_chance, name) for part in (html[: start.end()], html[end:]))
    return before + written + ";" + after


def _scripts() -> str:
    """Return script elements with d3, jQuery and the two names of require.js that BertViz calls.

    Raises:
        ModuleNotFoundError: a package that ships one is not installed.
    """
    texts = [(_folder_of(package) / file).read_text(encoding="utf-8") for package, file in _SCRIPTS]
    # Inside a script element nothing may look like its end, or like the start of a comment that hides the end.
    safe = [text.replace("</script", "<\\/script").replace("<!--", "<\\!--") for text in [*texts, _REQUIRE]]
    return "".join(f"<script>{text}</script>\n" for text in safe)


def _folder_of(package: str) -> Path:
    """Return where a package lies, without importing it."""
    top = package.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top) and importlib.util.find_spec(package)
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=top)
    return Path(next(iter(spec.submodule_search_locations)))
