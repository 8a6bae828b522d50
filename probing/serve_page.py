"""The demo page: a Gradio app around a `ServedModel`. Nothing on it is loaded from elsewhere."""

import logging
import tempfile
from collections.abc import Callable, Sequence
from functools import wraps
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError

from .attention_maps import WEIGHTS
from .extraction import ROWS
from .formats import write_atomically
from .heatmap_svg import HEATMAP_CSS
from .link_lines import LINK_LINES_CSS
from .serve import (
    ALL,
    AUTO,
    BEAM_LIMIT,
    FILE_LIMIT,
    LEVELS,
    LINE_LIMIT,
    LINK_RULES,
    MEAN,
    SENTENCE_LIMIT,
    ReadingOptions,
    ServedModel,
    checked_sentence,
    pair_pictures,
)
from .serve_phrases import PAGE_PHRASES
from .walk_steps import checked_language
from .walkthrough import WALK_CSS
from .words import SUBWORDS

logger = logging.getLogger(__name__)

TABLE_ROWS = 50
_DAY = 24 * 60 * 60
# System fonts, and the colours of the page's own light or dark mode, which need not be the system's.
_FONTS = ["system-ui", "sans-serif"]
_CSS = f"""
{HEATMAP_CSS}{LINK_LINES_CSS}{WALK_CSS}
.gradio-container .heatmap {{ --hm-ink: var(--body-text-color); --hm-soft: var(--body-text-color-subdued);
  --hm-line: var(--border-color-primary); --hm-ground: var(--background-fill-primary); --hm-heat: #3049c9; }}
.dark .gradio-container .heatmap, .gradio-container.dark .heatmap {{ --hm-heat: #8aa2ff; }}
.pictures, .walk, .files-box {{ overflow-x: auto; }}
.files td, .files th {{ padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top; }}
.pictures {{ display: flex; flex-wrap: wrap; gap: 1.5rem 3rem; align-items: flex-start; }}
.pictures svg {{ max-width: none; flex: none; }}
ol.walk {{ list-style: decimal; padding-left: 1.8rem; }}
.walk-title {{ font-size: 1.15rem; font-weight: 600; margin: .6rem 0; }}
.note {{ opacity: .75; margin: .4rem 0; }}
"""


def make_page(served: ServedModel, lang: str = "en") -> gr.Blocks:
    """Return the page of a model, in English (`en`) or Chinese (`zh`).

    All that works with the model waits in one line: two passes at once would share the cores and take the memory of
    both, and a fast tokenizer refuses to be set by two threads at a time. What belongs to one visitor is in the
    visitor's own `gr.State`.

    Raises:
        UnusableError: another language.
    """
    say = PAGE_PHRASES[checked_language(lang)]
    answers = _Answers(served, say, lang)
    title = say["title"].format(model=served.name)
    limits = {"characters": f"{SENTENCE_LIMIT:,}", "lines": f"{LINE_LIMIT:,}", "bytes": f"{FILE_LIMIT:,}"}
    with gr.Blocks(title=title, analytics_enabled=False, delete_cache=(_DAY, _DAY)) as page:
        gr.HTML(f"<h1><bdi>{escape(title)}</bdi></h1><p class='note'>{escape(say['limits'].format(**limits))}</p>")
        with gr.Row():
            with gr.Column(scale=1, min_width=280):
                choices = _choice_fields(served, say)
            with gr.Column(scale=3), gr.Tabs():
                with gr.Tab(say["one"]):
                    _sentence_tab(answers, choices)
                with gr.Tab(say["files"]):
                    _files_tab(answers, choices)
    return page


def page_of(name: str, tokenizer: str | None = None, *, lang: str = "en", **languages: Any) -> gr.Blocks:
    """Load a model and return its page; the arguments are those of `ServedModel.load` and `make_page`."""
    checked_language(lang)
    return make_page(ServedModel.load(name, tokenizer, **languages), lang)


def launch(page: gr.Blocks, host: str | None = None, port: int | None = None, *, open_browser: bool = False) -> None:
    """Serve a page until the process is told to end; its address is printed to standard output.

    Args:
        host: None = the environment's GRADIO_SERVER_NAME, which Spaces set, else this machine alone.
        port: None = the environment's GRADIO_SERVER_PORT, else the first that is free from 7860.

    Raises:
        InputError: the port is taken, or the host is none of this machine's.
    """
    try:
        _, address, _ = page.launch(
            server_name=host,
            server_port=port,
            inbrowser=open_browser,
            prevent_thread_lock=True,
            quiet=True,
            show_error=False,
            ssr_mode=False,
            share=False,
            footer_links=[],
            # A little more than the page takes, so that the page itself can say in words what is too large.
            max_file_size=4 * FILE_LIMIT,
            theme=gr.themes.Default(font=_FONTS, font_mono=["ui-monospace", "monospace"]),
            css=_CSS,
        )
    except OSError as error:
        raise InputError(
            f"serve: cannot listen on {host or 'this machine'}, port {port or 'from 7860'} ({error}); "
            "name another --port or --host"
        ) from error
    print(address, flush=True)
    page.block_thread()


def _choice_fields(served: ServedModel, say: dict[str, str]) -> list[Any]:
    """Return the fields of `ReadingOptions`, in its order."""
    auto = (say["auto"], AUTO)
    gr.HTML(f"<b>{escape(say['choices'])}</b><p class='note'>{escape(say['choices.info'])}</p>")
    numbers = [[str(number) for number in range(count)] for count in (served.layers, served.heads)]
    layers = [auto, *([(say["all"], ALL)] if served.layers > 1 else []), *zip(numbers[0], numbers[0], strict=True)]
    heads = [auto, *([(say["mean"], MEAN)] if served.heads > 1 else []), *zip(numbers[1], numbers[1], strict=True)]
    rest = {"rows": ROWS, "weights": WEIGHTS, "links": LINK_RULES, "subwords": SUBWORDS}
    fields: dict[str, Sequence[tuple[str, str]]] = {"layer": layers, "head": heads}
    fields |= {name: [auto, *((value, value) for value in values)] for name, values in rest.items()}
    return [
        gr.Dropdown(list(values), value=AUTO, label=say[name], elem_id=name, allow_custom_value=name == "links")
        for name, values in fields.items()
    ]


def _sentence_tab(answers: "_Answers", choices: list[Any]) -> None:
    say = answers.say
    source = gr.Textbox(label=say["source"], elem_id="source", max_lines=4, max_length=SENTENCE_LIMIT, autofocus=True)
    own = gr.Textbox(label=say["own"], info=say["own.info"], elem_id="own", max_lines=4, max_length=SENTENCE_LIMIT)
    with gr.Row():
        beams = gr.Slider(1, BEAM_LIMIT, value=4, step=1, label=say["beams"], elem_id="beams")
        levels = [(say[f"level.{level}"], level) for level in LEVELS]
        level = gr.Radio(levels, value=LEVELS[0], label=say["level"], elem_id="level")
    go = gr.Button(say["go"], variant="primary", elem_id="go")
    target = gr.Textbox(label=say["target"], elem_id="target", interactive=False, max_lines=4)
    cut = gr.HTML(elem_id="cut", visible=False, **_PLAIN)
    pictures = gr.HTML(elem_id="pictures", **_PLAIN)
    pair = gr.State(None)
    with gr.Accordion(say["walk"], open=False, elem_id="walk-box"):
        step = gr.Dropdown([], label=say["step"], elem_id="step")
        walk = gr.HTML(elem_id="walk", **_PLAIN)
    # In two, so that a translation that cannot be read, as one of too many tokens, is shown all the same.
    translated = gr.on(
        [go.click, source.submit, own.submit],
        _in_words(answers.translate, say),
        [source, own, beams],
        [target, cut, pair, pictures, step, walk],
        api_name="translate",
        **_ONE_AT_A_TIME,
    )
    translated.success(
        _in_words(answers.show, say),
        [pair, level, *choices],
        [pictures, step, walk],
        api_name="show",
        **_ONE_AT_A_TIME,
    )
    # Of choices that follow one another quickly the last is what counts.
    gr.on(
        [field.input for field in (level, *choices)],
        _in_words(answers.read, say),
        [pair, level, step, *choices],
        [pictures, walk],
        api_name="read",
        trigger_mode="always_last",
        **_ONE_AT_A_TIME,
    )
    step.input(
        _in_words(answers.explain, say),
        [pair, step, *choices],
        walk,
        api_name="explain",
        trigger_mode="always_last",
        **_ONE_AT_A_TIME,
    )


def _files_tab(answers: "_Answers", choices: list[Any]) -> None:
    say = answers.say
    with gr.Row():
        source = gr.File(label=say["file.source"], elem_id="source-file")
        target = gr.File(label=say["file.target"], elem_id="target-file")
    go = gr.Button(say["file.go"], variant="primary", elem_id="align")
    download = gr.File(label=say["file.download"], interactive=False, visible=False, elem_id="download")
    table = gr.HTML(elem_id="table", **_PLAIN)
    go.click(
        _in_words(answers.align_files, say),
        [source, target, *choices],
        [download, table],
        api_name="align_files",
        **_ONE_AT_A_TIME,
    )


class _Answers:
    """What the page answers, as values of its fields; it keeps nothing between two calls."""

    def __init__(self, served: ServedModel, say: dict[str, str], lang: str) -> None:
        self.served, self.say, self.lang = served, say, lang

    def translate(self, text: str, own_target: str, beams: float) -> tuple[Any, ...]:
        """Return target, remark and the visitor's pair; pictures, steps and walk of another pair are emptied."""
        source, own, finished = checked_sentence("source", text), own_target.strip(), True
        if own:
            target = checked_sentence("target", own)
        else:
            found = self.served.translate(source, int(beams))
            target, finished = found.text, found.finished
        if not target:
            raise UnusableError(self.say["empty"])
        remark = gr.HTML(f"<p role='note'>{escape(self.say['cut'])}</p>", visible=not finished)
        return target, remark, (source, target), "", gr.Dropdown([], value=None), ""

    def show(self, pair: tuple[str, str] | None, level: str, *chosen: str) -> tuple[Any, ...]:
        """Return pictures, steps and the walk through the first step of the visitor's pair."""
        if pair is None:
            raise UnusableError(self.say["first"])
        options = ReadingOptions(*chosen)
        pictures = self._pictures(pair, level, options)
        tokens = enumerate(self.served.tokens(*pair))
        steps = [(self.say["step.option"].format(step=number, token=token), number) for number, token in tokens]
        return pictures, gr.Dropdown(steps, value=0), self._walk(pair, 0, options)

    def read(self, pair: tuple[str, str] | None, level: str, step: int | None, *chosen: str) -> tuple[str, str]:
        """Return pictures and walk of the visitor's pair, nothing before there is one."""
        if pair is None:
            return "", ""
        options = ReadingOptions(*chosen)
        return self._pictures(pair, level, options), self._walk(pair, step or 0, options)

    def explain(self, pair: tuple[str, str] | None, step: int | None, *chosen: str) -> str:
        """Return the walk through another step of the visitor's pair."""
        if pair is None:
            raise UnusableError(self.say["first"])
        return self._walk(pair, step or 0, ReadingOptions(*chosen))

    def align_files(self, source: str | None, target: str | None, *chosen: str) -> tuple[Any, str]:
        """Return the links of two files as a file, and as a table what there is room for."""
        if source is None or target is None:
            raise InputError(self.say["file.missing"])
        found = self.served.align_files(source, target, ReadingOptions(*chosen))
        # Beside the upload, which lies in Gradio's own folder, so that it is removed with the page's other files.
        links = Path(tempfile.mkdtemp(dir=Path(source).parent)) / f"{Path(source).stem}.pharaoh"
        write_atomically(links, [found.pharaoh()])
        shown = min(TABLE_ROWS, len(found.links))
        said = self.say["file.said"].format(pairs=len(found.links), links=sum(map(len, found.links)), shown=shown)
        header = [self.say[f"file.{name}"] for name in ("line", "source.column", "target.column", "links.column")]
        table = f"<p>{escape(said)}</p><div class='files-box'>{found.table(header, TABLE_ROWS)}</div>"
        return gr.File(value=str(links), visible=True), table

    def _pictures(self, pair: tuple[str, str], level: str, options: ReadingOptions) -> str:
        view, note = self.served.read_pair(*pair, options, self.lang)
        return f"<p class='note'>{escape(note)}</p>{pair_pictures(view, level)}"

    def _walk(self, pair: tuple[str, str], step: int, options: ReadingOptions) -> str:
        # A model whose alignment can be read need not be one that can be walked through.
        try:
            return self.served.walk(*pair, step, options, self.lang)
        except UnusableError as error:
            return f"<p role='note'>{escape(str(error))}</p>"


# Pictures and tables bring their own style.
_PLAIN: dict[str, Any] = {"apply_default_css": False, "padding": False}
_ONE_AT_A_TIME: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "model"}


def _in_words(function: Callable[..., Any], say: dict[str, str]) -> Callable[..., Any]:
    """Return the function with what it refuses said on the page, and what breaks in it told to the log alone."""

    @wraps(function)
    def spoken(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (InputError, UnusableError) as error:
            said = str(error)
        except Exception:
            logger.exception("the demo page's %s failed", function.__name__)
            said = say["fault"]
        # Gradio shows a message as HTML.
        raise gr.Error(escape(said), duration=None, print_exception=False)

    return spoken
