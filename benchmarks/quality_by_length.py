"""Why attention matters: quality against source length, without attention and with both (Bahdanau et al. 2015, fig. 2).

Models that are there already, on any test text:

    python benchmarks/quality_by_length.py --runs none=runs/no_attention additive=runs/bahdanau dot=runs/luong \\
        --source test.de --reference test.en --bleu-tokenize 13a -o benchmarks/results/multi30k_by_length.json \\
        --picture docs/multi30k_by_length.png

Without --runs it trains the three models with equal steps on a corpus made by the classroom's grammar, whose sentences
of 3 to 40 words are clauses in a row, and scores those. A model that is there is kept, so a stopped run goes on:

    python benchmarks/quality_by_length.py -w build/by_length -o benchmarks/results/quality_by_length.json \\
        --picture docs/quality_by_length.png
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.probing import library_versions, model_record, write_atomically
from hf_seq2seq_attn.text_files import InputError, check_output_file, read_aligned
from hf_seq2seq_attn.training.classroom_corpus import examples
from hf_seq2seq_attn.training.length_quality import (
    BOUNDS,
    LengthScore,
    draw_quality_by_length,
    score_by_source_length,
)
from hf_seq2seq_attn.training.recipe import load_recipe
from hf_seq2seq_attn.training.run_record import METRICS_FILE, hardware, read_metrics
from hf_seq2seq_attn.training.scoring import BLEU_TOKENIZERS
from hf_seq2seq_attn.training.train import train
from hf_seq2seq_attn.translation import load_seq2seq, translate

SHORTEST, LONGEST = 3, 40
PARTS = {"train": 12000, "dev": 100, "test": 600}
GRU = ["model.encoder_type=gru", "model.decoder_type=gru", "model.encoder_layers=1", "model.decoder_layers=1"]
# Of one size; the shipped recipes say what each is.
MODELS = {
    "fixed vector": ["seq2seq_no_attention"],
    "additive": ["bahdanau2015"],
    "dot product": ["luong2015", *GRU, "model.input_feeding=false"],
}
COMMON = [
    "tokenizer.kind=word", "tokenizer.separate=true", "tokenizer.vocab_size=200", "model.d_model=64",
    "model.dropout=0.1", "data.max_source_length=100", "data.max_target_length=140",
    "training.per_device_train_batch_size=32", "training.learning_rate=5.0e-3", "training.max_grad_norm=1.0",
    "training.label_smoothing_factor=0", "training.eval_strategy=no", "training.save_strategy=steps",
    "training.save_steps=50",
]  # fmt: skip


def made_corpus(seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield English and Chinese without end: clauses of the classroom's grammar in a row, a comma between them.

    All lengths from `SHORTEST` to `LONGEST` words are equally frequent.
    """
    draw, clauses = random.Random(seed), examples(seed)
    while True:
        wanted = draw.randint(SHORTEST, LONGEST)
        english: list[str] = []
        chinese: list[str] = []
        while len(english) < wanted:
            clause = next(clauses)
            comma = [","] if english else []
            room = wanted - len(english) - len(comma)
            # What is left over must hold another clause, with its comma.
            if len(clause.english) == room or len(clause.english) < room - SHORTEST:
                english += comma + clause.english
                chinese += (["，"] if comma else []) + clause.chinese
        yield " ".join(english), " ".join(chinese)


def write_corpus(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Write the parts, no pair in two of them; return the files of each."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus, seen, files = made_corpus(), set(), {}
    for part, count in PARTS.items():
        pairs: list[tuple[str, str]] = []
        while len(pairs) < count:
            pair = next(corpus)
            if pair not in seen:
                seen.add(pair)
                pairs.append(pair)
        files[part] = (folder / f"{part}.en", folder / f"{part}.zh")
        for side, path in enumerate(files[part]):
            write_atomically(path, (pair[side] + "\n" for pair in pairs))
    return files


def train_all(work: Path, steps: int, overrides: list[str]) -> dict[str, Path]:
    """Train each model, unless it is there, with the same data and number of steps; return their folders."""
    files = write_corpus(work / "corpus")
    data = [
        f"data.{part}.{side}={path}"
        for part in ("train", "dev")
        for side, path in zip(("source", "target"), files[part], strict=True)
    ]
    folders = {}
    for name, (recipe, *own) in MODELS.items():
        folders[name] = work / name.replace(" ", "_")
        if not (folders[name] / METRICS_FILE).exists():
            settings = [*COMMON, *own, *data, f"training.max_steps={steps}", *overrides]
            train(load_recipe(recipe, settings), folders[name])
    return folders


def measure(folder: Path, source: Path, reference: Path, arguments: argparse.Namespace) -> list[LengthScore]:
    """Translate the test text by one model and score it by length."""
    sources, references = read_aligned(source, reference)
    model, tokenizer = load_seq2seq(folder)
    hypotheses = translate(
        model, tokenizer, sources, num_beams=arguments.num_beams, batch_size=arguments.batch_size,
        max_new_tokens=arguments.max_new_tokens,
    )  # fmt: skip
    return score_by_source_length(
        hypotheses, references, sources, arguments.bounds,
        metrics=("bleu", "chrf", "exact_match"), bleu_tokenize=arguments.bleu_tokenize,
    )  # fmt: skip


def named_folder(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=RUN_DIR")
    return name, Path(folder)


def read_arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", type=named_folder, metavar="NAME=RUN_DIR", help="models to score")
    parser.add_argument("--source", type=Path, help="test sources; default: the made corpus")
    parser.add_argument("--reference", type=Path, help="their references, line by line")
    parser.add_argument("-w", "--work", type=Path, help="without --runs: where the corpus and the models go")
    parser.add_argument("--steps", type=int, default=600, help="of training, for each model (default %(default)s)")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="FIELD=VALUE", help="of the recipes, e.g. model.d_model=64"
    )
    parser.add_argument("--bounds", type=lambda text: [int(each) for each in text.split(",")], default=list(BOUNDS),
                        help="last length of each range, e.g. 10,20,30")  # fmt: skip
    parser.add_argument("--num-beams", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-new-tokens", type=int, help="default: twice the source and 10 more")
    parser.add_argument("--bleu-tokenize", choices=BLEU_TOKENIZERS, default="none")
    parser.add_argument("--metric", choices=("bleu", "chrf", "exact_match"), default="bleu", help="in the picture")
    parser.add_argument("-o", "--output", type=Path, required=True, help="JSON")
    parser.add_argument("--picture", type=Path, help="PNG, SVG or PDF")
    arguments = parser.parse_args(words)
    if (arguments.source is None) != (arguments.reference is None):
        parser.error("--source and --reference belong together")
    if arguments.runs and arguments.source is None:
        parser.error("--runs needs --source and --reference")
    if not arguments.runs and (arguments.work is None or arguments.source is not None):
        parser.error("give --runs with a test text, or -w to train on the made corpus")
    return arguments


def main(words: list[str] | None = None) -> int:
    arguments = read_arguments(words)
    try:
        for path in (arguments.output, arguments.picture):
            check_output_file(path)
        runs = dict(arguments.runs or train_all(arguments.work, arguments.steps, arguments.set))
        source, reference = arguments.source, arguments.reference
        if source is None:
            source, reference = (arguments.work / "corpus" / f"test.{suffix}" for suffix in ("en", "zh"))
        curves = {name: measure(folder, source, reference, arguments) for name, folder in runs.items()}
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    record = {
        "source": str(source),
        "reference": str(reference),
        "num_beams": arguments.num_beams,
        "models": {
            name: model_record(runs[name]) | trained(runs[name]) | {"by_length": [row.as_dict() for row in curve]}
            for name, curve in curves.items()
        },
        "versions": library_versions(),
        "hardware": hardware(),
    }
    write_atomically(arguments.output, [json.dumps(record, indent=1, ensure_ascii=False) + "\n"])
    if arguments.picture is not None:
        figure = draw_quality_by_length(curves, arguments.metric).figure
        figure.savefig(arguments.picture, dpi=120)
    for name, curve in curves.items():
        print(
            f"{name}: " + ", ".join(f"{row.mean_length:.0f} words {row.scores[arguments.metric]:.1f}" for row in curve)
        )
    return 0


def trained(folder: Path) -> dict[str, Any]:
    """Return how a model of ours was trained, as far as its folder says."""
    if not (folder / METRICS_FILE).exists():
        return {}
    metrics = read_metrics(folder / METRICS_FILE)
    return {name: metrics[name] for name in ("parameters", "steps", "seconds") if name in metrics}


if __name__ == "__main__":
    sys.exit(main())
