"""Every choice is checked, and what cannot be is refused in words."""

import pytest
from transformers import AutoConfig
from variants import CASES, GRID, tiny_config

from hf_seq2seq_attn import Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration


def test_defaults_are_a_transformer_with_scaled_dot_product() -> None:
    config = Seq2SeqAttnConfig()
    assert (config.encoder_type, config.decoder_type, config.cross_attention_type) == (
        "transformer",
        "transformer",
        "scaled_dot_product",
    )
    assert config.cross_attention_heads == config.decoder_attention_heads
    assert config.attend_with is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"decoder_type": "gur"}, ["decoder_type='gur'", "transformer, gru, lstm", "did you mean 'gru'"]),
        ({"cross_attention_type": "bahdanau"}, ["cross_attention_type", "additive"]),
        ({"cross_attention_type": "none"}, ["cross_attention_type='none'", "recurrent decoder"]),
        ({"attend_with": "current_state"}, ["attend_with", "decoder_type='transformer'"]),
        ({"input_feeding": True}, ["input_feeding", "decoder_type='transformer'"]),
        ({"context_fusion": "gate"}, ["context_fusion", "decoder_type='transformer'"]),
        ({"encoder_bidirectional": True}, ["encoder_bidirectional", "encoder_type='transformer'"]),
        ({"cross_attention_type": "additive", "scale_scores": True}, ["scale_scores", "additive"]),
        ({"decoder_type": "gru", "cross_attention_type": "none", "null_key": True}, ["null_key", "none"]),
        (
            {"decoder_type": "gru", "cross_attention_type": "none", "cross_attention_heads": 2},
            ["cross_attention_heads", "none"],
        ),
        (
            {"decoder_type": "gru", "cross_attention_type": "none", "alignment_rows": "input"},
            ["alignment_rows", "none"],
        ),
        ({"encoder_type": "gru", "decoder_type": "gru", "normalize_before": True}, ["normalize_before", "gru"]),
        (
            {"decoder_type": "gru", "attend_with": "previous_state", "input_feeding": True},
            ["input_feeding", "previous_state"],
        ),
        ({"decoder_type": "gru", "cross_attention_heads": 3, "project_values": False}, ["project_values", "one head"]),
        ({"cross_attention_heads": 5}, ["cross_attention_dim", "12", "5"]),
        ({"encoder_type": "gru", "d_model": 15}, ["d_model=15", "even"]),
        ({"encoder_attention_heads": 5}, ["d_model=12", "encoder_attention_heads=5"]),
        ({"decoder_attention_heads": 0}, ["decoder_attention_heads=0", "at least 1"]),
        ({"dropout": 1.5}, ["dropout=1.5"]),
        ({"decoder_vocab_size": 11}, ["decoder_vocab_size=11", "share_encoder_decoder_embeddings=False"]),
        ({"decoder_start_token_id": None}, ["decoder_start_token_id"]),
        ({"decoder_start_token_id": 29}, ["decoder_start_token_id=29", "0 to 28"]),
        ({"activation_function": "rellu"}, ["activation_function='rellu'", "relu"]),
        ({"alignment_rows": "outputs"}, ["alignment_rows", "output"]),
        ({"alignment_layer": 2}, ["alignment_layer=2"]),
        ({"alignment_heads": [3]}, ["alignment_heads=[3]", "0 to 2"]),
        ({"cross_attention_typ": "additive"}, ["cross_attention_typ", "did you mean 'cross_attention_type'"]),
        ({"encoder_layer": 2}, ["encoder_layer", "did you mean 'encoder_layers'"]),
    ],
)
def test_what_cannot_be_is_refused_in_words(fields: dict, words: list[str]) -> None:
    with pytest.raises(ValueError) as refusal:
        tiny_config(**fields)
    for word in words:
        assert word in str(refusal.value)


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
def test_survives_json_with_the_same_meaning(fields: dict, tmp_path) -> None:
    config = tiny_config(**fields)
    config.save_pretrained(tmp_path)
    again = AutoConfig.from_pretrained(tmp_path)
    assert type(again) is Seq2SeqAttnConfig
    saved = {name: value for name, value in config.to_dict().items() if not name.startswith("_")}
    assert {name: again.to_dict()[name] for name in saved} == saved


@pytest.mark.parametrize("variant", GRID, ids="-".join)
def test_decoder_view_describes_the_decoder_and_loses_nothing(variant: tuple[str, str, str]) -> None:
    encoder, decoder, attention = variant
    config = tiny_config(
        encoder_type=encoder,
        decoder_type=decoder,
        cross_attention_type=attention,
        decoder_layers=3,
        decoder_vocab_size=23,
        share_encoder_decoder_embeddings=False,
    )
    view = config.get_text_config(decoder=True)
    assert (view.num_hidden_layers, view.vocab_size, view.decoder_type) == (3, 23, decoder)
    assert view.encoder_type == encoder
    assert (config.num_hidden_layers, config.vocab_size) == (2, 29)
    assert config.get_text_config() is config


def test_an_assigned_clash_is_caught_when_a_model_is_built() -> None:
    config = tiny_config(encoder_type="gru")
    config.d_model = 13
    with pytest.raises(ValueError, match="d_model=13"):
        Seq2SeqAttnForConditionalGeneration(config)


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({}, {"encoder_type": "gru"}),
        ({}, {"decoder_type": "gru"}),
        ({}, {"cross_attention_type": "additive"}),
        ({"decoder_type": "gru"}, {"cross_attention_type": "none"}),
        (
            {"decoder_type": "lstm", "encoder_type": "gru"},
            {"decoder_type": "transformer", "encoder_type": "transformer"},
        ),
        ({}, {"vocab_size": 50}),
    ],
)
def test_a_model_of_changed_fields_is_the_model_that_they_name(fields: dict, changes: dict, tmp_path) -> None:
    """Defaults written out for the old variant must not stick to the new one, in memory or on disk."""
    config = tiny_config(**fields)
    for field, value in changes.items():
        setattr(config, field, value)
    model = Seq2SeqAttnForConditionalGeneration(config)
    fresh = Seq2SeqAttnForConditionalGeneration(tiny_config(**{**fields, **changes}))
    for field in ("encoder_bidirectional", "attend_with", "context_fusion", "scale_scores", "decoder_vocab_size"):
        assert getattr(model.config, field) == getattr(fresh.config, field), field
    model.save_pretrained(tmp_path)
    again = Seq2SeqAttnForConditionalGeneration.from_pretrained(tmp_path)
    assert all((a == b).all() for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_a_choice_of_the_user_that_is_no_longer_read_is_refused_not_dropped() -> None:
    config = tiny_config(decoder_type="gru", context_fusion="gate")
    config.decoder_type = "transformer"
    with pytest.raises(ValueError, match="context_fusion='gate' is not read"):
        Seq2SeqAttnForConditionalGeneration(config)
