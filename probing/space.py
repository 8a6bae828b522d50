"""The files of a Hugging Face Space that shows a model's attention: `app.py`, `requirements.txt`, `README.md`."""

import importlib.metadata
import json
import platform
from pathlib import Path

from huggingface_hub.utils import HFValidationError, validate_repo_id

from hf_seq2seq_attn.text_files import InputError

from .formats import write_atomically
from .serve_phrases import PAGE_PHRASES
from .walk_steps import checked_language

PACKAGE = "hf-seq2seq-attn"
APP, REQUIREMENTS, CARD = "app.py", "requirements.txt", "README.md"
_APP = """from hf_seq2seq_attn.probing.serve_page import launch, page_of

demo = page_of({model}, lang={lang})

if __name__ == "__main__":
    launch(demo)
"""
_CARD = """---
title: {title}
emoji: 🔍
colorFrom: indigo
colorTo: yellow
sdk: gradio
sdk_version: {gradio}
python_version: "{python}"
app_file: {app}
models:
- {model}
preload_from_hub:
- {model}
---

What [{model}](https://huggingface.co/{model}) looks at while it translates: word links, heat maps by layer and head,
and every number of a decoder step. Written by `seq2seq-attn serve {model} --space`.
"""


def write_space(folder: str | Path, model_id: str, *, lang: str = "en", requirement: str | None = None) -> list[Path]:
    """Write the files of a Space for a model on the Hub; `huggingface-cli upload` or git takes them there.

    Args:
        folder: made if it is not there.
        model_id: `user/name`.
        requirement: what pip installs this package from there, e.g. `hf-seq2seq-attn[serve] @ git+https://...`;
            None = this release by its name.

    Raises:
        InputError: not a Hub id, or a folder that cannot be written or has a README.md that is no Space's.
        UnusableError: another language.
    """
    checked_language(lang)
    _check_id(model_id)
    values = {
        "title": json.dumps(PAGE_PHRASES[lang]["title"].format(model=model_id), ensure_ascii=False),
        "gradio": importlib.metadata.version("gradio"),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "app": APP,
        "model": model_id,
    }
    version = importlib.metadata.version(PACKAGE)
    files = {
        APP: _APP.format(model=json.dumps(model_id), lang=json.dumps(lang)),
        REQUIREMENTS: (requirement or f"{PACKAGE}[serve]=={version}") + "\n",
        CARD: _CARD.format(**values),
    }
    folder = Path(folder)
    card = folder / CARD
    if card.is_file() and "\nsdk: " not in card.read_text(encoding="utf-8", errors="replace"):
        raise InputError(f"{card}: is there and is no Space's, and would be lost; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made a folder ({error}); choose another") from error
    for name, text in files.items():
        write_atomically(folder / name, [text])
    return [folder / name for name in files]


def _check_id(model_id: str) -> None:
    try:
        validate_repo_id(model_id)
    except HFValidationError as error:
        raise InputError(
            f"{model_id}: a Space loads its model from the Hub, and this is no id there; push the model "
            "(seq2seq-attn push DIR user/name) and give user/name"
        ) from error
    if Path(model_id).exists():
        raise InputError(
            f"{model_id}: is a folder here, which a Space cannot see; push it (seq2seq-attn push {model_id} user/name) "
            "and give user/name"
        )
