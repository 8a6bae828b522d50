"""Measure what else the trained aligner could do: one setting changed at a time, on one set, with one seed.

    python benchmarks/alignment/aligner_roads.py ../shared/data -o benchmarks/results/aligner_roads.json \
        --work ../runs/roads
    python benchmarks/alignment/aligner_roads.py --table benchmarks/results/aligner_roads.json

Roads are compared on the development part, each at the best of a few thresholds there, so that none loses by one that
was chosen for another; the test part is shown beside it. What stands in the output file is not measured again.
"""

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import torch
from aligner import MEASURED, Measured, Results
from aligner_table import table

from hf_seq2seq_attn.probing import Gold, threshold_links
from hf_seq2seq_attn.training.aligner_data import AlignerData
from hf_seq2seq_attn.training.aligner_settings import AlignerSettings, parse_settings
from hf_seq2seq_attn.training.aligner_training import fit_aligner
from hf_seq2seq_attn.training.run_record import read_metrics

SET = "bible-grc-en-ylt (grc-lemma)"
SEED = 0
THRESHOLDS = (0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7)
"""Of probabilities that are moved so that the settings' own threshold is 0.5."""
SHIPPED, BUILTIN, OWN_LINKS = "as shipped", "teacher: builtin", "self-training without hand-made links"
ROADS: dict[str, dict[str, tuple[str, ...]]] = {
    "0": {
        SHIPPED: (),
        BUILTIN: (),
        "additive attention": ("attention=additive",),
        "teacher never seen (guided attention alone)": ("blind=1",),
        "teacher always seen": ("blind=0",),
        "the two directions drawn together": ("agreement=0.5",),
        "each word predicted from its partners (Mask-Align)": ("reconstruction=0.3",),
        "half of the probability from the teacher itself": ("teacher_weight=0.5",),
        "encoders of one layer": ("layers=1",),
        "twice as wide": ("width=256",),
        "words known by their letters more often": ("form_dropout=0.4",),
        OWN_LINKS: (),
    },
    "200": {
        SHIPPED: (),
        "no self-training": ("self_training=0",),
        "self-training once": ("self_training=1",),
        "self-training three times": ("self_training=3",),
        "hand-made links half of an epoch": ("gold_share=0.5",),
    },
}
"""Hand-aligned pairs -> name of a road -> the settings that it changes."""


def main() -> int:
    """Run the command; return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="the folder that holds the sets")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--work", type=Path, help="where the teachers' links are kept")
    parser.add_argument("--gold", nargs="+", choices=ROADS, default=list(ROADS))
    parser.add_argument("--table", type=Path, help="print this file as Markdown, and measure nothing")
    chosen = parser.parse_args()
    if chosen.table is not None:
        print(roads_table(read_metrics(chosen.table)))
        return 0
    if None in (chosen.data, chosen.output, chosen.work):
        parser.error("give data, --output and --work")
    torch.set_num_threads(1)
    results = Results(chosen.output, chosen.work / "results.lock")
    for amount in chosen.gold:
        for road in ROADS[amount]:
            if not results.get(SET, amount, road):
                figures = measure(road, amount, chosen.data, chosen.work, results)
                results.put(figures, SET, amount, road)
                print(
                    f"{amount} hand-aligned pairs, {road}: dev {figures['dev_aer']}, test {figures['test_aer']}",
                    flush=True,
                )
    return 0


def measure(road: str, amount: str, data: Path, work: Path, results: Results) -> dict[str, Any]:
    """Train along one road; return the AER of both parts, at which threshold, and the CPU minutes."""
    teacher = "builtin" if road == BUILTIN else "eflomal"
    measured = Measured(MEASURED[SET], argparse.Namespace(data=data, work=work, teacher=teacher), results)
    known = measured.data(amount, SEED)
    settings = parse_settings(ROADS[amount][road])
    started = time.process_time()
    if road == OWN_LINKS:
        known, settings = own_links(known, settings)
    aligner = fit_aligner(known, settings, seed=SEED)
    matrices = aligner.posteriors(known.source, known.target, teachers=known.teachers)
    minutes = (time.process_time() - started) / 60
    found = {each: [threshold_links(matrix, each) for matrix in matrices] for each in THRESHOLDS}
    best = min(found, key=lambda each: measured.aer(found[each], "dev"))
    figures = {f"{part}_aer": measured.aer(found[best], part) for part in ("dev", "test")}
    return {**figures, "threshold": best, "minutes": round(minutes, 1)}


def own_links(known: AlignerData, settings: AlignerSettings) -> tuple[AlignerData, AlignerSettings]:
    """Return the text with the links that an aligner finds there as if made by hand, and settings to learn them."""
    first = fit_aligner(known, settings, seed=SEED + 1)
    links = first.links(known.source, known.target, teachers=known.teachers)
    gold = {place: Gold(frozenset(each), frozenset(each)) for place, each in enumerate(links)}
    return dataclasses.replace(known, gold=gold), dataclasses.replace(settings, held_out=0.0, gold_steps=1)


def roads_table(record: dict[str, Any]) -> str:
    """Return the figures as Markdown, the best first."""
    rows = [
        (amount, road, f"{found['dev_aer']:.4f}", f"{found['test_aer']:.4f}", f"{found['minutes']:.1f}")
        for amount, roads in record["sets"][SET].items()
        for road, found in sorted(roads.items(), key=lambda each: each[1]["dev_aer"])
    ]
    return "\n".join(table(("hand-aligned pairs", "road", "AER on dev", "on test", "CPU minutes"), rows))


if __name__ == "__main__":
    sys.exit(main())
