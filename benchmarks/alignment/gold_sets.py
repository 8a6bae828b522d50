"""The corpora with manual word links that alignment is measured on; their terms forbid to ship them (see their README).

Every set is a folder of files `PART.LANGUAGE` with one sentence a line, and `PART.align` with Pharaoh links.
"""

from dataclasses import dataclass
from pathlib import Path

from hf_seq2seq_attn.probing import Gold, read_gold
from hf_seq2seq_attn.text_files import read_lines


@dataclass(frozen=True)
class GoldSet:
    """One corpus: its folder, the suffixes of its two sides, and the parts that have text."""

    folder: str
    source: str
    target: str
    parts: tuple[str, ...] = ("test",)

    @property
    def name(self) -> str:
        """Return the folder's name without `gold-`, with the suffix of the source where it is not the surface text."""
        name = self.folder.removeprefix("gold-")
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


def read_part(data: Path, gold_set: GoldSet, part: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return the words of one part's two sides."""
    source, target = (
        [line.split() for line in read_lines(data / gold_set.folder / f"{part}.{side}")]
        for side in (gold_set.source, gold_set.target)
    )
    return source, target


def read_links(data: Path, gold_set: GoldSet, part: str) -> list[Gold]:
    """Return the manual links of one part."""
    return read_gold(data / gold_set.folder / f"{part}.align")
