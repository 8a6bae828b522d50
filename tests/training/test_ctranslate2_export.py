"""Exported models give what the models themselves give: scores, tokens, attention."""

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel, PreTrainedTokenizerFast
from typer.testing import CliRunner

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.cli import app
from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer, TokenizerPair, sides
from hf_seq2seq_attn.training.tokenization import train_tokenizer
from hf_seq2seq_attn.translation import SentenceTooLongError, translate

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs pip install 'hf-seq2seq-attn[ctranslate2]'")
from hf_seq2seq_attn.training import ctranslate2_export  # noqa: E402
from hf_seq2seq_attn.training.ctranslate2_export import (  # noqa: E402
    ctranslate2_agreement,
    export_ctranslate2,
)

WORDS = ("ab", "cd", "ef", "gh", "ij", "kl", "mn")
VARIANTS: dict[str, dict[str, Any]] = {
    "post_norm": {},
    "pre_norm": dict(normalize_before=True),
    "learned": dict(position_embedding_type="learned", max_position_embeddings=40),
    "no_embedding_scale": dict(scale_embedding=False),
    "untied": dict(tie_word_embeddings=False),
    "unscaled_scores": dict(scale_scores=False),
    "two_vocabularies": dict(share_encoder_decoder_embeddings=False),
    "two_vocabularies_untied": dict(share_encoder_decoder_embeddings=False, tie_word_embeddings=False),
    "odd_sizes": dict(encoder_layers=1, decoder_layers=3, encoder_attention_heads=2, decoder_attention_heads=6),
    "start_is_padding": dict(decoder_start_token_id=0, normalize_before=True),
    **{name: dict(activation_function=name) for name in ctranslate2_export.ACTIVATIONS if name != "relu"},
}


@pytest.fixture(scope="module")
def pair() -> TokenizerPair:
    return TokenizerPair(
        train_tokenizer(WORDS, vocab_size=60), train_tokenizer([word.upper() for word in WORDS[:5]], vocab_size=60)
    )


def build(tokenizer: AnyTokenizer, **fields: Any) -> Seq2SeqAttnForConditionalGeneration:
    """Return a random model, far from uniform, with three ids more than its tokenizer on each side."""
    torch.manual_seed(3)
    source, target = sides(tokenizer)
    sizes: dict[str, Any] = dict(vocab_size=len(source) + 3, d_model=24, encoder_layers=2, decoder_layers=2)
    sizes |= dict(
        encoder_ffn_dim=30,
        decoder_ffn_dim=20,
        max_position_embeddings=60,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
    )
    if target is not source:
        sizes["decoder_vocab_size"] = len(target) + 3
    model = Seq2SeqAttnForConditionalGeneration(Seq2SeqAttnConfig(**sizes | {"init_std": 0.5} | fields))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


def learn_to_reverse(model: Any, tokenizer: AnyTokenizer, pairs: list[tuple[list[str], list[str]]]) -> None:
    source, target = sides(tokenizer)
    texts = source([" ".join(words) for words, _ in pairs], padding=True, return_tensors="pt")
    labels = target([" ".join(words) for _, words in pairs], padding=True, return_tensors="pt")["input_ids"]
    labels = labels.masked_fill(labels == target.pad_token_id, -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.train()
    for step in range(140):
        part = slice(step * 32 % len(labels), step * 32 % len(labels) + 32)
        inputs = {"input_ids": texts["input_ids"][part], "attention_mask": texts["attention_mask"][part]}
        model(**inputs, labels=labels[part]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


TRAINED: dict[str, dict[str, Any]] = {
    "post_norm": {},
    "pre_norm_learned_gelu": dict(normalize_before=True, position_embedding_type="learned", activation_function="gelu"),
    "two_vocabularies_untied": dict(
        share_encoder_decoder_embeddings=False, tie_word_embeddings=False, scale_embedding=False
    ),
}


@pytest.fixture(scope="module", params=TRAINED)
def trained(
    request: pytest.FixtureRequest, pair: TokenizerPair, toy_tokenizer: Any, reversed_pairs: Any
) -> tuple[Seq2SeqAttnForConditionalGeneration, AnyTokenizer]:
    fields = TRAINED[request.param]
    tokenizer: AnyTokenizer = pair if "share_encoder_decoder_embeddings" in fields else toy_tokenizer
    model = build(tokenizer, dropout=0.0, init_std=None, **fields)
    learn_to_reverse(model, tokenizer, reversed_pairs(320, 1, 5))
    return model, tokenizer


def scores_by_the_model(model: Any, source: list[int], target: list[int]) -> torch.Tensor:
    labels = torch.tensor([[*target, model.config.eos_token_id]])
    with torch.no_grad():
        logits = model(torch.tensor([source]), labels=labels).logits
    return logits.log_softmax(-1)[0].gather(1, labels[0][:, None])[:, 0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_are_the_model_s(
    variant: str, pair: TokenizerPair, toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    fields = {"dropout": 0.0, **VARIANTS[variant]}
    tokenizer: AnyTokenizer = pair if "share_encoder_decoder_embeddings" in fields else toy_tokenizer
    model = build(tokenizer, **fields)
    export_ctranslate2(model, tokenizer, tmp_path / "out")
    translator = ctranslate2.Translator(str(tmp_path / "out"))
    source, target = sides(tokenizer)
    texts = ["ab cd kl", "mn gh ef ab ij ef cd", "ij"]
    answers = [target(text.upper())["input_ids"][:-1] for text in ("ef", "ab ij ef gh", "cd gh ab ab ab")]
    for text, answer in zip(texts, answers, strict=True):
        ids = source(text)["input_ids"]
        tokens = source.convert_ids_to_tokens(ids), target.convert_ids_to_tokens(answer)
        found = translator.score_batch([tokens[0]], [tokens[1]])[0].log_probs
        torch.testing.assert_close(torch.tensor(found), scores_by_the_model(model, ids, answer), atol=2e-4, rtol=1e-4)


def test_tokens_are_the_model_s_greedily_and_by_beams(trained: Any, reversed_pairs: Any, tmp_path: Path) -> None:
    model, tokenizer = trained
    export_ctranslate2(model, tokenizer, tmp_path / "out")
    sentences = [" ".join(words) for words, _ in reversed_pairs(20, 2, 9)] + [""]
    assert len(set(translate(model, tokenizer, sentences, num_beams=1))) > 10
    for beams in (1, 5):
        found = ctranslate2_agreement(model, tokenizer, tmp_path / "out", sentences, beams)
        assert found.sentences == found.equal == 20
        assert found.tokens == found.in_place > 60


def test_what_the_model_never_writes_its_export_does_not_write(trained: Any, tmp_path: Path) -> None:
    model, tokenizer = trained
    export_ctranslate2(model, tokenizer, tmp_path / "out")
    sentences = ["ab cd ef gh", "kl mn ij", "ef ef ab"]
    before = translate(model, tokenizer, sentences)
    # As `train` does with padding: here tokens that the model would write.
    target = sides(tokenizer)[1]
    often = target(" ".join(before[0].split()[:2]))["input_ids"][:-1]
    model.generation_config.suppress_tokens = often
    try:
        assert all(text != old for text, old in zip(translate(model, tokenizer, sentences[:1]), before, strict=False))
        options = ctranslate2_export.search_options(model, tokenizer)
        assert options["suppress_sequences"] == [[token] for token in target.convert_ids_to_tokens(often)]
        assert repr(options["suppress_sequences"]) in ctranslate2_export.how_to_translate(model, tokenizer, tmp_path)
        found = ctranslate2_agreement(model, tokenizer, tmp_path / "out", sentences, 1)
        assert found.sentences == found.equal == 3
        tokens = [
            sides(tokenizer)[0].convert_ids_to_tokens(sides(tokenizer)[0](text)["input_ids"]) for text in sentences
        ]
        translator = ctranslate2.Translator(str(tmp_path / "out"))
        for result in translator.translate_batch(tokens, beam_size=5, **options):
            assert not set(target.convert_ids_to_tokens(often)) & set(result.hypotheses[0])
    finally:
        model.generation_config.suppress_tokens = None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("forced_bos_token_id", 0),
        ("no_repeat_ngram_size", 2),
        ("length_penalty", 0.6),
        ("min_length", 3),
        ("early_stopping", True),
        ("eos_token_id", [2, 5]),
        ("decoder_start_token_id", 4),
    ],
)
def test_a_search_that_the_engine_does_not_do_is_refused_by_name(
    field: str, value: Any, toy_tokenizer: Any, tmp_path: Path
) -> None:
    model = build(toy_tokenizer)
    setattr(model.generation_config, field, value)
    with pytest.raises(
        UnusableError, match=rf"^generation_config\.{field}={re.escape(repr(value))}: CTranslate2 has only"
    ):
        export_ctranslate2(model, toy_tokenizer, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_search_as_train_leaves_it_is_exported(toy_tokenizer: Any, tmp_path: Path) -> None:
    model = build(toy_tokenizer)
    model.generation_config = GenerationConfig(
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, max_length=9, suppress_tokens=[0]
    )
    export_ctranslate2(model, toy_tokenizer, tmp_path / "out")
    model.save_pretrained(tmp_path / "model")
    again = Seq2SeqAttnForConditionalGeneration.from_pretrained(tmp_path / "model")
    padding = [[toy_tokenizer.convert_ids_to_tokens(0)]]
    assert ctranslate2_export.search_options(again, toy_tokenizer)["suppress_sequences"] == padding


def test_attention_is_read_where_the_config_says(toy_tokenizer: Any, tmp_path: Path) -> None:
    model = build(toy_tokenizer, alignment_layer=0, decoder_layers=3, decoder_attention_heads=6)
    export_ctranslate2(model, toy_tokenizer, tmp_path / "out")
    ids = toy_tokenizer("ab cd kl gh")["input_ids"]
    tokens = toy_tokenizer.convert_ids_to_tokens(ids)
    translator = ctranslate2.Translator(str(tmp_path / "out"))
    found = translator.translate_batch([tokens], beam_size=1, max_decoding_length=4, return_attention=True)[0]
    rows = torch.tensor(found.attention[0])
    start = [model.config.decoder_start_token_id]
    target = torch.tensor([start + toy_tokenizer.convert_tokens_to_ids(found.hypotheses[0])])[:, : len(rows)]
    with torch.no_grad():
        maps = model(torch.tensor([ids]), decoder_input_ids=target, output_attentions=True).cross_attentions
    torch.testing.assert_close(rows, maps[0][0].mean(0), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("encoder_type", "gru"),
        ("decoder_type", "lstm"),
        ("cross_attention_type", "additive"),
        ("cross_attention_heads", 2),
        ("cross_attention_dim", 12),
        ("null_key", True),
        ("activation_function", "mish"),
        ("eos_token_id", [2, 5]),
    ],
)
def test_what_the_engine_cannot_hold_is_refused_by_name(
    field: str, value: Any, toy_tokenizer: Any, tmp_path: Path
) -> None:
    model = build(toy_tokenizer, **{field: value})
    with pytest.raises(UnusableError, match=rf"^{field}={re.escape(repr(value))}: .*seq2seq-attn translate"):
        export_ctranslate2(model, toy_tokenizer, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_model_of_the_library_is_sent_to_the_engine_s_own_command(toy_tokenizer: Any, tmp_path: Path) -> None:
    sizes = dict(vocab_size=31, d_model=4, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=4, decoder_ffn_dim=4)
    heads = dict(encoder_attention_heads=1, decoder_attention_heads=1, pad_token_id=0, decoder_start_token_id=0)
    with pytest.raises(UnusableError, match=r"model_type='marian'.*ct2-transformers-converter"):
        export_ctranslate2(MarianMTModel(MarianConfig(**sizes, **heads)), toy_tokenizer, tmp_path / "out")


def test_a_folder_is_written_whole_or_not_at_all(
    toy_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(toy_tokenizer)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    with pytest.raises(InputError, match=r"full: there is something already"):
        export_ctranslate2(model, toy_tokenizer, tmp_path / "full")
    with pytest.raises(UnusableError, match=r"quantization='int4': choose one of int8"):
        export_ctranslate2(model, toy_tokenizer, tmp_path / "out", "int4")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(toy_tokenizer, "save_pretrained", fail)
        with pytest.raises(InputError, match=r"out: cannot be written \(No space left"):
            export_ctranslate2(model, toy_tokenizer, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    (tmp_path / "empty").mkdir()
    export_ctranslate2(model, toy_tokenizer, tmp_path / "empty")
    assert (tmp_path / "empty" / "model.bin").is_file()


@pytest.mark.parametrize("quantization", ["int8", "int16", "float32"])
def test_the_model_stays_what_it_is(quantization: str, toy_tokenizer: Any, tmp_path: Path) -> None:
    model = build(toy_tokenizer)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    export_ctranslate2(model, toy_tokenizer, tmp_path / "out", quantization)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_every_id_has_a_name_of_its_own(pair: TokenizerPair, tmp_path: Path) -> None:
    model = build(pair, share_encoder_decoder_embeddings=False)
    export_ctranslate2(model, pair, tmp_path / "out")
    for side, tokenizer, size in (
        ("source", pair.source, model.config.vocab_size),
        ("target", pair.target, model.config.decoder_vocab_size),
    ):
        names = json.loads((tmp_path / "out" / f"{side}_vocabulary.json").read_text())
        assert len(set(names)) == len(names) == size
        assert names[: len(tokenizer)] == tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))


def test_a_token_with_the_name_of_an_unused_id_is_refused(toy_tokenizer: Any) -> None:
    tokenizer = copy.deepcopy(toy_tokenizer)
    size = len(tokenizer) + 3
    tokenizer.add_tokens([f"<unused{size - 1}>"])
    with pytest.raises(
        UnusableError, match=rf"'<unused{size - 1}>' is a token, but is to name the unused id {size - 1}"
    ):
        ctranslate2_export._tokens(tokenizer, size)


def test_the_command_says_how_to_translate_and_how_far_int8_agrees(trained: Any, tmp_path: Path) -> None:
    model, tokenizer = trained
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    text = tmp_path / "text"
    text.write_text("ab cd ef\n\nef gh ij ab\n", encoding="utf-8")
    options = ["-o", str(tmp_path / "out"), "--quantization", "int8", "--compare", str(text), "--beams", "2"]
    result = CliRunner().invoke(app, ["export", str(tmp_path / "model"), *options])
    assert result.exit_code == 0, result.output
    code, _, remark = result.stdout.partition("\n\n# ")
    counts = re.search(r"beam 2: (\d+) of 2 translations are the model's own, (\d+) of (\d+) tokens", remark)
    assert counts is not None
    assert 0 <= int(counts[1]) <= 2 and 0 <= int(counts[2]) <= int(counts[3])
    export_ctranslate2(model, tokenizer, tmp_path / "exact")
    assert (tmp_path / "out" / "model.bin").stat().st_size < (tmp_path / "exact" / "model.bin").stat().st_size * 0.6

    code = code.replace(str(tmp_path / "out"), str(tmp_path / "exact")).replace("Your sentence.", "ab cd ef")
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == translate(model, tokenizer, ["ab cd ef"], num_beams=5)[0]


def test_a_sentence_without_positions_is_refused_with_its_line(toy_tokenizer: Any, tmp_path: Path) -> None:
    model = build(toy_tokenizer, max_position_embeddings=5)
    export_ctranslate2(model, toy_tokenizer, tmp_path / "out")
    with pytest.raises(SentenceTooLongError, match=r"sentence 3 has \d+ tokens, the model 5 positions"):
        ctranslate2_agreement(model, toy_tokenizer, tmp_path / "out", ["ab", "", "ab cd ef gh ij kl mn"])


def test_the_command_refuses_in_a_line(toy_tokenizer: Any, tmp_path: Path) -> None:
    model = build(toy_tokenizer, cross_attention_type="additive")
    model.save_pretrained(tmp_path / "model")
    toy_tokenizer.save_pretrained(tmp_path / "model")
    result = CliRunner().invoke(app, ["export", str(tmp_path / "model"), "-o", str(tmp_path / "out")])
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"{tmp_path / 'model'}: cross_attention_type='additive': ")
