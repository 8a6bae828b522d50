"""The corpora of the quality runs: which files below `--data` are their parts, and what a run says of them."""

import json
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hf_seq2seq_attn.probing import write_atomically
from hf_seq2seq_attn.text_files import read_lines

PARTS = ("train", "dev")


@dataclass(frozen=True)
class Corpus:
    """Files `FOLDER/PART.SUFFIX`, line N of both sides about the same.

    Attributes:
        folder: below the data folder.
        source, target: suffixes of the two sides.
        tests: names of the test parts.
        metric: what counts: `bleu` (lower-cased, 13a, with the cased one and chrF beside it), or `word_error_rate` (the
            share of words whose whole pronunciation is wrong, as in SIGMORPHON 2021).
        made: a run makes the files itself, below the work folder.
        rewritten: makes of each line of the source what is read.
        note: what a card says of the data.
    """

    folder: str
    source: str
    target: str
    tests: tuple[str, ...]
    metric: str
    made: bool = False
    rewritten: Callable[[str], str] | None = None
    note: str | None = None

    def files(self, part: str, data: Path, work: Path) -> tuple[Path, Path]:
        """Return source and target of a part; rewritten sources are written into `work`."""
        folder = (work if self.made else data) / self.folder
        source, target = (folder / f"{part}.{suffix}" for suffix in (self.source, self.target))
        if self.rewritten is None:
            return source, target
        written = work / "corpora" / self.folder / source.name
        if not written.exists():
            written.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(written, (self.rewritten(line) + "\n" for line in read_lines(source)))
        return written, target

    def overrides(self, data: Path, work: Path, tested: bool = True) -> list[str]:
        """Return what tells a recipe the files of its parts; the test part is the first of `tests`, or none."""
        said = [f"prepare.folder={work / self.folder}"] if self.made else []
        for part, name in (*((part, part) for part in PARTS), *([("test", self.tests[0])] if tested else [])):
            source, target = self.files(name, data, work)
            said.append(f"data.{part}={{source: {str(source)!r}, target: {str(target)!r}}}")
        if not tested:
            said.append("data.test=null")
        if self.metric == "bleu":
            said += [f"data.source_language={self.source}", f"data.target_language={self.target}"]
        if self.note is not None:
            said.append(f"data.attribution={json.dumps(self.note)}")
        return said


def to_jamo(line: str) -> str:
    """Return a line of signs separated by blanks with each Hangul syllable as its letters, likewise separated.

    Those are fewer than 70 signs for the 1,084 syllables of the training part, beside which dev has 41 more.
    """
    return " ".join(letter for sign in line.split() for letter in _letters(sign))


def _letters(sign: str) -> list[str]:
    return list(unicodedata.normalize("NFD", sign)) if "가" <= sign <= "힣" else [sign]


def mark_syllables(line: str) -> str:
    """Return a line of signs separated by blanks with "_" for the blank between two syllables, a sign like others."""
    return " _ ".join(line.split("   "))


def multi30k(source: str, target: str) -> Corpus:
    """Return the captions of Multi30k as plain text, with the three test sets that have both languages."""
    tests = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
    return Corpus("multi30k/raw", source, target, tests, "bleu")


def sigmorphon(folder: str) -> Corpus:
    """Return a language of SIGMORPHON 2021's task 1, e.g. `medium/dut`."""
    setting, _, language = folder.partition("/")
    return Corpus(
        f"g2p-sigmorphon2021/{folder}",
        "graph",
        "phon",
        ("test",),
        "word_error_rate",
        rewritten={"kor": to_jamo, "vie_hanoi": mark_syllables}.get(language),
        note=f"Words and pronunciations: `{language}` of SIGMORPHON 2021, shared task 1, {setting} setting.",
    )


CMUDICT = Corpus("cmudict", "letters", "phonemes", ("test",), "word_error_rate", made=True)
"""Made by the recipe `g2p`; words of the dev and the test part may have several references."""
