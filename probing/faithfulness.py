"""Does the model's prediction depend on what the attention points at? Faithfulness, to set beside plausibility (AER).

All tests look at "output" rows: row t is what the model reads to predict target token t. The attention of several
heads is their mean. Source words are erased by masking their tokens in `attention_mask`, for encoder and decoder.

p(y | x) is the model's distribution over the vocabulary at one row; TVD(p, q) = 1/2 sum |p - q| is from 0 to 1. Rows of
structural tokens (the end token) are left out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_seq2seq_attn.errors import UnusableError

from .attention_maps import AttentionMaps
from .head_words import Head, mean_of_heads
from .importance import changeable_model, padded_weights
from .interventions import ChangeableModel, LayerCall
from .resampling import RESAMPLES
from .teacher_forcing import IGNORED, Batch, encode, make_batch, next_token_logits, token_losses
from .words import to_words

TESTS = {
    "erasure": (
        "drop of log p(target token) when the source word with the most attention is masked, against the mean drop "
        "over every other source word, which is what a word drawn at random gives",
        "a masked sentence is unlike what the model was trained on, and its encoder mixes words: information about a "
        "word stays in its neighbours' states, so a small drop does not show that the word was not used",
    ),
    "leave_one_out": (
        "Kendall's tau-b, for each target token over the source words, of attention with the total variation distance "
        "between the output distributions with and without the word (Jain and Wallace 2019, section 4.1); mean over "
        "target tokens",
        "tau counts the order of words that hardly matter as much as that of those that do, and leave-one-out is no "
        "ground truth either: redundant words can be left out one by one without effect",
    ),
    "permutation": (
        "total variation distance of the output distribution when the weights of its row are permuted over the source "
        "tokens, the same way in all heads that are changed (a NULL key keeps its share): median over permutations "
        "(Jain and Wallace 2019, section 4.2.1), mean over target tokens; near 0 the prediction does not depend on "
        "where the attention lies",
        "permuted weights are weights that the model never saw (Wiegreffe and Pinter 2019), and other heads and layers "
        "can make up for those changed; compare 'chosen' with 'all'",
    ),
    "uniform": (
        "mean loss per target token, in nats, with uniform weights over the source tokens in place of the model's own, "
        "in all rows at once",
        "the model is not trained again with uniform attention, as Wiegreffe and Pinter (2019) do, so the loss of this "
        "model says how much it relies on its weights, not how much attention is needed for the task",
    ),
}
CAVEAT = (
    "Attention that is plausible (low AER) need not be faithful, and none of these tests alone decides whether it "
    "explains a prediction; read them together, and beside AER."
)


@dataclass(frozen=True)
class Faithfulness:
    """What the tests found; each is a mapping of figures to numbers, see `TESTS` for what they mean.

    Attributes:
        erasure: `top` and `random`, mean drops in nats; `difference` and its 95% interval `ci95`, bootstrap over
            sentence pairs; `top_is_larger`, how often the top word's drop is larger than that of another word, ties
            counted half; `rows`, how many target tokens count.
        leave_one_out: `kendall_tau`, its share `positive`, `rows`.
        permutation: `chosen` and `all`, for the chosen heads and for all heads of all layers; `permutations`, `rows`.
        uniform: `loss` of the model, `chosen` and `all` with uniform weights.
        heads: the chosen heads.
        pairs: sentence pairs that were read; `short`, how many of them have fewer than two source words, which
            nothing can be compared in.
    """

    erasure: dict[str, Any]
    leave_one_out: dict[str, Any]
    permutation: dict[str, Any]
    uniform: dict[str, Any]
    heads: tuple[Head, ...]
    pairs: int
    short: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values, each test with its definition and caveat."""
        tests = {
            name: {**getattr(self, name), "definition": definition, "caveat": caveat}
            for name, (definition, caveat) in TESTS.items()
        }
        return {
            **tests,
            "align_with": "output",
            "heads": [list(head) for head in self.heads],
            "pairs": self.pairs,
            "short": self.short,
            "caveat": CAVEAT,
        }


@torch.no_grad()
def measure_faithfulness(
    model: Any,
    maps: Sequence[AttentionMaps],
    heads: Sequence[Head] | None = None,
    *,
    permutations: int = 10,
    seed: int = 0,
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> Faithfulness:
    """Test whether the predictions depend on what the attention points at; see `TESTS`.

    Each sentence pair takes about (source words + 2 x permutations x target tokens) decoder passes of one sentence.

    Args:
        model: the model that the maps are of; left as it is.
        maps: of the sentence pairs, "output" rows, all layers and heads.
        heads: (layer, head) pairs whose mean is tested; None = the last layer's heads.
        permutations: of each row.
        seed: of the permutations and of the bootstrap.
        batch_size: copies of a sentence in one pass.
        progress: called as progress(done, total) after each pair.

    Raises:
        ValueError: no pairs, maps without some layer or head or of other rows, a head that is not there, or a model
            whose cross-attention cannot be changed.
    """
    if permutations < 1 or batch_size < 1:
        raise UnusableError(f"permutations is {permutations} and batch_size {batch_size}; both must be at least 1")
    changeable = changeable_model(model, maps)
    chosen = tuple((maps[0].layers[-1], head) for head in maps[0].heads) if heads is None else tuple(heads)
    mean_of_heads(maps[0], chosen)
    generator = np.random.default_rng(seed)
    found = []
    for done, pair in enumerate(maps, start=1):
        one = _Sentence(changeable, pair, chosen, batch_size)
        if done == 1:
            changeable.check_sums(one.run, one.weights)
        found.append(one.measure(permutations, generator))
        if progress is not None:
            progress(done, len(maps))
    return _summarised(found, chosen, permutations, seed)


@dataclass(frozen=True)
class _Found:
    """What one sentence pair gave, an entry for each row that counts.

    top, others, larger: drops of the top word and mean of the others, share of others that the top exceeds (rows,);
    tau: (rows,), NaN where there is no order; chosen, everything: permutation distances (rows,);
    losses: summed loss as it is, chosen uniform, all uniform, and the number of tokens.
    """

    top: np.ndarray
    others: np.ndarray
    larger: np.ndarray
    tau: np.ndarray
    chosen: np.ndarray
    everything: np.ndarray
    losses: tuple[float, float, float, int]
    short: bool


class _Sentence:
    """One sentence pair under test: copies of it, each changed in one way, share a pass."""

    def __init__(
        self, changeable: ChangeableModel, maps: AttentionMaps, heads: tuple[Head, ...], batch_size: int
    ) -> None:
        self.changeable, self.model = changeable, changeable.model
        self.maps, self.batch_size = maps, batch_size
        self.batch = make_batch(self.model, [maps])
        self.states = encode(self.model, self.batch)
        self.weights = padded_weights([maps], self.batch)
        self.is_chosen = torch.zeros(changeable.layers, changeable.heads, dtype=torch.bool, device=self.states.device)
        for layer, head in heads:
            self.is_chosen[layer, head] = True
        self.chooses_all = bool(self.is_chosen.all())
        self.attention = mean_of_heads(maps, heads)
        self.rows = np.array([row for row, word in enumerate(maps.target.word_of) if word is not None], dtype=np.int64)

    def run(self) -> Tensor:
        """Return the logits as they are, (1, T, V)."""
        return next_token_logits(self.model, self.batch, self.states)

    def measure(self, permutations: int, generator: np.random.Generator) -> _Found:
        base = self.run()[0].log_softmax(-1)
        losses = self._uniform_losses(base)
        words = self._erasable_words()
        none = np.zeros(0)
        if len(words) < 2 or not len(self.rows):
            return _Found(none, none, none, none, none, none, losses, short=True)
        drops, distances = self._leave_one_out(base, words)
        attention = self._attention_to_words()[:, words]
        top = attention.argmax(axis=1)
        top_drop = drops[np.arange(len(drops)), top]
        other = np.arange(len(words))[None] != top[:, None]
        gap = top_drop[:, None] - drops
        larger = ((gap > 0) + (gap == 0) / 2)[other].reshape(len(drops), -1).mean(axis=1)
        orders = self._permutations(permutations, generator)
        chosen = self._permuted(base, orders, everything=False)
        return _Found(
            top_drop,
            drops[other].reshape(len(drops), -1).mean(axis=1),
            larger,
            kendall_tau(attention, distances),
            chosen,
            chosen if self.chooses_all else self._permuted(base, orders, everything=True),
            losses,
            short=False,
        )

    def _erasable_words(self) -> np.ndarray:
        return np.unique([word for word in self.maps.source.word_of if word is not None]).astype(np.int64)

    def _attention_to_words(self) -> np.ndarray:
        """Return the attention of each row that counts to each source word, (rows, words)."""
        each_row = replace(
            self.maps.target,
            words=list(self.maps.target.tokens),
            word_of=list(range(len(self.maps.target.tokens))),
        )
        return to_words(replace(self.attention, target=each_row), specials="mask").weights[self.rows]

    def _leave_one_out(self, base: Tensor, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the drop of log p and the TVD of each row when each word is masked, both (rows, words) float64."""
        word_of = np.array([-1 if word is None else word for word in self.maps.source.word_of])
        kept = torch.from_numpy(word_of[None] != words[:, None]).long().to(self.batch.attention_mask)
        rows = torch.from_numpy(self.rows).to(base.device)
        labels = self.batch.labels[0].to(base.device)[rows]
        drops, distances = [], []
        for part in kept.split(self.batch_size):
            batch = replace(self._copies(len(part)), attention_mask=part)
            erased = next_token_logits(self.model, batch)[:, rows].log_softmax(-1)
            change = base[rows] - erased
            drops.append(change.gather(-1, labels.expand(len(part), -1)[..., None])[..., 0])
            distances.append(_distance(base[rows], erased))
        return tuple(torch.cat(each).T.double().cpu().numpy() for each in (drops, distances))  # type: ignore[return-value]

    def _permutations(self, count: int, generator: np.random.Generator) -> Tensor:
        """Return orders of the source tokens, (rows, count, S) int64."""
        size = (len(self.rows), count, self.batch.input_ids.shape[1])
        return torch.from_numpy(generator.random(size).argsort(axis=-1)).to(self.states.device)

    def _permuted(self, base: Tensor, orders: Tensor, *, everything: bool) -> np.ndarray:
        """Return the median TVD over permutations of each row's own weights, (rows,) float64."""
        count = orders.shape[1]
        jobs = [(row, orders[place, number]) for place, row in enumerate(self.rows.tolist()) for number in range(count)]
        distances = []
        for start in range(0, len(jobs), self.batch_size):
            some = jobs[start : start + self.batch_size]
            rows = torch.tensor([row for row, _ in some], device=self.states.device)
            order = torch.stack([order for _, order in some])
            # Later rows cannot change the one that is looked at.
            batch = self._copies(len(some), int(rows.max()) + 1)
            with self.changeable.changed(self._permuting(rows, order, everything)):
                logits = next_token_logits(self.model, batch, self.states.expand(len(some), -1, -1), rows)
            distances.append(_distance(base[rows.to(base.device)], logits.log_softmax(-1)))
        return torch.cat(distances).view(-1, count).double().quantile(0.5, dim=1).cpu().numpy()

    def _permuting(self, rows: Tensor, order: Tensor, everything: bool) -> Callable[[LayerCall], Tensor]:
        """Return the change that gives row rows[c] of copy c its own weights, in the order order[c]."""
        copies = torch.arange(len(rows), device=rows.device)

        def change(call: LayerCall) -> Tensor:
            own = self.weights[call.layer][0].index_select(1, rows).transpose(0, 1)
            moved = call.context_of(own.gather(-1, order[:, None].expand_as(own))[:, :, None])[:, :, 0]
            context = call.context.clone()
            place = rows - call.first_row
            here = (place >= 0) & (place < context.shape[2])
            kept = context[copies[here], :, place[here]]
            changes = self.is_chosen[call.layer][None, :, None] | everything
            context[copies[here], :, place[here]] = torch.where(changes, moved[here].to(kept), kept)
            return context

        return change

    def _uniform_losses(self, base: Tensor) -> tuple[float, float, float, int]:
        labels = self.batch.labels
        loss = float(token_losses(base[None], labels).sum())
        tokens = int((labels != IGNORED).sum())
        chosen = self._loss(self._made_uniform(everything=False))
        return loss, chosen, chosen if self.chooses_all else self._loss(self._made_uniform(everything=True)), tokens

    def _loss(self, change: Callable[[LayerCall], Tensor]) -> float:
        with self.changeable.changed(change):
            return float(token_losses(self.run(), self.batch.labels).sum())

    def _made_uniform(self, *, everything: bool) -> Callable[[LayerCall], Tensor]:
        def change(call: LayerCall) -> Tensor:
            own = self.weights[call.layer][:, :, call.rows]
            even = call.context_of(own.mean(-1, keepdim=True).expand_as(own))
            return torch.where(self.is_chosen[call.layer][None, :, None, None] | everything, even, call.context)

        return change

    def _copies(self, count: int, rows: int | None = None) -> Batch:
        """Return the sentence pair `count` times, its target cut after `rows`."""
        return Batch(
            self.batch.input_ids.expand(count, -1),
            self.batch.attention_mask.expand(count, -1),
            self.batch.decoder_input_ids[:, :rows].expand(count, -1),
            self.batch.labels[:, :rows].expand(count, -1),
        )


def kendall_tau(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return Kendall's tau-b of each row of two arrays (N, K), (N,) float64; NaN where all of a row are tied.

    tau-b = (concordant - discordant) / sqrt(pairs not tied in the first x pairs not tied in the second) (Kendall 1945).
    """
    signs = [np.sign(each[:, :, None] - each[:, None, :]).reshape(len(each), -1) for each in (first, second)]
    score = (signs[0] * signs[1]).sum(axis=1)
    scale = np.sqrt(np.abs(signs[0]).sum(axis=1) * np.abs(signs[1]).sum(axis=1))
    return np.divide(score, scale, out=np.full(len(first), np.nan), where=scale > 0)


def _distance(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return the total variation distance of distributions given by their logarithms (..., V)."""
    return (log_p.exp() - log_q.exp()).abs().sum(-1) / 2


def _summarised(found: Sequence[_Found], heads: tuple[Head, ...], permutations: int, seed: int) -> Faithfulness:
    top, others, larger, tau, chosen, everything = (
        np.concatenate([getattr(each, name) for each in found])
        for name in ("top", "others", "larger", "tau", "chosen", "everything")
    )
    defined = tau[~np.isnan(tau)]
    losses = np.array([each.losses for each in found], dtype=np.float64).sum(axis=0)
    per_token = losses[:3] / max(1.0, losses[3])
    return Faithfulness(
        erasure={
            "top": _mean(top),
            "random": _mean(others),
            "difference": _mean(top - others),
            "ci95": list(_interval([each.top - each.others for each in found], seed)),
            "top_is_larger": _mean(larger),
            "rows": len(top),
        },
        leave_one_out={"kendall_tau": _mean(defined), "positive": _mean(defined > 0), "rows": len(defined)},
        permutation={
            "chosen": _mean(chosen),
            "all": _mean(everything),
            "permutations": permutations,
            "rows": len(chosen),
        },
        uniform=dict(zip(("loss", "chosen", "all"), map(float, per_token), strict=True)),
        heads=heads,
        pairs=len(found),
        short=sum(each.short for each in found),
    )


def _mean(values: np.ndarray) -> float | None:
    """Return the mean; None of nothing, for JSON knows no NaN."""
    return float(values.mean()) if len(values) else None


def _interval(differences: Sequence[np.ndarray], seed: int) -> Iterator[float | None]:
    """Yield the 2.5% and 97.5% quantiles of the mean over rows when sentence pairs are drawn with replacement."""
    sums = np.array([(each.sum(), len(each)) for each in differences if len(each)], dtype=np.float64)
    if not len(sums):
        yield from (None, None)
        return
    drawn = np.random.default_rng(seed).integers(0, len(sums), (RESAMPLES, len(sums)))
    totals = sums[drawn].sum(axis=1)
    yield from map(float, np.quantile(totals[:, 0] / totals[:, 1], [0.025, 0.975]))
