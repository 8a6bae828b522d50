"""What users of attention and alignment tools report in public, tried on ours; each test names its thread."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import family_model
from multilingual import marian_tokenizer, vocabulary_size
from probes import byte_tokenizer, foreign_model, subword_tokenizer, word_tokenizer
from transformers import MarianConfig, MarianMTModel
from variants import ATTENTIVE, tiny_model

from hf_seq2seq_attn.probing import SentenceError, align, extract, iterate_maps, walk_through, write_maps

Run = Callable[..., tuple[int, str, str]]
ROWS = pytest.mark.parametrize("align_with", ["output", "input"])


@ROWS
@pytest.mark.parametrize("family", ["bart", "ours", "ours-previous"])
def test_a_target_that_fills_every_position_keeps_its_last_row(family: str, align_with: str) -> None:
    """machine.py #261: with input rows the last token is lost at the greatest length."""
    if family == "bart":
        model, positions = foreign_model("bart"), 40
    elif family == "ours":
        model, positions = tiny_model(vocab_size=23, max_position_embeddings=9, position_embedding_type="learned"), 9
    else:
        model, positions = tiny_model(**ATTENTIVE["previous_state"]), None
    # The start token and the end token take a position each.
    words = [f"w{4 + n % 19}" for n in range((positions or 14) - 2)]
    (maps,) = extract(model, word_tokenizer(), ["w5 w6 w7"], [words], align_with=align_with)
    assert maps.target_tokens == [*words, "</s>"]
    assert maps.weights.shape[2] == len(words) + 1
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-5)
    if positions is not None:
        with pytest.raises(SentenceError, match=f"target sentence 1: .*max_position_embeddings={positions}"):
            list(extract(model, word_tokenizer(), ["w5"], [[*words, "w4"]], align_with=align_with))


@pytest.mark.parametrize("family", ["marian", "t5", "ours"])
def test_maps_take_one_pass_for_each_batch(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq #2173: alignments by a loop over tokens take longer than the translation itself."""
    model = tiny_model(vocab_size=23) if family == "ours" else foreign_model(family, "sdpa", vocabulary=23)
    passes: list[tuple[int, int]] = []
    forward = type(model).forward

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        passes.append(tuple(kwargs["decoder_input_ids"].shape))
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(model), "forward", counted)
    sentences = [" ".join(f"w{4 + (n + k) % 19}" for k in range(1 + n % 6)) for n in range(11)]
    assert len(align(model, word_tokenizer(), sentences, sentences[::-1], batch_size=4)) == 11
    assert sorted(rows for rows, _ in passes) == [3, 4, 4]


@pytest.mark.parametrize("broken", ["zero", "half"])
def test_weights_that_are_none_are_refused(broken: str) -> None:
    """sockeye #385: all weights in the output are 0, and no error."""
    model = foreign_model("marian")
    share = 0.0 if broken == "zero" else 0.5
    for layer in model.model.decoder.layers:
        layer.encoder_attn.register_forward_hook(lambda module, args, output: (output[0], output[1] * share))
    with pytest.raises(ValueError, match=r"not attention of .* with rows that sum to 1; this model cannot be probed"):
        list(extract(model, word_tokenizer(), ["w5"], ["w6"]))


@pytest.mark.parametrize("make", [subword_tokenizer, byte_tokenizer])
def test_a_model_with_more_ids_than_its_tokenizer(make: Callable[[], Any]) -> None:
    """OpenNMT-py #2490: a vocabulary padded for the machine's sake. Its ids may be generated: they have no text."""
    tokenizer = make()
    size = len(tokenizer)
    model = foreign_model("marian", "sdpa", vocabulary=size + 9)
    (given,) = extract(model, tokenizer, ["the cats love"], ["love cats"])
    assert given.target_words == ["love", "cats"] and "".join(given.target_tokens).endswith("</s>")
    with torch.no_grad():
        model.final_logits_bias[:, size + 5] = 1e9
    (maps,) = extract(model, tokenizer, ["the cats"], generate_kwargs={"max_new_tokens": 3})
    assert maps.target_tokens == [f"<{size + 5}>"] * 3 + ["</s>"]
    assert maps.target_words == [] and maps.target.text == ""
    assert maps.weights.shape[2] == 4
    assert align(model, tokenizer, ["the cats"]) == [frozenset()]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["marian", "ours", "recurrent"])
def test_maps_of_half_precision_are_written_whole(name: str, dtype: torch.dtype, tmp_path: Path, run: Run) -> None:
    """fairseq #3575: masks of -1e9 and overflow in what is exported."""
    fields = {} if name == "ours" else ATTENTIVE["gru-gru-additive"]
    model = family_model("marian") if name == "marian" else tiny_model(vocab_size=73, **fields)
    model, tokenizer = model.to(dtype), subword_tokenizer()
    sources, targets = ["the cats love today.", "I"], ["love cats the day, you don't", "you"]
    maps = list(extract(model, tokenizer, sources, targets, batch_size=2))
    for each in maps:
        assert each.weights.dtype == np.float32 and np.isfinite(each.weights).all()
        np.testing.assert_allclose(each.weights.sum(-1), 1, atol=0.02)
    write_maps(tmp_path / "maps.npz", maps)
    for one, other in zip(maps, iterate_maps(tmp_path / "maps.npz"), strict=True):
        np.testing.assert_array_equal(one.weights, other.weights)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    for side, lines in (("s", sources), ("t", targets)):
        Path(side).write_text("".join(line + "\n" for line in lines))
    code, _, err = run("align", "model", "s", "t", "-o", "links.jsonl")
    assert code == 0, err

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    for line in Path("links.jsonl").read_text().splitlines():
        links = json.loads(line, parse_constant=refuse)["links"]
        assert links and all(0 <= probability <= 1 for _, _, probability in links)


def test_a_marian_that_starts_with_padding(tmp_path: Path) -> None:
    """transformers PR #4290, #15343, CTranslate2 PR #865: `<pad>` is the start, and no token of the target; the code
    of a language is a token of the source."""
    tokenizer = marian_tokenizer(tmp_path, ">>deu<<", ">>fra<<")
    pad = tokenizer.pad_token_id
    config = MarianConfig(
        vocab_size=vocabulary_size(tokenizer), d_model=18, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=10,
        encoder_attention_heads=3, decoder_attention_heads=3, decoder_ffn_dim=14, pad_token_id=pad, eos_token_id=0,
        decoder_start_token_id=pad, forced_eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(2)
    model = MarianMTModel(config).eval()
    text = ">>fra<< the cats"
    for targets in (["love today."], None):
        (maps,) = extract(model, tokenizer, [text], targets, generate_kwargs=None if targets else {"max_new_tokens": 6})
        assert maps.start == pad
        assert "<pad>" not in maps.target_tokens
        assert maps.source_tokens[0] == ">>fra<<" and maps.source.roles[0] == "tag"
    walk = walk_through(model, tokenizer, text, "love today.", row=0)
    assert list(walk.read) == ["<pad>"]
