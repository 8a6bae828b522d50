"""The models as Hugging Face knows them: base class, encoder-decoder, and the one that generates."""

import copy
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import EncoderDecoderCache, StaticCache
from transformers.generation.logits_process import LogitsProcessorList
from transformers.generation.stopping_criteria import StoppingCriteriaList
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils import can_return_tuple
from transformers.utils.deprecation import deprecate_kwarg

from .configuration_seq2seq_attn import Seq2SeqAttnConfig
from .cross_attention import AdditiveAttention, Attention, ScaledDotProductAttention
from .fast_beams import beam_search
from .fast_generation import covers, greedy_search
from .plain_forms import is_bare, takes_fast_path
from .recurrent import FixedContext, RecurrentDecoder, RecurrentEncoder
from .recurrent_cache import RecurrentCache, check_cache
from .transformer import TransformerDecoder, TransformerEncoder
from .vocabulary_loss import vocabulary_loss


class Seq2SeqAttnPreTrainedModel(PreTrainedModel):
    """What all our models promise to the library."""

    config: Seq2SeqAttnConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["EncoderLayer", "DecoderLayer", "RecurrentEncoder", "RecurrentDecoder"]  # noqa: RUF012

    def __init__(self, config: Seq2SeqAttnConfig) -> None:
        config.check()
        if config.d_model < 1:
            raise ValueError(f"d_model={config.d_model}: must be at least 1")
        super().__init__(config)

    def post_init(self) -> None:
        """Do what the library does, and name only those undividable modules that this model has: FSDP looks for all."""
        super().post_init()
        present = {type(module).__name__ for module in self.modules()}
        self._no_split_modules = [name for name in self._no_split_modules or () if name in present]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.GRU | nn.LSTM):
            for name, parameter in module.named_parameters():
                if "weight_ih" in name:
                    init.xavier_uniform_(parameter)
                elif "weight_hh" in name:
                    init.orthogonal_(parameter)
                else:
                    init.zeros_(parameter)
        elif isinstance(module, Attention):
            for name, parameter in module.named_parameters(recurse=False):
                if name == "score_vector":
                    # With `init_std` all scores would start nearly equal, and so would all positions.
                    init.uniform_(parameter, -1, 1)
                else:
                    init.normal_(parameter, std=cast(float, self.config.init_std))

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Save as the library does; where our code goes along, say for both Auto classes which class it is."""
        if self._auto_class is not None:
            module = type(self).__module__.rpartition(".")[-1]
            self.config.auto_map = {
                **(getattr(self.config, "auto_map", None) or {}),
                "AutoModel": f"{module}.Seq2SeqAttnModel",
                "AutoModelForSeq2SeqLM": f"{module}.Seq2SeqAttnForConditionalGeneration",
            }
        super().save_pretrained(save_directory, *args, **kwargs)


def cross_attention(config: Seq2SeqAttnConfig) -> Attention:
    """Build the attention that the config names: from decoder states to encoder states."""
    settings: dict[str, Any] = {
        "heads": config.cross_attention_heads,
        "attention_dim": config.cross_attention_dim,
        "project_values": config.project_values,
        "null_key": config.null_key,
        "dropout": config.attention_dropout,
        "config": config,
    }
    width = config.d_model
    if config.cross_attention_type == "additive":
        return AdditiveAttention(width, width, width, **settings)
    return ScaledDotProductAttention(width, width, width, scale_scores=bool(config.scale_scores), **settings)


class Seq2SeqAttnModel(Seq2SeqAttnPreTrainedModel):
    """Encoder and decoder without an output layer; `last_hidden_state` is what predicts the next token."""

    def __init__(self, config: Seq2SeqAttnConfig) -> None:
        super().__init__(config)
        self.encoder = RecurrentEncoder(config) if config.encoder_is_recurrent else TransformerEncoder(config)
        self.decoder: RecurrentDecoder | TransformerDecoder
        if config.decoder_is_recurrent:
            has_attention = config.cross_attention_type != "none"
            self.decoder = RecurrentDecoder(config, cross_attention(config) if has_attention else FixedContext(config))
        else:
            self.decoder = TransformerDecoder(config, [cross_attention(config) for _ in range(config.decoder_layers)])
        if config.share_encoder_decoder_embeddings:
            self._tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}
        self.post_init()

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Return target -> source of the shared table: the sides share it whether the output layer does or not."""
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels)
        return dict(self._tied_weights_keys or {})

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the source's embedding table (both sides' if shared)."""
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the source's embedding table (both sides' if shared)."""
        self.encoder.embed_tokens = cast(nn.Embedding, value)
        if self.config.share_encoder_decoder_embeddings:
            self.decoder.embed_tokens = self.encoder.embed_tokens

    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        cache: EncoderDecoderCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Seq2SeqModelOutput:
        """Encode the source and run the decoder over its inputs.

        Args:
            input_ids: (B, S) source tokens.
            attention_mask: (B, S), 1 = read. None = all but padding tokens.
            decoder_input_ids: (B, T) target tokens, starting with `decoder_start_token_id`.
            decoder_attention_mask: (B, past + T), 1 = real.
            encoder_outputs, cache: From an earlier call, to go on from.
            output_attentions: True gives true maps under any attention backend.

        Returns:
            `last_hidden_state` (B, T, D); `cross_attentions` one (B, H, T, S) for each decoder layer (one in all for a
            recurrent decoder, None without attention); `cache` to pass back.
        """
        config = self.config
        want_weights = config.output_attentions if output_attentions is None else output_attentions
        want_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        if attention_mask is None and input_ids is not None and config.pad_token_id is not None:
            attention_mask = (input_ids != config.pad_token_id).long()
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                output_attentions=want_weights,
                output_hidden_states=want_states,
            )
        if not isinstance(encoder_outputs, BaseModelOutput):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=config.use_cache if use_cache is None else use_cache,
            output_attentions=want_weights,
            output_hidden_states=want_states,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            cache=decoder_outputs.cache,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


class Seq2SeqAttnForConditionalGeneration(Seq2SeqAttnPreTrainedModel, GenerationMixin):
    """The model that translates: encoder, decoder, output layer, loss and `generate()`."""

    # The Trainer passes `num_items_in_batch` and leaves the division to us.
    accepts_loss_kwargs = True
    # Some models of this class are, so who asks the class must not count on rolling back; each model says for itself.
    _is_stateful = True

    def __init__(self, config: Seq2SeqAttnConfig) -> None:
        super().__init__(config)
        self.model = Seq2SeqAttnModel(config)
        self.lm_head = nn.Linear(config.d_model, config.target_vocab_size, bias=False)
        table = "encoder" if config.share_encoder_decoder_embeddings else "decoder"
        self._tied_weights_keys = {"lm_head.weight": f"model.{table}.embed_tokens.weight"}
        # A state cannot be rolled back: assisted generation asks this flag and refuses in words.
        self._is_stateful = config.decoder_is_recurrent
        self.post_init()

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Return decoder inputs (B, T) for labels (B, T): start token, then labels but the last; -100 -> padding."""
        start, padding = self.config.decoder_start_token_id, self.config.pad_token_id
        if start is None or padding is None:
            raise ValueError(
                f"labels cannot be shifted with decoder_start_token_id={start} and pad_token_id={padding}; set both"
            )
        shifted = torch.full_like(labels, start)
        shifted[:, 1:] = labels[:, :-1]
        return shifted.masked_fill(shifted == -100, padding)

    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        cache: EncoderDecoderCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        smoothing: float = 0.0,
        skip_logits: bool | None = None,
    ) -> Seq2SeqLMOutput:
        """Score the next token at every decoder position; with labels, give the loss too.

        Args:
            labels: (B, T) the tokens to predict, -100 = not counted; without decoder inputs, these are made from them.
            num_items_in_batch: What the summed loss is divided by (labels over all accumulation steps); None = the
                number of labels that count here. Without any that counts the loss is 0.
            smoothing: Share of each label's weight that is spread over the whole vocabulary.
            skip_logits: Give the loss alone (`logits` is None), without ever holding the scores of all positions and
                tokens. None = while training with labels.

            The others as in `Seq2SeqAttnModel.forward`.

        Returns:
            `logits` (B, T, V): row t predicts y_{t+1}; `loss`; and what `Seq2SeqAttnModel` returns.
        """
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            cache=cache,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        states = outputs.last_hidden_state
        skip_logits = (self.training if skip_logits is None else skip_logits) and labels is not None
        logits = None if skip_logits else self.lm_head(states)
        loss = None
        if labels is not None:
            loss = self._loss(states, logits, labels, smoothing) / _count(labels, num_items_in_batch, states)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            cache=outputs.cache,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Resize the target's table and output layer of a model with two vocabularies; return the table."""
        if self.config.share_encoder_decoder_embeddings:
            raise ValueError("one table serves both sides: use resize_token_embeddings")
        self.model.decoder.embed_tokens = self._get_resized_embeddings(self.model.decoder.embed_tokens, new_num_tokens)
        self.lm_head = self._get_resized_lm_head(self.lm_head, new_num_tokens)
        self.config.decoder_vocab_size = new_num_tokens
        self.tie_weights()
        return self.model.decoder.embed_tokens

    def compute_transition_scores(self, *args: Any, **kwargs: Any) -> Tensor:
        """Do what the library does, with the target's vocabulary size where it would take the source's."""
        decoder_view: Any = copy.copy(self)
        decoder_view.config = self.config.get_text_config(decoder=True)
        return GenerationMixin.compute_transition_scores(decoder_view, *args, **kwargs)

    def _resize_token_embeddings(self, new_num_tokens: int, *args: Any, **kwargs: Any) -> nn.Embedding:
        if self.config.share_encoder_decoder_embeddings:
            embeddings = super()._resize_token_embeddings(new_num_tokens, *args, **kwargs)
            self.config.decoder_vocab_size = embeddings.weight.shape[0]
            return embeddings
        embeddings = self._get_resized_embeddings(self.model.encoder.embed_tokens, new_num_tokens, *args, **kwargs)
        self.set_input_embeddings(embeddings)
        return embeddings

    def _loss(self, states: Tensor, logits: Tensor | None, labels: Tensor, smoothing: float) -> Tensor:
        """Return the summed cross-entropy of the labels that count: from the logits where they are there."""
        labels = labels.to(states.device)
        if logits is None and takes_fast_path() and is_bare(self.lm_head, nn.Linear) and self.lm_head.bias is None:
            counts = labels != -100
            return vocabulary_loss(states[counts], self.lm_head.weight, labels[counts], smoothing)
        logits = self.lm_head(states) if logits is None else logits
        return F.cross_entropy(
            logits.float().flatten(0, 1), labels.flatten(), reduction="sum", label_smoothing=smoothing
        )

    def _prepare_cache_for_generation(  # type: ignore[override]
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """Give a recurrent decoder its own cache where the library would make one of keys and values."""
        if not self.config.decoder_is_recurrent:
            library: Any = super()
            library._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
            made = getattr(model_kwargs.get("cache"), "cross_attention_cache", None)
            if self.config.null_key and isinstance(made, StaticCache):
                raise ValueError(
                    f"cache_implementation={generation_config.cache_implementation!r}: its cross-attention part has "
                    "room for the source only, and null_key=True adds a key; leave it out"
                )
            return
        if generation_config.cache_implementation not in (None, "dynamic"):
            raise ValueError(
                f"cache_implementation={generation_config.cache_implementation!r}: a recurrent decoder carries a state "
                "of fixed size, which needs no such cache; leave it out"
            )
        if model_kwargs.get("cache") is not None:
            check_cache(model_kwargs["cache"])
            model_kwargs["cache"]._is_user_defined = True
        elif generation_config.use_cache is not False:
            model_kwargs["cache"] = RecurrentCache(self.config.decoder_layers)

    @staticmethod
    def create_masks_for_generate(attention_mask: Tensor | None, **kwargs: Any) -> Tensor | None:
        """Return the decoder's mask (B, T) as it is: where the library wants it causal, our decoder makes it so."""
        return attention_mask

    def _prepare_model_inputs(self, *args: Any, **kwargs: Any) -> Any:
        """Mask padding in `generate()` as `forward` does; the library infers a mask for decoder-only models alone."""
        library: Any = super()
        inputs, name, model_kwargs = library._prepare_model_inputs(*args, **kwargs)
        given = model_kwargs.get("attention_mask") is not None or model_kwargs.get("encoder_outputs") is not None
        if name == "input_ids" and not given and self.config.pad_token_id is not None:
            model_kwargs["attention_mask"] = (inputs != self.config.pad_token_id).long()
        return inputs, name, model_kwargs

    def _prefill(
        self,
        input_ids: Tensor,
        generation_config: GenerationConfig,
        model_kwargs: dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Read only what a given cache has not read yet.

        The library does so where a mask tells it that the decoder inputs are the whole sequence. It asks no mask of
        an encoder-decoder, and would read the first tokens twice. So without a mask, decoder inputs longer than what
        the cache has read are the whole sequence; to add more than that, give `decoder_attention_mask`.
        """
        cache = model_kwargs.get("cache")
        read = 0 if cache is None else cache.get_seq_length()
        if model_kwargs.get("decoder_attention_mask") is None and 0 < read < input_ids.shape[1]:
            generation_config._mask_length = input_ids.shape[1]
        library: Any = super()
        return library._prefill(input_ids, generation_config, model_kwargs, *args, **kwargs)

    def _sample(self, input_ids: Tensor, **kwargs: Any) -> Any:  # type: ignore[override]
        """Decode greedily by our own loop, or do what the library does."""
        library: Any = super()
        return self._generate(greedy_search, library._sample, input_ids, **kwargs)

    def _beam_search(self, input_ids: Tensor, **kwargs: Any) -> Any:  # type: ignore[override]
        """Search by our own loop, or do what the library does."""
        library: Any = super()
        return self._generate(beam_search, library._beam_search, input_ids, **kwargs)

    def _generate(
        self,
        ours: Callable[..., Any],
        library: Callable[..., Any],
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        synced_gpus: bool = False,
        streamer: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        own_forward = type(self).forward is not Seq2SeqAttnForConditionalGeneration.forward
        stands_back = synced_gpus or streamer is not None or own_forward
        if not stands_back and covers(self, input_ids, stopping_criteria, generation_config, model_kwargs):
            return ours(self, input_ids, logits_processor, generation_config, model_kwargs)
        more = {} if streamer is None else {"streamer": streamer}
        return library(
            input_ids,
            logits_processor=logits_processor,
            stopping_criteria=stopping_criteria,
            generation_config=generation_config,
            synced_gpus=synced_gpus,
            **more,
            **model_kwargs,
        )


def _count(labels: Tensor, num_items_in_batch: Tensor | int | None, states: Tensor) -> Tensor | int:
    """Return what the summed loss is divided by."""
    if num_items_in_batch is None:
        return (labels != -100).sum().clamp(min=1).to(states.device)
    return num_items_in_batch.to(states.device) if isinstance(num_items_in_batch, Tensor) else num_items_in_batch


__all__ = ["Seq2SeqAttnForConditionalGeneration", "Seq2SeqAttnModel", "Seq2SeqAttnPreTrainedModel"]
