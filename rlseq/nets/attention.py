"""Attention over rows of unequal length, and torch's own Transformer layers by it.

The layers are those of `nn.TransformerEncoder` and `nn.TransformerDecoder` with their weights and names; what they
compute is written out, because their fast path has no translation to ONNX, their masks become -inf and NaN there where
nothing may be seen, and they keep no keys and values from one call to the next.

One convention: True is real, False is padding. Masks become large negative numbers, so that softmax stays finite; a
query that may see nothing gets zeros, and nothing gets a gradient through it.

Shapes: B sequences, T queries, S keys, H heads, K numbers of a head, D width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.fused import EPSILON
from rlseq.nets.gpt import PRODUCTS_UP_TO
from rlseq.nets.sizes import Dimensions, activation

MASKED, MASKED_IN_HALF = -1e9, -30_000.0  # the first is infinite in float16
WAVELENGTH = 10_000.0
LIKENESS = 2.0  # with 1 as with nothing: recall of two pairs is not found out in 1500 updates, with 2 in 700


class Seen(NamedTuple):
    """What queries may see.

    Attributes:
        keys: bool, `[B, 1, 1, S]` or `[T, S]`.
        any: whether that is anything, `[B, 1, 1, 1]` in the numbers' dtype; None: it always is.
    """

    keys: Tensor
    any: Tensor | None = None


def seen_places(given_BS: Tensor) -> Seen:
    """Every query of a row sees all real places of that row."""
    given = given_BS[:, None, None]
    return Seen(given, (given.long().sum(-1, keepdim=True) > 0).to(torch.get_default_dtype()))


def attend(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, seen: Seen | None, dropout: float = 0.0) -> Tensor:
    """Attention `[B, H, T, K]`; without `seen` each query sees the keys up to its own place.

    Args:
        dropout: share of the weights that is dropped.
    """
    if seen is None:
        if not _by_products(q_BHTK):
            return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, dropout_p=dropout, is_causal=True)
        place_T = torch.arange(q_BHTK.shape[2], device=q_BHTK.device)
        seen = Seen(place_T <= place_T[:, None])
    half = q_BHTK.dtype in (torch.float16, torch.bfloat16)
    bias = torch.where(seen.keys, 0.0, MASKED_IN_HALF if half else MASKED).to(q_BHTK.dtype)
    if _by_products(q_BHTK):
        scores = (q_BHTK * q_BHTK.shape[-1] ** -0.5) @ k_BHSK.mT + bias
        y_BHTK = F.dropout(scores.softmax(-1), dropout) @ v_BHSK
    else:
        y_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=bias, dropout_p=dropout)
    return y_BHTK if seen.any is None else y_BHTK * seen.any.to(y_BHTK.dtype)


def _by_products(q_BHTK: Tensor) -> bool:
    if torch.compiler.is_exporting():
        return True  # torch's own is written with reshapes, in which ONNX Runtime takes no source of length 0
    return q_BHTK.dtype is torch.bfloat16 and q_BHTK.device.type == "cpu" and q_BHTK.shape[2] <= PRODUCTS_UP_TO


class Sinusoids(nn.Module):
    """Positions as sines and cosines of falling frequencies (arXiv 1706.03762), the sines before the cosines."""

    frequency: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        exponent = torch.arange(0, width, 2, dtype=torch.get_default_dtype()) / width
        self.register_buffer("frequency", WAVELENGTH**-exponent, persistent=False)

    def forward(self, places_T: Tensor) -> Tensor:
        """`[T, D]`."""
        angle = places_T[:, None].to(self.frequency.dtype) * self.frequency
        return torch.cat((angle.sin(), angle.cos()), -1)


def split_heads(x_BTD: Tensor, num: int) -> Tensor:
    """`[B, H, T, K]`."""
    return x_BTD.unflatten(-1, (num, -1)).transpose(1, 2)


def normed(*x_BHTK: Tensor) -> tuple[Tensor, ...]:
    """Queries or keys divided by the root of their mean square over K (`net.qk_norm`, arXiv 2010.04245)."""
    return tuple(F.rms_norm(x, x.shape[-1:], eps=EPSILON) for x in x_BHTK)


def self_attention(
    attention: nn.MultiheadAttention,
    x_BTD: Tensor,
    seen: Seen | None,
    past: tuple[Tensor, ...] = (),
    *,
    qk_norm: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Output `[B, T, D]`, and all keys and values `[B, H, S, K]`, those of `past` first."""
    projected = F.linear(x_BTD, attention.in_proj_weight, attention.in_proj_bias)
    q, k, v = (split_heads(x, attention.num_heads) for x in projected.chunk(3, -1))
    if qk_norm:
        q, k = normed(q, k)
    if past:
        k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
    return _joined(attention, attend(q, k, v, seen, _dropout(attention))), k, v


def source_keys(
    attention: nn.MultiheadAttention, memory_BSD: Tensor, *, qk_norm: bool = False
) -> tuple[Tensor, Tensor]:
    """Keys and values `[B, H, S, K]` of what an encoder made, for `cross_attention`."""
    width = memory_BSD.shape[-1]
    weight = attention.in_proj_weight.split((width, 2 * width))[1]
    bias = attention.in_proj_bias.split((width, 2 * width))[1]
    k, v = (split_heads(x, attention.num_heads) for x in F.linear(memory_BSD, weight, bias).chunk(2, -1))
    return (normed(k)[0] if qk_norm else k), v


def cross_attention(
    attention: nn.MultiheadAttention, x_BTD: Tensor, source: tuple[Tensor, Tensor], seen: Seen, *, qk_norm: bool = False
) -> Tensor:
    """Output `[B, T, D]`."""
    width = x_BTD.shape[-1]
    weight = attention.in_proj_weight.split((width, 2 * width))[0]
    bias = attention.in_proj_bias.split((width, 2 * width))[0]
    q = split_heads(F.linear(x_BTD, weight, bias), attention.num_heads)
    if qk_norm:
        (q,) = normed(q)
    return _joined(attention, attend(q, *source, seen, _dropout(attention)))


def _dropout(attention: nn.MultiheadAttention) -> float:
    return attention.dropout if attention.training else 0.0


def _joined(attention: nn.MultiheadAttention, y_BHTK: Tensor) -> Tensor:
    return attention.out_proj(y_BHTK.transpose(1, 2).flatten(2))


def feed_forward(layer: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer, x_BTD: Tensor) -> Tensor:
    """The two linear layers, `[B, T, D]`."""
    return layer.linear2(layer.dropout(layer.activation(layer.linear1(x_BTD))))


def encoder_layer(dims: Dimensions, options: SequenceNetOptions) -> nn.TransformerEncoderLayer:
    """A layer with its norm first, of which `nn.TransformerEncoder` makes copies."""
    return nn.TransformerEncoderLayer(
        dims.width,
        dims.heads,
        dims.mlp_width,
        options.dropout,
        activation(options),
        batch_first=True,
        norm_first=True,
    )


def encode(encoder: nn.TransformerEncoder, x_BSD: Tensor, seen: Seen, *, qk_norm: bool = False) -> Tensor:
    """`nn.TransformerEncoder` of layers with their norm first, `[B, S, D]`."""
    for layer in encoder.layers:
        assert isinstance(layer, nn.TransformerEncoderLayer)
        y_BSD, _, _ = self_attention(layer.self_attn, layer.norm1(x_BSD), seen, qk_norm=qk_norm)
        x_BSD = x_BSD + layer.dropout1(y_BSD)
        x_BSD = x_BSD + layer.dropout2(feed_forward(layer, layer.norm2(x_BSD)))
    return x_BSD if encoder.norm is None else encoder.norm(x_BSD)


def initialise(module: nn.Module, *, mimetic: bool = False) -> None:
    """Draw every matrix anew: torch makes layers as copies of one, which would begin as the same layer.

    Args:
        mimetic: keys begin as the queries, both `LIKENESS` times as large as Xavier's: a place attends to those that
            are like it, by what they hold and where they stand, before anything is learnt.
    """
    for name, parameter in module.named_parameters():
        if parameter.ndim == 2:
            nn.init.xavier_uniform_(parameter)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    for attention in module.modules() if mimetic else ():
        if isinstance(attention, nn.MultiheadAttention):
            with torch.no_grad():
                q_DD, k_DD, _ = attention.in_proj_weight.chunk(3)
                k_DD.copy_(q_DD.mul_(LIKENESS))
