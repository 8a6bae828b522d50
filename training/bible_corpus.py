"""The demo's corpus: the Greek New Testament beside the Berean Standard Bible, with manual word links.

All three lie in one wheel on the Python package index. It is read as the zip file that it is: as a dependency it would
ask for an old Python, bring a web framework and install a top-level folder `data/`.
"""

import csv
import hashlib
import io
import json
import re
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hf_seq2seq_attn.text_files import InputError

WHEEL = "bible_alignments-0.4.2-py3-none-any.whl"
REQUIREMENT = "bible-alignments==0.4.2"
SHA256 = "84f6b15e706657777824aac811567cb5cb2b38ad2b94497209f5f3c3f67b0984"
SOURCE_TABLE = "data/sources/SBLGNT.tsv"
TARGET_TABLE = "data/eng/targets/BSB/nt_BSB.tsv"
LINK_RECORDS = "data/eng/alignments/BSB/SBLGNT-BSB-manual.json"

ATTRIBUTION = (
    "Greek text: The Greek New Testament: SBL Edition, copyright 2010 Society of Biblical Literature and Logos Bible "
    "Software, CC BY 4.0 (sblgnt.com), as tokenised in the MACULA Greek Linguistic Datasets "
    "(github.com/Clear-Bible/macula-greek). English text: Berean Standard Bible, public domain (bereanbible.com). "
    "Word links: Bible Word Alignments, copyright 2022 Clear Bible, Inc., made by Biblica, CC BY 4.0 "
    "(github.com/Clear-Bible/Alignments)."
)
"""The terms of the texts and links ask that this be shown wherever they are."""

PARTS = ("train", "dev", "test")
COLUMNS = ("grc", "en", "align", "verse")


@dataclass(frozen=True)
class Verse:
    """One verse as words, with its links (source word, target word), sorted."""

    verse_id: str
    source: list[str]
    target: list[str]
    links: list[tuple[int, int]]

    @property
    def part(self) -> str:
        """Return the part it belongs to, by its id alone: it stays there when verses come or go."""
        return {0: "dev", 1: "test"}.get(zlib.crc32(self.verse_id.encode()) % 40, "train")


def prepare_bible_corpus(folder: str | Path, cache: str | Path = "build/demo/cache") -> dict[str, int]:
    """Write `{train,dev,test}.{grc,en,align,verse}` into `folder`, line N of each about the same verse.

    The wheel is fetched by pip into `cache` unless it is there already. A corpus that is there is kept as it is.

    Returns:
        The number of verses in each part.

    Raises:
        InputError: the wheel can neither be found nor fetched, or is not the one expected.
    """
    folder = Path(folder)
    paths = {(part, column): folder / f"{part}.{column}" for part in PARTS for column in COLUMNS}
    # Written last, so that an interrupted run is not taken for a whole one.
    stamp = folder / "corpus.json"
    if stamp.is_file() and all(path.is_file() for path in paths.values()):
        record = json.loads(stamp.read_text(encoding="utf-8"))
        if record["sha256"] == SHA256:
            return record["verses"]
    verses = list(read_verses(fetch_wheel(cache)))
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    for part in PARTS:
        chosen = [verse for verse in verses if verse.part == part]
        counts[part] = len(chosen)
        lines = {
            "grc": [" ".join(verse.source) for verse in chosen],
            "en": [" ".join(verse.target) for verse in chosen],
            "align": [" ".join(f"{i}-{j}" for i, j in verse.links) for verse in chosen],
            "verse": [verse.verse_id for verse in chosen],
        }
        for column in COLUMNS:
            text = "".join(line + "\n" for line in lines[column])
            paths[part, column].write_text(text, encoding="utf-8", newline="\n")
    stamp.write_text(json.dumps({"sha256": SHA256, "verses": counts}) + "\n", encoding="utf-8")
    return counts


def fetch_wheel(cache: str | Path) -> Path:
    """Return the checked wheel in `cache`, fetched by pip if it is not there."""
    cache = Path(cache)
    wheel = cache / WHEEL
    if not wheel.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--ignore-requires-python", "--quiet"]
        command += ["--disable-pip-version-check", "--dest", str(cache), REQUIREMENT]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        if outcome.returncode or not wheel.is_file():
            reason = (outcome.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise InputError(
                f"{wheel}: not here, and pip could not fetch it ({reason}); on a machine with a package index run "
                f"`pip download --no-deps --ignore-requires-python {REQUIREMENT}` and place the file there"
            )
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != SHA256:
        raise InputError(f"{wheel}: sha256 is {found}, expected {SHA256}; remove the file and run again")
    return wheel


def read_verses(wheel: str | Path) -> Iterator[Verse]:
    """Yield the verses that have links, in the order of the Bible.

    Source words are all rows of the Greek table. Target words are the rows of the English one that are not marked as
    excluded, hold a word character, and stand in the verse of the Greek that they translate. (The nine words of Acts
    19:41 do not: the Greek has them in 19:40, and nobody linked them.) A record of the links joins each of its source
    words with each of its target words. Verses without a link, or with a link that leaves the verse, are left out.

    Raises:
        InputError: the file is no such zip.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            source_rows = _table(archive, SOURCE_TABLE)
            target_rows = _table(archive, TARGET_TABLE)
            records = json.loads(archive.read(LINK_RECORDS))["records"]
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{wheel}: not the expected wheel ({error}); remove the file and run again") from error
    # A Greek id is `n`, the verse in 8 digits, the word in 3.
    sources = _words_by_verse((row["id"], row["id"][1:9], row["text"]) for row in source_rows)
    targets = _words_by_verse(
        (row["id"], row["source_verse"], row["text"])
        for row in target_rows
        if not row["exclude"] and row["id"][:8] == row["source_verse"] and re.search(r"\w", row["text"])
    )
    source_places = _places(sources)
    target_places = _places(targets)
    links: dict[str, set[tuple[int, int]]] = {}
    leaving: set[str] = set()
    for record in records:
        for source_id in record["source"]:
            for target_id in record["target"]:
                if source_id not in source_places or target_id not in target_places:
                    continue
                (verse, i), (target_verse, j) = source_places[source_id], target_places[target_id]
                if verse == target_verse:
                    links.setdefault(verse, set()).add((i, j))
                else:
                    leaving |= {verse, target_verse}
    for verse in sorted(links):
        if verse not in leaving:
            yield Verse(
                verse,
                [text for _, text in sources[verse]],
                [text for _, text in targets[verse]],
                sorted(links[verse]),
            )


def _table(archive: zipfile.ZipFile, name: str) -> list[dict[str, str]]:
    with archive.open(name) as stream:
        lines = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def _words_by_verse(rows: Iterator[tuple[str, str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Return verse -> [(word id, text)], in the order of the table."""
    verses: dict[str, list[tuple[str, str]]] = {}
    for word_id, verse, text in rows:
        verses.setdefault(verse, []).append((word_id, text.strip()))
    return verses


def _places(verses: dict[str, list[tuple[str, str]]]) -> dict[str, tuple[str, int]]:
    """Return word id -> (verse, index in the verse)."""
    return {word_id: (verse, i) for verse, words in verses.items() for i, (word_id, _) in enumerate(words)}
