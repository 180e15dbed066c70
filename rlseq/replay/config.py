"""Options of the replay memory."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from rlseq.fields import Options


class ReplayOptions(Options, frozen=True, kw_only=True):
    """What is remembered and how much of it an update sees."""

    capacity: Annotated[int, Meta(description="transitions kept; the oldest are overwritten", gt=0)] = 100_000
    batch_size: Annotated[int, Meta(description="transitions in one update", gt=0)] = 64

    def __post_init__(self) -> None:
        if self.batch_size > self.capacity:
            raise ValueError(
                f"replay.batch_size = {self.batch_size} is larger than replay.capacity = {self.capacity}: "
                "make the replay larger or the batch smaller."
            )
