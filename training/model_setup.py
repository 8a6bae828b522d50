"""Make, or load, the tokenizer and the model that a recipe asks for."""

from collections.abc import Iterable
from itertools import chain
from types import SimpleNamespace
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.probing import set_languages
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer, TokenizerPair, check_vocabularies, load_tokenizer, sides

from .alignment_reading import inherit_reading
from .data import ParallelCorpus
from .recipe import Recipe, TokenizerRecipe, refuse_unknown
from .tokenization import train_tokenizer


def make_tokenizer(recipe: Recipe, train: ParallelCorpus) -> AnyTokenizer:
    """Train the recipe's tokenizer on both sides of the training text, or one on each; or load `model.init_from`'s."""
    init_from = recipe.model.get("init_from")
    if init_from is not None:
        try:
            tokenizer = load_tokenizer(init_from)
        except InputError:
            raise
        # Python tokenizers without their files raise a TypeError.
        except (OSError, TypeError, ValueError) as error:
            raise InputError(
                f"model.init_from={init_from}: no tokenizer there ({_first_line(error)}); save it beside the model"
            ) from error
        return _with_languages(tokenizer, recipe)
    wanted = recipe.tokenizer or TokenizerRecipe()

    def trained(sentences: Iterable[list[str]], vocab_size: int) -> PreTrainedTokenizerFast:
        texts = (" ".join(words) for words in sentences if words)
        return train_tokenizer(
            texts, vocab_size, wanted.kind, lowercase=wanted.lowercase, split_punctuation=wanted.split_punctuation
        )

    if not wanted.separate:
        return trained(chain(train.sources, train.targets), wanted.vocab_size)
    return TokenizerPair(
        trained(train.sources, wanted.vocab_size), trained(train.targets, wanted.target_vocab_size or wanted.vocab_size)
    )


def make_model(recipe: Recipe, tokenizer: AnyTokenizer) -> PreTrainedModel:
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
        inherit_reading(model)
        if hasattr(sides(tokenizer)[1], "tgt_lang"):
            # So that `generate` writes the language that was trained.
            for name, value in set_languages(model, tokenizer).generate_kwargs().items():
                setattr(model.generation_config, name, value)
        return model
    source_tokenizer, target_tokenizer = sides(tokenizer)
    fields.setdefault("decoder_start_token_id", target_tokenizer.bos_token_id)
    if isinstance(tokenizer, TokenizerPair):
        if fields.setdefault("share_encoder_decoder_embeddings", False):
            raise ValueError(
                "share_encoder_decoder_embeddings=True: separate tokenizers need two tables; leave it out, or set "
                "tokenizer.separate=false"
            )
        fields["decoder_vocab_size"] = len(target_tokenizer)
    config = Seq2SeqAttnConfig(
        vocab_size=len(source_tokenizer),
        pad_token_id=target_tokenizer.pad_token_id,
        bos_token_id=target_tokenizer.bos_token_id,
        eos_token_id=target_tokenizer.eos_token_id,
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
        # Padding was never a label; but its score may still be the highest where all others are low.
        suppress_tokens=None if config.pad_token_id is None else [config.pad_token_id],
    )
    return model


def check_fit(tokenizer: AnyTokenizer, model: PreTrainedModel, name: str) -> None:
    """Raise an InputError where the ids of a tokenizer mean something else to the model, or nothing."""
    check_vocabularies(tokenizer, model.config, name)
    for field in ("pad_token_id", "eos_token_id"):
        ours, theirs = getattr(sides(tokenizer)[1], field), getattr(model.config, field, None)
        if ours is not None and theirs is not None and ours not in (theirs if isinstance(theirs, list) else [theirs]):
            raise InputError(
                f"{name}: {field} is {ours} in the tokenizer and {theirs} in the model; they do not fit together"
            )


def _with_languages(tokenizer: AnyTokenizer, recipe: Recipe) -> AnyTokenizer:
    """Set a multilingual tokenizer (NLLB, M2M100, mBART) to the languages of the recipe; saved, it keeps them.

    Raises:
        ValueError: a language that it does not know by that name, or no target language at all.
    """
    if not hasattr(sides(tokenizer)[1], "tgt_lang"):
        return tokenizer
    model = SimpleNamespace(config=AutoConfig.from_pretrained(recipe.model["init_from"]))
    try:
        found = set_languages(model, tokenizer, recipe.data.source_language, recipe.data.target_language).tokenizer
    except ValueError as error:
        raise ValueError(f"{error} (a recipe says it by data.source_language and data.target_language)") from error
    source, target = sides(found)
    for one in (source, target):
        one.init_kwargs |= {"src_lang": source.src_lang, "tgt_lang": target.tgt_lang}
    return found


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
    except StrictDataclassError as error:
        raise InputError(f"model section of the recipe: {' '.join(str(error).split())}") from error
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        raise InputError(
            f"model.init_from={init_from}: its weights have other shapes than the model section asks for (the list is "
            f"above); take out of it what decides them (it has {', '.join(fields) or 'no fields'})"
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(f"model.init_from={init_from}: cannot be loaded ({_first_line(error)}); check it") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
