"""What `serve` does: a demo page on this machine, or the files of a Space. Gradio is imported only here inside."""

import importlib
from pathlib import Path
from typing import Any

from .link_commands import remark
from .refusals import refused


def serve_model(
    model_name: str,
    tokenizer: str | None,
    *,
    host: str | None,
    port: int | None,
    open_browser: bool,
    lang: str,
    **languages: Any,
) -> None:
    """Serve the page of a model until Ctrl-C; `languages` as in `ServedModel`."""
    # Before the model, which takes longer: the library may be missing.
    from .serve_page import launch, page_of

    with refused():
        page = page_of(model_name, tokenizer, lang=lang, **languages)
    remark("press Ctrl-C to stop; the page is at")
    launch(page, host, port, open_browser=open_browser)


def write_space_files(folder: Path, model_id: str, *, lang: str, requirement: str | None) -> None:
    """Write the files of a Space and say which."""
    # The Space needs the version that is here.
    importlib.import_module("gradio")
    from .space import write_space

    with refused():
        written = write_space(folder, model_id, lang=lang, requirement=requirement)
    remark(f"{', '.join(map(str, written))}: upload them, e.g. huggingface-cli upload SPACE {folder} --repo-type space")
