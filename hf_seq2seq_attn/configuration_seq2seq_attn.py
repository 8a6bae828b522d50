"""Every choice of a Seq2SeqAttn model: named, typed and checked together."""

import copy
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.activations import ACT2CLS

SIDE_TYPES = ("transformer", "gru", "lstm")
ATTENTION_TYPES = ("scaled_dot_product", "additive", "none")
CHOICES = {
    "encoder_type": SIDE_TYPES,
    "decoder_type": SIDE_TYPES,
    "cross_attention_type": ATTENTION_TYPES,
    "attend_with": ("current_state", "previous_state"),
    "context_fusion": ("concat", "add", "gate"),
    "position_embedding_type": ("sinusoidal", "learned"),
    "activation_function": tuple(ACT2CLS),
    "alignment_rows": ("input", "output"),
}
SIZES = (
    "vocab_size",
    "decoder_vocab_size",
    "encoder_layers",
    "decoder_layers",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "max_position_embeddings",
    "cross_attention_heads",
    "cross_attention_dim",
)


@strict
class Seq2SeqAttnConfig(PreTrainedConfig):
    """Configure a sequence-to-sequence model with the attention of your choice.

    A choice that the variant does not read must be left at its default; set all the same, it is refused, so that no
    setting is without effect. (Sizes of a Transformer side may stay set when that side is recurrent: HF tools read
    them from every config, and one set of sizes can serve a comparison of all variants.)

    Args:
        vocab_size: Size of the source vocabulary, and of the target's if `decoder_vocab_size` is None.
        decoder_vocab_size: Size of the target vocabulary; None = `vocab_size`.
        d_model: Width of embeddings, encoder states, decoder states and readout.
        encoder_type, decoder_type: `transformer`, `gru` or `lstm`.
        cross_attention_type: `scaled_dot_product` (Vaswani et al. 2017, eq. 1), `additive` (Bahdanau et al. 2015,
            appendix A.1.2) or `none` (recurrent decoders only: one fixed context vector, Sutskever/Cho et al. 2014).
        encoder_bidirectional: Recurrent encoders: read both ways, d_model / 2 each; None = True.
        cross_attention_heads: None = `decoder_attention_heads` for Transformer decoders, 1 for recurrent ones.
        cross_attention_dim: Width A of queries and keys over all heads; None = `d_model`.
        scale_scores: Scaled dot product: divide by sqrt(A / heads); None = True. False shows why scaling matters.
        project_values: Give values their own projection; None = False for one-head recurrent decoders (V = h, as in
            Bahdanau et al. 2015), else True.
        null_key: Add a learned key and value that mean "no source word".
        attend_with: Recurrent decoders: query with the `current_state` s_t (Luong et al. 2015) or the
            `previous_state` s_{t-1} (Bahdanau et al. 2015); None = `current_state`.
        input_feeding: Recurrent decoders with `current_state`: feed r_{t-1} into step t (Luong et al. 2015, 3.3).
        context_fusion: Recurrent decoders: how state and context become the readout, `concat`, `add` or `gate`;
            None = `concat`.
        alignment_rows, alignment_layer, alignment_heads: Where probing reads this model's word alignment by default:
            rows where the target word is decoder `input` or `output`, the decoder layer, the heads to average.
        encoder_layers, decoder_layers, encoder_attention_heads, decoder_attention_heads, encoder_ffn_dim,
        decoder_ffn_dim, dropout, attention_dropout, activation_function, max_position_embeddings,
        position_embedding_type (`sinusoidal` or `learned`), normalize_before (pre-norm layers): as in other HF
            encoder-decoders.
        scale_embedding: Multiply embeddings by sqrt(d_model); None = on Transformer sides, where positions of that
            size are added, and not on recurrent ones, whose gates it would saturate.
        share_encoder_decoder_embeddings: One embedding table for both sides (needs one vocabulary).
        tie_word_embeddings: The output layer reuses the decoder's embedding table.
        init_std: Standard deviation of initial linear and embedding weights; None = d_model ** -0.5, which is
            Xavier's for square ones. Much less, and a small model's attention starts flat and stays so for long.

    Raises:
        ValueError: a value or a combination that cannot be; names the field, the value, what is allowed, the remedy.
    """

    model_type = "seq2seq_attn"
    # What the Trainer must not gather: maps of batches of unequal length do not join, and caches only fill memory.
    keys_to_ignore_at_inference = [  # noqa: RUF012 - HF's own form
        *("cache", "encoder_attentions", "decoder_attentions", "cross_attentions"),
    ]
    attribute_map = {  # noqa: RUF012
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
    }

    vocab_size: int = 32000
    decoder_vocab_size: int | None = None
    d_model: int = 512
    encoder_type: str = "transformer"
    decoder_type: str = "transformer"
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    encoder_bidirectional: bool | None = None
    cross_attention_type: str = "scaled_dot_product"
    cross_attention_heads: int | None = None
    cross_attention_dim: int | None = None
    scale_scores: bool | None = None
    project_values: bool | None = None
    null_key: bool = False
    attend_with: str | None = None
    input_feeding: bool = False
    context_fusion: str | None = None
    alignment_rows: str | None = None
    alignment_layer: int | None = None
    alignment_heads: list[int] | None = None
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_function: str = "relu"
    max_position_embeddings: int = 1024
    position_embedding_type: str = "sinusoidal"
    scale_embedding: bool | None = None
    normalize_before: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    init_std: float | None = None
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1

    def __post_init__(self, **kwargs: Any) -> None:
        self._refuse_misspelt(kwargs)
        super().__post_init__(**kwargs)
        self._check_choices_and_sizes()
        self._refuse_unread()
        if self.decoder_vocab_size not in (None, self.target_vocab_size):
            self._refuse(
                "decoder_vocab_size",
                f"is not vocab_size={self.vocab_size}; set share_encoder_decoder_embeddings=False for two vocabularies",
            )
        self._resolve_defaults()
        self._check_fit()

    @property
    def target_vocab_size(self) -> int:
        """Return the size of the target vocabulary; with a shared table that is `vocab_size`, whatever was assigned."""
        if self.share_encoder_decoder_embeddings or self.decoder_vocab_size is None:
            return self.vocab_size
        return self.decoder_vocab_size

    @property
    def decoder_is_recurrent(self) -> bool:
        """Tell whether the decoder carries a state from step to step."""
        return self.decoder_type != "transformer"

    @property
    def encoder_is_recurrent(self) -> bool:
        """Tell whether the encoder is a GRU or LSTM."""
        return self.encoder_type != "transformer"

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> "Seq2SeqAttnConfig":
        """Return this config; for `decoder=True` a copy whose generic names describe the decoder.

        The library asks for the decoder's view to size caches and vocabularies. Its own version would delete every
        `decoder_*` field from the copy, `decoder_type` included.
        """
        if not decoder or encoder:
            return self
        view = copy.deepcopy(self)
        view.encoder_layers, view.encoder_attention_heads = self.decoder_layers, self.decoder_attention_heads
        view.vocab_size = self.target_vocab_size
        return view

    def check(self) -> None:
        """Check fields that may have been assigned since construction; every model does so before it is built.

        A default written out for the variant that was, and not read by the one that is, is taken back.
        """
        self._check_choices_and_sizes()
        written = self._written_defaults()
        for field in self._unread():
            if getattr(self, field) in written.get(field, ()):
                setattr(self, field, None)
        self._refuse_unread()
        self.decoder_vocab_size = self.target_vocab_size
        self._resolve_defaults()
        self._check_fit()

    def _check_fit(self) -> None:
        if self.encoder_is_recurrent and self.encoder_bidirectional and self.d_model % 2:
            self._refuse("d_model", "must be even for a bidirectional encoder (half of it a direction)")
        if not self.encoder_is_recurrent and self.d_model % self.encoder_attention_heads:
            self._refuse("d_model", f"must be a multiple of encoder_attention_heads={self.encoder_attention_heads}")
        if not self.decoder_is_recurrent and self.d_model % self.decoder_attention_heads:
            self._refuse("d_model", f"must be a multiple of decoder_attention_heads={self.decoder_attention_heads}")
        self._check_cross_attention()
        self._check_recurrent_decoder()
        self._check_vocabularies()
        self._check_alignment_fields()

    def _check_cross_attention(self) -> None:
        if self.cross_attention_type == "none":
            if not self.decoder_is_recurrent:
                self._refuse(
                    "cross_attention_type",
                    "needs a recurrent decoder; set decoder_type to gru or lstm, or choose an attention",
                )
            return
        heads, width = self.cross_attention_heads or 1, self.cross_attention_dim or self.d_model
        if width % heads:
            self._refuse(
                "cross_attention_dim", f"is {width}, which must be a multiple of cross_attention_heads={heads}"
            )
        if self.project_values is False and heads > 1:
            self._refuse(
                "project_values", f"needs one head, but cross_attention_heads={heads}; set it to True or use one head"
            )
        if self.project_values and self.d_model % heads:
            self._refuse("d_model", f"must be a multiple of cross_attention_heads={heads} to split the values")

    def _check_recurrent_decoder(self) -> None:
        if self.input_feeding and self.attend_with == "previous_state":
            self._refuse(
                "input_feeding",
                "clashes with attend_with='previous_state', which feeds the context itself; use 'current_state'",
            )

    def _check_vocabularies(self) -> None:
        target_size = self.target_vocab_size
        if self.decoder_start_token_id is None:
            self._refuse(
                "decoder_start_token_id", "is needed: the token that the decoder reads first (often bos or pad)"
            )
        for field, size in (
            ("decoder_start_token_id", target_size),
            ("pad_token_id", min(self.vocab_size, target_size)),
        ):
            value = getattr(self, field)
            if value is not None and not 0 <= value < size:
                self._refuse(field, f"must lie in the vocabulary, 0 to {size - 1}")

    def _check_alignment_fields(self) -> None:
        layers = 1 if self.decoder_is_recurrent else self.decoder_layers
        if self.alignment_layer is not None and not -layers <= self.alignment_layer < layers:
            self._refuse("alignment_layer", f"must name one of the {layers} layers with cross-attention, from 0")
        heads = self.cross_attention_heads or 1
        if self.alignment_heads is not None and (
            not self.alignment_heads or not all(0 <= head < heads for head in self.alignment_heads)
        ):
            self._refuse("alignment_heads", f"must be a list of heads from 0 to {heads - 1}")

    def _check_choices_and_sizes(self) -> None:
        for field, allowed in CHOICES.items():
            value = getattr(self, field)
            if value is not None and value not in allowed:
                near = get_close_matches(value, allowed, n=1)
                remedy = f"did you mean {near[0]!r}?" if near else "choose one of these"
                shown = ", ".join(allowed[:6]) + (", ..." if len(allowed) > 6 else "")
                self._refuse(field, f"must be one of {shown}; {remedy}")
        for field in SIZES:
            value = getattr(self, field)
            if value is not None and value < 1:
                self._refuse(field, "must be at least 1")
        if self.d_model < 0:  # 0 passes here: HF's common config test builds one; the model refuses it
            self._refuse("d_model", "must be at least 1")
        if self.init_std is not None and self.init_std < 0:
            self._refuse("init_std", "must be 0 or more")
        for field in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, field) < 1:
                self._refuse(field, "must be at least 0 and below 1")

    def _refuse_unread(self) -> None:
        """Refuse a choice that was set although this variant never reads it."""
        defaults = {field.name: field.default for field in fields(self)}
        for field, because in self._unread().items():
            if getattr(self, field) != defaults[field]:
                self._refuse(field, f"is not read with {because}; leave it out")

    def _unread(self) -> dict[str, str]:
        """Return the choices that this variant never reads, each with the reason."""
        unread: dict[str, str] = {}
        attention, recurrent = self.cross_attention_type, self.encoder_is_recurrent
        if not recurrent:
            unread["encoder_bidirectional"] = f"encoder_type={self.encoder_type!r}"
        if attention != "scaled_dot_product":
            unread["scale_scores"] = f"cross_attention_type={attention!r}"
        if attention == "none":
            for field in ("cross_attention_heads", "cross_attention_dim", "project_values", "null_key"):
                unread[field] = f"cross_attention_type={attention!r}"
            for field in ("alignment_rows", "alignment_layer", "alignment_heads"):
                unread[field] = f"cross_attention_type={attention!r}"
        if not self.decoder_is_recurrent:
            for field in ("attend_with", "input_feeding", "context_fusion"):
                unread[field] = f"decoder_type={self.decoder_type!r}"
        elif recurrent:
            for field in ("position_embedding_type", "normalize_before", "activation_function"):
                unread[field] = f"encoder_type={self.encoder_type!r} and decoder_type={self.decoder_type!r}"
        return unread

    def _written_defaults(self) -> dict[str, tuple]:
        """Return what `_resolve_defaults` may have written into a field for another variant."""
        return {
            "encoder_bidirectional": (True,),
            "scale_scores": (True,),
            "attend_with": ("current_state",),
            "context_fusion": ("concat",),
            "cross_attention_heads": (1, self.decoder_attention_heads),
            "cross_attention_dim": (self.d_model,),
            "project_values": (True, False),
        }

    def _resolve_defaults(self) -> None:
        """Write out what None stands for, so that config.json states what the model does."""
        if self.init_std is None and self.d_model > 0:
            self.init_std = self.d_model**-0.5
        if self.decoder_vocab_size is None:
            self.decoder_vocab_size = self.vocab_size
        if self.encoder_is_recurrent and self.encoder_bidirectional is None:
            self.encoder_bidirectional = True
        if self.decoder_is_recurrent:
            self.attend_with = self.attend_with or "current_state"
            self.context_fusion = self.context_fusion or "concat"
        if self.cross_attention_type == "none":
            return
        if self.cross_attention_heads is None:
            self.cross_attention_heads = 1 if self.decoder_is_recurrent else self.decoder_attention_heads
        if self.cross_attention_dim is None and self.d_model > 0:
            self.cross_attention_dim = self.d_model
        if self.project_values is None:
            self.project_values = not (self.decoder_is_recurrent and self.cross_attention_heads == 1)
        if self.cross_attention_type == "scaled_dot_product" and self.scale_scores is None:
            self.scale_scores = True

    def _refuse_misspelt(self, unknown: dict[str, Any]) -> None:
        known = {field.name for field in fields(self)} | set(self.attribute_map)
        for name in unknown:
            near = get_close_matches(name, known, n=1, cutoff=0.8)
            if near and name not in known and not hasattr(type(self), name):
                raise ValueError(
                    f"{name}={unknown[name]!r} is not a field of {type(self).__name__}; did you mean {near[0]!r}?"
                )

    def _refuse(self, field: str, why: str) -> None:
        raise ValueError(f"{type(self).__name__}: {field}={getattr(self, field)!r} {why}")


__all__ = ["Seq2SeqAttnConfig"]
