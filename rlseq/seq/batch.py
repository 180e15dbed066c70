"""What flows from a sequence task to a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

Array = TypeVar("Array")
Other = TypeVar("Other")


class TokenBatch(NamedTuple, Generic[Array]):
    """B sequences of T tokens.

    Attributes:
        inputs: `[B, T]` int64.
        targets: `[B, T]` int64, what is to be predicted at each place.
        mask: `[B, T]` bool, false where nothing is to be predicted (padding); None: everywhere.
    """

    inputs: Array
    targets: Array
    mask: Array | None = None

    def map(self, function: Callable[[Array], Other]) -> TokenBatch[Other]:
        """The batch with `function` applied to every array."""
        mask = None if self.mask is None else function(self.mask)
        return TokenBatch(function(self.inputs), function(self.targets), mask)

    def rows(self, which: slice) -> TokenBatch[Array]:
        """Some of the sequences; views."""
        return self.map(lambda array: array[which])  # type: ignore[index]

    def num_targets(self) -> int:
        """How many tokens are to be predicted."""
        return int(self.targets.size if self.mask is None else self.mask.sum())  # type: ignore[attr-defined]
