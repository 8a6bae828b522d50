"""How much longer than the model's own forward passes does it take to read word links off it?

    OMP_NUM_THREADS=1 python benchmarks/extraction_speed.py -o benchmarks/results/extraction_speed.json

500 sentence pairs of about 25 tokens, random weights of a realistic size, one process. Part by part of the pairs, so
that all meet the same machine, it runs the model's own teacher-forced forward passes with eager attention and
output_attentions, on the batches that extraction makes, then `align`, from text to links. The ratio of `align` to the
passes (medians over turns, if there is time for more than one) must stay at or below 1.3. It is that of the time that
the process computed, which other processes on the machine disturb less; the time on the clock is in the result too.
"""

import argparse
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration
from hf_seq2seq_attn.probing import align, library_versions

BOUND = 1.3
WAYS = ("mutual",)
PAIRS, PART, BATCH, WORDS = 500, 96, 32, 19
VOCABULARY = 8000


def made_text(seed: int, count: int) -> list[str]:
    """Return sentences of words of a made-up language with lengths and repetitions like those of text."""
    draw = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "en", "ir", "ast")]
    lexicon = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(20000)]
    weights = [1 / (rank + 10) for rank in range(len(lexicon))]
    lengths = [max(3, round(draw.gauss(WORDS, 6))) for _ in range(count)]
    return [" ".join(draw.choices(lexicon, weights, k=length)) + " ." for length in lengths]


def made_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Return a byte-pair tokenizer trained on the texts."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    backend.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, show_progress=False)
    )
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def marian() -> Any:
    """Return a Marian of the usual size, 6 + 6 layers of 512, random weights."""
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config)


def recurrent() -> Any:
    """Return a GRU encoder-decoder of this package with additive attention, as in Bahdanau et al. 2015."""
    torch.manual_seed(0)
    config = Seq2SeqAttnConfig(
        vocab_size=VOCABULARY,
        d_model=512,
        encoder_type="gru",
        decoder_type="gru",
        cross_attention_type="additive",
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    return Seq2SeqAttnForConditionalGeneration(config)


MODELS: dict[str, Callable[[], Any]] = {"marian": marian, "recurrent": recurrent}


def batches_of(tokenizer: Any, sources: list[str], targets: list[str]) -> list[dict[str, torch.Tensor]]:
    """Return the batches that extraction makes: sorted by length, padded on the right, decoder inputs [start] + y."""
    ids = [list(zip(*(tokenizer(side)["input_ids"] for side in (sources, targets)), strict=True))][0]
    ids.sort(key=lambda pair: (len(pair[0]), len(pair[1])))
    batches = []
    for first in range(0, len(ids), BATCH):
        some = ids[first : first + BATCH]
        source, mask = padded([pair[0] for pair in some])
        target, _ = padded([[0, *pair[1]] for pair in some])
        batches.append({"input_ids": source, "attention_mask": mask, "decoder_input_ids": target})
    return batches


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, padded on the right."""
    length = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
    return ids, torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])


@torch.no_grad()
def forward_passes(model: Any, batches: list[dict[str, torch.Tensor]]) -> None:
    """Run the model as its user would to get at the attentions."""
    for batch in batches:
        outputs = model(**batch, output_attentions=True, use_cache=False)
        assert outputs.cross_attentions


def spent(action: Callable[[], object]) -> np.ndarray:
    """Return the seconds that it takes: of computing in this process, and on the clock."""
    start = time.process_time(), time.perf_counter()
    action()
    return np.array([time.process_time(), time.perf_counter()]) - start


def measure(name: str, tokenizer: Any, sources: list[str], targets: list[str], budget: float) -> dict[str, Any]:
    """Take turns until the next turn would pass the budget in seconds; return medians and their ratios."""
    model = MODELS[name]().eval()
    if name != "recurrent":
        model.set_attn_implementation("eager")
    parts = []
    for first in range(0, len(sources), PART):
        some = sources[first : first + PART], targets[first : first + PART]
        runs: dict[str, Callable[[], object]] = {
            "forward": partial(forward_passes, model, batches_of(tokenizer, *some))
        }
        parts.append(runs | {way: partial(align, model, tokenizer, *some, links=way, batch_size=BATCH) for way in WAYS})
    forward_passes(model, batches_of(tokenizer, sources[:2], targets[:2]))
    align(model, tokenizer, sources[:2], targets[:2])
    turns: list[dict[str, np.ndarray]] = []
    start = time.perf_counter()
    while not turns or (time.perf_counter() - start) * (len(turns) + 1) / len(turns) < budget:
        turn = dict.fromkeys(parts[0], np.zeros(2))
        for runs in parts:
            for action, run in runs.items():
                turn[action] = turn[action] + spent(run)
        turns.append(turn)
    medians = {action: np.median([turn[action] for turn in turns], axis=0) for action in parts[0]}
    ratios = {way: medians[way] / medians["forward"] for way in WAYS}
    return {
        "turns": len(turns),
        "median_s": {action: float(median[0]) for action, median in medians.items()},
        "ratio": {way: float(ratio[0]) for way, ratio in ratios.items()},
        "median_s_on_the_clock": {action: float(median[1]) for action, median in medians.items()},
        "ratio_on_the_clock": {way: float(ratio[1]) for way, ratio in ratios.items()},
        "tokens_per_source": statistics.mean(map(len, tokenizer(sources)["input_ids"])),
    }


def main() -> int:
    """Measure, print, write the result; 1 if a ratio is above the bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the result")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--seconds", type=float, default=150, help="for all models together")
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=sorted(MODELS))
    arguments = parser.parse_args()
    sources, targets = made_text(1, arguments.pairs), made_text(2, arguments.pairs)
    tokenizer = made_tokenizer(sources + targets)
    result: dict[str, Any] = {
        "what": "computing time of align (text to links) over that of the model's own eager forward passes",
        "bound": BOUND,
        "pairs": arguments.pairs,
        "batch_size": BATCH,
        "versions": library_versions(),
        "hardware": {
            "machine": platform.machine(),
            "processor": processor_name(),
            "cores": len(os.sched_getaffinity(0)),
            "threads": torch.get_num_threads(),
        },
        "models": {},
    }
    result["models"] = earlier_models(arguments.output, result)
    for name in arguments.models:
        measured = measure(name, tokenizer, sources, targets, arguments.seconds / len(arguments.models))
        result["models"][name] = measured
        medians = ", ".join(f"{action} {median:.2f} s" for action, median in measured["median_s"].items())
        ratios = ", ".join(f"{way} {ratio:.3f}" for way, ratio in measured["ratio"].items())
        size = f"{measured['tokens_per_source']:.1f} tokens a source, {measured['turns']} turns"
        print(f"{name}: {size}; {medians}; ratio {ratios}", flush=True)
        if arguments.output is not None:
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    worst = max(ratio for name in arguments.models for ratio in result["models"][name]["ratio"].values())
    return 0 if worst <= BOUND else 1


def earlier_models(output: Path | None, result: dict[str, Any]) -> dict[str, Any]:
    """Return what the file holds of other models, if it was measured in the same way on the same machine."""
    if output is None or not output.exists():
        return {}
    earlier: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    same = all(earlier.get(name) == value for name, value in result.items() if name != "models")
    models: dict[str, Any] = earlier["models"] if same else {}
    return models


def processor_name() -> str:
    """Return the processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    sys.exit(main())
