"""The HTML view: self-contained, safe for any word, complete."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from view_pages import page_data, weights_of

from hf_seq2seq_attn.probing import HEATMAP_CSS, Gold, SentenceView, heatmap_svg, legend_svg, write_view

EVIL = [
    "</script><script>alert(1)</script>",
    "<b onclick=x>",
    "&amp;",
    "\"'",
    "{{data}}",
    "<!--",
    "",
    "]]>",
    "\u202eabc",
    "\x00",
]
MATRIX = np.random.default_rng(0).dirichlet(np.ones(3), size=2)
VIEW = SentenceView(
    ["a", "b", "c"],
    ["x", "y"],
    MATRIX,
    frozenset({(0, 0), (1, 1), (2, 0)}),
    Gold(frozenset({(0, 0), (2, 1)}), frozenset({(1, 1), (0, 1)})),
)


class Page(HTMLParser):
    """Collect tags and the text of elements with an id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.inside: str | None = None
        self.texts: dict[str, str] = {}
        self.options: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.inside = dict(attrs).get("id") or tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = None

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[self.inside] = self.texts.get(self.inside, "") + data


def page_of(tmp_path: Path, sentences: list[SentenceView], **settings: str) -> tuple[str, Page]:
    path = tmp_path / "view.html"
    write_view(path, sentences, **settings)  # type: ignore[arg-type]
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


def test_marks_of_hit_false_and_missed_links() -> None:
    assert VIEW.hits == {(0, 0), (1, 1)}
    assert VIEW.false_links == {(2, 0)}
    assert VIEW.misses == {(2, 1)}
    svg = heatmap_svg(VIEW)
    shapes = {kind: svg.count(f'class="hm-{kind}"') for kind in ("sure", "possible", "hit", "false", "miss", "link")}
    assert shapes == {"sure": 2, "possible": 2, "hit": 2, "false": 1, "miss": 1, "link": 0}
    elements = {kind: re.search(f'<(\\w+) class="hm-{kind}"([^>]*)', svg) for kind in ("hit", "false", "miss")}
    drawn = [(match[1], re.sub(r"[\d.-]+", "", match[2])) for match in elements.values() if match]
    assert len(set(drawn)) == 3


def test_without_gold_links_are_plain() -> None:
    svg = heatmap_svg(SentenceView(["a"], ["x"], np.ones((1, 1)), frozenset({(0, 0)})))
    assert svg.count('class="hm-link"') == 1
    assert "hm-hit" not in svg


def test_cells_get_darker_with_weight_and_lie_in_their_column() -> None:
    svg = heatmap_svg(SentenceView(["a", "b", "c"], ["x"], np.array([[1.0, 0.0, 0.2]])))
    cells = re.findall(r'class="hm-heat" opacity="([\d.]+)" d="M(\d+) (\d+)h', svg)
    assert [(column, row) for _, column, row in cells] == [("52", "0"), ("0", "0")]
    assert float(cells[1][0]) == 1 > float(cells[0][0]) > 0


def test_the_page_loads_nothing_and_holds_everything(tmp_path: Path) -> None:
    text, page = page_of(tmp_path, [VIEW, SentenceView([], ["only"], np.zeros((1, 0)))], title="A <title>")
    assert "http:" not in text
    assert "https:" not in text
    assert not {name for name, _ in page.attributes} & {"src", "href"}
    assert "url(" not in text
    assert "@import" not in text
    assert not {"link", "img", "iframe"} & set(page.tags)
    assert "default-src 'none'" in text
    first, second = page_data(text)["pairs"]
    assert first["levels"]["words"]["source"] == ["a", "b", "c"]
    np.testing.assert_allclose(weights_of(first["levels"]["words"]), MATRIX, atol=2e-5)
    assert first["levels"]["words"]["maps"][0]["links"] == [0, 0, 1, 1, 2, 0]
    assert first["gold"] == {"sure": [0, 0, 2, 1], "possible": [0, 0, 0, 1, 1, 1, 2, 1]}
    assert (second["levels"]["words"]["source"], second["gold"]) == ([], None)
    assert page.texts["title"] == page.texts["h1"] == "A <title>"
    assert "prefers-color-scheme: dark" in text
    assert HEATMAP_CSS in text
    assert "Of this page nothing had to go." in text
    assert page.tags.count("script") == 2


def test_any_word_is_harmless(tmp_path: Path) -> None:
    weights = np.full((len(EVIL), len(EVIL)), 1 / len(EVIL))
    evil = SentenceView(EVIL, EVIL, weights)
    harmless = SentenceView(["w"] * len(EVIL), ["w"] * len(EVIL), weights)
    text, page = page_of(tmp_path, [evil], title=EVIL[0], note=EVIL[1])
    assert page.tags == page_of(tmp_path, [harmless])[1].tags
    assert "onclick" not in {name for name, _ in page.attributes}
    source = page_data(text)["pairs"][0]["levels"]["words"]["source"]
    assert source[:8] == EVIL[:8]
    assert source[8:] == ["\ufffdabc", "\ufffd"]
    assert "\u202e" not in text
    assert "\x00" not in text


def test_the_same_pairs_give_the_same_bytes(tmp_path: Path) -> None:
    assert page_of(tmp_path, [VIEW])[0] == page_of(tmp_path, [VIEW])[0]


def test_a_page_keeps_within_its_limit_and_says_what_went(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    words = [[f"{side}{n}" for n in range(30)] for side in "st"]
    pairs = (SentenceView(*words, rng.dirichlet(np.ones(30), size=30)) for _ in range(60))
    path = tmp_path / "small.html"
    reduced = write_view(path, pairs, limit=90_000)
    assert 60_000 < path.stat().st_size <= 90_000
    text = path.read_text()
    kept = len(page_data(text)["pairs"])
    assert reduced.endswith(f"the pairs after the first {kept} are left out")
    assert f"To stay under 0.1 MB, {reduced}." in text
    assert 5 < kept < 60
    # The rest was never asked for.
    assert len(list(pairs)) == 60 - kept - 1


def test_labels_are_whole_up_to_a_length_and_isolated() -> None:
    svg = heatmap_svg(SentenceView(["w" * 40, "שָׁלוֹם"], ["日本語"], np.array([[0.5, 0.5]])))
    assert f"\u2068{'w' * 23}…\u2069" in svg
    assert "\u2068שָׁלוֹם\u2069" in svg
    assert "\u2068日本語\u2069" in svg


def test_an_empty_view_is_still_a_page(tmp_path: Path) -> None:
    text, _ = page_of(tmp_path, [])
    assert page_data(text)["pairs"] == []


def test_links_outside_the_sentence_are_refused() -> None:
    with pytest.raises(ValueError, match="link 3-0 leaves its sentence of 1 source and 1 target words"):
        SentenceView(["a"], ["x"], np.ones((1, 1)), frozenset({(3, 0)}))
    with pytest.raises(ValueError, match=r"matrix has shape \(1, 1\)"):
        SentenceView(["a", "b"], ["x"], np.ones((1, 1)))


def test_legend_draws_each_mark() -> None:
    drawn = {kind: legend_svg(kind) for kind in ("heat", "sure", "possible", "hit", "link", "false", "miss")}
    assert len(set(drawn.values())) == len(drawn)
    assert all(svg.startswith("<svg") and f"hm-{kind}" in svg for kind, svg in drawn.items())
