"""What `view` does with files: pages of maps, pictures, BertViz pages."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_seq2seq_attn.text_files import InputError, read_aligned

from .attention_maps import AttentionMaps, LayerChoice
from .choices import check_choices, fill_choices
from .chosen_maps import HeadsChoice, choice_in_use, describe_heads, extract_chosen
from .commands import parse_heads, parse_layer
from .extraction import check_rows, extract
from .fonts import undrawable
from .formats import Gold, write_atomically
from .heatmap import PICTURE_SUFFIXES, save_heatmap
from .link_commands import read_reported, remark
from .pair_view import PairView, pair_view
from .progress import progress_bar
from .refusals import refused
from .sinks import SinkTally
from .view import write_view

PAGE_SUFFIX = ".html"


def view_files(
    model_name: str,
    source: Path,
    target: Path,
    output: Path,
    *,
    gold: Path | None,
    sentence: int | None,
    align_with: str | None,
    layer: str | int | None,
    heads: str,
    specials: str | None,
    links: str | None,
    batch_size: int,
    weights: str | None = None,
    source_prefix: str = "",
    source_language: str | None = None,
    target_language: str | None = None,
    every_head: bool = True,
    bertviz: str | None = None,
) -> None:
    """Draw the maps of two text files: all pairs as one HTML page, one pair as a picture or as a BertViz page."""
    _check_output(output, bertviz, gold)
    one = sentence if output.suffix == PAGE_SUFFIX and bertviz is None else sentence or 1
    pairs = _read_pairs(source, target, gold, one)
    chosen_layer, chosen = _checked_heads(layer, heads, align_with)
    languages = dict(source_prefix=source_prefix, source_language=source_language, target_language=target_language)
    with refused(source, target, one or 1):
        if bertviz is not None:
            _write_bertviz(output, model_name, pairs, bertviz, align_with, chosen_layer, chosen, languages)
            return
        reading = _Reading(model_name, align_with, chosen_layer, chosen)
        reading.settle(specials=specials, links=links, weights=weights)
        reading.load()
        with progress_bar("reading attention") as progress:
            views = reading.views(pairs, every_head and output.suffix == PAGE_SUFFIX, batch_size, languages, progress)
            if output.suffix == PAGE_SUFFIX:
                reduced = write_view(output, views, title=f"Attention of {model_name}", note=reading.note())
            else:
                reduced, reading.done = "", 1
                _save_picture(output, next(views))
    remark(f"{output}: {reading.done} pairs; {reading.note()}")
    if reduced:
        remark(f"to keep the page small, {reduced}; name --sentence, --layer or --heads, or --no-every-head")
    if not reading.fitted:
        remark(reading.sinks.describe())


@dataclass
class _Pairs:
    sources: list[str]
    targets: list[str]
    gold: list[Gold | None]


class _Reading:
    """Which maps of a model alignments are read from, and how."""

    def __init__(self, model_name: str, align_with: str | None, layer: LayerChoice, heads: HeadsChoice) -> None:
        self.model_name = model_name
        self.where: dict[str, Any] = dict(align_with=align_with, layer=layer, heads=heads)
        self.choice = choice_in_use(model_name, align_with, layer, heads)
        self.fitted = self.choice is not None and self.choice.fit is not None
        self.sinks, self.done = SinkTally(), 0

    def settle(self, **given: str | None) -> None:
        """Fill in and check what was not given, before there is a model."""
        self.how = fill_choices(self.choice, subwords=None, **given)
        check_choices(self.where["align_with"], **self.how)

    def load(self) -> None:
        from hf_seq2seq_attn.translation import load_seq2seq

        self.model, self.tokenizer = load_seq2seq(self.model_name)

    def note(self) -> str:
        """Return in words what is read, and how."""
        weights = self.how["weights"]
        return f"{describe_heads(self.model, **self.where)}, specials {self.how['specials']}" + (
            f", weights {weights}" if weights != "attention" else ""
        )

    def views(
        self,
        pairs: _Pairs,
        every_head: bool,
        batch_size: int,
        languages: dict[str, Any],
        progress: Callable[[int, int], None],
    ) -> Iterator[PairView]:
        """Yield what there is to see of each pair."""
        common = dict(batch_size=batch_size, weights=self.how["weights"], **languages)
        read = extract_chosen(self.model, self.tokenizer, pairs.sources, pairs.targets, **self.where, **common)
        # A saved choice has rows of its own; a fit has rows of both kinds, of which the model's own are shown.
        rows = self.where["align_with"] or (None if self.fitted else getattr(self.choice, "align_with", None))
        all_heads: Iterator[AttentionMaps | None] = iter([None] * len(pairs.sources))
        if every_head:
            all_heads = extract(self.model, self.tokenizer, pairs.sources, pairs.targets, align_with=rows, **common)
        how = {name: self.how[name] for name in ("specials", "subwords", "links")}
        name = f"as alignments are read: {describe_heads(self.model, **self.where)}"
        for maps, each_head, gold in zip(read, all_heads, pairs.gold, strict=True):
            if not self.fitted:
                self.sinks.add(maps, layer="all")
            yield pair_view(maps, each_head, gold=gold, name=name, **how)
            # A pair that does not fit into the page is the last that is asked for.
            self.done += 1
            progress(self.done, len(pairs.sources))


def _check_output(output: Path, bertviz: str | None, gold: Path | None) -> None:
    if bertviz is None:
        if output.suffix not in (PAGE_SUFFIX, *PICTURE_SUFFIXES):
            allowed = ", ".join((PAGE_SUFFIX, *PICTURE_SUFFIXES))
            raise InputError(f"{output}: allowed suffixes are {allowed}; rename the output")
        return
    if output.suffix != PAGE_SUFFIX:
        raise InputError(f"{output}: BertViz draws a page; let the output end in {PAGE_SUFFIX}")
    if gold is not None:
        raise InputError(f"{gold}: BertViz shows no manual links; leave --gold or --bertviz out")


def _write_bertviz(
    output: Path,
    model_name: str,
    pairs: _Pairs,
    view: str,
    align_with: str | None,
    layer: LayerChoice,
    heads: HeadsChoice,
    languages: dict[str, Any],
) -> None:
    from hf_seq2seq_attn.translation import load_seq2seq

    from .bertviz_pages import bertviz_page, check_bertviz
    from .pair_attentions import pair_attentions

    if isinstance(heads, str):
        raise InputError(f"heads is {heads!r}; BertViz shows single heads: give numbers, or leave --heads out")
    check_bertviz(view)
    model, tokenizer = load_seq2seq(model_name)
    attentions = pair_attentions(
        model, tokenizer, pairs.sources[0], pairs.targets[0], align_with=align_with, **languages
    )
    layers = None if layer is None or isinstance(layer, str) else [layer] if isinstance(layer, int) else layer
    page = bertviz_page(attentions, view, layers=layers, heads=heads, title=f"Attention of {model_name}")
    write_atomically(output, [page.html])
    remark(f"{output}: {page.describe()}")


def _save_picture(output: Path, view: PairView) -> None:
    shown = view.words.maps[0]
    save_heatmap(output, shown.matrix, view.words.source, view.words.target, view.gold, links=shown.links)
    lost = undrawable([*view.words.source, *view.words.target])
    if lost:
        remark(f"warning: {output}: no installed font has {lost}; their code points stand in their place")


def _read_pairs(source: Path, target: Path, gold: Path | None, sentence: int | None) -> _Pairs:
    """Return the lines of both sides and their manual links; with `sentence`, counted from 1, of that line only."""
    sources, targets = read_aligned(source, target)
    manual: Sequence[Gold | None] = [None] * len(sources)
    if gold is not None:
        texts = [[line.split() for line in lines] for lines in (sources, targets)]
        manual = list(read_reported(gold, None, texts).sentences)
    if sentence is None:
        return _Pairs(sources, targets, list(manual))
    if not 1 <= sentence <= len(sources):
        raise InputError(f"{source}: has {len(sources)} lines, so there is no sentence {sentence}; choose another")
    one = slice(sentence - 1, sentence)
    return _Pairs(sources[one], targets[one], list(manual[one]))


def _checked_heads(layer: str | int | None, heads: str, align_with: str | None) -> tuple[LayerChoice, HeadsChoice]:
    """Return layers and heads by number; refuse, before there is a model, what nobody knows."""
    try:
        if align_with is not None:
            check_rows(align_with)
        return parse_layer(layer), parse_heads(heads)
    except ValueError as error:
        raise InputError(str(error)) from error
