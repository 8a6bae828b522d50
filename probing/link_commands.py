"""What the commands for alignment files do: score, symmetrize, convert. No model is needed."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

import numpy as np

from hf_seq2seq_attn.text_files import InputError, read_aligned

from .aligned_pair import AlignedPair, Gold
from .breakdowns import score_by_fertility, score_by_length, without_punctuation
from .comparison import compare_scores
from .formats import (
    BLANK_ENDS,
    FORMATS,
    LinkFile,
    as_pair,
    format_links,
    format_of,
    read_link_file,
    settle_base,
    write_pairs,
)
from .link_types import Links, reverse_links
from .links import check_extraction, extract_corpus_links, extract_links, link_probabilities
from .scores import AlignmentScore, score_links, soft_aer
from .soft_matrices import iterate_matrices
from .symmetrization import check_symmetrization, symmetrize

_MATRICES = ".npz"


def score_files(
    links: Path,
    gold: Path,
    *,
    links_base: int | None,
    gold_base: int | None,
    against: Path | None,
    against_base: int | None,
    source: Path | None,
    target: Path | None,
    alpha: float,
    extraction: str,
    as_json: bool,
) -> AlignmentScore:
    """Score a file of links, or of matrices (.npz), against a file of manual links and print the result.

    With `against` a second file is compared on the same gold; with the texts, parts of the corpus are scored apart.
    """
    texts = _read_texts(source, target)
    manual = read_reported(gold, gold_base, texts)
    matrices: list[np.ndarray] = []
    if links.suffix == _MATRICES:
        with _refused():
            check_extraction(extraction)
        matrices = list(iterate_matrices(links))
        found = extract_corpus_links(matrices, extraction)
        ours = LinkFile([Gold(each, each) for each in found], 0, "matrices", True)
    else:
        ours = read_reported(links, links_base, texts)
    ours, manual = _evened(links, ours, gold, manual)
    if not manual.sentences:
        raise InputError(f"{gold}: no sentence to score; check the file")
    if not any(sentence.possible for sentence in manual.sentences):
        remark(f"warning: {gold}: no link in any sentence, so the scores say nothing; check the file")
    found = [sentence.possible for sentence in ours.sentences]
    with _refused():
        score = score_links(found, manual.sentences, base={"links": ours.base, "gold": manual.base}, alpha=alpha)
    result = score.as_dict()
    if matrices:
        with _refused(gold):
            result["soft_aer"] = soft_aer(matrices, manual.sentences)
    if against is not None:
        other, _ = _evened(against, read_reported(against, against_base, texts), gold, manual)
        others = [sentence.possible for sentence in other.sentences]
        result["against"] = compare_scores(found, others, manual.sentences).as_dict()
    if texts is not None:
        result |= _breakdowns(found, manual.sentences, texts)
    print(json.dumps(result) if as_json else "\n".join(_described(result)))
    return score


def _read_texts(source: Path | None, target: Path | None) -> tuple[list[list[str]], list[list[str]]] | None:
    if source is None and target is None:
        return None
    if source is None or target is None:
        raise InputError(f"{source or target}: one side alone is not enough; give both --source and --target")
    sources, targets = read_aligned(source, target)
    return [line.split() for line in sources], [line.split() for line in targets]


def _breakdowns(
    found: Sequence[Links], gold: Sequence[Gold], texts: tuple[list[list[str]], list[list[str]]]
) -> dict[str, object]:
    def plain(parts: dict[str, AlignmentScore]) -> dict[str, object]:
        return {name: _without_base(score) for name, score in parts.items()}

    sides = dict(zip(("source", "target"), texts, strict=True))
    return {
        "without_punctuation": _without_base(score_links(*without_punctuation(found, gold, *texts))),
        "by_length": {
            side: plain(score_by_length(found, gold, [len(words) for words in lines])) for side, lines in sides.items()
        },
        "by_fertility": {side: plain(score_by_fertility(found, gold, side)) for side in sides},
    }


def _without_base(score: AlignmentScore) -> dict[str, object]:
    return {name: value for name, value in score.as_dict().items() if name != "base"}


def _described(result: dict) -> Iterator[str]:
    low, high = result["ci95"]
    yield f"AER        {result['aer']:.4f}   (95% {low:.4f} to {high:.4f})"
    yield f"precision  {result['precision']:.4f}"
    yield f"recall     {result['recall']:.4f}"
    yield f"F1         {result['f1']:.4f}"
    if result["alpha"] != 0.5:
        yield f"F({result['alpha']:g})".ljust(11) + f"{result['f_alpha']:.4f}"
    if "soft_aer" in result:
        yield f"soft AER   {result['soft_aer']:.4f}"
    yield (
        f"{result['links']} links; gold: {result['sure']} sure, {result['possible']} possible; "
        f"{result['sentences']} sentences"
    )
    if "against" in result:
        yield from _described_comparison(result["against"])
    if "by_length" in result:
        parts = [("all", result), ("no punctuation", result["without_punctuation"])]
        for title, name in (("words", "by_length"), ("gold links", "by_fertility")):
            for side, scores in result[name].items():
                parts += [(f"{side} {title} {part}", score) for part, score in scores.items()]
        yield ""
        yield f"{'part':28}{'AER':>8}{'precision':>11}{'recall':>8}{'links':>9}{'sentences':>11}"
        for name, part in parts:
            yield (
                f"{name:28}{part['aer']:8.4f}{part['precision']:11.4f}{part['recall']:8.4f}{part['links']:9}"
                f"{part['sentences']:11}"
            )


def _described_comparison(compared: dict) -> Iterator[str]:
    low, high = compared["ci95"]
    yield (
        f"other AER  {compared['other_aer']:.4f}   difference {compared['difference']:+.4f} (95% {low:+.4f} to "
        f"{high:+.4f}), lower in {compared['better']:.1%} of {compared['resamples']} resamples, "
        f"p = {compared['p_value']:.4f} (approximate randomisation)"
    )


def symmetrize_files(
    forward: Path,
    reverse: Path,
    method: str,
    output: Path | None,
    *,
    flip_reverse: bool,
    forward_base: int | None = None,
    reverse_base: int | None = None,
) -> None:
    """Combine the link files of two directions, line by line, and write the result to `output` or stdout."""
    with _refused():
        check_symmetrization(method)
    links = 0

    def combined() -> Iterator[AlignedPair]:
        nonlocal links
        for one, other in _side_by_side(forward, forward_base, reverse, reverse_base):
            back = reverse_links(other.gold.possible) if flip_reverse else other.gold.possible
            result = as_pair(symmetrize(one.gold.possible, back, method))
            links += len(result.gold.sure)
            yield result

    pairs = _write(combined(), output)
    remark(f"{pairs} pairs, {links} links; {method}")


def _side_by_side(
    path: Path, base: int | None, other_path: Path, other_base: int | None
) -> Iterator[tuple[AlignedPair, AlignedPair]]:
    blank = as_pair(())
    columns = _open(path, base), _open(other_path, other_base)
    for number, (one, other) in enumerate(zip_longest(*columns), start=1):
        for ended, its_path, longer in ((one, path, other_path), (other, other_path, path)):
            if ended is None and _keeps_ends(its_path):
                raise InputError(
                    f"{its_path}:{number}: {number - 1} lines, but {longer} has more; "
                    "line N of one file must belong to line N of the other"
                )
        yield one or blank, other or blank


def convert_file(
    path: Path,
    output: Path,
    *,
    from_format: str | None,
    to_format: str | None,
    base: int | None,
    extraction: str,
) -> None:
    """Turn an alignment file into another format; say on stderr what the new format cannot hold."""
    with _refused():
        target_format = format_of(output, to_format)
        if from_format == "npz" or (from_format is None and path.suffix == _MATRICES):
            check_extraction(extraction)
            pairs: Iterable[AlignedPair] = _pairs_of_matrices(path, extraction)
        else:
            pairs = _open(path, base, format_of(path, from_format))
    if output.suffix == _MATRICES:
        raise InputError(f"{output}: links cannot become matrices; matrices come from align --soft")
    count, lost = write_pairs(output, pairs, format_name=target_format)
    what = ", ".join(f"{number} {name}" for name, number in lost.items()) or "nothing"
    remark(f"{output}: {count} pairs as {target_format}; lost: {what}")


def _pairs_of_matrices(path: Path, extraction: str) -> Iterator[AlignedPair]:
    """Read links off matrices, one in memory at a time, unless the links depend on all of them."""
    found: Iterable[tuple[np.ndarray, Links]]
    if extraction.startswith("hmm"):
        matrices = list(iterate_matrices(path))
        found = zip(matrices, extract_corpus_links(matrices, extraction), strict=True)
    else:
        found = ((matrix, extract_links(matrix, extraction)) for matrix in iterate_matrices(path))
    for matrix, links in found:
        yield AlignedPair(Gold(links, links), link_probabilities(matrix, links))


def _open(path: Path, base: int | None, format_name: str | None = None) -> Iterator[AlignedPair]:
    name = format_of(path, format_name)
    found = settle_base(path, name, base)
    _report(path, found.first, found.evidence, found.certain)
    return FORMATS[name].read(path, found.first)


def read_reported(path: Path, base: int | None, texts: Sequence[Sequence[Sequence[str]]] | None = None) -> LinkFile:
    """Read a file of links and say on stderr what it counts from, as a warning if that is not certain."""
    source_lengths, target_lengths = (None, None) if texts is None else ([len(w) for w in side] for side in texts)
    read = read_link_file(path, base=base, source_lengths=source_lengths, target_lengths=target_lengths)
    _report(path, read.base, read.evidence, read.certain or not any(each.possible for each in read.sentences))
    return read


def _report(path: Path, base: int, evidence: str, certain: bool) -> None:
    if certain:
        remark(f"{path}: counts from {base} ({evidence})")
    else:
        remark(f"warning: {path}: {evidence}, counting from {base}; if that is wrong, give the base")


def _evened(path: Path, one: LinkFile, other_path: Path, other: LinkFile) -> tuple[LinkFile, LinkFile]:
    """Give a file whose format drops blank lines at the end the other's number of lines; refuse other differences."""
    count = max(len(one.sentences), len(other.sentences))
    evened = []
    for its_path, file, longer in ((path, one, other_path), (other_path, other, path)):
        missing = count - len(file.sentences)
        if missing and _keeps_ends(its_path):
            raise InputError(
                f"{its_path}:{len(file.sentences) + 1}: {len(file.sentences)} lines, but {longer} has {count}; "
                "line N of one file must belong to line N of the other"
            )
        blank = [Gold(frozenset(), frozenset())] * missing
        evened.append(LinkFile(file.sentences + blank, file.base, file.evidence, file.certain))
    return evened[0], evened[1]


def _keeps_ends(path: Path) -> bool:
    return BLANK_ENDS in FORMATS[format_of(path)].keeps


def _write(pairs: Iterable[AlignedPair], output: Path | None) -> int:
    if output is not None:
        return write_pairs(output, pairs)[0]
    count = 0
    for pair in pairs:
        sys.stdout.write(format_links(pair.gold) + "\n")
        count += 1
    return count


def remark(text: str) -> None:
    """Print to stderr."""
    print(text, file=sys.stderr)


@contextmanager
def _refused(path: Path | None = None) -> Iterator[None]:
    """Turn what the room says about bad values into bad input."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: {error}" if path else str(error)) from error
