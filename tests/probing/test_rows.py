"""Which row speaks of which target word: the input row of y_i is the first that changes when y_i does, the output row
is the one that predicts y_i. One row off turns correct alignments into noise."""

from typing import Any

import numpy as np
import pytest
import torch
from probes import EOS, PAD, foreign_model, word_tokenizer
from variants import ATTENTIVE, tiny_model

from hf_seq2seq_attn.probing import default_rows, extract, row_offset

FOREIGN = ("marian", "bart", "m2m_100", "t5")
SOURCE, TARGET = [5, 9, 14, 7, 20, 4], [8, 6, 17, 11]


def model_of(case: str) -> Any:
    return foreign_model(case) if case in FOREIGN else tiny_model(seed=1, **ATTENTIVE[case])  # type: ignore[arg-type]


def raw_maps(model: Any, target: list[int]) -> np.ndarray:
    """Return the maps (L, H, rows, S) of decoder inputs [start] + target + end + one more, straight from the model."""
    start = model.config.decoder_start_token_id
    with torch.no_grad():
        outputs = model(
            input_ids=torch.tensor([[*SOURCE, EOS]]),
            decoder_input_ids=torch.tensor([[start, *target, EOS, PAD]]),
            output_attentions=True,
        )
    return torch.cat(outputs.cross_attentions).numpy()


def extracted(model: Any, align_with: str) -> np.ndarray:
    def words(ids: list[int]) -> list[str]:
        return [f"w{number}" for number in ids]

    (maps,) = extract(model, word_tokenizer(), [words(SOURCE)], [words(TARGET)], align_with=align_with)
    assert maps.source_tokens == [*words(SOURCE), "</s>"]
    assert maps.target_tokens == [*words(TARGET), "</s>"]
    assert maps.align_with == align_with
    return maps.weights


@pytest.mark.parametrize("case", [*FOREIGN, *ATTENTIVE])
def test_rows_of_every_model(case: str) -> None:
    model = model_of(case)
    whole = raw_maps(model, TARGET)
    by_input, by_output = extracted(model, "input"), extracted(model, "output")
    assert by_input.shape == by_output.shape == (*whole.shape[:2], len(TARGET) + 1, len(SOURCE) + 1)
    for i in range(len(TARGET)):
        replaced = [*TARGET[:i], 21, *TARGET[i + 1 :]]
        changes = np.abs(raw_maps(model, replaced) - whole).max(axis=(0, 1, 3)) > 1e-6
        first = int(changes.argmax())
        assert changes[first], f"y_{i} changes no row"
        assert first == i + row_offset(model.config, "input")
        np.testing.assert_allclose(by_input[:, :, i], whole[:, :, first], atol=1e-5)
        # Position i reads y_{i-1} and predicts y_i.
        np.testing.assert_allclose(by_output[:, :, i], whole[:, :, i], atol=1e-5)


def test_neighbouring_rows_differ_so_that_a_shift_would_show() -> None:
    for case in (*FOREIGN, *ATTENTIVE):
        whole = raw_maps(model_of(case), TARGET)
        assert np.abs(np.diff(whole, axis=2)).max(axis=(0, 1, 3)).min() > 1e-4, case


def test_default_rows() -> None:
    assert default_rows(foreign_model("marian").config) == "input"
    assert default_rows(tiny_model().config) == "input"
    assert default_rows(tiny_model(decoder_type="gru").config) == "output"
    assert default_rows(tiny_model(decoder_type="gru", alignment_rows="input").config) == "input"
    assert default_rows(tiny_model(alignment_rows="output").config) == "output"


def test_offsets_by_kind_of_decoder() -> None:
    previous = tiny_model(decoder_type="gru", attend_with="previous_state").config
    assert (row_offset(previous, "output"), row_offset(previous, "input")) == (0, 2)
    current = tiny_model(decoder_type="lstm").config
    assert (row_offset(current, "output"), row_offset(current, "input")) == (0, 1)
    with pytest.raises(ValueError, match="align_with is 'outptu'; allowed are output, input"):
        row_offset(current, "outptu")
