"""The front door: `seq2seq-attn COMMAND`. A room is imported only inside its command, so that `--help` is quick.

Exit codes: 0 done; 2 bad input, with `FILE:LINE: what, remedy` on stderr; 1 anything else.
Results go to stdout, progress to stderr.
"""

import sys

import typer

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
    "matplotlib": "probe",
    "rich": "probe",
    "bertviz": "bertviz",
}


@app.callback()
def seq2seq_attn() -> None:
    """Sequence-to-sequence models with attention: train, translate, align, look inside."""


def main() -> None:
    """Run the command line; turn bad input and missing extras into one line on stderr and exit code 2."""
    from .text_files import InputError

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
