"""On a zip of the wheel's layout with three verses of it, never the network."""

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.training import bible_corpus
from hf_seq2seq_attn.training.bible_corpus import Verse, fetch_wheel, prepare_bible_corpus, read_verses

SOURCE = """id\taltId\ttext
n40001001001\tx\tΒίβλος
n40001001002\tx\tγενέσεως
n40001002001\tx\tἈβραὰμ
n40001002002\tx\tἐγέννησεν
n40001003001\tx\tἸούδας
n40001004001\tx\tἈρὰμ
"""
TARGET = """id\tsource_verse\ttext\tskip_space_after\texclude\tid_range_end
40001001001\t40001001\tThe\t\t\t
40001001002\t40001001\trecord\ty\t\t
40001001003\t40001001\t,\t\ty\t
40001001004\t40001001\t“\t\t\t
40001001005\t40001001\tof\t\t\t
40001002001\t40001002\tAbraham\t\t\t
40001002002\t40001002\tfathered\t\t\t
40001002003\t40001002\tunlinked\t\t\t
40001003001\t40001003\tJudah\t\t\t
40001004001\t40001004\tRam\t\t\t
40001005001\t40001002\tmoved\t\t\t
"""
RECORDS = [
    (["n40001001001"], ["40001001001", "40001001002", "40001001003"]),
    (["n40001001002"], ["40001001005"]),
    (["n40001002001", "n40001002002"], ["40001002001", "40001002002"]),
    # Judah is linked into the verse of Aram: both verses go.
    (["n40001003001"], ["40001004001"]),
    (["n40001004001"], ["40001004001"]),
]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    wheel = tmp_path / "cache" / bible_corpus.WHEEL
    wheel.parent.mkdir()
    records = [{"source": source, "target": target, "meta": {}} for source, target in RECORDS]
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(bible_corpus.SOURCE_TABLE, SOURCE)
        archive.writestr(bible_corpus.TARGET_TABLE, TARGET)
        archive.writestr(bible_corpus.LINK_RECORDS, json.dumps({"records": records}))
    monkeypatch.setattr(bible_corpus, "SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(bible_corpus.subprocess, "run", forbidden)
    return wheel.parent


def forbidden(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("the network was asked")


def test_words_and_links_by_the_rules(cache: Path) -> None:
    assert list(read_verses(cache / bible_corpus.WHEEL)) == [
        # The comma is excluded and the quotation mark holds no word character: `of` is word 2.
        Verse("40001001", ["Βίβλος", "γενέσεως"], ["The", "record", "of"], [(0, 0), (0, 1), (1, 2)]),
        Verse(
            "40001002",
            ["Ἀβραὰμ", "ἐγέννησεν"],
            ["Abraham", "fathered", "unlinked"],
            [(0, 0), (0, 1), (1, 0), (1, 1)],
        ),
    ]


def test_parts_follow_from_the_id_alone() -> None:
    # zlib.crc32 modulo 40, checked against the verses of the published split.
    parts = {verse: Verse(verse, [], [], []).part for verse in ("40001025", "40002018", "40001001")}
    assert parts == {"40001025": "test", "40002018": "test", "40001001": "train"}


def test_files_belong_together_and_are_kept(cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    counts = prepare_bible_corpus(folder, cache)
    assert sum(counts.values()) == 2
    assert sorted(counts) == ["dev", "test", "train"]
    for part, count in counts.items():
        for column in ("grc", "en", "align", "verse"):
            assert len((folder / f"{part}.{column}").read_text(encoding="utf-8").splitlines()) == count
    align = "".join((folder / f"{part}.align").read_text() for part in counts)
    assert "0-0 0-1 1-2\n" in align
    (cache / bible_corpus.WHEEL).unlink()
    assert prepare_bible_corpus(folder, cache) == counts


def test_a_half_written_corpus_is_made_anew(cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    prepare_bible_corpus(folder, cache)
    (folder / "test.align").unlink()
    prepare_bible_corpus(folder, cache)
    assert (folder / "test.align").is_file()


def test_another_file_is_refused(cache: Path) -> None:
    (cache / bible_corpus.WHEEL).write_bytes(b"no wheel")
    with pytest.raises(InputError, match=r"sha256 is .*, expected .*; remove the file"):
        fetch_wheel(cache)
    with pytest.raises(InputError, match="not the expected wheel"):
        list(read_verses(cache / bible_corpus.WHEEL))


def test_without_an_index_the_message_says_what_to_place_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def fail(command: list[str], **kwargs: Any) -> Any:
        asked.append(command)
        return SimpleNamespace(returncode=1, stderr="WARNING: retry\nERROR: No matching distribution\n")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(InputError) as refusal:
        fetch_wheel(tmp_path)
    message = str(refusal.value)
    assert message.startswith(str(tmp_path / bible_corpus.WHEEL))
    assert "No matching distribution" in message
    assert "place the file there" in message
    assert {"--no-deps", "--ignore-requires-python", "bible-alignments==0.4.2"} <= set(asked[0])
