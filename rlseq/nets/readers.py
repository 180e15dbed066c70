"""Rows of measured numbers as what a core reads, and a core's answers in the units of the rows.

Shapes: B sequences, T places, F features, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlseq.sequence import Signature


class ValuesReader(nn.Module):
    """Raw values -> numbers of about one, then a linear layer.

    The scaling is part of the network, so that an exported graph takes what stands in the file.

    Args:
        signature: its features, `shift` and `scale`.
        width: D.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, signature: Signature, width: int) -> None:
        super().__init__()
        self.register_buffer("shift", torch.tensor(signature.shift, dtype=torch.get_default_dtype()))
        self.register_buffer("scale", torch.tensor(signature.scale, dtype=torch.get_default_dtype()))
        self.target = signature.target
        self.linear = nn.Linear(len(signature.features), width)

    def forward(self, values_BTF: Tensor, given_BT: Tensor | None = None) -> Tensor:
        """`[B, T, D]`; what stands at padding, be it NaN, is read as the mean."""
        x_BTF = (values_BTF - self.shift) / self.scale
        if given_BT is not None:
            x_BTF = torch.where(given_BT[..., None], x_BTF, torch.zeros((), dtype=x_BTF.dtype, device=x_BTF.device))
        kind = x_BTF.device.type
        if torch.is_autocast_enabled(kind):
            # Three digits of a measured number would be too few, and the layer is small.
            with torch.autocast(kind, enabled=False):
                return self.linear(x_BTF)
        return self.linear(x_BTF)

    def in_raw_units(self, y_BTO: Tensor, values_BTF: Tensor) -> Tensor:
        """Forecasts in the target's own units: they begin at the last value read (as NLinear, arXiv 2205.13504)."""
        target = self.target
        return values_BTF[..., target : target + 1] + self.scale[target] * y_BTO
