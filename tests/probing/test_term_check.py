"""Terms and what they were rendered by."""

from pathlib import Path

import pytest

from hf_seq2seq_attn.probing.bitext import BitextLine
from hf_seq2seq_attn.probing.term_check import Term, TermChecker, is_inflected, normalised, read_terms, summarise
from hf_seq2seq_attn.probing.verses import Verse
from hf_seq2seq_attn.text_files import InputError


def line(source: str, target: str, links: set[tuple[int, int]], **more: object) -> BitextLine:
    verse = Verse(3, (source, target), "GEN 1:3")
    return BitextLine(verse, source.split(), target.split(), frozenset(links), **more)  # type: ignore[arg-type]


def terms(**renderings: str) -> list[Term]:
    """Return terms, `_` for a space in the source, `|` between renderings."""
    return [
        Term(tuple(source.split("_")), tuple(tuple(each.split()) for each in allowed.split("|")))
        for source, allowed in renderings.items()
    ]


def test_verdicts() -> None:
    checker = TermChecker(terms(geist="spirit|ghost", herr="Lord"))
    found = list(
        checker.check(
            line("Geist herr, (Geist) geist der", "spirits sir the wind ghost", {(0, 0), (1, 1), (2, 2), (2, 3)})
        )
    )
    assert [(each.term, each.source, each.positions, each.verdict) for each in found] == [
        ("geist", "Geist", (0,), "allowed"),
        ("herr", "herr,", (1,), "otherwise"),
        ("geist", "(Geist)", (2,), "otherwise"),
        ("geist", "geist", (3,), "unaligned"),
    ]
    assert [(each.rendering, each.matched, each.elsewhere, each.confidence) for each in found] == [
        ("spirits", "spirit", None, 1),
        ("sir", None, None, 1),
        ("the wind", None, "spirit", 1),
        ("", None, "spirit", 0),
    ]
    assert (found[0].line, found[0].verse_id) == (3, "GEN 1:3")
    counts = summarise(found, terms(geist="x", herr="x", gott="x"))
    assert {name: dict(each) for name, each in counts.items()} == {
        "geist": {"allowed": 1, "otherwise": 1, "unaligned": 1},
        "herr": {"otherwise": 1},
        "gott": {},
    }


def test_multi_word_terms_and_renderings() -> None:
    checker = TermChecker(terms(reich_gottes="kingdom of God", reich="empire", auf_stehen="get up"))
    first, second, third = checker.check(
        # One linked word of a rendering that stands there is enough; a rendering may also come apart.
        line("Reich Gottes reich auf stehen", "God's kingdom of God get him up", {(1, 3), (3, 4), (4, 6)})
    )
    assert (first.term, first.verdict, first.matched, first.confidence) == (
        "reich gottes",
        "allowed",
        "kingdom of God",
        0.5,
    )
    # The shorter term is not counted inside the longer one.
    assert (second.term, second.positions, second.verdict) == ("reich", (2,), "unaligned")
    assert (third.rendering, third.verdict) == ("get … up", "allowed")
    # The words of a rendering elsewhere, none of them linked to the term.
    (apart,) = TermChecker(terms(a="x y")).check(line("a", "x y z", {(0, 2)}))
    assert (apart.verdict, apart.elsewhere) == ("otherwise", "x y")


def test_lemmas_on_both_sides() -> None:
    checker = TermChecker(terms(gehen="go"))
    given = line(
        "ging geht", "went ran", {(0, 0), (1, 1)}, source_lemmas=["gehen", "Gehen"], target_lemmas=["go", "run"]
    )
    assert [each.verdict for each in checker.check(given)] == ["allowed", "otherwise"]
    assert list(checker.check(line("ging", "went", {(0, 0)}))) == []


def test_confidence_is_the_probability_of_the_best_link() -> None:
    checker = TermChecker(terms(a_b="x"))
    links, probabilities = {(0, 0), (0, 1), (1, 1)}, {(0, 0): 0.5, (0, 1): 0.8, (1, 1): 0.2}
    (found,) = checker.check(line("a b", "x y", links, probabilities=probabilities))
    assert found.confidence == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("baptize", "baptized", True),
        ("disciple", "disciples", True),
        ("king", "kingdom", False),
        ("king", "king", True),
        ("son", "sons", False),
        ("love", "loved", True),
        ("lovely", "love", False),
        ("righteous", "righteousness", False),
    ],
)
def test_the_rule_for_inflection(one: str, other: str, same: bool) -> None:
    assert is_inflected(one, other) is is_inflected(other, one) is same


def test_forms() -> None:
    assert [normalised(word) for word in ("“God’s”,", "...", "it's", "e\u0301", "'s")] == ["God", "...", "it", "é", "s"]
    (found,) = TermChecker(terms(x="God"), match_case=True).check(line("X", "god", {(0, 0)}))
    assert found.verdict == "otherwise"


def test_read_terms(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("# comment\nsohn gottes\tSon of God | Son  of God\tnote\n\nherr\tLord\nherr\tSir|Lord\n")
    assert read_terms(path) == [
        Term(("sohn", "gottes"), (("Son", "of", "God"),)),
        Term(("herr",), (("Lord",), ("Sir",))),
    ]


@pytest.mark.parametrize("content", ["herr", "a\tb\nherr\t", "herr\tLord||Sir", "\tLord"])
def test_bad_terms_are_named_with_their_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(content + "\n")
    with pytest.raises(InputError, match=rf"terms.tsv:{content.count(chr(10)) + 1}: .* is no term"):
        read_terms(path)
    path.write_text("# nothing\n")
    with pytest.raises(InputError, match=r"terms.tsv: no term in it"):
        read_terms(path)
