"""The figures of a report: everything that is measured of one model on one test set, as plain JSON values."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.probing import (
    Aligner,
    AttentionMaps,
    LearnedJumps,
    Links,
    Reading,
    SentenceError,
    align,
    default_rows,
    diagonal_links,
    extract,
    head_importance,
    measure_faithfulness,
    report_heads,
    saved_choice,
    score_by_length,
    score_intervals,
    score_links,
    set_languages,
    tested_heads,
)
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer
from hf_seq2seq_attn.translation import LIMIT_EXTRA, LIMIT_FACTOR, SentenceTooLongError, translate

from .data import ParallelCorpus
from .length_quality import BOUNDS, score_by_source_length
from .report_sentences import Ranking, SentenceGroup, ShownSentence, alignment_errors, view_pair
from .scoring import texts_of
from .text_intervals import score_with_intervals, sentence_scores

SAMPLE_WORDS = 60
"""Heads and faithfulness are measured on pairs of at most so many words a side: their cost grows with the square."""

Progress = Callable[[int, int], None]
ProgressBars = Callable[[str], AbstractContextManager[Progress]]


@contextmanager
def no_progress(what: str) -> Iterator[Progress]:
    """Show nothing."""
    yield lambda done, total: None


@dataclass(frozen=True)
class ReportSettings:
    """What is measured, and how.

    Attributes:
        metrics: text metrics, keys of `scoring.METRICS`; none = the model does not translate.
        bleu_tokenize, several_references: as in `score_translations` and `score_corpus`.
        num_beams, batch_size: of translation; the second of all passes.
        reading: how links are read off the attention, with the languages and the prefix of the pair.
        head_pairs, faithfulness_pairs: how many pairs, drawn at random, heads and faithfulness are measured on; 0
            leaves the section out.
        shown: sentences at each end of a ranking.
        seed: of the samples and of the resamples of rates.
    """

    metrics: tuple[str, ...] = ("bleu", "chrf")
    bleu_tokenize: str = "none"
    several_references: bool = False
    num_beams: int = 4
    batch_size: int = 32
    reading: Reading = field(default_factory=Reading)
    head_pairs: int = 50
    faithfulness_pairs: int = 20
    shown: int = 5
    seed: int = 0


@dataclass(frozen=True)
class ReportFigures:
    """What was measured.

    Attributes:
        sections: `translation`, `alignment`, `heads`, `faithfulness`, each the figures or `left_out` with the reason.
        groups: the best and the worst sentences.
    """

    sections: dict[str, Any]
    groups: tuple[SentenceGroup, ...]


def measure_report(
    model: PreTrainedModel,
    tokenizer: AnyTokenizer,
    corpus: ParallelCorpus,
    settings: ReportSettings,
    progress: ProgressBars = no_progress,
    *,
    first_line: int = 1,
) -> ReportFigures:
    """Measure a model on a test set.

    Args:
        model: any encoder-decoder of Hugging Face; left as it is.
        corpus: with gold links, the alignment is scored too.
        progress: makes a bar for a named piece of work.
        first_line: of the files, which the first pair stands in; see `first_line_of`.

    Raises:
        SentenceError, SentenceTooLongError: a sentence that the model cannot read, by the number of its pair, from 1.
        ValueError: a choice that this model does not have.
    """
    return _Measurement(model, tokenizer, corpus, settings, progress, first_line).run()


def source_lengths(sources: Sequence[str]) -> tuple[str, list[int]]:
    """Return the unit, "words" or, of a language that is written without blanks, "characters", and each length."""
    words = [len(source.split()) for source in sources]
    long = [count for source, count in zip(sources, words, strict=True) if len(source) > 10]
    if long and statistics.median(long) <= 1:
        return "characters", [len(source.replace(" ", "")) for source in sources]
    return "words", words


class _Measurement:
    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: AnyTokenizer,
        corpus: ParallelCorpus,
        settings: ReportSettings,
        progress: ProgressBars,
        first_line: int,
    ) -> None:
        self.model, self.tokenizer, self.corpus = model, tokenizer, corpus
        self.settings, self.progress, self.first_line = settings, progress, first_line
        self.sources, self.references = texts_of(corpus, settings.several_references)
        # The sentence of each pair: its own, or the one that several pairs share.
        self.sentence_of = list(range(len(corpus)))
        if settings.several_references:
            numbers = {source: number for number, source in enumerate(self.sources)}
            self.sentence_of = [numbers[" ".join(words)] for words in corpus.sources]
        reading = settings.reading
        self.pair: dict[str, Any] = {
            "source_prefix": reading.source_prefix,
            "source_language": reading.source_language,
            "target_language": reading.target_language,
        }
        self.no_attention = self._refusal()
        self.aligner: Aligner | None = None
        if self.no_attention is None:
            # What was asked for by number is refused here, before the work.
            align(
                model,
                tokenizer,
                [],
                [],
                align_with=reading.align_with,
                layer=reading.layer,
                heads=reading.heads,
                weights=reading.weights or None,
                specials=reading.specials or None,
                links=reading.links or None,
                **self.pair,
            )
            self.aligner = Aligner((model, tokenizer), reading=reading, batch_size=settings.batch_size)

    @cached_property
    def jumps(self) -> LearnedJumps | None:
        """What `hmm` learns from the test set, with or without manual links."""
        return None if self.aligner is None else self.aligner.learn(self.corpus.sources, self.corpus.targets)

    @cached_property
    def pair_of(self) -> list[int]:
        """The pair of each sentence, from 0: the first that has it."""
        pairs: dict[int, int] = {}
        for pair, sentence in enumerate(self.sentence_of):
            pairs.setdefault(sentence, pair)
        return [pairs[sentence] for sentence in range(len(self.sources))]

    def run(self) -> ReportFigures:
        translations = self._translate() if self.settings.metrics else None
        sections = {"translation": self._translation(translations)}
        links: list[Links] | None = None
        if self.corpus.gold is not None and self.aligner is not None:
            links = self._links()
        sections["alignment"] = self._alignment(links)
        groups = self._groups(translations, links)
        shuffled = self._shuffled()
        sections["heads"] = self._heads(shuffled[: self.settings.head_pairs])
        sections["faithfulness"] = self._faithfulness(shuffled[: self.settings.faithfulness_pairs])
        sample = {"sample_words": SAMPLE_WORDS, "sample_seed": self.settings.seed}
        sample |= {"sample_drawn_from": len(shuffled), "sample_corpus": len(self.corpus)}
        for name in ("heads", "faithfulness"):
            if "left_out" not in sections[name]:
                sections[name] |= sample
        return ReportFigures(sections, tuple(groups))

    def _refusal(self) -> str | None:
        """Return why this model's attention cannot be read; None where it can."""
        try:
            align(self.model, self.tokenizer, [], [])
        except UnusableError as error:
            return str(error)
        return None

    def _translate(self) -> list[str]:
        languages = set_languages(
            self.model, self.tokenizer, self.pair["source_language"], self.pair["target_language"]
        )
        prefix = languages.source_prefix + self.pair["source_prefix"]
        starts: dict[str, Any] = {**languages.generate_kwargs()}
        try:
            with self.progress("translating") as progress:
                return translate(
                    self.model,
                    languages.tokenizer,
                    [prefix + source if source else source for source in self.sources],
                    num_beams=self.settings.num_beams,
                    batch_size=self.settings.batch_size,
                    progress=progress,
                    **starts,
                )
        except SentenceTooLongError as error:
            # Its number is that among the sentences.
            pair = self.pair_of[error.number - 1] + 1
            raise SentenceTooLongError(pair, error.tokens, error.positions) from error

    def _translation(self, translations: list[str] | None) -> dict[str, Any]:
        if translations is None:
            return {"left_out": "the model was not trained to translate, or its run measures no text metric"}
        settings = self.settings
        scores = score_with_intervals(
            translations, self.references, settings.metrics, settings.bleu_tokenize, settings.seed
        )
        unit, lengths = source_lengths(self.sources)
        bounds = BOUNDS if unit == "words" else tuple(2 * bound for bound in BOUNDS)
        by_length = score_by_source_length(
            translations,
            self.references,
            self.sources,
            bounds,
            lengths=lengths,
            metrics=settings.metrics,
            bleu_tokenize=settings.bleu_tokenize,
        )
        return {
            "sentences": len(translations),
            "num_beams": settings.num_beams,
            "limit": f"{LIMIT_FACTOR} times the source's tokens plus {LIMIT_EXTRA}",
            "scores": {name: score.as_dict() for name, score in scores.items()},
            "length_unit": unit,
            "by_source_length": [band.as_dict() for band in by_length],
        }

    def _links(self) -> list[Links]:
        assert self.aligner is not None
        found = []
        with self.progress("aligning") as progress:
            for aligned in self.aligner.align(self.corpus.sources, self.corpus.targets, self.jumps):
                found.append(aligned.pair.gold.sure)
                progress(len(found), len(self.corpus))
        return found

    def _alignment(self, links: list[Links] | None) -> dict[str, Any]:
        if self.aligner is None:
            return {"left_out": self.no_attention}
        if links is None:
            return {"left_out": "no manual links were given", "reading": self.aligner.describe()}
        corpus, gold, seed = self.corpus, self.corpus.gold or [], self.settings.seed
        score, intervals = score_links(links, gold, seed=seed), score_intervals(links, gold, seed)
        pairs = zip(corpus.sources, corpus.targets, strict=True)
        diagonal = score_links([diagonal_links(len(source), len(target)) for source, target in pairs], gold)
        names = ("aer", "precision", "recall", "f1")
        sides = {"source": corpus.sources, "target": corpus.targets}
        kept = (*names, "ci95", "links", "sure", "possible", "sentences")
        return {
            "reading": self.aligner.describe(),
            "scores": {name: {"value": getattr(score, name), "ci95": list(intervals[name])} for name in names},
            "diagonal": {name: getattr(diagonal, name) for name in names},
            **{name: getattr(score, name) for name in ("links", "sure", "possible", "sentences")},
            "by_length": {
                side: {
                    band: {name: value for name, value in part.as_dict().items() if name in kept}
                    for band, part in score_by_length(links, gold, [len(words) for words in text]).items()
                }
                for side, text in sides.items()
            },
            "sinks": self.aligner.sinks.describe(),
        }

    def _groups(self, translations: list[str] | None, links: list[Links] | None) -> Iterator[SentenceGroup]:
        if translations is not None:
            yield from self._by_chrf(translations)
        if links is not None:
            yield from self._by_aer(links, translations)

    def _by_chrf(self, translations: list[str]) -> Iterator[SentenceGroup]:
        chrf = sentence_scores(translations, self.references)

        def show(index: int) -> ShownSentence:
            source, references, said = self.sources[index], self.references[index], translations[index]
            of, view = "translation", view_pair(self.aligner, source.split(), said.split(), None, self.jumps)
            if view is None:
                of, view = "reference", view_pair(self.aligner, source.split(), references[0].split(), None, self.jumps)
            line, score = self.first_line + self.pair_of[index], {"chrf": chrf[index]}
            return ShownSentence(line, source, tuple(references), said, score, of, view)

        blank = [not (s and any(several)) for s, several in zip(self.sources, self.references, strict=True)]
        yield from self._group(Ranking("chrf", np.where(blank, np.nan, chrf).tolist(), True), show)

    def _by_aer(self, links: list[Links], translations: list[str] | None) -> Iterator[SentenceGroup]:
        gold = self.corpus.gold or []
        errors = alignment_errors(links, gold)

        def show(index: int) -> ShownSentence:
            words, target = self.corpus.sources[index], self.corpus.targets[index]
            source = " ".join(words)
            view = view_pair(self.aligner, words, target, gold[index], self.jumps)
            said = None if translations is None else translations[self.sentence_of[index]]
            line, score = self.first_line + index, {"aer": errors[index]}
            return ShownSentence(line, source, (" ".join(target),), said, score, "reference", view)

        yield from self._group(Ranking("aer", errors, False), show)

    def _group(self, ranking: Ranking, show: Callable[[int], ShownSentence]) -> Iterator[SentenceGroup]:
        among = int((~np.isnan(np.asarray(ranking.scores))).sum())
        for end, indices in ranking.worst_and_best(self.settings.shown).items():
            if indices:
                shown = tuple(show(index) for index in indices)
                yield SentenceGroup(end, ranking.name, among, shown, len(ranking.scores) - among)

    def _shuffled(self) -> list[int]:
        """Return the pairs that heads and faithfulness can be measured on, in random order: samples are its first."""
        readable = [
            index
            for index, (source, target) in enumerate(zip(self.corpus.sources, self.corpus.targets, strict=True))
            if source and target and max(len(source), len(target)) <= SAMPLE_WORDS
        ]
        return [readable[place] for place in np.random.default_rng(self.settings.seed).permutation(len(readable))]

    def _heads(self, sample: list[int]) -> dict[str, Any]:
        reason = self._nothing_to_measure(sample, self.settings.head_pairs)
        if reason is not None:
            return {"left_out": reason}
        saved = getattr(saved_choice(self.model), "align_with", None)
        rows = self.settings.reading.align_with or saved or default_rows(self.model.config)
        try:
            maps = self._maps(sample, rows)
            predicting = maps if rows == "output" else self._maps(sample, "output")
            note, importance = None, None
            try:
                with self.progress("importance of heads") as progress:
                    importance = head_importance(
                        self.model, predicting, batch_size=self.settings.batch_size, progress=progress
                    )
            except UnusableError as error:
                note = f"no importance: {error}"
            gold = None if self.corpus.gold is None else [self.corpus.gold[index] for index in sample]
            reading = self.settings.reading
            found = report_heads(
                maps,
                gold=gold,
                importance=importance,
                specials=reading.specials or "mask",
                links=reading.links or "argmax",
            ).as_dict()
        except SentenceError:
            raise
        except UnusableError as error:
            return {"left_out": str(error)}
        found.pop("distances")
        return {**found, **({} if note is None else {"note": note})}

    def _faithfulness(self, sample: list[int]) -> dict[str, Any]:
        reason = self._nothing_to_measure(sample, self.settings.faithfulness_pairs)
        if reason is not None:
            return {"left_out": reason}
        try:
            maps = self._maps(sample, "output")
            layer, heads = self.settings.reading.layer, self.settings.reading.heads
            tested = tested_heads(
                self.model,
                maps[0],
                layer if isinstance(layer, int) else None,
                None if isinstance(heads, str) else heads,
            )
            with self.progress("faithfulness") as progress:
                found = measure_faithfulness(
                    self.model,
                    maps,
                    tested,
                    seed=self.settings.seed,
                    batch_size=self.settings.batch_size,
                    progress=progress,
                )
        except SentenceError:
            raise
        except UnusableError as error:
            return {"left_out": str(error)}
        return found.as_dict()

    def _nothing_to_measure(self, sample: list[int], wanted: int) -> str | None:
        if self.aligner is None:
            return self.no_attention
        if wanted == 0:
            return "not asked for"
        return None if sample else f"no pair has words on both sides and at most {SAMPLE_WORDS} of them"

    def _maps(self, sample: list[int], rows: str) -> list[AttentionMaps]:
        sources = [self.corpus.sources[index] for index in sample]
        targets = [self.corpus.targets[index] for index in sample]
        reading: dict[str, Any] = {"align_with": rows, "batch_size": self.settings.batch_size, **self.pair}
        try:
            return list(extract(self.model, self.tokenizer, sources, targets, **reading))
        except SentenceError as error:
            # Its number is that in the sample.
            raise SentenceError(error.side, sample[error.number - 1] + 1, error.what) from error
