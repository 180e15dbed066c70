"""What flows from a replay memory to a loss."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

Rows = TypeVar("Rows", bound=tuple)
Array = TypeVar("Array")
Other = TypeVar("Other")


class TransitionBatch(NamedTuple, Generic[Array]):
    """B transitions; what a memory does not keep is None.

    Attributes:
        obs: leaves `[B, ...]`.
        action: `[B]` int64, indices from 0.
        reward: `[B]` float32, the sum of k discounted rewards.
        discount: `[B]` float32, gamma^k for the k steps really taken; 0 after a termination, not after a truncation.
        next_obs: leaves `[B, ...]` k steps later, the true last observation where the episode ended.
        weight: `[B]` importance weights of the loss.
        index: `[B]` places in the memory, for updating priorities.
        next_legal: `[B, A]` bool, actions allowed in `next_obs`.
    """

    obs: tuple[Array, ...]
    action: Array
    reward: Array
    discount: Array
    next_obs: tuple[Array, ...]
    weight: Array | None = None
    index: Array | None = None  # type: ignore[assignment]  # hides tuple.index, as the field's own word
    next_legal: Array | None = None

    def map(self, function: Callable[[Array], Other]) -> TransitionBatch[Other]:
        """The batch with `function` applied to every array."""

        def optional(array: Array | None) -> Other | None:
            return None if array is None else function(array)

        return TransitionBatch(
            obs=tuple(map(function, self.obs)),
            action=function(self.action),
            reward=function(self.reward),
            discount=function(self.discount),
            next_obs=tuple(map(function, self.next_obs)),
            weight=optional(self.weight),
            index=optional(self.index),
            next_legal=optional(self.next_legal),
        )


def split_rows(batch: Rows, size: int | Sequence[int]) -> list[Rows]:
    """Cut a named tuple of tensors, of tuples of tensors and of None along its rows; views.

    Args:
        batch: fields `[B, ...]`.
        size: rows of a part, or of each.
    """

    def column(field: object) -> Iterable[object]:
        if field is None:
            return itertools.repeat(None)
        if isinstance(field, tuple):
            return zip(*(leaf.split(size) for leaf in field), strict=True)
        return cast(Any, field).split(size)

    return [type(batch)(*row) for row in zip(*map(column, batch), strict=False)]
