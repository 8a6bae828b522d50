"""Parts of pages: whatever text comes in is only ever shown."""

import re

import numpy as np

from hf_seq2seq_attn.probing import Gold, SentenceView
from hf_seq2seq_attn.training.page_parts import (
    GOLD_LEGEND,
    LINKS_SHOWN,
    Number,
    definitions,
    legend,
    link_list,
    page,
    table,
    text,
)

HOSTILE = "</script><img src=x onerror=alert(1)>"


def test_text_is_inert_and_cut() -> None:
    assert text(HOSTILE) == "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;"
    assert "\u202e" not in text("a\u202eb\x00")
    assert text("abcdef", 3) == "abc… (3 of 6 characters)"
    assert text("a" * 2345).endswith("a… (2,000 of 2,345 characters)") and text("a" * 2000) == "a" * 2000


def test_a_table_holds_numbers_to_sort_by() -> None:
    made = table(["a", HOSTILE], [[Number("1.5", 1.5, 0.5), HOSTILE], [Number("2", 2), "b"]], sortable=True, marked=0)
    assert '<table class="sortable">' in made
    assert '<td data-value="1.5" class="shade" style="--share:25%">1.5</td>' in made
    assert made.count("<tr class=ours>") == 1
    assert "<img" not in made
    assert 'tabindex="0"' in made


def test_a_page_forbids_itself_the_network() -> None:
    made = page(HOSTILE, ["<p>body</p>"], ".own { color: red; }", script=True)
    assert "default-src 'none'" in made
    assert "<img" not in made and made.count("<script>") == 1
    assert not re.search(r"(src|href)=[\"']?http", made)
    assert "<script" not in page("t", [])


def test_definitions_take_the_direction_of_their_script() -> None:
    assert definitions([("source", "שלום")]) == '<dl class="facts"><dt>source</dt><dd dir="auto">שלום</dd></dl>'


def test_links_are_told_apart_by_words() -> None:
    gold = Gold(frozenset({(0, 0), (1, 1)}), frozenset())
    view = SentenceView(["a", "b"], [HOSTILE, "y"], np.zeros((2, 2)), frozenset({(0, 0), (0, 1)}), gold)
    items = re.findall(r"<li>(.*?)</li>", link_list(view))
    assert [item.partition("<bdi>")[0] for item in items] == ["", "false: ", "missed: "]
    assert "<img" not in link_list(view)
    assert "No links" in link_list(SentenceView(["a"], ["x"], np.zeros((1, 1))))


def test_a_long_list_of_links_ends() -> None:
    size = LINKS_SHOWN + 7
    links = frozenset((n, 0) for n in range(size))
    made = link_list(SentenceView([f"s{n}" for n in range(size)], ["t"], np.zeros((1, size)), links))
    assert made.count("<bdi>t</bdi>") == LINKS_SHOWN and "and 7 more" in made


def test_every_mark_of_a_legend_is_named() -> None:
    assert legend(GOLD_LEGEND).count("<svg") == len(GOLD_LEGEND)
