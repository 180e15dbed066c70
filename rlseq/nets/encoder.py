"""Raw observations as one feature vector: one-hot coding, scaling and flattening, inside the network.

Because it is part of the network, the exported graph takes what the environment gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlseq.spec import Leaf


class ObservationEncoder(nn.Module):
    """Leaves `[B, *shape]` in their own dtypes -> features `[B, F]` float32 (float64 in exact tests)."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        super().__init__()
        self.leaves = tuple(leaves)
        self.num_features = sum(leaf.width for leaf in leaves)
        self.is_identity = len(self.leaves) == 1 and _is_plain(self.leaves[0])

    def forward(self, x: tuple[Tensor, ...]) -> Tensor:
        parts = [encode_leaf(leaf, value) for leaf, value in zip(self.leaves, x, strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def encode_leaf(leaf: Leaf, value: Tensor) -> Tensor:
    """One leaf `[B, *shape]` as features `[B, leaf.width]`."""
    if leaf.sizes:
        flat = value.reshape(value.shape[0], len(leaf.sizes))
        return torch.cat(
            [
                F.one_hot(flat[:, k] - start, size).to(torch.get_default_dtype())
                for k, (size, start) in enumerate(zip(leaf.sizes, leaf.starts, strict=True))
            ],
            dim=1,
        )
    numbers = value.to(torch.get_default_dtype())
    if leaf.scale != 1.0:
        numbers = numbers * leaf.scale
    return numbers.reshape(numbers.shape[0], leaf.width)


def _is_plain(leaf: Leaf) -> bool:
    """Whether a leaf is its own feature vector."""
    return leaf.dtype == "float32" and len(leaf.shape) == 1 and leaf.scale == 1.0 and not leaf.sizes
