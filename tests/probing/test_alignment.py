"""The pipeline: N pairs in, N link sets out, every index in its sentence, on the layer, head and rows asked for."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probes import SENTENCES, foreign_model, subword_tokenizer, word_tokenizer
from variants import tiny_model

from hf_seq2seq_attn.probing import SPECIALS, SUBWORDS, Aligner, Reading, align, alignment_heads, extract, to_word_links

TOKENIZER = subword_tokenizer()
MODEL = foreign_model("marian", "sdpa")
LINES = st.lists(st.sampled_from(["cats", "unloved", "日本語", "don't", " ", "", "today.", "\u200b", "\t"]), max_size=7)


@given(
    pairs=st.lists(st.tuples(LINES, LINES, st.booleans()), max_size=5),
    specials=st.sampled_from(SPECIALS),
    subwords=st.sampled_from(SUBWORDS),
    links=st.sampled_from(["argmax", "mutual", "threshold:0.3"]),
)
@settings(max_examples=40)
def test_n_in_n_out_and_indices_in_bounds(pairs: list[Any], specials: str, subwords: str, links: str) -> None:
    sources = [list(source) if as_list else " ".join(source) for source, _, as_list in pairs]
    targets = [list(target) if as_list else " ".join(target) for _, target, as_list in pairs]
    found = align(MODEL, TOKENIZER, sources, targets, specials=specials, subwords=subwords, links=links, batch_size=2)
    assert len(found) == len(pairs)
    for source, target, pair in zip(sources, targets, found, strict=True):
        rows, columns = (len(side.split()) if isinstance(side, str) else len(side) for side in (target, source))
        assert all(0 <= i < columns and 0 <= j < rows for i, j in pair)


def test_blank_lines_give_no_links_and_mask_links_every_word() -> None:
    found = align(MODEL, TOKENIZER, ["the cats", "", "love", " "], ["cats love", "day", "", ""])
    assert found[1:] == [frozenset()] * 3
    assert {j for _, j in found[0]} == {0, 1}


def test_copying_model_aligns_the_diagonal_on_its_rows_only() -> None:
    """An attention planted in real weights: position t looks at source position t."""
    model = tiny_model(seed=0, sharp=None, encoder_layers=1, decoder_layers=1, vocab_size=23, d_model=12)
    tokenizer = word_tokenizer()
    words = [f"w{n}" for n in (5, 9, 14, 7, 20)]
    plant_lookup(model)
    diagonal = {(i, i) for i in range(5)}
    assert align(model, tokenizer, [words], [words], align_with="input") == [diagonal]
    shifted = align(model, tokenizer, [words], [words], align_with="output")[0]
    assert {(i, i + 1) for i in range(4)} <= shifted
    assert not diagonal & {link for link in shifted if link[1] > 0}


def plant_lookup(model: Any) -> None:
    """Make the cross-attention compare token embeddings: every decoder position looks at its own input's word."""
    attention_model = model.model
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.weight.fill_(1)
                module.bias.zero_()
        for name, parameter in model.named_parameters():
            # Residual branches add nothing, so states are normalised embeddings.
            if name.endswith(("out_proj.weight", "fc2.weight", "out_proj.bias", "fc2.bias")):
                parameter.zero_()
    cross = [
        module for name, module in attention_model.named_modules() if hasattr(module, "k_proj") and "self" not in name
    ]
    embeddings = [module for module in attention_model.modules() if isinstance(module, torch.nn.Embedding)]
    with torch.no_grad():
        for table in embeddings:
            table.weight.normal_(std=4.0)
        for module in cross:
            module.q_proj.weight.copy_(torch.eye(12) * 3)
            module.k_proj.weight.copy_(torch.eye(12) * 3)
            if module.q_proj.bias is not None:
                module.q_proj.bias.zero_()


def test_defaults_come_from_the_config() -> None:
    model = tiny_model(vocab_size=73, alignment_layer=0, alignment_heads=[1], alignment_rows="output")
    sources, targets = SENTENCES[:2], SENTENCES[1:3]
    expected = [
        to_word_links(maps, layer=0, heads=[1])
        for maps in extract(model, TOKENIZER, sources, targets, align_with="output")
    ]
    assert align(model, TOKENIZER, sources, targets) == expected
    other = [to_word_links(maps, layer=1) for maps in extract(model, TOKENIZER, sources, targets, align_with="input")]
    assert align(model, TOKENIZER, sources, targets, layer=1, align_with="input") == other != expected


def test_layer_and_heads_that_are_read() -> None:
    plain, chosen = tiny_model().config, tiny_model(alignment_layer=0, alignment_heads=[2, 1]).config
    assert alignment_heads(plain) == (-1, None)
    assert alignment_heads(chosen) == (0, [2, 1])
    assert alignment_heads(chosen, 0) == (0, [2, 1])
    # The config's heads are those of its own layer.
    assert alignment_heads(chosen, 1) == (1, None)
    assert alignment_heads(chosen, None, [0]) == (0, [0])


def test_progress_counts_pairs() -> None:
    seen: list[tuple[int, int]] = []
    align(MODEL, TOKENIZER, SENTENCES, SENTENCES, batch_size=3, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_batching_changes_nothing() -> None:
    one = align(MODEL, TOKENIZER, SENTENCES, SENTENCES[::-1], batch_size=1)
    assert align(MODEL, TOKENIZER, SENTENCES, SENTENCES[::-1], batch_size=4) == one
    assert len(set(one)) > 1


@pytest.mark.parametrize(
    "choice", [{"specials": "drop"}, {"subwords": "max"}, {"links": "best"}, {"align_with": "both"}]
)
def test_unknown_choices_are_refused_before_the_model_runs(choice: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(choice))} is .*allowed are"):
        align(MODEL, TOKENIZER, [], [], **choice)


def test_no_pairs() -> None:
    assert align(MODEL, TOKENIZER, [], []) == []
    assert np.array(list(extract(MODEL, TOKENIZER, [], []))).size == 0


@pytest.mark.parametrize("subwords", SUBWORDS)
def test_hmm_learns_its_jumps_from_the_pairs(subwords: str) -> None:
    sources, targets = [*SENTENCES, "the day", ""], [*SENTENCES[1:], "I love", "cats", "day"]
    aligner = Aligner((MODEL, TOKENIZER), reading=Reading(links="hmm", subwords=subwords))
    found = align(MODEL, TOKENIZER, sources, targets, links="hmm", subwords=subwords)
    learned = aligner.align(sources, targets, aligner.learn(sources, targets))
    assert found == [each.pair.gold.sure for each in learned]
    assert found != [each.pair.gold.sure for each in aligner.align(sources, targets)]
