"""Translate sentences with any Hugging Face encoder-decoder: N in, N out, in order."""

import logging
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase

from .errors import UnusableError
from .limits import max_positions, vocabulary_size
from .text_files import InputError, read_lines
from .tokenizer_pair import (
    AnyTokenizer,
    TokenizerPair,
    check_vocabularies,
    load_tokenizer,
    load_tokenizer_files,
    sides,
)

logger = logging.getLogger(__name__)

LIMIT_FACTOR, LIMIT_EXTRA = 2, 10
Align = Callable[..., Sequence[Iterable[tuple[int, int]]]]


@dataclass(frozen=True)
class Hypothesis:
    """One translation and its score: the sum of log-probabilities, divided by length ** length_penalty."""

    text: str
    score: float
    finished: bool = True
    """False where the limit on its length cut it off before an end token."""


class SentenceTooLongError(UnusableError):
    """A sentence has more tokens than the model has positions; `number` counts sentences from 1."""

    def __init__(self, number: int, tokens: int, positions: int) -> None:
        super().__init__(f"sentence {number} has {tokens} tokens, the model {positions} positions; split it")
        self.number, self.tokens, self.positions = number, tokens, positions


@overload
def translate(
    model: PreTrainedModel,
    tokenizer: AnyTokenizer,
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
    tokenizer: AnyTokenizer,
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
    tokenizer: AnyTokenizer,
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

    Batches hold sentences of like length; results come in input order. A blank sentence gives a blank translation, and
    words may have any white space between them.
    What the tokenizer cannot write (`<unk>`) stays visible. Translations that the limit cuts off are counted in a
    warning.

    Args:
        tokenizer: the model's tokenizer, or a `TokenizerPair` if each side has its own.
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
        ValueError: not an encoder-decoder, more hypotheses than beams, a limit below 1 or told by max_length, or a
            tokenizer of another vocabulary.
        SentenceTooLongError: a sentence longer than the model's positions.
    """
    results = generate_hypotheses(
        model,
        tokenizer,
        sentences,
        num_beams=num_beams,
        batch_size=batch_size,
        max_new_tokens=max_new_tokens,
        num_return_sequences=num_return_sequences,
        progress=progress,
        **generation,
    )
    cut = count_cut(results)
    if cut:
        limit = (
            f"{LIMIT_FACTOR} times the source tokens plus {LIMIT_EXTRA}" if max_new_tokens is None else max_new_tokens
        )
        logger.warning("%d of %d translations were cut off by the limit on their length (%s)", cut, len(results), limit)
    return [best.text for best, *_ in results] if num_return_sequences == 1 else results


def count_cut(results: Iterable[Iterable[Hypothesis]]) -> int:
    """Return how many sentences have a hypothesis that was cut off."""
    return sum(any(not hypothesis.finished for hypothesis in hypotheses) for hypotheses in results)


def generate_hypotheses(
    model: PreTrainedModel,
    tokenizer: AnyTokenizer,
    sentences: Iterable[str],
    *,
    num_beams: int = 4,
    batch_size: int = 32,
    max_new_tokens: int | None = None,
    num_return_sequences: int = 1,
    progress: Callable[[int, int], None] | None = None,
    **generation: Any,
) -> list[list[Hypothesis]]:
    """Return what `translate` does, always as hypotheses and without a warning; a single one has the score 0."""
    if not model.config.is_encoder_decoder:
        raise UnusableError(f"{type(model).__name__} is not an encoder-decoder; translate needs one")
    if num_return_sequences < 1 or num_beams < num_return_sequences:
        raise UnusableError(f"num_return_sequences={num_return_sequences}: must lie in 1..num_beams={num_beams}")
    if batch_size < 1:
        raise UnusableError(f"batch_size={batch_size}: must be at least 1")
    if max_new_tokens is not None and max_new_tokens < 1:
        raise UnusableError(f"max_new_tokens={max_new_tokens}: must be at least 1, or None for a limit by the source")
    if "max_length" in generation:
        raise UnusableError(
            f"max_length={generation['max_length']}: the limit does not count the start token; give max_new_tokens"
        )
    # As words are read in training and alignment: none of our models has learnt what a second blank would be cut into.
    lines = [" ".join(sentence.split()) for sentence in sentences]
    encoded = _encode(model, tokenizer, lines)
    positions = max_positions(model.config, "target")
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
    return results


def _encode(model: PreTrainedModel, tokenizer: AnyTokenizer, lines: list[str]) -> list[list[int]]:
    """Return the token ids of each line, none for a blank one; what the model cannot read is refused."""
    source_tokenizer, _ = sides(tokenizer)
    encoded = [source_tokenizer(line)["input_ids"] if line else [] for line in lines]
    positions, size = max_positions(model.config, "source"), vocabulary_size(model.config, "source")
    for number, ids in enumerate(encoded, start=1):
        if positions and len(ids) > positions:
            raise SentenceTooLongError(number, len(ids), positions)
        if size is not None and max(ids, default=0) >= size:
            raise UnusableError(
                f"source sentence {number} has the token id {max(ids)}, the model a source vocabulary of {size}; "
                "load the tokenizer that belongs to this model"
            )
    return encoded


def translate_file(
    model_name: str | Path,
    path: str | Path | None,
    *,
    num_beams: int = 4,
    n_best: int = 1,
    batch_size: int = 32,
    align: Align | None = None,
) -> None:
    """Translate a text file, or standard input where `path` is None, to standard output; progress goes to stderr.

    With `n_best` above 1 the lines are Moses n-best lines, `id ||| text ||| score`, ids counted from 0. With `align`
    (that of the probing room) each line ends in its word links, source word first: after a tab, or as the fourth field
    of an n-best line.

    Raises:
        InputError: a bad file or model, more hypotheses than beams, a line too long for the model, or a model without
            attention to align with.
    """
    if n_best > num_beams:
        raise InputError(f"--n-best {n_best}: {num_beams} beams give no more than {num_beams}; raise --beams")
    lines = read_stdin() if path is None else read_lines(path)
    model, tokenizer = load_seq2seq(model_name)

    def report(done: int, total: int) -> None:
        print(f"\rtranslated {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)

    try:
        if align is not None:
            # Of nothing, so that a model without attention is refused before the work and not after it.
            align(model, tokenizer, [], [])
        results = generate_hypotheses(
            model,
            tokenizer,
            lines,
            num_beams=num_beams,
            batch_size=batch_size,
            num_return_sequences=n_best,
            progress=report,
        )
        numbers = [number for number, found in enumerate(results) for _ in found]
        texts = [_one_line(hypothesis.text) for found in results for hypothesis in found]
        links = None
        if align is not None:
            links = _links(model, tokenizer, align, [lines[number] for number in numbers], texts, batch_size)
    except SentenceTooLongError as error:
        raise InputError(f"{path or 'stdin'}:{error.number}: {error}") from error
    except UnusableError as error:
        raise InputError(f"{path or 'stdin'}: {error}") from error
    scores = [hypothesis.score for found in results for hypothesis in found]
    for row, number in enumerate(numbers):
        fields = [texts[row]] if n_best == 1 else [str(number), texts[row], f"{scores[row]:.4f}"]
        print(("\t" if n_best == 1 else " ||| ").join(fields if links is None else [*fields, links[row]]))
    cut = count_cut(results)
    if cut:
        _remark(
            f"{cut} of {len(lines)} lines have a translation that was cut off at the limit of {LIMIT_FACTOR} times the "
            f"source tokens plus {LIMIT_EXTRA}, or at the model's last position"
        )


def _links(
    model: PreTrainedModel,
    tokenizer: AnyTokenizer,
    align: Align,
    sources: list[str],
    translations: list[str],
    batch_size: int,
) -> list[str]:
    """Return the word links of each pair in Pharaoh form.

    The translations are read anew, as text, and may have more tokens so than as they were generated. One that has more
    than the model has positions gets no links, and a remark says so.
    """
    positions = max_positions(model.config, "target")
    _, target_tokenizer = sides(tokenizer)
    # The start token takes a position, and so does an end token that the tokenizer may not add.
    too_long = {
        row
        for row, text in enumerate(translations)
        if positions is not None and text and len(target_tokenizer(text_target=text)["input_ids"]) + 2 > positions
    }
    if too_long:
        _remark(f"{len(too_long)} translations have no links: they are longer than the model's {positions} positions")
    readable = ["" if row in too_long else text for row, text in enumerate(translations)]
    found = align(model, tokenizer, sources, readable, batch_size=batch_size)
    return [" ".join(f"{i}-{j}" for i, j in sorted(links)) for links in found]


def _remark(text: str) -> None:
    print(f"remark: {text}", file=sys.stderr)


def _one_line(text: str) -> str:
    """Return the text without what would end its line or its field; a model can generate that."""
    return " ".join(re.split(r"[\r\n\t]+", text))


def load_seq2seq(
    name_or_path: str | Path, tokenizer_name: str | Path | None = None
) -> tuple[PreTrainedModel, AnyTokenizer]:
    """Load a model and its tokenizer, or two, from a folder or from the Hub, on the accelerator if there is one.

    Args:
        tokenizer_name: where the tokenizer lies, or the pair; None = beside the model.

    Raises:
        InputError: no such folder or model, or not an encoder-decoder.
    """
    import hf_seq2seq_attn  # noqa: F401 (registers our classes)

    if _looks_local(name_or_path) and not Path(name_or_path).is_dir():
        raise InputError(f"{name_or_path}: no encoder-decoder here: no such folder; check the path")
    try:
        model = AutoModelForSeq2SeqLM.from_pretrained(name_or_path)
        tokenizer = load_tokenizer(name_or_path) if tokenizer_name is None else load_tokenizer_files(tokenizer_name)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        reason = "the Hub cannot be reached, or HF_HUB_OFFLINE is set" if _is_offline(error) else _first_line(error)
        raise InputError(
            f"{name_or_path}: no encoder-decoder with its tokenizer here ({reason}); check the name"
        ) from error
    if isinstance(tokenizer, TokenizerPair) or tokenizer_name is not None:
        check_vocabularies(tokenizer, model.config, tokenizer_name or name_or_path)
    if torch.accelerator.is_available():
        model.to(torch.accelerator.current_accelerator())
    return model.eval(), tokenizer


def _looks_local(name_or_path: str | Path) -> bool:
    """Tell a path from a Hub id, which is `name` or `user/name`."""
    name = str(name_or_path)
    first, slash, _ = name.partition("/")
    return (
        isinstance(name_or_path, Path)
        or name.startswith((".", "/", "~"))
        or name.count("/") > 1
        or (bool(slash) and Path(first).exists())
    )


def _is_offline(error: BaseException | None) -> bool:
    """Tell whether a file was looked for in vain in the cache because the Hub did not answer."""
    while error is not None and not isinstance(error, LocalEntryNotFoundError):
        error = error.__cause__ or error.__context__
    return error is not None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def read_stdin() -> list[str]:
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
    tokenizer: AnyTokenizer,
    encoded: list[list[int]],
    num_return_sequences: int,
    max_new_tokens: int,
    **generation: Any,
) -> list[Hypothesis]:
    """Return num_return_sequences hypotheses for each sentence, one after the other."""
    source_tokenizer, target_tokenizer = sides(tokenizer)
    batch = source_tokenizer.pad({"input_ids": encoded}, return_tensors="pt").to(model.device)
    # Asked for sequences alone, our own models let finished sentences leave the batch.
    scored = num_return_sequences > 1
    output: Any = model.generate(  # type: ignore[operator]
        **batch,
        return_dict_in_generate=scored,
        output_scores=scored,
        num_return_sequences=num_return_sequences,
        max_new_tokens=max_new_tokens,
        # Lengths are told in new tokens here; the folder's own limit would only add a warning.
        max_length=None,
        **generation,
    )
    sequences = output if isinstance(output, torch.Tensor) else output.sequences
    scores = output.sequences_scores.tolist() if scored else [0.0] * len(sequences)
    ends = _end_tokens(model)
    return [
        Hypothesis(_decode(target_tokenizer, ids), score, _is_finished(ids[1:], ends, max_new_tokens))
        for ids, score in zip(sequences.tolist(), scores, strict=True)
    ]


def _decode(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    """Return the text without special tokens; an unknown word is no special token to a reader."""
    hidden = set(tokenizer.all_special_ids)
    if tokenizer.unk_token_id not in (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id):
        hidden.discard(tokenizer.unk_token_id)
    return str(tokenizer.decode([token for token in ids if token not in hidden])).strip()


def _is_finished(ids: list[int], ends: set[int], limit: int) -> bool:
    """Tell whether generated ids end by themselves. An end token in the last place that the limit leaves may have been
    forced (Marian and BART do), so it does not count."""
    return len(ids) < limit or bool(ends & set(ids[: limit - 1]))


def _end_tokens(model: PreTrainedModel) -> set[int]:
    eos = model.generation_config.eos_token_id
    return set(eos) if isinstance(eos, list) else {eos} - {None}
