"""The align command: formats, two directions, soft matrices, several processes, going on after a stop."""

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probes import foreign_model, subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import (
    AlignedPair,
    Aligner,
    AlignmentChoice,
    Reading,
    align,
    format_links,
    iterate_matrices,
    iterate_pairs,
    reverse_links,
    save_choice,
    score_links,
)
from hf_seq2seq_attn.probing.align_jobs import BadSentenceError, ChunkAligner

Run = Callable[..., tuple[int, str, str]]
SOURCES = ["the cats  love\ttoday.", "", "understand this today.", "I", "", "love the cats today I"]
TARGETS = ["love cats", "day", "the day", "", "", "unloved day this"]


@pytest.fixture(scope="module")
def forward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forward")
    tiny_model(decoder_type="gru", vocab_size=73, encoder_type="gru").save_pretrained(folder)
    subword_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def reverse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reverse")
    foreign_model("bart").save_pretrained(folder)
    subword_tokenizer().save_pretrained(folder)
    return folder


def sides() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    ours = tiny_model(decoder_type="gru", vocab_size=73, encoder_type="gru")
    return (ours, subword_tokenizer()), (foreign_model("bart"), subword_tokenizer())


def write(name: str, lines: list[str]) -> Path:
    path = Path(name)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def texts(times: int = 1) -> tuple[Path, Path]:
    return write("s", SOURCES * times), write("t", TARGETS * times)


def lines_of(pairs: list[AlignedPair]) -> str:
    return "".join(format_links(pair.gold) + "\n" for pair in pairs)


def by_hand(times: int = 1, two: bool = False, **choices: Any) -> list[AlignedPair]:
    ours, theirs = sides()
    aligner = Aligner(ours, theirs if two else None, Reading(**choices))
    sources, targets = SOURCES * times, TARGETS * times
    return [each.pair for each in aligner.align(sources, targets, aligner.learn(sources, targets))]


def test_n_lines_in_n_lines_out_and_every_index_in_its_sentence(run: Run, forward: Path) -> None:
    code, out, err = run("align", forward, *texts(3))
    lines = out.split("\n")
    assert code == 0 and len(lines) == 19 and lines[-1] == ""
    for source, target, line in zip(SOURCES * 3, TARGETS * 3, lines, strict=False):
        pairs = [tuple(map(int, token.split("-"))) for token in line.split()]
        assert pairs == sorted(pairs)
        assert all(0 <= i < len(source.split()) and 0 <= j < len(target.split()) for i, j in pairs)
        assert bool(pairs) == bool(source.split() and target.split())
    assert "18 pairs, " in err


def test_json_lines_hold_probabilities_words_and_nulls(run: Run, forward: Path) -> None:
    code, out, _ = run("align", forward, *texts(), "-o", "out.jsonl", "--links", "mutual")
    assert (code, out) == (0, "")
    expected = by_hand(links="mutual")
    assert [repr(pair.probabilities) for pair in iterate_pairs("out.jsonl")] == [
        repr(dict(sorted(pair.probabilities.items()))) for pair in expected
    ]
    first = json.loads(Path("out.jsonl").read_text().splitlines()[0])
    assert first["source"] == ["the", "cats", "love", "today."]
    linked = {i for i, _, _ in first["links"]}
    assert first["null_source"] == sorted(set(range(4)) - linked) != []
    assert run("align", forward, *texts(), "--format", "jsonl", "--links", "mutual")[1] == Path("out.jsonl").read_text()


def test_probabilities_in_pharaoh_form(run: Run, forward: Path) -> None:
    code, out, _ = run("align", forward, *texts(), "--format", "pharaoh-p")
    assert code == 0
    expected = [
        " ".join(f"{i}-{j}:{pair.probabilities[i, j]!r}" for i, j in sorted(pair.gold.sure)) for pair in by_hand()
    ]
    assert out.splitlines() == expected
    assert run("align", forward, *texts(), "-o", "out.talp")[0] == 0
    assert Path("out.talp").read_text() == "".join(format_links(pair.gold, base=1) + "\n" for pair in by_hand())
    code, _, err = run("align", forward, *texts(), "-o", "out.a3")
    assert code == 2 and "out.a3: a3 can be read but not written" in err
    code, _, err = run("align", forward, *texts(), "--format", "xml")
    assert code == 2 and "format is 'xml'; allowed are pharaoh" in err


def test_two_directions_and_their_soft_matrices(run: Run, forward: Path, reverse: Path) -> None:
    words = ["--reverse-model", reverse, "--soft", "f.npz"]
    code, out, err = run("align", forward, *texts(), *words)
    assert (code, out) == (0, lines_of(by_hand(two=True)))
    assert "rows output, layer -1, heads mean of all; reverse: rows input" in err
    assert "two directions symmetrised by grow-diag-final-and-moses" in err
    code, out, err = run("align", forward, *texts(), *words, "--symmetrize", "intersection")
    assert (code, out) == (0, lines_of(by_hand(two=True, symmetrize="intersection")))
    code, out, err = run("align", forward, *texts(), *words, "--combine", "harmonic", "--links", "threshold:0.2")
    assert (code, out) == (0, lines_of(by_hand(two=True, combine="harmonic", links="threshold:0.2")))
    assert "two directions combined by harmonic" in err
    ours, theirs = sides()
    expected = Aligner(ours, theirs, Reading(combine="harmonic")).align(SOURCES, TARGETS)
    for matrix, each in zip(iterate_matrices("f.npz"), expected, strict=True):
        assert matrix == pytest.approx(each.matrix, abs=1e-6)


def test_soft_matrices_give_the_links_again(run: Run, forward: Path) -> None:
    """What convert reads off the matrices, and what score reads, is what align read."""
    assert run("align", forward, *texts(), "--soft", "f.npz", "-o", "out.align", "--links", "mutual")[0] == 0
    with np.load("f.npz", allow_pickle=False) as arrays:
        assert [arrays[str(n)].shape for n in range(6)] == [(2, 4), (1, 0), (2, 3), (0, 1), (0, 0), (3, 5)]
        # Weights that are all 0 would be an error passed off as a result (Sockeye 385).
        assert all((arrays[n].sum(axis=1) > 0).all() for n in ("0", "2", "5"))
    assert run("convert", "f.npz", "again.align", "--links", "mutual")[0] == 0
    assert Path("again.align").read_text() == Path("out.align").read_text()
    code, _, err = run("align", forward, *texts(), "--soft", "f.txt")
    assert code == 2 and "f.txt: matrices are written as .npz" in err


def test_pre_split_rejoins_the_words(run: Run, forward: Path) -> None:
    ours, _ = sides()
    split = align(*ours, [line.split() for line in SOURCES], [line.split() for line in TARGETS])
    raw = align(*ours, SOURCES, TARGETS)
    assert run("align", forward, *texts())[1].splitlines() == [format_links(links) for links in raw]
    assert run("align", forward, *texts(), "--pre-split")[1].splitlines() == [format_links(links) for links in split]


def test_hmm_learns_the_jumps_of_all_chunks(run: Run, forward: Path) -> None:
    # Batches of one make chunks of 16 lines, so that 18 lines are two chunks.
    code, out, _ = run("align", forward, *texts(3), "--links", "hmm:0.05", "--batch-size", 1)
    assert (code, out) == (0, lines_of(by_hand(3, links="hmm:0.05")))
    assert run("align", forward, *texts(3), "--links", "hmm:0.05", "-o", "out.align")[0] == 0
    assert Path("out.align").read_text() == out


def test_two_processes_find_the_same_links(run: Run, forward: Path, reverse: Path) -> None:
    words = ["--reverse-model", reverse, "--links", "hmm", "--batch-size", 1]
    code, one, _ = run("align", forward, *texts(4), *words, "--soft", "one.npz")
    assert code == 0
    code, two, err = run("align", forward, *texts(4), *words, "--soft", "two.npz", "--processes", 2)
    assert (code, two) == (0, one)
    assert "24 pairs, " in err
    assert Path("one.npz").read_bytes() == Path("two.npz").read_bytes()


def test_a_bad_sentence_of_a_later_chunk_is_named_by_its_line(run: Run) -> None:
    tiny_model(vocab_size=73, max_position_embeddings=9, position_embedding_type="learned").save_pretrained("m")
    subword_tokenizer().save_pretrained("m")
    source, target = write("s", ["cats"] * 18 + ["cats " * 20]), write("t", ["day"] * 19)
    code, _, err = run("align", "m", source, target, "-o", "out", "--batch-size", 1)
    assert code == 2 and re.search(r"^s:19: 2\d tokens are more than", err, re.MULTILINE)
    assert not Path("out").exists() and not Path("out.parts").exists(), "other files cannot use these parts"
    # What a process raises travels to the command as a pickle.
    assert isinstance(pickle.loads(pickle.dumps(BadSentenceError("s:19: too long"))), BadSentenceError)


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make the command stop, as if killed, when it begins the chunk after so many."""
    real = ChunkAligner.align

    def stop(chunks: int) -> None:
        def stopping(self: ChunkAligner, chunk: Any, *rest: Any) -> Any:
            if chunk.number >= chunks:
                raise KeyboardInterrupt
            return real(self, chunk, *rest)

        monkeypatch.setattr(ChunkAligner, "align", stopping)

    return stop


def test_a_stopped_run_goes_on_where_it_was(
    run: Run, forward: Path, stop_after: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ["align", forward, *texts(9), "-o", "out.align", "--batch-size", 1, "--links", "hmm", "--soft", "f.npz"]
    stop_after(2)
    assert run(*words)[0] == 130
    assert not Path("out.align").exists() and not Path("f.npz").exists()
    kept = sorted(path.name for path in Path("out.align.parts").iterdir())
    assert kept == [f"00000{n}.{kind}" for n in (0, 1) for kind in ("json", "jsonl", "npz")] + [
        "command.json",
        "jumps.json",
    ]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    aligned: list[int] = []
    real = ChunkAligner.align

    def counting(self: ChunkAligner, chunk: Any, *rest: Any) -> Any:
        aligned.append(chunk.number)
        return real(self, chunk, *rest)

    monkeypatch.setattr(ChunkAligner, "align", counting)
    monkeypatch.setattr(ChunkAligner, "learn", lambda *_: None)
    assert run(*words)[0] == 0
    assert aligned == [2, 3]
    assert Path("out.align").read_text() == lines_of(by_hand(9, links="hmm"))
    assert len(list(iterate_matrices("f.npz"))) == 54
    assert not Path("out.align.parts").exists()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (["--links", "mutual"], "links"),
        (["--soft", "f.npz"], "soft matrices"),
        (["--layer", "0", "--heads", "0"], "layer, heads"),
        (["--reverse-model", "reverse"], "reverse model, symmetrize"),
    ],
)
def test_parts_of_another_command_are_refused(
    run: Run, forward: Path, reverse: Path, stop_after: Callable[[int], None], change: list[str], what: str
) -> None:
    stop_after(1)
    words = ["align", forward, *texts(3), "-o", "out.align", "--batch-size", 1]
    assert run(*words)[0] == 130
    code, _, err = run(*words, *[str(reverse) if word == "reverse" else word for word in change])
    assert code == 2
    assert f"out.align.parts: holds parts of another command, which differs in {what}; repeat that command" in err
    write("s", ["another text", *(SOURCES * 3)[1:]])
    code, _, err = run(*words)
    assert code == 2 and "which differs in source; repeat" in err
    assert Path("out.align.parts/000000.json").exists()


def test_a_folder_in_the_way_is_refused(run: Run, forward: Path) -> None:
    Path("out.parts").mkdir()
    write("out.parts/mine", ["a"])
    code, _, err = run("align", forward, *texts(), "-o", "out")
    assert code == 2 and "out.parts: is in the way" in err
    assert Path("out.parts/mine").exists()


def test_files_without_lines(run: Run, forward: Path) -> None:
    code, out, err = run("align", forward, write("s", []), write("t", []), "-o", "out", "--soft", "f.npz")
    assert (code, out, Path("out").read_text()) == (0, "", "")
    assert "0 pairs" in err
    assert list(iterate_matrices("f.npz")) == []


def test_choices_that_do_not_go_together(run: Run, forward: Path) -> None:
    code, _, err = run("align", forward, *texts(), "--symmetrize", "union")
    assert code == 2 and "give reverse_model" in err
    code, _, err = run("align", forward, *texts(), "--reverse-model", forward, "--combine", "sum")
    assert code == 2 and "combine is 'sum'; allowed are mean, product, harmonic" in err


def launch(ranks: int, *words: object) -> subprocess.CompletedProcess[str]:
    command = ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}", "--rdzv-backend=c10d"]
    command += ["--rdzv-endpoint=localhost:0", "-m", "hf_seq2seq_attn.cli", "align", *map(str, words)]
    return subprocess.run(
        [sys.executable, *command],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_ranks_of_a_launcher_share_the_lines(run: Run, forward: Path) -> None:
    words = [forward, *texts(4), "--links", "hmm", "--batch-size", 1]
    expected = run("align", *words)[1]
    done = launch(2, *words, "-o", "out.align", "--soft", "f.npz")
    assert done.returncode == 0, done.stderr
    assert Path("out.align").read_text() == expected
    assert len(list(iterate_matrices("f.npz"))) == 24
    assert done.stderr.count("24 pairs, ") == 1
    assert not Path("out.align.parts").exists()


def test_a_launcher_needs_an_output_file(run: Run, forward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hf_seq2seq_attn.probing import align_commands
    from hf_seq2seq_attn.probing.ranks import Rank

    class Two:
        def __enter__(self) -> Rank:
            return Rank(1, 2, 1)

        def __exit__(self, *error: object) -> None:
            return None

    monkeypatch.setattr(align_commands, "launched_rank", Two)
    for words in ([], ["-o", "out", "--processes", 2]):
        code, _, err = run("align", forward, *texts(), *words)
        assert code == 2 and "under a launcher the ranks are the processes: give -o" in err


def test_what_align_writes_can_be_scored(run: Run, forward: Path) -> None:
    """The files of one command are the input of the next, in any format (OpenNMT-py 2435, fairseq 1881)."""
    gold = write("g", ["0-0 1p1", "", "0-0", "", "", "2-2"])
    pairs = by_hand()
    manual = [pair.gold for pair in iterate_pairs(gold)]
    expected = score_links([pair.gold.sure for pair in pairs], manual).aer
    for name in ("a.align", "a.talp", "a.jsonl", "a.pharaoh-p", "a.naacl", "a.align.gz"):
        assert run("align", forward, *texts(), "-o", name)[0] == 0
        code, out, _ = run("score", name, gold, "--source", "s", "--target", "t", "--json")
        assert (code, json.loads(out)["aer"]) == (0, expected)


def test_each_direction_reads_what_was_saved_with_its_model(run: Run, tmp_path: Path) -> None:
    folders = []
    for name, (model, tokenizer), choice in zip(
        ("one", "two"),
        sides(),
        (
            AlignmentChoice(((0, 0),), "output", specials="null", links="hmm"),
            AlignmentChoice(((2, 1),), "input", links="relative:0.6"),
        ),
        strict=True,
    ):
        folders.append(tmp_path / name)
        model.save_pretrained(folders[-1])
        tokenizer.save_pretrained(folders[-1])
        save_choice(folders[-1], choice)
    words = ["align", folders[0], *texts(), "--reverse-model", folders[1], "--symmetrize", "union"]
    code, out, err = run(*words)
    assert code == 0, err
    assert "links hmm, two directions symmetrised by union; reverse: specials mask, links relative:0.6" in err
    (ours, theirs), how = sides(), Reading(align_with="output", layer=0, heads=(0,), specials="null", links="hmm")
    forward = Aligner(ours, reading=how)
    back = Aligner(theirs, reading=Reading(align_with="input", layer=2, heads=(1,), links="relative:0.6"))
    found = zip(
        forward.align(SOURCES, TARGETS, forward.learn(SOURCES, TARGETS)), back.align(TARGETS, SOURCES), strict=True
    )
    joined = [one.pair.gold.sure | reverse_links(other.pair.gold.sure) for one, other in found]
    assert out == "".join(" ".join(f"{i}-{j}" for i, j in sorted(links)) + "\n" for links in joined)
    assert run(*words, "--batch-size", 1, "--links", "argmax")[1] != out
