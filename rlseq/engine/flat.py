"""A module's parameters and gradients as views of two flat buffers.

For small networks an update is bound by the number of calls, not by arithmetic: with flat buffers the norm, the
clipping, the optimiser step and the copy to a target network are one call each. Matrices come first, so that weight
decay, which applies to them only, needs no more than two parameter groups; and hidden matrices before all, because some
optimisers treat them apart.
"""

from __future__ import annotations

import torch
from torch import nn

HIDDEN = "core."  # below it lie a network's hidden layers: neither embedding nor head


class FlatParameters:
    """Lay the parameters of `net` out in one buffer; the module keeps working and its state dict keeps its names.

    Attributes:
        data: all parameters, `[P]` float32 (float64 in exact tests).
        grad: their gradients, likewise.
        matrices: number of leading elements that belong to parameters of two or more axes.
        hidden_shapes: of the matrices at the very front, those of two axes below `core.`, in their order.
        hidden: number of their elements.
    """

    def __init__(self, net: nn.Module) -> None:
        named = list(net.named_parameters())
        dtypes = {parameter.dtype for _, parameter in named}
        assert dtypes in ({torch.float32}, {torch.float64}), f"master weights are float32, not {dtypes}"
        hidden = [p for name, p in named if p.ndim == 2 and name.startswith(HIDDEN)]
        others = [p for name, p in named if p.ndim >= 2 and not (p.ndim == 2 and name.startswith(HIDDEN))]
        ordered = hidden + others + [p for _, p in named if p.ndim < 2]
        self.hidden_shapes = [(p.shape[0], p.shape[1]) for p in hidden]
        self.hidden = sum(p.numel() for p in hidden)
        self.matrices = sum(p.numel() for p in ordered if p.ndim >= 2)
        self.data = torch.cat([p.detach().reshape(-1) for p in ordered])
        self.grad = torch.zeros_like(self.data)
        offset = 0
        for parameter in ordered:
            span = slice(offset, offset + parameter.numel())
            parameter.data = self.data[span].view_as(parameter)
            parameter.grad = self.grad[span].view_as(parameter)
            offset += parameter.numel()

    def groups(self, weight_decay: float, *, start: int = 0) -> list[dict[str, object]]:
        """Parameter groups for an optimiser: matrices with decay, the rest without; one group if that is the same.

        Args:
            weight_decay: of the matrices.
            start: the elements before it are left out.
        """
        ends = [(start, len(self.data), 0.0)]
        if weight_decay > 0:
            ends = [(start, self.matrices, weight_decay), (self.matrices, len(self.data), 0.0)]
        groups: list[dict[str, object]] = []
        for start, end, decay in ends:
            if start < end:
                parameter = nn.Parameter(self.data[start:end])
                parameter.grad = self.grad[start:end]
                groups.append({"params": [parameter], "weight_decay": decay})
        return groups
