import io
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.translation import Hypothesis, SentenceTooLongError, load_seq2seq, translate, translate_file

SENTENCES = ["ab cd ef gh", "", "ij", "  ", "kl mn ab cd ef gh ij"]


@pytest.fixture(scope="module", params=["ours", "marian"])
def model(request: pytest.FixtureRequest, toy_tokenizer: PreTrainedTokenizerFast) -> Any:
    torch.manual_seed(4)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": len(toy_tokenizer), "d_model": 12}
    if request.param == "ours":
        config = Seq2SeqAttnConfig(**ids, encoder_type="lstm", decoder_type="gru", encoder_layers=1, decoder_layers=1)
        model: Any = Seq2SeqAttnForConditionalGeneration(config)
    else:
        sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
        more: dict[str, Any] = {"max_position_embeddings": 20, "decoder_start_token_id": 0, "init_std": 0.5}
        model = MarianMTModel(MarianConfig(**ids, **sizes, **more))
    # Sharp weights, so that different sources give different translations. Norms and positions stay.
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.8)
    return model.eval()


def test_order_blanks_and_batches(model: Any, toy_tokenizer: PreTrainedTokenizerFast) -> None:
    together = translate(model, toy_tokenizer, SENTENCES, max_new_tokens=6, batch_size=2)
    assert len(together) == len(SENTENCES)
    assert (together[1], together[3]) == ("", "")
    alone = [translate(model, toy_tokenizer, [sentence], max_new_tokens=6)[0] for sentence in SENTENCES]
    assert together == alone
    assert len(set(together)) >= 3


def test_hypotheses_come_best_first(model: Any, toy_tokenizer: PreTrainedTokenizerFast) -> None:
    lists = translate(model, toy_tokenizer, SENTENCES, num_beams=5, num_return_sequences=3, max_new_tokens=6)
    assert [len(hypotheses) for hypotheses in lists] == [3, 1, 3, 1, 3]
    assert lists[1] == [Hypothesis("", 0.0)]
    for hypotheses in lists:
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
    best = translate(model, toy_tokenizer, SENTENCES, num_beams=5, max_new_tokens=6)
    assert [hypotheses[0].text for hypotheses in lists] == best


def test_default_limit_is_twice_the_source_plus_ten(
    model: Any, toy_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    generate = model.generate

    def watch(*args: Any, **kwargs: Any) -> Any:
        asked.append(kwargs["max_new_tokens"])
        return generate(*args, **kwargs)

    monkeypatch.setattr(model, "generate", watch)
    translate(model, toy_tokenizer, ["ab", "ab cd"], num_beams=1, batch_size=1)
    lengths = [len(toy_tokenizer(text)["input_ids"]) for text in ("ab cd", "ab")]
    positions = getattr(model.config, "max_position_embeddings", 0) if model.config.model_type == "marian" else 10**6
    assert asked == [min(2 * length + 10, positions - 1) for length in lengths]


def test_progress_and_training_mode(model: Any, toy_tokenizer: PreTrainedTokenizerFast) -> None:
    seen: list[tuple[int, int]] = []
    model.train()
    translate(
        model,
        toy_tokenizer,
        SENTENCES,
        num_beams=1,
        batch_size=2,
        max_new_tokens=3,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert model.training
    model.eval()
    assert seen == [(2, 3), (3, 3)]


def test_what_cannot_be_is_refused(model: Any, toy_tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match=r"num_return_sequences=3: must lie in 1\.\.num_beams=2"):
        translate(model, toy_tokenizer, ["ab"], num_beams=2, num_return_sequences=3)
    with pytest.raises(ValueError, match="batch_size=0"):
        translate(model, toy_tokenizer, ["ab"], batch_size=0)
    decoder_only: Any = SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=False))
    with pytest.raises(ValueError, match="not an encoder-decoder"):
        translate(decoder_only, toy_tokenizer, ["ab"])
    if model.config.model_type == "marian":
        with pytest.raises(SentenceTooLongError, match=r"sentence 2 has .* the model 20 positions"):
            translate(model, toy_tokenizer, ["ab", "ab " * 30])


@pytest.fixture
def folder(model: Any, toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Any) -> Any:
    model.save_pretrained(tmp_path / "model")
    toy_tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_file_is_translated_line_by_line(
    folder: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\n".join(SENTENCES) + "\n"
    (folder / "text").write_text(text)
    translate_file(folder, folder / "text", num_beams=2)
    lines = capsys.readouterr().out.splitlines()
    model, tokenizer = load_seq2seq(folder)
    assert lines == translate(model, tokenizer, SENTENCES, num_beams=2)

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode("utf-8-sig"))))
    translate_file(folder, None, num_beams=2, n_best=2)
    captured = capsys.readouterr()
    fields = [line.split(" ||| ") for line in captured.out.splitlines()]
    assert [int(number) for number, _, _ in fields] == [0, 0, 1, 2, 2, 3, 4, 4]
    assert all(float(score) <= 0 for _, _, score in fields)
    assert "translated 3/3" in captured.err


def test_bad_input_is_named(folder: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="nowhere: no encoder-decoder"):
        translate_file(tmp_path / "nowhere", folder / "config.json")
    with pytest.raises(InputError, match="--n-best 3: 2 beams"):
        translate_file(folder, None, num_beams=2, n_best=3)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"ab\n\xff\n")))
    with pytest.raises(InputError, match="stdin:2: not UTF-8"):
        translate_file(folder, None)
