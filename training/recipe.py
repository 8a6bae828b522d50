"""A recipe is one YAML file that says everything about a run. Bad ones are refused before anything starts."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hf_seq2seq_attn.text_files import InputError, read_lines

from .data_recipe import Corpus, DataRecipe, check_data, choose_corpus_kind, corpora_of, has_links
from .loop_recipe import BatchingRecipe, ScheduleRecipe, SelectionRecipe, ValidationRecipe, check_loop
from .recipe_yaml import RecipeLoader, find_line


@dataclass
class TokenizerRecipe:
    kind: str = "bpe"
    vocab_size: int = 8000
    lowercase: bool = False
    split_punctuation: bool = False
    """Each punctuation mark is a piece of its own: for plain text, where it sticks to its word. `bpe` only."""
    dropout: float = 0.0
    """The share of merges left out at random, anew in each epoch, where training text is cut; see `bpe_dropout`."""
    separate: bool = False
    """One tokenizer and vocabulary for each side, instead of one for both."""
    target_vocab_size: int | None = None
    """Of the target's tokenizer, where it is a separate one; None = `vocab_size`."""


@dataclass
class AlignmentRecipe:
    """Guided attention; see `guided_attention.GuidedAttention` for each field."""

    weight: float = 0.5
    layer: int | None = None
    heads: list[int] = field(default_factory=lambda: [0])
    rows: str | None = None
    alignment_only: bool = False
    links: str | None = None
    """Make the training links on the spot: `eflomal` (`statistical_links`). None = those that data.train names."""
    symmetrization: str | None = None
    """How both directions of links made on the spot become one, of `probing.SYMMETRIZATIONS`; None =
    grow-diag-final-and-moses."""


@dataclass
class PrepareRecipe:
    """A corpus that the run makes by itself, before it reads any file, unless it is there already."""

    corpus: str
    """One of `prepared_corpora.CORPORA`."""
    folder: str
    """Where its files lie; `data` names them there."""


@dataclass(frozen=True)
class Task:
    """How a card calls what a model does: the model, the task, the Hub's tags, and what can go wrong."""

    model: str
    name: str
    pipeline: str | None
    tag: str | None
    warning: str


TASKS = {
    "translation": Task(
        "translation model",
        "Translation",
        "translation",
        None,
        "It may translate wrongly and fluently; nothing in it knows when it does.",
    ),
    "g2p": Task(
        "model from spelling to sound",
        "Grapheme-to-phoneme conversion",
        None,
        "grapheme-to-phoneme",
        "It may pronounce wrongly, foreign names above all; nothing in it knows when it does.",
    ),
}


@dataclass
class Recipe:
    """One run.

    `model` holds fields of Seq2SeqAttnConfig; or `init_from: DIR_OR_ID` and fields to change in that config.
    `training` holds fields of Seq2SeqTrainingArguments. Both were checked by `load_recipe`.
    """

    name: str
    data: DataRecipe
    tokenizer: TokenizerRecipe | None = None
    """None: the default TokenizerRecipe, or the tokenizer of `model.init_from`."""
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    alignment: AlignmentRecipe | None = None
    prepare: PrepareRecipe | None = None
    task: str = "translation"
    """What the model is for, a key of `TASKS`: the card says so."""
    batching: BatchingRecipe | None = None
    """Batches by tokens; None = by sentences, `training.per_device_train_batch_size`."""
    schedule: ScheduleRecipe | None = None
    """None = `training.lr_scheduler_type`."""
    validation: ValidationRecipe | None = None
    """None = the loss during training, and chrF, BLEU and AER at the end."""
    selection: SelectionRecipe | None = None
    """None = the weights of the last step."""
    license: str | None = None
    """Of the model, for the card: an identifier of the Hub, e.g. `cc-by-4.0`."""
    report: bool = False
    """Leave a report on the test part, else the dev part, beside the card: what `seq2seq-attn report` writes."""


OWN_TRAINING_FIELDS = {
    "output_dir": "it is the -o of the command",
    "remove_unused_columns": "the collator needs its columns",
    "length_column_name": "the data are measured by this package",
    "push_to_hub": "push the finished folder with `seq2seq-attn push`",
    "resume_from_checkpoint": "an interrupted run goes on when the same command is given again",
}
OWN_MODEL_FIELDS = dict.fromkeys(
    ("vocab_size", "decoder_vocab_size", "pad_token_id", "bos_token_id", "eos_token_id"),
    "it follows from the tokenizer",
) | dict.fromkeys(("alignment_rows", "alignment_layer", "alignment_heads"), "it follows from the alignment section")


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe, put `overrides` over it, check every field.

    Args:
        path: a YAML file, or the name of a shipped recipe, e.g. `bahdanau2015`.
        overrides: `section.field=value` strings; the value is YAML. `alignment=null` drops a section.

    Raises:
        InputError: `FILE:LINE: what; remedy`, for a file that is not UTF-8 or not YAML, an unknown field (with the
            nearest known name), a missing field, a wrong type, or an override that is not `field=value`.
    """
    path = _find_recipe(path)
    text = "\n".join(read_lines(path))
    try:
        tree = yaml.load(text, Loader=RecipeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"{path}:{line}: not YAML ({problem}); mend this line") from error
    if not isinstance(tree, dict):
        raise InputError(f"{path}:1: a recipe is a table of sections (data, model, training, ...), not this")

    overridden: dict[tuple[str, ...], str] = {}
    for override in overrides:
        overridden[_apply_override(tree, override)] = override

    def where(keys: tuple[str, ...]) -> str:
        for length in range(len(keys), 0, -1):
            if keys[:length] in overridden:
                return overridden[keys[:length]]
        for given, override in overridden.items():
            if given[: len(keys)] == keys:
                return override
        return f"{path}:{find_line(text, keys)}"

    tree.setdefault("name", path.stem)
    recipe = _build(Recipe, tree, (), where)
    _check(recipe, where)
    return recipe


def save_recipe(recipe: Recipe, path: str | Path) -> None:
    """Write a recipe as YAML that `load_recipe` reads back to an equal one."""
    tree = dataclasses.asdict(recipe)
    Path(path).write_text(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), encoding="utf-8")


def shipped_recipes() -> dict[str, Path]:
    """Return the recipes that come with the package: name -> file."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "recipes").glob("*.yaml"))}


def _find_recipe(path: str | Path) -> Path:
    if Path(path).is_file():
        return Path(path)
    shipped = shipped_recipes()
    if str(path) in shipped:
        return shipped[str(path)]
    raise InputError(f"{path}: no such recipe; give a YAML file or one of {', '.join(shipped)}")


def _apply_override(tree: dict[str, Any], override: str) -> tuple[str, ...]:
    """Put one `field.sub=value` into the tree and return its keys."""
    name, equals, value = override.partition("=")
    keys = tuple(name.strip().split("."))
    if not equals or not all(keys):
        raise InputError(f"{override}: not an override; write field=value, e.g. training.max_steps=100")
    try:
        parsed = yaml.load(value, Loader=RecipeLoader)
    except yaml.YAMLError as error:
        raise InputError(f"{override}: the value is not YAML; quote it, e.g. name='a: b'") from error
    inner = tree
    for key in keys[:-1]:
        if inner.get(key) is None:
            inner[key] = {}
        inner = inner[key]
        if not isinstance(inner, dict):
            raise InputError(f"{override}: {key} holds a value, not fields; set it whole")
    inner[keys[-1]] = parsed
    return keys


Where = typing.Callable[[tuple[str, ...]], str]


def _build(kind: Any, value: Any, keys: tuple[str, ...], where: Where) -> Any:
    """Return `value` as the annotated type `kind`: a dataclass, a union, a list, a dict or a plain type."""
    name = ".".join(keys)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise InputError(f"{where(keys)}: {name} holds fields, not {value!r}; write them below it")
        hints = typing.get_type_hints(kind)
        refuse_unknown(value, hints, keys, where)
        for item in dataclasses.fields(typing.cast(Any, kind)):
            required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
            if required and item.name not in value:
                raise InputError(f"{where(keys)}: {'.'.join((*keys, item.name))} is missing; it has no default")
        built = {key: _build(hints[key], value[key], (*keys, key), where) for key in value}
        return typing.cast(Any, kind)(**built)
    if isinstance(kind, types.UnionType):
        if value is None and type(None) in typing.get_args(kind):
            return None
        return _build(_choose(typing.get_args(kind), value, keys, where), value, keys, where)
    if typing.get_origin(kind) is list:
        if not isinstance(value, list):
            raise InputError(f"{where(keys)}: {name}={value!r}: must be a list, e.g. [0]")
        items = enumerate(value)
        return [_build(typing.get_args(kind)[0], item, (*keys, str(number)), where) for number, item in items]
    if typing.get_origin(kind) is dict:
        kind = dict
    if kind is float and type(value) is int:
        value = float(value)
    # bool is an int to Python, but `layer: true` is a slip.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        got = type(value).__name__
        raise InputError(f"{where(keys)}: {name}={value!r}: must be {kind.__name__}, not {got}")
    return value


def _choose(kinds: tuple[Any, ...], value: Any, keys: tuple[str, ...], where: Where) -> Any:
    """Return which of several types a value is meant to be; the first one where none fits."""
    if isinstance(value, list):
        return next((kind for kind in kinds if typing.get_origin(kind) is list), kinds[0])
    if isinstance(value, dict) and set(kinds) >= set(typing.get_args(Corpus)):
        corpus = choose_corpus_kind(value)
        if corpus is None:
            raise InputError(
                f"{where(keys)}: {'.'.join(keys)} must say where its pairs lie by one of `source` and `target`, "
                "`file`, or `dataset`"
            )
        return corpus
    plain = [kind for kind in kinds if isinstance(kind, type) and isinstance(value, kind)]
    return plain[0] if plain and not isinstance(value, bool) else kinds[0]


def refuse_unknown(given: Iterable[str], known: Iterable[str], keys: tuple[str, ...], where: Where) -> None:
    """Raise an InputError for the first name in `given` that is not in `known`, naming the nearest."""
    known = list(known)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(known[:12])}"
            section = ".".join(keys) or "a recipe"
            raise InputError(f"{where((*keys, str(name)))}: {section} has no field {name!r}; {remedy}")


def _check_fields_of(owner: Any, given: dict[str, Any], section: str, where: Where) -> None:
    """Check names and plain types of fields that belong to a data class of others."""
    known = {item.name: item.type for item in dataclasses.fields(owner) if item.init}
    refuse_unknown(given, known, (section,), where)
    for name, value in given.items():
        if not _fits(value, known[name]):
            wanted = getattr(known[name], "__name__", None) or str(known[name])
            raise InputError(f"{where((section, name))}: {section}.{name}={value!r}: must be {wanted}")


def _fits(value: Any, kind: Any) -> bool:
    """Tell whether a value fits a plain type or a union of them; what is not plain is left to its owner."""
    if isinstance(kind, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(kind))
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    if kind in (str, bool, types.NoneType):
        return isinstance(value, kind)
    return True


def _check(recipe: Recipe, where: Where) -> None:
    """Check what types cannot say, and the two sections that belong to classes of others."""
    from transformers import Seq2SeqTrainingArguments

    from hf_seq2seq_attn import Seq2SeqAttnConfig

    from .tokenization import KINDS

    for section, own in (("training", OWN_TRAINING_FIELDS), ("model", OWN_MODEL_FIELDS)):
        for name in getattr(recipe, section):
            if name in own:
                raise InputError(f"{where((section, name))}: {section}.{name} is not set here; {own[name]}")
    _check_fields_of(Seq2SeqTrainingArguments, recipe.training, "training", where)
    if "init_from" not in recipe.model:
        _check_fields_of(Seq2SeqAttnConfig, recipe.model, "model", where)
    elif recipe.tokenizer is not None:
        raise InputError(
            f"{where(('tokenizer',))}: model.init_from brings its own tokenizer; remove the tokenizer section"
        )
    if recipe.tokenizer is not None and recipe.tokenizer.kind not in KINDS:
        raise InputError(
            f"{where(('tokenizer', 'kind'))}: tokenizer.kind={recipe.tokenizer.kind!r}: "
            f"choose one of {', '.join(KINDS)}"
        )
    if (
        recipe.tokenizer is not None
        and recipe.tokenizer.target_vocab_size is not None
        and not recipe.tokenizer.separate
    ):
        raise InputError(
            f"{where(('tokenizer', 'target_vocab_size'))}: tokenizer.target_vocab_size needs separate tokenizers; "
            "set tokenizer.separate=true"
        )
    if recipe.tokenizer is not None and recipe.tokenizer.dropout != 0:
        _check_dropout(recipe.tokenizer, recipe.data, where)
    check_data(recipe.data, recipe.training, where)
    if recipe.data.streaming and recipe.batching is not None:
        raise InputError(
            f"{where(('batching',))}: batching by tokens needs all pairs in memory; set data.streaming=false, or "
            "batching=null and training.per_device_train_batch_size"
        )
    if recipe.alignment is not None:
        _check_alignment(recipe.alignment, recipe.data, where)
    if recipe.task not in TASKS:
        raise InputError(f"{where(('task',))}: task={recipe.task!r}: choose one of {', '.join(TASKS)}")
    if recipe.prepare is not None:
        from .prepared_corpora import CORPORA

        if recipe.prepare.corpus not in CORPORA:
            raise InputError(
                f"{where(('prepare', 'corpus'))}: prepare.corpus={recipe.prepare.corpus!r}: "
                f"choose one of {', '.join(CORPORA)}"
            )
    if recipe.report and recipe.data.test is None and recipe.data.dev is None:
        raise InputError(f"{where(('report',))}: report=true needs a test set; name data.test or data.dev")
    check_loop(recipe, where)


def _check_dropout(tokenizer: TokenizerRecipe, data: DataRecipe, where: Where) -> None:
    here = f"{where(('tokenizer', 'dropout'))}: tokenizer.dropout={tokenizer.dropout:g}"
    if not 0 <= tokenizer.dropout <= 1:
        raise InputError(f"{here}: a share of merges, from 0 to 1; 0.1 is usual")
    if tokenizer.kind != "bpe":
        raise InputError(f"{here} leaves out merges, which only kind=bpe has; set tokenizer.kind=bpe or dropout=0")
    if data.streaming:
        raise InputError(f"{here} needs all pairs in memory; set data.streaming=false or tokenizer.dropout=0")


def _check_alignment(alignment: AlignmentRecipe, data: DataRecipe, where: Where) -> None:
    linked = any(has_links(corpus) for corpus in corpora_of(data))
    if alignment.rows not in (None, "input", "output"):
        raise InputError(
            f"{where(('alignment', 'rows'))}: alignment.rows={alignment.rows!r}: choose input, output or null"
        )
    if alignment.links is not None and data.streaming:
        raise InputError(
            f"{where(('alignment', 'links'))}: alignment.links={alignment.links} needs all pairs in memory; "
            "set data.streaming=false, or make the links first (`seq2seq-attn align`) and name them in data.train"
        )
    if alignment.links is not None:
        _check_links_on_the_spot(alignment, linked, where)
    elif alignment.symmetrization is not None:
        raise InputError(
            f"{where(('alignment', 'symmetrization'))}: alignment.symmetrization is for links made on the spot; "
            "set alignment.links=eflomal, or leave it out"
        )
    elif not linked:
        raise InputError(
            f"{where(('alignment',))}: guided attention needs data.train.links; "
            "give a file of links, set alignment.links=eflomal, or alignment=null"
        )


def _check_links_on_the_spot(alignment: AlignmentRecipe, has_links: bool, where: Where) -> None:
    from hf_seq2seq_attn.probing import SYMMETRIZATIONS

    from .statistical_links import ALIGNERS

    if alignment.links not in ALIGNERS:
        raise InputError(
            f"{where(('alignment', 'links'))}: alignment.links={alignment.links!r}: choose {', '.join(ALIGNERS)} or "
            "null; a file of links is named by data.train.links"
        )
    if has_links:
        raise InputError(
            f"{where(('alignment', 'links'))}: alignment.links={alignment.links} makes links, but data.train.links "
            "names some; set one of the two to null"
        )
    if alignment.symmetrization not in (None, *SYMMETRIZATIONS):
        raise InputError(
            f"{where(('alignment', 'symmetrization'))}: alignment.symmetrization={alignment.symmetrization!r}: choose "
            f"one of {', '.join(SYMMETRIZATIONS)}"
        )
