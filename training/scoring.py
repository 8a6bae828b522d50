"""Score a model on a held-out part: its translations or pronunciations, and its word links."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from transformers import PreTrainedModel

from hf_seq2seq_attn.probing import Gold, align, default_rows, saved_choice, score_links
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer
from hf_seq2seq_attn.translation import translate

from .data import ParallelCorpus

Progress = Callable[[int, int], None]

METRICS = {
    "bleu": True,
    "chrf": True,
    "wer": False,
    "per": False,
    "exact_match": True,
    "word_error_rate": False,
    "aer": False,
    "loss": False,
    "guided_loss": False,
}
"""Metric -> whether greater is better.

bleu, chrf: of sacrebleu, 0..100, with a signature beside them.
wer: word error rate of speech recognition, by jiwer: edits between words (what stands between blanks) over words of
    the references, of the whole corpus; 0 is perfect, above 1 is possible.
per: phoneme error rate: the same over phonemes, for targets that write a blank between phonemes.
exact_match: share of lines that equal their reference, word for word, 0..1.
word_error_rate: 1 - exact_match: the WER of grapheme-to-phoneme papers (SIGMORPHON 2021, task 1), the share of words
    whose whole pronunciation is wrong. Not `wer`!
aer: alignment error rate of the attention against gold links, 0..1.
loss, guided_loss: nats per token and per guided row, measured by the Trainer.
"""

TEXT_METRICS = ("chrf", "bleu", "wer", "per", "exact_match", "word_error_rate")
DEFAULT_METRICS = ("chrf", "bleu", "aer")
BLEU_TOKENIZERS = ("none", "13a", "intl", "char", "zh")
"""Those of sacrebleu that need nothing installed."""


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str | Sequence[str]],
    metrics: Iterable[str] = ("chrf", "bleu"),
    bleu_tokenize: str = "none",
) -> dict[str, Any]:
    """Return the text metrics of `metrics`; chrF and BLEU with the signatures that say how they were computed.

    Args:
        references: for each hypothesis its reference, or several, of which the nearest counts (wer, per), or any.
        metrics: keys of `METRICS`; those that are not of texts are passed over.
        bleu_tokenize: the texts of a word-aligned corpus are tokenised already, hence "none".
    """
    choices = reference_choices(hypotheses, references)
    wanted = set(metrics)
    scores: dict[str, Any] = {}
    if wanted & {"chrf", "bleu"}:
        scores |= _sacrebleu(hypotheses, choices, wanted, bleu_tokenize)
    if wanted & {"wer", "per"}:
        edits, words = map(sum, zip(*edit_counts(hypotheses, choices), strict=True))
        rate = round(edits / max(words, 1), 5)
        scores |= {name: rate for name in ("wer", "per") if name in wanted}
    if wanted & {"exact_match", "word_error_rate"}:
        matches = exact_matches(hypotheses, choices)
        exact = sum(matches) / len(matches)
        shares = {"exact_match": round(exact, 5), "word_error_rate": round(1 - exact, 5)}
        scores |= {name: share for name, share in shares.items() if name in wanted}
    return scores


def group_references(sources: Sequence[str], references: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return each source once, in order of first appearance, with the references of all lines that have it."""
    grouped: dict[str, list[str]] = {}
    for source, reference in zip(sources, references, strict=True):
        several = grouped.setdefault(source, [])
        if reference not in several:
            several.append(reference)
    return list(grouped), list(grouped.values())


def score_alignments(links: Sequence[Iterable[tuple[int, int]]], gold: Sequence[Gold]) -> dict[str, Any]:
    """Return aer, precision, recall, f1 and the 95% interval of the AER."""
    score = score_links(links, gold)
    return {
        "aer": score.aer,
        "precision": score.precision,
        "recall": score.recall,
        "f1": score.f1,
        "aer_ci95": list(score.ci95),
        "links": score.links,
        "sentences": score.sentences,
    }


def score_corpus(
    model: PreTrainedModel,
    tokenizer: AnyTokenizer,
    corpus: ParallelCorpus,
    *,
    num_beams: int = 4,
    batch_size: int = 32,
    progress: Progress | None = None,
    metrics: Iterable[str] = DEFAULT_METRICS,
    bleu_tokenize: str = "none",
    several_references: bool = False,
) -> dict[str, Any]:
    """Translate a corpus and, where it has links and the model has attention, align it; return all scores.

    Args:
        metrics: keys of `METRICS`; "aer" is left out where there are no links or no attention.
        several_references: lines with the same source are references of one; each source is then translated once.
    """
    sources, references = texts_of(corpus, several_references)
    metrics = tuple(metrics)
    scores: dict[str, Any] = {"pairs": len(corpus), "num_beams": num_beams}
    if several_references:
        scores["sources"] = len(sources)
    if set(metrics) & set(TEXT_METRICS):
        hypotheses = translate(model, tokenizer, sources, num_beams=num_beams, batch_size=batch_size, progress=progress)
        scores |= score_translations(hypotheses, references, metrics, bleu_tokenize)
    if "aer" in metrics and can_be_aligned(model, corpus):
        links = align(model, tokenizer, corpus.sources, corpus.targets, batch_size=batch_size)
        scores |= score_alignments(links, corpus.gold or [])
        choice = saved_choice(model)
        scores["align_with"] = default_rows(model.config) if choice is None else choice.align_with
    return scores


def can_be_aligned(model: PreTrainedModel, corpus: ParallelCorpus) -> bool:
    """Tell whether the corpus has gold links and the model attention to read links off."""
    return corpus.gold is not None and getattr(model.config, "cross_attention_type", None) != "none"


def texts_of(corpus: ParallelCorpus, several_references: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return the sources as text, and the references of each: its own, or those of all lines with that source."""
    sources = [" ".join(words) for words in corpus.sources]
    references = [" ".join(words) for words in corpus.targets]
    if several_references:
        return group_references(sources, references)
    return sources, [[reference] for reference in references]


def _sacrebleu(
    hypotheses: Sequence[str], choices: Sequence[Sequence[str]], wanted: set[str], bleu_tokenize: str
) -> dict[str, Any]:
    columns = reference_columns(choices)
    scores: dict[str, Any] = {}
    for name, metric in sacrebleu_metrics(bleu_tokenize).items():
        if name in wanted:
            scores[name] = round(metric.corpus_score(list(hypotheses), columns).score, 3)
            scores[f"{name}_signature"] = str(metric.get_signature())
    return scores


def reference_choices(hypotheses: Sequence[str], references: Sequence[str | Sequence[str]]) -> list[list[str]]:
    """Return the references of each hypothesis as a list.

    Raises:
        ValueError: another number of entries than hypotheses.
    """
    choices = [[reference] if isinstance(reference, str) else list(reference) for reference in references]
    if len(choices) != len(hypotheses):
        raise ValueError(f"{len(hypotheses)} hypotheses but {len(choices)} references; give one entry for each")
    return choices


def sacrebleu_metrics(bleu_tokenize: str = "none", bleu_lowercase: bool = False) -> dict[str, Any]:
    """Return sacrebleu's metrics by their names in `METRICS`; `bleu_lowercase` is its `-lc`, for BLEU alone."""
    import sacrebleu

    bleu = sacrebleu.BLEU(tokenize=bleu_tokenize, lowercase=bleu_lowercase, force=True)
    return {"chrf": sacrebleu.CHRF(), "bleu": bleu}


def reference_columns(choices: Sequence[Sequence[str]]) -> Any:
    """Return references as sacrebleu takes them, by column; None fills up the columns of those that have fewer."""
    widest = max(len(several) for several in choices)
    return [[several[k] if k < len(several) else None for several in choices] for k in range(widest)]


def exact_matches(hypotheses: Sequence[str], choices: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each hypothesis whether it equals one of its references, word for word."""
    return [
        hypothesis.split() in [reference.split() for reference in several]
        for hypothesis, several in zip(hypotheses, choices, strict=True)
    ]


def edit_counts(hypotheses: Sequence[str], choices: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Return for each hypothesis the edits to the reference that takes the fewest, and that reference's words.

    Of equally near references the longest counts. The rate of a corpus is the sum of edits over the sum of words.
    """
    import jiwer

    flat = [
        (" ".join(reference.split()), " ".join(hypothesis.split()))
        for hypothesis, several in zip(hypotheses, choices, strict=True)
        for reference in several
    ]
    compared = jiwer.process_words([reference for reference, _ in flat], [hypothesis for _, hypothesis in flat])
    edits_of_pair = iter(
        sum(
            max(chunk.ref_end_idx - chunk.ref_start_idx, chunk.hyp_end_idx - chunk.hyp_start_idx)
            for chunk in chunks
            if chunk.type != "equal"
        )
        for chunks in compared.alignments
    )
    nearest = [min((next(edits_of_pair), -len(reference.split())) for reference in several) for several in choices]
    return [(edits, -words) for edits, words in nearest]
