"""`train-aligner` with the real network, on a generated pair of languages whose links are known."""

import dataclasses
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hf_seq2seq_attn.probing import Gold, Links, read_link_file, score_links, write_links
from hf_seq2seq_attn.training.aligner_corpus import AlignerFiles, aligner_data, read_gold_links, read_text
from hf_seq2seq_attn.training.aligner_fits import fit_seeds
from hf_seq2seq_attn.training.aligner_inference import soft_links
from hf_seq2seq_attn.training.aligner_settings import parse_settings
from hf_seq2seq_attn.training.train_aligner import AlignerRequest, train_aligner

STEMS = [a + b for a in ("ka", "lo", "mi", "tu", "re", "so") for b in ("dan", "pir", "gul", "best")]
ENDINGS = {"nom": ("", ""), "acc": ("un", "et"), "dat": ("il", "am")}
SMALL = ("width=32", "layers=1", "epochs=8", "gold_share=0.6")


def _pair(draw: random.Random) -> tuple[list[str], list[str], Links]:
    """Return words and links: endings on both sides, neighbours swapped, an article without partner, a lost particle.

    The annotators link a noun's article `ze` to the noun, which no statistical aligner can know.
    """
    nouns = [(stem, draw.choice(list(ENDINGS))) for stem in draw.sample(STEMS, draw.randint(2, 4))]
    order = list(range(len(nouns)))
    if draw.random() < 0.5:
        order[0], order[1] = order[1], order[0]
    source: list[str] = []
    places: dict[int, int] = {}
    for number, (stem, case) in enumerate(nouns):
        places[number] = len(source)
        source.append(stem + ENDINGS[case][0])
        if draw.random() < 0.3:
            source.append("eh")
    target: list[str] = []
    links: set[tuple[int, int]] = set()
    for number in order:
        stem, case = nouns[number]
        if draw.random() < 0.7:
            links.add((places[number], len(target)))
            target.append("ze")
        links.add((places[number], len(target)))
        target.append("v" + stem[::-1] + ENDINGS[case][1])
    return source, target, frozenset(links)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 260 pairs, the last 60 of which are scored; gold20 has the links of 20 others, all those of every one."""
    folder = tmp_path_factory.mktemp("corpus")
    draw = random.Random(6)
    pairs = [_pair(draw) for _ in range(260)]
    for name, side in (("source", 0), ("target", 1)):
        (folder / name).write_text("".join(" ".join(pair[side]) + "\n" for pair in pairs))
    write_links(folder / "all", [pair[2] for pair in pairs])
    write_links(folder / "gold20", [pair[2] if n < 20 else frozenset() for n, pair in enumerate(pairs)])
    return folder


def request(corpus: Path, output: Path, **options: Any) -> AlignerRequest:
    given: dict[str, Any] = {
        "teachers": ("builtin",),
        "forms": 1,
        "settings": SMALL,
        "links": output.with_suffix(".align"),
    } | options
    return AlignerRequest(AlignerFiles(corpus / "source", corpus / "target"), output, **given)


def error_rate(corpus: Path, links: Path) -> float:
    found = [pair.sure for pair in read_link_file(links, base=0).sentences[-60:]]
    return score_links(found, read_link_file(corpus / "all", base=0).sentences[-60:]).aer


@pytest.fixture(scope="module")
def plain(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the links of an aligner that was trained without hand-made ones."""
    output = tmp_path_factory.mktemp("plain") / "DIR"
    train_aligner(request(corpus, output))
    return output.with_suffix(".align")


def test_links_are_recovered_and_gold_of_20_lines_improves_them(corpus: Path, plain: Path, tmp_path: Path) -> None:
    without = error_rate(corpus, plain)
    nouns = [
        Gold(links, links)
        for links in (
            frozenset((i, j) for i, j in gold.sure if line.split()[j] != "ze")
            for gold, line in zip(
                read_link_file(corpus / "all", base=0).sentences,
                (corpus / "target").read_text().splitlines(),
                strict=True,
            )
        )
    ]
    found = [pair.sure for pair in read_link_file(plain, base=0).sentences]
    assert score_links(found, nouns).recall > 0.9
    train_aligner(request(corpus, tmp_path / "DIR", gold=corpus / "gold20"))
    assert error_rate(corpus, tmp_path / "DIR.align") < without - 0.1


def test_a_lines_links_do_not_depend_on_the_lines_beside_it(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "DIR"
    train_aligner(request(corpus, output, forms=None, settings=("width=8", "epochs=1")))
    # Of short words alone the forms do not differ.
    lines = [("eh eh", "ze ze"), ("kadanun eh lopir", "vnadaket ze vripol")]

    def aligned(name: str, *chosen: tuple[str, str]) -> list[np.ndarray]:
        files = [tmp_path / f"{name}.{side}" for side in ("source", "target")]
        for path, side in zip(files, zip(*chosen, strict=True), strict=True):
            path.write_text("".join(line + "\n" for line in side))
        return soft_links(output, read_text(AlignerFiles(*files)))

    both = aligned("both", *lines)
    for place, line in enumerate(lines):
        np.testing.assert_allclose(both[place], aligned(str(place), line)[0], atol=1e-6)


def test_fixed_links_come_out_whatever_the_network_says(corpus: Path, tmp_path: Path) -> None:
    fixed: list[Links] = [frozenset() for _ in range(260)]
    fixed[3] = frozenset({(0, 0), (1, 0)})
    write_links(tmp_path / "fixed", fixed)
    train_aligner(request(corpus, tmp_path / "DIR", fixed_links=tmp_path / "fixed", settings=("width=8", "epochs=1")))
    assert read_link_file(tmp_path / "DIR.align", base=0).sentences[3].sure >= fixed[3]


def test_a_killed_run_goes_on_and_comes_to_the_same_links(corpus: Path, plain: Path, tmp_path: Path) -> None:
    wanted = request(corpus, tmp_path / "DIR")
    arguments = {each.name: getattr(wanted, each.name) for each in dataclasses.fields(wanted)}
    code = (
        "import sys, pickle; from hf_seq2seq_attn.training import aligner_state, train_aligner as t;"
        "aligner_state.SAVE_SECONDS = 0.0; t.train_aligner(t.AlignerRequest(**pickle.loads(sys.stdin.buffer.read())))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write(pickle.dumps(arguments))
    process.stdin.close()
    state = tmp_path / "DIR" / ".aligner-training" / "seed-1"
    deadline = time.monotonic() + 120
    while not (state.is_dir() and any(state.iterdir())) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "DIR" / "aligner.json").exists(), "the run was over before it could be killed"
    train_aligner(wanted)
    assert (tmp_path / "DIR.align").read_text() == plain.read_text()


def test_two_seeds_in_two_processes_are_those_of_one(corpus: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"settings": ("width=8", "epochs=1"), "seeds": (1, 2)}
    train_aligner(request(corpus, tmp_path / "one", **options))
    train_aligner(request(corpus, tmp_path / "two", processes=2, **options))
    assert (tmp_path / "one.align").read_text() == (tmp_path / "two.align").read_text()


def test_a_seed_that_fails_stops_the_others_at_once(corpus: Path, tmp_path: Path) -> None:
    text = read_text(AlignerFiles(corpus / "source", corpus / "target"))
    data = aligner_data(text, gold=read_gold_links(corpus / "all", text))
    (tmp_path / "seed-2").write_text("where its folder should be")
    endless = parse_settings(("width=8", "epochs=1000000"))
    with pytest.raises(FileExistsError):
        fit_seeds(data, endless, (1, 2), folder=tmp_path, processes=2)
