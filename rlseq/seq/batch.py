"""What flows from a sequence task to a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

Array = TypeVar("Array")
Other = TypeVar("Other")


class TokenBatch(NamedTuple, Generic[Array]):
    """B sequences of T places: tokens, or for a series the values of its F features.

    Padding stands at the right of a row, and is marked the same way everywhere: false.

    Attributes:
        inputs: `[B, T]` int64; of a series `[B, T, F]` float32. Of an answer to a source: its tokens, one place later.
        targets: what is to be predicted: `[B, T]` int64 at each place; `[B]` int64, the class of a row; `[B, T, H]`
            float32, the H values that follow each place.
        mask: which targets count, bool: `[B, T]`, or of classes `[B]`; None: all.
        given: which places are real, bool: `[B, S]` of the source if there is one, else `[B, T]`; None: all.
        source: `[B, S]` int64, what an answer is to.
    """

    inputs: Array
    targets: Array
    mask: Array | None = None
    given: Array | None = None
    source: Array | None = None

    def map(self, function: Callable[[Array], Other]) -> TokenBatch[Other]:
        """The batch with `function` applied to every array."""
        return TokenBatch(*(None if array is None else function(array) for array in self))  # type: ignore[arg-type]

    def rows(self, which: slice) -> TokenBatch[Array]:
        """Some of the sequences; views."""
        return self.map(lambda array: array[which])  # type: ignore[index]

    def num_targets(self) -> int:
        """How many predictions count: of tokens, of rows, of places."""
        if self.mask is not None:
            return int(self.mask.sum())  # type: ignore[attr-defined]
        shape = self.targets.shape[:2]  # type: ignore[attr-defined]
        return int(shape[0] * shape[1]) if len(shape) == 2 else int(shape[0])
