"""Options of `align` and `view` that say how attention is read: weights, layers, prefix, languages, sinks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families import family_model
from multilingual import nllb_tokenizer, vocabulary_size
from probes import subword_tokenizer
from transformers import M2M100Config, M2M100ForConditionalGeneration

from hf_seq2seq_attn.probing import Links, SinkTally, align, format_links, iterate_matrices

Run = Callable[..., tuple[int, str, str]]
SOURCES = ["the cats love this unloved day, don't you understand today?", "", "I love cats today the day."]
TARGETS = ["love cats the day, this unloved you understand I don't?", "day", "you don't love the cats today ."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    model_of_folder().save_pretrained(folder)
    subword_tokenizer().save_pretrained(folder)
    return folder


def model_of_folder() -> Any:
    return family_model("m2m_100", sharp=0.25)


def lines(links_of_pairs: list[Links]) -> str:
    return "".join(format_links(links) + "\n" for links in links_of_pairs)


@pytest.fixture
def texts() -> tuple[Path, Path]:
    for name, sentences in (("s", SOURCES), ("t", TARGETS)):
        Path(name).write_text("".join(line + "\n" for line in sentences), encoding="utf-8")
    return Path("s"), Path("t")


@pytest.mark.parametrize(
    ("words", "choice"),
    [
        (["--weights", "norm"], {"weights": "norm"}),
        (["--weights", "raw_norm", "--links", "mutual"], {"weights": "raw_norm", "links": "mutual"}),
        (["--layer", "0,-1"], {"layer": (0, -1)}),
        (["--layer", "all", "--heads", "1,2"], {"layer": "all", "heads": [1, 2]}),
        (["--source-prefix", "zzz cats: "], {"source_prefix": "zzz cats: "}),
        (["--specials", "null+punctuation"], {"specials": "null+punctuation"}),
    ],
)
def test_align_reads_as_it_is_told_and_reports_sinks(
    run: Run, folder: Path, texts: tuple[Path, Path], words: list[str], choice: dict[str, Any]
) -> None:
    tally = SinkTally()
    expected = align(model_of_folder(), subword_tokenizer(), SOURCES, TARGETS, sinks=tally, **choice)
    code, out, err = run("align", folder, *texts, *words, "--soft", "matrices.npz")
    assert code == 0, err
    assert out == lines(expected)
    assert run("align", folder, *texts, "--soft", "plain.npz")[0] == 0
    told, plain = (list(iterate_matrices(Path(name))) for name in ("matrices.npz", "plain.npz"))
    assert [matrix.shape for matrix in told] == [matrix.shape for matrix in plain]
    assert np.abs(told[0] - plain[0]).max() > 1e-3
    assert tally.describe() in " ".join(err.split())
    assert "rests on the end token" in err


def test_align_in_two_directions_has_a_prefix_for_each(run: Run, folder: Path, texts: tuple[Path, Path]) -> None:
    words = ["--source-prefix", "to German: ", "--reverse-prefix", "to English: "]
    code, out, err = run("align", folder, *texts, "--reverse-model", folder, *words, "--symmetrize", "intersection")
    assert code == 0, err
    model, tokenizer = model_of_folder(), subword_tokenizer()
    forward = align(model, tokenizer, SOURCES, TARGETS, source_prefix="to German: ")
    reverse = align(model, tokenizer, TARGETS, SOURCES, source_prefix="to English: ")
    expected = [one & {(i, j) for j, i in other} for one, other in zip(forward, reverse, strict=True)]
    assert out == lines(expected)
    code, _, err = run("align", folder, *texts, "--reverse-prefix", "to English: ")
    assert code == 2
    assert "reverse_model" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--weights", "norms"], "weights is 'norms'; allowed are attention, norm, raw_norm"),
        (["--layer", "last"], "layer is 'last'; write auto, all, or numbers with commas"),
        (["--layer", "0,9"], "layer 9 does not exist"),
        (["--source-language", "en"], "has no src_lang"),
        (["--target-language", "de"], "has no token for it"),
        (["--specials", "mask+full-stop"], "allowed are mask, renormalise, null, mask+punctuation"),
    ],
)
def test_bad_options_exit_with_2(
    run: Run, folder: Path, texts: tuple[Path, Path], words: list[str], message: str
) -> None:
    for command in (["align", folder, *texts], ["view", folder, *texts, "-o", "out.html"]):
        code, out, err = run(*command, *words)
        assert (code, out) == (2, "")
        assert message in " ".join(err.split())
    assert not Path("out.html").exists()


def test_languages_of_a_multilingual_model(run: Run, tmp_path: Path, texts: tuple[Path, Path]) -> None:
    tokenizer = nllb_tokenizer()
    config = M2M100Config(
        vocab_size=vocabulary_size(tokenizer), d_model=18, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=10,
        encoder_attention_heads=3, decoder_attention_heads=3, decoder_ffn_dim=14, pad_token_id=1, bos_token_id=0,
        eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    model = M2M100ForConditionalGeneration(config).eval()
    model.save_pretrained(tmp_path / "nllb")
    tokenizer.save_pretrained(tmp_path / "nllb")
    words = ["--source-language", "eng_Latn", "--target-language", "heb_Hebr"]
    code, out, err = run("align", tmp_path / "nllb", *texts, *words)
    assert code == 0, err
    choice = dict(source_language="eng_Latn", target_language="heb_Hebr")
    assert out == lines(align(model, tokenizer, SOURCES, TARGETS, **choice))
    assert "rests on tags" in err
    code, _, err = run("align", tmp_path / "nllb", *texts)
    assert code == 2
    assert "give target_language" in " ".join(err.split())


def test_view_reads_as_it_is_told(run: Run, folder: Path, texts: tuple[Path, Path]) -> None:
    pages = {}
    for name, words in (("plain", []), ("norm", ["--weights", "norm"]), ("prefix", ["--source-prefix", "zzz cats: "]),
                        ("layers", ["--layer", "0,1"])):  # fmt: skip
        code, _, err = run("view", folder, *texts, "-o", f"{name}.html", *words)
        assert code == 0, err
        assert "of the weight" in err
        pages[name] = Path(f"{name}.html").read_text(encoding="utf-8")
    assert len(set(pages.values())) == 4
    assert "zzz" not in pages["prefix"]
    assert "weights norm" in pages["norm"]
    assert "layer mean of 0,1" in pages["layers"]
