"""One tokenizer for both sides of a translation, or one for each: what every function here takes as `tokenizer`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import cached_file

from .limits import vocabulary_size
from .text_files import InputError

TARGET_FOLDER = "target_tokenizer"
"""Where a model folder holds the target's tokenizer; the source's lies beside the model. Both load by AutoTokenizer,
this one with `subfolder="target_tokenizer"`."""


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of a model with two vocabularies, whose ids mean one word here and another there."""

    source: PreTrainedTokenizerBase
    target: PreTrainedTokenizerBase

    def __post_init__(self) -> None:
        if self.source.pad_token_id != self.target.pad_token_id:
            raise ValueError(
                f"pad_token_id is {self.source.pad_token_id} in the source tokenizer and {self.target.pad_token_id} in "
                "the target one; a model has one for both sides, so train the two with the same special tokens"
            )

    @property
    def model_input_names(self) -> list[str]:
        """Return what the encoder reads; a Trainer asks."""
        return self.source.model_input_names

    def save_pretrained(self, folder: str | Path, **kwargs: Any) -> None:
        """Save the source tokenizer into `folder` and the target tokenizer into `folder/target_tokenizer`."""
        self.source.save_pretrained(folder, **kwargs)
        self.target.save_pretrained(Path(folder) / TARGET_FOLDER, **kwargs)


AnyTokenizer = PreTrainedTokenizerBase | TokenizerPair


def sides(tokenizer: Any) -> tuple[Any, Any]:
    """Return the tokenizers of source and target; a single one is both."""
    if isinstance(tokenizer, TokenizerPair):
        return tokenizer.source, tokenizer.target
    return tokenizer, tokenizer


def load_tokenizer(name_or_path: str | Path) -> AnyTokenizer:
    """Load the tokenizer that lies beside a model, or the two, from a folder or from the Hub.

    Raises:
        OSError, ValueError: there is no tokenizer (from the library).
        InputError: the model has two vocabularies, but there is one tokenizer.
    """
    source = AutoTokenizer.from_pretrained(name_or_path)
    config = AutoConfig.from_pretrained(name_or_path)
    if getattr(config, "share_encoder_decoder_embeddings", True):
        return source
    missing_is_none: dict[str, bool] = {"_raise_exceptions_for_missing_entries": False}
    if cached_file(str(name_or_path), f"{TARGET_FOLDER}/tokenizer_config.json", **missing_is_none) is not None:
        return TokenizerPair(source, AutoTokenizer.from_pretrained(name_or_path, subfolder=TARGET_FOLDER))
    sizes = [vocabulary_size(config, side) for side in ("source", "target")]
    # Marian's own tokenizer holds both of its vocabularies.
    if sizes[0] != sizes[1] and config.model_type != "marian":
        raise InputError(
            f"{name_or_path}: the model has a source vocabulary of {sizes[0]} and a target vocabulary of {sizes[1]}, "
            f"but no {TARGET_FOLDER}; save the target's tokenizer there"
        )
    return source


def load_tokenizer_files(folder: str | Path) -> AnyTokenizer:
    """Load what `save_pretrained` of a tokenizer, or of a pair, wrote into a folder; no model need lie beside it."""
    source = AutoTokenizer.from_pretrained(folder)
    if not (Path(folder) / TARGET_FOLDER).is_dir():
        return source
    return TokenizerPair(source, AutoTokenizer.from_pretrained(folder, subfolder=TARGET_FOLDER))


def check_vocabularies(tokenizer: AnyTokenizer, config: Any, name: str | Path) -> None:
    """Raise an InputError where a tokenizer has ids that its side of the model does not know."""
    for side, one in zip(("source", "target"), sides(tokenizer), strict=True):
        size = vocabulary_size(config, side)
        if size is not None and len(one) > size:
            whose = f"{side} " if isinstance(tokenizer, TokenizerPair) else ""
            raise InputError(
                f"{name}: the {whose}tokenizer has {len(one)} entries, the model {size}; they do not fit together"
            )
