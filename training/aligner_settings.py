"""The choices of an aligner's network and training, and `FIELD=VALUE` for them on the command line."""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError

from .aligner_model import ATTENTIONS


@dataclasses.dataclass(frozen=True)
class AlignerSettings:
    """Choices of network and training; the defaults are meant to serve every bitext.

    Attributes:
        width, layers, attention, grid_width, dropout, form_dropout: see `NetworkSize`.
        most_features: rows of each table of whole forms or n-grams, the most frequent ones.
        learning_rate: the highest; it rises for 100 steps and falls along a half cosine.
        cells: of the grid (target words x source words) in a batch, in texts that fill 20 of them.
        epochs: passes over the text, if no time is given.
        gold_share: share of the pairs of an epoch that are hand-aligned ones, repeated as often as needed; it does not
            matter where more than that are hand-aligned.
        gold_epochs, gold_steps, gold_learning_rate: after that, passes over the hand-aligned pairs alone, at most so
            many steps; there what the annotators do differently from the teacher is learnt.
        self_training: times that a new network is then trained on all of the text, with the links that the last one
            finds in the pairs that are not hand-aligned taken as made by hand. So the annotators' ways reach all of the
            text. Where most pairs are hand-aligned the time goes into as many more passes over the text and over them.
        blind: share of the pairs in which the network does not see what the teacher says.
        reconstruction: weight of predicting each word from those that it is aligned with.
        agreement: weight of the difference between the two directions.
        threshold: probability above which a cell is a link, if no pair is hand-aligned; letters_threshold: of texts
            whose tokens are letters or sounds.
        gold_threshold, letters_gold_threshold: the same if some pairs are hand-aligned, up to `fewest`.
        teacher_weight: the teacher's own share in that probability, if no pair is hand-aligned and the network has seen
            some of its several runs. A single run counts half: of letters that is a link which both of its directions
            have and the network does not rule out, or which one of them has and the network is sure of.
        held_out: share of the hand-aligned pairs, at most 300, that choose how links are read off instead of training
            the network, if there are `fewest` or more.
    """

    width: int = 128
    layers: int = 2
    attention: str = "dot"
    grid_width: int = 32
    dropout: float = 0.2
    form_dropout: float = 0.1
    most_features: int = 30_000
    learning_rate: float = 3e-3
    cells: int = 30_000
    epochs: int = 6
    gold_share: float = 0.25
    gold_epochs: int = 40
    gold_steps: int = 1500
    gold_learning_rate: float = 7e-4
    self_training: int = 2
    blind: float = 0.25
    reconstruction: float = 0.0
    agreement: float = 0.0
    threshold: float = 0.22
    letters_threshold: float = 0.6
    gold_threshold: float = 0.5
    letters_gold_threshold: float = 0.45
    teacher_weight: float = 0.0
    held_out: float = 0.15
    fewest: int = 500

    def __post_init__(self) -> None:
        for names, fits, words in _BOUNDS:
            for name in names.split():
                if not fits(getattr(self, name)):
                    raise UnusableError(f"{name} is {getattr(self, name)!r}; {words}")


_BOUNDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        "width layers grid_width most_features cells epochs gold_epochs gold_steps fewest",
        lambda value: value >= 1,
        "it must be at least 1",
    ),
    ("dropout form_dropout gold_share held_out", lambda value: 0 <= value < 1, "it must be at least 0 and below 1"),
    (
        "threshold letters_threshold gold_threshold letters_gold_threshold",
        lambda value: 0 < value < 1,
        "it must be above 0 and below 1",
    ),
    ("blind teacher_weight", lambda value: 0 <= value <= 1, "it must be from 0 to 1"),
    ("self_training", lambda value: value >= 0, "it must be 0 or more"),
    ("reconstruction agreement", lambda value: 0 <= value < math.inf, "it must be finite and at least 0"),
    ("learning_rate gold_learning_rate", lambda value: 0 < value < math.inf, "it must be finite and above 0"),
    ("attention", lambda value: value in ATTENTIONS, f"allowed are {', '.join(ATTENTIONS)}"),
)
"""Names of fields, what their values must be, and the same in words."""


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
            raise InputError(f"--set: {each!r} is no setting; write FIELD=VALUE, fields are: {', '.join(fields)}")
        changed[name] = _value(name, text, fields[name])
    try:
        return AlignerSettings(**changed)
    except UnusableError as error:
        raise InputError(f"--set: {error}") from error


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
    if type(value) is not type(default):
        raise InputError(f"--set {name}={text}: must be {_KINDS[type(default)]}, as {json.dumps(default)} is")
    return value


_KINDS = {int: "a whole number", float: "a number"}
