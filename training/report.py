"""The report on a model and a test set: one HTML page that needs nothing from outside, and its figures as JSON.

    seq2seq-attn report MODEL SOURCE TARGET --gold LINKS -o report.html

A page keeps to `PAGE_LIMIT` bytes: where its maps would take more, the largest are shown by their links.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.probing import PAGE_LIMIT, heatmap_svg, model_record, progress_bar
from hf_seq2seq_attn.text_files import InputError
from hf_seq2seq_attn.tokenizer_pair import AnyTokenizer

from .data import ParallelCorpus
from .data_recipe import Corpus
from .page_parts import definitions, page, text
from .recipe import Recipe, load_recipe
from .report_figures import ReportSettings, measure_report, no_progress
from .report_sections import (
    alignment_section,
    curves_section,
    faithfulness_section,
    heads_section,
    sentences_section,
    tiles,
    translation_section,
)
from .report_sentences import SentenceGroup
from .run_record import METRICS_FILE, RECIPE_FILE, hardware, read_metrics, versions
from .scoring import TEXT_METRICS
from .svg_figures import FIGURE_CSS
from .validation import scoring_settings

_TRAINER_STATE = "trainer_state.json"
_SECTIONS = {
    "translation": "Translations",
    "alignment": "Word alignment",
    "sentences": "Best and worst sentences",
    "heads": "Attention heads",
    "faithfulness": "Faithfulness",
    "curves": "Learning curves",
    "provenance": "Provenance",
}


@dataclass(frozen=True)
class Report:
    """A report that was measured.

    Attributes:
        figures: everything, as plain JSON values.
        groups: the best and the worst sentences, with their maps.
        label_smoothing: of its training loss.
    """

    figures: dict[str, Any]
    groups: tuple[SentenceGroup, ...]
    label_smoothing: float = 0.0


class Run:
    """What the folder of a run tells: its recipe and its metrics, where there are any."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.recipe: Recipe | None = None
        self.metrics: dict[str, Any] = {}
        if (self.folder / METRICS_FILE).is_file():
            self.metrics = _read_object(self.folder / METRICS_FILE)
        if self.metrics and (self.folder / RECIPE_FILE).is_file():
            self.recipe = load_recipe(self.folder / RECIPE_FILE)

    @property
    def name(self) -> str | None:
        """What the recipe calls the run; None without one."""
        return None if self.recipe is None else self.recipe.name

    @property
    def history(self) -> tuple[Mapping[str, Any], ...]:
        """What a Trainer logged, in this package's run or in any other's folder."""
        found = self.metrics.get("history")
        if found is None and (self.folder / _TRAINER_STATE).is_file():
            found = _read_object(self.folder / _TRAINER_STATE).get("log_history")
        if not isinstance(found, list):
            return ()
        logs = (entry for entry in found if isinstance(entry, dict) and isinstance(entry.get("step"), int))
        return tuple({key: value for key, value in log.items() if _is_number(value)} for log in logs)

    @property
    def label_smoothing(self) -> float:
        """Of the training loss."""
        return float(self.recipe.training.get("label_smoothing_factor", 0)) if self.recipe else 0.0

    def test_set(self) -> tuple[str, Corpus] | None:
        """Return the part that a report is on, "test", else "dev", and where it lies; None without one."""
        if self.recipe is None:
            return None
        parts = (("test", self.recipe.data.test), ("dev", self.recipe.data.dev))
        return next(((part, corpus) for part, corpus in parts if corpus is not None), None)

    def settings(self) -> ReportSettings:
        """Return what the run itself measures, and how; of another model BLEU and chrF, as sacrebleu has them."""
        if self.recipe is None:
            return ReportSettings(bleu_tokenize="13a")
        own = scoring_settings(self.recipe.validation, self.recipe.training.get("generation_num_beams"))
        alignment = self.recipe.alignment
        aligns_only = alignment is not None and alignment.alignment_only
        return ReportSettings(
            metrics=() if aligns_only else tuple(name for name in own["metrics"] if name in TEXT_METRICS),
            bleu_tokenize=own["bleu_tokenize"],
            several_references=own["several_references"],
            num_beams=own["num_beams"],
            batch_size=own["batch_size"],
        )

    def record(self) -> dict[str, Any] | None:
        """Return what is said of the training."""
        if self.recipe is None:
            return None
        keys = ("name", "started", "seconds", "steps", "epochs", "seed", "processes", "versions", "hardware")
        return {key: self.metrics[key] for key in keys if key in self.metrics}


def make_report(
    model: PreTrainedModel,
    tokenizer: AnyTokenizer,
    corpus: ParallelCorpus,
    settings: ReportSettings,
    *,
    name: str | Path,
    data: Mapping[str, Any],
    first_line: int = 1,
    run: Run | None = None,
    progress: bool = True,
) -> Report:
    """Measure a model on a test set.

    Args:
        name: the folder or Hub id that the model was loaded from.
        data: what is said of the test set. first_line: as in `measure_report`.
        run: what is known of the model's training.
        progress: show bars on stderr.

    Raises:
        ValueError: as `measure_report`.
    """
    bars = progress_bar if progress else no_progress
    found = measure_report(model, tokenizer, corpus, settings, bars, first_line=first_line)
    record = model_record(name)
    figures = {
        "model": {
            "name": (run and run.name) or _shared_name(name),
            "revision": record["revision"],
            "type": model.config.model_type,
            "parameters": model.num_parameters(),
        },
        "data": {**data, "pairs": len(corpus), "gold": corpus.gold is not None},
        "settings": asdict(settings),
        **found.sections,
        "sentences": [group.as_dict() for group in found.groups],
        "training": run.record() if run else None,
        "history": list(run.history) if run else [],
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "hardware": hardware(),
    }
    return Report(figures, found.groups, run.label_smoothing if run else 0.0)


def report_page(report: Report, limit: int = PAGE_LIMIT) -> str:
    """Return the report as a page of at most `limit` bytes.

    Raises:
        ValueError: the page without any map is larger.
    """
    maps = [
        (number, len(heatmap_svg(sentence.view).encode()))
        for number, sentence in enumerate(each for group in report.groups for each in group.sentences)
        if sentence.view is not None and sentence.has_map
    ]
    largest_first = sorted(maps, key=lambda each: -each[1])
    sections = _sections(report)
    dropped: set[int] = set()
    while (excess := len((whole := _page(report, sections, frozenset(dropped), limit)).encode()) - limit) > 0:
        if len(dropped) == len(maps):
            raise UnusableError(
                f"limit is {limit}; the page takes {excess + limit:,} bytes without any map: show fewer sentences"
            )
        for number, size in largest_first[len(dropped) :]:
            dropped.add(number)
            excess -= size
            if excess <= 0:
                break
    return whole


def _sections(report: Report) -> dict[str, str]:
    """Return the sections that are the same however many maps fit, those without content left out."""
    figures = report.figures
    bodies: dict[str, Iterable[str]] = {
        "translation": translation_section(figures["translation"]),
        "alignment": alignment_section(figures["alignment"]),
        "heads": heads_section(figures["heads"]),
        "faithfulness": faithfulness_section(figures["faithfulness"]),
        "curves": curves_section(figures["history"], report.label_smoothing),
        "provenance": [_provenance(figures)],
    }
    made = {name: "\n".join(body) for name, body in bodies.items()}
    return {name: body for name, body in made.items() if body}


def _page(report: Report, sections: Mapping[str, str], dropped: frozenset[int], limit: int) -> str:
    figures = report.figures
    found = {**sections, "sentences": "\n".join(sentences_section(report.groups, dropped))}
    made = {name: found[name] for name in _SECTIONS if name in found}
    contents = "".join(f'<li><a href="#{name}">{_SECTIONS[name]}</a></li>' for name in made)
    title = f"Report: {figures['model']['name']}"
    gold = "with manual links" if figures["data"]["gold"] else "without manual links"
    parts = [
        f"<h1>{text(title)}</h1>",
        f'<p class="lead">A {text(figures["model"]["type"])} model of {figures["model"]["parameters"]:,} parameters on '
        f"{figures['data']['pairs']:,} sentence pairs, {gold}. {text(figures['created'][:10])}.</p>",
        tiles(figures),
        f'<nav aria-label="sections"><ul class="contents">{contents}</ul></nav>',
    ]
    if dropped:
        parts.append(
            f'<p class="reduced">To stay under {limit / 1e6:.1f} MB, {len(dropped)} sentences, those with the largest '
            "maps, are shown by their links alone.</p>"
        )
    parts += [
        f'<section aria-labelledby="{name}"><h2 id="{name}">{_SECTIONS[name]}</h2>\n{body}</section>'
        for name, body in made.items()
    ]
    return page(title, parts, FIGURE_CSS, script=True)


def _provenance(figures: Mapping[str, Any]) -> str:
    model, data, settings = figures["model"], figures["data"], figures["settings"]
    facts = [
        ("model", model["name"]),
        ("revision", model["revision"] or "unknown"),
        *((f"{side} file", f"{file['name']}, sha256 {file['sha256'][:16]}") for side, file in data["files"].items()),
        *(() if data["files"] else (("test set", data["name"]),)),
        *((("pairs", f"the first {data['pairs']:,} of the files"),) if data.get("limit") == data["pairs"] else ()),
        ("seed", str(settings["seed"])),
    ]
    if "reading" in figures["alignment"]:
        facts.append(("attention", figures["alignment"]["reading"]))
    facts += [
        (name.replace("_", " "), settings["reading"][name])
        for name in ("source_prefix", "source_language", "target_language")
        if settings["reading"][name]
    ]
    if figures["training"]:
        made = figures["training"]
        facts.append(
            ("training", f"{made['name']}: started {made['started']}, {made['steps']:,} steps, seed {made['seed']}")
        )
    facts += [
        ("report made", figures["created"]),
        ("versions", ", ".join(f"{name} {version}" for name, version in figures["versions"].items())),
        ("device", "{device} on {machine}, {cpus} CPUs, {threads} threads".format(**figures["hardware"])),
    ]
    return definitions(facts)


def _shared_name(model: str | Path) -> str:
    """Return the id of a model on the Hub, or a folder's name: where it lies on this machine is nobody's business."""
    return Path(model).resolve().name if Path(model).is_dir() else str(model)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        found = read_metrics(path)
    except ValueError as error:
        raise InputError(f"{path}: is not JSON ({error}); remove it, or write it anew") from error
    return found if isinstance(found, dict) else {}
