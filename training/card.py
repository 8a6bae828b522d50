"""The model card of a run, written from the run's own files: no number in it was typed."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from hf_seq2seq_attn.tokenizer_pair import TARGET_FOLDER

from .recipe import Recipe, load_recipe
from .run_record import ATTENTION_FILE, CURVE_FILE, METRICS_FILE, RECIPE_FILE, read_metrics

CARD_FILE = "README.md"

_SCORES = (
    ("chrf", "chrF", "{:.1f}"),
    ("bleu", "BLEU", "{:.1f}"),
    ("loss", "loss (nats per token)", "{:.3f}"),
    ("aer", "alignment error rate", "{:.3f}"),
    ("precision", "link precision", "{:.3f}"),
    ("recall", "link recall", "{:.3f}"),
)


def write_card(run_dir: str | Path) -> Path:
    """Write the card of a run from its metrics.json, recipe.yaml and config.json; return its path."""
    run_dir = Path(run_dir)
    text = card_text(
        read_metrics(run_dir / METRICS_FILE),
        load_recipe(run_dir / RECIPE_FILE),
        read_metrics(run_dir / "config.json"),
        pictures={name for name in (CURVE_FILE, ATTENTION_FILE) if (run_dir / name).is_file()},
        two_tokenizers=(run_dir / TARGET_FOLDER).is_dir(),
    )
    path = run_dir / CARD_FILE
    path.write_text(text, encoding="utf-8")
    return path


def card_text(
    metrics: Mapping[str, Any],
    recipe: Recipe,
    config: Mapping[str, Any],
    pictures: set[str],
    two_tokenizers: bool = False,
) -> str:
    """Return the card. What a run does not have (a dev set, links, a licence) has no line in it."""
    sections = [
        f"# {recipe.name}",
        _what_it_is(metrics, recipe, config),
        _numbers(metrics),
        _get_started(metrics, config, two_tokenizers),
        _examination(metrics, config, pictures),
        _limits(metrics, recipe),
        _training(metrics, recipe, pictures),
    ]
    front = _front_matter(metrics, recipe, config).to_yaml()
    return f"---\n{front}\n---\n\n" + "\n\n".join(section for section in sections if section) + "\n"


def _front_matter(metrics: Mapping[str, Any], recipe: Recipe, config: Mapping[str, Any]) -> ModelCardData:
    tags = ["seq2seq", "attention", "word-alignment"] + (["custom_code"] if _is_ours(config) else [])
    languages = [code for code in (recipe.data.source_language, recipe.data.target_language) if code]
    results = [
        EvalResult(
            task_type="translation",
            task_name="Translation and word alignment",
            dataset_type=recipe.name,
            dataset_name=recipe.name,
            dataset_split=part,
            metric_type=key,
            metric_name=label,
            metric_value=metrics[part][key],
            metric_config=metrics[part].get(f"{key}_signature"),
        )
        for part in ("dev", "test")
        for key, label, _ in _SCORES
        if key in metrics.get(part, {})
    ]
    optional: dict[str, Any] = {"language": languages or None, "license": recipe.license}
    if results:
        # The Hub wants a name exactly where there are results.
        optional |= {"eval_results": results, "model_name": recipe.name}
        optional["metrics"] = sorted({result.metric_type for result in results})
    init_from = recipe.model.get("init_from")
    if init_from and not Path(init_from).exists():
        optional["base_model"] = init_from
    return ModelCardData(
        library_name="transformers",
        pipeline_tag="translation",
        tags=tags,
        **{key: value for key, value in optional.items() if value is not None},
    )


def _what_it_is(metrics: Mapping[str, Any], recipe: Recipe, config: Mapping[str, Any]) -> str:
    languages = [code for code in (recipe.data.source_language, recipe.data.target_language) if code]
    direction = f" from `{languages[0]}` to `{languages[1]}`" if len(languages) == 2 else ""
    if _is_ours(config):
        kind = (
            f"a {config['encoder_type']} encoder and a {config['decoder_type']} decoder with "
            f"{config['cross_attention_type'].replace('_', ' ')} attention (hf_seq2seq_attn)"
        )
    else:
        kind = f"a {config['model_type']} encoder-decoder"
    text = (
        f"A translation model{direction}: {kind}, {metrics['parameters']:,} parameters, trained on "
        f"{metrics['data']['train']['kept']:,} sentence pairs in {metrics['steps']:,} steps."
    )
    if recipe.model.get("init_from"):
        text += f" It continues from `{recipe.model['init_from']}`."
    if recipe.alignment is not None:
        text += (
            f" Its attention was guided by word links (weight {recipe.alignment.weight:g}), so that it can be read as "
            "a word alignment."
        )
    return text + (f"\n\n{recipe.data.attribution}" if recipe.data.attribution else "")


def _numbers(metrics: Mapping[str, Any]) -> str:
    parts = [part for part in ("dev", "test") if metrics.get(part)]
    rows = [
        "| " + " | ".join([label, *(_shown(metrics[part], key, form) for part in parts)]) + " |"
        for key, label, form in _SCORES
        if any(key in metrics[part] for part in parts)
    ]
    if not rows:
        return ""
    head = "| measure | " + " | ".join(f"{part} ({metrics[part]['pairs']:,} pairs)" for part in parts) + " |"
    signatures = [
        f"{name}: `{metrics[parts[-1]][f'{key}_signature']}`."
        for key, name, _ in _SCORES
        if f"{key}_signature" in metrics[parts[-1]]
    ]
    text = "\n".join(["## Numbers", "", head, "|---" * (len(parts) + 1) + "|", *rows])
    return text + "\n\nText is scored as tokenised in the files. " + " ".join(signatures)


def _get_started(metrics: Mapping[str, Any], config: Mapping[str, Any], two_tokenizers: bool) -> str:
    trust = ", trust_remote_code=True" if _is_ours(config) else ""
    source, target = metrics["example"]["source"], metrics["example"]["target"]
    # Each side of such a model has its own ids: the output is read with the target's tokenizer.
    load_target = f'\ntarget_tokenizer = AutoTokenizer.from_pretrained(folder, subfolder="{TARGET_FOLDER}")'
    reader = "target_tokenizer" if two_tokenizers else "tokenizer"
    translate = f"""from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = "."  # this folder, or its id on the Hub
source = {source!r}
tokenizer = AutoTokenizer.from_pretrained(folder){load_target if two_tokenizers else ""}
model = AutoModelForSeq2SeqLM.from_pretrained(folder{trust})
output = model.generate(**tokenizer(source, return_tensors="pt"), num_beams=4)
print({reader}.batch_decode(output, skip_special_tokens=True))"""
    text = "## How to get started\n\n" + _fenced(translate)
    if not _has_attention(config):
        return text
    both = "TokenizerPair(tokenizer, target_tokenizer)" if two_tokenizers else "tokenizer"
    import_pair = "from hf_seq2seq_attn.tokenizer_pair import TokenizerPair\n" if two_tokenizers else ""
    look = f"""from hf_seq2seq_attn.probing import align
{import_pair}
target = {target!r}
print(align(model, {both}, [source], [target]))"""
    return text + "\n\nWith hf_seq2seq_attn installed, its word alignment:\n\n" + _fenced(look)


def _examination(metrics: Mapping[str, Any], config: Mapping[str, Any], pictures: set[str]) -> str:
    lines = ["## Model examination"]
    for part in ("dev", "test"):
        scores = metrics.get(part, {})
        if "aer" in scores:
            low, high = scores["aer_ci95"]
            lines.append(
                f"Word links read off the attention ({scores['align_with']} rows), against the manual links of {part}: "
                f"alignment error rate {scores['aer']:.3f} (95% interval {low:.3f} to {high:.3f}), precision "
                f"{scores['precision']:.3f}, recall {scores['recall']:.3f}, {scores['sentences']:,} sentences."
            )
    if ATTENTION_FILE in pictures:
        lines.append(f"![What each target word looked at, in one sentence pair]({ATTENTION_FILE})")
    if len(lines) == 1:
        return ""
    lines.append(
        "Attention shows where the decoder read, which is not by itself why it chose a word "
        "(Jain and Wallace 2019; Wiegreffe and Pinter 2019)."
    )
    return "\n\n".join(lines)


def _limits(metrics: Mapping[str, Any], recipe: Recipe) -> str:
    train = metrics["data"]["train"]
    lines = [
        f"- It has seen {train['kept']:,} pairs of one corpus: expect little of text of another kind.",
        f"- Sentences longer than {recipe.data.max_source_length} source or {recipe.data.max_target_length} target "
        "sub-words were never seen.",
        "- It may translate wrongly and fluently; nothing in it knows when it does.",
        "- One run with one seed: differences to another run of the same recipe are not measured.",
    ]
    if train["too_long"] or train["blank"]:
        lines.append(
            f"- {train['too_long']:,} training pairs were left out as too long, {train['blank']:,} as blank on a side."
        )
    unknown = {side: train.get(f"{side}_unknown", 0) for side in ("source", "target")}
    if any(unknown.values()):
        lines.append(
            f"- Its tokenizer did not know {unknown['source']:,} of {train['source_tokens']:,} source tokens and "
            f"{unknown['target']:,} of {train['target_tokens']:,} target tokens of its own training text: each was one "
            "and the same `<unk>`."
        )
    return "\n".join(["## Limits", "", *lines])


def _training(metrics: Mapping[str, Any], recipe: Recipe, pictures: set[str]) -> str:
    hardware = metrics["hardware"]
    versions = ", ".join(f"{name} {version}" for name, version in metrics["versions"].items())
    lines = [
        "## Training",
        f"Started {metrics['started']}, {metrics['seconds']:,} seconds, {metrics['steps']:,} steps "
        f"({metrics['epochs']:g} epochs), seed {metrics['seed']}, {metrics['processes']} process(es), "
        f"device {hardware['device']} on {hardware['machine']} with {hardware['cpus']} CPUs "
        f"({hardware['threads']} threads).",
        f"Versions: {versions}.",
        f"`{RECIPE_FILE}` beside this card is the recipe as run; `{METRICS_FILE}` holds every number above.",
    ]
    if CURVE_FILE in pictures:
        lines.append(f"![Learning curve]({CURVE_FILE})")
    return "\n\n".join(lines)


def _shown(scores: Mapping[str, Any], key: str, form: str) -> str:
    return form.format(scores[key]) if key in scores else "not measured"


def _fenced(code: str) -> str:
    """Return a Python block; its fence is longer than any run of backticks inside."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", code)), 3)
    return f"{fence}python\n{code}\n{fence}"


def _is_ours(config: Mapping[str, Any]) -> bool:
    return config["model_type"] == "seq2seq_attn"


def _has_attention(config: Mapping[str, Any]) -> bool:
    return config.get("cross_attention_type") != "none"
