import pytest
import torch
from guided_toys import NAMES, guided_model
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from hf_seq2seq_attn.training.collation import Seq2SeqCollator, decoder_inputs

ROWS = [
    {"input_ids": [5, 6, 7, 8, 2], "labels": [9, 2], "guide": [[0, 3], [0, 1]], "length": 7},
    {"input_ids": [5, 2], "attention_mask": [1, 1], "labels": [9, 10, 11, 2], "guide": []},
    {"input_ids": [5, 6, 2], "attention_mask": [1, 1, 1], "labels": [9, 10, 2]},
]


@pytest.fixture(scope="module")
def model() -> MarianMTModel:
    torch.manual_seed(0)
    return MarianMTModel(
        MarianConfig(
            vocab_size=30,
            d_model=8,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=8,
            decoder_ffn_dim=8,
            pad_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=0,
        )
    )


def test_shapes_padding_and_guide(toy_tokenizer: PreTrainedTokenizerFast, model: MarianMTModel) -> None:
    batch = Seq2SeqCollator(toy_tokenizer, model)(ROWS)
    assert set(batch) == {"input_ids", "attention_mask", "labels", "decoder_input_ids", "guide"}
    assert batch["input_ids"].tolist()[1] == [5, 2, 0, 0, 0]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]
    assert batch["labels"].tolist()[0] == [9, 2, -100, -100]
    assert batch["decoder_input_ids"].tolist()[2] == [0, 9, 10, 2]
    assert batch["guide"].shape == (3, 4, 5)
    assert batch["guide"].nonzero().tolist() == [[0, 0, 1], [0, 0, 3]]
    assert batch["guide"].max() == 1


def test_without_links_and_without_a_model(toy_tokenizer: PreTrainedTokenizerFast) -> None:
    assert set(Seq2SeqCollator(toy_tokenizer)(ROWS[2:])) == {"input_ids", "attention_mask", "labels"}


def test_lengths_may_be_rounded_up(toy_tokenizer: PreTrainedTokenizerFast) -> None:
    batch = Seq2SeqCollator(toy_tokenizer, pad_to_multiple_of=4)(ROWS)
    assert batch["input_ids"].shape == (3, 8)
    assert batch["guide"].shape == (3, 4, 8)


@pytest.mark.parametrize("guide", [[[2, 0]], [[0, 5]], [[-1, 0]], [[0, -1]]])
def test_a_guide_beyond_its_sentence_is_refused(toy_tokenizer: PreTrainedTokenizerFast, guide: list[list[int]]) -> None:
    # The other row is longer, so that the tensor itself would have room.
    rows = [{**ROWS[0], "guide": guide}, {"input_ids": [5] * 9, "labels": [9] * 9}]
    with pytest.raises(ValueError, match=r"guide of row 0 leaves the [25] "):
        Seq2SeqCollator(toy_tokenizer)(rows)


@pytest.mark.parametrize("name", NAMES)
def test_decoder_inputs_are_what_the_model_makes_of_labels(name: str) -> None:
    model = guided_model(name, 30).eval()
    source, labels = torch.tensor([[5, 6, 2], [7, 2, 0]]), torch.tensor([[9, 11, 10, 2], [9, 2, -100, -100]])
    inputs = {"input_ids": source, "attention_mask": source.ne(0).long()}
    made = model(**inputs, decoder_input_ids=decoder_inputs(model, labels)).logits
    torch.testing.assert_close(made, model(**inputs, labels=labels).logits)


def test_a_model_that_cannot_shift_is_refused_in_words() -> None:
    model = guided_model("m2m_100", 30)
    model.config.decoder_start_token_id = None
    with pytest.raises(ValueError, match="M2M100ForConditionalGeneration does not say how labels become"):
        decoder_inputs(model, torch.tensor([[9, 2]]))
