"""Three functions whose gradient in closed form needs fewer passes over memory than autograd's.

On a CPU they decide whether rotary positions, normalised queries and the square of relu are as quick as what they
replace (learned positions, gelu). Compilers fuse by themselves and ONNX knows no complex numbers, so both are given the
plain forms, which compute the same.

Shapes: B sequences, T tokens, H heads, K numbers of a head.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

EPSILON = 1e-6


def turned(x_BTHK: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (2k, 2k + 1) of every head by its token's angle; `cos` and `sin` are `[T, 1, K/2]` float32."""
    if torch.compiler.is_compiling():
        a, b = x_BTHK.float().unflatten(-1, (-1, 2)).unbind(-1)
        pairs = torch.stack((a * cos - b * sin, b * cos + a * sin), -1)
        return pairs.flatten(-2).to(x_BTHK.dtype)
    return _product(x_BTHK.float(), torch.complex(cos, sin)).to(x_BTHK.dtype)


def normed_and_turned(x_BTHK: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`turned`, of numbers divided by the root of their mean square over K."""
    if torch.compiler.is_compiling():
        return turned(F.rms_norm(x_BTHK.float(), (x_BTHK.shape[-1],), eps=EPSILON), cos, sin).to(x_BTHK.dtype)
    return _NormedAndTurned.apply(x_BTHK, torch.complex(cos, sin))


def squared_relu(x: Tensor) -> Tensor:
    """The square of relu; overwrites `x`, the output of a linear layer, whose gradient does not need it."""
    return F.relu(x).square() if torch.compiler.is_compiling() else _SquaredRelu.apply(x)


def _product(x_BTHK: Tensor, turn: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x_BTHK.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2)


class _NormedAndTurned(torch.autograd.Function):
    """Turned first, which changes no norm: then only the output is kept, as attention keeps it anyway."""

    @staticmethod
    def forward(ctx: Any, x_BTHK: Tensor, turn: Tensor) -> Tensor:
        y = _product(x_BTHK.float(), turn)
        size = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        scale = (size.square() / y.shape[-1] + EPSILON).rsqrt()
        y = y.mul_(scale).to(x_BTHK.dtype)
        ctx.save_for_backward(y, scale, turn)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        y, scale, turn = ctx.saved_tensors
        across, y = grad.float(), y.float()
        along = (across * y).mean(-1, keepdim=True)
        back = torch.addcmul(across, y, along, value=-1.0).mul_(scale).contiguous()
        return _product(back, turn.conj()).to(grad.dtype), None


class _SquaredRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        root = F.relu_(x)
        ctx.save_for_backward(root)
        return root * root

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (root,) = ctx.saved_tensors
        return (grad * root).mul_(2.0)
