"""Guided attention: pull chosen cross-attention rows towards known word links while the model learns to translate.

Sources: Liu et al. 2016 ("Neural machine translation with supervised attention") for recurrent decoders; Garg et al.
2019 ("Jointly learning to align and translate with Transformer models") for one head of a Transformer.

Rows. Decoder row t predicts label t, so `rows="output"` guides label t at row t. `rows="input"` guides it at the first
row that has read it: t + 1, or t + 2 where the attention asks with the previous state. That row of the last word lies
beyond the last label, the end token, so the decoder then runs one row longer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import logging as hf_logging

from hf_seq2seq_attn.probing import default_rows, row_offset

from .collation import GUIDE, IGNORED_LABEL, decoder_inputs
from .step_loss import has_router_loss, mean_cross_entropy, swallows_item_count
from .unsaved_weights import freeze_unsaved

logger = hf_logging.get_logger(__name__)

SMALLEST_WEIGHT = 1e-9
"""Weights below this count as this: the loss of a link stays finite at -ln(1e-9) = 20.7."""

ATTENTION_OUTPUTS = ("encoder_attentions", "decoder_attentions", "cross_attentions")


@dataclass
class GuidedAttention:
    """What to guide, and how strongly.

    Args:
        weight: the training loss is the translation loss + `weight` * the guided loss.
        layer: decoder layer, an index into `cross_attentions`, negative from the end. None: the config's
            `alignment_layer`, else the only layer of a recurrent decoder, else the last but one for output rows (Garg
            et al. 2019) and the middle one for input rows (Chen et al. 2020 found the third of six).
        heads: heads of that layer; each is guided by itself.
        rows: "output" | "input" (above). None: the config's `alignment_rows`, else output for a recurrent decoder and
            input for a Transformer.
        alignment_only: leave the translation loss out: the model becomes a word aligner.
    """

    weight: float = 0.5
    layer: int | None = None
    heads: Sequence[int] = field(default_factory=lambda: [0])
    rows: str | None = None
    alignment_only: bool = False

    def __post_init__(self) -> None:
        if self.rows not in (None, "input", "output"):
            raise ValueError(f"guided attention rows={self.rows!r}: choose 'input', 'output' or None")
        if not self.weight > 0:
            raise ValueError(f"guided attention weight={self.weight}: must be above 0; 0 is no guidance, leave it out")
        if not self.heads or len(set(self.heads)) != len(self.heads) or min(self.heads) < 0:
            raise ValueError(f"guided attention heads={list(self.heads)}: give each head once, counted from 0")


@dataclass(frozen=True)
class GuidedRows:
    """A `GuidedAttention` settled for one model: every choice made."""

    layer: int
    heads: tuple[int, ...]
    rows: str
    row_offset: int
    """Label t is guided at decoder row t + row_offset."""


def settle(guidance: GuidedAttention, config: Any) -> GuidedRows:
    """Return what `guidance` means for the model of `config`, any HF encoder-decoder.

    Raises:
        ValueError: the model has no cross-attention, a layer or head that is not there, or input rows with no head left
            free: these rows have already read the word, and the next word needs a context of its own.
    """
    if getattr(config, "cross_attention_type", None) == "none":
        raise ValueError(
            "cross_attention_type='none' has no attention to guide; choose another or drop the alignment section"
        )
    rows = guidance.rows or default_rows(config)
    layers, heads = layers_and_heads(config)
    layer = guidance.layer if guidance.layer is not None else getattr(config, "alignment_layer", None)
    if layer is None:
        layer = max(layers - 2, 0) if rows == "output" else (layers - 1) // 2
    if not -layers <= layer < layers:
        raise ValueError(
            f"guided attention layer={layer}: this decoder gives {layers} layer(s) of maps; use 0..{layers - 1}, or "
            "negative numbers from the end"
        )
    if max(guidance.heads) >= heads:
        raise ValueError(
            f"guided attention heads={list(guidance.heads)}: this layer has {heads} head(s); use 0..{heads - 1}"
        )
    if rows == "input" and not guidance.alignment_only and len(guidance.heads) >= heads:
        raise ValueError(
            f"guided attention rows='input' takes {len(guidance.heads)} of {heads} head(s): those rows look at the "
            "word already said, so nothing would look for the next one; guide fewer heads than there are (raise "
            "cross_attention_heads), or use rows='output', or alignment_only"
        )
    return GuidedRows(layer % layers, tuple(guidance.heads), rows, row_offset(config, rows))


def guided_attention_loss(
    cross_attentions: Sequence[Tensor],
    guide: Tensor,
    settled: GuidedRows,
    labels: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the summed loss over guided rows, and their number.

    The loss of a row is the cross-entropy of its weights a against its row of the guide, normalised to sum 1:
    -sum_s g(s) ln a(s) (Garg et al. 2019, eq. 5; Liu et al. 2016, section 3), averaged over the guided heads.
    Rows without a link, and rows beyond the end of a target, do not count.

    Args:
        cross_attentions: per decoder layer (B, H, T + `extra_rows`, S): rows sum to 1 over the readable positions.
        guide: (B, T, S): above 0 where label t is linked to source token s.
        settled: layer, heads and rows.
        labels: (B, T) int64, -100 = padding. None: every target is T long.

    Returns:
        Two float32 scalars: the sum, with its gradient, and the number of rows. Their quotient is the mean.
    """
    weights = cross_attentions[settled.layer][:, list(settled.heads)].float()
    weights, targets = shift_guide(weights, guide.to(weights.device), settled.row_offset, labels)
    links_of_row = targets.sum(dim=-1, keepdim=True)
    goal = (targets / links_of_row.clamp(min=1e-9)).unsqueeze(1)
    entropy = -(goal * weights.clamp(min=SMALLEST_WEIGHT).log()).sum(dim=-1).mean(dim=1)
    return entropy.sum(), (links_of_row > 0).sum().float()


def extra_rows(row_offset: int) -> int:
    """Return how many rows a decoder must run beyond its T labels, so that each word before the end token has a row."""
    return max(row_offset - 1, 0)


def shift_guide(weights: Tensor, guide: Tensor, row_offset: int, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the rows of `weights` (B, H, T + extra_rows, S) and of `guide` (B, T, S) that belong together.

    Input rows have read label t, which is then followed by another, the end token at least. Where none follows (-100),
    the guide of label t is set to 0, so that a sentence is guided alike alone and in a batch.
    """
    batch, length, positions = guide.shape
    if (weights.shape[0], *weights.shape[2:]) != (batch, length + extra_rows(row_offset), positions):
        raise ValueError(
            f"guide {tuple(guide.shape)} does not fit attention {tuple(weights.shape)}: it must be (B, T, S) for maps "
            f"(B, H, T + {extra_rows(row_offset)}, S) of the same batch"
        )
    weights = weights[:, :, row_offset:]
    targets = guide[:, : weights.shape[2]].float()
    if labels is not None:
        targets = targets * _is_guidable(labels, row_offset).to(targets.device).unsqueeze(-1)
    return weights, targets


def count_guided_rows(batch: dict[str, Tensor], row_offset: int) -> Tensor:
    """Return how many rows of a batch are guided, as a float32 scalar on the batch's device."""
    guide = batch.get(GUIDE)
    if guide is None:
        return torch.zeros(())
    guidable = _is_guidable(batch["labels"], row_offset)
    return (guide.any(dim=-1)[:, : guidable.shape[1]] & guidable).sum().float()


def _is_guidable(labels: Tensor, row_offset: int) -> Tensor:
    """Return (B, T) bool for output rows: label t is there; (B, T - 1) for input rows: another label follows it."""
    return labels.ne(IGNORED_LABEL)[:, min(row_offset, 1) :]


class GuidedAttentionMixin:
    """Add guided attention to a Hugging Face `Trainer` or `Seq2SeqTrainer`; put it before the Trainer in the bases.

    Batches carry `guide` (B, T, S), as `Seq2SeqCollator` makes them, and the arguments have
    `remove_unused_columns=False`. Without `guidance` it guides nothing, and takes the guide out of the batch. The model
    may wear adapters of the `peft` library. Weights that its model does not save are frozen (`unsaved_weights`).

    Both losses are means over an optimiser step, of all labels and all guided rows: of all micro-batches when gradients
    are accumulated, and of all processes. For models that swallow the number of labels the translation loss is computed
    here (`step_loss`). (A model whose loss the Trainer itself averages over micro-batches gets the mean of each.) In
    evaluation the loss stays the translation loss, and `eval_guided_loss` stands beside it.
    """

    guidance: GuidedAttention | None = None

    def __init__(self, *args: Any, guidance: GuidedAttention | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.guidance = guidance
        self._guided: GuidedRows | None = None
        self._guided_rows_of_step: Tensor | None = None
        # [summed loss, rows] since the last report, apart for training (True) and evaluation (False).
        self._guided_sums: dict[bool, Tensor] = {}
        trainer: Any = self
        model: PreTrainedModel = _without_adapters(trainer.accelerator.unwrap_model(trainer.model))
        freeze_unsaved(model)
        # The Trainer's own label smoothing divides rightly; a function given by the caller knows what it does.
        if trainer.label_smoother is None and trainer.compute_loss_func is None and swallows_item_count(model):
            if has_router_loss(model):
                trainer.model_accepts_loss_kwargs = False
            else:
                trainer.compute_loss_func = mean_cross_entropy
        if guidance is not None:
            self._guided = settle(guidance, model.config)
            _mark_model(model, self._guided)
            _warn_of_dropped_weights(model)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | int | None]:
        """Fetch the micro-batches of one optimiser step, and count their guided rows over all processes."""
        samples, items = super().get_batch_samples(epoch_iterator, num_batches, device)  # type: ignore[misc]
        self._guided_rows_of_step = None
        if self._guided is not None and items is not None:
            rows = torch.stack(
                [count_guided_rows(batch, self._guided.row_offset).to(device) for batch in samples]
            ).sum()
            if self._averages_across_devices():
                rows = self.accelerator.gather(rows.unsqueeze(0)).sum()  # type: ignore[attr-defined]
            self._guided_rows_of_step = rows
        return samples, items

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the loss of the Trainer plus the weighted guided loss."""
        guide = inputs.get(GUIDE)
        inputs = self._with_decoder_inputs({key: value for key, value in inputs.items() if key != GUIDE})
        compute: Any = super().compute_loss  # type: ignore[misc]
        if self._guided is None or self.guidance is None or guide is None:
            return compute(model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch)
        labels = inputs["labels"]
        loss, outputs = compute(
            model,
            {**_lengthened(inputs, extra_rows(self._guided.row_offset)), "output_attentions": True},
            return_outputs=True,
            num_items_in_batch=num_items_in_batch,
        )
        maps = outputs.get("cross_attentions")
        if not maps:
            raise ValueError(
                "the model gave no cross_attentions to guide; load it with attn_implementation='eager', or call "
                "model.set_attn_implementation('eager') (fused attention does not return its weights)"
            )
        total, rows = guided_attention_loss(maps, guide, self._guided, labels)
        seen = torch.stack([total.detach(), rows])
        self._guided_sums[model.training] = seen + self._guided_sums.get(model.training, 0)
        if model.training:
            translation = 0.0 if self.guidance.alignment_only else 1.0
            loss = translation * loss + self.guidance.weight * self._mean_over_step(total, rows)
        if not return_outputs:
            return loss
        # The Trainer gathers whatever stands in the outputs; the maps were asked for by this method only.
        kept = {key: value for key, value in outputs.items() if key not in ATTENTION_OUTPUTS}
        if "logits" in kept:
            kept["logits"] = kept["logits"][:, : labels.shape[1]]
        return loss, type(outputs)(**kept)

    def prediction_step(
        self, model: torch.nn.Module, inputs: dict[str, Any], prediction_loss_only: bool, *args: Any, **kwargs: Any
    ) -> Any:
        """Predict as the Trainer does; `generate` gets no guide."""
        if getattr(self.args, "predict_with_generate", False) and not prediction_loss_only:  # type: ignore[attr-defined]
            inputs = {key: value for key, value in inputs.items() if key != GUIDE}
        return super().prediction_step(model, inputs, prediction_loss_only, *args, **kwargs)  # type: ignore[misc]

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate as the Trainer does, and add `PREFIX_guided_loss` where the data have links."""
        self._guided_sums.pop(False, None)
        output = super().evaluation_loop(*args, **kwargs)  # type: ignore[misc]
        guided_loss = self._take_guided_mean(training=False)
        if guided_loss is not None:
            prefix = kwargs.get("metric_key_prefix", "eval")
            output.metrics[f"{prefix}_guided_loss"] = guided_loss
        return output

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log as the Trainer does, with the mean `guided_loss` since the last training log."""
        if "loss" in logs and self._guided is not None:
            guided_loss = self._take_guided_mean(training=True)
            if guided_loss is not None:
                logs = {**logs, "guided_loss": guided_loss}
        super().log(logs, *args, **kwargs)  # type: ignore[misc]

    def _with_decoder_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Add the shifted labels where the Trainer takes the labels away and the collator knew no model."""
        trainer: Any = self
        takes_labels = trainer.label_smoother is not None or trainer.compute_loss_func is not None
        if not takes_labels or "labels" not in inputs or "decoder_input_ids" in inputs:
            return inputs
        model = _without_adapters(trainer.accelerator.unwrap_model(trainer.model))
        return {**inputs, "decoder_input_ids": decoder_inputs(model, inputs["labels"])}

    def _mean_over_step(self, total: Tensor, rows: Tensor) -> Tensor:
        if self._guided_rows_of_step is None:
            return total / rows.clamp(min=1)
        mean = total / self._guided_rows_of_step.to(total.device).clamp(min=1)
        # The gradients are averaged over the processes, but this mean already counts the rows of all of them.
        return mean * self.accelerator.num_processes if self._averages_across_devices() else mean  # type: ignore[attr-defined]

    def _averages_across_devices(self) -> bool:
        trainer: Any = self
        return bool(trainer.args.average_tokens_across_devices) and trainer.accelerator.num_processes > 1

    def _take_guided_mean(self, training: bool) -> float | None:
        """Return the mean over the rows seen since the last call, of all processes; None if there were none."""
        trainer: Any = self
        sums = self._guided_sums.pop(training, torch.zeros(2)).to(trainer.args.device)
        total, rows = trainer.accelerator.gather(sums.unsqueeze(0)).sum(dim=0).tolist()
        return total / rows if rows else None


def _without_adapters(model: Any) -> Any:
    """Return the model that adapters of `peft` are put on; they change neither its maps nor its config."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _lengthened(inputs: dict[str, Any], rows: int) -> dict[str, Any]:
    """Let the decoder run `rows` longer. What these rows read and predict touches neither the loss nor a guided row."""
    fills = {"labels": IGNORED_LABEL, "decoder_input_ids": 0, "decoder_attention_mask": 1}
    return {key: F.pad(value, (0, rows), value=fills[key]) if key in fills else value for key, value in inputs.items()}


def layers_and_heads(config: Any) -> tuple[int, int]:
    """Return how many layers of cross-attention maps the model gives, and the heads in each."""
    if getattr(config, "decoder_is_recurrent", False):
        return 1, config.cross_attention_heads or 1
    decoder = getattr(config, "decoder", config)
    layers = _first(decoder, "decoder_layers", "num_decoder_layers", "num_hidden_layers", "num_layers")
    heads = _first(decoder, "cross_attention_heads", "decoder_attention_heads", "num_heads", "num_attention_heads")
    return layers, heads


def _first(config: Any, *names: str) -> int:
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return int(value)
    raise ValueError(
        f"{type(config).__name__} has none of {', '.join(names)}; guided attention needs an encoder-decoder"
    )


def _mark_model(model: PreTrainedModel, guided: GuidedRows) -> None:
    """Tell the model where its word alignment is, so that probing reads the guided heads by default.

    Our config has fields for it; others say it where `probing.save_choice` does. Heads chosen there before are of the
    past, and would go before our config's.
    """
    config: Any = model.config
    generation: Any = getattr(model, "generation_config", None)
    is_ours = hasattr(config, "alignment_rows")
    if is_ours:
        config.alignment_rows = guided.rows
        config.alignment_layer = guided.layer
        config.alignment_heads = list(guided.heads)
    if generation is not None and (not is_ours or getattr(generation, "alignment_heads", None)):
        # With this mark the library would save its own fields only.
        generation._from_model_config = False
        generation.alignment_heads = [[guided.layer, head] for head in guided.heads]
        generation.alignment_rows = guided.rows


def _warn_of_dropped_weights(model: PreTrainedModel) -> None:
    """Ours returns weights from before dropout; others return them after it."""
    config = model.config
    rate = getattr(config, "attention_dropout", None)
    if rate is None:
        rate = getattr(config, "dropout_rate", 0.0)
    if getattr(config, "model_type", None) != "seq2seq_attn" and rate:
        logger.warning(
            f"{type(model).__name__} drops attention weights (rate {rate}) before it returns them, so the guided loss "
            "is noisy; set attention_dropout=0 (T5: dropout_rate=0) for a clean one"
        )
