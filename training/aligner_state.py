"""Where the training of an aligner stands: network, optimiser, random numbers; kept on disk to go on from."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hf_seq2seq_attn.errors import UnusableError

from .aligner_data import AlignerData
from .aligner_model import AlignerNetwork

STATE_FILE = "aligner_state.pt"
SAVE_SECONDS = 60.0


class AlignerState:
    """The moving parts of a training.

    Attributes:
        network, optimizers: as after `step` updates.
        stage, epoch, batch: the next batch to be drawn.
        began: seconds of training at which the stage began.
        own_links: (N, 3) pair, source word and target word of the links that an earlier network found; None = none yet.
        seconds_before: of training before the last resumption.
    """

    def __init__(self, network: AlignerNetwork, learning_rate: float, path: Path | None, key: str) -> None:
        self._learning_rate = learning_rate
        self.take(network)
        self.begin(0, 0.0)
        self.own_links: Tensor | None = None
        self.seconds_before = 0.0
        self._path = path
        self._key = key
        self._saved = time.monotonic()

    @classmethod
    def start(
        cls,
        make_network: Callable[[], AlignerNetwork],
        settings: Any,
        seed: int,
        folder: Path | None,
        data: AlignerData,
    ) -> "AlignerState":
        """Begin anew, or go on from the state in `folder` if it holds one of the same data, settings and seed.

        Raises:
            UnusableError: the state in `folder` is of another training, or cannot be read.
        """
        torch.manual_seed(seed)
        path = None if folder is None else folder / STATE_FILE
        state = cls(make_network(), settings.learning_rate, path, "" if path is None else digest(settings, seed, data))
        if path is not None and path.exists():
            state._load(path)
        return state

    def take(self, network: AlignerNetwork) -> None:
        """Train this network from now on, which has had no step yet."""
        self.network = network
        tables = network.tables()
        self._dense = [each for each in network.parameters() if not any(each is table for table in tables)]
        self.optimizers = [
            torch.optim.AdamW(self._dense, self._learning_rate, betas=(0.9, 0.98), weight_decay=1e-4, fused=True),
            torch.optim.SparseAdam(tables, self._learning_rate, betas=(0.9, 0.98)),
        ]
        self.step = 0

    def begin(self, stage: int, seconds: float) -> None:
        """Go to the first batch of a stage, after so many seconds of training."""
        self.stage, self.epoch, self.batch, self.began = stage, 0, 0, seconds

    def update(self, loss: Tensor, rate: float) -> None:
        """Take one step down the gradient of `loss` with learning rate `rate`."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._dense, 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        self.step += 1

    def save_now_and_then(self, seconds: float) -> None:
        """Save once a minute; `seconds` of training so far."""
        if self._path is not None and time.monotonic() - self._saved >= SAVE_SECONDS:
            self.save(seconds)

    def save(self, seconds: float) -> None:
        """Write the state, whole or not at all; nothing without a folder."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        record = {
            "key": self._key,
            "network": self.network.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "random": torch.get_rng_state(),
            "place": {name: getattr(self, name) for name in ("step", "stage", "epoch", "batch", "began", "own_links")},
            "seconds": seconds,
        }
        part = self._path.with_suffix(".part")
        torch.save(record, part)
        part.replace(self._path)
        self._saved = time.monotonic()

    def _load(self, path: Path) -> None:
        try:
            record = torch.load(path, weights_only=True)
            key = record["key"]
        except Exception as error:  # torch raises what it likes over bytes that are not its own
            raise UnusableError(f"{path}: cannot be read ({error}); delete it to train from the start") from error
        if key != self._key:
            raise UnusableError(
                f"{path}: kept by a training with other data, settings or seed; delete it to train from the start, or "
                "name another folder"
            )
        self.network.load_state_dict(record["network"])
        for optimizer, kept in zip(self.optimizers, record["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        torch.set_rng_state(record["random"])
        for name, value in record["place"].items():
            setattr(self, name, value)
        self.seconds_before = record["seconds"]


def digest(settings: Any, seed: int, data: AlignerData) -> str:
    """Return SHA-256 of all that decides what a training does."""
    found = hashlib.sha256(json.dumps([dataclasses.asdict(settings), seed]).encode())
    for sentences in (data.source, data.target, data.source_lemmas, data.target_lemmas):
        for words in [["\x01"]] if sentences is None else sentences:
            found.update(("\x1f".join(words) + "\n").encode())
    for teacher in data.teachers:
        for links in (teacher.forward, teacher.reverse):
            for weights in links:
                found.update(repr(sorted(weights.items())).encode())
    known = [
        [[place, sorted(gold.sure), sorted(gold.possible)] for place, gold in sorted(data.gold.items())],
        [[place, sorted(links)] for place, links in sorted(data.fixed.items())],
        [list(pair) for pair in data.lexicon],
    ]
    found.update(json.dumps(known).encode())
    return found.hexdigest()
