"""The report as a browser shows it, with the network off: drawn, silent, harmless, usable by keys."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from probes import subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import Gold
from hf_seq2seq_attn.training.data import ParallelCorpus
from hf_seq2seq_attn.training.report import make_report, report_page
from hf_seq2seq_attn.training.report_figures import ReportSettings

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; the page is opened in it")

HOSTILE = ["</script><img", "src=x", "onerror=window.hacked=1>", "<svg/onload=alert(1)>"]
HEBREW, CHINESE = ["בְּרֵאשִׁית", "בָּרָא", "אֱלֹהִים"], ["起初", "神", "创造", "天地"]
SOURCES = [HEBREW, HOSTILE, ["the", "cats", "love"], ["I", "love", "cats"] * 3]
TARGETS = [CHINESE, HOSTILE, ["I", "love", "cats"], ["love"]]
READY = "document.documentElement.dataset.ready"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report on texts in several scripts, and on words that would be code."""
    gold = [Gold(frozenset({(0, 0), (1, 0)}), frozenset())] * 4
    settings = ReportSettings(num_beams=1, head_pairs=4, faithfulness_pairs=1, shown=2)
    model = tiny_model(vocab_size=73)
    data = {"name": "".join(HOSTILE), "files": {}}
    corpus = ParallelCorpus(SOURCES, TARGETS, gold)
    report = make_report(model, subword_tokenizer(), corpus, settings, name=HOSTILE[0], data=data, progress=False)
    written = tmp_path_factory.mktemp("report") / "report.html"
    written.write_text(report_page(report), encoding="utf-8")
    return written


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_is_drawn_within_its_width(browser: Browser, path: Path, width: int, dark: bool) -> None:
    with browser.open(path, width=width, dark=dark) as page:
        page.wait_for(READY)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        size = "(({width, height}) => width > 50 && height > 50)(document.querySelector('{}').getBoundingClientRect())"
        for drawn in ("figure svg.heatmap", "svg.chart"):
            assert page.evaluate(size.replace("{}", drawn)), drawn
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(16, 20, 24)" if dark else "rgb(255, 255, 255)"
        )
        ink = "getComputedStyle(document.querySelector('svg.chart text')).fill"
        assert page.evaluate(ink) == ("rgb(163, 173, 188)" if dark else "rgb(93, 104, 121)")
        assert (page.errors, page.requests) == ([], [])


def test_groups_are_chosen_by_keys(browser: Browser, path: Path) -> None:
    shown = "[...document.querySelectorAll('.group')].filter((group) => !group.hidden).map((group) => group.id)"
    with browser.open(path) as page:
        page.wait_for(READY)
        assert page.evaluate(shown) == ["group-0"]
        page.evaluate("document.getElementById('groups').focus()")
        page.press("B")
        page.wait_for("!document.getElementById('group-1').hidden")
        assert page.evaluate(shown) == ["group-1"]
        page.evaluate("picker.value = 'all'; picker.dispatchEvent(new Event('change'))")
        assert page.evaluate(shown) == ["group-0", "group-1", "group-2", "group-3"]
        right_to_left = "[...document.querySelectorAll('dd')].filter((text) => text.textContent.startsWith('ב'))"
        assert page.evaluate(f"{right_to_left}.every((text) => getComputedStyle(text).direction === 'rtl')")
        assert page.evaluate(f"{right_to_left}.length") > 0
        assert (page.errors, page.requests) == ([], [])


def test_heads_are_sorted_by_a_column(browser: Browser, path: Path) -> None:
    table = "document.querySelector('table.dense')"
    column = f"[...{table}.tBodies[0].rows].map((row) => Number(row.cells[2].dataset.value))"
    with browser.open(path) as page:
        page.wait_for(READY)
        before = page.evaluate(column)
        assert before != sorted(before)
        page.evaluate(f"{table}.tHead.rows[0].cells[2].querySelector('button').click()")
        assert page.evaluate(column) == sorted(before)
        page.evaluate(f"{table}.tHead.rows[0].cells[2].querySelector('button').click()")
        assert page.evaluate(column) == sorted(before, reverse=True)
        assert page.evaluate(f"{table}.tHead.rows[0].cells[2].getAttribute('aria-sort')") == "descending"


def test_hostile_words_are_inert(browser: Browser, path: Path) -> None:
    with browser.open(path) as page:
        page.wait_for(READY)
        assert page.evaluate("document.title") == f"Report: {HOSTILE[0]}"
        assert page.evaluate("[window.hacked, document.querySelectorAll('img, script[src], link').length]") == [None, 0]
        assert " ".join(HOSTILE) in page.evaluate("document.body.textContent")
        assert (page.errors, page.requests) == ([], [])


def test_it_is_whole_without_scripts(browser: Browser, path: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.html"
    text = path.read_text(encoding="utf-8")
    bare.write_text(text[: text.rindex("<script>")] + "</body></html>", encoding="utf-8")
    with browser.open(bare) as page:
        assert page.evaluate("[...document.querySelectorAll('.group')].every((group) => !group.hidden)")
        assert page.evaluate("document.querySelector('.picker').hidden")
