"""What the aligner learns from: links given softly or by hand, and the words of the text themselves."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .aligner_batches import Batch
from .aligner_model import AlignerMaps, AlignerNetwork


class Lesson(NamedTuple):
    """What a batch is to be learnt from.

    Attributes:
        shown: (B, 2, T, S) the teacher's say that the network sees; told: (B,) 1 where it does.
        forward, reverse: (B, T, S), (B, S, T) the rows' weights of links that the maps should have.
        links: (B, T, S) the probability that each cell should have.
    """

    shown: Tensor
    told: Tensor
    forward: Tensor
    reverse: Tensor
    links: Tensor


def lesson(batch: Batch, blind: float) -> Lesson:
    """Divide the teacher's runs at random into those that the network sees and those that it is to foretell.

    What one run says by chance the others do not, so the network cannot copy: it has to find out which links a run
    that it does not see will agree to. Hand-made links, where there are some, take the place of the runs foretold.

    Args:
        blind: share of the pairs in which the network sees no run at all.
    """
    pairs, runs = batch.views.shape[:2]
    known = batch.has_gold[:, None, None]
    hidden = torch.rand(pairs) < blind
    if runs < 2:
        # The only run is the lesson itself, except where the lesson is made by hand.
        hidden |= ~batch.has_gold | (runs == 0)
        seen = torch.ones(pairs, runs)
        unseen = torch.ones(pairs, runs)
    else:
        # Where the lesson is made by hand, all runs may be seen.
        number = 1 + (torch.rand(pairs) * (runs - 1 + batch.has_gold)).long()[:, None]
        seen = (torch.rand(pairs, runs).argsort(1).argsort(1) < number).float()
        unseen = torch.where(hidden[:, None] | batch.has_gold[:, None], 1.0, 1 - seen)
    told = (~hidden).float()
    shown = _mean_of(batch.views, seen) * told[:, None, None, None]
    foretold = _mean_of(batch.views, unseen)
    forward, reverse = foretold[:, 0], foretold[:, 1].transpose(1, 2)
    links = torch.maximum(foretold.mean(1), batch.fixed)
    forward = torch.where(batch.fixed.any(2, keepdim=True), row_shares(batch.fixed), forward)
    turned = batch.fixed.transpose(1, 2)
    reverse = torch.where(turned.any(2, keepdim=True), row_shares(turned), reverse)
    return Lesson(
        shown,
        told,
        torch.where(known, row_shares(batch.gold), forward),
        torch.where(known, row_shares(batch.gold.transpose(1, 2)), reverse),
        torch.where(known, batch.gold, links),
    )


def batch_loss(
    network: AlignerNetwork, batch: Batch, *, blind: float, reconstruction: float, agreement: float
) -> Tensor:
    """Return the loss of a batch: of both maps, before and after the grid is read, of the links, and what is asked for.

    Args:
        blind: see `lesson`; reconstruction, agreement: weights of `reconstruction_loss` and `disagreement`.
    """
    given = lesson(batch, blind)
    maps = network(batch.source, batch.target, given.shown, batch.same, given.told)
    source_real, target_real = batch.source.tokens > 0, batch.target.tokens > 0
    cells = target_real[:, :, None] & source_real[:, None, :]
    known, sure = known_cells(batch), torch.maximum(batch.gold, batch.fixed) > 0
    target_taught, source_taught = (
        real & (sure.any(axis) | known.all(axis)) for real, axis in ((target_real, 2), (source_real, 1))
    )
    loss = link_loss(maps.links, given.links, cells & known)
    for forward, reverse in ((maps.forward, maps.reverse), (maps.first_forward, maps.first_reverse)):
        loss = loss + 0.5 * map_loss(forward, given.forward, target_taught)
        loss = loss + 0.5 * map_loss(reverse, given.reverse, source_taught)
    if reconstruction:
        found = reconstruction_loss(network, maps, batch.source.tokens, batch.target.tokens)
        loss = loss + reconstruction * found
    if agreement:
        loss = loss + agreement * disagreement(maps, cells)
    return loss


def known_cells(batch: Batch) -> Tensor:
    """Return (B, T, S) bool, the cells of which it is known whether they are links.

    Where neither a teacher nor an annotator has said anything of a pair, fixed links are all that is known of it.
    """
    silent = ~batch.has_gold & (batch.views.shape[1] == 0)
    return (batch.possible == 0) & (~silent[:, None, None] | (batch.fixed > 0))


def _mean_of(views: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean (B, 2, T, S) over the chosen runs (B, M) of views (B, M, 2, T, S)."""
    share = chosen / chosen.sum(1, keepdim=True).clamp(min=1)
    return torch.einsum("bm,bmdts->bdts", share, views)


def map_loss(log_shares: Tensor, wanted: Tensor, taught: Tensor) -> Tensor:
    """Return the mean cross-entropy of the rows of one map.

    Args:
        log_shares: (B, Q, 1 + K), column 0 is NULL.
        wanted: (B, Q, K) weights of links, at most 1 in a row's sum; what is missing to 1 is NULL's.
        taught: (B, Q) bool, the rows that count.
    """
    null = (1 - wanted.sum(-1, keepdim=True)).clamp(min=0)
    rows = -(torch.cat([null, wanted], -1) * log_shares).sum(-1)
    return (rows * taught).sum() / taught.sum().clamp(min=1)


def link_loss(logits: Tensor, wanted: Tensor, cells: Tensor) -> Tensor:
    """Return the binary cross-entropy of the cells, summed and divided by the number of target words.

    Args:
        logits, wanted: (B, T, S); cells: (B, T, S) bool, those that count.
    """
    losses = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    return (losses * cells).sum() / cells.any(-1).sum().clamp(min=1)


def row_shares(links: Tensor) -> Tensor:
    """Turn hand-made links (B, Q, K), 0 or 1, into weights that sum to 1 in each row with a link."""
    return links / links.sum(-1, keepdim=True).clamp(min=1)


def disagreement(maps: AlignerMaps, cells: Tensor) -> Tensor:
    """Return the mean squared difference of both directions' shares, per target word (Mask-Align, Chen et al. 2021)."""
    gap = maps.forward[..., 1:].exp() - maps.reverse[..., 1:].exp().transpose(1, 2)
    return (gap.square() * cells).sum() / cells.any(-1).sum().clamp(min=1)


def reconstruction_loss(network: AlignerNetwork, maps: AlignerMaps, source: Tensor, target: Tensor) -> Tensor:
    """Return how badly each word is predicted from the words of the other side that it is aligned with.

    The evidence lower bound of a mixture (neural IBM model 1): sum_s A[t, s] (log p(t | s) - log A[t, s]), where p is a
    softmax over the types of the batch from the state of s alone, which holds nothing of the target.

    Args:
        source, target: (B, S), (B, T) token types, 0 = padding.
    """
    forward = _one_way(network.emission(maps.source_states), maps.target_types, maps.forward, source, target)
    reverse = _one_way(network.reverse_emission(maps.target_states), maps.source_types, maps.reverse, target, source)
    return forward + reverse


def _one_way(states: Tensor, types: Tensor, log_shares: Tensor, given: Tensor, predicted: Tensor) -> Tensor:
    counts = torch.bincount(predicted.flatten(), minlength=len(types) + 1)[1:].float()
    unigram = (counts.clamp(min=0.5) / counts.sum()).log()
    scores = torch.log_softmax((states @ types.T) / states.shape[-1] ** 0.5, dim=-1)
    index = (predicted - 1).clamp(min=0)
    found = torch.gather(scores, 2, index[:, None, :].expand(-1, scores.shape[1], -1)).transpose(1, 2)
    found = torch.cat([unigram[index][..., None] - 2.0, found], -1)
    shares = log_shares.exp()
    readable = F.pad(given > 0, (1, 0), value=True)[:, None]
    terms = torch.where(readable, shares * (found - log_shares), 0.0).sum(-1)
    real = predicted > 0
    return -(terms * real).sum() / real.sum().clamp(min=1)
