"""An explanation says the same in every format, and no token of a text becomes markup."""

import re
from html.parser import HTMLParser

import pytest

from hf_seq2seq_attn.probing import to_html, to_latex, to_markdown, to_text
from hf_seq2seq_attn.probing.explanation import Share, Step, Token, fill, formula, number, table, vector

HOSTILE = "<script>alert(1)</script> | $x_1$ & 50% \\end{document} `code` **b** #\n# h"
KEY = formula("kᵢ", "k_i", "k<sub>i</sub>")


def steps(token: str = "猫") -> list[Step]:
    text = fill("Each {key} of {token} has {count} numbers.", key=KEY, token=Token(token), count="7")
    rows = [(Token(token), vector([0.5, -1.25]), Share(0.75)), (Token("שלום"), vector(range(7)), Share(0.25))]
    return [
        Step("Encode", text, table(["", KEY, "weight"], rows), ("After it.",)),
        Step("Flow", (), drawing="a -> b\n  c"),
    ]


def test_text_lines_up_and_folds_long_vectors() -> None:
    text = to_text(("A walk",), steps())
    assert text.startswith("A walk\n1. Encode  Each kᵢ of 猫 has 7 numbers.")
    assert "[0.000, 1.000, 2.000, 3.000, … (7)]" in text
    assert "0.750 ████████████" in text and "0.250 ████" in text
    assert "   a -> b\n     c" in text and "After it." in text


def test_markdown_has_a_table_of_equal_columns() -> None:
    text = to_markdown(("A walk",), steps("a|b"))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[1] == "| --- | --- | --- |" and len(rows) == 4
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}
    assert "```text\na -> b\n  c\n```" in text


def test_latex_sets_formulas_as_formulas() -> None:
    text = to_latex(("A walk",), steps("x_1 & 50%"))
    assert "Each $k_i$ of x\\_1 \\& 50\\% has 7 numbers." in text
    assert "x\\_1 \\& 50\\% & $[0.500, -1.250]$ & 0.750 \\\\" in text
    assert text.count("\\begin{tabular}{lll}") == text.count("\\end{tabular}") == 1
    assert "\\begin{verbatim}\na -> b\n  c\n\\end{verbatim}" in text


class Tags(HTMLParser):
    """Collect the tags that a browser would see, and check that they nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_nests_and_needs_nothing_from_outside() -> None:
    page = to_html(("A <walk>",), steps(), lang="zh")
    tags = Tags()
    tags.feed(page)
    assert not tags.open and "http" not in page and '<html lang="zh">' in page
    assert "k<sub>i</sub>" in page and "&minus;1.250" in page and "<pre>a -&gt; b\n  c</pre>" in page


def test_tokens_never_become_markup() -> None:
    page = to_html((Token(HOSTILE),), steps(HOSTILE))
    tags = Tags()
    tags.feed(page)
    assert "script" not in tags.seen and "&lt;script&gt;" in page
    latex = to_latex((Token(HOSTILE),), steps(HOSTILE))
    assert latex.count("\\end{document}") == 1 and latex.rstrip().endswith("\\end{document}")
    assert "50%" not in latex.replace("50\\%", "")
    markdown = to_markdown((Token(HOSTILE),), steps(HOSTILE))
    headings = [line for line in markdown.splitlines() if line.startswith("#")]
    assert headings[0].startswith("# \\<script") and headings[1:] == ["## 1. Encode", "## 2. Flow"]
    assert "<script>" not in markdown.replace("\\<", "") and "`code`" not in markdown.replace("\\`", "")


@pytest.mark.parametrize(("value", "plain"), [(1.23456, "1.235"), (-0.5, "-0.500"), (123456.0, "1.23e+05")])
def test_numbers(value: float, plain: str) -> None:
    assert number(value).plain == plain


def test_a_template_without_its_part_is_refused() -> None:
    with pytest.raises(KeyError, match="state"):
        fill("s = {state}", query="q")


def test_latex_loads_what_sets_chinese_only_where_there_is_some() -> None:
    assert "xeCJK" not in to_latex(("λόγος",), steps("שלום"))
    loaded = to_latex(("A walk",), steps("喜"))
    assert loaded.index("\\else\\usepackage{xeCJK}\\fi\n\\begin{document}") < loaded.index("喜")
