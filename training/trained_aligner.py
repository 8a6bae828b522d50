"""A trained aligner: networks of one or several seeds, the words that they know, and how probabilities become links."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.probing import Link, Links, write_atomically, write_bytes_atomically
from hf_seq2seq_attn.text_files import InputError

from .aligner_batches import PairedText, SideText
from .aligner_data import Sentences, TeacherLinks
from .aligner_forms import TeacherForm, teacher_forms
from .aligner_links import centred, linked_cells, with_fixed
from .aligner_model import AlignerNetwork, NetworkSize
from .aligner_rules import LinkRule, by_rule
from .aligner_text import FeatureIndex
from .text_kind import LeftOut, TextKind

NETWORK_FILE = "network.json"
CELLS = 60_000
"""Cells of a batch when nothing is learnt: about 50 MB."""


class TrainedAligner:
    """An aligner that `fit_aligner` made.

    Args:
        networks: one for each seed; their probabilities are averaged.
        source_index, target_index: the words and n-grams that they know.
        rules: of each network, in step with them.
        kind: of the text that they were trained on.
        lexicon: pairs of bare forms that are translations.
    """

    def __init__(
        self,
        networks: Sequence[AlignerNetwork],
        source_index: FeatureIndex,
        target_index: FeatureIndex,
        rules: Sequence[LinkRule],
        kind: TextKind,
        lexicon: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.networks = list(networks)
        self.source_index = source_index
        self.target_index = target_index
        self.rules = list(rules)
        self.kind = kind
        self.lexicon = list(lexicon)

    @classmethod
    def joined(cls, aligners: Sequence["TrainedAligner"]) -> "TrainedAligner":
        """Return one aligner that averages the probabilities of several, trained on one text with other seeds.

        Raises:
            UnusableError: none are given, or they do not know the same words.
        """
        if not aligners:
            raise UnusableError("aligners is empty; join at least one")
        first = aligners[0]
        for number, other in enumerate(aligners[1:], start=1):
            if other._vocabulary() != first._vocabulary():
                raise UnusableError(
                    f"aligners[{number}] was trained on another text than aligners[0]; join seeds of one"
                )
        return cls(
            [network for aligner in aligners for network in aligner.networks],
            first.source_index,
            first.target_index,
            [rule for aligner in aligners for rule in aligner.rules],
            first.kind,
            first.lexicon,
        )

    def teacher_forms(
        self,
        source: Sentences,
        target: Sentences,
        *,
        source_lemmas: Sentences | None = None,
        target_lemmas: Sentences | None = None,
    ) -> list[TeacherForm]:
        """Return the forms of a new text that teachers may have been run on, by the names of those of the training."""
        left_out = self.kind.left_out(source, target)
        return teacher_forms(
            source,
            target,
            source_lemmas,
            target_lemmas,
            left_out=left_out,
            letters=self.kind.letters,
            distinct=False,
        )

    def posteriors(
        self,
        source: Sentences,
        target: Sentences,
        *,
        source_lemmas: Sentences | None = None,
        target_lemmas: Sentences | None = None,
        teachers: Sequence[TeacherLinks] = (),
        progress: Callable[[float], Any] = lambda done: None,
    ) -> list[np.ndarray]:
        """Return for each pair the probability of every link, (T, S) float32 in [0, 1]; above 0.5 it is a link.

        Args:
            teachers: what teachers say about this text; () where there are none: the networks then go by the words.
            progress: called now and then with the share of the pairs that is done.
        """
        left_out = self.kind.left_out(source, target)
        text = self._text(source, target, source_lemmas, target_lemmas, teachers, left_out)
        lengths = [(len(other), len(one)) for one, other in zip(source, target, strict=True)]
        matrices = [np.zeros(shape, dtype=np.float32) for shape in lengths]
        done = 0
        for places in text.cut(text.places, CELLS, None):
            batch = text.batch(places)
            found = [
                centred(by_rule(network, batch, rule), rule.threshold)
                for network, rule in zip(self.networks, self.rules, strict=True)
            ]
            for matrix, place in zip(np.mean(found, axis=0), places.tolist(), strict=True):
                rows, columns = left_out.target[place], left_out.source[place]
                if rows and columns:
                    matrices[place][np.ix_(rows, columns)] = matrix[: len(rows), : len(columns)]
            done += len(places)
            progress(done / len(text.places))
        return matrices

    def links(
        self,
        source: Sentences,
        target: Sentences,
        *,
        source_lemmas: Sentences | None = None,
        target_lemmas: Sentences | None = None,
        teachers: Sequence[TeacherLinks] = (),
        fixed: Mapping[int, Links] | None = None,
        progress: Callable[[float], Any] = lambda done: None,
    ) -> list[dict[Link, float]]:
        """Return for each pair its links, each with its probability; fixed links have 1."""
        matrices = self.posteriors(
            source,
            target,
            source_lemmas=source_lemmas,
            target_lemmas=target_lemmas,
            teachers=teachers,
            progress=progress,
        )
        return [linked_cells(matrix) for matrix in with_fixed(matrices, fixed or {})]

    def save(self, folder: Path) -> None:
        """Write `network.json` and one `network-K.safetensors` for each network into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, network in enumerate(self.networks):
            tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
            write_bytes_atomically(folder / _weights(number), partial(save_file, tensors))
        record = {
            "size": dataclasses.asdict(self.networks[0].size),
            "rules": [dataclasses.asdict(rule) for rule in self.rules],
            "kind": dataclasses.asdict(self.kind),
            "lexicon": self.lexicon,
            **self._vocabulary(),
        }
        write_atomically(folder / NETWORK_FILE, [json.dumps(record, ensure_ascii=False) + "\n"])

    @classmethod
    def load(cls, folder: Path) -> "TrainedAligner":
        """Read what `save` wrote.

        Raises:
            InputError: a file is missing or is not what `save` writes.
        """
        path = folder / NETWORK_FILE
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            size = NetworkSize(**record["size"])
            rules = [LinkRule(**rule) for rule in record["rules"]]
            source_index, target_index = (FeatureIndex(**record[f"{side}_index"]) for side in ("source", "target"))
            kind = TextKind(**record["kind"])
            lexicon = [(str(one), str(other)) for one, other in record["lexicon"]]
        except FileNotFoundError as error:
            raise InputError(f"{path}: no such file; name a folder that `train-aligner` wrote") from error
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: not the record of an aligner ({error!r}); train it anew") from error
        networks = []
        for number in range(len(rules)):
            network = AlignerNetwork(size)
            weights = folder / _weights(number)
            try:
                network.load_state_dict(load_file(weights))
            except Exception as error:
                raise InputError(f"{weights}: cannot be read ({error}); train the aligner anew") from error
            networks.append(network.eval())
        return cls(networks, source_index, target_index, rules, kind, lexicon)

    def _vocabulary(self) -> dict[str, Any]:
        return {"source_index": self.source_index.state(), "target_index": self.target_index.state()}

    def _text(
        self,
        source: Sentences,
        target: Sentences,
        source_lemmas: Sentences | None,
        target_lemmas: Sentences | None,
        teachers: Sequence[TeacherLinks],
        left_out: LeftOut,
    ) -> PairedText:
        shared: dict[str, int] = {}
        channels = left_out.channels(source, target, source_lemmas, target_lemmas)
        sides = [
            SideText.of(index, words, lemmas, shared)
            for index, (words, lemmas) in zip((self.source_index, self.target_index), channels, strict=True)
        ]
        views = [(left_out.reduced(each.forward), left_out.reduced(each.reverse)) for each in teachers]
        return PairedText(sides[0], sides[1], views, lexicon=known_pairs(self.lexicon, shared))


def known_pairs(lexicon: Sequence[tuple[str, str]], shared: Mapping[str, int]) -> frozenset[tuple[int, int]]:
    """Return the lexicon's pairs of bare forms by their numbers, as far as the text has both."""
    return frozenset((shared[one], shared[other]) for one, other in lexicon if one in shared and other in shared)


def _weights(number: int) -> str:
    return f"network-{number}.safetensors"
