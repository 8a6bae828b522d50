"""The scripts under docs/examples run, and do what they are there to show."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from guided_toys import guided_model
from transformers import MarianMTModel, PreTrainedTokenizerFast

from hf_seq2seq_attn.probing import align, read_gold, score_links

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "guided_marian.py"
SETTINGS: dict[str, Any] = {
    "use_cpu": True,
    "max_steps": 150,
    "per_device_train_batch_size": 32,
    "learning_rate": 5e-3,
    "lr_scheduler_type": "linear",
    "warmup_steps": 20,
    "seed": 3,
    "report_to": "none",
    "disable_tqdm": True,
    "save_strategy": "no",
    "logging_steps": 50,
}


@pytest.fixture
def folder(toy_files: Callable[..., list[str]], toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    toy_files(train=400, dev=40)
    sizes = {"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "decoder_layers": 2}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    guided_model("marian", len(toy_tokenizer), **sizes, **heads).save_pretrained(tmp_path)
    toy_tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_guidance_makes_a_head_of_marian_an_aligner_at_no_cost(
    folder: Path, toy_tokenizer: PreTrainedTokenizerFast
) -> None:
    main = runpy.run_path(str(SCRIPT))["main"]
    sources = (folder / "dev.source").read_text().splitlines()
    targets = (folder / "dev.target").read_text().splitlines()
    gold = read_gold(folder / "dev.links")

    def aer(model: Any) -> float:
        links = align(model, toy_tokenizer, sources, targets, layer=1, heads=[0], align_with="input")
        return score_links(links, gold).aer

    losses, rates = {}, {"start": aer(MarianMTModel.from_pretrained(folder))}
    for name, weight in (("plain", 0.0), ("guided", 0.5)):
        trainer = main(str(folder), weight, **SETTINGS)
        losses[name] = trainer.evaluate()["eval_loss"]
        rates[name] = aer(trainer.model)
    assert rates["guided"] < 0.25
    assert rates["guided"] < min(rates["start"], rates["plain"]) - 0.3
    assert losses["guided"] <= losses["plain"]
