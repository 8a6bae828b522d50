"""The commands for alignment files: score, symmetrize, convert."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hf_seq2seq_attn.probing import Gold, compare_scores, soft_aer, write_matrices

Run = Callable[..., tuple[int, str, str]]


def write(name: str, *lines: str) -> str:
    Path(name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return name


def corpus() -> tuple[str, str, str, str]:
    """Write three sentences: links, gold, source, target."""
    return (
        write("l", "0-0 1-1 2-2", "", "0-0 1-0"),
        write("g", "0-0 1p1 2-2", "", "0-0"),
        write("s", "a b .", "", "c d"),
        write("t", "x y .", "", "z"),
    )


def test_score_with_texts_breaks_down_by_parts(run: Run) -> None:
    links, gold, source, target = corpus()
    code, out, _ = run("score", links, gold, "--source", source, "--target", target, "--alpha", "0.25", "--json")
    result = json.loads(out)
    assert code == 0
    promised = ["aer", "precision", "recall", "f1", "links", "sure", "possible", "sentences", "base", "ci95"]
    assert list(result)[:10] == promised
    # |A| = 5, |S| = 3, |A & S| = 3, |A & P| = 4.
    assert result["aer"] == pytest.approx(1 - 7 / 8)
    assert result["f_alpha"] == pytest.approx(1 / (0.25 / 0.8 + 0.75))
    # Without the full stops: |A| = 4, |S| = 2, |A & S| = 2, |A & P| = 3.
    assert result["without_punctuation"]["aer"] == pytest.approx(1 - 5 / 6)
    assert {side: list(parts) for side, parts in result["by_length"].items()} == {
        "source": ["0-10"],
        "target": ["0-10"],
    }
    assert result["by_fertility"]["source"]["0"]["links"] == 1
    code, out, _ = run("score", links, gold, "--source", source, "--target", target, "--alpha", "0.25")
    assert "F(0.25)    0.9412" in out
    assert re.search(r"^no punctuation +0\.1667 +0\.7500 +1\.0000 +4 +3$", out, re.MULTILINE)
    assert re.search(r"^source gold links 0 +1\.0000 ", out, re.MULTILINE)


def test_score_reads_the_base_off_the_texts(run: Run) -> None:
    _, gold, source, target = corpus()
    one_based = write("o", "1-1 2-2 3-3", "", "1-1 2-1")
    code, out, err = run("score", one_based, gold, "--source", source, "--target", target, "--json")
    assert (code, json.loads(out)["base"]) == (0, {"links": 1, "gold": 0})
    assert "warning: o: no index 0, and source index 3 on line 1 in a sentence of 3 words, counting from 1" in err
    code, _, err = run("score", one_based, gold, "--source", source)
    assert code == 2
    assert "s: one side alone is not enough" in err


def test_score_against_another_system(run: Run) -> None:
    links, gold, *_ = corpus()
    other = write("o", "0-0 2-2", "0-0", "0-0")
    code, out, _ = run("score", links, gold, "--against", other, "--json")
    found = [[{(0, 0), (1, 1), (2, 2)}, set(), {(0, 0), (1, 0)}], [{(0, 0), (2, 2)}, {(0, 0)}, {(0, 0)}]]
    manual = [
        Gold(frozenset({(0, 0), (2, 2)}), frozenset({(1, 1)})),
        Gold(frozenset(), frozenset()),
        Gold(frozenset({(0, 0)}), frozenset()),
    ]
    assert (code, json.loads(out)["against"]) == (0, compare_scores(*found, manual).as_dict())
    code, out, _ = run("score", links, gold, "--against", other)
    assert "other AER  0.1429   difference -0.0179" in out
    code, _, err = run("score", links, gold, "--against", write("p", "0-0"))
    assert code == 2
    assert "p:2: 1 lines, but g has 3" in err


def test_score_of_matrices(run: Run) -> None:
    matrices = [np.array([[0.7, 0.3, 0], [0.2, 0.3, 0.5]]), np.zeros((0, 2)), np.array([[0.4, 0.6]])]
    write_matrices("m.npz", matrices)
    gold = write("g", "0-0 1p1 2-1", "", "0-0")
    manual = [Gold(frozenset({(0, 0), (2, 1)}), frozenset({(1, 1)})), Gold(frozenset(), frozenset())]
    manual.append(Gold(frozenset({(0, 0)}), frozenset()))
    code, out, _ = run("score", "m.npz", gold, "--json")
    result = json.loads(out)
    assert (code, result["links"], result["aer"]) == (0, 3, pytest.approx(1 - 4 / 6))
    assert result["soft_aer"] == pytest.approx(soft_aer(matrices, manual), abs=1e-6)
    code, out, _ = run("score", "m.npz", gold, "--links", "threshold:0.25")
    assert "6 links" in out
    assert "soft AER" in out
    code, _, err = run("score", "m.npz", gold, "--links", "best")
    assert (code, "links is 'best'; allowed are" in err) == (2, True)
    code, _, err = run("score", "m.npz", write("h", "0-0", "", "5-0"))
    assert (code, "h: sentence 3: gold goes beyond" in err) == (2, True)


def test_score_of_formats_without_blank_lines_at_the_end(run: Run) -> None:
    links = write("l.align", "0-0", "0-0", "")
    gold = write("g.naacl", "1 1 1 S")
    code, out, err = run("score", links, gold, "--json")
    assert (code, json.loads(out)["sentences"], json.loads(out)["aer"]) == (0, 3, pytest.approx(1 / 3))
    assert "g.naacl: counts from 1 (naacl always does)" in err
    code, _, err = run("score", links, gold, "--alpha", "2")
    assert (code, "alpha is 2.0" in err) == (2, True)


def test_symmetrize_mixes_formats_and_bases(run: Run) -> None:
    forward = write("f.talp", "1-1 2-3", "", "1-2")
    reverse = write("r.naacl", "1 1 1 S", "1 3 2 S")
    words = ["symmetrize", forward, reverse, "-m", "union", "--flip-reverse"]
    code, out, _ = run(*words)
    assert (code, out) == (0, "0-0 1-2\n\n0-1\n")
    code, out, _ = run(*words, "-o", "u.jsonl")
    assert Path("u.jsonl").read_text().splitlines()[2] == '{"links": [[0, 1]]}'
    plain = write("p", "1-1", "", "")
    assert run("symmetrize", plain, plain, "-m", "union", "--forward-base", "1", "--reverse-base", "1")[1] == (
        "0-0\n\n\n"
    )
    code, _, err = run("symmetrize", forward, write("q", "0-0"), "-m", "union", "-o", "no")
    assert code == 2
    assert "q:2: 1 lines, but f.talp has more" in err
    assert not Path("no").exists()


def test_convert_says_what_is_lost(run: Run) -> None:
    line = '{"links": [[0, 1, 0.5], [2, 0]], "null_source": [1], "source": ["a", "b", "c"], "target": ["x", "y"]}'
    write("x.jsonl", line, '{"links": []}')
    expected = {
        "y.align": ("0-1 2-0\n\n", "lost: 1 probabilities, 1 nulls, 5 words"),
        "y.talp": ("1-2 3-1\n\n", "lost: 1 probabilities, 1 nulls, 5 words"),
        "y.prob": ("0-1:0.5 2-0\n\n", "lost: 1 nulls, 5 words"),
        "y.wa": ("1 1 2 S 0.5\n1 3 1 S\n1 2 0 S\n", "lost: 5 words, 1 blank lines at the end"),
        "y.jsonl": (line + '\n{"links": []}\n', "lost: nothing"),
    }
    for name, (content, lost) in expected.items():
        code, out, err = run("convert", "x.jsonl", name)
        assert (code, out, Path(name).read_text()) == (0, "", content)
        assert lost in err
    assert run("convert", "y.talp", "z", "--to", "naacl")[0] == 0
    assert Path("z").read_text() == "1 1 2 S\n1 3 1 S\n"
    assert run("convert", "z", "w.align", "--from", "naacl", "--base", "0")[0] == 0
    assert Path("w.align").read_text() == "1-2 3-1\n"


def test_convert_reads_links_off_matrices(run: Run) -> None:
    matrices = [np.array([[0.75, 0.25], [0.5, 0.5]]), np.zeros((0, 2)), np.array([[0.0, 0.0]])]
    write_matrices("m.npz", matrices)
    code, _, err = run("convert", "m.npz", "m.prob")
    assert (code, Path("m.prob").read_text()) == (0, "0-0:0.75 0-1:0.5\n\n\n")
    assert "lost: nothing" in err
    assert run("convert", "m.npz", "m.align", "--links", "mutual")[0] == 0
    assert Path("m.align").read_text() == "0-0\n\n\n"
    assert run("convert", "m.npz", "h.align", "--links", "hmm")[0] == 0
    assert len(Path("h.align").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x", "y.a3"], "y.a3: a3 can be read but not written"),
        (["x", "y.npz"], "y.npz: links cannot become matrices"),
        (["x", "y", "--to", "bal"], "format is 'bal'; allowed are"),
        (["x", "y", "--from", "bal"], "format is 'bal'; allowed are"),
        (["m.npz", "y", "--links", "x"], "links is 'x'; allowed are"),
        (["m.npz", "y"], "m.npz: no such file"),
        (["x", "y", "--from", "npz"], "x: no readable NPZ file"),
        (["x", "y"], "x:2: 'b' is no link"),
        (["x", "no/y"], "no/y: cannot be written"),
    ],
)
def test_convert_refuses_in_one_line(run: Run, words: list[str], message: str) -> None:
    write("x", "0-0", "b")
    code, out, err = run("convert", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert not Path("y").exists()
