"""CTranslate2: an engine that decodes with Marian's weights; it does not train."""

import tempfile
from types import SimpleNamespace

import ctranslate2
import torch
from contestant import Contestant
from ctranslate2.converters.transformers import BartLoader
from torch import Tensor
from workloads import END, NEW_TOKENS, PAD, START, UNKNOWN, Batch, Transformer

from peers import marian

MARKS = {UNKNOWN: "<unk>", PAD: "<pad>", START: "<s>", END: "</s>"}


def transformer(size: Transformer, compute_type: str = "float32") -> Contestant:
    """Return a Marian of this size, converted; `compute_type` is float32 or int8."""
    source = marian.transformer(size)
    names = [MARKS.get(index, f"w{index}") for index in range(size.vocabulary)]
    translator = _converted(source, names, compute_type)
    index_of = {name: index for index, name in enumerate(names)}

    def decode(batch: Batch, beams: int) -> Tensor:
        lengths = batch.source_lengths.tolist()
        sentences = [
            [names[index] for index in row[:length]] for row, length in zip(batch.source.tolist(), lengths, strict=True)
        ]
        results = translator.translate_batch(
            sentences, beam_size=beams, min_decoding_length=NEW_TOKENS, max_decoding_length=NEW_TOKENS
        )
        return torch.tensor([[index_of[name] for name in result.hypotheses[0]] for result in results])

    name = f"CTranslate2 {dict(float32='f32').get(compute_type, compute_type)}"
    return Contestant(name, source.model, source.prepare, source.loss, fused_adam=False, decode=decode, trains=False)


def _converted(source: Contestant, names: list[str], compute_type: str) -> ctranslate2.Translator:
    """Convert as CTranslate2's own command does, with a list of names in place of a tokenizer.

    Its loader for Marian takes the last word for padding and starts from a zero vector, as the published Marian
    models do. Ours have neither, so the loader for BART, of which Marian's is a case, is told the rest.
    """
    source.model.config.normalize_before = source.model.config.normalize_embedding = False
    tokenizer = SimpleNamespace(
        bos_token=MARKS[START],
        eos_token=MARKS[END],
        unk_token=MARKS[UNKNOWN],
        get_vocab=lambda: {name: index for index, name in enumerate(names)},
        convert_ids_to_tokens=names.__getitem__,
    )
    spec = BartLoader()(source.model, tokenizer)
    spec.validate()
    spec.optimize(quantization=None if compute_type == "float32" else compute_type)
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        return ctranslate2.Translator(
            folder, device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=torch.get_num_threads()
        )
