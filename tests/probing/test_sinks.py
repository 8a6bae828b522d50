"""How much weight rests on sinks, and the rule for final punctuation, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from families import family_model
from probes import byte_tokenizer, planted, subword_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import (
    SPECIALS,
    AttentionMaps,
    SinkTally,
    align,
    extract,
    final_punctuation,
    sink_report,
    to_word_links,
    to_words,
)
from hf_seq2seq_attn.probing.tokens import TokenizedText, tokenize


def side(words: list[str], structural: dict[str, str]) -> TokenizedText:
    """Return a text of one token a word; `structural` gives tokens put behind it, and their roles."""
    text = " ".join(words)
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    spans = [(int(start), int(start) + len(word)) for start, word in zip(starts, words, strict=False)]
    count = len(words) + len(structural)
    return TokenizedText(
        text,
        list(range(count)),
        [*words, *structural],
        [*spans, *[None] * len(structural)],
        words,
        [*range(len(words)), *[None] * len(structural)],
        ("word",) * len(words) + tuple(structural.values()),
    )


def maps_of(weights: list[list[float]], source: TokenizedText, target: TokenizedText) -> AttentionMaps:
    return AttentionMaps(np.array(weights, dtype=np.float32)[None, None], source, target, "input", (0,), (0,))


# Source: die Katze . </s> de_DE; target: the cat . </s>
SOURCE = side(["die", "Katze", "."], {"</s>": "end", "de_DE": "tag"})
TARGET = side(["the", "cat", "."], {"</s>": "end"})
WEIGHTS = [
    [0.10, 0.05, 0.50, 0.30, 0.05],
    [0.05, 0.15, 0.20, 0.50, 0.10],
    [0.05, 0.40, 0.25, 0.20, 0.10],
    [0.00, 0.00, 0.00, 1.00, 0.00],
]
MAPS = maps_of(WEIGHTS, SOURCE, TARGET)


def test_shares_are_means_over_the_rows_of_target_words() -> None:
    report = sink_report(MAPS)
    assert report.rows == 3
    np.testing.assert_allclose(report.shares["end"], [[(0.3 + 0.5 + 0.2) / 3]], atol=1e-6)
    np.testing.assert_allclose(report.shares["tag"], [[0.25 / 3]], atol=1e-6)
    # The target's own full stop may look at the source's.
    np.testing.assert_allclose(report.shares["punctuation"], [[(0.5 + 0.2) / 3]], atol=1e-6)
    assert not any(report.shares[name].any() for name in ("start", "padding", "prefix", "blank"))
    np.testing.assert_allclose(report.shares["null"], [[0]], atol=1e-6)
    np.testing.assert_allclose(report.total, [[(1 + 0.25 + 0.7) / 3]], atol=1e-6)
    assert report.to_dict()["rows"] == 3


def test_shares_of_several_pairs_weigh_each_row_alike() -> None:
    short = maps_of([[0.0, 1.0]], side(["a"], {"</s>": "end"}), side(["b"], {}))
    together = sink_report(iter([MAPS, short]))
    assert together.rows == 4
    np.testing.assert_allclose(together.shares["end"], [[2.0 / 4]], atol=1e-6)
    with pytest.raises(ValueError, match="give maps of the same heads"):
        sink_report([MAPS, replace(short, heads=(1,))])
    with pytest.raises(ValueError, match="no maps"):
        sink_report([])


def test_shares_per_layer_and_head_and_of_a_null_key() -> None:
    model = tiny_model(vocab_size=73, null_key=True)
    tokenizer = subword_tokenizer()
    for weights in ("attention", "norm", "raw_norm"):
        found = list(extract(model, tokenizer, ["the cats love."], ["you don't"], weights=weights))
        report = sink_report(found)
        assert report.total.shape == (len(report.layers), len(report.heads)) == found[0].weights.shape[:2]
        inside = ~np.array(found[0].target.structural)
        for layer in report.layers:
            for head in report.heads:
                rows, null = found[0].matrix(layer, [head])[inside], found[0].null_weights(layer, [head])[inside]
                total = rows.sum(1) + null
                assert report.shares["null"][layer, head] == pytest.approx((null / total).mean(), abs=1e-5)
                assert report.shares["end"][layer, head] == pytest.approx((rows[:, -1] / total).mean(), abs=1e-5)
        assert report.shares["null"].max() > 0.1
        assert report.shares["punctuation"].min() > 0


def test_a_tally_says_what_a_report_does() -> None:
    tally = SinkTally()
    tally.add(MAPS)
    assert tally.describe() == (
        "of the weight 33.3% rests on the end token, 8.3% rests on tags, 23.3% rests on final punctuation"
    )
    unseen = maps_of([[0.0, 1.0], [0.5, 0.5]], side(["a"], {"</s>": "end"}), side(["b", "c"], {}))
    other = SinkTally()
    other.add(unseen)
    tally.merge(other)
    assert (tally.rows, tally.words, tally.unlooked) == (5, 5, 1)
    assert tally.describe().endswith("; 1 of 5 target words have no weight on any source word")
    assert SinkTally().describe() == "of the weight nothing rests on sinks"


def test_align_counts_sinks() -> None:
    model, tokenizer, tally = family_model("pegasus", "sdpa"), subword_tokenizer(), SinkTally()
    sources, targets = ["the cats love today.", "I love cats"], ["love cats.", "you don't"]
    align(model, tokenizer, sources, targets, layer=[0, 2], sinks=tally)
    expected = []
    for maps in extract(model, tokenizer, sources, targets):
        inside = ~np.array(maps.target.structural)
        expected.extend(maps.matrix([0, 2])[inside, -1])
    assert tally.rows == len(expected)
    assert tally.masses["end"] == pytest.approx(np.sum(expected), rel=1e-5)


@pytest.mark.parametrize(
    "sentence", ["the cats.", ["the", "cats", "."], "the cats ?!", "σήμερα ;", "日本語。", "שלום׃", "today..."]
)
def test_final_punctuation_in_any_script(sentence: str | list[str]) -> None:
    for tokenizer in (byte_tokenizer(), subword_tokenizer()):
        (text,) = tokenize(tokenizer, [sentence])
        final = final_punctuation(text)
        covered = {position for span, is_final in zip(text.spans, final, strict=True) if is_final and span is not None
                   for position in range(*span)}  # fmt: skip
        surface = "".join(text.text[position] for position in sorted(covered)).strip()
        assert surface
        assert surface == text.text[len(text.text) - len(surface) :]
        assert not any(character.isalpha() for character in surface)
        assert not final[-1]


@pytest.mark.parametrize("sentence", ["the cats", "...", "", "don't", "( the cats ) today"])
def test_sentences_without_final_punctuation(sentence: str) -> None:
    (text,) = tokenize(byte_tokenizer(), [sentence])
    assert not final_punctuation(text).any()


def test_final_punctuation_looks_at_final_punctuation_and_nobody_else_does() -> None:
    assert to_word_links(MAPS) == {(2, 0), (2, 1), (1, 2)}
    words = to_words(MAPS, specials="mask+punctuation")
    np.testing.assert_allclose(words.weights, [[0.1, 0.05, 0], [0.05, 0.15, 0], [0, 0, 1]], atol=1e-6)
    for subwords in ("matrix", "links"):
        assert to_word_links(MAPS, specials="mask+punctuation", subwords=subwords) == {(0, 0), (1, 1), (2, 2)}
    scaled = to_words(MAPS, specials="renormalise+punctuation").weights
    np.testing.assert_allclose(scaled, [[2 / 3, 1 / 3, 0], [0.25, 0.75, 0], [0, 0, 1]], atol=1e-6)


def test_under_null_what_looks_at_final_punctuation_stays_unlinked() -> None:
    words = to_words(MAPS, specials="null+punctuation")
    assert words.null is not None
    np.testing.assert_allclose(words.null, [0.5, 0.5, 0], atol=1e-6)
    assert to_word_links(MAPS, specials="null+punctuation") == {(2, 2)}
    assert to_word_links(MAPS, specials="null+punctuation", subwords="links") == {(2, 2)}
    assert to_word_links(MAPS, specials="null") == {(2, 0), (1, 2)}


def test_without_punctuation_on_one_side() -> None:
    bare = side(["the", "cat", "sat"], {"</s>": "end"})
    # A target without any: nobody may look at the source's.
    no_target = maps_of(WEIGHTS, SOURCE, bare)
    assert to_word_links(no_target, specials="mask+punctuation") == {(0, 0), (1, 1), (1, 2)}
    no_source = maps_of(WEIGHTS, side(["die", "Katze", "da"], {"</s>": "end", "de_DE": "tag"}), TARGET)
    assert to_word_links(no_source, specials="mask+punctuation") == to_word_links(no_source)


def test_several_pieces_of_final_punctuation_share_the_weight() -> None:
    source, target = side(["a", "?", "!"], {}), side(["b", "."], {})
    maps = maps_of([[0.2, 0.5, 0.3], [0.4, 0.45, 0.15]], source, target)
    words = to_words(maps, specials="mask+punctuation")
    np.testing.assert_allclose(words.weights, [[0.2, 0, 0], [0, 0.75, 0.25]], atol=1e-6)
    # No weight at all on it: shared evenly.
    maps = maps_of([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]], source, target)
    np.testing.assert_allclose(to_words(maps, specials="mask+punctuation").weights[1], [0, 0.5, 0.5], atol=1e-6)


@pytest.mark.parametrize("specials", SPECIALS)
def test_blank_sides_under_every_policy(specials: str) -> None:
    blank = planted([[1.0]], [None], [None])
    assert to_words(blank, specials=specials).weights.shape == (0, 0)
    assert to_word_links(blank, specials=specials) == frozenset()
    assert sink_report(blank).rows == 0


def test_maps_whose_tokens_have_no_roles_are_told_by_place() -> None:
    report = sink_report(planted([[0.3, 0.5, 0.2]], [None, 0, None], [0]))
    assert report.shares["tag"] == pytest.approx(0.3)
    assert report.shares["end"] == pytest.approx(0.2)
