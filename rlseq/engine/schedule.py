"""Learning-rate schedules as pure functions of the update number."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlseq.engine.config import OptimOptions


def lr_factor(options: OptimOptions, update: int, total_updates: int) -> float:
    """Factor on the peak learning rate for update number `update` (from 0).

    The warm-up rises linearly over `warmup_updates`; the course then runs over what is left and stays at its end value
    beyond `total_updates`.
    """
    warmup = options.warmup_updates
    if update < warmup:
        return (update + 1) / (warmup + 1)
    past = update - warmup
    progress = min(1.0, past / max(1, total_updates - warmup))
    return COURSES[options.schedule](options, progress, past)


def _linear(options: OptimOptions, progress: float, past: int) -> float:
    return 1.0 + (options.final_factor - 1.0) * progress


def _cosine(options: OptimOptions, progress: float, past: int) -> float:
    return options.final_factor + (1.0 - options.final_factor) * 0.5 * (1.0 + math.cos(math.pi * progress))


def _step(options: OptimOptions, progress: float, past: int) -> float:
    return options.step_factor ** (past // options.step_updates)


def _exponential(options: OptimOptions, progress: float, past: int) -> float:
    return options.final_factor**progress


def _constant(options: OptimOptions, progress: float, past: int) -> float:
    return 1.0


COURSES: dict[str, Callable[[OptimOptions, float, int], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "step": _step,
    "exponential": _exponential,
}
