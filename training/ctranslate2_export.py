"""Export Transformer variants to CTranslate2, an engine that translates without torch (https://opennmt.net/CTranslate2)."""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ctranslate2
import numpy as np
import torch
from ctranslate2.specs import common_spec, transformer_spec
from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError, read_lines
from hf_seq2seq_attn.tokenizer_pair import TARGET_FOLDER, AnyTokenizer, TokenizerPair, check_vocabularies, sides
from hf_seq2seq_attn.transformer import TransformerDecoder, TransformerEncoder, sinusoids
from hf_seq2seq_attn.translation import LIMIT_EXTRA, LIMIT_FACTOR, SentenceTooLongError, load_seq2seq

QUANTIZATIONS: tuple[str, ...] = tuple(ACCEPTED_MODEL_TYPES)
"""How weights can be stored. Loading changes what a processor cannot compute with, see ctranslate2.Translator."""

PATIENCE = 2
"""Finished hypotheses, in beams, after which a search ends. Their default of 1 counts improbable ends as well, and at
times ends before the best hypothesis does, which `generate` waits for."""

# What `generate` can be told by a generation_config, and `translate_batch` by no argument that does the same: the
# values that change nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("forced_bos_token_id", "begin_suppress_tokens", "bad_words_ids", "sequence_bias"), ([], None)),
    **dict.fromkeys(
        ("min_length", "min_new_tokens", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), (None, 0)
    ),
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty", "length_penalty"), (None, 1)),
    "early_stopping": (None, False),
}

_Activation = common_spec.Activation
ACTIVATIONS = {
    "relu": _Activation.RELU,
    "gelu": _Activation.GELU,
    "gelu_python": _Activation.GELU,
    "gelu_new": _Activation.GELUTanh,
    "gelu_pytorch_tanh": _Activation.GELUTanh,
    "gelu_fast": _Activation.GELUTanh,
    "quick_gelu": _Activation.GELUSigmoid,
    "silu": _Activation.SWISH,
    "swish": _Activation.SWISH,
    "tanh": _Activation.Tanh,
    "sigmoid": _Activation.Sigmoid,
}
"""Our `activation_function` -> theirs, of the same formula."""


def export_ctranslate2(
    model: PreTrainedModel, tokenizer: AnyTokenizer, folder: Path, quantization: str = "float32"
) -> None:
    """Write a model folder for `ctranslate2.Translator`, with the tokenizer files beside; whole or not at all.

    Alignments are read (`return_attention=True`) at the config's `alignment_layer`, or the last, averaged over heads.

    Args:
        folder: New or empty. A model with sinusoidal positions gets `max_position_embeddings` of them there, the
            longest sentence that the export can take.
        quantization: One of `QUANTIZATIONS`. `float32` keeps the weights; all others change the translations
            somewhat, see `ctranslate2_agreement`.

    Raises:
        UnusableError: not one of our Transformers, or one that CTranslate2 cannot hold; names the field.
        InputError: the folder has something in it or cannot be written; the tokenizer does not fit the model.
    """
    if quantization not in QUANTIZATIONS:
        raise UnusableError(f"quantization={quantization!r}: choose one of {', '.join(QUANTIZATIONS)}")
    _refuse_what_cannot_be_held(model.config)
    search_options(model, tokenizer)
    check_vocabularies(tokenizer, model.config, model.name_or_path or type(model).__name__)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise InputError(f"{folder}: there is something already; name a new or empty folder")
    spec = _build(model, tokenizer)
    spec.validate()
    spec.optimize(quantization)
    written = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        written = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        spec.save(str(written))
        tokenizer.save_pretrained(written)
        written.chmod(0o755)
        os.rename(written, folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror or error}); check the folder") from error
    finally:
        if written is not None:
            shutil.rmtree(written, ignore_errors=True)


def _refuse_what_cannot_be_held(config: Any) -> None:
    """Raise an UnusableError that names the first field in which a model differs from what CTranslate2 computes."""
    if config.model_type != "seq2seq_attn":
        raise UnusableError(
            f"model_type={config.model_type!r}: this exports seq2seq_attn models; for those of the library, "
            "CTranslate2 brings a command of its own: ct2-transformers-converter"
        )
    needed = {
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "cross_attention_type": "scaled_dot_product",
        "cross_attention_heads": config.decoder_attention_heads,
        "cross_attention_dim": config.d_model,
        "project_values": True,
        "null_key": False,
    }
    for field, only in needed.items():
        if getattr(config, field) != only:
            _refuse(field, getattr(config, field), f"only {only!r}")
    if config.activation_function not in ACTIVATIONS:
        _refuse("activation_function", config.activation_function, f"only {', '.join(ACTIVATIONS)}")
    if isinstance(config.eos_token_id, list) and len(config.eos_token_id) > 1:
        _refuse("eos_token_id", config.eos_token_id, "one end token")


def search_options(model: PreTrainedModel, tokenizer: AnyTokenizer) -> dict[str, Any]:
    """Return what `translate_batch` is to be told, beside the beams, to search as the model's `generate` does.

    What is suppressed is so before the softmax there and after it in `generate`: hypotheses rank the same as far as its
    probability was small, which that of padding is once a model is trained.

    Raises:
        UnusableError: the generation config asks for what there is no argument for; names the field.
    """
    generation: Any = model.generation_config
    neutral = _NEUTRAL | {
        "eos_token_id": (None, model.config.eos_token_id, [model.config.eos_token_id]),
        "decoder_start_token_id": (None, model.config.decoder_start_token_id),
    }
    for field, values in neutral.items():
        if getattr(generation, field, None) not in values:
            _refuse(f"generation_config.{field}", getattr(generation, field), f"only {values[-1]!r}")
    # 0: what is longer than the positions is refused, and not cut.
    options: dict[str, Any] = {"patience": PATIENCE, "max_input_length": 0}
    if generation.suppress_tokens:
        names = _tokens(sides(tokenizer)[1], model.config.target_vocab_size)
        options["suppress_sequences"] = [[names[index]] for index in generation.suppress_tokens]
    return options


def _refuse(field: str, value: object, what: str) -> None:
    raise UnusableError(
        f"{field}={value!r}: CTranslate2 has {what} here; decode this model with `seq2seq-attn translate`, or use "
        "one that differs in this field"
    )


def _build(model: Any, tokenizer: AnyTokenizer) -> Any:
    """Return the specification with all weights and both vocabularies in it."""
    config = model.config
    shared = {"pre_norm": config.normalize_before, "activation": ACTIVATIONS[config.activation_function]}
    encoder = transformer_spec.TransformerEncoderSpec(config.encoder_layers, config.encoder_attention_heads, **shared)
    decoder = transformer_spec.TransformerDecoderSpec(
        config.decoder_layers,
        config.decoder_attention_heads,
        alignment_layer=-1 if config.alignment_layer is None else config.alignment_layer,
        alignment_heads=config.cross_attention_heads,
        **shared,
    )
    _fill_side(encoder, encoder.embeddings[0], model.model.encoder)
    _fill_side(decoder, decoder.embeddings, model.model.decoder)
    for of_layer, layer in zip(decoder.layer, model.model.decoder.layers, strict=True):
        of_source, attention = of_layer.attention, layer.encoder_attn
        _fill_linear(of_source.linear[0], attention.q_proj)
        _fill_linear(of_source.linear[1], attention.k_proj, attention.v_proj)
        _fill_linear(of_source.linear[2], attention.out_proj)
        _fill_norm(of_source.layer_norm, layer.encoder_attn_residual.layer_norm)
        if not config.scale_scores:
            of_source.queries_scale = np.float32(1)
    _fill_linear(decoder.projection, model.lm_head)
    spec = transformer_spec.TransformerSpec(encoder, decoder)
    _name_tokens(spec, config, tokenizer)
    return spec


def _fill_side(spec: Any, embeddings: Any, side: TransformerEncoder | TransformerDecoder) -> None:
    """Fill in what encoder and decoder share: embeddings, positions, self-attention, feed-forward and norms."""
    config = side.config
    embeddings.weight = _numbers(side.embed_tokens.weight)
    spec.scale_embeddings = np.float32(side.embed_scale)
    if side.embed_positions is None:
        table = sinusoids(config.max_position_embeddings, config.d_model, torch.device("cpu"))
    else:
        table = side.embed_positions.weight
    spec.position_encodings.encodings = _numbers(table)
    if side.layer_norm is not None:
        _fill_norm(spec.layer_norm, side.layer_norm)
    layers: Any = side.layers
    for of_layer, layer in zip(spec.layer, layers, strict=True):
        attention = layer.self_attn
        _fill_linear(of_layer.self_attention.linear[0], attention.q_proj, attention.k_proj, attention.v_proj)
        _fill_linear(of_layer.self_attention.linear[1], attention.out_proj)
        _fill_norm(of_layer.self_attention.layer_norm, layer.self_attn_residual.layer_norm)
        _fill_linear(of_layer.ffn.linear_0, layer.feed_forward.fc1)
        _fill_linear(of_layer.ffn.linear_1, layer.feed_forward.fc2)
        _fill_norm(of_layer.ffn.layer_norm, layer.feed_forward_residual.layer_norm)


def _fill_linear(spec: Any, *layers: nn.Linear | None) -> None:
    """Put layers that read the same input one below the other; a missing bias is 0 beside one that is there."""
    present = [layer for layer in layers if layer is not None]
    spec.weight = np.concatenate([_numbers(layer.weight) for layer in present])
    if any(layer.bias is not None for layer in present):
        spec.bias = np.concatenate(
            [
                np.zeros(layer.out_features, np.float32) if layer.bias is None else _numbers(layer.bias)
                for layer in present
            ]
        )


def _fill_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _numbers(norm.weight), _numbers(norm.bias)


def _numbers(tensor: torch.Tensor) -> np.ndarray:
    """Return a copy: quantising works in place, and the model must stay what it is."""
    return tensor.detach().float().cpu().numpy().copy()


def _name_tokens(spec: Any, config: Any, tokenizer: AnyTokenizer) -> None:
    """Register the tokens of both sides and the special ones; the source is given with its end token, as encoded."""
    source, target = sides(tokenizer)
    spec.register_source_vocabulary(_tokens(source, config.vocab_size))
    target_tokens = _tokens(target, config.target_vocab_size)
    spec.register_target_vocabulary(target_tokens)
    end = config.eos_token_id[0] if isinstance(config.eos_token_id, list) else config.eos_token_id
    start = target_tokens[config.decoder_start_token_id]
    spec.config.decoder_start_token = spec.config.bos_token = start
    spec.config.eos_token = target_tokens[end]
    # A source word outside the vocabulary; tokenizers without a token for it never give one.
    spec.config.unk_token = target.unk_token or start
    spec.config.add_source_bos = spec.config.add_source_eos = False


def _tokens(tokenizer: PreTrainedTokenizerBase, size: int) -> list[str]:
    """Return the token of every id of the model, with names for ids that the tokenizer does not use."""
    tokens: list[Any] = list(tokenizer.convert_ids_to_tokens(list(range(min(size, len(tokenizer))))))
    tokens += [None] * (size - len(tokens))
    unused = {index: f"<unused{index}>" for index, token in enumerate(tokens) if token is None}
    for index, name in unused.items():
        if name in tokens:
            raise UnusableError(f"{name!r} is a token, but is to name the unused id {index}; rename the token")
    return [unused.get(index, token) for index, token in enumerate(tokens)]


class Agreement(NamedTuple):
    """How far two translations of the same sentences agree, the end tokens left out.

    `sentences` and of them those `equal` to the last token; `tokens`, of the longer translation of each, and of them
    those `in_place`, standing in the same place in both.
    """

    sentences: int
    equal: int
    tokens: int
    in_place: int


def ctranslate2_agreement(
    model: PreTrainedModel, tokenizer: AnyTokenizer, folder: Path, sentences: Sequence[str], num_beams: int = 5
) -> Agreement:
    """Translate by the model and by its export on this CPU, and count where they agree; blank sentences do not count.

    A translation has at most twice the tokens of its source plus 10.

    Raises:
        SentenceTooLongError: a sentence has more than `max_position_embeddings` tokens.
    """
    source, target = sides(tokenizer)
    positions: int = model.config.max_position_embeddings
    encoded = []
    for number, line in enumerate(map(str.strip, sentences), start=1):
        if line:
            encoded.append(source(line)["input_ids"])
            if len(encoded[-1]) > positions:
                raise SentenceTooLongError(number, len(encoded[-1]), positions)
    names = _tokens(target, model.config.target_vocab_size)
    ids_of_names = {name: index for index, name in enumerate(names)}
    translator = ctranslate2.Translator(str(folder), device="cpu")
    options = search_options(model, tokenizer)
    counts = np.zeros(4, dtype=int)
    for ids in encoded:
        limit = min(LIMIT_FACTOR * len(ids) + LIMIT_EXTRA, positions - 1)
        wanted = _generate(model, ids, num_beams, limit)
        found = translator.translate_batch(
            [source.convert_ids_to_tokens(ids)],
            beam_size=num_beams,
            max_decoding_length=limit,
            **options,
        )
        got = [ids_of_names[token] for token in found[0].hypotheses[0]]
        same = sum(one == other for one, other in zip(wanted, got, strict=False))
        counts += (1, wanted == got, max(len(wanted), len(got)), same)
    return Agreement(*counts.tolist())


def _generate(model: Any, ids: list[int], num_beams: int, limit: int) -> list[int]:
    """Return the ids of one translation, without start and end token."""
    device = model.device
    with torch.inference_mode():
        output = model.generate(
            torch.tensor([ids], device=device),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long, device=device),
            num_beams=num_beams,
            do_sample=False,
            max_new_tokens=limit,
            max_length=None,
        )
    generated = output[0, 1:].tolist()
    ends = model.generation_config.eos_token_id
    ends = set(ends) if isinstance(ends, list) else {ends}
    return next((generated[:place] for place, token in enumerate(generated) if token in ends), generated)


def export_folder(model_name: str, folder: Path, quantization: str, compare: Path | None, num_beams: int) -> None:
    """Export a model and print how to translate with it, and on request how far it agrees with the model."""
    sentences = [] if compare is None else read_lines(compare)
    model, tokenizer = load_seq2seq(model_name)
    try:
        export_ctranslate2(model, tokenizer, folder, quantization)
    except UnusableError as error:
        raise InputError(f"{model_name}: {error}") from error
    size = (folder / "model.bin").stat().st_size
    print(f"{folder}: {quantization}, {size:,} bytes of weights. To translate:\n", file=sys.stderr)
    print(how_to_translate(model, tokenizer, folder))
    if compare is not None:
        try:
            counts = ctranslate2_agreement(model, tokenizer, folder, sentences, num_beams)
        except SentenceTooLongError as error:
            raise InputError(f"{compare}:{error.number}: {error}") from error
        print(
            f"\n# {compare}, beam {num_beams}: {counts.equal} of {counts.sentences} translations are the model's own, "
            f"{counts.in_place} of {counts.tokens} tokens"
        )


def how_to_translate(model: PreTrainedModel, tokenizer: AnyTokenizer, folder: Path) -> str:
    """Return Python lines that translate a sentence with the exported folder."""
    options = "".join(f", {name}={value!r}" for name, value in search_options(model, tokenizer).items())
    pair = isinstance(tokenizer, TokenizerPair)
    target = f'AutoTokenizer.from_pretrained("{folder}", subfolder="{TARGET_FOLDER}")' if pair else "source"
    return f"""import ctranslate2
from transformers import AutoTokenizer

translator = ctranslate2.Translator("{folder}")
source = AutoTokenizer.from_pretrained("{folder}")
target = {target}
tokens = source.convert_ids_to_tokens(source("Your sentence.")["input_ids"])
found = translator.translate_batch([tokens], beam_size=5{options})[0].hypotheses[0]
print(target.decode(target.convert_tokens_to_ids(found)))"""
