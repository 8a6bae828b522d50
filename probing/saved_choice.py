"""Where a model's word alignment is best read: chosen once, saved with the model, used ever after.

`alignment.json` in the model's folder holds the whole choice and where it comes from; `generation_config.json` gets
`alignment_heads`, [[layer, head], ...] under Whisper's name, and `alignment_rows`, which survive when the model is
saved elsewhere.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError

from .attention_maps import WEIGHTS
from .choices import check_choices
from .extraction import ROWS
from .formats import write_atomically
from .head_fit import HeadFit
from .head_words import Head

CHOICE_FILE = "alignment.json"
_VERSION = 1


@dataclass(frozen=True)
class AlignmentChoice:
    """How a model's word alignments are read.

    Attributes:
        heads: (layer, head) pairs; their mean is read.
        align_with, weights, specials, subwords, links: as in `align`.
        fit: a logistic combination of all heads, read instead of `heads` if it is there; `links` are then read off its
            probabilities.
        provenance: criterion, score, data, model revision and versions, for the record.
    """

    heads: tuple[Head, ...]
    align_with: str
    weights: str = "attention"
    specials: str = "mask"
    subwords: str = "matrix"
    links: str = "argmax"
    fit: HeadFit | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choices(self.align_with, self.specials, self.subwords, self.links)
        if self.align_with not in ROWS:
            raise UnusableError(f"align_with is {self.align_with!r}; allowed are {', '.join(ROWS)}")
        if self.weights not in WEIGHTS:
            raise UnusableError(f"weights is {self.weights!r}; allowed are {', '.join(WEIGHTS)}")
        if not self.heads or not all(len(head) == 2 and min(head) >= 0 for head in self.heads):
            raise UnusableError(
                f"heads is {self.heads!r}; it must be a list of [layer, head] pairs, numbered from 0, not empty"
            )

        if self.fit is not None and (self.specials, self.subwords) != ("mask", "matrix"):
            raise UnusableError(
                f"specials is {self.specials!r} and subwords {self.subwords!r}; a fit reads words and has its own "
                "specials, so they must be 'mask' and 'matrix'"
            )

    @property
    def name(self) -> str:
        """The heads in words."""
        if self.fit is not None:
            return "all heads, fitted"
        return ", ".join(f"{layer}.{head}" for layer, head in self.heads) + " (layer.head)"

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "version": _VERSION,
            "alignment_heads": [list(head) for head in self.heads],
            "align_with": self.align_with,
            "weights": self.weights,
            "specials": self.specials,
            "subwords": self.subwords,
            "links": self.links,
            "fit": None if self.fit is None else self.fit.as_dict(),
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "AlignmentChoice":
        """Return the choice that `as_dict` wrote.

        Raises:
            ValueError: a field that is missing or has a value that is not allowed; names it.
        """
        if values.get("version") != _VERSION:
            raise UnusableError(
                f"version is {values.get('version')!r}; this release reads {_VERSION}: choose anew with heads --save"
            )
        try:
            heads = tuple((int(layer), int(head)) for layer, head in values["alignment_heads"])
            texts = {name: str(values[name]) for name in ("align_with", "weights", "specials", "subwords", "links")}
        except (KeyError, TypeError, ValueError) as error:
            raise UnusableError(f"a field is missing or wrong ({error!r}); choose anew with heads --save") from error
        fit = values.get("fit")
        return cls(
            heads=heads,
            **texts,
            fit=None if fit is None else HeadFit.from_dict(fit),
            provenance=values.get("provenance") or {},
        )


def save_choice(folder: str | Path, choice: AlignmentChoice, model: Any = None) -> None:
    """Save a choice with a model, in the model's folder.

    Args:
        folder: with the `config.json` of the model.
        model: the loaded model, whose `generation_config` gets the heads too.

    Raises:
        InputError: not a model's folder, or one that cannot be written.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise InputError(
            f"{folder}: not a folder with a model, so the choice cannot be saved with it; save the model first "
            "(save_pretrained, or huggingface-cli download --local-dir) and give that folder"
        )
    heads = [list(head) for head in choice.heads]
    path = folder / "generation_config.json"
    try:
        generation = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); mend it or remove it") from error
    # Of a file with this mark, transformers reads its own fields only.
    generation.pop("_from_model_config", None)
    generation |= {"alignment_heads": heads, "alignment_rows": choice.align_with}
    write_atomically(folder / CHOICE_FILE, [json.dumps(choice.as_dict(), indent=1, ensure_ascii=False) + "\n"])
    write_atomically(path, [json.dumps(generation, indent=2, sort_keys=True) + "\n"])
    if model is not None and getattr(model, "generation_config", None) is not None:
        model.generation_config._from_model_config = False
        model.generation_config.alignment_heads = heads
        model.generation_config.alignment_rows = choice.align_with


def saved_choice(model: Any) -> AlignmentChoice | None:
    """Return the choice that was saved with a model; None if there is none.

    It is looked for in `alignment.json` beside the files that the model was loaded from, in a folder or on the Hub,
    then in `model.generation_config.alignment_heads`.

    Args:
        model: a model, or the folder or Hub id that one is loaded from.

    Raises:
        InputError: a file that cannot be read.
        ValueError: heads in the generation config that are not [layer, head] pairs.
    """
    path = _choice_file(model)
    if path is not None:
        return read_choice(path)
    generation = getattr(model, "generation_config", None)
    heads = getattr(generation, "alignment_heads", None)
    if not heads:
        return None
    from .extraction import default_rows

    try:
        pairs = tuple((int(layer), int(head)) for layer, head in heads)
    except (TypeError, ValueError) as error:
        raise UnusableError(
            f"generation_config.alignment_heads is {heads!r}; it must be a list of [layer, head] pairs"
        ) from error
    rows = getattr(generation, "alignment_rows", None) or default_rows(model.config)
    return AlignmentChoice(pairs, rows)


def read_choice(path: str | Path) -> AlignmentChoice:
    """Read an `alignment.json`.

    Raises:
        InputError: a file that is missing, no JSON, or no such choice; says why.
    """
    path = Path(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}); choose anew with heads --save") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: holds no choice of heads; choose anew with heads --save")
    try:
        return AlignmentChoice.from_dict(values)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


def _choice_file(model: Any) -> Path | None:
    name = str(model if isinstance(model, str | Path) else getattr(model, "name_or_path", "") or "")
    if not name:
        return None
    if Path(name).is_dir():
        path = Path(name) / CHOICE_FILE
        return path if path.is_file() else None
    from transformers.utils import cached_file

    try:
        found = cached_file(
            name,
            CHOICE_FILE,
            _commit_hash=getattr(getattr(model, "config", None), "_commit_hash", None),
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    except (OSError, ValueError):
        return None
    return None if found is None else Path(found)
