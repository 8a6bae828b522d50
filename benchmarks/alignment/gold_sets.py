"""The corpora with manual word links that alignment is measured on; their terms forbid to ship them (see their README).

Every set is a folder of files `PART.LANGUAGE` with one sentence a line, and `PART.align` with Pharaoh links.
"""

from dataclasses import dataclass
from pathlib import Path

from hf_seq2seq_attn.probing import Gold, read_gold
from hf_seq2seq_attn.text_files import read_lines


@dataclass(frozen=True)
class GoldSet:
    """One corpus: its folder, the suffixes of its two sides, the parts that have text, the source's lemmas if given."""

    folder: str
    source: str
    target: str
    parts: tuple[str, ...] = ("test",)
    source_lemmas: str | None = None

    @property
    def name(self) -> str:
        """Return the folder's name without `gold-`, and which lemmas stand for the source words or beside them."""
        name = self.folder.removeprefix("gold-")
        if self.source_lemmas:
            return f"{name} + {self.source_lemmas}"
        return f"{name} ({self.source})" if "-" in self.source else name


SPLITS = ("train", "dev", "test")
SETS = (
    GoldSet("gold-vilar-deen", "de", "en"),
    GoldSet("gold-wpt03-enfr", "en", "fr", ("dev", "test")),
    GoldSet("gold-alibi-fren", "fr", "en"),
    GoldSet("gold-awesome-roen", "ro", "en"),
    GoldSet("gold-awesome-zhen", "zh", "en"),
    GoldSet("gold-nettalk", "graph", "phon", SPLITS),
    GoldSet("gold-bible-grc-en-ylt", "grc-lemma", "en", SPLITS),
    GoldSet("gold-bible-grc-en-bsb", "grc", "en", SPLITS),
    GoldSet("gold-bible-grc-en-bsb", "grc-lemma", "en", SPLITS),
    GoldSet("gold-bible-he-en-ylt", "he", "en", SPLITS),
)
WITH_LEMMAS = (
    GoldSet("gold-bible-grc-en-ylt", "grc", "en", SPLITS, "grc-lemma"),
    GoldSet("gold-bible-grc-en-bsb", "grc", "en", SPLITS, "grc-lemma"),
    GoldSet("gold-bible-he-en-ylt", "he", "en", SPLITS, "he-strongs"),
)
"""The surface text with a lemma (or dictionary number) beside each source word, for aligners that read both."""


def read_part(data: Path, gold_set: GoldSet, part: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return the words of one part's two sides."""
    return _words(data, gold_set, part, gold_set.source), _words(data, gold_set, part, gold_set.target)


def read_lemmas(data: Path, gold_set: GoldSet, part: str) -> list[list[str]] | None:
    """Return a lemma for each source word of one part; None if the set has none beside its words."""
    return None if gold_set.source_lemmas is None else _words(data, gold_set, part, gold_set.source_lemmas)


def _words(data: Path, gold_set: GoldSet, part: str, suffix: str) -> list[list[str]]:
    return [line.split() for line in read_lines(data / gold_set.folder / f"{part}.{suffix}")]


def read_links(data: Path, gold_set: GoldSet, part: str) -> list[Gold]:
    """Return the manual links of one part."""
    return read_gold(data / gold_set.folder / f"{part}.align")
