"""Read the text files that users bring, and say exactly what is wrong with them and with places for output."""

import gzip
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path


class InputError(ValueError):
    """Bad input from the user: the message reads `FILE:LINE: what is wrong; what to do`, the command exits with 2."""


def read_lines(path: str | Path) -> list[str]:
    """Return the lines of a UTF-8 text file (plain or `.gz`), without line ends, blank lines kept.

    A byte order mark and CRLF line ends are taken off. Only `\\n` and `\\r\\n` end a line: a form feed or U+2028 inside
    a sentence does not, so that line numbers agree with `wc -l` and with aligned files.

    Raises:
        InputError: the file is missing, cannot be read, or is not UTF-8 (naming the line).
    """
    return list(iterate_lines(path))


def iterate_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of `read_lines` one at a time, for files that do not fit in memory."""
    path = Path(path)
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                yield line.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}:{number}: not UTF-8 (byte {error.object[error.start]:#04x}); convert it, e.g. with iconv -t utf-8"
        ) from error
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; check the path") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}:{number + 1}: cannot be read ({error}); check the file") from error


def check_output_file(path: Path | None) -> Path | None:
    """Return `path`; raise an InputError, before any work is done, if no file can be written there."""
    if path is not None and path.is_dir():
        raise InputError(f"{path}: cannot be written (it is a folder); name a file in it")
    if path is not None and not path.parent.is_dir():
        raise InputError(f"{path}: cannot be written (there is no folder {path.parent}); make it, or check the path")
    return path


def check_overwritten(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Raise an InputError, before any work is done, if an output is one of the inputs or another output.

    Args:
        outputs, inputs: paths by what the command line calls them; None = not given.
    """
    taken = {path.resolve(): option for option, path in inputs.items() if path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        other = taken.setdefault(path.resolve(), option)
        if other != option:
            raise InputError(f"{option} {path}: is also {other}, and would be written over; name another file")


def check_output_folder(path: Path) -> Path:
    """Return `path`; raise an InputError if it is not a folder and cannot be made one."""
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise InputError(f"{path}: cannot be a folder ({place} is a file); choose another")
    return path


def read_aligned(*paths: str | Path) -> tuple[list[str], ...]:
    """Return the lines of several files that belong together line by line.

    Raises:
        InputError: as in `read_lines`, or the files differ in their number of lines.
    """
    columns = tuple(read_lines(path) for path in paths)
    for path, column in zip(paths[1:], columns[1:], strict=True):
        if len(column) != len(columns[0]):
            shorter = min(len(column), len(columns[0]))
            raise InputError(
                f"{path}:{shorter + 1}: {len(column)} lines, but {paths[0]} has {len(columns[0])}; "
                "line N of one file must belong to line N of the other"
            )
    return columns
