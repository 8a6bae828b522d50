"""The command around the network, with a stand-in for it: what it is given, what it leaves, and how it goes on."""

import gzip
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from hf_seq2seq_attn import cli
from hf_seq2seq_attn.probing import Link, Links, iterate_matrices, read_link_file
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training import aligner_fits, aligner_inference
from hf_seq2seq_attn.training.aligner_data import AlignerData, TeacherLinks
from hf_seq2seq_attn.training.aligner_forms import TeacherForm, teacher_forms
from hf_seq2seq_attn.training.aligner_training import AlignerProgress
from hf_seq2seq_attn.training.text_kind import TextKind

Text = Sequence[Sequence[str]]


class StandIn:
    """Averages the teachers, lets gold and fixed links through, and keeps its seeds."""

    calls: ClassVar[list[tuple[int, float | None]]] = []
    fail_after: ClassVar[int | None] = None
    kind = TextKind(letters=False, drop_source=False, drop_target=False)

    def __init__(self, seeds: list[int], gold: list[Any]) -> None:
        self.seeds, self.gold = seeds, gold

    @classmethod
    def fit(
        cls, data: AlignerData, settings: Any, *, seed: int, minutes: float | None, resume_dir: Path, progress: Any
    ) -> "StandIn":
        data.check()
        state = Path(resume_dir, "state.json")
        done = json.loads(state.read_text()) if state.exists() else 0
        for step in range(done, 4):
            if cls.fail_after is not None and len(cls.calls) >= cls.fail_after:
                raise KeyboardInterrupt
            cls.calls.append((seed, minutes))
            state.write_text(str(step + 1))
            progress(AlignerProgress("stand-in", (step + 1) / 4, 0.1, 1.0))
        return cls([seed], [[pair, sorted(gold.possible)] for pair, gold in data.gold.items()])

    @classmethod
    def joined(cls, aligners: list["StandIn"]) -> "StandIn":
        return cls([seed for each in aligners for seed in each.seeds], aligners[0].gold)

    def save(self, folder: Path) -> None:
        Path(folder, "network.json").write_text(json.dumps([self.seeds, self.gold]))

    @classmethod
    def load(cls, folder: Path) -> "StandIn":
        return cls(*json.loads(Path(folder, "network.json").read_text()))

    def teacher_forms(
        self, source: Text, target: Text, *, source_lemmas: Text | None = None, target_lemmas: Text | None = None
    ) -> list[TeacherForm]:
        return teacher_forms(source, target, source_lemmas, target_lemmas)

    def posteriors(
        self, source: Text, target: Text, *, teachers: Sequence[TeacherLinks] = (), **lemmas: Text | None
    ) -> list[np.ndarray]:
        found = [np.zeros((len(t), len(s)), dtype=np.float32) for s, t in zip(source, target, strict=True)]
        for teacher in teachers:
            for matrix, *both in zip(found, teacher.forward, teacher.reverse, strict=True):
                for (i, j), weight in itertools.chain.from_iterable(each.items() for each in both):
                    matrix[j, i] += weight / len(teachers) / 2
        return found

    def links(
        self,
        source: Text,
        target: Text,
        *,
        teachers: Sequence[TeacherLinks] = (),
        fixed: dict[int, Links] | None = None,
        progress: Any = None,
        **lemmas: Text | None,
    ) -> list[dict[Link, float]]:
        matrices = self.posteriors(source, target, teachers=teachers)
        found = [{(int(i), int(j)): float(m[j, i]) for j, i in np.argwhere(m > 0.5)} for m in matrices]
        if teachers and len(source) > 20:
            for pair, links in self.gold:
                found[pair] = {tuple(link): 1.0 for link in links}
        for pair, links in (fixed or {}).items():
            found[pair] |= dict.fromkeys(links, 1.0)
        return found


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> type[StandIn]:
    StandIn.calls, StandIn.fail_after = [], None
    monkeypatch.setattr(aligner_fits, "fit_aligner", StandIn.fit)
    monkeypatch.setattr(aligner_fits, "TrainedAligner", StandIn)
    monkeypatch.setattr(aligner_inference, "TrainedAligner", StandIn)
    return StandIn


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Thirty pairs of words that are each other's capitals, in reverse; line 5 is blank, line 8 belongs to line 7."""
    draw = np.random.default_rng(0)
    sources = [[f"w{n}x" for n in draw.integers(0, 9, draw.integers(2, 6))] for _ in range(30)]
    targets = [[word.upper().replace("W", "v") for word in reversed(words)] for words in sources]
    lines = [[" ".join(words) for words in side] for side in (sources, targets)]
    lines[0][4] = lines[1][4] = ""
    lines[0][7] = lines[1][7] = "<range>"
    for name, side in zip(("source", "target"), lines, strict=True):
        (tmp_path / name).write_text("".join(line + "\n" for line in side), encoding="utf-8")
    return tmp_path


def run(
    files: Path, *options: Any, source: str = "source", target: str = "target", command: str = "train-aligner"
) -> Result:
    return CliRunner().invoke(cli.app, [command, str(files / source), str(files / target), *map(str, options)])


def train(files: Path, *options: Any) -> Result:
    result = run(files, "-o", files / "DIR", "--teacher", "builtin", *options)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def write(files: Path, name: str, *lines: str) -> Path:
    path = files / name
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_links_of_every_line_come_out_and_the_folder_describes_itself(files: Path) -> None:
    train(files, "--links", files / "out.align", "--seeds", "3,5")
    links = read_link_file(files / "out.align").sentences
    words = [line.split() for line in (files / "source").read_text().splitlines()]
    assert len(links) == 30
    assert not links[4].sure and not links[7].sure
    right = sum((i == len(words[n]) - 1 - j) for n in (0, 1, 2, 9, 11) for i, j in links[n].sure)
    assert right > 0.7 * sum(len(words[n]) for n in (0, 1, 2, 9, 11))
    record = json.loads((files / "DIR" / "aligner.json").read_text())
    assert record["seeds"] == [3, 5] and record["teachers"] == ["builtin"]
    assert record["lines"] == 30 and record["pairs"] == 28
    assert not (files / "DIR" / ".aligner-training").exists()
    card = (files / "DIR" / "README.md").read_text()
    assert "| seeds | 3, 5 |" in card and "28 of 30 lines" in card
    assert {path.name for path in (files / "DIR").iterdir()} == {
        "aligner.json", "README.md", "network.json", "builtin", "links.pharaoh-p.gz"
    }  # fmt: skip


def test_the_same_command_again_trains_nothing_and_gives_the_same_links(files: Path, stand_in: type[StandIn]) -> None:
    train(files, "--links", files / "one.jsonl")
    trained = len(stand_in.calls)
    train(files, "--links", files / "two.jsonl")
    assert len(stand_in.calls) == trained
    assert (files / "one.jsonl").read_text() == (files / "two.jsonl").read_text()


def test_kept_links_are_not_written_to_other_lines(files: Path) -> None:
    train(files)
    for name in ("source", "target"):
        lines = (files / name).read_text().splitlines()
        (files / name).write_text("".join(line + "\n" for line in [*lines[:7], lines[8], "<range>", *lines[9:]]))
    result = run(files, "-o", files / "DIR", "--teacher", "builtin", "--links", files / "out.align")
    assert "it differs in: text" in str(result.exception)


def test_a_stopped_run_goes_on_and_comes_to_the_same_folder(files: Path, stand_in: type[StandIn]) -> None:
    train(files, "--links", files / "whole.prob", "--seeds", "1,2", "--minutes", "3")
    shares = {minutes for _, minutes in stand_in.calls}
    assert len(shares) == 1 and 1.3 < shares.pop() <= 1.5
    (files / "DIR").rename(files / "WHOLE")
    stand_in.calls.clear()
    stand_in.fail_after = 6
    assert run(files, "-o", files / "DIR", "--teacher", "builtin", "--seeds", "1,2", "--minutes", "3").exit_code != 0
    assert (files / "DIR" / ".aligner-training").is_dir() and not (files / "DIR" / "aligner.json").exists()
    stand_in.fail_after = None
    train(files, "--links", files / "resumed.prob", "--seeds", "1,2", "--minutes", "3")
    assert [seed for seed, _ in stand_in.calls] == [1] * 4 + [2] * 4
    assert len({minutes for _, minutes in stand_in.calls}) == 1
    assert (files / "resumed.prob").read_text() == (files / "whole.prob").read_text()


def test_gold_and_fixed_links_reach_the_network_and_fixed_ones_come_out(files: Path) -> None:
    gold = write(files, "gold", "0-0", *[""] * 29)
    fixed = write(files, "fixed", *[""] * 29, "0-0 1-1")
    train(files, "--gold", gold, "--fixed-links", fixed, "--links", files / "out.prob")
    lines = (files / "out.prob").read_text().splitlines()
    assert lines[0] == "0-0:1.0"
    assert "0-0:1.0" in lines[29].split() and "1-1:1.0" in lines[29].split()
    record = json.loads((files / "DIR" / "aligner.json").read_text())
    assert record["gold_pairs"] == 1 and record["fixed_links"] == 2


def test_fixed_links_count_from_where_they_are_said_to(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    fixed = write(files, "fixed", "1-1", *[""] * 29)
    train(files)

    def fixed_in(*options: str) -> list[str]:
        aligned = files / "fixed.prob"
        result = run(files, files / "target", "-o", aligned, "--fixed-links", fixed, *options,
                     source="DIR", target="source", command="align")  # fmt: skip
        assert result.exit_code == 0, (result.output, result.exception)
        return [link for link in aligned.read_text().splitlines()[0].split() if link.endswith(":1.0")]

    found = fixed_in()
    assert "1-1:1.0" in found and "0-0:1.0" not in found
    assert "fixed: " in caplog.text and "if that is wrong, give the base" in caplog.text
    caplog.clear()
    assert "0-0:1.0" in fixed_in("--links-base", "1")
    assert not caplog.text


def test_new_text_is_aligned_by_the_folder(files: Path) -> None:
    train(files)
    write(files, "new", "w1x w2x", "", "<range>", "w3x never")
    write(files, "new-target", "v2X v1X", "", "", "v3X")
    fixed = write(files, "new-fixed", "", "", "", "1-0")
    result = run(
        files, files / "new-target", "-o", files / "new.jsonl", "--soft", files / "new.npz", "--fixed-links", fixed,
        source="DIR", target="new", command="align",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in (files / "new.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    assert {tuple(link[:2]) for link in rows[0]["links"]} == {(0, 1), (1, 0)}
    assert rows[1]["links"] == rows[2]["links"] == []
    assert [1, 0, 1.0] in rows[3]["links"]
    matrices = list(iterate_matrices(files / "new.npz"))
    assert [matrix.shape for matrix in matrices] == [(2, 2), (0, 0), (0, 0), (1, 2)]
    for matrix, row in zip(matrices, rows, strict=True):
        assert {(int(i), int(j)) for j, i in np.argwhere(matrix > 0.5)} == {tuple(link[:2]) for link in row["links"]}


def test_options_that_do_not_apply_are_refused(files: Path) -> None:
    train(files)
    arguments: dict[str, Any] = {"source": "DIR", "target": "source", "command": "align"}
    refused = run(files, files / "target", "--layer", "2", "--combine", "mean", **arguments)
    assert isinstance(refused.exception, InputError)
    assert "leave out --layer, --combine" in str(refused.exception)
    for option in (("--pre-split",), ("--processes", "1"), ("--reverse-model", "other"), ("--heads", "auto")):
        refused = run(files, files / "target", *option, **arguments)
        assert f"is an aligner, no translation model; leave out {option[0]}" in str(refused.exception)
    refused = run(files, files / "target", "--source-lemmas", files / "source", **arguments)
    assert "was trained without source lemmas" in str(refused.exception)
    refused = run(files, files / "target", "--ids", files / "source", source="none", target="source", command="align")
    assert "--ids: only for a folder that train-aligner left" in str(refused.exception)


def test_an_aligner_with_lemmas_asks_for_lemmas(files: Path) -> None:
    train(files, "--source-lemmas", files / "source")
    refused = run(files, files / "target", source="DIR", target="source", command="align")
    assert "was trained with source lemmas; give --source-lemmas" in str(refused.exception)


def test_suggestions_are_printed_with_their_lines(files: Path) -> None:
    result = train(files, "--suggest", "3")
    table = [line.split("\t") for line in result.stdout.splitlines()]
    assert table[0] == ["line", "verse", "doubt", "words", "source", "target"]
    assert len(table) == 4
    sources = (files / "source").read_text().splitlines()
    for row in table[1:]:
        # A verse holds the words of the line that was merged into it.
        assert sources[int(row[0]) - 1] == row[4]
    assert (files / "DIR" / "suggestions.tsv").read_text() == result.stdout


def test_another_run_in_the_folder_is_refused_and_overwrite_starts_anew(files: Path, stand_in: type[StandIn]) -> None:
    train(files)
    other = run(files, "-o", files / "DIR", "--teacher", "builtin", "--seeds", "2")
    assert "holds an aligner that is not this one (it differs in: seeds)" in str(other.exception)
    train(files, "--seeds", "2", "--overwrite")
    assert json.loads((files / "DIR" / "network.json").read_text())[0] == [2]
    stand_in.fail_after = 0
    run(files, "-o", files / "DIR2", "--teacher", "builtin")
    refused = run(files, files / "target", source="DIR2", target="source", command="align")
    assert "DIR2: an aligner whose training is not finished; repeat the command" in str(refused.exception)
    other = run(files, "-o", files / "DIR2", "--teacher", "builtin", "--forms", "1")
    assert "holds an unfinished aligner that is not this one (it differs in: forms)" in str(other.exception)


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
@pytest.mark.parametrize("name", ["README.md", "network.json", "builtin/of.txt"])
def test_a_folder_with_foreign_files_is_left_alone(files: Path, name: str, overwrite: tuple[str, ...]) -> None:
    mine = files / "DIR" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    result = run(files, "-o", files / "DIR", "--teacher", "builtin", *overwrite)
    assert f"holds a {name.partition('/')[0]} that is no aligner's" in str(result.exception)
    assert mine.read_text() == "mine" and not (files / "DIR" / ".aligner-training").exists()


def test_what_else_lies_in_the_folder_stays_there(files: Path) -> None:
    for name in ("training/thesis.txt", "notes.txt"):
        (files / "DIR" / name).parent.mkdir(parents=True, exist_ok=True)
        (files / "DIR" / name).write_text("mine")
    train(files)
    train(files, "--seeds", "2", "--overwrite")
    assert (files / "DIR" / "training" / "thesis.txt").read_text() == "mine"
    assert (files / "DIR" / "notes.txt").read_text() == "mine"


def test_a_stopped_run_that_takes_anothers_place_goes_on_too(files: Path, stand_in: type[StandIn]) -> None:
    train(files, "--suggest", "2")
    assert (files / "DIR" / "suggestions.tsv").exists()
    other = ("-o", files / "DIR", "--teacher", "builtin", "--seeds", "2,3")
    stand_in.calls.clear()
    stand_in.fail_after = 6
    assert run(files, *other, "--overwrite").exit_code != 0
    assert json.loads((files / "DIR" / "aligner.json").read_text())["seeds"] == [1]
    # In the middle once more, then with the option and without.
    stand_in.fail_after = 7
    assert run(files, *other, "--overwrite").exit_code != 0
    stand_in.fail_after = None
    train(files, "--seeds", "2,3")
    assert [seed for seed, _ in stand_in.calls] == [2] * 4 + [3] * 4
    assert json.loads((files / "DIR" / "aligner.json").read_text())["seeds"] == [2, 3]
    assert not (files / "DIR" / "suggestions.tsv").exists()


def test_a_file_of_links_teaches(files: Path) -> None:
    links = write(files, "teacher.align", *["0-1", *[""] * 29])
    result = run(files, "-o", files / "DIR", "--teacher", links, "--links", files / "out.align")
    assert result.exit_code == 0, result.exception
    assert (files / "out.align").read_text().splitlines() == ["0-1", *[""] * 29]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--teacher", "giza"), "'giza' is no teacher and no file; give eflomal, builtin, none or a file of links"),
        (("--teacher", "none", "--teacher", "builtin"), "none stands beside another"),
        (("--seeds", "1,1"), "must be different numbers"),
        (("--seeds=-1",), "must be numbers from 0 to 4294967295"),
        (("--format", "jsonl"), "--format jsonl is of the file of links; give --links"),
        (("--seeds", "one"), "'one' are no whole numbers"),
        (("--set", "nothing=1"), "'nothing=1' is no setting"),
        (("--set", "width=wide"), "width=wide: must be a whole number"),
        (("--set", "width=0"), "width is 0; it must be at least 1"),
        (("--set", "dropout=1.5"), "dropout is 1.5; it must be at least 0 and below 1"),
        (("--links", "{}/out.a3"), "a3 can be read but not written"),
        (("--gold", "{}/gold"), "gold:2: ends before line 2"),
        (("--fixed-links", "{}/fixed"), "fixed:1: source index 99"),
        (("--lexicon", "{}/lexicon"), "lexicon:2: 'alone' has no two columns"),
        (("--teacher", "{}/gold"), "gold:2: ends before line 2"),
    ],
)
def test_bad_input_is_refused_before_any_work(files: Path, options: tuple[str, ...], message: str) -> None:
    write(files, "gold", "0-0")
    write(files, "fixed", "99-0", *[""] * 29)
    write(files, "lexicon", "a\tb", "alone")
    result = run(files, "-o", files / "DIR", *(option.format(files) for option in options))
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert not (files / "DIR").exists()


def test_no_output_is_written_over_an_input(files: Path) -> None:
    gold = write(files, "gold.align", "0-0", *[""] * 29)
    train(files)
    before = {path.name: path.read_bytes() for path in files.iterdir() if path.is_file()}
    refused = run(files, "-o", files / "NEW", "--gold", gold, "--links", files / "DIR" / ".." / "gold.align")
    assert "gold.align: is also --gold, and would be written over; name another file" in str(refused.exception)
    refused = run(files, "-o", files / "NEW", "--teacher", gold, "--links", gold)
    assert "is also --teacher" in str(refused.exception) and not (files / "NEW").exists()
    for options, other in (
        (("-o", files / "target"), "TARGET"),
        (
            ("-o", files / "o.align", "--fixed-links", gold, "--soft", files / "o.npz", "--ids", files / "o.align"),
            "--ids",
        ),
        (("-o", files / "o.npz", "--soft", files / "o.npz"), "-o"),
    ):
        refused = run(files, files / "target", *options, source="DIR", target="source", command="align")
        assert f"is also {other}, and would be written over" in str(refused.exception)
    assert {path.name: path.read_bytes() for path in files.iterdir() if path.is_file()} == before


def test_links_read_in_another_way_are_another_run(files: Path) -> None:
    gold = write(files, "gold.align", "1-1", *[""] * 29)
    assert "made by hand: 1 links in 1 pairs" in train(files, "--gold", gold).stderr
    renamed = run(files, "-o", files / "DIR", "--teacher", "builtin", "--gold", gold.rename(files / "gold.talp"))
    assert "it differs in: gold" in str(renamed.exception)
    write(files, "gold.jsonl", '{"links": [[1, 1]]}', *['{"links": []}'] * 29)
    train(files, "--gold", files / "gold.jsonl")


def test_without_a_teacher_something_else_must_teach(files: Path) -> None:
    result = run(files, "-o", files / "DIR", "--teacher", "none")
    assert "--teacher none: without hand-made links there is nothing to learn from; give --gold" in str(
        result.exception
    )


def test_files_of_different_sizes_are_refused_with_exit_code_2(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(files, "short", "v1X")
    monkeypatch.setattr("sys.argv", ["x", "train-aligner", *(str(files / n) for n in ("source", "short")), "-o", "D"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert f"{files / 'short'}:2: 1 lines, but" in capsys.readouterr().err


def test_kept_links_carry_probabilities(files: Path) -> None:
    train(files)
    with gzip.open(files / "DIR" / "links.pharaoh-p.gz", "rt") as stream:
        lines = stream.read().splitlines()
    assert len(lines) == 30
    assert all(0 < float(link.partition(":")[2]) <= 1 for line in lines for link in line.split())
