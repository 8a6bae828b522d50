"""Word links of a training text, made on the spot by a statistical aligner, for guided attention.

Source: eflomal (Östling and Tiedemann 2016, "Efficient word alignment with Markov chain Monte Carlo"): IBM models with
jumps and fertilities, drawn by Gibbs sampling. It takes no seed, so two runs over one text differ in a few links: they
are kept beside the model, and a restarted run reads them back instead of drawing anew.
"""

import dataclasses
import hashlib
import json
import logging
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.probing import Gold, Links, read_links, symmetrize, write_atomically, write_links
from hf_seq2seq_attn.text_files import InputError

from .data import ParallelCorpus
from .processes import is_first_process
from .recipe import AlignmentRecipe
from .run_record import LINKS_FOLDER

logger = logging.getLogger(__name__)

ALIGNERS = ("eflomal",)
SYMMETRIZATION = "grow-diag-final-and-moses"
"""The default: the most used one for training data (Koehn et al. 2005)."""

NULL_PRIOR = 0.2
"""eflomal's own: how likely a word has no partner before anything is known."""

LONGEST_SENTENCE = 1023
"""In words; eflomal passes over longer sentences without a word about it."""

_INSTALL = "pip install 'hf-seq2seq-attn[eflomal]'"
_RECORD = "links.json"


@dataclasses.dataclass(frozen=True)
class LinkCounts:
    """How links were made, and how many, for the log and for the metrics file.

    Attributes:
        aligner, symmetrization: with its version; by which method the two directions became one.
        pairs: sentence pairs given; `unaligned` of them got no link, as a side is blank or longer than
            `LONGEST_SENTENCE`.
        forward, reverse, links: number of links of each direction, and of both together.
        linked_source_words, linked_target_words: the share of words with a link, 0..1.
        seconds: what eflomal took; 0 if the links were there already.
        text: SHA-256 of the words that were aligned.
        null_prior: as in `eflomal_links`.
    """

    aligner: str
    symmetrization: str
    pairs: int
    unaligned: int
    forward: int
    reverse: int
    links: int
    linked_source_words: float
    linked_target_words: float
    seconds: float
    text: str
    null_prior: float = NULL_PRIOR


def eflomal_links(
    sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], null_prior: float = NULL_PRIOR
) -> tuple[list[Links], list[Links]]:
    """Align a text with eflomal in both directions: N pairs in, N out, blank ones without a link.

    Words are compared in lower case, as eflomal always does. A pair with a side longer than 1023 words gets no link.

    Args:
        sources, targets: the words of each sentence, without whitespace inside.
        null_prior: how likely a word has no partner before anything is known, above 0 and below 1.

    Returns:
        Links (source word, target word) of the forward direction (each target word has at most one) and of the reverse
        (each source word has at most one).

    Raises:
        InputError: eflomal is not installed; the message says what to install.
        RuntimeError: it failed, or gave links that do not fit the text.
    """
    try:
        from eflomal import Aligner
    except ImportError as error:
        raise InputError(f"links by eflomal need the package eflomal ({error}): {_INSTALL}") from error
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} source and {len(targets)} target sentences; they must belong together")
    with tempfile.TemporaryDirectory() as folder:
        forward, reverse = Path(folder, "forward.align"), Path(folder, "reverse.align")
        Aligner(null_prior=null_prior).align(
            [" ".join(words) for words in sources],
            [" ".join(words) for words in targets],
            links_filename_fwd=str(forward),
            links_filename_rev=str(reverse),
        )
        try:
            return _read(forward, sources, targets), _read(reverse, sources, targets)
        except InputError as error:
            raise RuntimeError(
                f"eflomal gave links that do not fit the text ({error}); is its program intact?"
            ) from error


def statistical_links(
    sources: Sequence[Sequence[str]],
    targets: Sequence[Sequence[str]],
    folder: str | Path,
    symmetrization: str = SYMMETRIZATION,
    null_prior: float = NULL_PRIOR,
) -> tuple[list[Gold], LinkCounts]:
    """Return the links of a text from both directions of eflomal, made one by a named method.

    `folder` then holds `forward.align`, `reverse.align` and `symmetrized.align` (Pharaoh form, line N for pair N), and
    how they were made. Directions of the same words and the same version of eflomal that are there already are used
    again.

    Args:
        symmetrization: one of `probing.SYMMETRIZATIONS`.
        null_prior: as in `eflomal_links`.

    Raises:
        InputError: as `eflomal_links`, or the folder cannot be written.
        ValueError: an unknown method.
    """
    folder = Path(folder)
    text = _digest(sources, targets)
    found = _cached(folder, text, null_prior, sources, targets)
    seconds = 0.0
    if found is None:
        clock = time.perf_counter()
        found = eflomal_links(sources, targets, null_prior)
        seconds = round(time.perf_counter() - clock, 1)
    forward, reverse = found
    joined = [symmetrize(f, r, symmetrization) for f, r in zip(forward, reverse, strict=True)]
    counts = LinkCounts(
        aligner=f"eflomal {_version()}",
        symmetrization=symmetrization,
        pairs=len(joined),
        unaligned=sum(not _alignable(*pair) for pair in zip(sources, targets, strict=True)),
        forward=sum(map(len, forward)),
        reverse=sum(map(len, reverse)),
        links=sum(map(len, joined)),
        linked_source_words=_share(sum(len({i for i, _ in links}) for links in joined), sources),
        linked_target_words=_share(sum(len({j for _, j in links}) for links in joined), targets),
        seconds=seconds,
        text=text,
        null_prior=null_prior,
    )
    if is_first_process():
        folder.mkdir(parents=True, exist_ok=True)
        for name, links in (("forward", forward), ("reverse", reverse), ("symmetrized", joined)):
            write_links(folder / f"{name}.align", links)
        # Last, so that an interrupted run is not taken for a whole one.
        write_atomically(folder / _RECORD, [json.dumps(dataclasses.asdict(counts), indent=2) + "\n"])
    logger.warning(
        "%s: %d forward and %d reverse links in %d pairs, %d by %s; %d pairs cannot be aligned (blank or too long)",
        counts.aligner,
        counts.forward,
        counts.reverse,
        counts.pairs,
        counts.links,
        symmetrization,
        counts.unaligned,
    )
    return [Gold(links, links) for links in joined], counts


def with_statistical_links(
    corpus: ParallelCorpus, alignment: AlignmentRecipe, run_dir: str | Path
) -> tuple[ParallelCorpus, LinkCounts]:
    """Return a corpus with the links that a recipe's alignment section asks for, kept in `run_dir`/links."""
    symmetrization = alignment.symmetrization or SYMMETRIZATION
    gold, counts = statistical_links(corpus.sources, corpus.targets, Path(run_dir) / LINKS_FOLDER, symmetrization)
    return dataclasses.replace(corpus, gold=gold), counts


def _cached(
    folder: Path, text: str, null_prior: float, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]
) -> tuple[list[Links], list[Links]] | None:
    """Return the two directions if the folder holds those of these words, whole; else None."""
    try:
        record: dict[str, Any] = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        if record["text"] != text or record["aligner"] != f"eflomal {_version()}":
            return None
        if record.get("null_prior", NULL_PRIOR) != null_prior:
            return None
        return _read(folder / "forward.align", sources, targets), _read(folder / "reverse.align", sources, targets)
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _read(path: Path, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[Links]:
    """Read the links of a text; a file with fewer or more lines than the text raises an InputError."""
    links = read_links(path, [len(words) for words in sources], [len(words) for words in targets], base=0)
    if len(links) != len(sources):
        raise InputError(f"{path}:{len(links)}: {len(links)} lines for {len(sources)} pairs; remove the file")
    return links


def _alignable(source: Sequence[str], target: Sequence[str]) -> bool:
    return all(0 < len(words) <= LONGEST_SENTENCE for words in (source, target))


def _share(linked: int, sentences: Sequence[Sequence[str]]) -> float:
    return round(linked / max(sum(map(len, sentences)), 1), 4)


def _digest(sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> str:
    digest = hashlib.sha256()
    for side in (sources, targets):
        for words in side:
            digest.update(" ".join(words).encode() + b"\n")
        digest.update(b"\0")
    return digest.hexdigest()


def _version() -> str:
    try:
        return metadata.version("eflomal")
    except metadata.PackageNotFoundError:
        return "not installed"
