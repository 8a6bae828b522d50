"""Heads chosen by agreement and by AER: a planted head is found at any index, sets grow when they help."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from planted_heads import HEADS, LAYERS, aligning, corpus, lookup_model, plant, reversed_gold
from probes import word_tokenizer

from hf_seq2seq_attn.probing import AttentionMaps, Gold, alignment_error_rate, extract
from hf_seq2seq_attn.probing.head_choice import agreements, choose_by_aer, choose_by_agreement, error_rates
from hf_seq2seq_attn.probing.head_words import link_masks, stack_words

PLACES = list(product(("output", "input"), range(LAYERS), range(HEADS)))


def both_rows(seed: int) -> tuple[dict[str, list[AttentionMaps]], list[Gold]]:
    output, gold = corpus(seed=seed, rows="output")
    return {"output": output, "input": corpus(seed=seed + 50, rows="input")[0]}, gold


@pytest.mark.parametrize(("rows", "layer", "head"), PLACES)
def test_a_planted_head_is_found_by_agreement_at_any_index(rows: str, layer: int, head: int) -> None:
    forward, gold = both_rows(1)
    reverse, _ = both_rows(2)
    plant(forward[rows], gold, layer, head)
    # The other model's head lies elsewhere.
    other_rows, other_layer, other_head = PLACES[(PLACES.index((rows, layer, head)) + 7) % len(PLACES)]
    plant(reverse[other_rows], reversed_gold(gold), other_layer, other_head)
    choice = choose_by_agreement(forward, reverse)
    assert (choice.best.candidate.align_with, choice.best.candidate.heads) == (rows, ((layer, head),))
    assert choice.best.score == 1
    assert choice.reverse is not None
    assert (choice.reverse.align_with, choice.reverse.heads) == (other_rows, ((other_layer, other_head),))
    assert choice.tried[0].candidate == choice.best.candidate
    assert max(each.score for each in choice.tried if (layer, head) not in each.candidate.heads) < 0.6


@pytest.mark.parametrize(("rows", "layer", "head"), PLACES)
def test_a_planted_head_is_found_by_aer_at_any_index(rows: str, layer: int, head: int) -> None:
    maps, gold = both_rows(3)
    plant(maps[rows], gold, layer, head)
    choice = choose_by_aer(maps, gold)
    assert (choice.best.candidate.align_with, choice.best.candidate.heads) == (rows, ((layer, head),))
    assert choice.best.score == 0
    assert len(choice.tried) == 2 * (LAYERS * HEADS + LAYERS)


def test_a_real_head_is_found_by_two_models_that_put_it_elsewhere() -> None:
    tokenizer = word_tokenizer()
    generator = np.random.default_rng(5)
    pairs = []
    for size in (5, 7, 4, 9, 6):
        words = [f"w{n}" for n in 4 + generator.permutation(19)[:size]]
        pairs.append((words, [words[place] for place in generator.permutation(size)]))
    sources, targets = [" ".join(source) for source, _ in pairs], [" ".join(target) for _, target in pairs]

    def maps_of(model: Any, first: list[str], second: list[str]) -> dict[str, list[AttentionMaps]]:
        return {
            rows: list(extract(model, tokenizer, first, second, align_with=rows, batch_size=2))
            for rows in ("output", "input")
        }

    forward, reverse = maps_of(lookup_model(1, 2), sources, targets), maps_of(lookup_model(0, 1, 9), targets, sources)
    choice = choose_by_agreement(forward, reverse)
    # The decoder looks up the word that it reads: input rows.
    assert (choice.best.candidate.align_with, choice.best.candidate.heads) == ("input", ((1, 2),))
    assert choice.best.score == 1
    assert choice.reverse is not None
    assert (choice.reverse.align_with, choice.reverse.heads) == ("input", ((0, 1),))
    gold = [
        Gold(links, links)
        for source, target in pairs
        for links in [frozenset((source.index(word), place) for place, word in enumerate(target))]
    ]
    by_aer = choose_by_aer(forward, gold)
    assert (by_aer.best.candidate, by_aer.best.score) == (choice.best.candidate, 0)


def test_agreements_and_error_rates_are_those_of_the_links() -> None:
    maps, gold = corpus(7, seed=11)
    other, _ = corpus(7, seed=12)
    gold[2] = Gold(frozenset(), gold[2].sure)
    gold[4] = Gold(frozenset(sorted(gold[4].sure)[:2]), gold[4].sure)
    masks = link_masks([stack_words(each, each.weights.reshape(-1, *each.weights.shape[2:])) for each in maps])
    back = link_masks([stack_words(each, each.weights.reshape(-1, *each.weights.shape[2:])) for each in other])

    def links(all_masks: list[np.ndarray], head: int) -> list[frozenset[tuple[int, int]]]:
        return [frozenset((int(i), int(j)) for j, i in np.argwhere(mask[head])) for mask in all_masks]

    found = agreements(masks, back)
    rates = error_rates(masks, gold)
    for head in range(LAYERS * HEADS):
        ours = links(masks, head)
        assert rates[head] == pytest.approx(alignment_error_rate(ours, gold))
        theirs = links(back, 3)
        both = sum(len(one & two) for one, two in zip(ours, theirs, strict=True))
        assert found[head, 3] == pytest.approx(2 * both / (sum(map(len, ours)) + sum(map(len, theirs))))


def test_without_any_links_there_is_no_agreement_and_no_error() -> None:
    nothing = [np.zeros((2, 3, 4), dtype=bool)]
    assert agreements(nothing, nothing).tolist() == [[0, 0], [0, 0]]
    assert error_rates(nothing, [Gold(frozenset(), frozenset())]).tolist() == [0, 0]


def halves(maps: list[AttentionMaps], gold: list[Gold], first: tuple[int, int], second: tuple[int, int]) -> None:
    """Let one head know the even target words, another the odd ones; on the others they do not care."""
    for pair, manual in zip(maps, gold, strict=True):
        size = len(pair.source_words)
        for rest, (layer, head) in enumerate((first, second)):
            part = frozenset(link for link in manual.sure if link[1] % 2 == rest)
            weights = aligning(Gold(part, part), size, size, 0.8)
            weights[:size][1 - rest :: 2] = 1 / (size + 1)
            pair.weights[layer, head] = weights


@pytest.mark.parametrize("criterion", ["aer", "agreement"])
def test_two_heads_that_know_half_each_are_averaged(criterion: str) -> None:
    maps, gold = corpus(seed=21)
    halves(maps, gold, (0, 3), (2, 1))
    if criterion == "aer":
        choice = choose_by_aer({"output": maps}, gold)
        assert choice.best.score == 0
        alone = choose_by_aer({"output": maps}, gold, max_heads=1)
    else:
        back, _ = corpus(seed=22)
        plant(back, reversed_gold(gold), 1, 1)
        choice = choose_by_agreement({"output": maps}, {"output": back})
        assert choice.best.score == 1
        alone = choose_by_agreement({"output": maps}, {"output": back}, max_heads=1)
    assert choice.best.candidate.heads == ((0, 3), (2, 1))
    assert "0.3" in choice.best.candidate.name
    assert len(alone.best.candidate.heads) == 1
    assert abs(alone.best.score - choice.best.score) > 0.1


def test_both_directions_may_need_sets() -> None:
    maps, gold = corpus(seed=23)
    back, _ = corpus(seed=24)
    halves(maps, gold, (0, 0), (1, 2))
    halves(back, reversed_gold(gold), (2, 3), (0, 1))
    choice = choose_by_agreement({"output": maps}, {"output": back})
    assert choice.best.candidate.heads == ((0, 0), (1, 2))
    assert choice.reverse is not None
    assert choice.reverse.heads == ((0, 1), (2, 3))
    assert choice.best.score == 1


def test_the_guided_head_of_opus_mt_is_a_candidate_and_wins_ties() -> None:
    maps, gold = both_rows(31)
    for rows in maps:
        for layer, head in product(range(LAYERS), range(HEADS)):
            plant(maps[rows], gold, layer, head)
    choice = choose_by_aer(maps, gold)
    assert choice.best.candidate.heads == ((LAYERS - 1, 0),)
    assert choice.best.candidate.align_with == "output"
    assert choice.best.candidate.name == "layer 2, head 0, output rows"


def test_a_layers_mean_can_win() -> None:
    maps, gold = corpus(seed=41)
    for pair, manual in zip(maps, gold, strict=True):
        size = len(pair.source_words)
        for head in range(HEADS):
            # Each head is misled on other words; together they know.
            links = set(manual.sure)
            for i, j in sorted(manual.sure):
                if j % HEADS == head:
                    links = links - {(i, j)} | {((i + 1) % size, j)}
            pair.weights[1, head] = aligning(Gold(frozenset(links), frozenset(links)), size, size, 0.8)
    choice = choose_by_aer({"output": maps}, gold, max_heads=1)
    assert choice.best.candidate.heads == tuple((1, head) for head in range(HEADS))
    assert choice.best.candidate.name == f"layer 1, mean of {HEADS} heads, output rows"
    assert choice.best.score == 0


def test_links_and_specials_are_those_asked_for() -> None:
    maps, gold = corpus(seed=51)
    plant(maps, gold, 1, 1, share=0.45)
    strict = choose_by_aer({"output": maps}, gold, links="threshold:0.5")
    assert strict.best.score > 0.2
    assert (strict.links, strict.specials) == ("threshold:0.5", "mask")
    for pair in maps:
        pair.weights[1, 1, :, -1] = 0.5
    assert choose_by_aer({"output": maps}, gold).best.score == 0
    assert choose_by_aer({"output": maps}, gold, specials="null").best.score > 0.2


def test_norms_are_chosen_one_head_or_layer_at_a_time() -> None:
    from probes import SENTENCES, foreign_model, subword_tokenizer

    maps = list(extract(foreign_model("marian"), subword_tokenizer(), SENTENCES, SENTENCES[::-1], weights="norm"))
    gold = [Gold(frozenset({(0, 0)}), frozenset({(0, 0)}))] * 4
    best = choose_by_aer({"input": maps}, gold).best.candidate
    assert len(best.heads) in (1, 3)
    with pytest.raises(ValueError, match="raw norms"):
        choose_by_aer(
            {"input": list(extract(foreign_model("marian"), subword_tokenizer(), ["a"], ["a"], weights="raw_norm"))},
            gold[:1],
        )


def test_what_cannot_be_chosen_on_is_refused() -> None:
    maps, gold = corpus(3)
    with pytest.raises(ValueError, match="3 sentence pairs but 2 of dev"):
        choose_by_aer({"output": maps}, gold[:2])
    with pytest.raises(ValueError, match="no sentence pair"):
        choose_by_aer({"output": []}, [])
    with pytest.raises(ValueError, match="dev has no link"):
        choose_by_aer({"output": maps}, [Gold(frozenset(), frozenset())] * 3)
    with pytest.raises(ValueError, match="sentence 2: gold goes beyond its 5 source and 5 target words"):
        far = frozenset({(5, 0)})
        choose_by_aer({"output": maps}, [gold[0], Gold(far, far), gold[2]])
    with pytest.raises(ValueError, match="3 forward pairs but 2 reverse"):
        choose_by_agreement({"output": maps}, {"output": maps[:2]})
    with pytest.raises(ValueError, match="pair 1: the reverse model's source"):
        choose_by_agreement({"output": maps}, {"output": maps[1:] + maps[:1]})
    with pytest.raises(ValueError, match="maps has the rows"):
        choose_by_aer({"output": maps, "input": maps[:1]}, gold)


def test_a_choice_is_plain_json() -> None:
    import json

    maps, gold = corpus(3)
    plant(maps, gold, 0, 2)
    back, _ = corpus(3, seed=5)
    plant(back, reversed_gold(gold), 1, 0)
    values = json.loads(json.dumps(choose_by_agreement({"output": maps}, {"output": back}).as_dict()))
    assert values["heads"] == [[0, 2]]
    assert values["reverse"]["heads"] == [[1, 0]]
    assert values["better"] == "higher"
    assert values["tried"][0]["score"] == values["score"] == 1
