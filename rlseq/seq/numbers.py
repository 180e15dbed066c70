"""A sequence trainer's part of a checkpoint's numbers, in its shape."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta


class _UpdateNumbers(msgspec.Struct):
    updates: Annotated[int, Meta(ge=0)]
    skipped: Annotated[int, Meta(ge=0)]
    scaler: dict[str, float]


class SeqNumbers(msgspec.Struct):
    """What `SeqTrainer.snapshot` gives besides arrays."""

    update_step: _UpdateNumbers
    means: dict[str, tuple[float, float]]
    data_rng: dict[str, Any]
    data_sha256: str
