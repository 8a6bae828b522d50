"""`FIELD=VALUE` on the command line, for the settings of an aligner."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from hf_seq2seq_attn.text_files import InputError

from .aligner_training import AlignerSettings


def parse_settings(given: Sequence[str]) -> AlignerSettings:
    """Return the settings with fields changed as `FIELD=VALUE` says, e.g. `dropout=0.2`.

    Raises:
        InputError: no such field, a value of another kind, or one that the settings refuse.
    """
    fields = dataclasses.asdict(AlignerSettings())
    changed: dict[str, Any] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or name not in fields:
            raise InputError(f"{each!r} is no setting; write FIELD=VALUE, fields are: {', '.join(fields) or 'none'}")
        changed[name] = _value(name, text, fields[name])
    try:
        return AlignerSettings(**changed)
    except ValueError as error:
        raise InputError(str(error)) from error


def _value(name: str, text: str, default: Any) -> Any:
    """Return the value that `text` writes in JSON; text for a field of text as it stands."""
    if isinstance(default, str):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default) and default is not None:
        raise InputError(f"{name}={text}: must be {_KINDS.get(type(default), 'JSON')}, as {json.dumps(default)} is")
    return value


_KINDS = {int: "a whole number", float: "a number", bool: "true or false", list: "a list"}
