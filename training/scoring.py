"""Score a model on a held-out part: translations by chrF and BLEU, word links by alignment error rate."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from transformers import PreTrainedModel

from hf_seq2seq_attn.probing import Gold, align, default_rows, score_links
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer
from hf_seq2seq_attn.translation import translate

from .data import ParallelCorpus

Progress = Callable[[int, int], None]


def score_translations(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Return chrF and BLEU of the sacrebleu library, with the signatures that say how they were computed.

    References are plain strings. The texts of a word-aligned corpus are tokenised: so are the scores.
    """
    import sacrebleu

    scores: dict[str, Any] = {}
    for name, metric in (("chrf", sacrebleu.CHRF()), ("bleu", sacrebleu.BLEU(tokenize="none", force=True))):
        scores[name] = round(metric.corpus_score(list(hypotheses), [list(references)]).score, 3)
        scores[f"{name}_signature"] = str(metric.get_signature())
    return scores


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
) -> dict[str, Any]:
    """Translate a corpus and, where it has links and the model has attention, align it; return all scores."""
    sources = [" ".join(words) for words in corpus.sources]
    references = [" ".join(words) for words in corpus.targets]
    hypotheses = translate(model, tokenizer, sources, num_beams=num_beams, batch_size=batch_size, progress=progress)
    scores: dict[str, Any] = {"pairs": len(corpus), "num_beams": num_beams}
    scores |= score_translations(hypotheses, references)
    if corpus.gold is not None and getattr(model.config, "cross_attention_type", None) != "none":
        links = align(model, tokenizer, corpus.sources, corpus.targets, batch_size=batch_size)
        scores |= score_alignments(links, corpus.gold)
        scores["align_with"] = default_rows(model.config)
    return scores
