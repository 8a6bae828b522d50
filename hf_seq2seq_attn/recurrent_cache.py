"""What a recurrent decoder carries from step to step in `generate()`."""

from collections.abc import Callable
from typing import cast

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache


class StateLayer(CacheLayerMixin):
    """Tensors with the batch first that a step replaces, and the number of tokens that made them.

    Unlike a key-value layer it does not grow, and it cannot be rolled back.
    """

    is_sliding = False
    is_compileable = False
    is_croppable = False
    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()
        self.states: tuple[Tensor, ...] = ()
        self.cumulative_length = 0

    def lazy_initialization(self, *states: Tensor) -> None:
        """Take the first states."""
        self.states, self.is_initialized = states, True

    def update(self, *states: Tensor, tokens: int = 0) -> tuple[Tensor, ...]:  # type: ignore[override]
        """Replace the states by those after `tokens` more tokens."""
        self.lazy_initialization(*states)
        self.cumulative_length += tokens
        return states

    def get_seq_length(self) -> int:
        """Return the number of tokens that the states have consumed."""
        return self.cumulative_length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return (length, offset) of what a query of this length can see: itself, since the past is one state."""
        return query_length, 0

    def get_max_length(self) -> int:
        """Return -1: any number of tokens fits into a state."""
        return -1

    def reset(self) -> None:
        """Forget everything."""
        self.states, self.is_initialized, self.cumulative_length = (), False, 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row i continue the hypothesis of row beam_idx[i]."""
        self._replace(lambda state: state.index_select(0, beam_idx.to(state.device)))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows of the batch."""
        self._replace(lambda state: state[indices, ...])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row of the batch."""
        self._replace(lambda state: state.repeat_interleave(repeats, dim=0))

    def offload(self) -> None:
        """Refuse: states are too small to be worth moving."""
        raise ValueError("a recurrent state is a few vectors: offloading the cache gains nothing; leave it out")

    def prefetch(self) -> None:
        """Do nothing, since nothing is offloaded."""

    def _replace(self, change: Callable[[Tensor], Tensor]) -> None:
        self.states = tuple(change(state) for state in self.states)


class RecurrentCache(EncoderDecoderCache):
    """The cache of a recurrent decoder.

    `self_attention_cache` holds one layer of states (B, D) for each decoder layer: h, for an LSTM also its cell, and
    in the top layer, with input feeding, the last readout. `cross_attention_cache` holds one layer with what
    attention reads, (keys, values), or for `none` the summary; it is computed once per sentence.
    """

    def __init__(self, decoder_layers: int) -> None:
        super().__init__(
            Cache(layers=[StateLayer() for _ in range(decoder_layers)]),
            Cache(layers=[StateLayer()]),
        )

    @property
    def states(self) -> list[StateLayer]:
        """The layers of decoder states, bottom first."""
        return cast(list[StateLayer], self.self_attention_cache.layers)

    @property
    def memory(self) -> StateLayer:
        """The layer that holds what attention reads."""
        return cast(StateLayer, self.cross_attention_cache.layers[0])

    def check_dynamic_cache(self, method: str) -> None:
        """Allow what a state can do; refuse to roll it back."""
        if method == "crop":
            raise ValueError(
                "a recurrent state cannot be cropped: it keeps no earlier steps; decode again from the shorter prefix"
            )


def check_cache(cache: object) -> None:
    """Refuse a cache that a recurrent decoder cannot use.

    Raises:
        TypeError: any other kind, e.g. a DynamicCache, whose keys a recurrent decoder would silently ignore.
    """
    if not isinstance(cache, RecurrentCache):
        raise TypeError(
            f"a recurrent decoder carries states, not keys: cache must be a RecurrentCache, not "
            f"{type(cache).__name__}; leave it out, or pass on the one that the model returned"
        )
