"""Positions, masks and norms of the Transformer sides."""

import numpy as np
import pytest
import torch
from variants import SOURCE, TARGET, source_batch, target_batch, tiny_model

from hf_seq2seq_attn.transformer import causal, sinusoids


def test_sinusoids_follow_the_paper() -> None:
    table = sinusoids(9, 6, torch.device("cpu")).numpy()
    for position in range(9):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            np.testing.assert_allclose(table[position, 2 * i : 2 * i + 2], [np.sin(angle), np.cos(angle)], atol=1e-6)


def test_a_row_reads_itself_and_the_past_but_no_padding() -> None:
    mask = torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    readable = causal(3, 2, mask, torch.device("cpu"))
    assert readable.shape == (2, 1, 3, 5)
    assert readable[0, 0].tolist() == [
        [False, True, True, False, False],
        [False, True, True, True, False],
        [False, True, True, True, True],
    ]
    assert readable[1, 0, 2].tolist() == [True, True, True, True, False]


def test_learned_positions_end_with_a_sentence_that_says_what_to_do() -> None:
    model = tiny_model(position_embedding_type="learned", max_position_embeddings=SOURCE - 1)
    ids, mask = source_batch()
    with pytest.raises(ValueError, match="max_position_embeddings=6"):
        model(ids, attention_mask=mask, decoder_input_ids=target_batch())


def test_sinusoidal_positions_have_no_end() -> None:
    model = tiny_model(max_position_embeddings=SOURCE - 1)
    ids, mask = source_batch()
    assert torch.isfinite(model(ids, attention_mask=mask, decoder_input_ids=target_batch()).logits).all()


@pytest.mark.parametrize("fields", [{}, {"position_embedding_type": "learned"}])
def test_order_matters(fields: dict) -> None:
    model = tiny_model(**fields)
    ids = torch.tensor([[5, 6, 7, 8]])
    target = target_batch(batch=1)
    one, other = model(ids, decoder_input_ids=target).logits, model(ids.flip(1), decoder_input_ids=target).logits
    assert not torch.allclose(one, other, atol=1e-3)


def test_a_row_does_not_see_the_future() -> None:
    model = tiny_model()
    ids, mask = source_batch()
    target = target_batch()
    changed = target.clone()
    changed[:, 3:] = 3
    one = model(ids, attention_mask=mask, decoder_input_ids=target).logits
    other = model(ids, attention_mask=mask, decoder_input_ids=changed).logits
    assert torch.allclose(one[:, :3], other[:, :3], atol=1e-5)
    assert not torch.allclose(one[:, 3:], other[:, 3:], atol=1e-3)


@pytest.mark.parametrize("decoder", ["transformer", "gru"])
def test_a_decoder_mask_of_the_wrong_length_is_refused(decoder: str) -> None:
    model = tiny_model(decoder_type=decoder)
    ids, mask = source_batch()
    for width in (TARGET - 1, TARGET + 1):
        with pytest.raises(ValueError, match=f"decoder_attention_mask has {width} columns"):
            model(
                ids,
                attention_mask=mask,
                decoder_input_ids=target_batch(),
                decoder_attention_mask=torch.ones(3, width),
            )


def test_last_hidden_state_is_the_last_of_the_hidden_states() -> None:
    for fields in ({}, {"normalize_before": True}):
        model = tiny_model(**fields)
        ids, mask = source_batch()
        output = model.model(ids, attention_mask=mask, decoder_input_ids=target_batch(), output_hidden_states=True)
        assert torch.equal(output.last_hidden_state, output.decoder_hidden_states[-1])
        assert torch.equal(output.encoder_last_hidden_state, output.encoder_hidden_states[-1])
        assert len(output.decoder_hidden_states) == 3
