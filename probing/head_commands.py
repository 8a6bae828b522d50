"""What the heads command does with files."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError, read_aligned

from .aligned_pair import Gold
from .attention_maps import AttentionMaps
from .choices import check_choices
from .directions import sides_swapped
from .extraction import ROWS, default_rows, extract
from .formats import write_atomically
from .head_choice import HeadChoice, choose_by_aer, choose_by_agreement
from .head_fit import FitReport, fit_heads
from .head_picture import save_head_picture
from .head_report import HeadReport, report_heads
from .head_tables import describe_choice, describe_fit, report_table
from .heatmap import PICTURE_SUFFIXES
from .importance import head_importance
from .link_commands import read_reported, remark
from .progress import progress_bar
from .provenance import describe_origin, library_versions, model_record
from .refusals import refused
from .saved_choice import AlignmentChoice, save_choice

_TEST_NAME = re.compile(r"(?<![a-z])test(?:set)?(?![a-z])", re.IGNORECASE)
# A head's agreement with itself (links by row, links by column) needs no second model, but a head that looks at a
# position, whatever stands there, has all of it; so it is not offered.
NEEDED = (
    "nothing to choose heads by; give --reverse-model (a model of the other direction, which needs no gold), or --gold "
    "with manual links of a development set; --report describes the heads without choosing"
)


@dataclass(frozen=True)
class HeadRequest:
    """What the heads command is asked for.

    Attributes:
        model, reverse_model: folders or Hub ids; the second of the target-to-source direction.
        source, target: text files, line by line.
        gold: manual links of a development set.
        source_tags, target_tags: files with one part of speech for each word.
        fit: fit a logistic combination of all heads to `gold`.
        report: describe every head.
        save: keep the choice in the model's folder.
        weights, specials, links: as in `align`.
        align_with: rows to choose among; None = both.
        limit: how many sentence pairs are read, from the first.
        max_heads: the most heads in a set.
        batch_size: sentence pairs in one pass.
        source_prefix, reverse_prefix: what each model wants before the text that it reads; see `extract`.
        source_language, target_language: of the pair; the reverse model reads the second and writes the first.
    """

    model: str
    source: Path
    target: Path
    reverse_model: str | None = None
    gold: Path | None = None
    source_tags: Path | None = None
    target_tags: Path | None = None
    fit: bool = False
    report: bool = False
    save: bool = False
    weights: str = "attention"
    specials: str = "mask"
    links: str = "argmax"
    align_with: str | None = None
    limit: int = 500
    max_heads: int = 8
    batch_size: int = 32
    source_prefix: str = ""
    reverse_prefix: str = ""
    source_language: str | None = None
    target_language: str | None = None

    def check(self) -> None:
        """Raise an InputError for what cannot work, before a model is loaded."""
        try:
            check_choices(self.align_with, self.specials, "matrix", self.links)
        except ValueError as error:
            raise InputError(str(error)) from error
        if self.weights not in ("attention", "norm"):
            raise InputError(f"weights is {self.weights!r}; heads are chosen on attention or norm")
        if self.gold is not None and (found := _TEST_NAME.search(self.gold.name)):
            raise InputError(
                f"{self.gold}: is named {found.group()!r}; heads chosen on a test set make its score worthless. Give "
                "the links of a development set, or rename the file if it is one"
            )
        if not self.report and (self.source_tags is not None or self.target_tags is not None):
            raise InputError("parts of speech are for the report; add --report, or leave the tags out")
        if self.reverse_prefix and self.reverse_model is None:
            raise InputError("--reverse-prefix is for the model of the other direction; give --reverse-model")
        if self.gold is None and self.fit:
            raise InputError("--fit needs --gold: manual links of 10 to 50 pairs that are not the test set")
        if self.gold is None and self.reverse_model is None and not self.report:
            raise InputError(NEEDED)
        if self.save and self.gold is None and self.reverse_model is None:
            raise InputError(f"--save has no choice to keep: {NEEDED}")
        if self.save and not Path(self.model).is_dir():
            raise InputError(
                f"{self.model}: --save needs the folder of the model; save_pretrained it, or download it, and name "
                "that folder"
            )


def heads_files(request: HeadRequest, output: Path | None = None, *, as_json: bool = False) -> dict[str, Any]:
    """Choose, fit or describe the heads of a model on two text files, and print or write the result.

    Args:
        output: `.json` for the result, or with a report `.png`, `.svg`, `.pdf` for its picture.

    Returns:
        The result as plain JSON values.

    Raises:
        InputError: bad choices, files, sentences or places.
    """
    request.check()
    if output is not None and output.suffix not in (".json", *PICTURE_SUFFIXES):
        raise InputError(f"{output}: allowed suffixes are .json, {', '.join(PICTURE_SUFFIXES)}; rename the output")
    if output is not None and output.suffix != ".json" and not request.report:
        raise InputError(f"{output}: a picture is of the report; add --report, or name a .json file")
    run = _Run(request)
    result, printed = run.result()
    if run.choice is not None and request.save:
        _save(request, run)
    if output is not None and output.suffix == ".json":
        write_atomically(output, [json.dumps(result, indent=1, ensure_ascii=False) + "\n"])
    elif output is not None and run.report is not None:
        save_head_picture(output, run.report)
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
    elif output is None or output.suffix != ".json":
        print("\n".join(printed))
    return result


class _Run:
    """The heads command, from files to results."""

    def __init__(self, request: HeadRequest) -> None:
        self.request = request
        sources, targets = read_aligned(request.source, request.target)
        texts = [[line.split() for line in lines] for lines in (sources, targets)]
        self.dev: list[Gold] | None = None
        if request.gold is not None:
            self.dev = list(read_reported(request.gold, None, texts).sentences)[: request.limit]
        self.tags = [
            None if path is None else _read_tags(path, lines, text)[: request.limit]
            for path, lines, text in (
                (request.source_tags, texts[0], request.source),
                (request.target_tags, texts[1], request.target),
            )
        ]
        self.sources, self.targets = sources[: request.limit], targets[: request.limit]
        if not self.sources:
            raise InputError(f"{request.source}: no sentence; check the file")
        self.choice: HeadChoice | None = None
        self.fit: FitReport | None = None
        self.report: HeadReport | None = None
        with refused(request.source, request.target):
            self._run()

    def result(self) -> tuple[dict[str, Any], list[str]]:
        """Return the result as JSON values and as lines of text."""
        request = self.request
        result: dict[str, Any] = {
            "model": model_record(request.model),
            "reverse_model": None if request.reverse_model is None else model_record(request.reverse_model),
            "versions": library_versions(),
            "data": self.data(),
            "weights": request.weights,
        }
        printed: list[str] = []
        if self.choice is not None:
            result["choice"] = self.choice.as_dict()
            printed += describe_choice(self.choice)
        if self.fit is not None:
            result["fit"] = self.fit.as_dict()
            printed += describe_fit(self.fit)
        if self.report is not None:
            result["report"] = self.report.as_dict()
            printed += report_table(self.report)
        printed += describe_origin(result)
        return result, printed

    def data(self) -> dict[str, Any]:
        """Return which data the result rests on."""
        request = self.request
        files = {"source": request.source, "target": request.target, "dev": request.gold}
        return {"pairs": len(self.sources)} | {
            name: {"file": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for name, path in files.items()
            if path is not None and path.is_file()
        }

    def _run(self) -> None:
        from hf_seq2seq_attn.translation import load_seq2seq

        request = self.request
        model, tokenizer = load_seq2seq(request.model)
        maps = self._extract(model, tokenizer, self.sources, self.targets, self._forward, "reading attention")
        reverse: dict[str, list[AttentionMaps]] | None = None
        if request.reverse_model is not None:
            back, back_tokenizer = load_seq2seq(request.reverse_model)
            with sides_swapped():
                reverse = self._extract(
                    back, back_tokenizer, self.targets, self.sources, self._back, "reading the reverse model"
                )
        self._choose(maps, reverse)
        if request.report:
            self.report = self._report(model, tokenizer, maps, reverse)

    def _choose(self, maps: dict[str, list[AttentionMaps]], reverse: dict[str, list[AttentionMaps]] | None) -> None:
        request = self.request
        rows = ROWS if request.align_with is None else (request.align_with,)
        among = {each: maps[each] for each in rows}
        if self.dev is not None:
            self.choice = choose_by_aer(
                among, self.dev, specials=request.specials, links=request.links, max_heads=request.max_heads
            )
            if request.fit:
                self.fit = fit_heads(among, self.dev, specials=request.specials)
        elif reverse is not None:
            self.choice = choose_by_agreement(
                among,
                {each: reverse[each] for each in rows},
                specials=request.specials,
                links=request.links,
                max_heads=request.max_heads,
            )

    def _report(
        self,
        model: Any,
        tokenizer: Any,
        maps: dict[str, list[AttentionMaps]],
        reverse: dict[str, list[AttentionMaps]] | None,
    ) -> HeadReport:
        request = self.request
        rows = request.align_with or default_rows(model.config)
        back_rows = rows
        if self.choice is not None:
            rows = self.choice.best.candidate.align_with
            back_rows = rows if self.choice.reverse is None else self.choice.reverse.align_with
        predicting = maps["output"]
        if request.weights != "attention":
            predicting = list(
                extract(
                    model,
                    tokenizer,
                    self.sources,
                    self.targets,
                    align_with="output",
                    batch_size=request.batch_size,
                    **self._forward,
                )
            )
        importance = None
        try:
            with progress_bar("importance") as progress:
                importance = head_importance(model, predicting, batch_size=request.batch_size, progress=progress)
        except UnusableError as error:
            remark(f"warning: no importance in the report: {error}")
        return report_heads(
            maps[rows],
            gold=self.dev,
            reverse=None if reverse is None else reverse[back_rows],
            importance=importance,
            source_tags=self.tags[0],
            target_tags=self.tags[1],
            specials=request.specials,
            links=request.links,
        )

    @property
    def _forward(self) -> dict[str, Any]:
        """Prefix and languages of the model, as arguments of `extract`."""
        request = self.request
        return {
            "source_prefix": request.source_prefix,
            "source_language": request.source_language,
            "target_language": request.target_language,
        }

    @property
    def _back(self) -> dict[str, Any]:
        """Those of the reverse model."""
        request = self.request
        return {
            "source_prefix": request.reverse_prefix,
            "source_language": request.target_language,
            "target_language": request.source_language,
        }

    def _extract(
        self,
        model: Any,
        tokenizer: Any,
        sources: Sequence[str],
        targets: Sequence[str],
        reading: dict[str, Any],
        what: str,
    ) -> dict[str, list[AttentionMaps]]:
        """Return all layers' and heads' maps for both kinds of rows: OPUS-MT's guided head is on output rows."""
        found: dict[str, list[AttentionMaps]] = {}
        with progress_bar(what) as progress:
            for rows in ROWS:
                kept = found.setdefault(rows, [])
                for maps in extract(
                    model,
                    tokenizer,
                    sources,
                    targets,
                    align_with=rows,
                    weights=self.request.weights,
                    batch_size=self.request.batch_size,
                    **reading,
                ):
                    kept.append(maps)
                    progress(len(kept) + len(sources) * (len(found) - 1), len(sources) * len(ROWS))
        return found


def _save(request: HeadRequest, run: _Run) -> None:
    assert run.choice is not None
    best = run.choice.best
    provenance = {
        "criterion": run.choice.criterion,
        "score": best.score,
        "pairs": run.choice.pairs,
        "data": run.data(),
        "model": model_record(request.model),
        "reverse_model": None if request.reverse_model is None else model_record(request.reverse_model),
        "versions": library_versions(),
    }
    if run.fit is not None:
        provenance["fit"] = run.fit.as_dict()
    choice = AlignmentChoice(
        heads=best.candidate.heads,
        align_with=best.candidate.align_with,
        weights=request.weights,
        # The fit has its own.
        specials=request.specials if run.fit is None else "mask",
        links=request.links if run.fit is None else f"threshold:{run.fit.fit.threshold:g}",
        fit=None if run.fit is None else run.fit.fit,
        provenance=provenance,
    )
    save_choice(request.model, choice)
    rows = choice.align_with if choice.fit is None else " and ".join(choice.fit.rows)
    remark(f"{request.model}: heads {choice.name}, on {rows} rows, saved; align and view now read them")


def _read_tags(path: Path, lines: Sequence[Sequence[str]], text: Path) -> list[list[str]]:
    """Return the tags of each line; each word must have one.

    Raises:
        InputError: another number of lines, or of tags in a line, than in the text.
    """
    _, tag_lines = read_aligned(text, path)
    tags = [line.split() for line in tag_lines]
    for number, (of_line, words) in enumerate(zip(tags, lines, strict=True), start=1):
        if len(of_line) != len(words):
            raise InputError(
                f"{path}:{number}: {len(of_line)} tags for {len(words)} words of {text}; give one tag for each word"
            )
    return tags
