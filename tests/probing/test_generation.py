"""Each returned sequence has the maps that its own steps used, as a teacher-forced rerun gives them."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from probes import foreign_model
from torch import Tensor
from variants import ATTENTIVE, BOS, EOS, SOURCE, source_batch, tiny_model

from hf_seq2seq_attn.probing import sequence_attentions

DECODERS = (
    "transformer-transformer-scaled_dot_product",
    "transformer-transformer-additive",
    "gru-gru-additive",
    "input_feeding",
    "previous_state_lstm_heads",
    "null_key",
)
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "uncached": {"use_cache": False},
    "several samples": {"do_sample": True, "num_return_sequences": 3},
    "beams": {"num_beams": 4},
    "several beams": {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.4},
    "uncached beams": {"num_beams": 3, "num_return_sequences": 2, "use_cache": False},
    "sampled beams": {"num_beams": 3, "do_sample": True, "num_return_sequences": 3},
}
ASKED: dict[str, Any] = {"return_dict_in_generate": True, "output_attentions": True, "max_new_tokens": 9}


def models(name: str) -> list[Any]:
    """Return models that end some sentences early; several, so that beams cross in one of them."""
    if name == "marian":
        return [lively_marian(seed) for seed in range(4)]
    return [tiny_model(seed=seed, **ATTENTIVE[name]) for seed in range(4)]


def lively_marian(seed: int, backend: str = "eager") -> Any:
    """Return a Marian with norms near 1 and milder weights: else it repeats one token and its beams never cross."""
    model = foreign_model("marian", backend, vocabulary=29)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = "layer_norm" in name or "layernorm" in name
            parameter.normal_(float(norm and name.endswith("weight")), 0.1 if norm else 0.2)
    return model


def teacher_forced(model: Any, sequences: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the maps (N, L, H, T, S) of full sequences, start token first."""
    copies = len(sequences) // len(ids)
    with torch.no_grad():
        outputs = model(
            ids.repeat_interleave(copies, 0),
            attention_mask=mask.repeat_interleave(copies, 0),
            decoder_input_ids=sequences[:, :-1],
            output_attentions=True,
            use_cache=False,
        )
    return torch.stack(outputs.cross_attentions, dim=1)


def length_by_hand(tokens: list[int]) -> int:
    return tokens.index(EOS) + 1 if EOS in tokens else len(tokens)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("name", [*DECODERS, "marian"])
def test_equal_to_a_teacher_forced_rerun(name: str, mode: dict[str, Any]) -> None:
    crossed = False
    for model in models(name):
        ids, mask = source_batch()
        output = model.generate(ids, attention_mask=mask, **ASKED, **mode)
        maps = sequence_attentions(model, output)
        wanted = teacher_forced(model, output.sequences, ids, mask)
        assert len(maps) == len(output.sequences) == 3 * mode.get("num_return_sequences", 1)
        for own, tokens, rerun in zip(maps, output.sequences.tolist(), wanted, strict=True):
            length = length_by_hand(tokens[1:])
            assert own.shape == (*rerun.shape[:2], length, SOURCE)
            assert torch.allclose(own, rerun[:, :, :length], atol=1e-4)
        if output.get("beam_indices") is not None:
            first = output.beam_indices[:, :1]
            crossed |= bool(((output.beam_indices != first) & (output.beam_indices >= 0)).any())
    assert crossed == ("num_beams" in mode), "no beam ever moved: this test would show nothing"


def test_sequences_of_a_batch_end_at_different_places() -> None:
    lengths = set()
    for seed in range(6):
        model = tiny_model(seed=seed, **ATTENTIVE["gru-gru-additive"])
        ids, mask = source_batch()
        for mode in ({"do_sample": True, "num_return_sequences": 3}, {"num_beams": 4, "num_return_sequences": 3}):
            output = model.generate(ids, attention_mask=mask, **ASKED, **mode)
            maps = sequence_attentions(model, output)
            assert [own.shape[2] for own in maps] == [length_by_hand(row[1:]) for row in output.sequences.tolist()]
            lengths |= {own.shape[2] for own in maps}
            for own in maps:
                assert torch.allclose(own.sum(-1), torch.ones(own.shape[:3]), atol=1e-5)
    assert len(lengths) >= 3, "all sequences are of one length: this test would show nothing"


@pytest.mark.parametrize("mode", [{}, {"num_beams": 3}], ids=["greedy", "beams"])
@pytest.mark.parametrize("name", ["transformer-transformer-additive", "input_feeding"])
def test_a_decoder_prompt_has_no_rows(name: str, mode: dict[str, Any]) -> None:
    model = tiny_model(**ATTENTIVE[name])
    model.generation_config.eos_token_id = None
    ids, mask = source_batch()
    prompt = torch.tensor([[BOS, 7, 4]]).expand(3, -1)
    output = model.generate(ids, attention_mask=mask, decoder_input_ids=prompt, **ASKED, **mode)
    wanted = teacher_forced(model, output.sequences, ids, mask)
    for own, rerun in zip(sequence_attentions(model, output), wanted, strict=True):
        assert own.shape[2] == 9
        assert torch.allclose(own, rerun[:, :, 2:], atol=1e-4)


def test_assisted_steps_are_told_apart() -> None:
    model, assistant = tiny_model(seed=0), tiny_model(seed=1)
    ids, mask = source_batch(batch=1)
    output = model.generate(ids, attention_mask=mask, assistant_model=assistant, **ASKED)
    (own,) = sequence_attentions(model, output)
    wanted = teacher_forced(model, output.sequences, ids, mask)[0]
    assert torch.allclose(own, wanted[:, :, : own.shape[2]], atol=1e-4)


def test_other_end_tokens_may_be_named() -> None:
    model = tiny_model(**ATTENTIVE["gru-gru-additive"])
    ids, mask = source_batch()
    model.generation_config.eos_token_id = None
    free = model.generate(ids, attention_mask=mask, **ASKED)
    ends = [int(free.sequences[0, 4]), int(free.sequences[1, 2])]
    output = model.generate(ids, attention_mask=mask, eos_token_id=ends, **ASKED)
    lengths = [own.shape[2] for own in sequence_attentions(model, output, eos_token_id=ends)]
    tokens = output.sequences[:, 1:].tolist()
    assert lengths == [min((row.index(end) + 1 for end in ends if end in row), default=len(row)) for row in tokens]
    assert lengths[1] <= 2


def test_what_holds_no_maps_is_refused_in_words() -> None:
    model = tiny_model()
    ids, mask = source_batch()
    with pytest.raises(ValueError, match="output is a Tensor; call generate with return_dict_in_generate=True"):
        sequence_attentions(model, model.generate(ids, attention_mask=mask, max_new_tokens=3))
    plain = model.generate(ids, attention_mask=mask, max_new_tokens=3, return_dict_in_generate=True)
    with pytest.raises(ValueError, match="call generate with output_attentions=True"):
        sequence_attentions(model, plain)
    fused = lively_marian(0, "sdpa")
    empty = fused.generate(ids, attention_mask=mask, **ASKED)
    with pytest.raises(ValueError, match=r"'sdpa'; load it with .*attn_implementation='eager'"):
        sequence_attentions(fused, empty)
    beams = model.generate(ids, attention_mask=mask, num_beams=2, **ASKED)
    stripped = SimpleNamespace(sequences=beams.sequences, cross_attentions=beams.cross_attentions)
    with pytest.raises(ValueError, match="maps of 6 beams for 3 sequences, but no beam_indices"):
        sequence_attentions(model, stripped)
    blind = tiny_model(encoder_type="gru", decoder_type="gru", cross_attention_type="none")
    with pytest.raises(ValueError, match="there is no attention to read"):
        sequence_attentions(blind, blind.generate(ids, attention_mask=mask, **ASKED))
