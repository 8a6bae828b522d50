"""The pages as a browser shows them, with the network off: drawn, silent, harmless, usable by pointer and by keys."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from probes import foreign_model, subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import (
    Gold,
    PairView,
    SentenceView,
    ViewedMap,
    ViewLevel,
    bertviz_page,
    extract,
    pair_attentions,
    pair_view,
    walk_page,
    walk_through,
    write_view,
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; the pages are opened in it")

ENGLISH = ["In", "the", "beginning", "God", "created"]
CHINESE = ["起初", "神", "创造", "天地", "。"]
HEBREW = ["בְּרֵאשִׁית", "בָּרָא", "אֱלֹהִים", "אֵת", "הַשָּׁמַיִם"]
HOSTILE = [
    "</script><img src=x onerror=window.hacked=1>",
    "<svg onload=alert(1)>",
    "{{data}}",
    "<!--<script>",
    "\u202eabc",
]
READY = "document.documentElement.dataset.ready"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


def weights(rows: int, columns: int, seed: int = 0, spread: float = 0.3) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(columns, spread), size=rows)


def sentence(source: list[str], target: list[str], gold: Gold | None = None, seed: int = 0) -> SentenceView:
    matrix = weights(len(target), len(source), seed)
    return SentenceView(source, target, matrix, frozenset((int(row.argmax()), j) for j, row in enumerate(matrix)), gold)


def heads_page(path: Path) -> tuple[Path, PairView]:
    """Write a page of two pairs with every layer and head of a model, the first with gold links."""
    model, tokenizer = foreign_model("marian"), subword_tokenizer()
    maps = list(extract(model, tokenizer, ["the cats love today.", "I love"], ["I love cats", "day"]))
    gold = Gold(frozenset({(1, 2), (0, 0)}), frozenset({(2, 1)}))
    views = [pair_view(maps[0], maps[0], gold=gold), pair_view(maps[1], maps[1])]
    write_view(path, views)
    return path, views[0]


# Pixels of the map, from a copy: reading a canvas itself again and again makes Chromium warn.
READ = """((x, y, width, height) => {
  const copy = Object.assign(document.createElement("canvas"), { width: board.width, height: board.height });
  const pen = copy.getContext("2d", { willReadFrequently: true });
  pen.drawImage(board, 0, 0);
  return [...pen.getImageData(x, y, width, height).data];
})"""


def pixel(column: int, row: int) -> str:
    return f"{READ}(grid.left + {column} * grid.cell + 3, grid.top + {row} * grid.cell + 3, 1, 1)"


def is_inked(area: str) -> str:
    return f"{READ}({area}).some((value) => value > 0)"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("source", "target"), [(ENGLISH, HEBREW), (HEBREW, CHINESE), (CHINESE, ENGLISH)])
def test_a_map_is_drawn_in_any_script_light_and_dark(
    browser: Browser, tmp_path: Path, source: list[str], target: list[str], dark: bool
) -> None:
    matrix = np.zeros((5, 5))
    matrix[1, 3], matrix[2] = 1, [0.2] * 5
    write_view(tmp_path / "v.html", [SentenceView(source, target, matrix)])
    with browser.open(tmp_path / "v.html", dark=dark) as page:
        page.wait_for(READY)
        full, empty, partly = (page.evaluate(pixel(c, r)) for c, r in ((3, 1), (0, 1), (4, 2)))
        assert full == ([138, 162, 255, 255] if dark else [48, 73, 201, 255])
        assert empty[3] == 0
        assert 0 < partly[3] < 255
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(15, 18, 22)" if dark else "rgb(246, 247, 249)"
        )
        assert (
            page.evaluate("[...document.querySelectorAll('#target .word')].map((word) => word.textContent)") == target
        )
        right_to_left = "getComputedStyle(document.getElementById('{}')).direction"
        assert page.evaluate(right_to_left.format("source")) == ("rtl" if source is HEBREW else "ltr")
        # Something is written where the labels are.
        assert page.evaluate(is_inked("0, 0, grid.left - 6, grid.height"))
        assert (page.errors, page.requests) == ([], [])


def test_heads_levels_and_gold(browser: Browser, tmp_path: Path) -> None:
    path, view = heads_page(tmp_path / "v.html")
    with browser.open(path) as page:
        page.wait_for(READY)
        assert page.evaluate("[...mapPicker.options].map((option) => option.textContent)") == [
            each.name for each in view.words.maps
        ]
        assert page.evaluate("[...mapPicker.querySelectorAll('optgroup')].map((group) => group.label)") == [
            "alignment",
            "means",
            "layer 0",
            "layer 1",
            "layer 2",
        ]
        chosen = view.words.maps[-1]
        page.evaluate(f"mapPicker.value = {chosen.key!r}; mapPicker.dispatchEvent(new Event('change'))")
        page.wait_for(f"grid.map.key === {chosen.key!r}")
        np.testing.assert_allclose(page.evaluate("[...grid.weights]"), chosen.matrix.ravel(), atol=3e-5)
        assert "layer 2, head 2" in page.evaluate("stage.getAttribute('aria-label')")
        hits = len(chosen.links & {(1, 2), (0, 0), (2, 1)})
        missed = len({(1, 2), (0, 0)} - chosen.links)
        said = f"{hits} hits{len(chosen.links) - hits} false{missed} missed"
        assert page.evaluate("document.getElementById('counts').textContent") == said
        page.evaluate("document.getElementById('tokens').click()")
        page.wait_for("state.level === 'tokens' && grid.level === data.pairs[0].levels.tokens")
        assert view.tokens is not None
        assert page.evaluate("grid.target") == list(view.tokens.target)
        np.testing.assert_allclose(page.evaluate("[...grid.weights]"), view.tokens.maps[-1].matrix.ravel(), atol=3e-5)
        # A gold link frames all sub-words of its words.
        columns = [i for i, word in enumerate(view.tokens.source_word or ()) if word == 1]
        assert ["sure", [columns[0], columns[-1]]] in page.evaluate("grid.marks.boxes.map((box) => box.slice(0, 2))")
        page.evaluate("document.getElementById('glance').open = true")
        page.wait_for("document.querySelectorAll('#heads canvas').length === 9")
        page.evaluate("document.querySelector('#heads button').click()")
        page.wait_for("grid.map.name === 'layer 0, head 0'")
        assert (page.errors, page.requests) == ([], [])


def test_marks_differ_by_shape(browser: Browser, tmp_path: Path) -> None:
    """Drawn in one colour they are still told apart."""
    matrix = np.zeros((1, 5))
    gold = Gold(frozenset({(0, 0), (2, 0), (3, 0)}), frozenset({(4, 0)}))
    shown = SentenceView(list("abcde"), ["x"], matrix, frozenset({(0, 0), (1, 0)}), gold)
    write_view(tmp_path / "v.html", [shown])
    with browser.open(tmp_path / "v.html") as page:
        page.wait_for(READY)
        area = "grid.left + column * grid.cell + 1, grid.top + 1, grid.cell - 2, grid.cell - 2"
        shape = 'filter((value, index) => index % 4 === 3).map((value) => value > 100 ? "#" : ".").join("")'
        outline = f"[0, 1, 2, 3, 4].map((column) => {READ}({area}).{shape})"
        hit, false, missed, missed_too, possible = page.evaluate(outline)
        assert missed == missed_too
        assert len({hit, false, missed, possible}) == 4
        kinds = "[0, 1, 2, 4].map((column) => kindAt(column, 0))"
        assert page.evaluate(kinds) == ["hit", "false link", "missed sure gold", "possible gold"]


def test_keys_pointer_and_search(browser: Browser, tmp_path: Path) -> None:
    first = sentence(ENGLISH, HEBREW)
    write_view(
        tmp_path / "v.html", [first, sentence(ENGLISH, CHINESE, seed=1), SentenceView([], ["y"], np.zeros((1, 0)))]
    )
    readout = "document.getElementById('readout').textContent"
    with browser.open(tmp_path / "v.html") as page:
        page.wait_for(READY)
        page.evaluate("stage.focus()")
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "End"):
            page.press(key)
        assert page.evaluate("[state.row, state.column]") == [1, 4]
        assert (
            page.evaluate(readout) == f"{first.matrix[1, 4]:.3f}  \u2068{HEBREW[1]}\u2069 looks at \u2068created\u2069"
        )
        assert page.evaluate("document.getElementById('readout').getAttribute('aria-live')") == "polite"
        left, top, cell = page.evaluate(
            "(({x, y}) => [x + grid.left, y + grid.top, grid.cell])(stage.getBoundingClientRect())"
        )
        page.point(left + 2.5 * cell, top + 0.5 * cell)
        page.wait_for("state.row === 0 && state.column === 2")
        assert f"{first.matrix[0, 2]:.3f}" in page.evaluate("tip.textContent")
        assert page.evaluate("getComputedStyle(tip).opacity") == "1"
        page.press("n")
        page.wait_for("state.pair === 1 && grid.pair === data.pairs[1]")
        page.press("n")
        page.wait_for("state.pair === 2")
        page.wait_for("!document.getElementById('blank').hidden && stage.hidden")
        page.press("/")
        assert page.evaluate("document.activeElement.id") == "search"
        for letter in "创造":
            page.press(letter)
        page.wait_for("state.matches.length === 1 && state.pair === 1 && !stage.hidden")
        assert page.evaluate("document.getElementById('found').textContent") == "1 of 3"
        page.press("Escape")
        page.wait_for("state.matches.length === 3 && document.activeElement === stage")
        assert (page.errors, page.requests) == ([], [])


@pytest.mark.parametrize("size", [40, 400])
def test_long_sentences_are_readable(browser: Browser, tmp_path: Path, size: int) -> None:
    """Six layers of eight heads of 400 by 400 tokens: under 5 MB, the labels legible and always in sight."""
    names = [[f"{side}{n}" for n in range(size)] for side in "st"]
    maps = [ViewedMap("reading", "as read", weights(size, size, 99, 0.02))]
    maps += [
        ViewedMap(
            "head", f"layer {layer}, head {head}", weights(size, size, 8 * layer + head, 0.02), frozenset(), layer, head
        )
        for layer in range(6)
        for head in range(8)
    ]
    reduced = write_view(tmp_path / "v.html", [PairView(ViewLevel(*names, maps))])
    assert (tmp_path / "v.html").stat().st_size < 5_000_000
    with browser.open(tmp_path / "v.html") as page:
        page.wait_for(READY)
        assert page.evaluate("grid.cell") >= 12
        assert page.evaluate("fontSize()") >= 10
        stated = page.evaluate(
            "document.querySelector('.reduced') ? document.querySelector('.reduced').textContent : ''"
        )
        assert stated == (f"To stay under 5.0 MB, {reduced}." if reduced else "")
        page.evaluate("stage.scrollTop = 1e6, stage.scrollLeft = 1e6")
        page.wait_for("Math.abs(stage.scrollTop + stage.clientHeight - stage.scrollHeight) < 2")
        page.wait_for(is_inked("0, grid.top + 5, grid.left - 6, 60"))
        page.wait_for(is_inked("grid.left + 5, 0, 200, grid.top - 6"))
        page.evaluate("stage.focus()")
        page.press("End")
        page.press("End")
        assert page.evaluate("state.column") == size - 1
        page.press("0")
        page.wait_for("grid.width <= stage.clientWidth + 1")
        assert (page.errors, page.requests) == ([], [])


def test_hostile_words_are_inert(browser: Browser, tmp_path: Path) -> None:
    write_view(tmp_path / "v.html", [sentence(HOSTILE, HOSTILE)], title=HOSTILE[0], note=HOSTILE[1])
    with browser.open(tmp_path / "v.html") as page:
        page.wait_for(READY)
        page.evaluate("stage.focus()")
        page.press("ArrowDown")
        assert HOSTILE[0] in page.evaluate("document.getElementById('readout').textContent")
        assert page.evaluate("[window.hacked, document.querySelectorAll('img, script[src]').length]") == [None, 0]
        assert (page.errors, page.requests) == ([], [])


@pytest.mark.parametrize("view", ["head", "model"])
@pytest.mark.parametrize("recurrent", [False, True], ids=["transformer", "recurrent"])
def test_bertviz_draws_offline(browser: Browser, tmp_path: Path, view: str, recurrent: bool) -> None:
    kind = dict(encoder_type="gru", decoder_type="gru") if recurrent else dict(decoder_layers=3)
    attentions = pair_attentions(
        tiny_model(vocab_size=73, **kind), subword_tokenizer(), "the cats love today.", "I love cats"
    )
    attentions.source_tokens[:2] = HOSTILE[:2]
    path = tmp_path / "b.html"
    path.write_text(bertviz_page(attentions, view).html, encoding="utf-8")
    with browser.open(path) as page:
        kinds = 1 if recurrent else 3
        page.wait_for(f"document.querySelectorAll('svg').length === {kinds}")
        cross = "[...[...document.querySelectorAll('svg')].at(-1).querySelectorAll('line')]"
        size = len(attentions.source_tokens) * len(attentions.target_tokens)
        maps = 1 if recurrent else 9
        assert page.evaluate(f"{cross}.length") == (size * maps if view == "model" else size * (1 if recurrent else 3))
        opacity = f"{cross}.slice(0, {size}).map((line) => Number(line.getAttribute('stroke-opacity')))"
        first = attentions.cross.weights[0, 0].ravel()
        if view == "model":
            np.testing.assert_allclose(page.evaluate(opacity), first, atol=5.1e-4)
        elif not recurrent:
            before = page.evaluate(f"{cross}.map((line) => line.outerHTML).join()")
            choose = "((box) => { box.value = '2'; box.dispatchEvent(new Event('change')); })"
            page.evaluate(f"{choose}([...document.querySelectorAll('select')].at(-1))")
            page.wait_for(f"{cross}.map((line) => line.outerHTML).join() !== {before!r}")
        assert page.evaluate("[window.hacked, document.querySelectorAll('img').length]") == [None, 0]
        assert (page.errors, page.requests) == ([], [])


def test_a_walk_is_shown(browser: Browser, tmp_path: Path) -> None:
    walk = walk_through(tiny_model(vocab_size=73), subword_tokenizer(), "the cats love", "I love cats", row=1)
    path = tmp_path / "w.html"
    path.write_text(walk_page(walk), encoding="utf-8")
    with browser.open(path) as page:
        assert "softmax" in page.evaluate("document.body.textContent").lower()
        assert (page.errors, page.requests) == ([], [])


def test_what_the_others_would_catch_is_caught(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text("<img src='http://127.0.0.1:9/x.png'><script>console.error('lost'); throw Error('thrown')</script>")
    with browser.open(path) as page:
        page.wait_for("document.readyState === 'complete'")
        assert page.requests == ["http://127.0.0.1:9/x.png"]
        assert any("lost" in error for error in page.errors)
        assert any("thrown" in error for error in page.errors)
