"""How large a vector each source token contributes, instead of how much weight it gets (Kobayashi et al. 2020).

Attention adds up transformed values: head h of a layer gives target position t the vector sum_s a[h,t,s] f_h(x_s),
f_h(x) = (x W_V^h + b_V^h) W_O^h, where W_O^h are the rows of the output projection that read head h (its bias belongs
to no source token). A token with much weight and a short vector, as the end token often is, contributes little.

- One head: ||a[h,t,s] f_h(x_s)|| = a[h,t,s] ||f_h(x_s)||.
- Several heads of a layer: ||sum_h a[h,t,s] f_h(x_s)||, the norm of the sum, not the sum of the norms.

`norm` divides each row by its sum over the source (the NULL key's own vector included), so that rows sum to 1 as those
of attention do; `raw_norm` leaves the lengths as they are. All norms are L2.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# Numbers in the largest intermediate tensor: 64 MiB of float32.
_BLOCK = 2**24


@dataclass(frozen=True)
class ValueNorms:
    """What the norms of one sentence pair are made of; N is S, or S + 1 where a NULL key comes first.

    Attributes:
        attention: (L, H, T, N) float32, the weights a.
        products: (L, H, H, N) float32, the inner products f_g(x_s) . f_h(x_s) of heads g and h.
        has_null: whether column 0 is the NULL key.
    """

    attention: np.ndarray
    products: np.ndarray
    has_null: bool

    def per_head(self, normalized: bool) -> np.ndarray:
        """Return ||a f_h(x_s)|| of every layer and head, (L, H, T, S) float32."""
        lengths = np.sqrt(np.clip(np.diagonal(self.products, axis1=1, axis2=2), 0, None))
        # The diagonal of axes 1 and 2 comes last: (L, N, H).
        norms = self.attention * lengths.swapaxes(1, 2)[:, :, None]
        return self._finished(norms, normalized)[0]

    def joined(self, layer: int, heads: Sequence[int], normalized: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return ||sum_h a f_h(x_s)|| of one layer, (T, S) float32, and the same of the NULL key, (T,).

        Args:
            layer, heads: positions in `attention`, not the model's numbers.
        """
        chosen = list(heads)
        weights = self.attention[layer][chosen].astype(np.float64).transpose(2, 1, 0)
        products = self.products[layer][chosen][:, chosen].transpose(2, 0, 1)
        # (N, T, H) against (N, H, H): a' G a for every source and target position.
        squares = ((weights @ products) * weights).sum(axis=-1)
        return self._finished(np.sqrt(np.clip(squares, 0, None)).T, normalized)

    def _finished(self, norms: np.ndarray, normalized: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return norms (..., T, N), their rows scaled if asked for, as those of the source and those of NULL."""
        if normalized:
            total = norms.sum(axis=-1, keepdims=True)
            norms = np.divide(norms, total, out=np.zeros_like(norms), where=total > 0)
        norms = norms.astype(np.float32)
        if self.has_null:
            return norms[..., 1:], norms[..., 0]
        return norms, np.zeros(norms.shape[:-1], dtype=np.float32)


def value_products(values: Tensor, output: Tensor | None) -> Tensor:
    """Return the inner products of what the heads make of each source position, (B, H, H, N) float32.

    Args:
        values: (B, H, N, W), v_h = x W_V^h + b_V^h.
        output: (H, W, D), the rows of the output projection that read each head; None = there is no such projection.
    """
    batch, heads, length, _ = values.shape
    rows = values.float().transpose(1, 2).flatten(0, 1)
    width = rows.shape[-1] if output is None else output.shape[-1]
    results = []
    for part in rows.split(max(1, _BLOCK // (heads * width))):
        vectors = part if output is None else torch.einsum("rhw,hwd->rhd", part, output.float())
        results.append(vectors @ vectors.transpose(1, 2))
    return torch.cat(results).unflatten(0, (batch, length)).permute(0, 2, 3, 1)
