"""The model card of a run, written from the run's own files: no number in it was typed."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from hf_seq2seq_attn.probing import write_atomically
from hf_seq2seq_attn.tokenizer_pair import TARGET_FOLDER
from hf_seq2seq_attn.translation import LIMIT_EXTRA, LIMIT_FACTOR

from .recipe import TASKS, Recipe, load_recipe
from .run_record import ATTENTION_FILE, CARD_FILE, CURVE_FILE, METRICS_FILE, RECIPE_FILE, REPORT_FILE, read_metrics
from .scoring import TEXT_METRICS

SCORES = (
    ("chrf", "chrF", "{:.1f}"),
    ("bleu", "BLEU", "{:.1f}"),
    ("wer", "word error rate (edits per word)", "{:.3f}"),
    ("per", "phoneme error rate (edits per phoneme)", "{:.3f}"),
    ("exact_match", "lines that equal their reference", "{:.3f}"),
    ("word_error_rate", "words with a wrong pronunciation", "{:.3f}"),
    ("loss", "loss (nats per token)", "{:.3f}"),
    ("guided_loss", "guided loss (nats per guided row)", "{:.3f}"),
    ("aer", "alignment error rate", "{:.3f}"),
    ("precision", "link precision", "{:.3f}"),
    ("recall", "link recall", "{:.3f}"),
)


_REPORT = (
    f"A [report]({REPORT_FILE}) lies beside this card: scores with confidence intervals, the best and the worst "
    "sentences with their attention, every head, and faithfulness. It is one page; download it and open it in a "
    "browser."
)


def write_card(run_dir: str | Path) -> Path:
    """Write the card of a run from its metrics.json, recipe.yaml and config.json; return its path."""
    run_dir = Path(run_dir)
    path = run_dir / CARD_FILE
    write_atomically(path, [_text_of_run(run_dir, has_report=(run_dir / REPORT_FILE).is_file())])
    return path


def link_report(run_dir: str | Path) -> str | None:
    """Let the card of a run link the report that lies beside it.

    Returns:
        What is left to do by hand, where the card is not as `write_card` wrote it and so stays as it is; else None.
    """
    run_dir = Path(run_dir)
    path = run_dir / CARD_FILE
    found = path.read_text(encoding="utf-8") if path.is_file() else None
    if found is None or found == _text_of_run(run_dir, has_report=False):
        write_card(run_dir)
    elif f"({REPORT_FILE})" not in found:
        return f"{path}: is not as it was written, so it is left as it is; link the report: [report]({REPORT_FILE})"
    return None


def _text_of_run(run_dir: Path, *, has_report: bool) -> str:
    return card_text(
        read_metrics(run_dir / METRICS_FILE),
        load_recipe(run_dir / RECIPE_FILE),
        read_metrics(run_dir / "config.json"),
        pictures={name for name in (CURVE_FILE, ATTENTION_FILE) if (run_dir / name).is_file()},
        two_tokenizers=(run_dir / TARGET_FOLDER).is_dir(),
        has_report=has_report,
    )


def card_text(
    metrics: Mapping[str, Any],
    recipe: Recipe,
    config: Mapping[str, Any],
    pictures: set[str],
    two_tokenizers: bool = False,
    has_report: bool = False,
) -> str:
    """Return the card. What a run does not have (a dev set, links, a licence) has no line in it."""
    sections = [
        f"# {recipe.name}",
        _what_it_is(metrics, recipe, config),
        _numbers(metrics),
        _REPORT if has_report else "",
        _get_started(metrics, recipe, config, two_tokenizers),
        _examination(metrics, config, pictures),
        _limits(metrics, recipe),
        _training(metrics, recipe, pictures),
    ]
    front = _front_matter(metrics, recipe, config).to_yaml()
    return f"---\n{front}\n---\n\n" + "\n\n".join(section for section in sections if section) + "\n"


def _front_matter(metrics: Mapping[str, Any], recipe: Recipe, config: Mapping[str, Any]) -> ModelCardData:
    task = TASKS[recipe.task]
    tags = ["seq2seq", *(["attention", "word-alignment"] if _has_attention(config) else [])]
    tags += ([task.tag] if task.tag else []) + (["custom_code"] if _is_ours(config) else [])
    # The Hub takes ISO codes alone, not `deu_Latn`.
    named = (recipe.data.source_language, recipe.data.target_language)
    languages = [code for code in named if code and re.fullmatch("[a-z]{2,3}", code)]
    results = [
        EvalResult(
            task_type=task.pipeline or "text2text-generation",
            task_name=task.name,
            dataset_type=recipe.name,
            dataset_name=recipe.name,
            dataset_split=part,
            metric_type=key,
            metric_name=label,
            metric_value=metrics[part][key],
            metric_config=metrics[part].get(f"{key}_signature"),
        )
        for part in ("dev", "test")
        for key, label, _ in SCORES
        if key in metrics.get(part, {})
    ]
    optional: dict[str, Any] = {"language": languages or None, "license": recipe.license}
    optional["pipeline_tag"] = None if _aligns_only(recipe) else task.pipeline
    if results:
        # The Hub wants a name exactly where there are results.
        optional |= {"eval_results": results, "model_name": recipe.name}
        optional["metrics"] = sorted({result.metric_type for result in results})
    init_from = recipe.model.get("init_from")
    if init_from and not Path(init_from).exists():
        optional["base_model"] = init_from
    return ModelCardData(
        library_name="transformers",
        tags=tags,
        **{key: value for key, value in optional.items() if value is not None},
    )


def _what_it_is(metrics: Mapping[str, Any], recipe: Recipe, config: Mapping[str, Any]) -> str:
    languages = [code for code in (recipe.data.source_language, recipe.data.target_language) if code]
    direction = f" from `{languages[0]}` to `{languages[1]}`" if len(languages) == 2 else ""
    if _is_ours(config):
        attention = f"with {config['cross_attention_type'].replace('_', ' ')} attention"
        if not _has_attention(config):
            attention = "without attention: one vector holds the whole source"
        names = {kind: kind if kind == "transformer" else kind.upper() for kind in ("transformer", "gru", "lstm")}
        kind = (
            f"a {names[config['encoder_type']]} encoder and a {names[config['decoder_type']]} decoder {attention} "
            "(hf_seq2seq_attn)"
        )
    else:
        kind = f"a {config['model_type']} encoder-decoder"
    text = (
        f"A {'word aligner' if _aligns_only(recipe) else TASKS[recipe.task].model}{direction}: {kind}, "
        f"{metrics['parameters']:,} parameters, trained on "
        f"{_pairs(metrics['data']['train'])} in {metrics['steps']:,} steps."
    )
    if recipe.model.get("init_from"):
        text += f" It continues from `{_shared_name(recipe.model['init_from'])}`."
    if recipe.alignment is not None:
        made = metrics.get("links")
        by = f" that {made['aligner']} made of the training text ({made['symmetrization']})" if made else ""
        text += (
            f" Its attention was guided by word links{by} (weight {recipe.alignment.weight:g}), so that it can be read "
            "as a word alignment."
        )
    return text + (f"\n\n{recipe.data.attribution}" if recipe.data.attribution else "")


def _numbers(metrics: Mapping[str, Any]) -> str:
    parts = [part for part in ("dev", "test") if metrics.get(part)]
    rows = [
        "| " + " | ".join([label, *(_shown(metrics[part], key, form) for part in parts)]) + " |"
        for key, label, form in SCORES
        if any(key in metrics[part] for part in parts)
    ]
    if not rows:
        return ""
    head = "| measure | " + " | ".join(f"{part} ({metrics[part]['pairs']:,} pairs)" for part in parts) + " |"
    signatures = [
        f"{name}: `{metrics[parts[-1]][f'{key}_signature']}`."
        for key, name, _ in SCORES
        if f"{key}_signature" in metrics[parts[-1]]
    ]
    text = "\n".join(["## Numbers", "", head, "|---" * (len(parts) + 1) + "|", *rows])
    if signatures:
        text += "\n\nText is scored as it stands in the files. " + " ".join(signatures)
    beams = metrics[parts[-1]].get("num_beams")
    if beams and any(key in TEXT_METRICS for key in metrics[parts[-1]]):
        penalty = metrics[parts[-1]].get("length_penalty")
        chosen = f", length penalty {penalty:g}" if penalty else ""
        text += (
            f"\n\nTranslations are of {beams} beam(s){chosen}, and of at most {LIMIT_FACTOR} times the source's tokens "
            f"plus {LIMIT_EXTRA}."
        )
    return text


def _get_started(metrics: Mapping[str, Any], recipe: Recipe, config: Mapping[str, Any], two_tokenizers: bool) -> str:
    trust = ", trust_remote_code=True" if _is_ours(config) else ""
    source, target = metrics["example"]["source"], metrics["example"]["target"]
    # Each side of such a model has its own ids: the output is read with the target's tokenizer.
    load_target = f'\ntarget_tokenizer = AutoTokenizer.from_pretrained(folder, subfolder="{TARGET_FOLDER}")'
    reader = "target_tokenizer" if two_tokenizers else "tokenizer"
    load = f"""from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = "."  # this folder, or its id on the Hub
source = {source!r}
tokenizer = AutoTokenizer.from_pretrained(folder){load_target if two_tokenizers else ""}
model = AutoModelForSeq2SeqLM.from_pretrained(folder{trust})"""
    translate = f"""{load}
output = model.generate(**tokenizer(source, return_tensors="pt"), num_beams=4)
print({reader}.batch_decode(output, skip_special_tokens=True))"""
    heading = "## How to get started\n\n"
    if not _has_attention(config):
        return heading + _fenced(translate)
    both = "TokenizerPair(tokenizer, target_tokenizer)" if two_tokenizers else "tokenizer"
    import_pair = "from hf_seq2seq_attn.tokenizer_pair import TokenizerPair\n" if two_tokenizers else ""
    look = f"""from hf_seq2seq_attn.probing import align
{import_pair}
target = {target!r}
print(align(model, {both}, [source], [target]))"""
    if _aligns_only(recipe):
        # It never learned to translate.
        return heading + "With hf_seq2seq_attn installed:\n\n" + _fenced(f"{load}\n\n{look}")
    return heading + _fenced(translate) + "\n\nWith hf_seq2seq_attn installed, its word alignment:\n\n" + _fenced(look)


def _examination(metrics: Mapping[str, Any], config: Mapping[str, Any], pictures: set[str]) -> str:
    lines = ["## Model examination"]
    for part in ("dev", "test"):
        scores = metrics.get(part, {})
        if "aer" in scores:
            low, high = scores["aer_ci95"]
            lines.append(
                f"Word links read off the attention ({scores['align_with']} rows), against the gold links of {part}: "
                f"alignment error rate {scores['aer']:.3f} (95% interval {low:.3f} to {high:.3f}), precision "
                f"{scores['precision']:.3f}, recall {scores['recall']:.3f}, {scores['sentences']:,} sentences."
            )
    if "alignment_reading" in metrics:
        lines.append(_reading(metrics["alignment_reading"]))
    if ATTENTION_FILE in pictures:
        lines.append(f"![What each target word looked at, in one sentence pair]({ATTENTION_FILE})")
    if len(lines) == 1:
        return ""
    lines.append(
        "Attention shows where the decoder read, which is not by itself why it chose a word "
        "(Jain and Wallace 2019; Wiegreffe and Pinter 2019)."
    )
    return "\n\n".join(lines)


def _reading(reading: Mapping[str, Any]) -> str:
    heads = ", ".join(f"{layer}.{head}" for layer, head in reading["heads"])
    several = "the mean of the heads" if len(reading["heads"]) > 1 else "head"
    where = f"Its word alignment is read in {several} {heads} (layer.head, from 0), {reading['align_with']} rows"
    if "agreement" not in reading:
        return f"{where}, as was chosen for the model that training began with."
    default = f"; by default ({reading['default']}) it would be {reading['default_agreement']:.3f}"
    return (
        f"{where}. There it agrees with another aligner's links, 2 |A & B| / (|A| + |B|) = {reading['agreement']:.3f} "
        f"over {reading['pairs']:,} pairs{'' if reading['agreement'] == reading['default_agreement'] else default}; no "
        f"other heads or rows agree clearly better. The other aligner: {reading['aligner']}. No gold was used."
    )


def _limits(metrics: Mapping[str, Any], recipe: Recipe) -> str:
    train = metrics["data"]["train"]
    lines = [
        f"- It has seen {_pairs(train)} of {_corpora(train)}: expect little of text of another kind.",
        f"- Sentences longer than {recipe.data.max_source_length} source or {recipe.data.max_target_length} target "
        "sub-words were never seen.",
        f"- {_warning(recipe)}",
        "- One run with one seed: differences to another run of the same recipe are not measured.",
    ]
    if "too_long" in train and (train["too_long"] or train["blank"]):
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
        f"({_epochs(metrics['epochs'])}), seed {metrics['seed']}, {metrics['processes']} process(es), "
        f"device {hardware['device']} on {hardware['machine']} with {hardware['cpus']} CPUs "
        f"({hardware['threads']} threads).",
        f"Versions: {versions}.",
        f"`{RECIPE_FILE}` beside this card is the recipe as run; `{METRICS_FILE}` holds every number above.",
    ]
    if "links" in metrics:
        made = metrics["links"]
        lines.insert(
            2,
            f"Word links for guidance: {made['aligner']} on {made['pairs']:,} pairs, {made['forward']:,} forward and "
            f"{made['reverse']:,} reverse links, {made['links']:,} after {made['symmetrization']}; "
            f"{made['unaligned']:,} pairs could not be aligned.",
        )
    if CURVE_FILE in pictures:
        lines.append(f"![Learning curve]({CURVE_FILE})")
    return "\n\n".join(lines)


def _pairs(train: Mapping[str, Any]) -> str:
    # Of a stream from the Hub nobody has counted more than the first pairs.
    if "first_pairs_only" in train:
        return "a stream of sentence pairs"
    # A weight below 1 leaves pairs undrawn, one above 1 draws the same pairs again.
    seen = sum(min(one["kept"], one.get("drawn", one["kept"])) for one in train.get("corpora", [train]))
    return f"{seen:,} sentence pairs"


def _corpora(train: Mapping[str, Any]) -> str:
    number = len(train.get("corpora", [train]))
    return "one corpus" if number == 1 else f"{number} corpora"


def _epochs(epochs: float | None) -> str:
    return "epochs not counted" if epochs is None else f"{epochs:g} epochs"


def _warning(recipe: Recipe) -> str:
    if _aligns_only(recipe):
        return "It links words and does not translate: its translation loss was left out."
    return TASKS[recipe.task].warning


def _aligns_only(recipe: Recipe) -> bool:
    return recipe.alignment is not None and recipe.alignment.alignment_only


def _shared_name(init_from: str) -> str:
    """Return the id of a model on the Hub, or a folder's name: where it lies on this machine is nobody's business."""
    return Path(init_from).resolve().name if Path(init_from).exists() else init_from


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
