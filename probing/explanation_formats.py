"""Write an explanation for the terminal, as Markdown, as LaTeX, or as HTML."""

import io
import re
from collections.abc import Sequence
from html import escape

from .explanation import Formula, Part, Sentence, Share, Step, Table, Token

BAR_WIDTH = 16
_TEX_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}",
}  # fmt: skip
# Han, kana, Hangul and their punctuation.
_EAST_ASIAN = re.compile("[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|&~$])")


def to_text(title: Sentence, steps: Sequence[Step], width: int = 110) -> str:
    """Return the steps as plain text with aligned tables; wide characters count as two columns."""
    from rich.console import Console

    # In a notebook rich would show the text there and leave the file empty.
    console = Console(file=io.StringIO(), width=width, color_system=None, force_jupyter=False)
    print_steps(title, steps, console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def print_steps(title: Sentence, steps: Sequence[Step], console: object) -> None:
    """Print the steps on a rich console."""
    from rich import box
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table as RichTable
    from rich.text import Text

    assert isinstance(console, Console)
    console.print(Text(_plain(title), style="bold"), "")
    for count, step in enumerate(steps, start=1):
        console.print(Text.assemble((f"{count}. {step.title}  ", "bold"), _plain(step.text)))
        if step.table is not None:
            drawn = RichTable(box=box.SIMPLE, pad_edge=False)
            for cell in step.table.header:
                drawn.add_column(Text(_plain(cell)))
            for row in step.table.rows:
                drawn.add_row(*(Text(_plain(cell)) for cell in row))
            console.print(Padding(drawn, (0, 0, 0, 3)))
        if step.drawing:
            console.print("", Padding(Text(step.drawing, no_wrap=True, overflow="ignore"), (0, 0, 0, 3)), sep="\n")
        if step.after:
            console.print(Padding(Text(_plain(step.after)), (0, 0, 0, 3)))
        if step.after or step.table is None:
            console.print()


def to_markdown(title: Sentence, steps: Sequence[Step]) -> str:
    """Return the steps as Markdown with pipe tables."""
    parts = [f"# {_markdown(title)}"]
    for count, step in enumerate(steps, start=1):
        parts.append(f"## {count}. {_markdown((step.title,))}")
        parts.append(_markdown(step.text))
        if step.table is not None:
            rows = [step.table.header, *step.table.rows]
            lines = ["| " + " | ".join(map(_markdown, row)) + " |" for row in rows]
            parts.append("\n".join([lines[0], "|" + " --- |" * len(step.table.header), *lines[1:]]))
        parts += [f"```text\n{step.drawing}\n```"] if step.drawing else []
        parts += [_markdown(step.after)] if step.after else []
    return "\n\n".join(parts) + "\n"


def to_latex(title: Sentence, steps: Sequence[Step]) -> str:
    """Return the steps as a LaTeX document for XeLaTeX or LuaLaTeX, whose fonts can hold any script; Chinese,
    Japanese and Korean text loads the package that sets it."""
    parts = [f"\\section*{{{_latex(title)}}}"]
    for count, step in enumerate(steps, start=1):
        parts.append(f"\\subsection*{{{count}. {_latex((step.title,))}}}")
        parts.append(_latex(step.text))
        parts += [_latex_table(step.table)] if step.table is not None else []
        parts += [f"\\begin{{verbatim}}\n{step.drawing}\n\\end{{verbatim}}"] if step.drawing else []
        parts += [_latex(step.after)] if step.after else []
    body = "\n\n".join(parts)
    fonts = "% Other scripts than Latin, Greek and Cyrillic need a font that has them: \\setmainfont{...}\n"
    if _EAST_ASIAN.search(body):
        fonts += "\\usepackage{iftex}\n"
        fonts += "\\ifluatex\\usepackage{luatexja-fontspec}\\else\\usepackage{xeCJK}\\fi\n"
    head = f"\\documentclass{{article}}\n\\usepackage{{amsmath,booktabs,fontspec}}\n{fonts}\\begin{{document}}"
    return f"{head}\n\n{body}\n\n\\end{{document}}\n"


def to_html_list(steps: Sequence[Step]) -> str:
    """Return the steps as an ordered list, to be put into a page with `STEPS_CSS`."""
    items = []
    for step in steps:
        drawn = "" if step.table is None else _html_table(step.table)
        if step.drawing:
            drawn += f"<pre>{escape(step.drawing)}</pre>"
        items.append(f"<li><b>{escape(step.title)}.</b> {_html(step.text)}{drawn}{_html(step.after)}</li>")
    return '<ol class="walk">' + "".join(items) + "</ol>"


def to_html(title: Sentence, steps: Sequence[Step], lang: str = "en") -> str:
    """Return a whole page that needs nothing from outside."""
    return (
        f'<!doctype html>\n<html lang="{lang}"><head><meta charset="utf-8"><title>{escape(_plain(title))}</title>\n'
        "<style>:root { color-scheme: light dark; } body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; "
        f"margin: 2rem auto; padding: 0 1rem; }} {STEPS_CSS}</style></head>\n"
        f"<body><h1>{_html(title)}</h1>{to_html_list(steps)}</body></html>\n"
    )


STEPS_CSS = """
.walk li { margin: 0 0 1.1rem; padding-left: .3rem; }
.walk table { margin: .5rem 0; font-size: .88rem; border-collapse: collapse; }
.walk td, .walk th { padding: .12rem .9rem .12rem 0; text-align: left; font-weight: 400; }
.walk pre { overflow-x: auto; font-size: .85rem; }
.walk .bar { display: inline-block; height: .7em; margin-right: .5em; vertical-align: baseline; background: #3b76af; }
"""


def _plain(sentence: Sentence) -> str:
    def write(part: Part) -> str:
        if isinstance(part, Share):
            return f"{part:.3f} {'█' * round(part * BAR_WIDTH)}".rstrip()
        return part.plain if isinstance(part, Formula) else str(part)

    return "".join(map(write, sentence))


def _markdown(sentence: Sentence) -> str:
    def write(part: Part) -> str:
        if isinstance(part, Share):
            return f"{part:.3f}"
        if isinstance(part, Formula):
            return _MARKDOWN_SPECIAL.sub(r"\\\1", part.plain)
        return _MARKDOWN_SPECIAL.sub(r"\\\1", _one_line(part)) if isinstance(part, Token) else part

    return "".join(map(write, sentence))


def _latex(sentence: Sentence) -> str:
    def write(part: Part) -> str:
        if isinstance(part, Share):
            return f"{part:.3f}"
        if isinstance(part, Formula):
            return f"${part.tex}$" if part.tex else ""
        return "".join(_TEX_SPECIAL.get(character, character) for character in _one_line(part))

    return "".join(map(write, sentence))


def _html(sentence: Sentence) -> str:
    def write(part: Part) -> str:
        if isinstance(part, Share):
            return f'<span class="bar" style="width:{part * 8:.2f}em"></span>{part:.3f}'
        if isinstance(part, Formula):
            return part.html
        return f"<bdi>{escape(part)}</bdi>" if isinstance(part, Token) else escape(part)

    return "".join(map(write, sentence))


def _latex_table(table: Table) -> str:
    rows = [" & ".join(map(_latex, row)) + r" \\" for row in (table.header, *table.rows)]
    body = "\n".join([r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"])
    return f"\\begin{{tabular}}{{{'l' * len(table.header)}}}\n{body}\n\\end{{tabular}}"


def _html_table(table: Table) -> str:
    def cells(row: Sequence[Sentence], tag: str) -> str:
        return "".join(f"<{tag}>{_html(cell)}</{tag}>" for cell in row)

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    return f"<table><tr>{cells(table.header, 'th')}</tr>{body}</table>"


def _one_line(text: str) -> str:
    return re.sub(r"\s", " ", text)
