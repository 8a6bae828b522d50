"""`serve` as a visitor meets it: a server here, a browser without a network, and several visitors at once."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser, Page
from probes import foreign_model, subword_tokenizer

from hf_seq2seq_attn.probing import ReadingOptions, ServedModel, align, pair_pictures
from hf_seq2seq_attn.text_files import InputError

pytest.importorskip("gradio")

# Tells every address but this machine's that the server looks up or calls.
SERVER = """
import sys
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        place = arguments[1] if event == "socket.connect" else arguments[0]
        host = place[0] if isinstance(place, tuple) else place
        here = host in (None, "", "127.0.0.1", "localhost", "::1", b"127.0.0.1", b"localhost")
        print("CALLED", "here" if here else f"ELSEWHERE {host}", file=sys.stderr, flush=True)
sys.addaudithook(watch)
from hf_seq2seq_attn.cli import main
main()
"""
SENTENCE, OWN = "the cats love today.", "I love cats"
HOSTILE = "<img src=x onerror=hacked=1>", "{{value}} ${window.hacked=1} </p>"
AUTO = ["auto"] * 6
LONG = "the cats " * 29 + "the cats"


class Server:
    """A running page: its address, its model in this process, and what it wrote to stderr."""

    def __init__(self, folder: Path) -> None:
        foreign_model("marian").save_pretrained(folder / "tiny")
        subword_tokenizer().save_pretrained(folder / "tiny")
        self.served = ServedModel.load(str(folder / "tiny"))
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVER, "serve", str(folder / "tiny")],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), self.log.read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("serve"))
    yield running
    running.process.terminate()
    running.process.wait(20)
    words = running.log.read_text()
    assert "CALLED here" in words, "the watch does not see what the server calls"
    assert "ELSEWHERE" not in words
    assert "Traceback" not in words


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed; the page is opened in it")
    with Browser() as running:
        yield running


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page of its own for a test, after which nothing must have gone wrong on it or left this machine."""
    with browser.open(server.address) as opened:
        for part in ("#source textarea", "#own textarea", "#subwords input", "#go", "#walk-box button", "[role=tab]"):
            opened.wait_for(f"document.querySelector({part!r})")
        yield opened
        # Gradio's client warns of its own when it closes a stream.
        assert [said for said in opened.errors if "'Method not implemented.'" not in said] == []
        assert [url for url in opened.requests if not url.startswith(server.address)] == []
        assert len(opened.requests) > 10


def click(page: Page, selector: str) -> None:
    page.evaluate(f"document.querySelector({selector!r}).click()")


def translate(page: Page, source: str, own: str) -> None:
    page.type("#source textarea", source)
    page.type("#own textarea", own)
    click(page, "#go")
    page.wait_for(f"document.querySelector('#target textarea').value === {own!r}")
    page.wait_for("document.querySelector('#pictures .pictures svg')")


def choose(page: Page, field: str, option: str) -> None:
    """Choose an option of a dropdown by what it says."""
    click(page, f"#{field} input")
    page.evaluate(f"document.querySelector('#{field} input').focus()")
    found = (
        f"[...document.querySelectorAll('[role=option]')].find((each) => each.textContent.trim().endsWith({option!r}))"
    )
    page.wait_for(found)
    page.evaluate(f"{found}.dispatchEvent(new MouseEvent('mousedown', {{ bubbles: true }}))")


def map_of(page: Page) -> str:
    return str(page.evaluate("document.querySelector('#pictures .pictures').innerHTML"))


def inner(page: Page, html: str) -> str:
    """Return what a browser makes of the pictures."""
    parse = "(html) => Object.assign(document.createElement('div'), { innerHTML: html }).firstChild.innerHTML"
    return str(page.evaluate(f"({parse})({html!r})"))


def error(page: Page) -> str:
    """Return what the page says of an error, and close it."""
    toast = "document.querySelector('[data-testid=toast-body]')"
    page.wait_for(toast)
    said = str(page.evaluate(f"{toast}.innerText"))
    page.evaluate("document.querySelector('[data-testid=toast-close]').click()")
    page.wait_for(f"!{toast}")
    return said


def test_a_sentence_its_map_and_another_head(page: Page, server: Server) -> None:
    page.type("#source textarea", SENTENCE)
    click(page, "#go")
    translation = server.served.translate(SENTENCE)
    page.wait_for(f"document.querySelector('#target textarea').value === {translation.text!r}")
    page.wait_for("document.querySelector('#pictures .pictures svg')")
    assert bool(page.evaluate("document.querySelector('#cut')?.innerText")) == (not translation.finished)
    view, _ = server.served.read_pair(SENTENCE, translation.text, ReadingOptions())
    assert map_of(page) == inner(page, pair_pictures(view, "words"))
    translate(page, SENTENCE, OWN)
    before = map_of(page)
    choose(page, "layer", "1")
    page.wait_for("document.querySelector('#pictures').innerText.includes('layer 1, heads mean')")
    choose(page, "head", "2")
    page.wait_for("document.querySelector('#pictures').innerText.includes('layer 1, heads 2')")
    view, _ = server.served.read_pair(SENTENCE, OWN, ReadingOptions("1", "2"))
    assert map_of(page) == inner(page, pair_pictures(view, "words")) != before
    assert page.evaluate("[...document.querySelectorAll('#pictures .link-lines text')].length") == 4 + 3
    click(page, "#level input[value=tokens]")
    page.wait_for("document.querySelectorAll('#pictures .hm-row').length > 3")
    assert map_of(page) == inner(page, pair_pictures(view, "tokens"))


def test_the_walk_through_of_another_step(page: Page, server: Server) -> None:
    translate(page, SENTENCE, OWN)
    click(page, "#walk-box button")
    choose(page, "head", "2")
    choose(page, "step", "▁love")
    title = "document.querySelector('#walk .walk-title')"
    page.wait_for(f"{title} && {title}.textContent === 'What the decoder does after I'")
    assert "head 2 of 3, decoder layer 2" in page.evaluate("document.querySelector('#walk').innerText")
    rows = page.evaluate("document.querySelectorAll('#walk table')[0].rows.length")
    assert rows == 1 + len(server.served.tokenizer(SENTENCE)["input_ids"])


def test_what_cannot_be_done_is_said_in_words(page: Page) -> None:
    for text, words in (
        (" ", "the source is empty; type a sentence"),
        ("the cats " * 30, "sentence 1 has 91 tokens, the model 40 positions; split it"),
    ):
        page.type("#source textarea", text)
        click(page, "#go")
        assert words in error(page)
    # A target that the model has no positions for is shown, but nothing of the pair before.
    page.type("#source textarea", SENTENCE)
    page.type("#own textarea", LONG)
    click(page, "#go")
    assert "target sentence 1: 91 tokens are more than" in error(page)
    assert page.evaluate("document.querySelector('#target textarea').value") == LONG
    assert not page.evaluate("document.querySelector('#pictures .pictures, #walk table')")
    translate(page, SENTENCE, OWN)
    page.type("#links input", "threshold:<b>0</b>")
    page.press("Enter")
    assert "links is 'threshold:<b>0</b>'; allowed are argmax; mutual" in error(page)


def test_hostile_text_is_text(page: Page) -> None:
    translate(page, *HOSTILE)
    for place, text in (("column", HOSTILE[0]), ("row", HOSTILE[1])):
        words = page.evaluate(
            f"[...document.querySelectorAll('#pictures .hm-{place}')].map((word) => word.textContent)"
        )
        assert [word.strip("\u2068\u2069") for word in words] == text.split()
    assert not page.evaluate("'hacked' in window || document.querySelector('#pictures img, #walk img')")


def test_two_files_and_their_links(page: Page, server: Server, tmp_path: Path) -> None:
    sources, targets = ["the cats love", "", "I love cats today."], ["love cats", "day", HOSTILE[1]]
    for side, lines in (("source", sources), ("target", targets[:2])):
        (tmp_path / f"{side}.txt").write_text("".join(line + "\n" for line in lines))
    page.evaluate("[...document.querySelectorAll('[role=tab]')].find((tab) => tab.innerText === 'Two files').click()")
    page.wait_for("document.querySelector('#source-file input[type=file]')")
    choose(page, "layer", "0")
    choose(page, "head", "2")
    click(page, "#align")
    assert "two files are needed" in error(page)
    for side in ("source", "target"):
        page.choose_file(f"#{side}-file input[type=file]", tmp_path / f"{side}.txt")
        page.wait_for(f"document.querySelector('#{side}-file').innerText.includes('{side}')")
    click(page, "#align")
    assert "target.txt:3: 2 lines, but source.txt has 3; line N of one file must belong" in error(page)
    (tmp_path / "target.txt").write_text("".join(line + "\n" for line in targets))
    click(page, "#target-file button[aria-label='Clear']")
    page.wait_for("document.querySelector('#target-file input[type=file]')")
    page.choose_file("#target-file input[type=file]", tmp_path / "target.txt")
    page.wait_for("document.querySelector('#target-file').innerText.includes('target')")
    click(page, "#align")
    page.wait_for("document.querySelector('#table table')")
    found = align(server.served.model, server.served.tokenizer, sources, targets, layer=0, heads=[2])
    pharaoh = [" ".join(f"{i}-{j}" for i, j in sorted(links)) for links in found]
    shown = page.evaluate(
        "[...document.querySelectorAll('#table tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    assert shown == [
        [str(n), s, t, links] for n, (s, t, links) in enumerate(zip(sources, targets, pharaoh, strict=True), 1)
    ]
    link = "document.querySelector('a[href$=\"/source.pharaoh\"]')"
    page.wait_for(link)
    assert page.evaluate(f"fetch({link}.href).then((answer) => answer.text())") == "".join(
        line + "\n" for line in pharaoh
    )


def test_visitors_do_not_disturb_one_another(server: Server) -> None:
    from gradio_client import Client

    texts = [(SENTENCE, OWN), ("I love", "the day"), ("understand this", "love today. cats"), ("cats", "I")]
    heads = ["0", "1", "2", "auto"]

    def visit(number: int) -> list[Any]:
        client = Client(server.address, verbose=False)
        (source, own), head = texts[number], heads[number]
        choices = ["2", head, *AUTO[2:]]
        first = client.predict(source, own, 1, api_name="/translate")
        # The pair is the visitor's own, kept on the server between two calls.
        shown, _, walk = client.predict("words", *choices, api_name="/show")
        return [first, (shown, walk), *(client.predict("words", 0, *choices, api_name="/read") for _ in range(3))]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(visit, range(4)))
    for (source, own), head, (first, *again) in zip(texts, heads, found, strict=True):
        view, note = server.served.read_pair(source, own, ReadingOptions("2", head))
        assert first[0] == own
        for pictures, _ in again:
            assert pictures.endswith(pair_pictures(view, "words"))
            assert note in pictures


def test_a_port_that_is_taken_is_said_in_words(server: Server) -> None:
    import gradio

    from hf_seq2seq_attn.probing.serve_page import launch

    port = int(server.address.rstrip("/").rpartition(":")[2])
    with gradio.Blocks(analytics_enabled=False) as page, pytest.raises(InputError, match=f"cannot listen.* {port} "):
        launch(page, port=port)
