"""Measure the trained aligner beside eflomal on the sets with manual links, with none, some and all of the links known.

    python benchmarks/alignment/aligner.py ../shared/data -o benchmarks/results/aligner.json --work ../runs/aligner \
        --minutes 8 --seeds 0 1 2 --gold 0 200 all

Text of all parts is trained on (that of the test part too, without its links), as eflomal is given it. Hand-made links
are those of the training part only; with `--gold 0` no hand-made link is used anywhere, thresholds included. eflomal is
run on the same tokens (where lemmas stand beside the words, on the lemmas), as it is by default; the best of its
outputs on the test part is the one to beat, which favours it. Beside it stands the teacher alone: eflomal as the
aligner runs it, with another prior, on several forms of the text and without the punctuation that has no partner.

Every run's figures go to the output file when they are known, and what stands there is not measured again: runs may be
shared out among commands and among machines. Networks and links stay in `--work`, where an interrupted run goes on.
"""

import argparse
import contextlib
import fcntl
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gold_sets import SETS, WITH_LEMMAS, GoldSet, read_lemmas, read_links, read_part
from statistical_aligners import aligner_versions, lowered, run_eflomal

from hf_seq2seq_attn.probing import (
    SYMMETRIZATIONS,
    Gold,
    Link,
    Links,
    compare_scores,
    read_link_file,
    score_links,
    symmetrize,
    write_links,
)
from hf_seq2seq_attn.training.aligner_data import AlignerData, TeacherLinks
from hf_seq2seq_attn.training.aligner_forms import teacher_forms
from hf_seq2seq_attn.training.aligner_settings import parse_settings
from hf_seq2seq_attn.training.aligner_teachers import run_teacher
from hf_seq2seq_attn.training.aligner_training import fit_aligner
from hf_seq2seq_attn.training.run_record import hardware, read_metrics, versions, write_metrics
from hf_seq2seq_attn.training.trained_aligner import TrainedAligner

RUNS = 3
"""Of eflomal: its sampler is random. The first of the aligner's seeds is compared with the first of them, and so on."""
THRESHOLDS = (0.2, 0.3, 0.4, 0.5)
NAMES = ("bible-he-en-ylt", "bible-grc-en-ylt (grc-lemma)", "bible-grc-en-bsb", "nettalk")
MEASURED = {each.name: each for each in SETS if each.name in NAMES} | {each.name: each for each in WITH_LEMMAS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder that holds the sets")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="where links of every run are kept")
    parser.add_argument("--only", nargs="+", choices=MEASURED, default=list(MEASURED), help="the sets to measure")
    parser.add_argument("--gold", nargs="+", default=["0", "200", "all"], help="hand-aligned training pairs known")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, help="of training for each network; by default the epochs decide")
    parser.add_argument("--teacher", choices=("eflomal", "builtin"), default="eflomal")
    parser.add_argument("--set", nargs="*", default=[], dest="changed", metavar="FIELD=VALUE", help="other settings")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results = Results(arguments.output, arguments.work / "results.lock")
    asked = {"teacher": arguments.teacher, "minutes": arguments.minutes, "changed": arguments.changed}
    known = results.made_with(asked)
    if known != asked:
        sys.exit(f"{arguments.output} has figures of {known}; give another file for {asked}")
    for name in arguments.only:
        Measured(MEASURED[name], arguments, results).all()


class Results:
    """The output file, which several commands may add to at a time."""

    def __init__(self, path: Path, lock: Path) -> None:
        self.path, self.lock = path, lock
        for file in (path, lock):
            file.parent.mkdir(parents=True, exist_ok=True)

    def made_with(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return what the figures of the file were made with; these settings, if it has none yet."""
        with self._record() as record:
            found: dict[str, Any] = record.setdefault("made_with", settings)
            write_metrics(self.path, record)
        return found

    def get(self, *keys: str) -> Any:
        """Return what is known at this place; None = nothing."""
        with self._record() as record:
            found: Any = record["sets"]
        for key in keys:
            found = found.get(key, {})
        return found or None

    def put(self, value: Any, *keys: str) -> None:
        """Write a figure to its place."""
        with self._record() as record:
            place = record["sets"]
            for key in keys[:-1]:
                place = place.setdefault(key, {})
            place[keys[-1]] = value
            write_metrics(self.path, record | {"versions": versions() | aligner_versions(), "hardware": hardware()})

    @contextlib.contextmanager
    def _record(self) -> Iterator[dict[str, Any]]:
        """Read the file, which no other command writes meanwhile."""
        with self.lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield read_metrics(self.path) if self.path.exists() else {"sets": {}}


class Measured:
    """One set: its text, its links, and the figures of all runs on it."""

    def __init__(self, gold_set: GoldSet, arguments: argparse.Namespace, results: Results) -> None:
        self.name, self.arguments, self.results = gold_set.name, arguments, results
        self.folder = arguments.work / gold_set.name.replace(" ", "-").strip("()")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.source: list[list[str]] = []
        self.target: list[list[str]] = []
        self.lemmas: list[list[str]] | None = None if gold_set.source_lemmas is None else []
        self.gold: list[Gold] = []
        self.places: dict[str, range] = {}
        for part in gold_set.parts:
            source, target = read_part(arguments.data, gold_set, part)
            self.places[part] = range(len(self.source), len(self.source) + len(source))
            self.source += source
            self.target += target
            if self.lemmas is not None:
                self.lemmas += read_lemmas(arguments.data, gold_set, part) or []
            self.gold += read_links(arguments.data, gold_set, part)

    def all(self) -> None:
        """Measure what the output file does not have yet of eflomal, the teacher and the aligner."""
        self.results.put(len(self.source), self.name, "pairs")
        self.results.put({part: len(places) for part, places in self.places.items()}, self.name, "pairs_of_parts")
        baseline, best = self.eflomal()
        if not self.results.get(self.name, "eflomal"):
            self.results.put(baseline, self.name, "eflomal")
        if not self.results.get(self.name, "teacher_alone"):
            self.results.put(self.teacher_alone(), self.name, "teacher_alone")
        for amount in self.arguments.gold:
            for seed in self.arguments.seeds:
                if not self.results.get(self.name, "aligner", amount, str(seed)):
                    self.results.put(self.figures(amount, seed, best), self.name, "aligner", amount, str(seed))
            if len(self.arguments.seeds) > 1 and not self.results.get(self.name, "joined", amount):
                self.join(amount)

    def figures(self, amount: str, seed: int, best: Sequence[list[Links]]) -> dict[str, Any]:
        """Return the figures of one run, beside one of eflomal's, so that neither side's luck decides."""
        links, seconds, rules = self.run(amount, seed)
        parts = (self.part(each, "test") for each in (links, best[seed % RUNS], self.gold))
        found = {
            "test_aer": self.aer(links, "test"),
            "dev_aer": self.aer(links, "dev"),
            "seconds": round(seconds, 1),
            "rules": rules,
            "against_eflomal": compare_scores(*parts).as_dict(),
        }
        print(f"{self.name}, {amount} hand-aligned pairs, seed {seed}: test {found['test_aer']:.4f}", flush=True)
        return found

    def eflomal(self) -> tuple[dict[str, Any], list[list[Links]]]:
        """Run eflomal RUNS times; return the figures, and the links of the output that is best on the test."""
        outputs: list[dict[str, list[Links]]] = []
        for number in range(RUNS):
            paths = [self.folder / f"eflomal-{number}.{direction}.align" for direction in ("forward", "reverse")]
            if not all(path.exists() for path in paths):
                text = [[lowered(words) for words in side] for side in (self.lemmas or self.source, self.target)]
                for path, links in zip(paths, run_eflomal(*text), strict=True):
                    write_links(path, links)
            forward, reverse = ([pair.sure for pair in read_link_file(path).sentences] for path in paths)
            both = {
                method: [symmetrize(one, other, method) for one, other in zip(forward, reverse, strict=True)]
                for method in SYMMETRIZATIONS
            }
            outputs.append({"forward": forward, "reverse": reverse, **both})
        aers = {name: [self.aer(each[name], "test") for each in outputs] for name in outputs[0]}
        name = min(aers, key=lambda name: float(np.mean(aers[name])))
        best = {"output": name, "mean": round(float(np.mean(aers[name])), 4)}
        return {"test_aer": aers, "best": best}, [each[name] for each in outputs]

    def teacher_alone(self) -> dict[str, Any]:
        """Return which reading of the teacher's own links is best on the test, and its AER.

        Readings are both directions of each form and their symmetrisations, and the mean of all above thresholds.
        """
        teachers = self.data("0", 0).teachers
        readings: dict[str, list[Links]] = {}
        for number, teacher in enumerate(teachers):
            forward, reverse = (
                [frozenset(link for link, weight in links.items() if weight > 0.5) for links in direction]
                for direction in (teacher.forward, teacher.reverse)
            )
            readings |= {f"form {number} forward": forward, f"form {number} reverse": reverse}
            for method in SYMMETRIZATIONS:
                both = [symmetrize(one, other, method) for one, other in zip(forward, reverse, strict=True)]
                readings[f"form {number} {method}"] = both
        said = [Counter[Link]() for _ in self.source]
        for teacher in teachers:
            for total, forward_links, reverse_links in zip(said, teacher.forward, teacher.reverse, strict=True):
                total.update(forward_links)
                total.update(reverse_links)
        for threshold in THRESHOLDS:
            least = threshold * 2 * len(teachers)
            above = [frozenset(link for link, weight in total.items() if weight > least) for total in said]
            readings[f"mean above {threshold}"] = above
        aers = {name: self.aer(links, "test") for name, links in readings.items()}
        best = min(aers, key=aers.__getitem__)
        return {"forms": len(teachers), "reading": best, "test_aer": aers[best]}

    def run(self, amount: str, seed: int) -> tuple[list[Links], float, Any]:
        """Train with so many hand-aligned pairs, or read back what was found; return links, CPU seconds and rules.

        The seconds are of the process that ended the training; an interrupted one took more.
        """
        folder = self.folder / f"{self.arguments.teacher}-{amount}-{seed}"
        links_path, record_path = folder / "links.align", folder / "run.json"
        if not record_path.exists():
            data = self.data(amount, seed)
            started = time.process_time()
            settings = parse_settings(self.arguments.changed)
            aligner = fit_aligner(data, settings, seed=seed, minutes=self.arguments.minutes, resume_dir=folder)
            seconds = time.process_time() - started
            aligner.save(folder)
            links = self.read_off(aligner, data.teachers)
            write_links(links_path, [frozenset(each) for each in links])
            rules = json.loads((folder / "network.json").read_text(encoding="utf-8"))["rules"]
            write_metrics(record_path, {"seconds": seconds, "rules": rules})
        record = json.loads(record_path.read_text(encoding="utf-8"))
        return [pair.sure for pair in read_link_file(links_path).sentences], record["seconds"], record["rules"]

    def join(self, amount: str) -> None:
        """Measure the networks of all seeds together, if they are all in `--work`."""
        folders = [self.folder / f"{self.arguments.teacher}-{amount}-{seed}" for seed in self.arguments.seeds]
        if not all((folder / "run.json").exists() for folder in folders):
            print(f"{self.name}, {amount}: not all networks lie in {self.folder}; they are not joined", flush=True)
            return
        aligner = TrainedAligner.joined([TrainedAligner.load(folder) for folder in folders])
        links = [frozenset(each) for each in self.read_off(aligner, self.data("0", 0).teachers)]
        self.results.put({part: self.aer(links, part) for part in ("dev", "test")}, self.name, "joined", amount)

    def read_off(self, aligner: TrainedAligner, teachers: Sequence[TeacherLinks]) -> list[dict[Link, float]]:
        """Return the links that an aligner finds in the text."""
        return aligner.links(self.source, self.target, source_lemmas=self.lemmas, teachers=teachers)

    def data(self, amount: str, seed: int) -> AlignerData:
        """Return the text with the teacher's links and with so many hand-aligned training pairs, drawn by the seed."""
        forms = teacher_forms(self.source, self.target, self.lemmas)
        teachers = run_teacher(self.arguments.teacher, forms, self.folder)
        train = np.array(self.places["train"])
        known = train if amount == "all" else np.random.default_rng(1000 + seed).permutation(train)[: int(amount)]
        return AlignerData(
            self.source,
            self.target,
            source_lemmas=self.lemmas,
            teachers=teachers,
            gold={int(place): self.gold[place] for place in known},
        )

    def part(self, each: Sequence[Any], part: str) -> list[Any]:
        """Return what `each` has for one part of the text."""
        return [each[place] for place in self.places[part]]

    def aer(self, links: Sequence[Links], part: str) -> float:
        """Return the alignment error rate on one part."""
        return round(score_links(self.part(links, part), self.part(self.gold, part)).aer, 4)


if __name__ == "__main__":
    main()
