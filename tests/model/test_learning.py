"""Left alone with the task, attention finds the alignment: copying is the diagonal, reversing the anti-diagonal."""

import functools

import pytest
import torch
from variants import tiny_config

from hf_seq2seq_attn import Seq2SeqAttnForConditionalGeneration

WORDS, EOS = 12, 2
TRAINED_LENGTHS, UNSEEN_LENGTHS = (3, 4, 6, 7, 9, 10), (5, 8, 11)
STEPS = 700


def sentences(count: int, length: int, reverse: bool, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random source ids and the same, or the same reversed, as labels; both end in EOS."""
    words = torch.randint(3, WORDS + 3, (count, length), generator=generator)
    end = torch.full((count, 1), EOS)
    return torch.cat([words, end], 1), torch.cat([words.flip(1) if reverse else words, end], 1)


@functools.cache
def trained(attention: str, reverse: bool, seed: int) -> Seq2SeqAttnForConditionalGeneration:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    config = tiny_config(
        encoder_type="gru", decoder_type="gru", cross_attention_type=attention, vocab_size=WORDS + 3,
        d_model=48, encoder_layers=1, decoder_layers=1, dropout=0.0,
    )  # fmt: skip
    model = Seq2SeqAttnForConditionalGeneration(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, STEPS)
    for _ in range(STEPS):
        length = TRAINED_LENGTHS[int(torch.randint(len(TRAINED_LENGTHS), (), generator=generator))]
        ids, labels = sentences(32, length, reverse, generator)
        optimizer.zero_grad()
        model(ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("task", ["copy", "reverse"])
@pytest.mark.parametrize("attention", ["scaled_dot_product", "additive"])
def test_attention_learns_the_alignment_by_itself(attention: str, task: str, seed: int) -> None:
    model = trained(attention, task == "reverse", seed)
    generator = torch.Generator().manual_seed(100 + seed)
    for length in UNSEEN_LENGTHS:
        ids, labels = sentences(200, length, task == "reverse", generator)
        with torch.no_grad():
            (weights,) = model(ids, labels=labels, output_attentions=True).cross_attentions
        wanted = torch.arange(length)
        wanted = wanted.flip(0) if task == "reverse" else wanted
        # Row t predicts target word t, so it must look at the source word that becomes it.
        looked_at = weights[:, 0, :length].argmax(-1)
        assert (looked_at == wanted).float().mean() >= 0.95, f"length {length}"


def test_what_was_learned_ends_by_itself() -> None:
    """transformers #22794, #23833: without a learned end token generation runs into its limit."""
    model = trained("additive", False, 0)
    generator = torch.Generator().manual_seed(7)
    for length in TRAINED_LENGTHS:
        ids, labels = sentences(100, length, False, generator)
        said = model.generate(ids, max_new_tokens=3 * length)[:, 1:]
        ended = (said == EOS).int().argmax(1) + 1
        assert (said == EOS).any(1).float().mean() > 0.99
        assert (ended == length + 1).float().mean() > 0.9, f"length {length}"
        assert (said[:, : length + 1] == labels).all(1).float().mean() > 0.8
