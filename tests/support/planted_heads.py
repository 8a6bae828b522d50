"""Corpora of attention maps, and models, in which one head is known to hold the alignment."""

from typing import Any

import numpy as np
import torch
from variants import tiny_model

from hf_seq2seq_attn.probing import AttentionMaps, Gold, TokenizedText

LAYERS, HEADS = 3, 4
VOCABULARY = 23


def text(words: int, end: bool = True) -> TokenizedText:
    """Return one token a word and an end token."""
    names = [f"word{n}" for n in range(words)]
    tokens = [*names, "</s>"] if end else names
    word_of: list[int | None] = [*range(words), *([None] if end else [])]
    return TokenizedText(" ".join(names), list(range(len(tokens))), tokens, [None] * len(tokens), names, word_of)


def random_weights(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Return rows that sum to 1."""
    return generator.dirichlet(np.full(shape[-1], 0.5), shape[:-1]).astype(np.float32)


def permuted_gold(generator: np.random.Generator, words: int) -> Gold:
    """Return a one-to-one alignment that no fixed offset explains."""
    order = generator.permutation(words)
    links = frozenset(zip(order.tolist(), range(words), strict=True))
    return Gold(links, links)


def aligning(gold: Gold, source: int, target: int, share: float = 0.9) -> np.ndarray:
    """Return a map (target + 1, source + 1) that puts `share` of each row on the gold links, the rest evenly."""
    weights = np.full((target + 1, source + 1), (1 - share) / source, dtype=np.float32)
    weights[-1] = 0
    weights[-1, -1] = 1
    for i, j in gold.sure:
        weights[j, i] = share
    weights[:, -1] = np.clip(1 - weights[:, :-1].sum(axis=1), 0, 1)
    return weights


def corpus(
    pairs: int = 12, seed: int = 0, rows: str = "output", layers: int = LAYERS, heads: int = HEADS
) -> tuple[list[AttentionMaps], list[Gold]]:
    """Return maps whose heads are all random, of as many pairs of unequal length, and one-to-one gold."""
    generator = np.random.default_rng(seed)
    maps, gold = [], []
    for number in range(pairs):
        words = 4 + number % 5
        gold.append(permuted_gold(np.random.default_rng(1000 + number), words))
        weights = random_weights(generator, layers, heads, words + 1, words + 1)
        maps.append(AttentionMaps(weights, text(words), text(words), rows, tuple(range(layers)), tuple(range(heads))))
    return maps, gold


def plant(maps: list[AttentionMaps], gold: list[Gold], layer: int, head: int, share: float = 0.9) -> None:
    """Let one head hold the alignment."""
    for pair, manual in zip(maps, gold, strict=True):
        size = len(pair.source_words)
        pair.weights[pair.layers.index(layer), pair.heads.index(head)] = aligning(manual, size, size, share)


def reversed_gold(gold: list[Gold]) -> list[Gold]:
    """Return the gold of the other direction."""
    turned = [frozenset((j, i) for i, j in manual.sure) for manual in gold]
    return [Gold(links, links) for links in turned]


def lookup_model(layer: int, head: int, seed: int = 0, speak: float = 0.0) -> Any:
    """Return a model of 2 layers and 3 heads in which one head looks at the source word that the decoder reads, and
    the others at random.

    With `speak` above 0 that head's context makes the model predict the next word, `w5` after `w4`.
    """
    width = 24
    model = tiny_model(
        seed,
        None,
        vocab_size=VOCABULARY,
        d_model=width,
        decoder_layers=2,
        encoder_layers=1,
        cross_attention_heads=3,
        cross_attention_dim=3 * width,
        normalize_before=True,
    )
    torch.manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Residual branches add nothing, so that states are embeddings.
            if name.endswith(("out_proj.weight", "fc2.weight")) or (name.endswith("bias") and "layer_norm" not in name):
                parameter.zero_()
        table = model.get_input_embeddings().weight
        table.normal_(std=5.0)
        for number, block in enumerate(model.model.decoder.layers):
            block.encoder_attn.q_proj.weight.normal_(std=0.5)
            block.encoder_attn.k_proj.weight.normal_(std=0.5)
            if number == layer:
                own = slice(head * width, (head + 1) * width)
                block.encoder_attn.q_proj.weight[own] = torch.eye(width) * 3
                block.encoder_attn.k_proj.weight[own] = torch.eye(width) * 3
        if speak:
            _speak(model, layer, head, speak)
    return model


def _speak(model: Any, layer: int, head: int, strength: float) -> None:
    """Let the head's context be the embedding of the word after the one that it looks at."""
    attention = model.model.decoder.layers[layer].encoder_attn
    table = model.get_input_embeddings().weight
    normed = torch.nn.functional.layer_norm(table, table.shape[1:])
    width = table.shape[1] // attention.heads
    # The head has a third of the width: it carries the embedding's best such part, and the output projection the rest.
    wanted = torch.linalg.lstsq(normed[:-1], normed[1:]).solution.T
    left, strengths, right = torch.linalg.svd(wanted)
    own = slice(head * width, (head + 1) * width)
    attention.v_proj.weight[own] = right[:width]
    attention.out_proj.weight[:, own] = strength * left[:, :width] * strengths[:width]
