from types import SimpleNamespace
from typing import Any

import pytest
import torch
from guided_toys import FOREIGN, OURS, guided_model
from transformers import SwitchTransformersConfig, SwitchTransformersForConditionalGeneration
from transformers.modeling_outputs import Seq2SeqLMOutput

from hf_seq2seq_attn.training.step_loss import has_router_loss, mean_cross_entropy, swallows_item_count


@pytest.mark.parametrize("name", [*FOREIGN, *OURS])
def test_who_swallows_the_number_of_labels(name: str) -> None:
    """A model that heeds the number halves its loss when the number doubles: the answer agrees with what it does."""
    model: Any = guided_model(name, 30).eval()
    batch = {"input_ids": torch.tensor([[5, 6, 2]]), "labels": torch.tensor([[7, 8, 2]])}
    losses = [model(**batch, num_items_in_batch=torch.tensor(count)).loss.item() for count in (3, 6)]
    assert swallows_item_count(model) == (losses[0] == losses[1])
    assert swallows_item_count(model) == (name in FOREIGN)
    assert not has_router_loss(model)


def test_a_model_with_the_librarys_loss_function_heeds_it() -> None:
    class Heeding(torch.nn.Module):
        config = SimpleNamespace()

        def forward(self, labels: Any = None, **kwargs: Any) -> Any:
            return self.loss_function(labels, **kwargs)

    assert not swallows_item_count(Heeding())  # type: ignore[arg-type]


def test_mixtures_of_experts_are_known() -> None:
    sizes = {"vocab_size": 30, "d_model": 12, "d_kv": 4, "d_ff": 8, "num_layers": 2, "num_heads": 3, "num_experts": 2}
    model = SwitchTransformersForConditionalGeneration(SwitchTransformersConfig(**sizes, num_decoder_layers=2))
    assert has_router_loss(model)


@pytest.mark.parametrize("count", [None, 10, torch.tensor(10)])
def test_the_mean_is_over_the_labels_of_the_step(count: Any) -> None:
    logits = torch.randn(2, 4, 9)
    labels = torch.tensor([[1, 2, -100], [3, -100, -100]])
    by_hand = -sum(logits[b, t].log_softmax(-1)[labels[b, t]] for b, t in ((0, 0), (0, 1), (1, 0)))
    loss = mean_cross_entropy(Seq2SeqLMOutput(logits=logits.bfloat16().float()), labels, count)
    torch.testing.assert_close(loss, by_hand / (3 if count is None else 10), rtol=0.02, atol=0)
    assert mean_cross_entropy((logits.bfloat16(),), labels, count).dtype == torch.float32
