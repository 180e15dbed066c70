"""Decoder-only Transformer: pre-norm blocks with rotary positions and an explicit cache of keys and values.

Rotary positions are those of arXiv 2104.09864, queries and keys are normalised before they meet (arXiv 2010.04245, by
their root mean square and without a learned scale), the square of relu is of arXiv 2109.08668, swiglu of 2002.05202.
Linear layers have no biases.

Shapes: B sequences, T tokens given, P tokens remembered, S = P + T, H heads, K numbers of a head, D width.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rlseq.nets.config import SequenceNetOptions
from rlseq.nets.fused import normed_and_turned, squared_relu, turned
from rlseq.nets.sizes import Dimensions, activation
from rlseq.sequence import SequenceState

State = tuple[Tensor, ...]
MASKED = -30_000.0  # finite in float16 too; no row is ever masked entirely, for a token sees itself
ROTARY_BASE = 10_000.0
# The backward pass of torch's own attention is slow in bfloat16 on a CPU. Both passes on one Zen 4 core, 4 heads:
# 64 tokens (12 rows) 7.8 ms against 1.4 as products, 256 tokens 18 against 11, 1024 tokens 35 against 42.
PRODUCTS_UP_TO = 512


def visible(queries_T: Tensor, keys_S: Tensor, window: int) -> Tensor:
    """What is added to the attention scores, `[T, S]`: 0 where the key's position is one of the `window` positions up
    to the query's, `MASKED` elsewhere."""
    ahead_TS = queries_T[:, None] - keys_S
    return torch.where((ahead_TS >= 0) & (ahead_TS < window), 0.0, MASKED)


class Rotary(nn.Module):
    """Angles of rotary positions."""

    frequency: Tensor

    def __init__(self, head_size: int) -> None:
        super().__init__()
        exponent = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
        self.register_buffer("frequency", ROTARY_BASE**-exponent, persistent=False)

    def forward(self, positions_T: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines `[T, 1, K/2]` float32."""
        angle = (positions_T[:, None].float() * self.frequency)[:, None]
        return angle.cos(), angle.sin()


def products(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, bias_TS: Tensor | None) -> Tensor:
    """`attend` as two batched products, T * S scores being kept."""
    batch, num, time, size = q_BHTK.shape
    if bias_TS is None:
        place_T = torch.arange(time, device=q_BHTK.device)
        bias_TS = visible(place_T, place_T, time)
    q, k, v = (x.reshape(batch * num, -1, size) for x in (q_BHTK, k_BHSK, v_BHSK))
    bias = bias_TS.to(q.dtype).expand(batch * num, -1, -1)
    scores = torch.baddbmm(bias, q, k.mT, alpha=size**-0.5)
    return (scores.softmax(-1) @ v).view(batch, num, time, size)


def attend(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, bias_TS: Tensor | None) -> Tensor:
    """Attention; without a bias each query sees the keys up to its own place."""
    if q_BHTK.dtype is torch.bfloat16 and q_BHTK.device.type == "cpu" and q_BHTK.shape[2] <= PRODUCTS_UP_TO:
        return products(q_BHTK, k_BHSK, v_BHSK, bias_TS)
    if bias_TS is None:
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=True)
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=bias_TS.to(q_BHTK.dtype))


class Attention(nn.Module):
    """Causal self-attention.

    Attributes:
        num_heads: as many as there are now: heads can be removed, so it is not what the width says.
        head_size: numbers of a head.
    """

    def __init__(self, dims: Dimensions, options: SequenceNetOptions) -> None:
        super().__init__()
        self.num_heads, self.head_size = dims.heads, dims.width // dims.heads
        self.qk_norm = options.qk_norm is not False
        self.qkv = nn.Linear(dims.width, 3 * dims.width, bias=False)  # rows: [q, k, v] x heads x numbers of a head
        self.out = nn.Linear(dims.width, dims.width, bias=False)

    def forward(
        self, x_BTD: Tensor, turn: tuple[Tensor, Tensor], bias_TS: Tensor | None, past: State
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Output `[B, T, D]`, and all keys and values `[B, H, S, K]`, those of `past` first."""
        num, size = self.num_heads, self.head_size
        # Cut once: the gradient of each slice would be a whole qkv of zeros.
        qk, v = self.qkv(x_BTD).unflatten(-1, (3 * num, size)).split((2 * num, num), 2)
        qk = normed_and_turned(qk, *turn) if self.qk_norm else turned(qk, *turn)
        q, k, v = (x.transpose(1, 2) for x in (*qk.split(num, 2), v))
        if past:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        y_BTD = attend(q, k, v, bias_TS).transpose(1, 2).flatten(2)
        return self.out(y_BTD), k, v


class FeedForward(nn.Module):
    """Two linear layers with an activation between them; swiglu has a gate beside it."""

    def __init__(self, dims: Dimensions, options: SequenceNetOptions) -> None:
        super().__init__()
        self.activation = activation(options)
        gates = 2 if self.activation == "swiglu" else 1
        self.up = nn.Linear(dims.width, gates * dims.mlp_width, bias=False)
        self.down = nn.Linear(dims.mlp_width, dims.width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x = self.up(x_BTD)
        if self.activation == "swiglu":
            x, gate = x.chunk(2, -1)
            x = x * F.silu(gate)
        elif self.activation == "gelu":
            x = F.gelu(x)
        else:
            x = F.relu(x) if self.activation == "relu" else squared_relu(x)
        return self.down(x)


class Block(nn.Module):
    """Attention, then a feed-forward layer, each added to what it read."""

    def __init__(self, dims: Dimensions, options: SequenceNetOptions) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dims.width, bias=False)
        self.attention = Attention(dims, options)
        self.mlp_norm = nn.LayerNorm(dims.width, bias=False)
        self.mlp = FeedForward(dims, options)
        self.dropout = nn.Dropout(options.dropout)

    def forward(
        self, x_BTD: Tensor, turn: tuple[Tensor, Tensor], bias_TS: Tensor | None, past: State = ()
    ) -> tuple[Tensor, Tensor, Tensor]:
        y_BTD, k, v = self.attention(self.attention_norm(x_BTD), turn, bias_TS, past)
        x_BTD = x_BTD + self.dropout(y_BTD)
        return x_BTD + self.dropout(self.mlp(self.mlp_norm(x_BTD))), k, v

    def whole(self, x_BTD: Tensor, turn: tuple[Tensor, Tensor], bias_TS: Tensor | None) -> Tensor:
        """The output for whole sequences."""
        return self.forward(x_BTD, turn, bias_TS)[0]


class GptCore(nn.Module):
    """A stack of blocks.

    Args:
        dims: its dimensions.
        options: everything else.
        context: tokens of a training sequence.

    Attributes:
        window: tokens that a token sees, itself included.
    """

    def __init__(self, dims: Dimensions, options: SequenceNetOptions, context: int) -> None:
        super().__init__()
        self.window: int | None = min(options.window or context, context)
        self.checkpointed = options.checkpoint_activations
        self.rotary = Rotary(dims.width // dims.heads)
        self.blocks = nn.ModuleList(Block(dims, options) for _ in range(dims.layers))
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # Each of the 2 * layers additions to the stream is made smaller, so that their sum is not (GPT-2).
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 * ((2 * dims.layers) ** -0.5 if last else 1.0))

    @property
    def _blocks(self) -> list[Block]:
        return cast("list[Block]", self.blocks)

    @property
    def state_leaves(self) -> tuple[SequenceState, ...]:
        """Keys and values of every block, the last `window - 1` of them, and the position of the next token."""
        leaves = []
        for n, block in enumerate(self._blocks):
            shape: tuple[int | str, ...] = ("batch", block.attention.num_heads, "past", block.attention.head_size)
            leaves += [SequenceState(name=f"{kind}{n}", output=f"{kind}{n}_out", shape=shape) for kind in "kv"]
        return (*leaves, SequenceState(name="position", output="position_out", shape=(), dtype="int64"))

    def forward(self, x_BTD: Tensor, state: State | None) -> tuple[Tensor, State]:
        """What the tokens become, and the next state."""
        if state is None:
            return self._whole(x_BTD), ()
        assert self.window is not None
        *cache, position = state
        num_new, num_past = x_BTD.shape[1], cache[0].shape[2]
        queries_T = position + torch.arange(num_new, device=x_BTD.device)
        keys_S = position - num_past + torch.arange(num_past + num_new, device=x_BTD.device)
        turn, bias_TS = self.rotary(queries_T), visible(queries_T, keys_S, self.window)
        following: list[Tensor] = []
        for n, block in enumerate(self._blocks):
            x_BTD, k, v = block(x_BTD, turn, bias_TS, (cache[2 * n], cache[2 * n + 1]))
            following += [self._kept(k), self._kept(v)]
        return x_BTD, (*following, position + num_new)

    def _kept(self, x_BHSK: Tensor) -> Tensor:
        """Those that a later token can still see."""
        assert self.window is not None
        return x_BHSK[:, :, 1 - self.window :] if self.window > 1 else x_BHSK[:, :, :0]

    def _whole(self, x_BTD: Tensor) -> Tensor:
        positions_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
        assert self.window is not None
        bias_TS = visible(positions_T, positions_T, self.window) if x_BTD.shape[1] > self.window else None
        turn = self.rotary(positions_T)
        for block in self._blocks:
            if self.checkpointed and torch.is_grad_enabled():
                x_BTD = checkpoint(block.whole, x_BTD, turn, bias_TS, use_reentrant=False)
            else:
                x_BTD = block.whole(x_BTD, turn, bias_TS)
        return x_BTD
