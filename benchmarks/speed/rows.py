"""The rows of the table: for each job its work, who is measured on it, and the target of issue 7."""

from dataclasses import dataclass, field
from typing import Any

from workloads import BASE, TINY, Recurrent, Transformer

TOOLKITS = ("joeynmt", "eole", "OpenNMT-py")


@dataclass(frozen=True)
class Entry:
    """One that is measured: a module of this folder, its function that builds the model, arguments for it."""

    module: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """Ours is to be at least this many times as fast as the best of these."""

    against: tuple[str, ...]
    at_least: float


@dataclass(frozen=True)
class TrainingRow:
    """Steps on batches of `tokens` target tokens, padding included; the first entry is ours."""

    key: str
    job: str
    size: Recurrent | Transformer
    corpus: str
    tokens: int
    precision: str
    entries: tuple[Entry, ...]
    targets: tuple[Target, ...]


@dataclass(frozen=True)
class MemoryRow(TrainingRow):
    """A training step whose peak memory is measured."""


@dataclass(frozen=True)
class DecodingRow:
    """Sentences to be given exactly 20 tokens each, in f32; the first entry is ours."""

    key: str
    job: str
    size: Recurrent | Transformer
    sentences: int
    beams: int
    entries: tuple[Entry, ...]
    targets: tuple[Target, ...]


@dataclass(frozen=True)
class AttentionRow:
    """Additive scores of T queries for each of S keys, H wide, and what they are to gain on the plain form."""

    key: str
    shape: tuple[int, int, int, int]
    faster: float = 7.0
    smaller: float = 20.0

    @property
    def batch(self) -> int:
        """B."""
        return self.shape[0]

    @property
    def queries(self) -> int:
        """T."""
        return self.shape[1]

    @property
    def keys(self) -> int:
        """S."""
        return self.shape[2]

    @property
    def width(self) -> int:
        """H."""
        return self.shape[3]


def kind(size: Recurrent | Transformer) -> str:
    """Return the name of the function that builds a model of this kind in each module."""
    return "recurrent" if isinstance(size, Recurrent) else "transformer"


BAHDANAU = Entry("ours", dict(cross_attention_type="additive", attend_with="previous_state"))
# What the toolkits compute, to show that the lead does not come from another function.
INPUT_FEEDING = Entry(
    "ours",
    dict(name="ours, input feeding", cross_attention_type="additive", attend_with="current_state", input_feeding=True),
)
LUONG_DOT = Entry("ours", dict(cross_attention_type="scaled_dot_product", attend_with="current_state"))
LUONG_ADDITIVE = Entry(
    "ours", dict(name="ours, additive", cross_attention_type="additive", attend_with="current_state")
)
OURS = Entry("ours")
TOOLKIT_ENTRIES = (Entry("peers.joeynmt"), Entry("peers.eole"), Entry("peers.opennmt"))
MARIAN, MARIAN_EAGER = Entry("peers.marian"), Entry("peers.marian", dict(attention="eager"))
CTRANSLATE = (Entry("peers.ctranslate"), Entry("peers.ctranslate", dict(compute_type="int8")))
GRU, GRU_LARGE_VOCABULARY, LSTM = Recurrent(8000), Recurrent(32000), Recurrent(8000, cell="lstm")


def _recurrent(key: str, size: Recurrent, corpus: str, tokens: int, precision: str, at_least: float) -> TrainingRow:
    job = f"recurrent + additive, {tokens}-token batches, V = {size.vocabulary:,}"
    entries = (BAHDANAU, *((INPUT_FEEDING,) if key.endswith("4096") else ()), *TOOLKIT_ENTRIES)
    return TrainingRow(key, job, size, corpus, tokens, precision, entries, (Target(TOOLKITS, at_least),))


def _transformer(name: str, size: Transformer, tokens: int, precision: str) -> TrainingRow:
    job = f"Transformer-{name}, {tokens}-token batches"
    if precision == "f32":
        entries, targets = (OURS, MARIAN, Entry("peers.eole")), (Target(("HF Marian",), 1.05),)
    else:
        entries = (OURS, MARIAN, MARIAN_EAGER, Entry("peers.eole"))
        targets = (Target(("eole",), 1.2), Target(("HF Marian",), 2.4))
    return TrainingRow(f"transformer-{name}-{precision}", job, size, "multi30k", tokens, precision, entries, targets)


TRAINING = (
    _recurrent("recurrent-bf16-4096", GRU, "multi30k", 4096, "bf16", 2.0),
    _recurrent("recurrent-f32-4096", GRU, "multi30k", 4096, "f32", 1.4),
    _recurrent("recurrent-bf16-512", GRU, "multi30k", 512, "bf16", 2.3),
    _recurrent("recurrent-bf16-large-vocabulary", GRU_LARGE_VOCABULARY, "wmt", 4096, "bf16", 2.3),
    TrainingRow(
        "recurrent-all-steps-at-once-bf16",
        "LSTM + dot, current state, no input feeding, 4096-token batches",
        LSTM,
        "multi30k",
        4096,
        "bf16",
        (LUONG_DOT, LUONG_ADDITIVE, Entry("peers.fairseq_lstm")),
        (Target(("fairseq",), 2.2),),
    ),
    _transformer("tiny", TINY, 4096, "bf16"),
    _transformer("tiny", TINY, 4096, "f32"),
    _transformer("base", BASE, 2048, "bf16"),
    _transformer("base", BASE, 1024, "f32"),
)


def _decoding(
    name: str, size: Recurrent | Transformer, sentences: int, beams: int, at_least: float | None
) -> DecodingRow:
    way = "greedy" if beams == 1 else f"beam {beams}"
    if isinstance(size, Recurrent):
        entries: tuple[Entry, ...] = (BAHDANAU, Entry("peers.joeynmt"), Entry("peers.fairseq_lstm"))
        against: tuple[str, ...] = ("joeynmt", "fairseq")
    else:
        entries, against = (OURS, MARIAN, *CTRANSLATE), ("HF Marian",)
    return DecodingRow(
        f"{name}-{way.replace(' ', '-')}-batch-{sentences}",
        f"{name}, {way}, batch {sentences}",
        size,
        sentences,
        beams,
        entries,
        () if at_least is None else (Target(against, at_least),),
    )


DECODING = (
    _decoding("recurrent", GRU, 1, 1, None),
    _decoding("recurrent", GRU, 1, 5, None),
    _decoding("recurrent", GRU, 32, 1, 1.6),
    _decoding("recurrent", GRU, 32, 5, 1.4),
    _decoding("Transformer-tiny", TINY, 1, 1, 1.8),
    _decoding("Transformer-tiny", TINY, 1, 5, None),
    _decoding("Transformer-tiny", TINY, 32, 1, 1.8),
    _decoding("Transformer-tiny", TINY, 32, 5, 1.5),
    _decoding("Transformer-base", BASE, 1, 1, 1.25),
    _decoding("Transformer-base", BASE, 1, 5, 1.25),
    _decoding("Transformer-base", BASE, 32, 1, 1.1),
    _decoding("Transformer-base", BASE, 32, 5, 1.1),
)


def _memory(key: str, job: str, size: Recurrent | Transformer, tokens: int, precision: str) -> MemoryRow:
    arguments = dict(BAHDANAU.arguments) if isinstance(size, Recurrent) else {}
    peers = TOOLKIT_ENTRIES[:2] if isinstance(size, Recurrent) else (MARIAN, TOOLKIT_ENTRIES[1])
    plain = Entry("ours", dict(arguments, name="ours, plain forms", plain=True))
    entries = (Entry("ours", arguments), plain, *peers)
    return MemoryRow(key, job, size, "multi30k", tokens, precision, entries, ())


MEMORY = (
    _memory("memory-recurrent-f32", "memory of a step, recurrent + additive, 4096 tokens", GRU, 4096, "f32"),
    _memory("memory-recurrent-bf16", "memory of a step, recurrent + additive, 4096 tokens", GRU, 4096, "bf16"),
    _memory("memory-transformer-tiny-bf16", "memory of a step, Transformer-tiny, 4096 tokens", TINY, 4096, "bf16"),
)

ATTENTION = (
    AttentionRow("additive-32-50-50-512", (32, 50, 50, 512)),
    AttentionRow("additive-8-512-512-256", (8, 512, 512, 256)),
)
