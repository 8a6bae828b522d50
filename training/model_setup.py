"""Make, or load, the tokenizer and the model that a recipe asks for."""

from itertools import chain
from typing import Any

from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.text_files import InputError

from .data import ParallelCorpus
from .recipe import Recipe, TokenizerRecipe, refuse_unknown
from .tokenization import train_tokenizer


def make_tokenizer(recipe: Recipe, train: ParallelCorpus) -> PreTrainedTokenizerBase:
    """Train the recipe's tokenizer on both sides of the training text, or load that of `model.init_from`."""
    init_from = recipe.model.get("init_from")
    if init_from is not None:
        try:
            return AutoTokenizer.from_pretrained(init_from)
        except (OSError, ValueError) as error:
            raise InputError(f"model.init_from={init_from}: no tokenizer there ({_first_line(error)})") from error
    wanted = recipe.tokenizer or TokenizerRecipe()
    texts = (" ".join(words) for words in chain(train.sources, train.targets) if words)
    return train_tokenizer(texts, wanted.vocab_size, wanted.kind, lowercase=wanted.lowercase)


def make_model(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Make a new model of ours by the recipe's fields, or load `model.init_from`.

    Raises:
        InputError: `init_from` cannot be loaded, its config lacks a field, or its tokenizer does not fit.
        ValueError: fields that clash (from Seq2SeqAttnConfig).
    """
    fields = dict(recipe.model)
    init_from = fields.pop("init_from", None)
    if init_from is not None:
        model = _load_model(init_from, fields, guided=recipe.alignment is not None)
        check_fit(tokenizer, model, str(init_from))
        return model
    fields.setdefault("decoder_start_token_id", tokenizer.bos_token_id)
    config = Seq2SeqAttnConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **fields,
    )
    model = Seq2SeqAttnForConditionalGeneration(config)
    # Stated in full: the library's own default would cut translations at 20 tokens.
    model.generation_config = GenerationConfig(
        pad_token_id=config.pad_token_id,
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        decoder_start_token_id=config.decoder_start_token_id,
        max_length=recipe.data.max_target_length + 1,
    )
    return model


def check_fit(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, name: str) -> None:
    """Raise an InputError where the ids of a tokenizer mean something else to the model, or nothing."""
    embeddings: Any = model.get_input_embeddings()
    rows = embeddings.num_embeddings
    if len(tokenizer) > rows:
        raise InputError(
            f"{name}: the tokenizer has {len(tokenizer)} entries, the model {rows}; they do not fit together"
        )
    for field in ("pad_token_id", "eos_token_id"):
        ours, theirs = getattr(tokenizer, field), getattr(model.config, field, None)
        if ours is not None and theirs is not None and ours not in (theirs if isinstance(theirs, list) else [theirs]):
            raise InputError(
                f"{name}: {field} is {ours} in the tokenizer and {theirs} in the model; they do not fit together"
            )


def _load_model(init_from: str, fields: dict[str, Any], guided: bool) -> PreTrainedModel:
    try:
        config = AutoConfig.from_pretrained(init_from)
    except (OSError, ValueError) as error:
        raise InputError(f"model.init_from={init_from}: no model there ({_first_line(error)}); check it") from error
    refuse_unknown(fields, config.to_dict(), ("model",), lambda keys: f"model.init_from={init_from}")
    # Fused attention gives no weights to guide. Our own model gives them whatever the implementation.
    eager = {"attn_implementation": "eager"} if guided and config.model_type != "seq2seq_attn" else {}
    try:
        return AutoModelForSeq2SeqLM.from_pretrained(init_from, **fields, **eager)
    except (OSError, ValueError) as error:
        raise InputError(f"model.init_from={init_from}: cannot be loaded ({_first_line(error)}); check it") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
