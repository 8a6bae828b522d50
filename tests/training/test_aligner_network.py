"""The aligner's network, its batches and its losses."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hf_seq2seq_attn.probing import Gold
from hf_seq2seq_attn.training.aligner_batches import Batch, PairedText, SideText
from hf_seq2seq_attn.training.aligner_losses import (
    batch_loss,
    disagreement,
    known_cells,
    lesson,
    link_loss,
    map_loss,
    reconstruction_loss,
    row_shares,
)
from hf_seq2seq_attn.training.aligner_model import AlignerNetwork, GridReader, NetworkSize, diagonal_distance
from hf_seq2seq_attn.training.aligner_text import FeatureIndex

SOURCE = [["a", "b", "c"], ["b"], [], ["c", "a", "b", "d", "a"]]
TARGET = [["x", "y"], ["y", "z", "x", "x"], ["x"], ["d", "w", "x"]]
VIEWS = [
    ([{(0, 0): 1.0, (2, 1): 0.5}, {(0, 1): 1.0}, {}, {}], [{(0, 0): 1.0}, {}, {}, {(3, 0): 1.0}]),
    ([{(1, 0): 1.0}, {(0, 1): 1.0}, {}, {(3, 0): 1.0}], [{(0, 0): 1.0}, {(0, 2): 1.0}, {}, {}]),
]
GOLD = {3: Gold(frozenset({(3, 0), (0, 2)}), frozenset({(1, 1)}))}


def paired(views: list = VIEWS, gold: dict = GOLD, lexicon: frozenset = frozenset()) -> PairedText:
    shared: dict[str, int] = {}
    sides = [SideText.of(FeatureIndex.build(side, least=1), side, None, shared) for side in (SOURCE, TARGET)]
    return PairedText(*sides, views, gold, {0: frozenset({(1, 1)})}, lexicon)


def network(**changed: object) -> AlignerNetwork:
    torch.manual_seed(1)
    indices = [FeatureIndex.build(side, least=1) for side in (SOURCE, TARGET)]
    sizes = [number + 1 for index in indices for number in (len(index.forms), len(index.ngrams))]
    made = AlignerNetwork(
        replace(NetworkSize(*sizes, width=12, grid_width=5, dropout=0.0, form_dropout=0.0), **changed)
    )
    # As after some training: nothing that starts at 0 stays there.
    for parameter in made.parameters():
        if not parameter.abs().sum():
            torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


def maps_of(made: AlignerNetwork, batch: Batch, teacher: bool = True) -> list[torch.Tensor]:
    with torch.no_grad():
        return list(made(batch.source, batch.target, batch.views.mean(1) if teacher else None, batch.same)[:5])


@pytest.mark.parametrize("attention", ["dot", "additive"])
def test_maps_are_shares_over_null_and_the_real_words(attention: str) -> None:
    batch = paired().batch(np.array([0, 1, 3]))
    forward, reverse, first_forward, first_reverse, links = maps_of(network(attention=attention), batch)
    assert forward.shape == first_forward.shape == (3, 4, 6)
    assert reverse.shape == first_reverse.shape == (3, 5, 5)
    assert links.shape == (3, 4, 5)
    for shares in (forward, reverse, first_forward, first_reverse):
        assert shares.exp().sum(-1) == pytest.approx(torch.ones(shares.shape[:2]))
    assert forward[0, :2, 4:].exp().max() == 0
    assert reverse[1, :1, 1:].exp().min() > 0


def test_padding_changes_nothing() -> None:
    text, made = paired(), network()
    together = maps_of(made, text.batch(np.array([0, 1, 3])))
    for row, place in enumerate((0, 1, 3)):
        columns, rows = text.lengths[place]
        alone = maps_of(made, text.batch(np.array([place])))
        cuts = [(rows, columns + 1), (columns, rows + 1)] * 2 + [(rows, columns)]
        for padded, own, (height, width) in zip(together, alone, cuts, strict=True):
            # The grid is read in bfloat16, whose sums may round differently.
            assert padded[row, :height, :width] == pytest.approx(own[0], abs=0.02)


def test_every_cell_sees_the_two_words_that_meet_there() -> None:
    reader, (source, target) = network().grid, (torch.randn(2, 5, 12), torch.randn(2, 4, 12))
    channels, cells = torch.randn(2, GridReader.CHANNELS, 4, 5), torch.ones(2, 1, 4, 5)
    for kernel in (reader.wide, reader.narrow):  # of which only the middle is left: a cell sees itself
        middle = kernel.weight.shape[-1] // 2
        others = torch.ones_like(kernel.weight)
        others[..., middle, middle] = 0
        kernel.weight.data.mul_(1 - others)
    with torch.no_grad():
        found = reader(channels, cells, source, target)
        for b, t, s in np.ndindex(2, 4, 5):
            column, row = reader.source_norm(source[b, s]), reader.target_norm(target[b, t])
            factors = reader.source_factors(column) * reader.target_factors(row)
            seen = torch.cat([channels[b, :, t, s], factors.view(reader.PRODUCTS, -1).sum(1) / 4])
            words = reader.rows(row) + reader.columns(column)
            hidden = torch.relu(reader.wide.weight[:, :, 2, 2] @ seen + reader.wide.bias + words)
            hidden = hidden + torch.relu(reader.narrow.weight[:, :, 1, 1] @ hidden + reader.narrow.bias)
            expected = reader.out.weight[:, :, 0, 0] @ hidden + reader.out.bias
            assert found[b, :, t, s].numpy() == pytest.approx(expected.numpy(), abs=1e-4)


def test_a_pair_that_the_teacher_is_hidden_from_ignores_it() -> None:
    batch, made = paired().batch(np.array([0, 3])), network()
    with torch.no_grad():
        hidden = made(batch.source, batch.target, torch.zeros_like(batch.views[:, 0]), batch.same, torch.zeros(2))
    blind, seeing = maps_of(made, batch, teacher=False), maps_of(made, batch)
    for one, other in zip(hidden[:5], blind, strict=True):
        assert one == pytest.approx(other)
    assert (blind[4] - seeing[4]).abs().max() > 0.1


def test_batches_hold_what_is_known_of_each_pair() -> None:
    batch = paired(lexicon=frozenset()).batch(np.array([3, 0]))
    assert batch.views[1, 0, 0].tolist() == [[1, 0, 0, 0, 0], [0, 0, 0.5, 0, 0], [0] * 5]
    assert batch.views[0, 1, 0, 0].tolist() == [0, 0, 0, 1, 0]
    assert batch.has_gold.tolist() == [True, False]
    assert batch.gold[0].nonzero().tolist() == [[0, 3], [2, 0]]
    assert batch.possible[0].nonzero().tolist() == [[1, 1]]
    assert batch.fixed[1].nonzero().tolist() == [[1, 1]]
    assert batch.same[0].nonzero().tolist() == [[0, 3]], "d is written alike on both sides"


def test_lexicon_marks_its_pairs_wherever_they_meet() -> None:
    shared: dict[str, int] = {}
    for words in [*SOURCE, *TARGET]:
        for word in words:
            shared.setdefault(word, len(shared))
    batch = paired(lexicon=frozenset({(shared["a"], shared["x"])})).batch(np.array([3, 0]))
    assert batch.same[0].nonzero().tolist() == [[0, 3], [2, 1], [2, 4]]
    assert batch.same[1].nonzero().tolist() == [[0, 0]]


def test_cutting_gives_every_pair_once_and_respects_the_size() -> None:
    text = paired()
    assert text.places.tolist() == [0, 1, 3]
    batches = list(text.cut(text.places, 12, np.random.default_rng(0)))
    assert sorted(np.concatenate(batches).tolist()) == [0, 1, 3]
    for places in batches:
        columns, rows = text.lengths[places].max(0)
        assert len(places) == 1 or len(places) * columns * rows <= 12


def test_lesson_foretells_the_runs_that_are_not_shown() -> None:
    torch.manual_seed(0)
    batch = paired().batch(np.array([0, 1, 3]))
    given = lesson(batch, blind=0.0)
    assert given.told.tolist() == [1, 1, 1]
    for row in (0, 1):
        shown = [bool(torch.equal(given.shown[row], batch.views[row, run])) for run in (0, 1)]
        assert sum(shown) == 1
    other = batch.views[1, int(torch.equal(given.shown[1], batch.views[1, 0]))]
    assert torch.equal(given.forward[1], other[0])
    assert torch.equal(given.links[1], other.mean(0))
    assert given.forward[0, 1].tolist() == [0, 1, 0, 0, 0], "a fixed link takes the place of the teacher's"
    assert torch.equal(given.links[2], batch.gold[2])
    assert lesson(batch, blind=1.0).told.sum() == 0
    assert lesson(batch, blind=1.0).shown.abs().sum() == 0


def test_a_single_run_is_foretold_and_shown_only_where_gold_teaches() -> None:
    given = lesson(paired(VIEWS[:1]).batch(np.array([1, 3])), blind=0.0)
    assert given.told.tolist() == [0, 1]
    assert given.forward[0, 1, 0] == 1


def test_losses_equal_sums_written_out() -> None:
    torch.manual_seed(2)
    log_shares = torch.log_softmax(torch.randn(2, 3, 5), -1)
    wanted = torch.rand(2, 3, 4) / 8
    taught = torch.tensor([[True, True, False], [True, True, True]])
    total, norm = 0.0, 0.0
    for b in range(2):
        for row in range(3):
            if taught[b, row]:
                null = 1 - float(wanted[b, row].sum())
                terms = [null * float(log_shares[b, row, 0])]
                terms += [float(wanted[b, row, k] * log_shares[b, row, k + 1]) for k in range(4)]
                total -= sum(terms)
                norm += 1
    assert float(map_loss(log_shares, wanted, taught)) == pytest.approx(total / norm, rel=1e-5)
    assert row_shares(torch.tensor([[1.0, 1, 0], [0, 0, 0]])).tolist() == [[0.5, 0.5, 0], [0, 0, 0]]
    logits = torch.tensor([[[2.0, -1.0]]])
    loss = link_loss(logits, torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[True, False]]]))
    assert float(loss) == pytest.approx(float(torch.log1p(torch.exp(torch.tensor(-2.0)))))


@pytest.mark.parametrize("extra", [{}, {"reconstruction": 0.5}, {"agreement": 2.0}])
def test_the_loss_falls_on_a_batch_that_is_repeated(extra: dict[str, float]) -> None:
    made, batch = network(), paired().batch(np.array([0, 1, 3]))
    weights = {"reconstruction": 0.0, "agreement": 0.0} | extra
    optimizer = torch.optim.SGD(made.parameters(), 0.1)
    losses = []
    for _ in range(25):
        torch.manual_seed(5)
        loss = batch_loss(made.train(), batch, blind=0.5, **weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]


def test_training_for_agreement_brings_the_directions_together() -> None:
    gaps = []
    for agreement in (0.0, 2.0):
        made, batch = network(), paired().batch(np.array([0, 1, 3]))
        optimizer = torch.optim.SGD(made.parameters(), 0.1)
        for _ in range(25):
            torch.manual_seed(5)
            loss = batch_loss(made.train(), batch, blind=0.5, reconstruction=0.0, agreement=agreement)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            maps = made.eval()(batch.source, batch.target)
        cells = (batch.target.tokens > 0)[:, :, None] & (batch.source.tokens > 0)[:, None, :]
        gaps.append(float(disagreement(maps, cells)))
    assert gaps[1] < 0.8 * gaps[0]


def test_of_pairs_with_nothing_but_fixed_links_only_those_are_learnt() -> None:
    made, text = network(), paired(views=[])
    batch = text.batch(np.array([0, 1]))
    assert known_cells(batch).nonzero().tolist() == [[0, 1, 1]]
    with torch.no_grad():
        maps = made(batch.source, batch.target, batch.views.new_zeros(2, 2, 4, 3), batch.same, torch.zeros(2))
        found = float(batch_loss(made, batch, blind=0.0, reconstruction=0.0, agreement=0.0))
    wanted = torch.nn.functional.softplus(-maps.links[0, 1, 1])
    for shares in (maps.forward, maps.reverse, maps.first_forward, maps.first_reverse):
        wanted = wanted - 0.5 * shares[0, 1, 2]
    assert found == pytest.approx(float(wanted), rel=1e-5)
    assert known_cells(paired().batch(np.array([0, 1]))).all(), "a teacher says of all other cells that they are none"


def test_nothing_is_learnt_from_a_word_whose_links_are_all_unsure() -> None:
    made, batch = network(), paired().batch(np.array([3]))
    with torch.no_grad():
        maps = made(batch.source, batch.target, torch.zeros_like(batch.views[:, 0]), batch.same, torch.zeros(1))
        found = float(batch_loss(made, batch, blind=1.0, reconstruction=0.0, agreement=0.0))
    sure, unsure = batch.gold[0], batch.possible[0] > 0
    cells = torch.nn.functional.binary_cross_entropy_with_logits(maps.links[0], sure, reduction="none")
    wanted = float(cells[~unsure].sum()) / 3
    for shares, links in (
        (maps.forward, sure),
        (maps.reverse, sure.T),
        (maps.first_forward, sure),
        (maps.first_reverse, sure.T),
    ):
        wanted += 0.5 * _surprise(shares[0], links, skipped=1)
    assert found == pytest.approx(wanted, rel=1e-5)


def _surprise(shares: torch.Tensor, links: torch.Tensor, skipped: int) -> float:
    """Return the mean surprise at each row's one partner, or at NULL, but for the row `skipped`."""
    rows = [row for row in range(len(links)) if row != skipped]
    places = [int(links[row].argmax()) + 1 if links[row].any() else 0 for row in rows]
    return -sum(float(shares[row, place]) for row, place in zip(rows, places, strict=True)) / len(rows)


def test_reconstruction_equals_the_bound_written_out() -> None:
    made, batch = network(), paired().batch(np.array([1, 3]))
    source, target = batch.source.tokens, batch.target.tokens
    with torch.no_grad():
        maps = made(batch.source, batch.target)
        found = float(reconstruction_loss(made, maps, source, target))
        wanted = _bound(made.emission(maps.source_states), maps.target_types, maps.forward, source, target)
        wanted += _bound(made.reverse_emission(maps.target_states), maps.source_types, maps.reverse, target, source)
    assert found == pytest.approx(wanted, rel=1e-5)


def _bound(
    states: torch.Tensor, types: torch.Tensor, log_shares: torch.Tensor, given: torch.Tensor, predicted: torch.Tensor
) -> float:
    """Return the mean over the predicted words of -sum_s A (log p(word | s) - log A), NULL a unigram model."""
    real = [(b, t) for b in range(len(predicted)) for t in range(predicted.shape[1]) if predicted[b, t]]
    total = 0.0
    for b, t in real:
        word = int(predicted[b, t])
        terms = [(float(log_shares[b, t, 0]), np.log(float((predicted == word).sum()) / len(real)) - 2)]
        for s in range(given.shape[1]):
            if given[b, s]:
                scores = types @ states[b, s] / states.shape[-1] ** 0.5
                terms.append((float(log_shares[b, t, s + 1]), float(torch.log_softmax(scores, 0)[word - 1])))
        total -= sum(np.exp(share) * (found - share) for share, found in terms)
    return total / len(real)


def test_directions_that_say_the_same_do_not_disagree() -> None:
    made, batch = network(), paired().batch(np.array([3]))
    with torch.no_grad():
        maps = made(batch.source, batch.target)
        cells = torch.ones(1, 3, 5, dtype=torch.bool)
        assert float(disagreement(maps, cells)) > 0
        same = maps._replace(reverse=torch.log(torch.cat([torch.ones(1, 5, 1), maps.forward[..., 1:].exp().mT], -1)))
        assert float(disagreement(same, cells)) == pytest.approx(0, abs=1e-9)


def test_distance_from_the_diagonal_counts_words_of_the_longer_side() -> None:
    real = torch.tensor([[True] * 4]), torch.tensor([[True, True]])
    assert diagonal_distance(*real)[0].tolist() == [[-0.5, 0.5, 1.5, 2.5], [-2.5, -1.5, -0.5, 0.5]]
