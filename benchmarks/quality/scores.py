"""Score a finished run as the tables want it: beam search, its length penalty chosen on dev, the test sets after that.

    python benchmarks/quality/scores.py RUN_DIR --dev dev.de dev.en --test test_2016=test.de,test.en [--metric bleu]

Translations lie in RUN_DIR/translations, a file for each part and penalty, named by what weights and sources they are
of, and are not made twice: a stopped command goes on when it is given again. Scores go into RUN_DIR/metrics.json, under
`quality`, and into the card.
"""

import argparse
import functools
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers.utils import SAFE_WEIGHTS_NAME

from hf_seq2seq_attn.probing import write_atomically
from hf_seq2seq_attn.text_files import InputError, read_aligned, read_lines
from hf_seq2seq_attn.training.card import write_card
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.run_record import METRICS_FILE, RECIPE_FILE, read_metrics, write_metrics
from hf_seq2seq_attn.training.scoring import group_references, score_translations
from hf_seq2seq_attn.training.text_intervals import score_with_intervals
from hf_seq2seq_attn.translation import load_seq2seq, translate

BEAMS = 5
PENALTIES = {"bleu": (0.6, 0.8, 1.0, 1.2, 1.4), "word_error_rate": (1.0,)}
"""Metric -> length penalties to choose from; a hypothesis is scored by log-probability / length ** penalty."""
STEP, LEAST, MOST = 0.2, 0.0, 2.4
"""Where the best penalty is the least or the greatest of several, the next one is tried, so far as these bounds."""
TRANSLATIONS = "translations"
Files = tuple[Path, Path]


class Translations:
    """What a run's model makes of a part, from its file or made now; the model is loaded when it is first needed."""

    def __init__(self, run_dir: Path, batch_size: int = 64) -> None:
        self.run_dir = run_dir
        self.batch_size = batch_size
        self._loaded = functools.cache(lambda: load_seq2seq(run_dir))
        self._weights = functools.cache(lambda: hashlib.sha256((run_dir / SAFE_WEIGHTS_NAME).read_bytes()).hexdigest())

    def of(self, part: str, sources: Sequence[str], penalty: float) -> list[str]:
        """Return one line for each source."""
        path = self.path(part, sources, penalty)
        if not path.exists():
            model, tokenizer = self._loaded()
            lines = translate(
                model, tokenizer, sources, num_beams=BEAMS, batch_size=self.batch_size, length_penalty=penalty
            )
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, (line + "\n" for line in lines))
        lines = read_lines(path)
        if len(lines) != len(sources):
            raise InputError(f"{path}: {len(lines)} lines for {len(sources)} sources; delete it, it is made anew")
        return lines

    def path(self, part: str, sources: Sequence[str], penalty: float) -> Path:
        """Return where the translations of a part are kept: other weights or sources have another place."""
        of = hashlib.sha256("\n".join([self._weights(), *sources]).encode()).hexdigest()[:12]
        return self.run_dir / TRANSLATIONS / f"{part}.{of}.beam{BEAMS}.penalty{penalty:g}.txt"


def score_run(run_dir: Path, dev: Files, tests: Mapping[str, Files], metric: str) -> dict[str, Any]:
    """Choose the length penalty on dev, score dev and the test parts with it, write both files; return the scores.

    Args:
        metric: a key of `PENALTIES`.

    Returns:
        num_beams, length_penalty, penalties (each with dev's score), dev and tests, by their names: for each score its
        value, 95% interval and signature. Rates are shares, BLEU and chrF 0..100.
    """
    several = _several_references(run_dir)
    made = Translations(run_dir)
    sources, references = _read(dev, several)
    best, tried = choose_penalty(
        lambda penalty: _main_score(made.of("dev", sources, penalty), references, metric), metric
    )
    scores: dict[str, Any] = {
        "metric": metric,
        "num_beams": BEAMS,
        "length_penalty": best,
        "penalties": {f"{penalty:g}": score for penalty, score in tried.items()},
        "dev": all_scores(made.of("dev", sources, best), references, metric),
        "tests": {},
    }
    for name, files in tests.items():
        sources, references = _read(files, several)
        scores["tests"][name] = all_scores(made.of(name, sources, best), references, metric)
    _record(run_dir, scores)
    return scores


def choose_penalty(score: Callable[[float], float], metric: str) -> tuple[float, dict[float, float]]:
    """Return the length penalty with the best score, and the scores of all that were tried, by their penalties."""
    better = max if metric == "bleu" else min
    tried = {penalty: score(penalty) for penalty in PENALTIES[metric]}
    while True:
        best = better(tried, key=tried.__getitem__)
        beyond = [round(edge + step, 1) for edge, step in ((min(tried), -STEP), (max(tried), STEP)) if edge == best]
        if len(beyond) != 1 or not LEAST <= beyond[0] <= MOST:
            return best, dict(sorted(tried.items()))
        tried[beyond[0]] = score(beyond[0])


def all_scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]], metric: str) -> dict[str, Any]:
    """Return every figure that the table shows beside `metric`, with intervals; `bleu_lc` is sacrebleu's `-lc`."""
    if metric == "bleu":
        lowered = score_with_intervals(hypotheses, references, ["bleu"], "13a", bleu_lowercase=True)
        found = {"bleu_lc": lowered["bleu"], **score_with_intervals(hypotheses, references, ["bleu", "chrf"], "13a")}
    else:
        found = score_with_intervals(hypotheses, references, [metric, "per"])
    return {"sentences": len(hypotheses)} | {name: score.as_dict() for name, score in found.items()}


def _main_score(hypotheses: Sequence[str], references: Sequence[Sequence[str]], metric: str) -> float:
    if metric == "bleu":
        hypotheses = [line.lower() for line in hypotheses]
        references = [[line.lower() for line in several] for several in references]
    return float(score_translations(hypotheses, references, [metric], "13a")[metric])


def _read(files: Files, several: bool) -> tuple[list[str], list[list[str]]]:
    sources, references = read_aligned(*files)
    if several:
        return group_references(sources, references)
    return sources, [[line] for line in references]


def _several_references(run_dir: Path) -> bool:
    validation = load_recipe(run_dir / RECIPE_FILE).validation
    return validation is not None and validation.several_references


def _record(run_dir: Path, scores: dict[str, Any]) -> None:
    """Put the scores into the run's metrics, those of beam search also in the place of training's greedy ones."""
    metrics = read_metrics(run_dir / METRICS_FILE)
    first = next(iter(scores["tests"].values()), None)
    for part, found in (("dev", scores["dev"]), ("test", first)):
        if found is not None:
            searched = {"num_beams": BEAMS, "length_penalty": scores["length_penalty"], **_plain(found)}
            metrics[part] = {**metrics.get(part, {}), **searched}
    metrics["quality"] = scores
    write_metrics(run_dir / METRICS_FILE, metrics)
    write_card(run_dir)


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return values and signatures as a run's own metrics name them."""
    plain: dict[str, Any] = {}
    for name, score in found.items():
        if isinstance(score, Mapping) and name != "bleu_lc":
            plain[name] = score["value"]
            if "signature" in score:
                plain[f"{name}_signature"] = score["signature"]
    return plain


def named_files(text: str) -> tuple[str, Files]:
    name, equals, files = text.partition("=")
    source, comma, target = files.partition(",")
    if not (name and equals and source and comma and target):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SOURCE,TARGET")
    return name, (Path(source), Path(target))


def main(words: Sequence[str] | None = None, show: Callable[[str], None] = print) -> int:
    """Run the command; return 0 when done and 2 on bad input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--dev", type=Path, nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--test", type=named_files, nargs="*", default=[], metavar="NAME=SOURCE,TARGET")
    parser.add_argument("--metric", choices=tuple(PENALTIES), default="bleu")
    chosen = parser.parse_args(words)
    try:
        scores = score_run(chosen.run_dir, tuple(chosen.dev), dict(chosen.test), chosen.metric)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    for name, found in (("dev", scores["dev"]), *scores["tests"].items()):
        values = (f"{key} {score['value']:g}" for key, score in found.items() if isinstance(score, Mapping))
        show(f"{name}: {', '.join(values)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
