"""The order arguments > saved choice > config > default, through align, Aligner and the fitted combination."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probes import SENTENCES, subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn import Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.probing import align, extract, reverse_links, to_word_links
from hf_seq2seq_attn.probing.chosen_maps import choice_in_use, describe_heads, extract_chosen
from hf_seq2seq_attn.probing.directions import Aligner, Reading
from hf_seq2seq_attn.probing.head_fit import HeadFit
from hf_seq2seq_attn.probing.head_words import mean_of_heads
from hf_seq2seq_attn.probing.saved_choice import CHOICE_FILE, AlignmentChoice, save_choice

TOKENIZER = subword_tokenizer()
SOURCES, TARGETS = [*SENTENCES[:3], ""], [*SENTENCES[1:4], "day"]
ACROSS = AlignmentChoice(((0, 2), (1, 0)), "output", specials="null", links="mutual")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # A config with a choice of its own, which the saved one goes before.
    tiny_model(vocab_size=73, alignment_layer=1, alignment_heads=[1], alignment_rows="input").save_pretrained(tmp_path)
    return tmp_path


def load(folder: Path) -> Any:
    return Seq2SeqAttnForConditionalGeneration.from_pretrained(folder)


def read(model: Any, rows: str, heads: list[tuple[int, int]], **how: str) -> list[frozenset[tuple[int, int]]]:
    return [
        to_word_links(mean_of_heads(maps, heads), **how)  # type: ignore[arg-type]
        for maps in extract(model, TOKENIZER, SOURCES, TARGETS, align_with=rows)
    ]


def test_saved_heads_are_read_by_default_and_arguments_go_before_them(folder: Path) -> None:
    before = align(load(folder), TOKENIZER, SOURCES, TARGETS)
    save_choice(folder, ACROSS)
    model = load(folder)
    saved = read(model, "output", [(0, 2), (1, 0)], specials="null", links="mutual")
    assert align(model, TOKENIZER, SOURCES, TARGETS) == saved != before
    assert align(model, TOKENIZER, SOURCES, TARGETS, align_with="output") == saved
    # What is said goes before what is saved, one by one ...
    some = align(model, TOKENIZER, SOURCES, TARGETS, links="argmax", specials="mask")
    assert some == read(model, "output", [(0, 2), (1, 0)]) != saved
    # ... but heads belong to their rows: others set the choice aside.
    assert align(model, TOKENIZER, SOURCES, TARGETS, align_with="input") == before == read(model, "input", [(1, 1)])
    assert align(model, TOKENIZER, SOURCES, TARGETS, layer=1) == before
    by_head = align(model, TOKENIZER, SOURCES, TARGETS, layer=0, heads=[0])
    assert by_head == read(model, "input", [(0, 0)])
    (folder / CHOICE_FILE).unlink()
    # The generation config still has heads and rows.
    assert align(load(folder), TOKENIZER, SOURCES, TARGETS) == read(model, "output", [(0, 2), (1, 0)])


def test_heads_of_one_layer_stay_what_they_are(folder: Path) -> None:
    save_choice(folder, AlignmentChoice(((0, 0), (0, 2)), "input", weights="norm"))
    model = load(folder)
    maps = next(extract_chosen(model, TOKENIZER, SOURCES, TARGETS, weights="norm"))
    assert (maps.layers, maps.heads, maps.weight_kind) == ((0,), (0, 2), "norm")
    expected = [
        to_word_links(each, layer=0, heads=[0, 2])
        for each in extract(model, TOKENIZER, SOURCES, TARGETS, align_with="input", weights="norm")
    ]
    assert align(model, TOKENIZER, SOURCES, TARGETS) == expected


def test_the_aligner_reads_each_models_own_choice(folder: Path, tmp_path: Path) -> None:
    save_choice(folder, ACROSS)
    other = tmp_path / "other"
    tiny_model(7, vocab_size=73).save_pretrained(other)
    save_choice(other, AlignmentChoice(((1, 2),), "input", links="argmax"))
    forward, reverse = load(folder), load(other)
    aligner = Aligner((forward, TOKENIZER), (reverse, TOKENIZER), Reading(symmetrize="union"))
    found = [each.pair.gold.sure for each in aligner.align(SOURCES, TARGETS)]
    ours = read(forward, "output", [(0, 2), (1, 0)], specials="null", links="mutual")
    theirs = [
        # Links and specials too are its own.
        reverse_links(to_word_links(maps, layer=1, heads=[2], specials="mask", links="argmax"))
        for maps in extract(reverse, TOKENIZER, TARGETS, SOURCES, align_with="input")
    ]
    assert found == [one | two for one, two in zip(ours, theirs, strict=True)]
    note = aligner.describe()
    assert "rows output, heads 0.2, 1.0 (layer.head) (saved with the model); reverse: rows input, heads 1.2" in note
    assert "links mutual" in note
    assert note.endswith("symmetrised by union; reverse: specials mask, links argmax")
    # What is said holds for both.
    asked = Aligner(
        (forward, TOKENIZER), (reverse, TOKENIZER), Reading(symmetrize="union", specials="null", links="hmm")
    )
    assert (asked.reverse_reading.links, asked.reverse_reading.specials) == ("hmm", "null")
    assert asked.describe().endswith("symmetrised by union")
    learned = asked.learn(SOURCES, TARGETS)
    assert learned.forward is not None and learned.reverse is not None


def test_jumps_are_learned_for_the_direction_that_needs_them(folder: Path, tmp_path: Path) -> None:
    save_choice(folder, AlignmentChoice(((0, 1),), "input", links="hmm"))
    other = tiny_model(7, vocab_size=73)
    forward = Aligner((load(folder), TOKENIZER), (other, TOKENIZER), Reading(symmetrize="union"))
    learned = forward.learn(SOURCES, TARGETS)
    assert learned.forward is not None and learned.reverse is None
    turned = Aligner((other, TOKENIZER), (load(folder), TOKENIZER), Reading(symmetrize="union"))
    learned = turned.learn(TARGETS, SOURCES)
    assert learned.forward is None and learned.reverse is not None
    assert len(list(turned.align(TARGETS, SOURCES, learned))) == len(SOURCES)


@pytest.fixture
def fitted(folder: Path) -> Any:
    weights = np.random.default_rng(3).normal(size=(2, 2, 3)) * 0.3
    fit = HeadFit(("output", "input"), (0, 1), (0, 1, 2), weights, -1.0, 0.5, 0.3, "null")
    save_choice(folder, AlignmentChoice(((1, 1),), "input", links="threshold:0.3", fit=fit))
    return load(folder)


def test_a_saved_fit_gives_links_their_probabilities(fitted: Any) -> None:
    choice = choice_in_use(fitted)
    assert choice is not None
    assert choice.fit is not None
    passes = [extract(fitted, TOKENIZER, SOURCES, TARGETS, align_with=rows) for rows in ("output", "input")]
    expected = [
        choice.fit.probabilities({"output": output, "input": shifted}) for output, shifted in zip(*passes, strict=True)
    ]
    links = [frozenset((int(i), int(j)) for j, i in np.argwhere(each >= 0.3)) for each in expected]
    assert sum(map(len, links)) > 3
    assert align(fitted, TOKENIZER, SOURCES, TARGETS) == links
    assert align(fitted, TOKENIZER, SOURCES, TARGETS, heads="fitted") == links
    assert align(fitted, TOKENIZER, SOURCES, TARGETS, layer=1) != links
    one = align(fitted, TOKENIZER, SOURCES, TARGETS, links="argmax")
    assert all(len({j for _, j in each}) == len(each) for each in one)
    aligner = Aligner((fitted, TOKENIZER))
    for pair, found, matrix in zip(aligner.align(SOURCES, TARGETS), links, expected, strict=True):
        assert pair.pair.gold.sure == found
        assert pair.pair.probabilities == {(i, j): pytest.approx(matrix[j, i], abs=1e-6) for i, j in found}
        np.testing.assert_allclose(pair.matrix, matrix)
    assert "rows output and input, heads all heads, fitted on specials null (saved with" in aligner.describe()


def test_a_fit_of_one_direction_and_heads_of_the_other_meet(fitted: Any) -> None:
    other = tiny_model(7, vocab_size=73)
    aligner = Aligner((fitted, TOKENIZER), (other, TOKENIZER), Reading(symmetrize="union"))
    # The threshold of the fit's probabilities says nothing about the other model's attention.
    back = Aligner((other, TOKENIZER), reading=Reading(links="argmax"))
    alone = zip(Aligner((fitted, TOKENIZER)).align(SOURCES, TARGETS), back.align(TARGETS, SOURCES), strict=True)
    for both, (ours, theirs) in zip(aligner.align(SOURCES, TARGETS), alone, strict=True):
        assert both.pair.gold.sure == ours.pair.gold.sure | reverse_links(theirs.pair.gold.sure)
    turned = Aligner((other, TOKENIZER), (fitted, TOKENIZER), Reading(symmetrize="union"))
    for both, swapped in zip(aligner.align(SOURCES, TARGETS), turned.align(TARGETS, SOURCES), strict=True):
        assert both.pair.gold.sure == reverse_links(swapped.pair.gold.sure)
    with pytest.raises(ValueError, match="reverse model: specials is 'null', but the fit"):
        Aligner((other, TOKENIZER), (fitted, TOKENIZER), Reading(specials="null"))


def test_other_rows_than_those_of_a_fit_set_it_aside(fitted: Any) -> None:
    # The fit reads both kinds of rows, so neither of them alone asks for it.
    for rows in ("output", "input"):
        assert choice_in_use(fitted, rows) is None
        expected = [
            to_word_links(maps, layer=1, heads=[1])
            for maps in extract(fitted, TOKENIZER, SOURCES, TARGETS, align_with=rows)
        ]
        assert align(fitted, TOKENIZER, SOURCES, TARGETS, align_with=rows) == expected
    fit = HeadFit(("output",), (0, 1), (0, 1, 2), np.ones((1, 2, 3)), 0.0, 0.0, 0.3, "mask")
    save_choice(fitted.name_or_path, AlignmentChoice(((1, 1),), "input", links="threshold:0.3", fit=fit))
    assert choice_in_use(fitted, "output") is not None
    assert choice_in_use(fitted, "input") is None


def test_what_does_not_go_with_a_fit_is_refused(fitted: Any) -> None:
    for choices, message in (
        ({"specials": "null"}, "specials is 'null', but the fit"),
        ({"weights": "norm"}, "weights is 'norm', but the fit"),
        ({"subwords": "links"}, "subwords is 'links', but the fit"),
        ({"heads": "fitted", "layer": 1}, "leave layer and align_with out"),
        ({"heads": "fitted", "align_with": "input"}, "leave layer and align_with out"),
        ({"heads": "best"}, "heads is 'best'; allowed are numbers, 'fitted'"),
    ):
        with pytest.raises(ValueError, match=message):
            align(fitted, TOKENIZER, SOURCES, TARGETS, **choices)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="give targets"):
        align(fitted, TOKENIZER, SOURCES)
    with pytest.raises(ValueError, match="no fit was saved"):
        align(tiny_model(vocab_size=73), TOKENIZER, SOURCES, TARGETS, heads="fitted")
    with pytest.raises(ValueError, match="must be 'mask' and 'matrix'"):
        AlignmentChoice(((0, 0),), "input", specials="null", fit=choice_in_use(fitted).fit)  # type: ignore[union-attr]


@pytest.mark.parametrize("head", [(0, 3), (2, 0), (5, 9)])
def test_a_choice_of_another_model_is_called_so(folder: Path, head: tuple[int, int]) -> None:
    save_choice(folder, AlignmentChoice((head, (1, 0)), "input"))
    with pytest.raises(ValueError, match=r"is of another model: (layer|head) \d .*remove its alignment.json"):
        align(load(folder), TOKENIZER, SOURCES, TARGETS)
    # Who asks for such a number is told so alone.
    with pytest.raises(ValueError, match=r"^head 7 does not exist"):
        align(load(folder), TOKENIZER, SOURCES, TARGETS, layer=0, heads=[7])


def test_descriptions_name_what_is_read() -> None:
    plain = tiny_model(vocab_size=73, alignment_layer=0, alignment_heads=[2, 1], alignment_rows="output")
    assert describe_heads(plain) == "rows output, layer 0, heads 2,1"
    assert describe_heads(plain, "input", 1) == "rows input, layer 1, heads mean of all"
    # Its own layer by its other number is still its own.
    assert describe_heads(plain, layer=-2) == "rows output, layer -2, heads 2,1"
