"""Two processes guide a model of others as one process does."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, load_from_disk
from guided_toys import flat_weights, guided_model
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Seq2SeqTrainingArguments

from hf_seq2seq_attn.training.collation import Seq2SeqCollator
from hf_seq2seq_attn.training.guided_attention import GuidedAttention
from hf_seq2seq_attn.training.trainer import Seq2SeqAttnTrainer


def train_marian(folder: Path, batch_size: int, accumulation: int = 1) -> tuple[Any, dict[str, float]]:
    """Train on the data in `folder` by plain gradient steps, which hide no wrong scale; return trainer and losses."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = guided_model("marian", len(tokenizer))
    data = load_from_disk(str(folder / "data"))
    trainer = Seq2SeqAttnTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            output_dir=str(folder / "out"),
            use_cpu=True,
            remove_unused_columns=False,
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
            max_steps=3,
            optim="sgd",
            learning_rate=0.1,
            max_grad_norm=0.0,
            logging_steps=1,
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=accumulation,
            # Hugging Face's evaluation loss is a mean of batch means: it needs the same eight together.
            per_device_eval_batch_size=8 // int(os.environ.get("WORLD_SIZE", "1")),
            train_sampling_strategy="sequential",
        ),
        data_collator=Seq2SeqCollator(tokenizer, model),
        train_dataset=data,
        eval_dataset=data.select(range(8)),
        processing_class=tokenizer,
        guidance=GuidedAttention(weight=2.0),
    )
    trainer.train()
    found = trainer.evaluate()
    losses = {key: found[key] for key in ("eval_loss", "eval_guided_loss")}
    for entry in trainer.state.log_history:
        if "guided_loss" in entry:
            losses |= {f"{key} of step {entry['step']}": entry[key] for key in ("loss", "guided_loss")}
    return trainer, losses


def test_two_processes_guide_as_one(
    toy_data: Callable[[int], Dataset], toy_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    toy_data(24).save_to_disk(str(tmp_path / "data"))
    toy_tokenizer.save_pretrained(tmp_path)
    launch = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv-backend=c10d"]
    launch += ["--rdzv-endpoint=localhost:0", __file__, str(tmp_path)]
    support = str(Path(__file__).parents[1] / "support")
    paths = os.pathsep.join([support, *filter(None, [os.environ.get("PYTHONPATH")])])
    outcome = subprocess.run(
        [sys.executable, *launch],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    two = json.loads((tmp_path / "two.json").read_text())
    assert two.pop("processes") == 2
    weights = load_file(tmp_path / "two.safetensors")["weights"]
    for batch_size, accumulation in ((8, 1), (4, 2)):
        trainer, one = train_marian(tmp_path, batch_size, accumulation)
        torch.testing.assert_close(flat_weights(trainer.model), weights, rtol=0, atol=1e-5)
        assert len(one) == 2 + 2 * 3
        assert two == {key: pytest.approx(value, abs=1e-5) for key, value in one.items()}


def main() -> None:
    """Be one of the two processes."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    trainer, losses = train_marian(folder, batch_size=4)
    if trainer.is_world_process_zero():
        (folder / "two.json").write_text(json.dumps({"processes": trainer.accelerator.num_processes, **losses}))
        model = trainer.accelerator.unwrap_model(trainer.model)
        save_file({"weights": flat_weights(model)}, folder / "two.safetensors")


if __name__ == "__main__":
    main()
