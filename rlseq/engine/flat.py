"""A module's parameters and gradients as views of two flat buffers.

For small networks an update is bound by the number of calls, not by arithmetic: with flat buffers the norm, the
clipping, the optimiser step and the copy to a target network are one call each. Matrices come first, so that weight
decay, which applies to them only, needs no more than two parameter groups.
"""

from __future__ import annotations

import torch
from torch import nn


class FlatParameters:
    """Lay the parameters of `net` out in one buffer; the module keeps working and its state dict keeps its names.

    Attributes:
        data: all parameters, `[P]` float32.
        grad: their gradients, `[P]` float32.
        matrices: number of leading elements that belong to parameters of two or more axes.
    """

    def __init__(self, net: nn.Module) -> None:
        named = list(net.named_parameters())
        assert all(parameter.dtype == torch.float32 for _, parameter in named), "master weights are float32"
        ordered = [p for _, p in named if p.ndim >= 2] + [p for _, p in named if p.ndim < 2]
        self.matrices = sum(p.numel() for p in ordered if p.ndim >= 2)
        self.data = torch.cat([p.detach().reshape(-1) for p in ordered])
        self.grad = torch.zeros_like(self.data)
        offset = 0
        for parameter in ordered:
            span = slice(offset, offset + parameter.numel())
            parameter.data = self.data[span].view_as(parameter)
            parameter.grad = self.grad[span].view_as(parameter)
            offset += parameter.numel()

    def groups(self, weight_decay: float) -> list[dict[str, object]]:
        """Parameter groups for an optimiser: matrices with decay, the rest without; one group if that is the same."""
        ends = [(0, len(self.data), 0.0)]
        if weight_decay > 0:
            ends = [(0, self.matrices, weight_decay), (self.matrices, len(self.data), 0.0)]
        groups: list[dict[str, object]] = []
        for start, end, decay in ends:
            if start < end:
                parameter = nn.Parameter(self.data[start:end])
                parameter.grad = self.grad[start:end]
                groups.append({"params": [parameter], "weight_decay": decay})
        return groups
