"""The main job on real text: from verses to an aligned, scored, visible, reloadable model."""

import hashlib
import json
import sys
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from transformers import PreTrainedModel

import hf_seq2seq_attn
from hf_seq2seq_attn.probing import (
    Aligner,
    Ibm1,
    Links,
    SentenceView,
    default_rows,
    diagonal_links,
    saved_choice,
    walk_html,
    walk_through,
)
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer
from hf_seq2seq_attn.translation import load_seq2seq, translate

from .bible_corpus import ATTRIBUTION, prepare_bible_corpus
from .card import write_card
from .data import ParallelCorpus, read_corpus
from .data_recipe import CorpusFiles, corpora_of, local_files
from .demo_report import SCORE_HEADS, TranslatedView, score_rows, write_demo_report
from .recipe import Recipe, load_recipe, save_recipe
from .run_record import METRICS_FILE, RECIPE_FILE, hardware, read_metrics, versions, write_metrics
from .scoring import score_alignments, score_translations
from .train import train

RECIPE = "bible_alignment"
STEPS = 1500
ATTENTION = "additive"
SEED = 1
NUM_BEAMS = 4
BATCH_SIZE = 32
VERSES_SHOWN = 8
LONGEST_SHOWN = 22


@dataclass(frozen=True)
class Findings:
    """What the reloaded model says about the test verses, one entry each."""

    links: list[Links]
    translations: list[str]
    views: list[SentenceView]


def run_demo(
    output_dir: str | Path = "build/demo",
    steps: int = STEPS,
    attention: str = ATTENTION,
    seed: int = SEED,
    cache: str | Path | None = None,
) -> dict[str, Any]:
    """Prepare the corpus, train, reload, align, translate, score, report; return the metrics.

    Nothing of dev's or test's links is read before the model is trained. What a run with the same recipe, code and
    versions left in `output_dir` is used again. The last line printed is `REPORT PATH`.

    Args:
        steps: 0 scores an untrained model.
        attention: `additive` or `scaled_dot_product`.
        cache: folder of the corpus' wheel; None = `output_dir/cache`.

    Raises:
        InputError: the corpus cannot be had; says which file to place where.
        ValueError: an unknown attention, or negative steps.
    """
    if steps < 0:
        raise ValueError(f"steps={steps}: must be 0 or more")
    started = time.perf_counter()
    output = Path(output_dir)
    console = Console()
    progress = Console(file=sys.stderr)
    progress.print("[bold]1[/] corpus: the Greek New Testament and the Berean Standard Bible")
    verses = prepare_bible_corpus(output / "corpus", cache or output / "cache")
    progress.print(f"[bold]2[/] training on {verses['train']} verses, {steps} steps, {attention} attention")
    recipe = demo_recipe(output / "corpus", steps, attention, seed)
    model_dir, run_metrics = _train_or_reuse(recipe, output, progress)
    progress.print(f"[bold]3[/] reloading {model_dir}; aligning and translating {verses['test']} test verses")
    model, tokenizer = load_seq2seq(model_dir)
    test = read_corpus(_files(output / "corpus", "test", links=True))
    findings = examine(model, tokenizer, test, progress)
    choice = saved_choice(model)
    metrics = _score(findings, test, read_corpus(_files(output / "corpus", "train", links=False)))
    metrics |= {
        "attention": attention,
        "align_with": default_rows(model.config) if choice is None else choice.align_with,
        "steps": steps,
        "seed": seed,
        "train_verses": verses["train"],
        "test_verses": verses["test"],
        "training_seconds": run_metrics["seconds"],
        "seconds": round(time.perf_counter() - started, 1),
        "versions": versions(),
        "hardware": hardware(),
    }
    write_metrics(output / METRICS_FILE, metrics)
    _add_test_scores(model_dir, run_metrics, metrics)
    names = (output / "corpus" / "test.verse").read_text(encoding="utf-8").split()
    shown = _choose_shown(test)
    shortest = min(shown, key=lambda index: len(test.sources[index]))
    report = output / "report.html"
    write_demo_report(
        report,
        metrics,
        [TranslatedView(verse_name(names[i]), findings.views[i], findings.translations[i]) for i in shown],
        _six_steps(model, tokenizer, test, shortest, verse_name(names[shortest])),
        ATTRIBUTION,
    )
    console.print(_table(metrics))
    print(f"REPORT {report}")
    return metrics


def demo_recipe(corpus: Path, steps: int, attention: str, seed: int) -> Recipe:
    """Return the shipped recipe on the prepared files."""
    overrides = [f"data.train.{side}={corpus / f'train.{ending}'}" for side, ending in _SIDES]
    overrides += [f"data.dev.{side}={corpus / f'dev.{ending}'}" for side, ending in _SIDES[:2]]
    overrides += [f"training.max_steps={steps}", f"training.seed={seed}", f"model.cross_attention_type={attention}"]
    recipe = load_recipe(RECIPE, overrides)
    recipe.data.attribution = ATTRIBUTION
    return recipe


def examine(model: PreTrainedModel, tokenizer: AnyTokenizer, test: ParallelCorpus, console: Console) -> Findings:
    """Align the test verses with their English, and translate them from the Greek alone."""
    aligner = Aligner((model, tokenizer), batch_size=BATCH_SIZE)
    jumps = aligner.learn(test.sources, test.targets)
    links, views = [], []
    with Progress(console=console, transient=True) as bar:
        aligning = bar.add_task("aligning", total=len(test))
        for index, aligned in enumerate(aligner.align(test.sources, test.targets, jumps)):
            found = aligned.pair.gold.sure
            gold = test.gold[index] if test.gold is not None else None
            links.append(found)
            views.append(SentenceView(test.sources[index], test.targets[index], aligned.matrix, found, gold))
            bar.advance(aligning)
        translating = bar.add_task("translating", total=len(test))
        translations = translate(
            model,
            tokenizer,
            [" ".join(words) for words in test.sources],
            num_beams=NUM_BEAMS,
            batch_size=BATCH_SIZE,
            progress=lambda done, total: bar.update(translating, completed=done),
        )
    return Findings(links, translations, views)


def verse_name(verse_id: str) -> str:
    """Return the usual name of a verse of the New Testament: 40001025 -> Matthew 1:25."""
    return f"{_BOOKS[int(verse_id[:2]) - 40]} {int(verse_id[2:5])}:{int(verse_id[5:8])}"


_SIDES = (("source", "grc"), ("target", "en"), ("links", "align"))

_BOOKS = (
    *("Matthew", "Mark", "Luke", "John", "Acts", "Romans", "1 Corinthians", "2 Corinthians", "Galatians", "Ephesians"),
    *("Philippians", "Colossians", "1 Thessalonians", "2 Thessalonians", "1 Timothy", "2 Timothy", "Titus", "Philemon"),
    *("Hebrews", "James", "1 Peter", "2 Peter", "1 John", "2 John", "3 John", "Jude", "Revelation"),
)


def _files(corpus: Path, part: str, links: bool) -> CorpusFiles:
    source, target, align = (str(corpus / f"{part}.{ending}") for _, ending in _SIDES)
    return CorpusFiles(source, target, align if links else None)


def _train_or_reuse(recipe: Recipe, output: Path, console: Console) -> tuple[Path, dict[str, Any]]:
    """Return the trained folder and its metrics; train only if no run with this fingerprint is there."""
    model_dir = output / "model"
    stamp = output / "model.fingerprint"
    fingerprint = _fingerprint(recipe, output)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == fingerprint and (model_dir / METRICS_FILE).is_file():
        console.print(f"  {model_dir} was trained by this very recipe and code: used again")
        return model_dir, read_metrics(model_dir / METRICS_FILE)
    stamp.unlink(missing_ok=True)
    result = train(recipe, model_dir, overwrite=True)
    stamp.write_text(fingerprint, encoding="utf-8")
    return model_dir, result.metrics


def _fingerprint(recipe: Recipe, output: Path) -> str:
    """Return a digest of all that decides what training gives: recipe, data, code, versions, kind of machine."""
    digest = hashlib.sha256()
    recipe_copy = output / RECIPE_FILE
    save_recipe(recipe, recipe_copy)
    package = Path(hf_seq2seq_attn.__file__).parent
    code = [*sorted(package.glob("*.py")), *sorted(Path(__file__).parent.glob("*.py"))]
    data = [path for corpus in corpora_of(recipe.data) for path in local_files(corpus)]
    for path in (recipe_copy, *code, *data):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(json.dumps([versions(), hardware()["device"]], sort_keys=True).encode())
    return digest.hexdigest()


def _score(findings: Findings, test: ParallelCorpus, train_text: ParallelCorpus) -> dict[str, Any]:
    """Return the scores of the model, and beside them those of the diagonal and of IBM model 1 on the same text."""
    gold = test.gold or []
    metrics = score_alignments(findings.links, gold)
    metrics |= score_translations(findings.translations, [" ".join(words) for words in test.targets])
    pairs = list(zip(test.sources, test.targets, strict=True))
    ibm1 = Ibm1().fit(train_text.sources, train_text.targets)
    baselines = {
        "diagonal": score_alignments([diagonal_links(len(source), len(target)) for source, target in pairs], gold),
        "ibm1": score_alignments([ibm1.links(source, target) for source, target in pairs], gold),
    }
    metrics |= {name: scores["aer"] for name, scores in baselines.items()}
    return metrics | {"baselines": baselines}


def _add_test_scores(model_dir: Path, run_metrics: dict[str, Any], metrics: dict[str, Any]) -> None:
    """Put the test scores into the run's own metrics file, and write its card anew."""
    of_links = ("aer", "precision", "recall", "f1", "aer_ci95", "sentences")
    of_text = ("chrf", "chrf_signature", "bleu", "bleu_signature")
    test = {key: metrics[key] for key in (*of_links, *of_text)}
    test |= {"pairs": metrics["test_verses"], "num_beams": NUM_BEAMS, "align_with": metrics["align_with"]}
    write_metrics(model_dir / METRICS_FILE, run_metrics | {"test": test})
    write_card(model_dir)


def _choose_shown(test: ParallelCorpus) -> list[int]:
    """Return the first verses short enough to be read in a heat map, of different books as the file has them."""
    readable = [
        i
        for i, (source, target) in enumerate(zip(test.sources, test.targets, strict=True))
        if len(source) >= 6 and max(len(source), len(target)) <= LONGEST_SHOWN
    ]
    readable = readable or list(range(len(test)))
    every = max(len(readable) // VERSES_SHOWN, 1)
    return readable[::every][:VERSES_SHOWN]


def _six_steps(model: PreTrainedModel, tokenizer: AnyTokenizer, test: ParallelCorpus, index: int, verse: str) -> str:
    """Return the walk through the row that aligns a word in the middle of a verse, as HTML."""
    source, target = test.sources[index], test.targets[index]
    middle, rows = len(target) // 2, default_rows(model.config)
    walk = walk_through(model, tokenizer, source, target, word=middle, align_with=rows)
    says = "has just read" if rows == "input" else "is about to say"
    opening = f"{verse}: the step where the decoder {says} “{target[middle]}”."
    return f"<p>{escape(opening)}</p>{walk_html(walk)}"


def _table(metrics: dict[str, Any]) -> Table:
    table = Table(title=f"Word links of {metrics['test_verses']} test verses", title_justify="left")
    table.add_column("")
    for head in SCORE_HEADS:
        table.add_column(head, justify="right")
    for name, cells in score_rows(metrics):
        table.add_row(name, *cells)
    return table
