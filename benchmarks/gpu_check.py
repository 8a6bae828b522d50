"""Check on a GPU what the tests check on a CPU: bf16 training, generation and attention maps, with both attentions.

`make gpu-check` runs it. Without a GPU it says so and checks nothing; `--device cpu` tries it anyway.
"""

import argparse
import itertools
import sys
import time

import torch
from torch import Tensor

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration

ATTENTIONS = ("additive", "scaled_dot_product")
SIDES = ("transformer", "gru", "lstm")
STEPS = 30


def build(encoder: str, decoder: str, attention: str, device: torch.device) -> Seq2SeqAttnForConditionalGeneration:
    """Return a small fp32 model with random weights."""
    torch.manual_seed(0)
    config = Seq2SeqAttnConfig(
        vocab_size=97,
        d_model=128,
        encoder_type=encoder,
        decoder_type=decoder,
        cross_attention_type=attention,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
        dropout=0.0,
    )
    return Seq2SeqAttnForConditionalGeneration(config).to(device)


def copy_batch(device: torch.device) -> dict[str, Tensor]:
    """Return sentences of unequal lengths, padded on the right, whose targets are copies of them."""
    rows, longest = 33, 19
    lengths = torch.arange(rows) % (longest - 4) + 5
    mask = torch.arange(longest) < lengths[:, None]
    tokens = torch.randint(3, 97, (rows, longest)).where(mask, 0)
    batch = {"input_ids": tokens, "attention_mask": mask.long(), "labels": tokens.where(mask, -100)}
    return {field: tensor.to(device) for field, tensor in batch.items()}


def check_training(model: Seq2SeqAttnForConditionalGeneration, batch: dict[str, Tensor]) -> str:
    """Train for some bf16 steps on one batch; the loss must stay finite and fall, every gradient be finite."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(STEPS):
        with torch.autocast(model.device.type, dtype=torch.bfloat16):
            loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    first, *_, last = torch.stack(losses).tolist()
    assert last < 0.9 * first, f"the loss did not fall: {first:.3f} -> {last:.3f}"
    unreached = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert not unreached, f"without a finite gradient: {unreached}"
    return f"loss {first:.2f} -> {last:.2f}"


@torch.no_grad()
def check_maps(model: Seq2SeqAttnForConditionalGeneration, batch: dict[str, Tensor]) -> None:
    """Rows of the bf16 maps must sum to 1 and be 0 on padding, and the fp32 maps be those of the CPU."""
    padding = batch["attention_mask"][:, None, None, :] == 0
    with torch.autocast(model.device.type, dtype=torch.bfloat16):
        half = model(**batch, output_attentions=True).cross_attentions
    for weights in half:
        assert (weights.float().sum(-1) - 1).abs().max() < 2e-2, "a row does not sum to 1"
        assert weights.masked_select(padding).abs().max() == 0, "a weight on padding"
    here = model(**batch, output_attentions=True)
    twin = build(
        model.config.encoder_type, model.config.decoder_type, model.config.cross_attention_type, torch.device("cpu")
    )
    twin.load_state_dict(model.state_dict())
    there = twin.eval()(**{field: tensor.cpu() for field, tensor in batch.items()}, output_attentions=True)
    for ours, reference in zip(here.cross_attentions, there.cross_attentions, strict=True):
        assert torch.allclose(ours.cpu(), reference, atol=1e-3), "the maps differ from the CPU's"


@torch.no_grad()
def check_generation(model: Seq2SeqAttnForConditionalGeneration, batch: dict[str, Tensor]) -> None:
    """Greedy search and 4 beams must give the same with and without a cache."""
    source = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    for beams in (1, 4):
        cached, plain = (
            model.generate(**source, num_beams=beams, max_new_tokens=11, use_cache=use_cache)
            for use_cache in (True, False)
        )
        same = (cached == plain).all(-1).float().mean() if cached.shape == plain.shape else torch.tensor(0.0)
        # Kernels for one query and for many round differently; near ties may fall the other way.
        assert same >= 0.9, f"{beams} beams: only {same:.0%} of the rows are the same with and without a cache"


def main() -> None:
    """Check all pairs of sides with both attentions; exit with an error at the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    device = torch.device(parser.parse_args().device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("gpu-check: no GPU here, nothing was checked")
        return
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"gpu-check: {name}, torch {torch.__version__}")
    # TF32 would blur the comparison of the maps with the CPU's.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for encoder, decoder, attention in itertools.product(SIDES, SIDES, ATTENTIONS):
        start = time.perf_counter()
        model, batch = build(encoder, decoder, attention, device), copy_batch(device)
        try:
            outcome = check_training(model, batch)
            model.eval()
            check_maps(model, batch)
            check_generation(model, batch)
        except AssertionError as error:
            sys.exit(f"FAILED {encoder} -> {decoder}, {attention}: {error}")
        print(f"ok {encoder:>11} -> {decoder:11} {attention:18} {outcome}, {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
