"""Our decoding loops against the library's: the same tokens, scores and caches; and where ours stand back."""

import copy
import inspect
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.generation.utils import GenerationMixin
from variants import BOS, CASES, EOS, PAD, SOURCE_VOCAB, TARGET_VOCAB, source_batch, tiny_model

from hf_seq2seq_attn import RecurrentCache, fast_attention, fast_linear, fast_scores, fast_transformer
from hf_seq2seq_attn import modeling_seq2seq_attn as modeling
from hf_seq2seq_attn.fast_recurrent import RecurrentStep
from hf_seq2seq_attn.fast_transformer import TransformerStep
from hf_seq2seq_attn.plain_forms import plain_forms

all_cases = pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
KINDS = ("transformer-transformer-scaled_dot_product", "gru-gru-additive", "input_feeding", "lstm-lstm-none")
every_kind = pytest.mark.parametrize("fields", [CASES[name] for name in KINDS], ids=KINDS)


class Likes(LogitsProcessor):
    """A processor of somebody's own, in place and with a look at the row's last token."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores[:, 5] += 0.1 * (input_ids[:, -1] % 3)
        return scores


def draw(rng: random.Random) -> dict[str, Any]:
    """Return a random set of options that our loops cover."""
    beams = rng.choice([1, 2, 5])
    options: dict[str, Any] = {
        "num_beams": beams,
        # Long beam searches end in hypotheses that only say later what others said, with equal scores but for rounding.
        "max_new_tokens": rng.choice([1, 6, 13, 40 if beams == 1 else 9]),
        "suppress_tokens": rng.choice([None, [PAD], [PAD, 7, TARGET_VOCAB + 40]]),
        "eos_token_id": rng.choice([EOS, EOS, [EOS, 7, 9], None]),
        "forced_bos_token_id": rng.choice([None, None, 8]),
        "forced_eos_token_id": rng.choice([None, None, EOS, [EOS, 4]]),
        "begin_suppress_tokens": rng.choice([None, None, [4, 11]]),
    }
    if options["max_new_tokens"] > 5:
        options.update(rng.choice([{}, {"min_length": 4}, {"min_new_tokens": 5}]))
    options.update(rng.choice([{}, {}, {"no_repeat_ngram_size": 2}, {"repetition_penalty": 1.4}]))
    options.update(rng.choice([{}, {}, {}, {"logits_processor": LogitsProcessorList([Likes()])}]))
    options.update(rng.choice([{}, {}, {}, {"prefix_allowed_tokens_fn": lambda row, ids: [2, 3 + row, 5, 6, 12]}]))
    if beams > 1:
        options["length_penalty"] = rng.choice([1.0, 0.0, 0.6, -1.0, 2.0])
        options["early_stopping"] = rng.choice([False, True, "never"])
        options["num_return_sequences"] = rng.choice([1, beams])
    return {name: value for name, value in options.items() if value is not None or name == "eos_token_id"}


def draw_source(rng: random.Random) -> dict[str, Tensor]:
    """Return source ids and mask: one row or more, padded on either side or not at all, with or without a mask."""
    ids, mask = source_batch(rng.randrange(99), batch=rng.choice([1, 3, 4]), length=rng.choice([8, 11]))
    if rng.random() < 0.3:
        ids, mask = ids.flip(1), mask.flip(1)
    if rng.random() < 0.2:
        mask[-1] = 0  # nothing to read
    return {"input_ids": ids, "attention_mask": mask} if rng.random() < 0.8 else {"input_ids": ids}


def ours_alone(model: Any, **options: Any) -> Any:
    """Return what `generate` gives, and fail if it is not our loop that runs."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the library's loop ran")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_sample", "_beam_search"):
            patch.setattr(GenerationMixin, name, refuse)
        return model.generate(**options)


def both(model: Any, **options: Any) -> tuple[Any, Any]:
    """Return what our loop and the library's give."""
    return ours_alone(model, **options), library_alone(model, **options)


def library_alone(model: Any, **options: Any) -> Any:
    """Generate with the library's loop, and all else as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling, "covers", lambda *_: False)
        return model.generate(**options)


def hangs_on_the_last_bits(model: Any, wanted: Any, **options: Any) -> bool:
    """Tell whether the library itself chooses otherwise with weights that differ by a hundred thousandth."""
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        other = copy.deepcopy(model)
        with torch.no_grad():
            for weight in other.parameters():
                weight *= 1 + 1e-5 * torch.randn(weight.shape, generator=generator)
        found = library_alone(other, **options)
        for name in ("sequences", "beam_indices"):
            if name in wanted and not torch.equal(found[name], wanted[name]):
                return True
        pairs = zip(found.logits, wanted.logits, strict=True)
        if not all(torch.allclose(mine, theirs, atol=1e-2) for mine, theirs in pairs):
            return True
    return False


def assert_same_output(ours: Any, wanted: Any) -> None:
    assert type(ours) is type(wanted) and list(ours) == list(wanted)
    assert torch.equal(ours.sequences, wanted.sequences), f"\n{ours.sequences}\n{wanted.sequences}"
    for name in ("scores", "logits"):
        assert len(ours[name]) == len(wanted[name])
        for step, (mine, theirs) in enumerate(zip(ours[name], wanted[name], strict=True)):
            assert mine.dtype == theirs.dtype and torch.allclose(mine, theirs, atol=5e-5, rtol=1e-5), (name, step)
    if "beam_indices" in wanted:
        assert torch.equal(ours.beam_indices, wanted.beam_indices)
        assert ours.beam_indices.dtype == wanted.beam_indices.dtype
        assert torch.allclose(ours.sequences_scores, wanted.sequences_scores, atol=1e-5, rtol=1e-5)
    assert_same_cache(ours.cache, wanted.cache)


def assert_same_cache(ours: Any, wanted: Any) -> None:
    assert type(ours) is type(wanted) and ours.is_updated == wanted.is_updated
    assert ours.get_seq_length() == wanted.get_seq_length()
    for part in ("self_attention_cache", "cross_attention_cache"):
        for mine, theirs in zip(getattr(ours, part).layers, getattr(wanted, part).layers, strict=True):
            recurrent = isinstance(wanted, RecurrentCache)
            pairs = zip(*((c.states if recurrent else (c.keys, c.values)) for c in (mine, theirs)), strict=True)
            assert all(torch.allclose(a, b, atol=1e-5, rtol=1e-5) for a, b in pairs)


@pytest.fixture(params=["as for small models", "as for large models"])
def _sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the ways for large models, too, through models that are not."""
    if request.param == "as for large models":
        monkeypatch.setattr(fast_scores, "FEW", 0)
        monkeypatch.setattr(fast_scores, "BLOCK", 2)
        monkeypatch.setattr(fast_linear, "PACKED_WEIGHTS", 1)
        monkeypatch.setattr(fast_transformer, "PACKED_WEIGHTS", 1)
        monkeypatch.setattr(fast_linear, "PACKED_ROWS", 2)
        monkeypatch.setattr(fast_transformer, "FIRST_COLUMNS", 3)


@all_cases
@pytest.mark.usefixtures("_sizes")
def test_random_options_give_what_the_library_gives(fields: dict, request: pytest.FixtureRequest) -> None:
    rng = random.Random(request.node.name)
    seen: set[int] = set()
    for seed in range(3):
        model = tiny_model(seed=seed, **fields)
        options = draw_source(rng) | draw(rng)
        ours, wanted = both(model, **options)
        recorded = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
        recorded_ours, recorded_wanted = both(model, **options, **recorded)
        seen |= set(wanted.flatten().tolist())
        try:
            assert torch.equal(ours, wanted), f"{options}\n{ours}\n{wanted}"
            assert_same_output(recorded_ours, recorded_wanted)
        except AssertionError:
            if not hangs_on_the_last_bits(model, recorded_wanted, **options, **recorded):
                raise
    assert len(seen) >= 4, "the weights are too dull for this test to show anything"


@every_kind
@pytest.mark.parametrize("beams", [1, 3])
def test_finished_sentences_leave_and_nothing_changes(
    fields: dict, beams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    for kind in (RecurrentStep, TransformerStep):
        keep = kind.keep
        monkeypatch.setattr(kind, "keep", lambda step, rows, keep=keep: (left.append(len(rows)), keep(step, rows)))
    for seed in range(6):
        ids, mask = source_batch(seed, batch=9, length=17)
        for early in (False, True):
            options = {"early_stopping": early, "length_penalty": 0.0} if beams > 1 else {}
            model = tiny_model(seed=seed, **fields)
            model.generation_config.eos_token_id = list(range(2, 12))
            ours, wanted = both(
                model, input_ids=ids, attention_mask=mask, max_new_tokens=15, num_beams=beams, **options
            )
            assert torch.equal(ours, wanted)
    assert len(set(left)) > 1, "no sentence ever left"


@every_kind
def test_scores_alone_and_an_output_object_without_them(fields: dict) -> None:
    model = tiny_model(**fields)
    ids, mask = source_batch()
    for beams in (1, 4):
        for recorded in ({}, {"output_scores": True}, {"output_logits": True}):
            options = {"num_beams": beams, "max_new_tokens": 7, "return_dict_in_generate": True, **recorded}
            ours, wanted = both(model, input_ids=ids, attention_mask=mask, **options)
            assert list(ours) == list(wanted) and torch.equal(ours.sequences, wanted.sequences)


@every_kind
def test_encoder_outputs_given_and_embeddings_for_ids(fields: dict) -> None:
    model = tiny_model(**fields)
    ids, mask = source_batch()
    for beams in (1, 4):
        options = {"attention_mask": mask, "num_beams": beams, "max_new_tokens": 9}
        given = ours_alone(model, encoder_outputs=model.get_encoder()(ids, attention_mask=mask), **options)
        embedded = ours_alone(model, inputs_embeds=model.get_input_embeddings()(ids), **options)
        wanted = model.generate(ids, **options)
        assert torch.equal(given, wanted) and torch.equal(embedded, wanted)


@every_kind
def test_inference_mode_gives_the_same_and_the_model_is_left_as_it_was(fields: dict) -> None:
    model = tiny_model(**fields)
    ids, mask = source_batch()
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    attributes = [set(vars(module)) for module in model.modules()]
    with torch.inference_mode():
        first = model.generate(ids, attention_mask=mask, num_beams=3, max_new_tokens=9)
    assert torch.equal(first, model.generate(ids, attention_mask=mask, num_beams=3, max_new_tokens=9))
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())
    assert [set(vars(module)) for module in model.modules()] == attributes
    with torch.no_grad():
        for weight in model.parameters():
            weight.data = -weight.data
    ours, wanted = both(model, input_ids=ids, attention_mask=mask, max_new_tokens=9)
    assert torch.equal(ours, wanted), "something of the old weights was kept"


def test_keys_too_large_for_exponentials_are_scored_by_tanh() -> None:
    model = tiny_model(**CASES["gru-gru-additive"])
    with torch.no_grad():
        model.model.decoder.encoder_attn.k_proj.weight *= 200
    ids, mask = source_batch()
    keys = model.model.decoder.encoder_attn.k_proj(model.get_encoder()(ids, attention_mask=mask).last_hidden_state)
    assert fast_attention.prepare_keys(keys[:, None]).exponentials is None
    assert_same_output(
        *both(
            model,
            input_ids=ids,
            max_new_tokens=9,
            return_dict_in_generate=True,
            output_scores=True,
            output_logits=True,
        )
    )


# Where the library's loops run


class StopsAtFive(StoppingCriteria):
    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        return torch.full((len(input_ids),), input_ids.shape[1] >= 5)


class Streamer:
    def put(self, value: Tensor) -> None: ...
    def end(self) -> None: ...


UNCOVERED: dict[str, dict[str, Any]] = {
    "sampling": {"do_sample": True},
    "beam sampling": {"do_sample": True, "num_beams": 3},
    "attentions": {"output_attentions": True, "return_dict_in_generate": True},
    "hidden states": {"output_hidden_states": True, "return_dict_in_generate": True, "num_beams": 2},
    "no cache": {"use_cache": False},
    "streamer": {"streamer": Streamer()},
    "stopping criterion": {"stopping_criteria": StoppingCriteriaList([StopsAtFive()])},
    "time limit": {"max_time": 60.0, "num_beams": 2},
    "longer start": {"decoder_input_ids": torch.tensor([[BOS, 4]] * 3)},
    "decoder mask": {"decoder_input_ids": torch.full((3, 1), BOS), "decoder_attention_mask": torch.ones(3, 1).long()},
    "more than the positions": {"max_new_tokens": 1024, "stopping_criteria": StoppingCriteriaList([StopsAtFive()])},
}


@pytest.fixture
def _ours_stand_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("our loop ran")

    for name in ("greedy_search", "beam_search"):
        monkeypatch.setattr(modeling, name, refuse)
    yield


@every_kind
@pytest.mark.parametrize("name", UNCOVERED)
@pytest.mark.usefixtures("_ours_stand_back")
def test_other_options_are_the_librarys(fields: dict, name: str) -> None:
    ids, mask = source_batch()
    tiny_model(**fields).generate(ids, attention_mask=mask, **{"max_new_tokens": 6, **UNCOVERED[name]})


@every_kind
@pytest.mark.usefixtures("_ours_stand_back")
def test_a_cache_of_the_users_own_is_filled_by_the_library(fields: dict) -> None:
    model = tiny_model(**fields)
    ids, mask = source_batch()
    cache: Any = EncoderDecoderCache(DynamicCache(), DynamicCache())
    if model.config.decoder_is_recurrent:
        cache = RecurrentCache(model.config.decoder_layers)
    model.generate(ids, attention_mask=mask, cache=cache, max_new_tokens=6)
    assert cache.get_seq_length() > 0


@pytest.mark.usefixtures("_ours_stand_back")
@pytest.mark.parametrize("options", [{"cache_implementation": "static"}, {"cache_implementation": "offloaded"}])
def test_other_caches_are_the_librarys(options: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, mask = source_batch()
    if options["cache_implementation"] == "offloaded":
        options = {"cache_implementation": "static", "num_beams": 2}
    tiny_model(**CASES[KINDS[0]]).generate(ids, attention_mask=mask, max_new_tokens=6, **options)


class OtherLinear(nn.Linear):
    """What a quantizer or an adapter puts in the place of a Linear."""


def _listen(model: Any) -> None:
    model.model.decoder.layers[0].register_forward_hook(lambda *_: None)


def _listen_before(model: Any) -> None:
    model.lm_head.register_forward_pre_hook(lambda *_: None)


def _stand_in(model: Any) -> None:
    model.lm_head.__class__ = OtherLinear


def _own_forward(model: Any) -> None:
    model.forward = model.forward


def _own_class(model: Any) -> None:
    class Heir(type(model)):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return super().forward(*args, **kwargs)

    model.__class__ = Heir


CHANGES = {
    "a hook": _listen,
    "a hook before": _listen_before,
    "another Linear": _stand_in,
    "a forward of its own": _own_forward,
    "a class of its own": _own_class,
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "float64": lambda model: model.to(torch.float64),
    "training": lambda model: model.train(),
}


@every_kind
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.usefixtures("_ours_stand_back")
def test_a_model_that_is_not_as_we_made_it_is_the_librarys(fields: dict, change: str) -> None:
    model = tiny_model(**fields)
    CHANGES[change](model)
    ids, mask = source_batch()
    for beams in (1, 2):
        model.generate(ids, attention_mask=mask, max_new_tokens=4, num_beams=beams)


@every_kind
@pytest.mark.usefixtures("_ours_stand_back")
def test_autocast_gradients_and_listeners_to_all_modules_are_the_librarys(fields: dict) -> None:
    model = tiny_model(**fields)
    ids, mask = source_batch()
    with torch.autocast("cpu", torch.bfloat16):
        model.generate(ids, attention_mask=mask, max_new_tokens=4)
    with torch.enable_grad():
        inspect.unwrap(type(model).generate)(model, ids, attention_mask=mask, max_new_tokens=4)
    with plain_forms():
        model.generate(ids, attention_mask=mask, max_new_tokens=4)
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        model.generate(ids, attention_mask=mask, max_new_tokens=4)
    finally:
        handle.remove()


@pytest.mark.usefixtures("_ours_stand_back")
def test_assisted_generation_is_the_librarys() -> None:
    ids, mask = source_batch()
    model, assistant = (tiny_model(seed=seed, **CASES[KINDS[0]]) for seed in (0, 1))
    one = {"attention_mask": mask[:1], "max_new_tokens": 8}
    model.generate(ids[:1], assistant_model=assistant, **one)
    model.generate(ids[:1], prompt_lookup_num_tokens=2, **one)


def test_the_vocabularies_of_the_tests_are_smaller_than_the_tokens_that_look_them_up() -> None:
    """Both ways to the gates of a recurrent decoder are taken above: by table, and (one token for one row) without."""
    model = tiny_model(**CASES["gru-gru-additive"])
    states = torch.zeros(3, 2, model.config.d_model)
    decoder, head = model.model.decoder, model.lm_head
    assert RecurrentStep(decoder, head, states, None, 1, tokens=SOURCE_VOCAB).gates is not None
    assert RecurrentStep(decoder, head, states, None, 1, tokens=1).gates is None
