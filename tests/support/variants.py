"""The grid of models that the tests run over, tiny and with odd, unequal sizes so that swapped axes show."""

import itertools

import torch

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration

BATCH, SOURCE, TARGET, HEADS, WIDTH = 2, 7, 5, 3, 12
SOURCE_VOCAB, TARGET_VOCAB = 29, 23
PAD, BOS, EOS = 0, 1, 2

SIDES = ("transformer", "gru", "lstm")
GRID = [
    (encoder, decoder, attention)
    for encoder, decoder in itertools.product(SIDES, SIDES)
    for attention in ("scaled_dot_product", "additive", "none")
    if not (attention == "none" and decoder == "transformer")
]
assert len(GRID) == 24

# One step away from the grid: every other choice at least once.
OPTIONS = {
    "previous_state": dict(
        encoder_type="gru", decoder_type="gru", cross_attention_type="additive", attend_with="previous_state"
    ),
    "previous_state_lstm_heads": dict(
        encoder_type="gru",
        decoder_type="lstm",
        cross_attention_type="additive",
        attend_with="previous_state",
        cross_attention_heads=HEADS,
    ),
    "previous_state_none": dict(
        encoder_type="gru", decoder_type="gru", cross_attention_type="none", attend_with="previous_state"
    ),
    "input_feeding": dict(encoder_type="lstm", decoder_type="lstm", input_feeding=True),
    "input_feeding_gate": dict(encoder_type="gru", decoder_type="gru", input_feeding=True, context_fusion="gate"),
    "add_heads": dict(
        encoder_type="transformer",
        decoder_type="gru",
        cross_attention_type="additive",
        context_fusion="add",
        cross_attention_heads=HEADS,
    ),
    "null_key": dict(encoder_type="gru", decoder_type="gru", null_key=True),
    "null_key_additive_heads": dict(cross_attention_type="additive", null_key=True, cross_attention_dim=9),
    "unscaled_unidirectional": dict(
        encoder_type="gru", decoder_type="lstm", encoder_bidirectional=False, scale_scores=False
    ),
    "pre_norm_learned": dict(normalize_before=True, position_embedding_type="learned", scale_embedding=False),
    "unprojected_values": dict(cross_attention_heads=1, project_values=False),
    "untied": dict(tie_word_embeddings=False),
    "two_vocabularies": dict(decoder_vocab_size=TARGET_VOCAB, share_encoder_decoder_embeddings=False),
    "two_vocabularies_untied": dict(
        decoder_type="gru",
        decoder_vocab_size=TARGET_VOCAB,
        share_encoder_decoder_embeddings=False,
        tie_word_embeddings=False,
    ),
}
CASES = {
    "-".join(variant): dict(zip(("encoder_type", "decoder_type", "cross_attention_type"), variant, strict=True))
    for variant in GRID
}
CASES |= OPTIONS
ATTENTIVE = {name: fields for name, fields in CASES.items() if fields.get("cross_attention_type") != "none"}


def tiny_config(**fields: object) -> Seq2SeqAttnConfig:
    """Return a tiny configuration; fields override."""
    return Seq2SeqAttnConfig(
        **{
            "vocab_size": SOURCE_VOCAB,
            "d_model": WIDTH,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": HEADS,
            "decoder_attention_heads": HEADS,
            "encoder_ffn_dim": 10,
            "decoder_ffn_dim": 14,
            **fields,
        }
    )


def tiny_model(seed: int = 0, sharp: float | None = 0.5, **fields: object) -> Seq2SeqAttnForConditionalGeneration:
    """Return a tiny model in eval mode; `sharp` is the standard deviation of its weights (None = as initialised).

    Sharp random weights make different tokens, beams and rows different enough for a fault to show. Norms stay near
    1: scaled at random they would let a Transformer decoder say one token for ever.
    """
    torch.manual_seed(seed)
    model = Seq2SeqAttnForConditionalGeneration(tiny_config(**fields)).eval()
    if sharp is not None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "layer_norm" in name:
                    parameter.normal_(float(name.endswith("weight")), 0.1)
                else:
                    parameter.normal_(std=sharp)
    return model


def source_batch(seed: int = 0, batch: int = 3, length: int = SOURCE) -> tuple[torch.Tensor, torch.Tensor]:
    """Return source ids (B, S) and mask, right-padded, row i shorter by 2 i tokens."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, SOURCE_VOCAB, (batch, length), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(batch):
        mask[row, length - 2 * row :] = 0 if row else 1
    return ids.masked_fill(mask == 0, PAD), mask


def target_batch(seed: int = 1, batch: int = 3, length: int = TARGET) -> torch.Tensor:
    """Return target ids (B, T) below both vocabulary sizes."""
    return torch.randint(3, TARGET_VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed))
