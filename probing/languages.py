"""Languages of multilingual models: which tag the source gets, and which one the decoder starts with.

- mBART-50, M2M100, NLLB: source `[lang] x </s>`, decoder inputs `</s> [lang] y </s>`: the tag is the first token that
  the decoder is made to produce. NLLB's older form puts the source's tag last.
- mBART: source `x </s> [lang]`, decoder inputs `[lang] y </s>`: the tag is the decoder's start token.
- OPUS-MT: the target's tag stands in the source text, `>>deu<< x </s>`.

A tokenizer writes these tags by a state of its own, which it also switches between source and target at each call. So
that threads do not meet there, such a tokenizer is worked with on a private copy.
"""

import copy
from dataclasses import dataclass
from typing import Any

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.tokenizer_pair import sides

from .tokens import TokenizedText, tokenize


@dataclass(frozen=True)
class Languages:
    """A tokenizer set to two languages, and how they start the decoder.

    Attributes:
        tokenizer: for source and target, as `extract` takes it; private where it has a state.
        source_prefix: the target's tag where a model reads it in the source text, else empty.
        first_token: the token id that every target begins with after the start token; None = none.
        start_token: the token id that the decoder starts with, where that depends on the language; else None.
    """

    tokenizer: Any
    source_prefix: str = ""
    first_token: int | None = None
    start_token: int | None = None

    def decoder_view(self, target: TokenizedText) -> tuple[int | None, TokenizedText]:
        """Return the start token that this target asks for (None = the model's own) and the target as the decoder is
        to produce it."""
        tags = [index for index, role in enumerate(target.roles) if role == "tag" and target.word_of[index] is None]
        if tags and tags[-1] == len(target.ids) - 1 and len(target.ids) > 1:
            last = target.ids[-1]
            if self.start_token is not None:
                return last, target
            token = target.tokens[-1]
            target = target.without(len(target.ids) - 1)
            return None, target.with_structural(0, last, token, "tag")
        if self.first_token is not None and target.ids[:1] != [self.first_token] and 0 not in tags:
            token = str(sides(self.tokenizer)[1].convert_ids_to_tokens(self.first_token))
            return None, target.with_structural(0, self.first_token, token, "start")
        return self.start_token, target

    def generate_kwargs(self) -> dict[str, int]:
        """Return what makes `generate` write the target language."""
        if self.start_token is not None:
            return {"decoder_start_token_id": self.start_token}
        return {} if self.first_token is None else {"forced_bos_token_id": self.first_token}


def set_languages(
    model: Any, tokenizer: Any, source_language: str | None = None, target_language: str | None = None
) -> Languages:
    """Set a tokenizer to two languages, without touching the one given.

    Args:
        source_language, target_language: by the tokenizer's names (`en`, `eng_Latn`, `en_XX`, `deu`). None: the
            tokenizer's `src_lang` and `tgt_lang`; without a `tgt_lang`, the language that the model's generation
            config makes it begin with.

    Raises:
        ValueError: a language that the tokenizer does not know, or none where it needs one; says what to do.
    """
    first = _forced(model)
    source, target = sides(tokenizer)
    if not hasattr(target, "tgt_lang"):
        return _without_state(model, tokenizer, source_language, target_language, first)
    private = _private(tokenizer)
    source, target = sides(private)
    known = {"source_language": (source, source_language), "target_language": (target, target_language)}
    for name, (one, language) in known.items():
        if language is not None:
            _check_language(one, name, language)
    if source_language is not None:
        source.src_lang = source_language
    target.tgt_lang = target_language or _own_target_language(model, target, first)
    if target.tgt_lang is None:
        raise UnusableError(
            f"{type(target).__name__} has no tgt_lang, so that it is unknown which language the decoder is to write; "
            "give target_language"
        )
    (blank,) = tokenize(target, [""], target=True)
    tags = [index for index, role in enumerate(blank.roles) if role == "tag"]
    if not tags:
        return Languages(private, first_token=first)
    tag = blank.ids[tags[-1]]
    # Only mBART's decoder starts with the tag that its tokenizer writes last (`shift_tokens_right` turns it round).
    if tags[-1] == len(blank.ids) - 1 and model.config.model_type == "mbart":
        return Languages(private, start_token=tag)
    return Languages(private, first_token=tag)


def _without_state(
    model: Any, tokenizer: Any, source_language: str | None, target_language: str | None, first: int | None
) -> Languages:
    """Return the languages of a tokenizer that has no `src_lang` and `tgt_lang`."""
    source, target = sides(tokenizer)
    if source_language is not None:
        raise UnusableError(
            f"source_language is {source_language!r}, but {type(source).__name__} has no src_lang; if the model reads "
            "a language tag, put it into source_prefix"
        )
    # Tokenizers with a target mode switch to it and back at each call.
    has_modes = any(hasattr(one, "_switch_to_target_mode") for one in (source, target))
    private = _private(tokenizer) if has_modes else tokenizer
    if target_language is None:
        return Languages(private, first_token=first)
    in_source = f">>{target_language}<<"
    if _is_known(source, in_source):
        return Languages(private, source_prefix=f"{in_source} ", first_token=first)
    for token in (target_language, f"__{target_language}__"):
        if _is_known(target, token):
            return Languages(private, first_token=int(target.convert_tokens_to_ids(token)))
    raise UnusableError(
        f"target_language is {target_language!r}, but {type(target).__name__} has no token for it ({in_source}, "
        f"{target_language} or __{target_language}__); leave it out if the model writes one language only"
    )


def _forced(model: Any) -> int | None:
    """Return the token id that `generate` makes this model begin with."""
    for holder in (getattr(model, "generation_config", None), model.config):
        value = getattr(holder, "forced_bos_token_id", None)
        if value is not None:
            return int(value)
    return None


def _own_target_language(model: Any, tokenizer: Any, first: int | None) -> str | None:
    """Return the tokenizer's target language, else the one of the token that the model always begins with."""
    if tokenizer.tgt_lang is not None:
        return str(tokenizer.tgt_lang)
    for token_id in (first, getattr(model.config, "decoder_start_token_id", None)):
        if token_id is None:
            continue
        token = str(tokenizer.convert_ids_to_tokens(token_id))
        for language in (token, token.strip("_")):
            if _language_id(tokenizer, language) == token_id and token not in _plain(tokenizer):
                return language
    return None


def _plain(tokenizer: Any) -> set[str]:
    names = ("bos_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return {str(getattr(tokenizer, name, None)) for name in names}


def _check_language(tokenizer: Any, name: str, language: str) -> None:
    if _language_id(tokenizer, language) is None:
        codes = getattr(tokenizer, "lang_code_to_token", None) or {
            token.content for token in tokenizer.added_tokens_decoder.values()
        } - _plain(tokenizer)
        some = ", ".join(sorted(codes)[:12])
        raise UnusableError(
            f"{name} is {language!r}, which {type(tokenizer).__name__} does not know; it knows {some}"
            + (", ..." if len(codes) > 12 else "")
        )


def _language_id(tokenizer: Any, language: str) -> int | None:
    codes = getattr(tokenizer, "lang_code_to_token", None)
    token = codes.get(language) if codes else language
    return int(tokenizer.convert_tokens_to_ids(token)) if token and _is_known(tokenizer, token) else None


def _is_known(tokenizer: Any, token: str) -> bool:
    index = tokenizer.convert_tokens_to_ids(token)
    return index is not None and index != tokenizer.unk_token_id


def _private(tokenizer: Any) -> Any:
    try:
        return copy.deepcopy(tokenizer)
    except OSError as error:
        # Python tokenizers load their SentencePiece model anew.
        raise UnusableError(
            f"the tokenizer's files can no longer be read ({error}); load the tokenizer from where they are"
        ) from error
