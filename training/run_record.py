"""What a run leaves for the record: versions, hardware, metrics as strict JSON."""

import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from hf_seq2seq_attn.cores import usable_cores

METRICS_FILE = "metrics.json"
RECIPE_FILE = "recipe.yaml"
CARD_FILE = "README.md"
CURVE_FILE = "curve.png"
ATTENTION_FILE = "attention.png"
REPORT_FILE = "report.html"
TENSORBOARD_FOLDER = "tensorboard"
LINKS_FOLDER = "links"
"""Where links made on the spot are kept."""

_PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "accelerate", "sacrebleu", "jiwer")


def versions() -> dict[str, str]:
    """Return the versions of this package, of Python, and of what numbers depend on."""
    found = {"hf_seq2seq_attn": _version("hf-seq2seq-attn"), "python": platform.python_version()}
    return found | {name: _version(name) for name in _PACKAGES}


def hardware() -> dict[str, str | int]:
    """Return the processor or accelerator, and the threads, that a run uses."""
    record: dict[str, str | int] = {
        "machine": platform.machine(),
        "cpus": usable_cores(),
        "threads": torch.get_num_threads(),
        "device": "cpu",
    }
    if torch.cuda.is_available():
        record["device"] = torch.cuda.get_device_name()
    elif torch.accelerator.is_available():
        record["device"] = str(torch.accelerator.current_accelerator())
    return record


def write_metrics(path: str | Path, metrics: dict[str, Any]) -> None:
    """Write metrics as JSON that every reader takes: a loss that became NaN raises here and is not written."""
    text = json.dumps(metrics, indent=2, ensure_ascii=False, allow_nan=False)
    Path(path).write_text(text + "\n", encoding="utf-8")


def read_metrics(path: str | Path) -> dict[str, Any]:
    """Read a metrics file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
