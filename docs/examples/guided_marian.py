"""Fine-tune a Marian model with guided attention, as in any Hugging Face script: `python guided_marian.py FOLDER`.

FOLDER holds the model and its tokenizer, `train.{source,target,links}` and `dev.*` (links: Pharaoh, `0-0 1-2`).
"""

import sys

from transformers import AutoTokenizer, MarianMTModel, Seq2SeqTrainer, Seq2SeqTrainingArguments

from hf_seq2seq_attn.training.collation import Seq2SeqCollator
from hf_seq2seq_attn.training.data import encode_corpus, read_corpus
from hf_seq2seq_attn.training.data_recipe import CorpusFiles
from hf_seq2seq_attn.training.guided_attention import GuidedAttention, GuidedAttentionMixin


class GuidedTrainer(GuidedAttentionMixin, Seq2SeqTrainer):
    """Your own Trainer: the mixin comes first."""


def main(folder: str, weight: float = 0.5, **arguments: object) -> GuidedTrainer:
    """Train; `weight` 0 is the same run without guidance."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = MarianMTModel.from_pretrained(folder, attn_implementation="eager", attention_dropout=0.0)
    data = {}
    for part in ("train", "dev"):
        files = CorpusFiles(*(f"{folder}/{part}.{column}" for column in ("source", "target", "links")))
        data[part], _ = encode_corpus(read_corpus(files), tokenizer)
    trainer = GuidedTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(f"{folder}/out", remove_unused_columns=False, **arguments),
        data_collator=Seq2SeqCollator(tokenizer, model),
        train_dataset=data["train"],
        eval_dataset=data["dev"],
        guidance=GuidedAttention(weight=weight, layer=1, heads=[0]) if weight else None,
    )
    trainer.train()
    print({key: round(value, 3) for key, value in trainer.evaluate().items() if "loss" in key})
    return trainer


if __name__ == "__main__":
    main(sys.argv[1])
