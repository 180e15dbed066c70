"""Learning-rate schedules as pure functions of the update number; and the one that looks at the evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

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


def _one_cycle(options: OptimOptions, progress: float, past: int) -> float:
    """Smith & Topin 2017 (arXiv 1708.07120), in two half waves; the momentum stays as it is, unlike there."""
    rise = options.rise_fraction
    if progress < rise:
        return options.start_factor + (1.0 - options.start_factor) * 0.5 * (1.0 - math.cos(math.pi * progress / rise))
    return _cosine(options, (progress - rise) / (1.0 - rise), past)


def _wsd(options: OptimOptions, progress: float, past: int) -> float:
    """Warm-up, stable, decay (arXiv 2404.06395), the decay straight; its share is of the updates past the warm-up."""
    left = (1.0 - progress) / options.decay_fraction
    return 1.0 if left >= 1.0 else options.final_factor + (1.0 - options.final_factor) * left


COURSES: dict[str, Callable[[OptimOptions, float, int], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "step": _step,
    "exponential": _exponential,
    "one_cycle": _one_cycle,
    "plateau": _constant,  # times Plateau.factor
    "wsd": _wsd,
}


class Plateau:
    """Lower the rate whenever evaluations stop getting better.

    Args:
        options: patience, factor of a drop, lowest factor.
    """

    def __init__(self, options: OptimOptions) -> None:
        self._options = options
        self._best: float | None = None
        self._waited = 0
        self._drops = 0

    @property
    def factor(self) -> float:
        """On the peak learning rate."""
        return max(self._options.final_factor, self._options.step_factor**self._drops)

    def see(self, value: float, *, lower_is_better: bool) -> None:
        """An evaluation's value; one that is NaN or infinite is no improvement."""
        best = self._best
        if math.isfinite(value) and (best is None or (value < best if lower_is_better else value > best)):
            self._best, self._waited = value, 0
            return
        self._waited += 1
        if self._waited >= self._options.plateau_patience:
            self._waited, self._drops = 0, self._drops + 1

    def state(self) -> dict[str, Any]:
        """What `load` needs: JSON data."""
        return {"best": self._best, "waited": self._waited, "drops": self._drops}

    def load(self, numbers: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        best = numbers["best"]
        self._best = None if best is None else float(best)
        self._waited, self._drops = int(numbers["waited"]), int(numbers["drops"])
