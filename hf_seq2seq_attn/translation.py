"""Translate sentences with any Hugging Face encoder-decoder: N in, N out, in order."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from .text_files import InputError, read_lines

LIMIT_FACTOR, LIMIT_EXTRA = 2, 10


@dataclass(frozen=True)
class Hypothesis:
    """One translation and its score: the sum of log-probabilities, divided by length ** length_penalty."""

    text: str
    score: float


class SentenceTooLongError(ValueError):
    """A sentence has more tokens than the model has positions; `number` counts sentences from 1."""

    def __init__(self, number: int, tokens: int, positions: int) -> None:
        super().__init__(f"sentence {number} has {tokens} tokens, the model {positions} positions; split it")
        self.number = number


@overload
def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Iterable[str],
    *,
    num_beams: int = 4,
    batch_size: int = 32,
    max_new_tokens: int | None = None,
    num_return_sequences: Literal[1] = 1,
    progress: Callable[[int, int], None] | None = None,
    **generation: Any,
) -> list[str]: ...


@overload
def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Iterable[str],
    *,
    num_beams: int = 4,
    batch_size: int = 32,
    max_new_tokens: int | None = None,
    num_return_sequences: int,
    progress: Callable[[int, int], None] | None = None,
    **generation: Any,
) -> list[list[Hypothesis]]: ...


def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Iterable[str],
    *,
    num_beams: int = 4,
    batch_size: int = 32,
    max_new_tokens: int | None = None,
    num_return_sequences: int = 1,
    progress: Callable[[int, int], None] | None = None,
    **generation: Any,
) -> list[str] | list[list[Hypothesis]]:
    """Translate sentences by beam search.

    Batches hold sentences of like length; results come in input order. A blank sentence gives a blank translation.

    Args:
        sentences: raw text, one sentence each.
        num_beams: 1 = greedy.
        max_new_tokens: longest translation in tokens. None: twice the longest source of the batch plus 10, and never
            more positions than the model has.
        num_return_sequences: above 1: the best hypotheses of each sentence with their scores, best first.
        progress: called after each batch with the number of sentences done and the number of all.
        generation: further arguments for `generate`, e.g. length_penalty or forced_bos_token_id.

    Returns:
        One string for each sentence; or, with num_return_sequences above 1, one list of hypotheses for each (of one
        blank hypothesis for a blank sentence).

    Raises:
        ValueError: not an encoder-decoder, or more hypotheses than beams.
        SentenceTooLongError: a sentence longer than the model's positions.
    """
    if not model.config.is_encoder_decoder:
        raise ValueError(f"{type(model).__name__} is not an encoder-decoder; translate needs one")
    if num_return_sequences < 1 or num_beams < num_return_sequences:
        raise ValueError(f"num_return_sequences={num_return_sequences}: must lie in 1..num_beams={num_beams}")
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: must be at least 1")
    lines = [sentence.strip() for sentence in sentences]
    encoded = [tokenizer(line)["input_ids"] if line else [] for line in lines]
    positions = _positions(model)
    for number, ids in enumerate(encoded, start=1):
        if positions and len(ids) > positions:
            raise SentenceTooLongError(number, len(ids), positions)
    results = [[Hypothesis("", 0.0)] for _ in lines]
    order = sorted((i for i, line in enumerate(lines) if line), key=lambda i: len(encoded[i]), reverse=True)
    was_training = model.training
    model.eval()
    try:
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            limit = max_new_tokens or LIMIT_FACTOR * len(encoded[chosen[0]]) + LIMIT_EXTRA
            if positions:
                limit = min(limit, positions - 1)
            found = _translate_batch(
                model,
                tokenizer,
                [encoded[i] for i in chosen],
                num_beams=num_beams,
                num_return_sequences=num_return_sequences,
                max_new_tokens=limit,
                **generation,
            )
            for place, i in enumerate(chosen):
                results[i] = found[place * num_return_sequences : (place + 1) * num_return_sequences]
            if progress is not None:
                progress(start + len(chosen), len(order))
    finally:
        model.train(was_training)
    return [best.text for best, *_ in results] if num_return_sequences == 1 else results


def translate_file(
    model_name: str | Path, path: str | Path | None, *, num_beams: int = 4, n_best: int = 1, batch_size: int = 32
) -> None:
    """Translate a text file, or standard input where `path` is None, to standard output; progress goes to stderr.

    With `n_best` above 1 the lines are Moses n-best lines, `id ||| text ||| score`, ids counted from 0.

    Raises:
        InputError: a bad file or model, more hypotheses than beams, or a line too long for the model.
    """
    if n_best > num_beams:
        raise InputError(f"--n-best {n_best}: {num_beams} beams give no more than {num_beams}; raise --beams")
    lines = _read_stdin() if path is None else read_lines(path)
    model, tokenizer = load_seq2seq(model_name)

    def report(done: int, total: int) -> None:
        print(f"\rtranslated {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)

    try:
        results: list[Any] = translate(
            model,
            tokenizer,
            lines,
            num_beams=num_beams,
            batch_size=batch_size,
            num_return_sequences=n_best,
            progress=report,
        )
    except SentenceTooLongError as error:
        raise InputError(f"{path or 'stdin'}:{error.number}: {error}") from error
    for number, result in enumerate(results):
        if n_best == 1:
            print(result)
        else:
            for hypothesis in result:
                print(f"{number} ||| {hypothesis.text} ||| {hypothesis.score:.4f}")


def load_seq2seq(name_or_path: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model and its tokenizer from a folder or from the Hub, on the accelerator if there is one.

    Raises:
        InputError: no such folder or model, or not an encoder-decoder.
    """
    import hf_seq2seq_attn  # noqa: F401 (registers our classes)

    try:
        model = AutoModelForSeq2SeqLM.from_pretrained(name_or_path)
        tokenizer = AutoTokenizer.from_pretrained(name_or_path)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"{name_or_path}: no encoder-decoder with its tokenizer here ({reason}); check the path"
        ) from error
    if torch.accelerator.is_available():
        model.to(torch.accelerator.current_accelerator())
    return model.eval(), tokenizer


def _read_stdin() -> list[str]:
    """Return the lines of standard input as `read_lines` does those of a file."""
    raw = sys.stdin.buffer.read()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(f"stdin:{line}: not UTF-8; convert it, e.g. with iconv -t utf-8") from error
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


@torch.inference_mode()
def _translate_batch(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: list[list[int]],
    num_return_sequences: int,
    **generation: Any,
) -> list[Hypothesis]:
    """Return num_return_sequences hypotheses for each sentence, one after the other."""
    batch = tokenizer.pad({"input_ids": encoded}, return_tensors="pt").to(model.device)
    output: Any = model.generate(  # type: ignore[operator]
        **batch,
        return_dict_in_generate=True,
        output_scores=num_return_sequences > 1,
        num_return_sequences=num_return_sequences,
        # Lengths are told in new tokens here; the folder's own limit would only add a warning.
        max_length=None,
        **generation,
    )
    texts = tokenizer.batch_decode(output.sequences, skip_special_tokens=True)
    scores = output.sequences_scores.tolist() if num_return_sequences > 1 else [0.0] * len(texts)
    return [Hypothesis(text.strip(), score) for text, score in zip(texts, scores, strict=True)]


def _positions(model: PreTrainedModel) -> int | None:
    """Return the number of positions of a model that has a fixed number, else None."""
    config = model.config
    if getattr(config, "encoder_type", None) in ("gru", "lstm"):
        return None
    return getattr(config, "max_position_embeddings", None)
