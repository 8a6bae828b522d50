"""Measure translations and word links on dev while a model trains, on any number of processes."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from transformers import PreTrainedModel

from hf_seq2seq_attn.probing import align, alignment_error_rate
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer
from hf_seq2seq_attn.translation import translate

from .data import ParallelCorpus
from .loop_recipe import ValidationRecipe
from .scoring import DEFAULT_METRICS, TEXT_METRICS, can_be_aligned, score_translations, texts_of

Result = TypeVar("Result")


class Validator:
    """Callable that measures a model on dev.

    The sentences are dealt out over the processes, each to one, and the results gathered, so that every process gets
    the same numbers and decides alike on the best checkpoint and on an early stop. All processes must call it. The
    model is left in the mode that it was in, and no random number is drawn: training goes on as if nothing had been.

    Args:
        corpus: dev; with `settings.limit` the first so many lines of it.
        settings: metrics, beams and so on; "loss" and "guided_loss" are the Trainer's and passed over here.
    """

    def __init__(self, corpus: ParallelCorpus, tokenizer: AnyTokenizer, settings: ValidationRecipe) -> None:
        self.corpus = _first_lines(corpus, settings.limit)
        self.tokenizer = tokenizer
        self.settings = settings
        self.sources, self.references = texts_of(self.corpus, settings.several_references)

    def __call__(self, model: PreTrainedModel, rank: int = 0, processes: int = 1) -> dict[str, float]:
        """Return metric -> value, numbers only: what the Trainer logs.

        Args:
            model: not wrapped for several processes; wrapped, a `generate` of unequal length would wait for ever.
        """
        wanted = self.settings.metrics
        scores: dict[str, Any] = {}
        if set(wanted) & set(TEXT_METRICS):
            hypotheses = _share_out(self._translate(model), len(self.sources), rank, processes)
            scores |= score_translations(hypotheses, self.references, wanted, self.settings.bleu_tokenize)
        if "aer" in wanted and self.corpus.gold is not None and can_be_aligned(model, self.corpus):
            links = _share_out(self._align(model), len(self.corpus), rank, processes)
            scores["aer"] = alignment_error_rate(links, self.corpus.gold)
        return {name: value for name, value in scores.items() if not isinstance(value, str)}

    def _translate(self, model: PreTrainedModel) -> Callable[[Sequence[int]], list[str]]:
        return lambda rows: translate(
            model,
            self.tokenizer,
            [self.sources[row] for row in rows],
            num_beams=self.settings.beams,
            batch_size=self.settings.batch_size,
            # The Trainer has switched it off in the config.
            use_cache=True,
        )

    def _align(self, model: PreTrainedModel) -> Callable[[Sequence[int]], list[Any]]:
        return lambda rows: align(
            model,
            self.tokenizer,
            [self.corpus.sources[row] for row in rows],
            [self.corpus.targets[row] for row in rows],
            batch_size=self.settings.batch_size,
        )


def scoring_settings(settings: ValidationRecipe | None, num_beams: int | None = None) -> dict[str, Any]:
    """Return the arguments of `scoring.score_corpus` that measure what the validation measures, and AER.

    Args:
        num_beams: those of a run without a validation section; None or 0 = the default.
    """
    if settings is None:
        settings = ValidationRecipe(list(DEFAULT_METRICS))
        settings.beams = num_beams or settings.beams
    return {
        "metrics": tuple(dict.fromkeys([*settings.metrics, "aer"])),
        "num_beams": settings.beams,
        "batch_size": settings.batch_size,
        "bleu_tokenize": settings.bleu_tokenize,
        "several_references": settings.several_references,
    }


def _share_out(work: Callable[[Sequence[int]], list[Result]], count: int, rank: int, processes: int) -> list[Result]:
    """Do rows rank, rank + processes, ... here, and return the results of all `count` rows, from all processes."""
    done = list(zip(rows := range(rank, count, processes), work(rows), strict=True))
    if processes == 1:
        return [result for _, result in done]
    import torch.distributed

    gathered: list[Any] = [None] * processes
    torch.distributed.all_gather_object(gathered, done)
    by_row = dict(pair for part in gathered for pair in part)
    return [by_row[row] for row in range(count)]


def _first_lines(corpus: ParallelCorpus, limit: int | None) -> ParallelCorpus:
    gold = None if corpus.gold is None else corpus.gold[:limit]
    return ParallelCorpus(corpus.sources[:limit], corpus.targets[:limit], gold)
