"""Training an aligner on a generated corpus whose links are known."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.probing import Gold, Links, alignment_error_rate
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training import aligner_state, aligner_training
from hf_seq2seq_attn.training.aligner_data import AlignerData, TeacherLinks
from hf_seq2seq_attn.training.aligner_training import AlignerProgress, AlignerSettings, fit_aligner
from hf_seq2seq_attn.training.trained_aligner import TrainedAligner

SMALL = AlignerSettings(width=32, grid_width=8, epochs=12, learning_rate=5e-3)
PAIRS = 160


def corpus(noise: float = 0.15, article: bool = False) -> tuple[AlignerData, list[Links]]:
    """Return sentences that are translated word by word in reverse order, with a full stop, and their true links.

    Some links of the teacher's two runs are missing or wrong. With `article`, target words have "the" before them,
    which is linked like the word, though the teacher never says so.
    """
    generator = np.random.default_rng(0)
    source = [[f"w{k}" for k in generator.integers(0, 30, generator.integers(2, 8))] for _ in range(PAIRS)]
    target, true, seen = [], [], []
    for words in source:
        translated, links, told = [], set(), set()
        for i in reversed(range(len(words))):
            if article:
                links.add((i, len(translated)))
                translated.append("the")
            links.add((i, len(translated)))
            told.add((i, len(translated)))
            translated.append(words[i].replace("w", "z"))
        target.append([*translated, "."])
        true.append(frozenset(links))
        seen.append(told)
    source[5], target[7] = [], []
    true[5] = true[7] = frozenset()
    seen[5] = seen[7] = set()

    def run() -> list[Links]:
        return [
            frozenset(
                (i, j) if generator.random() > noise else (int(generator.integers(len(words))), j) for i, j in links
            )
            for words, links in zip(source, seen, strict=True)
        ]

    teachers = [TeacherLinks.hard(run(), run()) for _ in range(2)]
    return AlignerData(source, target, teachers=teachers), true


def error(aligner: TrainedAligner, data: AlignerData, true: list[Links], **options: object) -> float:
    links = aligner.links(data.source, data.target, **options)
    return alignment_error_rate([frozenset(each) for each in links], [Gold(each, each) for each in true])


@pytest.fixture(scope="module")
def trained() -> tuple[TrainedAligner, AlignerData, list[Links]]:
    data, true = corpus()
    return fit_aligner(data, SMALL, seed=3), data, true


def test_links_are_recovered_better_than_by_the_teacher(trained: tuple) -> None:
    aligner, data, true = trained
    gold = [Gold(each, each) for each in true]
    of_teacher = alignment_error_rate([frozenset(links) for links in data.teachers[0].forward], gold)
    assert of_teacher > 0.1
    assert error(aligner, data, true, teachers=data.teachers) < of_teacher / 2


def test_posteriors_fit_the_sentences_and_agree_with_the_links(trained: tuple) -> None:
    aligner, data, _ = trained
    matrices = aligner.posteriors(data.source, data.target, teachers=data.teachers)
    links = aligner.links(data.source, data.target, teachers=data.teachers)
    for source, target, matrix, found in zip(data.source, data.target, matrices, links, strict=True):
        assert matrix.shape == (len(target), len(source))
        assert not matrix.size or (matrix.min() >= 0 and matrix.max() <= 1 and not matrix[-1].any())
        assert {(int(i), int(j)) for j, i in zip(*np.nonzero(matrix > 0.5), strict=True)} == set(found)
    assert links[5] == links[7] == {}


def test_new_text_is_aligned_without_a_teacher(trained: tuple) -> None:
    aligner, _, _ = trained
    source = [["w1", "w2", "w3", "w4"], [], ["unseen"]]
    target = [["z4", "z3", "z2", "z1", "."], ["z1"], []]
    assert set(aligner.links(source, target)[0]) == {(0, 3), (1, 2), (2, 1), (3, 0)}
    assert aligner.links(source, target)[1:] == [{}, {}]


def test_fixed_links_are_kept(trained: tuple) -> None:
    aligner, data, _ = trained
    found = aligner.links(data.source[:3], data.target[:3], fixed={1: frozenset({(0, 0)})})
    assert found[1][0, 0] == 1.0


def test_hand_made_links_of_a_few_pairs_improve_the_others() -> None:
    data, true = corpus(article=True)
    without = error(fit_aligner(data, SMALL), data, true, teachers=data.teachers)
    known = dataclasses.replace(data, gold={place: Gold(true[place], true[place]) for place in range(24)})
    aligner = fit_aligner(known, dataclasses.replace(SMALL, self_training=0))
    rest = list(range(24, PAIRS))
    links = aligner.links(data.source, data.target, teachers=data.teachers)
    found = alignment_error_rate(
        [frozenset(links[place]) for place in rest], [Gold(true[place], true[place]) for place in rest]
    )
    assert without > 0.3, "no teacher links the article"
    assert found < without / 2


def test_the_ways_of_the_annotators_reach_the_other_pairs_by_self_training() -> None:
    data, true = corpus(article=True)
    known = dataclasses.replace(data, gold={place: Gold(true[place], true[place]) for place in range(12)})
    rest = range(12, PAIRS)
    errors = []
    for rounds in (0, 2):
        aligner = fit_aligner(known, dataclasses.replace(SMALL, self_training=rounds))
        links = aligner.links(data.source, data.target, teachers=data.teachers)
        found = [frozenset(links[place]) for place in rest]
        errors.append(alignment_error_rate(found, [Gold(true[place], true[place]) for place in rest]))
    assert errors[1] < 0.75 * errors[0], errors


def test_where_most_pairs_are_hand_aligned_the_time_of_self_training_goes_into_more_passes() -> None:
    data, true = corpus()
    known = dataclasses.replace(data, gold={place: Gold(true[place], true[place]) for place in range(PAIRS // 2 + 10)})
    once = dataclasses.replace(SMALL, epochs=1, gold_epochs=1, gold_steps=7)
    thrice = dataclasses.replace(SMALL, epochs=3, gold_epochs=3, gold_steps=21, self_training=0)
    links = [
        fit_aligner(known, settings).links(data.source, data.target)
        for settings in (once, thrice, dataclasses.replace(once, self_training=0))
    ]
    assert links[0] == links[1] != links[2]


def test_held_out_pairs_choose_the_rule_and_train_nothing() -> None:
    data, true = corpus()
    words = [*data.target[:3], ["--"], *data.target[4:]]
    gold = {place: Gold(true[place], true[place]) for place in range(40) if place not in (5, 7)}
    gold[3] = Gold(frozenset({(0, 0)}), frozenset({(0, 0)}))
    teachers = [TeacherLinks.hard([frozenset()] * PAIRS, [frozenset()] * PAIRS)]
    fit = aligner_training._Fit(
        dataclasses.replace(data, target=words, teachers=teachers, gold=gold),
        dataclasses.replace(SMALL, fewest=8, held_out=0.5), 0, None, None, lambda progress: None,
    )  # fmt: skip
    held_out = set(fit.held_out)
    assert len(held_out) == round(0.5 * (len(gold) - 1)) and held_out < gold.keys()
    assert 3 not in held_out, "no word of its target can be linked"
    assert not held_out & fit.text.gold.keys()
    by_hand, again = fit._stages()[1:3]
    known = gold.keys() - held_out - {3}
    assert set(by_hand.draw(np.random.default_rng(0)).tolist()) == known
    assert held_out < set(again.draw(np.random.default_rng(0)).tolist()), "as text they are read"
    fit._start_anew(2)
    assert held_out < fit.text.own_links.keys() and not known & fit.text.own_links.keys()


def test_too_few_hand_aligned_pairs_choose_nothing() -> None:
    data, true = corpus()
    gold = {place: Gold(true[place], true[place]) for place in range(20, 30)}
    settings = dataclasses.replace(SMALL, fewest=11)
    fit = aligner_training._Fit(dataclasses.replace(data, gold=gold), settings, 0, None, None, lambda progress: None)
    assert fit.held_out == [] and fit._rule().threshold == settings.gold_threshold


def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, true = corpus()
    data = dataclasses.replace(data, gold={place: Gold(true[place], true[place]) for place in range(10)})
    settings = dataclasses.replace(SMALL, epochs=1, gold_epochs=2, fewest=8)
    update = aligner_state.AlignerState.update
    passed: list[tuple[int, int]] = []

    def noting(state: aligner_state.AlignerState, loss: object, rate: float) -> None:
        passed.append((state.stage, state.step))
        update(state, loss, rate)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(aligner_state.AlignerState, "update", noting)
        whole = fit_aligner(data, settings, seed=1).links(data.source, data.target, teachers=data.teachers)
    stages = [[place for place in passed if place[0] == stage] for stage in range(5)]
    monkeypatch.setattr(aligner_state, "SAVE_SECONDS", 0.0)
    for stop in [places[len(places) // 2] for places in stages] + [stages[4][0]]:
        folder = tmp_path / "-".join(map(str, stop))

        def stopping(
            state: aligner_state.AlignerState, loss: object, rate: float, stop: tuple[int, int] = stop
        ) -> None:
            if (state.stage, state.step) == stop:
                raise KeyboardInterrupt
            update(state, loss, rate)  # type: ignore[arg-type]

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(aligner_state.AlignerState, "update", stopping)
            fit_aligner(data, settings, seed=1, resume_dir=folder)
        resumed = fit_aligner(data, settings, seed=1, resume_dir=folder)
        assert resumed.links(data.source, data.target, teachers=data.teachers) == whole
    with pytest.raises(UnusableError, match="other data, settings or seed"):
        fit_aligner(data, settings, seed=2, resume_dir=folder)
    (folder / aligner_state.STATE_FILE).write_bytes(b"broken")
    with pytest.raises(UnusableError, match="cannot be read"):
        fit_aligner(data, settings, seed=1, resume_dir=folder)


def test_saving_and_loading_give_the_same_links(trained: tuple, tmp_path: Path) -> None:
    aligner, data, _ = trained
    aligner.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"network.json", "network-0.safetensors"}
    assert os.stat(tmp_path / "network-0.safetensors").st_mode & 0o044
    loaded = TrainedAligner.load(tmp_path)
    assert loaded.links(data.source, data.target) == aligner.links(data.source, data.target)
    (tmp_path / "network-0.safetensors").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"network-0\.safetensors"):
        TrainedAligner.load(tmp_path)
    (tmp_path / "network.json").write_text("{}")
    with pytest.raises(InputError, match="not the record of an aligner"):
        TrainedAligner.load(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        TrainedAligner.load(tmp_path / "nowhere")


def test_joined_aligners_average_their_probabilities(trained: tuple) -> None:
    aligner, data, _ = trained
    other = fit_aligner(data, dataclasses.replace(SMALL, epochs=1), seed=4)
    joined = TrainedAligner.joined([aligner, other])
    texts = data.source[:9], data.target[:9]
    for both, one, two in zip(
        joined.posteriors(*texts), aligner.posteriors(*texts), other.posteriors(*texts), strict=True
    ):
        assert both == pytest.approx((one + two) / 2, abs=1e-6)
    with pytest.raises(UnusableError, match="empty"):
        TrainedAligner.joined([])
    stranger = fit_aligner(AlignerData([["a"]], [["b"]], gold={0: Gold(frozenset({(0, 0)}), frozenset())}), SMALL)
    with pytest.raises(UnusableError, match="another text"):
        TrainedAligner.joined([aligner, stranger])


def test_progress_rises_to_the_end() -> None:
    data, _ = corpus()
    told: list[AlignerProgress] = []
    fit_aligner(data, dataclasses.replace(SMALL, epochs=1), minutes=0.02, progress=told.append)
    shares = [each.done for each in told]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert 1 < told[-1].seconds < 30


def test_no_stage_takes_more_than_its_share_of_the_minutes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data, true = corpus()
    known = dataclasses.replace(data, gold={place: Gold(true[place], true[place]) for place in range(10)})
    update, steps = aligner_state.AlignerState.update, [0] * 5

    def counting(state: aligner_state.AlignerState, loss: object, rate: float) -> None:
        steps[state.stage] += 1
        update(state, loss, rate)  # type: ignore[arg-type]

    monkeypatch.setattr(aligner_state.AlignerState, "update", counting)
    monkeypatch.setattr(aligner_training._Fit, "_seconds", lambda fit: float(sum(steps)))  # a step takes a second
    fit_aligner(known, dataclasses.replace(SMALL, gold_epochs=10**6, gold_steps=10**6), minutes=200 / 60)
    assert steps == [60, 10, 60, 10, 60]
    assert "the network took only 60 steps in the time that it had" in caplog.text
    caplog.clear()
    steps[:] = [0] * 5
    fit_aligner(known, dataclasses.replace(SMALL, gold_epochs=1, gold_steps=3), minutes=200 / 60)
    assert (steps[0], steps[2], steps[4]) == (60, 60, 60)
    assert steps[1] == steps[3] <= 3
    steps[:] = [0] * 5
    caplog.clear()
    fit_aligner(data, SMALL, minutes=120 / 60)
    assert steps[0] == 120
    assert not caplog.text


def test_a_lexicon_is_read_once_a_pass_and_is_no_hand_aligned_text() -> None:
    data, true = corpus()
    gold = {place: Gold(true[place], true[place]) for place in range(90)}
    lexicon = [(f"w{number}", f"z{number}") for number in range(100)]
    for known, repeats, stages in ((gold, 1, 2), ({}, 0, 1), ({place: gold[place] for place in range(20)}, 2, 5)):
        fit = aligner_training._Fit(
            dataclasses.replace(data, gold=known, lexicon=lexicon), SMALL, 0, None, None, lambda progress: None
        )
        places = fit._epoch(np.random.default_rng(0))
        assert sorted(places[places >= PAIRS]) == list(range(PAIRS, PAIRS + 100))
        by_hand = [int((places == place).sum()) for place in sorted(known) if place not in (5, 7, *fit.held_out)]
        assert all(repeats <= count <= repeats + 1 for count in by_hand)
        assert len(fit._stages()) == stages


def test_lexicon_and_lemmas_are_taken() -> None:
    data, true = corpus()
    lemmas = [[word.upper() for word in words] for words in data.source]
    known = dataclasses.replace(data, source_lemmas=lemmas, lexicon=[("new word", "neu"), ("w1", "z2")])
    aligner = fit_aligner(known, dataclasses.replace(SMALL, epochs=3))
    assert error(aligner, known, true, teachers=data.teachers, source_lemmas=lemmas) < 0.2
    assert "m:W1" in aligner.source_index.forms and "m:Z1" not in aligner.target_index.forms
    text = [["x", "w1", "y"]], [["v", "u", "z2"]]
    listed = aligner.posteriors(*text)
    aligner.lexicon.clear()
    assert listed[0][2, 1] > aligner.posteriors(*text)[0][2, 1], "the network sees which words the lexicon joins"


def test_words_are_learnt_from_the_text_alone() -> None:
    data, true = corpus()
    alone = dataclasses.replace(data, teachers=())
    aligner = fit_aligner(alone, dataclasses.replace(SMALL, reconstruction=1.0), seed=1)
    assert error(aligner, alone, true) < 0.3
    assert [(rule.shows_teacher, rule.teacher_weight) for rule in aligner.rules] == [(False, 0.0)]


def test_an_aligner_that_never_had_a_teacher_heeds_none_on_new_text() -> None:
    data, true = corpus()
    gold = {place: Gold(true[place], true[place]) for place in range(PAIRS)}
    taught = dataclasses.replace(data, teachers=(), gold=gold)
    aligner = fit_aligner(taught, dataclasses.replace(SMALL, epochs=1, gold_epochs=1))
    alone = aligner.links(data.source, data.target)
    assert aligner.links(data.source, data.target, teachers=data.teachers) == alone


def test_gold_without_a_word_that_can_be_linked_teaches_nothing() -> None:
    source, target = [["one", "two"], ["three"], ["three"] * 3], [["ein", "zwei"], ["--"], ["drei"]]
    gold = {1: Gold(frozenset({(0, 0)}), frozenset({(0, 0)}))}
    with pytest.raises(UnusableError, match="gold is only of pairs without words that can be linked"):
        fit_aligner(AlignerData(source, target, gold=gold), SMALL, minutes=0.01)


def test_data_that_do_not_fit_are_refused_by_name() -> None:
    data, _ = corpus()
    refused = {
        "target has 3 sentences": {"target": data.target[:3]},
        r"source_lemmas\[0\] has 0 items": {"source_lemmas": [[]] * PAIRS},
        r"teachers\[0\].forward is of 1 pairs": {"teachers": [TeacherLinks([{}], [{}] * PAIRS)]},
        "gold names pair 160": {"gold": {PAIRS: Gold(frozenset(), frozenset())}},
        r"fixed\[5\] has the link 0-0": {"fixed": {5: frozenset({(0, 0)})}},
        "neither teachers nor gold": {"teachers": ()},
    }
    for message, changed in refused.items():
        with pytest.raises(UnusableError, match=message):
            fit_aligner(dataclasses.replace(data, **changed), SMALL)
    with pytest.raises(UnusableError, match="no words"):
        fit_aligner(AlignerData([[]], [[]], teachers=[TeacherLinks([{}], [{}])]), SMALL)
    with pytest.raises(UnusableError, match="minutes is 0"):
        fit_aligner(data, SMALL, minutes=0)


@pytest.mark.parametrize(
    "changed", [{"width": 0}, {"dropout": 1.0}, {"threshold": -0.1}, {"attention": "no"}, {"learning_rate": 0.0}]
)
def test_settings_out_of_range_are_refused_by_name(changed: dict) -> None:
    with pytest.raises(UnusableError, match=next(iter(changed))):
        AlignerSettings(**changed)


def test_learning_rate_rises_and_falls() -> None:
    factor = aligner_training.learning_rate_factor
    assert factor(0, 0.0) == pytest.approx(0.01)
    assert factor(500, 0.0) == 1.0
    assert factor(500, 0.5) == pytest.approx(0.51)
    assert factor(500, 1.0) == pytest.approx(0.02)


def test_of_letters_a_single_teacher_keeps_its_say() -> None:
    """A link of both its directions stays unless the network rules it out; one of neither is none.

    With hand-made links the network alone decides: annotators do what no teacher says.
    """
    generator = np.random.default_rng(0)
    source = [list("".join(generator.choice(list("abcdefg"), 5))) for _ in range(60)]
    target = [[letter.upper() for letter in word] for word in source]
    straight = [frozenset((i, i) for i in range(5)) for _ in source]
    data = AlignerData(source, target, teachers=[TeacherLinks.hard(straight, straight)])
    settings = dataclasses.replace(SMALL, epochs=2)
    aligner = fit_aligner(data, settings)
    assert aligner.kind.letters
    assert [(rule.measure, rule.shows_teacher, rule.teacher_weight) for rule in aligner.rules] == [
        ("harmonic", False, 0.5)
    ]
    assert error(aligner, data, straight, teachers=data.teachers) < 0.1
    crossed = [frozenset((i, 4 - i) for i in range(5)) for _ in source]
    contrary = aligner.links(source, target, teachers=[TeacherLinks.hard(crossed, crossed)])
    assert all(set(links) <= both for links, both in zip(contrary, crossed, strict=True))
    taught = dataclasses.replace(data, gold={0: Gold(straight[0], straight[0])})
    assert [rule.teacher_weight for rule in fit_aligner(taught, settings).rules] == [0.0]
