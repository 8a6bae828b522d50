"""The report as its users call it: on files, on a run, and at the end of training."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from probes import foreign_model, subword_tokenizer
from transformers import GPT2Config, GPT2LMHeadModel
from variants import tiny_model

from hf_seq2seq_attn import cli
from hf_seq2seq_attn.probing import SentenceError
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training import report_commands
from hf_seq2seq_attn.training.card import link_report, write_card
from hf_seq2seq_attn.training.data_recipe import Corpus, CorpusDataset, CorpusFiles, CorpusTable
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.report import report_page
from hf_seq2seq_attn.training.train import train
from hf_seq2seq_attn.translation import SentenceTooLongError

Command = Callable[..., tuple[int, str, str]]
QUICK = ("--beams", 1, "--head-pairs", 2, "--faithfulness-pairs", 1, "--shown", 1)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """Run the command line in a folder with a model and a test set; return exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    Path("s").write_text("the cats love\n\nI love cats\nlove\n")
    Path("t").write_text("I love cats\n\nthe day\nlove\n")
    Path("gold").write_text("0-0 1-2\n\n1-1\n0-0\n")
    Path("m").mkdir()
    model = tiny_model(vocab_size=73, max_position_embeddings=20, position_embedding_type="learned")
    model.save_pretrained("m")
    subword_tokenizer().save_pretrained("m")

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["seq2seq-attn", "report", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return run


def test_a_page_and_its_figures(command: Command) -> None:
    code, out, _ = command("m", "s", "t", "--gold", "gold", "-o", "r.html", *QUICK)
    assert code == 0
    names = [line.split()[0] for line in out.splitlines()]
    assert names == ["chrf", "bleu", "aer", "precision", "recall", "f1", "REPORT"]
    assert "<h1>Report: m</h1>" in Path("r.html").read_text(encoding="utf-8")
    code, out, _ = command("m", "s", "t", "--gold", "gold", "-o", "r.html", "--json", "--limit", 3, *QUICK)
    figures = json.loads(out)
    assert (code, figures["data"]["pairs"], figures["alignment"]["sentences"]) == (0, 3, 3)
    assert set(figures["data"]["files"]) == {"source", "target", "gold"}
    assert "tok:13a" in figures["translation"]["scores"]["bleu"]["signature"]


def test_a_foreign_model_with_choices(command: Command) -> None:
    foreign_model("marian").save_pretrained("f")
    subword_tokenizer().save_pretrained("f")
    choices = ("--layer", "1", "--heads", "0,2", "--align-with", "output", "--metrics", "wer,chrf", "--seed", 5)
    code, out, _ = command("f", "s", "t", "-o", "r.html", "--json", *choices, *QUICK)
    figures = json.loads(out)
    assert code == 0
    assert figures["alignment"]["reading"].startswith("rows output, layer 1, heads 0,2")
    assert figures["faithfulness"]["heads"] == [[1, 0], [1, 2]]
    assert list(figures["translation"]["scores"]) == ["chrf", "wer"]
    assert figures["heads"]["sample_seed"] == 5


def test_bad_input_is_one_line_and_writes_nothing(command: Command) -> None:
    Path("short").write_text("one\n")
    Path("blank").write_text("\n\n")
    Path("far").write_text("0-0\n\n1-9\n0-0\n")
    Path("words").write_text("I\n\nlove\n" + "understand " * 9 + "\n")
    GPT2LMHeadModel(GPT2Config(vocab_size=73, n_embd=8, n_layer=1, n_head=1)).save_pretrained("g")
    subword_tokenizer().save_pretrained("g")
    cases: list[tuple[tuple[object, ...], str]] = [
        (("m", "s", "short", "-o", "r.html"), "short:2: 1 lines, but s has 4"),
        (("m", "blank", "blank", "-o", "r.html"), "blank:1: no sentence pair with words on both sides"),
        (
            ("m", "s", "t", "--gold", "far", "-o", "r.html"),
            "far:3: target index 9 (counted from 0), but",
        ),
        (("m", "s", "t", "--gold", "short", "-o", "r.html"), "short:1: 'one'"),
        (("m", "words", "t", "-o", "r.html"), "words:4: sentence 4 has"),
        (("m", "s", "words", "-o", "r.html", "--head-pairs", 4), "words:4: "),
        (("g", "s", "t", "-o", "r.html"), "g: no encoder-decoder with its tokenizer here"),
        (("nowhere/m/x", "s", "t", "-o", "r.html"), "nowhere/m/x: no encoder-decoder here"),
        (("m", "s", "t", "-o", "r.pdf"), "r.pdf: a report is a page"),
        (("m", "s", "t", "-o", "no/r.html"), "no/r.html: cannot be written (there is no folder no)"),
        (("m", "s", "t"), "m: is no folder of a run; say where the page goes"),
        (("m", "-o", "r.html"), "m: names no test set of its own"),
        (("m", "s", "-o", "r.html"), "s: one file alone is not enough"),
        (("m", "s", "t", "-o", "r.html", "--metrics", "aer"), "metrics is aer; allowed are chrf"),
        (("m", "s", "t", "-o", "r.html", "--bleu-tokenize", "x"), "bleu_tokenize is 'x'; allowed are none"),
        (("m", "s", "t", "-o", "r.html", "--layer", "7"), "layer 7 does not exist; the model has 2"),
        (("m", "s", "t", "-o", "r.html", "--heads", "all"), "heads is 'all'; write auto or numbers"),
        (("m", "s", "t", "-o", "r.html", "--weights", "raw_norm"), "weights is 'raw_norm'; the maps"),
        (("m", "s", "t", "-o", "r.html", "--links", "best"), "links is 'best'"),
    ]
    for words, message in cases:
        code, out, err = command(*words)
        last = err.strip().splitlines()[-1]
        assert (code, out) == (2, ""), (words, err)
        assert last.startswith(message), (words, last)
        assert not Path("r.html").exists()


def test_a_page_that_does_not_fit_is_one_line_and_writes_nothing(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_commands, "report_page", lambda report: report_page(report, 5000))
    code, out, err = command("m", "s", "t", "-o", "r.html", *QUICK)
    assert (code, out) == (2, "") and not Path("r.html").exists()
    assert err.strip().splitlines()[-1].startswith("limit is 5000; the page takes ")


@pytest.mark.parametrize(
    ("corpus", "place"),
    [
        (CorpusFiles("a.src", "a.trg"), "a.src:3"),
        (CorpusTable("a.tsv", "src", "trg"), "a.tsv:4"),
        (CorpusTable("a.tsv", 0, 1), "a.tsv:3"),
        (CorpusDataset("owner/name"), "owner/name:train:3"),
    ],
)
def test_a_refused_sentence_is_named_by_its_line(corpus: Corpus, place: str) -> None:
    for error in (SentenceTooLongError(3, 9, 5), SentenceError("source", 3, "is too long")):
        with pytest.raises(InputError, match=f"^{place}: "), report_commands._refused(corpus):
            raise error


def test_a_run_reports_on_its_own_test_set_and_its_card_links_it(
    command: Command, toy_files: Callable[..., list[str]]
) -> None:
    fields = [*toy_files(train=40, dev=9, links=("dev",)), "training.max_steps=2", "model.d_model=8"]
    fields += ["model.encoder_layers=1", "model.decoder_layers=1", "training.seed=3"]
    train(load_recipe("bahdanau2015", [*_plain(), *fields]), "run", progress=False)
    card = Path("run/README.md")
    before = card.read_text(encoding="utf-8")
    assert "report.html" not in before
    code, out, err = command("run", *QUICK)
    assert (code, out.splitlines()[-1]) == (0, "REPORT run/report.html"), err
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert '<h2 id="curves">' in page and "2 steps, seed 3" in page
    linked = card.read_text(encoding="utf-8")
    assert "[report](report.html)" in linked
    # Again, and without the report: what the card links is there.
    assert link_report("run") is None and card.read_text(encoding="utf-8") == linked
    Path("run/report.html").unlink()
    write_card("run")
    assert card.read_text(encoding="utf-8") == before
    card.write_text("my own words", encoding="utf-8")
    remark = link_report("run")
    assert remark is not None and remark.startswith("run/README.md: is not as it was written")
    assert card.read_text(encoding="utf-8") == "my own words"
    # The names of its test set stand for another text meanwhile.
    for column in ("source", "target", "links"):
        lines = Path(f"dev.{column}").read_text(encoding="utf-8").splitlines(keepends=True)
        Path(f"dev.{column}").write_text("".join(lines[:-1]), encoding="utf-8")
    code, out, err = command("run", *QUICK)
    assert (code, out) == (2, "")
    assert "dev.source: has 8 pairs, but the run in run was scored on 9 of this name" in err
    assert not Path("run/report.html").exists()


def test_a_recipe_asks_for_a_report(command: Command, toy_files: Callable[..., list[str]]) -> None:
    fields = [*toy_files(train=40, dev=9, links=("dev",)), "training.max_steps=1", "model.d_model=8", "report=true"]
    fields += ["model.encoder_layers=1", "model.decoder_layers=1"]
    recipe = load_recipe("bahdanau2015", [*_plain(), *fields])
    train(recipe, "run", progress=False)
    assert "[report](report.html)" in Path("run/README.md").read_text(encoding="utf-8")
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert f"<h1>Report: {recipe.name}</h1>" in page and "9 sentence pairs, with manual links" in page
    # A later run without one leaves none of the earlier model.
    recipe.report = False
    train(recipe, "run", overwrite=True, progress=False)
    assert not Path("run/report.html").exists()
    with pytest.raises(InputError, match="report=true needs a test set"):
        load_recipe("bahdanau2015", [*_plain(), *fields, "data.dev=null", "data.test=null", "validation=null"])


def _plain() -> list[str]:
    """What a shipped recipe has and a toy run does not."""
    return ["prepare=null", "data.test=null"]
