"""A session's part of a checkpoint, in its shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rlseq.errors import CorruptFile


class Best(msgspec.Struct, frozen=True):
    """The best evaluation so far."""

    step: int
    score: float


class SessionNumbers(msgspec.Struct):
    """A session's part of a checkpoint."""

    step: Annotated[int, Meta(ge=0)]
    best: Best | None
    evaluations_without_improvement: Annotated[int, Meta(ge=0)]
    evaluated_at: Annotated[int, Meta(ge=-1)]
    evaluation_pending: bool
    stopped: str | None
    total_steps: Annotated[int, Meta(gt=0)]
    seconds: Annotated[float, Meta(ge=0)]
    events_bytes: Annotated[int, Meta(ge=0)]


def session_numbers(manifest: Mapping[str, Any], where: str) -> SessionNumbers:
    """A session's part of a checkpoint.

    Raises:
        CorruptFile: it was changed.
    """
    try:
        numbers = msgspec.convert(manifest["numbers"].get("session"), SessionNumbers)
    except msgspec.ValidationError as error:
        raise CorruptFile(f"{where} was changed or damaged: {error}.") from None
    if numbers.step != manifest["step"]:
        raise CorruptFile(f"{where} was changed: it is of step {manifest['step']}, its numbers of {numbers.step}.")
    return numbers
