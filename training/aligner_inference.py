"""New text by an aligner that `train-aligner` left in a folder: links and their probabilities."""

from pathlib import Path
from typing import Any

import numpy as np

from hf_seq2seq_attn.probing import refused
from hf_seq2seq_attn.text_files import InputError, check_overwritten

from .aligner_corpus import AlignerFiles, AlignerText, read_fixed_links, read_text
from .aligner_folder import read_record
from .aligner_links import linked_cells, with_fixed
from .aligner_output import aligned_pairs, check_format, write_alignment, write_soft
from .aligner_teachers import builtin_on_new_text
from .trained_aligner import TrainedAligner


def align_with_folder(
    folder: Path,
    files: AlignerFiles,
    output: Path | None,
    *,
    format_name: str | None = None,
    soft: Path | None = None,
    fixed_links: Path | None = None,
    links_base: int | None = None,
) -> int:
    """Align two files and write a line of links for each line of them, to `output` or stdout.

    Args:
        format_name: one of `probing.FORMATS` that is written; None = by the suffix of `output`, else Pharaoh.
        soft: an NPZ file for the (T, S) probabilities; the links are the cells above 0.5.
        fixed_links: links that must come out; their probability is 1.
        links_base: what that file counts from, 0 or 1; None = found.

    Returns:
        The number of links.

    Raises:
        InputError: bad files, an output that is one of the inputs, or lemmas missing that the aligner was trained with.
    """
    name = check_format(output, format_name)
    if soft is not None and soft.suffix != ".npz":
        raise InputError(f"{soft}: matrices are written as .npz; rename it")
    check_lemmas(folder, files)
    check_overwritten({"-o": output, "--soft": soft}, {**files.by_option(), "--fixed-links": fixed_links})
    text = read_text(files)
    fixed = {} if fixed_links is None else read_fixed_links(fixed_links, text, links_base)
    matrices = with_fixed(soft_links(folder, text), fixed)
    links = [linked_cells(matrix) for matrix in matrices]
    if soft is not None:
        write_soft(text, matrices, soft)
    write_alignment(aligned_pairs(text, links), output, name)
    return sum(map(len, links))


def soft_links(folder: Path, text: AlignerText) -> list[np.ndarray]:
    """Return each verse's link probabilities, (T, S) float32, by the aligner and the builtin teachers in the folder."""
    lemmas: dict[str, Any] = {"source_lemmas": text.source_lemmas, "target_lemmas": text.target_lemmas}
    with refused():
        aligner = TrainedAligner.load(folder)
        forms = aligner.teacher_forms(text.source, text.target, **lemmas)
        teachers = builtin_on_new_text(forms, folder)
        return aligner.posteriors(text.source, text.target, **lemmas, teachers=teachers)


def check_lemmas(folder: Path, files: AlignerFiles) -> None:
    """Raise an InputError unless lemmas are given for just those sides that the aligner was trained with lemmas of."""
    trained = read_record(folder)["lemmas"]
    for side, path in (("source", files.source_lemmas), ("target", files.target_lemmas)):
        if trained[side] and path is None:
            raise InputError(f"{folder}: was trained with {side} lemmas; give --{side}-lemmas of this text too")
        if not trained[side] and path is not None:
            raise InputError(f"{path}: {folder} was trained without {side} lemmas; leave --{side}-lemmas out")
