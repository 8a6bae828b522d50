import io
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)
from typer.testing import CliRunner

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.cli import app
from hf_seq2seq_attn.probing import align
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training.tokenization import train_tokenizer
from hf_seq2seq_attn.translation import Hypothesis, SentenceTooLongError, load_seq2seq, translate, translate_file

SENTENCES = ["ab cd ef gh", "", "ij", "  ", "kl mn ab cd ef gh ij"]


@pytest.fixture(scope="module", params=["ours", "marian", "bart", "t5"])
def model(request: pytest.FixtureRequest, toy_tokenizer: PreTrainedTokenizerFast) -> Any:
    torch.manual_seed(4)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": len(toy_tokenizer), "d_model": 12}
    if request.param == "ours":
        config = Seq2SeqAttnConfig(**ids, encoder_type="lstm", decoder_type="gru", encoder_layers=1, decoder_layers=1)
        model: Any = Seq2SeqAttnForConditionalGeneration(config)
    elif request.param == "t5":
        sizes = {"num_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "d_kv": 6, "d_ff": 8}
        model = T5ForConditionalGeneration(T5Config(**{**ids, "eos_token_id": 2}, **sizes, decoder_start_token_id=0))
    else:
        sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
        more: dict[str, Any] = {"max_position_embeddings": 20, "decoder_start_token_id": 0, "init_std": 0.5}
        config_class, model_class = {
            "marian": (MarianConfig, MarianMTModel),
            "bart": (BartConfig, BartForConditionalGeneration),
        }[request.param]
        # Without a forced end of its own, as our own models.
        model = model_class(config_class(**ids, **sizes, **more, forced_eos_token_id=None))
    # Sharp weights, so that different sources give different translations. Norms and positions stay.
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.8)
    return model.eval()


def has_positions(model: Any) -> bool:
    return model.config.model_type in ("marian", "bart")


def test_order_blanks_and_batches(model: Any, toy_tokenizer: PreTrainedTokenizerFast) -> None:
    together = translate(model, toy_tokenizer, SENTENCES, max_new_tokens=6, batch_size=2)
    assert len(together) == len(SENTENCES)
    assert (together[1], together[3]) == ("", "")
    alone = [translate(model, toy_tokenizer, [sentence], max_new_tokens=6)[0] for sentence in SENTENCES]
    assert together == alone
    assert len(set(together)) >= 3


def test_white_space_between_words_changes_nothing(model: Any, toy_tokenizer: PreTrainedTokenizerFast) -> None:
    spaced = ["  ab\tcd  ef gh", "ij\u00a0kl "]
    assert len(toy_tokenizer(spaced[0])["input_ids"]) != len(toy_tokenizer("ab cd ef gh")["input_ids"])
    found = translate(model, toy_tokenizer, spaced, max_new_tokens=6)
    assert found == translate(model, toy_tokenizer, ["ab cd ef gh", "ij kl"], max_new_tokens=6)


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
    positions = 20 if has_positions(model) else 10**6
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
    with pytest.raises(ValueError, match="max_new_tokens=0: must be at least 1"):
        translate(model, toy_tokenizer, ["ab"], max_new_tokens=0)
    with pytest.raises(ValueError, match=r"max_length=9: .* give max_new_tokens"):
        translate(model, toy_tokenizer, ["ab"], max_length=9)
    decoder_only: Any = SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=False))
    with pytest.raises(ValueError, match="not an encoder-decoder"):
        translate(decoder_only, toy_tokenizer, ["ab"])
    if has_positions(model):
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


def read_rows(text: str) -> list[tuple[str, set[tuple[int, int]]]]:
    rows = []
    for line in text.splitlines():
        translation, links = line.split("\t")
        rows.append((translation, {(int(i), int(j)) for i, j in (pair.split("-") for pair in links.split())}))
    return rows


def test_word_links_stand_beside_each_line(folder: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "text").write_text("\n".join(SENTENCES) + "\n")
    translate_file(folder, folder / "text", num_beams=2, align=align)
    captured = capsys.readouterr()
    rows = read_rows(captured.out)
    model, tokenizer = load_seq2seq(folder)
    texts = translate(model, tokenizer, SENTENCES, num_beams=2)
    assert [text for text, _ in rows] == texts
    # Nonsense, read anew as text, may have more tokens than a model has positions.
    fits = [not has_positions(model) or len(tokenizer(text)["input_ids"]) + 2 <= 20 for text in texts]
    assert ("translations have no links" in captured.err) == (not all(fits))
    readable = [text if fit else "" for text, fit in zip(texts, fits, strict=True)]
    assert [links for _, links in rows] == [set(links) for links in align(model, tokenizer, SENTENCES, readable)]
    assert rows[1] == rows[3] == ("", set())
    for sentence, text, (_, links) in zip(SENTENCES, readable, rows, strict=True):
        # By default each target word is linked to the source word that it looks at most.
        assert sorted(j for _, j in links) == list(range(len(text.split())))
        assert all(i < len(sentence.split()) for i, _ in links)

    translate_file(folder, folder / "text", num_beams=2, n_best=2, align=align)
    fields = [line.split(" ||| ") for line in capsys.readouterr().out.splitlines()]
    assert [len(each) for each in fields] == [4] * 8
    assert fields[0][3] == " ".join(f"{i}-{j}" for i, j in sorted(rows[0][1]))


def test_the_option_of_the_command(folder: Any) -> None:
    (folder / "text").write_text("ab cd\n\n")
    result = CliRunner().invoke(app, ["translate", str(folder), str(folder / "text"), "--alignments", "--beams", "1"])
    assert result.exit_code == 0, result.output
    assert [line.count("\t") for line in result.stdout.splitlines()] == [1, 1]


def test_a_model_without_attention_is_refused_before_it_translates(
    toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = {"encoder_type": "gru", "decoder_type": "gru", "encoder_layers": 1, "decoder_layers": 1}
    config = Seq2SeqAttnConfig(vocab_size=len(toy_tokenizer), d_model=12, cross_attention_type="none", **sides)
    Seq2SeqAttnForConditionalGeneration(config).save_pretrained(tmp_path)
    toy_tokenizer.save_pretrained(tmp_path)
    (tmp_path / "text").write_text("ab\n")
    with pytest.raises(InputError, match=r"text: .*cross_attention_type"):
        translate_file(tmp_path, tmp_path / "text", align=align)
    assert "translated" not in capsys.readouterr().err


def says(model: Any, monkeypatch: pytest.MonkeyPatch, ids: list[int]) -> None:
    """Let a model generate these ids, and then ends, whatever it reads; the limit holds."""

    def generate(**asked: Any) -> Any:
        rows = len(asked["input_ids"]) * asked["num_return_sequences"]
        said = [0, *ids[: asked["max_new_tokens"]]]
        return SimpleNamespace(sequences=torch.tensor([said] * rows), sequences_scores=torch.zeros(rows))

    monkeypatch.setattr(model, "generate", generate)


def test_what_the_limit_cuts_off_is_counted(
    model: Any, toy_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, caplog: Any, capsys: Any
) -> None:
    word = toy_tokenizer("ab")["input_ids"][:-1]
    says(model, monkeypatch, [*word, 2, 0, 0])
    assert translate(model, toy_tokenizer, ["ab", "", "cd"], num_beams=1) == ["ab", "", "ab"]
    assert not caplog.records
    # 14 new tokens fit: twice the source's two, plus 10. An end in the last place may have been forced.
    for ids in (word * 40, [*(word * 13), 2]):
        caplog.clear()
        says(model, monkeypatch, ids)
        assert translate(model, toy_tokenizer, ["ab", "", "cd"], num_beams=1)[0].startswith("ab")
        assert "2 of 3 translations were cut off" in caplog.text
    says(model, monkeypatch, word * 40)
    monkeypatch.setattr("hf_seq2seq_attn.translation.load_seq2seq", lambda name: (model, toy_tokenizer))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"ab\n\ncd\n")))
    translate_file("any", None, num_beams=1)
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 3
    assert "remark: 2 of 3 lines have a translation that was cut off at the limit of 2 times the source" in captured.err


def test_unknown_words_stay_visible_and_lines_stay_lines(
    model: Any, toy_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    word = toy_tokenizer("ab")["input_ids"][:-1]
    says(model, monkeypatch, [*word, toy_tokenizer.unk_token_id, *word, 2])
    assert translate(model, toy_tokenizer, ["ab"], num_beams=1) == ["ab<unk> ab"]
    lines = train_tokenizer(["ab\ncd\tef"], vocab_size=30)
    says(model, monkeypatch, lines("ab\ncd\tef")["input_ids"])
    monkeypatch.setattr("hf_seq2seq_attn.translation.load_seq2seq", lambda name: (model, lines))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"ab\n")))
    translate_file("any", None, num_beams=1)
    assert capsys.readouterr().out == "ab cd ef\n"


def test_a_hub_that_does_not_answer_is_the_reason_given() -> None:
    # The tests run with HF_HUB_OFFLINE=1.
    with pytest.raises(
        InputError, match=r"^nobody/nothing: .* \(the Hub cannot be reached, or HF_HUB_OFFLINE is set\)"
    ):
        load_seq2seq("nobody/nothing")


def test_bad_input_is_named(folder: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="nowhere: no encoder-decoder"):
        translate_file(tmp_path / "nowhere", folder / "config.json")
    with pytest.raises(InputError, match="--n-best 3: 2 beams"):
        translate_file(folder, None, num_beams=2, n_best=3)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"ab\n\xff\n")))
    with pytest.raises(InputError, match="stdin:2: not UTF-8"):
        translate_file(folder, None)
