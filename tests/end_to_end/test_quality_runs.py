"""The scripts of the published-quality runs: their corpora, the queue, the scores and the table."""

import dataclasses
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hf_seq2seq_attn.text_files import read_lines

FOLDER = Path(__file__).parents[2] / "benchmarks" / "quality"
TINY = (
    "model.d_model=8", "tokenizer.vocab_size=60", "training.num_train_epochs=2", "validation.limit=3",
    "validation.batch_size=4", "data.max_target_length=6",
)  # fmt: skip
WORDS = ("Ein", "Hund", "rennt", "schnell")


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Iterator[None]:
    """Import the scripts as their own folder does, and take their plain names back afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").is_relative_to(FOLDER):
            del sys.modules[name]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    raw = folder / "multi30k" / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", 12), ("dev", 5), ("test_2016_flickr", 4), ("test_2017_flickr", 3),
                        ("test_2017_mscoco", 2)):  # fmt: skip
        lines = [" ".join(WORDS[(line + place) % 4] for place in range(2 + line % 3)) + "." for line in range(count)]
        (raw / f"{part}.de").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        (raw / f"{part}.en").write_text("".join(line.swapcase() + "\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def done(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Train and score one tiny run, once interrupted by SIGTERM; return its work folder and the results."""
    import run_all
    import runs

    work, results = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("results")
    run = dataclasses.replace(runs.RUNS["de_en_bahdanau"], overrides=TINY)
    said: list[str] = []
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)]
    try:
        run_all.stop_after(None)

        def killed(_: Any) -> bool:
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("the signal was not heeded")

        assert run_all.run_queue([run, run], killed, said.append) == 1
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGALRM), handlers, strict=True):
            signal.signal(number, handler)
    assert said == ["de_en_bahdanau: begins", "de_en_bahdanau: stopped (SIGTERM); the same command goes on"]

    def do(one: runs.Run) -> bool:
        return run_all.do_run(one, data, work, results)

    assert run_all.run_queue([run, run], do, said.append) == 0
    assert said[2:] == [f"de_en_bahdanau: {what}" for what in ("begins", "done", "begins", "was done already")]
    return work, results


def test_every_run_has_a_recipe_that_loads_with_its_overrides(tmp_path: Path) -> None:
    import runs

    for run in runs.RUNS.values():
        corpus = dataclasses.replace(run.corpus, rewritten=None)
        recipe = dataclasses.replace(run, corpus=corpus).load(tmp_path, tmp_path)
        assert (recipe.data.test is None) == (run.kind == "trial")
        assert run.kind == "trial" or recipe.selection is not None
    assert {name for row in runs.ROWS for name in row.runs} == {run.name for run in runs.MAIN}
    # One factor at a time.
    for factor, (_, changed) in runs.FACTORS.items():
        assert len(changed) == (0 if factor == "additive" else 2 if factor == "none" else 1)


def test_hangul_is_taken_apart_and_nothing_else(tmp_path: Path) -> None:
    import corpora

    assert corpora.to_jamo("é 한 a ᆯ") == "é ᄒ ᅡ ᆫ a ᆯ"
    folder = tmp_path / "g2p-sigmorphon2021" / "medium" / "kor"
    folder.mkdir(parents=True)
    (folder / "dev.graph").write_text("가 나\n", encoding="utf-8")
    source, target = corpora.sigmorphon("medium/kor").files("dev", tmp_path, tmp_path / "work")
    assert source.read_text(encoding="utf-8") == "ᄀ ᅡ ᄂ ᅡ\n" and target == folder / "dev.phon"
    assert corpora.sigmorphon("medium/dut").files("dev", tmp_path, tmp_path)[0].name == "dev.graph"


def test_a_blank_between_syllables_is_a_sign(data: Path, tmp_path: Path) -> None:
    import corpora
    import run_all
    import runs
    import scores

    folder = tmp_path / "g2p-sigmorphon2021" / "medium" / "vie_hanoi"
    folder.mkdir(parents=True)
    # One word of the test part has two pronunciations.
    parts = {
        "train": ["a n h   e m", "e m", "a", "n h"],
        "dev": ["a n   h", "e"],
        "test": ["e   a", "m", "m", "a n   h   e"],
    }
    for part, words in parts.items():
        (folder / f"{part}.graph").write_text("".join(word + "\n" for word in words), encoding="utf-8")
        sounds = [f"{word.replace('   ', ' ').upper()} {place}" for place, word in enumerate(words)]
        (folder / f"{part}.phon").write_text("".join(line + "\n" for line in sounds), encoding="utf-8")
    run = runs.Run(
        "vie", "sigmorphon_g2p", corpora.sigmorphon("medium/vie_hanoi"), 1,
        overrides=("model.d_model=8", "training.num_train_epochs=1", "validation.several_references=true"),
    )  # fmt: skip
    assert run_all.do_run(run, tmp_path, tmp_path / "work", tmp_path / "results")
    source, _ = run.corpus.files("test", tmp_path, tmp_path / "work")
    assert source.read_text(encoding="utf-8") == "e _ a\nm\nm\na n _ h _ e\n"
    metrics = json.loads((tmp_path / "results" / "vie" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["quality"]["tests"]["test"]["sentences"] == 3, "words, each with all of its pronunciations"
    assert "`vie_hanoi` of SIGMORPHON 2021" in (tmp_path / "work" / "vie" / "README.md").read_text(encoding="utf-8")
    made = scores.Translations(tmp_path / "work" / "vie")
    kept = made.path("test", ["e _ a", "m", "a n _ h _ e"], 1.0)
    kept.write_text("A B\nM 2\nA\n", encoding="utf-8")
    files = run.corpus.files("dev", tmp_path, tmp_path / "work"), run.corpus.files("test", tmp_path, tmp_path / "work")
    found = scores.score_run(tmp_path / "work" / "vie", files[0], {"test": files[1]}, "word_error_rate")
    assert found["tests"]["test"]["word_error_rate"]["value"] == pytest.approx(2 / 3, abs=1e-4), "the second one counts"


def test_results_of_another_recipe_are_done_anew(done: tuple[Path, Path], data: Path, tmp_path: Path) -> None:
    import run_all
    import runs

    run = dataclasses.replace(runs.RUNS["de_en_bahdanau"], overrides=TINY)
    work, results = tmp_path / "work", tmp_path / "results"
    for there, copy in zip(done, (work, results), strict=True):
        shutil.copytree(there / run.name, copy / run.name)
    assert not run_all.do_run(run, tmp_path / "moved elsewhere", work, results)
    changed = dataclasses.replace(run, overrides=(*TINY, "model.dropout=0.1"))
    assert not run_all.is_done(changed, results / run.name)
    assert run_all.do_run(changed, data, work, results) and run_all.is_done(changed, results / run.name)
    assert run.is_of(work / "de_en_bahdanau.earlier" / "recipe.yaml") and changed.is_of(work / run.name / "recipe.yaml")


def test_a_run_leaves_its_scores(done: tuple[Path, Path]) -> None:
    work, results = done
    assert sorted(path.name for path in (results / "de_en_bahdanau").iterdir()) == [
        "curve.png", "metrics.json", "recipe.yaml",
    ]  # fmt: skip
    metrics = json.loads((results / "de_en_bahdanau" / "metrics.json").read_text(encoding="utf-8"))
    found = metrics["quality"]
    tried = [float(penalty) for penalty in found["penalties"]]
    assert metrics["cpu_minutes"] > 0 and {0.6, 0.8, 1.0, 1.2, 1.4} <= set(tried) and tried == sorted(tried)
    # Neither the least nor the greatest that was tried, unless there is none beyond.
    assert found["length_penalty"] in (*tried[1:-1], 0.0, 2.4)
    assert found["penalties"][f"{found['length_penalty']:g}"] == max(found["penalties"].values())
    assert {name: test["sentences"] for name, test in found["tests"].items()} == {
        "test_2016_flickr": 4, "test_2017_flickr": 3, "test_2017_mscoco": 2,
    }  # fmt: skip
    first = found["tests"]["test_2016_flickr"]
    assert "case:lc" in first["bleu_lc"]["signature"] and "case:mixed" in first["bleu"]["signature"]
    assert metrics["test"]["num_beams"] == 5 and metrics["test"]["bleu"] == first["bleu"]["value"]
    assert "13a" in (work / "de_en_bahdanau" / "README.md").read_text(encoding="utf-8")


def test_the_card_of_a_scored_run_is_copied(done: tuple[Path, Path], tmp_path: Path) -> None:
    import cards

    assert cards.copy_cards(done[0], tmp_path) == ["multi30k_bahdanau"]
    card = (tmp_path / "multi30k_bahdanau" / "README.md").read_text(encoding="utf-8")
    for named in ("attention.png", "curve.png", "metrics.json", "recipe.yaml"):
        assert named in card and (tmp_path / "multi30k_bahdanau" / named).is_file()
    assert cards.copy_cards(tmp_path, tmp_path) == []


def test_the_length_penalty_is_chosen_on_dev_and_translations_are_read_again(
    done: tuple[Path, Path], data: Path
) -> None:
    import scores

    run_dir, raw = done[0] / "de_en_bahdanau", data / "multi30k" / "raw"
    made = scores.Translations(run_dir)
    dev, test = (read_lines(raw / f"{part}.de") for part in ("dev", "test_2016_flickr"))
    for penalty, suffix in ((0.6, "de"), (0.8, "de"), (1.0, "de"), (1.2, "en"), (1.4, "en")):
        # German is English in the other case here, so only -lc sees no fault in it.
        text = (raw / f"dev.{suffix}").read_text(encoding="utf-8")
        made.path("dev", dev, penalty).write_text(text if penalty != 1 else text[:20] + "\n" * 4)
    made.path("one", test, 0.6).write_text((raw / "test_2016_flickr.de").read_text(encoding="utf-8"))
    made.path("one", test, 1.4).write_text("x\n" * 4)
    assert made.path("one", test[::-1], 0.6) != made.path("one", test, 0.6), "other sources"
    tests = {"one": (raw / "test_2016_flickr.de", raw / "test_2016_flickr.en")}
    found = scores.score_run(run_dir, (raw / "dev.de", raw / "dev.en"), tests, "bleu")
    # Equally good penalties: the first.
    assert found["length_penalty"] == 0.6 and found["penalties"]["1"] < found["penalties"]["1.4"] == pytest.approx(100)
    one = found["tests"]["one"]
    assert one["bleu_lc"]["value"] == pytest.approx(100) and one["bleu"]["value"] < 50
    assert one["bleu_lc"]["ci95"][1] <= 100
    made.path("one", test, 0.6).write_text("one line\n")
    words = [
        str(run_dir),
        "--dev",
        str(raw / "dev.de"),
        str(raw / "dev.en"),
        "--test",
        "one={},{}".format(*tests["one"]),
    ]
    assert scores.main(words) == 2


@pytest.mark.parametrize(
    ("peak", "chosen", "tried"),
    [
        (1.04, 1.0, [0.6, 0.8, 1.0, 1.2, 1.4]),
        (0.41, 0.4, [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4]),
        (1.59, 1.6, [0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8]),
        (9, 2.4, [0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4]),
        (-9, 0.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4]),
    ],
)
def test_length_penalties_beyond_the_last_are_tried_while_they_are_better(
    peak: float, chosen: float, tried: list[float]
) -> None:
    import scores

    best, found = scores.choose_penalty(lambda penalty: -abs(penalty - peak), "bleu")
    assert best == chosen and list(found) == tried
    assert scores.choose_penalty(lambda penalty: 0.5, "word_error_rate") == (1.0, {1.0: 0.5})


def test_runs_are_compared_once_they_are_there(
    done: tuple[Path, Path], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import comparisons
    import table

    work, _ = done
    assert comparisons.compare_all(data, work, tmp_path) == []
    monkeypatch.setattr(comparisons, "SPEED_RUNS", {"hybrid": "de_en_bahdanau", "transformer": "de_en_bahdanau"})
    monkeypatch.setattr(comparisons, "LENGTH_RUNS", {"fixed vector": "de_en_bahdanau", "additive": "de_en_bahdanau"})
    monkeypatch.setattr(comparisons, "BOUNDS", "2,3,4")
    assert comparisons.compare_all(data, work, tmp_path) == ["decoding.json", "by_length.json"]
    speed = json.loads((tmp_path / "decoding.json").read_text(encoding="utf-8"))
    assert set(speed["seconds"]) == {"hybrid", "transformer"} and 0.2 < speed["ratios"]["hybrid"] < 5
    assert "times as fast (target 1.5: " in table.decoding_line(speed)
    lengths = json.loads((tmp_path / "by_length.json").read_text(encoding="utf-8"))["models"]["additive"]["by_length"]
    # Sources of 2, 3, 4 words, of both Flickr test sets together.
    assert [row["sentences"] for row in lengths] == [3, 2, 2] and (tmp_path / "by_length.png").stat().st_size > 1000
    assert comparisons.compare_all(data, work, tmp_path) == []
    for name in ("decoding.json", "by_length.json"):
        record = json.loads((tmp_path / name).read_text(encoding="utf-8"))
        record["runs"] = dict.fromkeys(record["runs"], "de_en_bahdanau, of another day")
        (tmp_path / name).write_text(json.dumps(record), encoding="utf-8")
        assert comparisons.compare_all(data, work, tmp_path) == [name]


def test_error_rates_are_those_of_whole_words() -> None:
    import scores

    found = scores.all_scores(["a b", "c d", "e"], [["a b"], ["c x", "c d"], ["f"]], "word_error_rate")
    assert found["word_error_rate"]["value"] == pytest.approx(1 / 3, abs=1e-4)
    assert found["per"]["value"] == pytest.approx(1 / 5, abs=1e-4)


def test_a_failing_run_does_not_stop_the_others() -> None:
    import run_all
    import runs

    said: list[str] = []

    def do(run: runs.Run) -> bool:
        if run.name == "de_en_bahdanau":
            raise ValueError("no such file")
        return True

    assert run_all.run_queue(runs.MAIN[:2], do, said.append) == 1
    assert said[0] == "de_en_bahdanau: begins" and "ValueError: no such file" in said[1]
    assert said[3:] == ["en_de_transformer: done", "failed: de_en_bahdanau"]


def test_a_trial_is_noted_once_and_sees_no_test_part(data: Path, tmp_path: Path) -> None:
    import run_all
    import runs

    run = dataclasses.replace(runs.RUNS["trial_bahdanau"], overrides=TINY)
    assert [run_all.do_run(run, data, tmp_path / "work", tmp_path / "results") for _ in range(2)] == [True, False]
    lines = (tmp_path / "results" / "trials.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3 and lines[2].startswith("| `trial_bahdanau` | `multi30k_bahdanau`: `model.d_model=8`")
    assert "test" not in json.loads((tmp_path / "work" / "trial_bahdanau" / "metrics.json").read_text())


def made_metrics(tests: dict[str, dict[str, float]], dev: float = 30.0) -> dict[str, Any]:
    def scores(values: dict[str, float]) -> dict[str, Any]:
        return {name: {"value": value, "ci95": [value, value], "signature": "s"} for name, value in values.items()}

    return {
        "parameters": 2_000_000,
        "cpu_minutes": 10.0,
        "quality": {
            "dev": scores({"bleu_lc": dev}),
            "tests": {test: scores(values) for test, values in tests.items()},
        },
    }


def test_the_table_judges_by_all_targets_and_means_over_languages() -> None:
    import runs
    import table

    transformer = next(row for row in runs.ROWS if row.runs == ("en_de_transformer",))
    reached = {
        test: {"bleu_lc": target, "bleu": 30.0, "chrf": 60.0} for test, target in transformer.targets.items()
    }  # fmt: skip
    assert table.results_row(transformer, {"en_de_transformer": made_metrics(reached)})[-1] == "reached"
    missed = {**reached, "test_2017_mscoco": {"bleu_lc": 30.4, "bleu": 29.0, "chrf": 60.0}}
    cells = table.results_row(transformer, {"en_de_transformer": made_metrics(missed)})
    assert cells[-1] == "**missed**" and cells[3].startswith("41.50 (41.5 to 41.5) / 34.00")

    medium = next(row for row in runs.ROWS if len(row.runs) == 10)
    found = {
        name: made_metrics({"test": {"word_error_rate": 0.05 + 0.01 * place}}) for place, name in enumerate(medium.runs)
    }
    cells = table.results_row(medium, found)
    assert cells[3] == "9.50" and cells[-1] == "reached" and cells[7] == "100"
    found.popitem()
    assert table.results_row(medium, found)[3] == "9 of 10 runs"
    assert table.results_row(medium, {})[3] == "not run"
    earlier = {"en_de_transformer": {**made_metrics(reached), "earlier": True}}
    assert table.results_row(transformer, earlier)[-1] == "reached, with an earlier recipe"


def test_the_readme_s_table_is_that_of_the_results() -> None:
    import run_all
    import table

    rows = table.short_rows(table.read_results(run_all.RESULTS))
    assert rows and table.markdown(table.SHORT, rows) in (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")


def test_a_row_is_judged_by_the_run_that_it_should_be_near() -> None:
    import runs
    import table

    hybrid = next(row for row in runs.ROWS if row.near)

    def judged(bleu: float) -> tuple[str, str]:
        tests = {test: {"bleu_lc": 20.0, "bleu": 20.0, "chrf": 60.0} for test in runs.EN_DE.tests}
        first = runs.EN_DE.tests[0]
        own = {**tests, first: {**tests[first], "bleu_lc": bleu}}
        other = {**tests, first: {**tests[first], "bleu_lc": 40.0}}
        found = {"en_de_hybrid": made_metrics(own), "en_de_transformer_wide": made_metrics(other)}
        cells = table.results_row(hybrid, found)
        return cells[2], cells[-1]

    assert judged(39.5) == ("39.5", "reached")
    assert judged(39.4) == ("39.5", "**missed**")
    assert (
        table.results_row(
            hybrid,
            {
                "en_de_hybrid": made_metrics(
                    {test: {"bleu_lc": 1.0, "bleu": 1.0, "chrf": 1.0} for test in runs.EN_DE.tests}
                )
            },
        )[-1]
        == ""
    )


def test_the_time_of_a_process_that_is_killed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import run_all

    monkeypatch.setattr(run_all, "WRITTEN_EVERY", 0.01)
    clock = run_all.CpuMinutes(tmp_path / "cpu.json")
    (tmp_path / "cpu.json").write_text('{"minutes": 5.0}')
    with clock.counted():
        started = time.process_time()
        while clock.value() < 5.01:
            assert time.process_time() - started < 30
    assert 5.01 <= clock.value() < 5.5


def test_the_ablation_differs_from_the_mean_of_its_baseline() -> None:
    import runs
    import table

    found = {
        runs.ablation_name("additive", seed): made_metrics({"test_2016_flickr": {"bleu_lc": 30.0 + seed}})
        for seed in (1, 2, 3)
    }
    found[runs.ablation_name("gate")] = made_metrics({"test_2016_flickr": {"bleu_lc": 31.5}}, dev=29)
    found[runs.ablation_name("dot")] = made_metrics({"test_2016_flickr": {"bleu_lc": 31.5}})
    additive, gate = table.ablation_rows(found)
    assert additive[1:4] == ("30.00 ± 0.00 (3 seeds)", "32.00 ± 1.00 (3 seeds)", "")
    assert gate[1:4] == ("29.00", "31.50", "-0.50")


def test_an_unknown_run_is_named() -> None:
    import run_all

    with pytest.raises(SystemExit, match="no such run: de_en_bahdanu; known are de_en_bahdanau"):
        run_all.main(["--list", "--only", "de_en_bahdanu"])
