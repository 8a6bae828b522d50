"""What the faithfulness command does with files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.errors import UnusableError
from hf_seq2seq_attn.text_files import InputError, read_aligned

from .attention_maps import AttentionMaps
from .choices import alignment_heads
from .commands import parse_heads
from .extraction import extract
from .faithfulness import measure_faithfulness
from .formats import write_atomically
from .head_tables import describe_faithfulness
from .head_words import Head
from .link_commands import remark
from .progress import progress_bar
from .provenance import describe_origin, library_versions, model_record
from .refusals import refused
from .saved_choice import saved_choice


def faithfulness_files(
    model_name: str,
    source: Path,
    target: Path,
    output: Path | None = None,
    *,
    layer: int | None = None,
    heads: str = "auto",
    limit: int = 50,
    permutations: int = 10,
    seed: int = 0,
    batch_size: int = 32,
    as_json: bool = False,
    **reading: Any,
) -> dict[str, Any]:
    """Test on the first pairs of two text files whether predictions depend on the attention; print the result.

    Args:
        output: a `.json` file for the result.
        layer, heads: as on the command line; None and "auto" = those saved with the model, else the config's, else
            the last layer's.
        reading: `source_prefix`, `source_language`, `target_language`, as in `extract`.

    Raises:
        InputError: bad choices, files, sentences or places.
    """
    from hf_seq2seq_attn.translation import load_seq2seq

    try:
        numbers = parse_heads(heads)
    except ValueError as error:
        raise InputError(str(error)) from error
    sources, targets = (lines[:limit] for lines in read_aligned(source, target))
    if not sources:
        raise InputError(f"{source}: no sentence; check the file")
    with refused(source, target):
        model, tokenizer = load_seq2seq(model_name)
        maps = list(extract(model, tokenizer, sources, targets, align_with="output", batch_size=batch_size, **reading))
        chosen = tested_heads(model, maps[0], layer, numbers)
        with progress_bar("testing") as progress:
            found = measure_faithfulness(
                model,
                maps,
                chosen,
                permutations=permutations,
                seed=seed,
                batch_size=batch_size,
                progress=progress,
            )
    result = {
        "model": model_record(model_name),
        "versions": library_versions(),
        "seed": seed,
        **found.as_dict(),
    }
    if output is not None:
        write_atomically(output, [json.dumps(result, indent=1, ensure_ascii=False) + "\n"])
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
    elif output is None:
        print("\n".join([*describe_faithfulness(found), *describe_origin(result)]))
    return result


def tested_heads(
    model: Any, maps: AttentionMaps, layer: int | None = None, heads: Sequence[int] | str | None = None
) -> list[Head]:
    """Return the (layer, head) pairs whose mean is tested: those saved with the model, else the config's, else the last
    layer's.

    Args:
        maps: of one sentence pair, all layers and heads.
        layer, heads: others, by number.

    Raises:
        ValueError: heads that are not numbers.
    """
    if isinstance(heads, str):
        raise UnusableError(f"heads is {heads!r}; single heads are tested, so give auto or numbers")
    saved = saved_choice(model) if layer is None and heads is None else None
    if saved is not None:
        if saved.align_with != "output":
            remark(f"the saved heads are read on {saved.align_with} rows; here they are tested on output rows")
        if saved.fit is not None:
            heads_tested = ", ".join(f"{layer}.{head}" for layer, head in saved.heads)
            remark(f"a saved fit is of all heads; tested are those that were best without it, {heads_tested}")
        return list(saved.heads)
    own_layer, own_heads = alignment_heads(model.config, layer, heads)
    number = own_layer + len(maps.layers) if own_layer < 0 else own_layer
    return [(number, head) for head in (maps.heads if own_heads is None else own_heads)]
