"""Sequence-to-sequence models with attention for Hugging Face, and the tools to look inside them.

Importing the package registers the models with `AutoConfig`, `AutoModel` and `AutoModelForSeq2SeqLM`.
"""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from .configuration_seq2seq_attn import Seq2SeqAttnConfig
from .context_fusion import ContextFusion
from .cross_attention import AdditiveAttention, ScaledDotProductAttention
from .modeling_seq2seq_attn import (
    Seq2SeqAttnForConditionalGeneration,
    Seq2SeqAttnModel,
    Seq2SeqAttnPreTrainedModel,
)
from .plain_forms import plain_forms
from .recurrent_cache import RecurrentCache

__version__ = "0.1.0"

AutoConfig.register(Seq2SeqAttnConfig.model_type, Seq2SeqAttnConfig, exist_ok=True)
AutoModel.register(Seq2SeqAttnConfig, Seq2SeqAttnModel, exist_ok=True)
AutoModelForSeq2SeqLM.register(Seq2SeqAttnConfig, Seq2SeqAttnForConditionalGeneration, exist_ok=True)

# Our code goes along with every saved model, so that it loads where the package is not installed.
Seq2SeqAttnConfig.register_for_auto_class()
Seq2SeqAttnModel.register_for_auto_class("AutoModel")
Seq2SeqAttnForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")

__all__ = [
    "AdditiveAttention",
    "ContextFusion",
    "RecurrentCache",
    "ScaledDotProductAttention",
    "Seq2SeqAttnConfig",
    "Seq2SeqAttnForConditionalGeneration",
    "Seq2SeqAttnModel",
    "Seq2SeqAttnPreTrainedModel",
    "plain_forms",
]
