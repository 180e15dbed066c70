"""A running average of the weights (Polyak & Juditsky 1992, doi:10.1137/0330046), exponential and without bias.

The plain recursion `average <- decay * average + (1 - decay) * weights` remembers the weights that a training began
with, for longer than a short training lasts. As Adam does with its moments (arXiv 1412.6980, section 3), this is taken
out: after n updates the weights of update k count by `decay^(n - k) / (1 + decay + ... + decay^(n - 1))`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import Tensor


class WeightAverage:
    """The average of a flat buffer of weights.

    Args:
        weights: `[P]`, the buffer the optimiser writes to.
        decay: share of the average that stays at an update.

    Attributes:
        value: `[P]` the average; nothing worth before the first update.
    """

    def __init__(self, weights: Tensor, decay: float) -> None:
        self._weights, self._decay = weights, decay
        self.value = weights.clone()

    def share(self, updates: int) -> float:
        """By which the weights of update number `updates` (from 1) count in the average after it."""
        return (1.0 - self._decay) / (1.0 - self._decay**updates)

    def update(self, share: float | Tensor) -> None:
        """Take in the weights as they are, by this share of the average."""
        self.value.lerp_(self._weights, share)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The average stands in the weights' place for a while."""
        raw = self._weights.clone()
        self._weights.copy_(self.value)
        try:
            yield
        finally:
            self._weights.copy_(raw)
