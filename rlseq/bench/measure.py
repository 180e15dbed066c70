"""Timings of alternating runs, and what they come to: medians, spreads, ratios.

A machine's speed drifts (heat, neighbours), so two things are only compared in one run and in turn: a b, a b, a b. The
median keeps one disturbed repeat from deciding; the spread shows it.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Tell = Callable[[str], None]
"""Takes a line of progress."""


class Timing(NamedTuple):
    """One timed run.

    Attributes:
        seconds: wall time.
        steps: environment steps done in it, or whatever else the measurement counts as its unit.
        updates: gradient updates done in it.
    """

    seconds: float
    steps: int
    updates: int = 0

    @property
    def rate(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds


RUNS = "runs"  # the unit where only the wall time of the whole counts

Side = Callable[[int], Timing]
"""One of the things compared: does its work with a seed and says how long that took."""


def alternate(sides: Mapping[str, Side], repeats: int, tell: Tell, unit: str = "steps") -> dict[str, list[Timing]]:
    """Run the sides in turn, `repeats` times; in repeat k all of them get the seed k."""
    timings: dict[str, list[Timing]] = {name: [] for name in sides}
    for k in range(repeats):
        for name, side in sides.items():
            gc.collect()  # the garbage of one side must not be collected on another's time
            timing = side(k)
            timings[name].append(timing)
            tell(f"repeat {k + 1} of {repeats}, {name}: {timing.seconds:.3f} s{rate_text(timing.rate, unit)}")
    return timings


def rate_text(rate: float, unit: str) -> str:
    """`, 1,500 steps/s`; nothing where a whole run is the unit."""
    return "" if unit == RUNS else f", {rate:,.0f} {unit}/s"


def summary(timings: Sequence[Timing]) -> dict[str, Any]:
    """One side's repeats: `seconds` and `steps` of each, `median` and `spread` (shortest, longest) of the seconds, and
    the median of the steps per second."""
    seconds = [timing.seconds for timing in timings]
    return {
        "seconds": seconds,
        "median": statistics.median(seconds),
        "spread": [min(seconds), max(seconds)],
        "steps": [timing.steps for timing in timings],
        "steps_per_second": statistics.median(timing.rate for timing in timings),
    }


def compare(ours: Sequence[Timing], theirs: Sequence[Timing]) -> dict[str, Any]:
    """How many times as fast as the other side ours is.

    Returns:
        `ratio`: median of their seconds a step, by the median of ours; where both did as many steps, that is the ratio
        of the median seconds. `ratios`: the same of each pair of runs. `spread`: smallest and largest of those.
    """
    a = [timing.seconds / timing.steps for timing in ours]
    b = [timing.seconds / timing.steps for timing in theirs]
    pairs = [y / x for x, y in zip(a, b, strict=True)]
    return {"ratio": statistics.median(b) / statistics.median(a), "ratios": pairs, "spread": [min(pairs), max(pairs)]}


def measurement(
    what: str,
    ours: Sequence[Timing],
    theirs: Sequence[Timing] | None,
    other: Mapping[str, Any] | None,
    unit: str = "steps",
) -> dict[str, Any]:
    """A comparison as data.

    Args:
        what: was measured, in words.
        ours: our timings.
        theirs: the other side's, or None without one.
        other: who the other side is: `name`, `version`.
        unit: what is counted: steps, tokens, or `RUNS`.
    """
    head = {"what": what, "unit": unit}
    if theirs is None:
        return {**head, "ours": summary(ours), "peer": None, "ratio": None, "ratios": None, "spread": None}
    peer = {**(other or {}), **summary(theirs)}
    return {**head, "ours": summary(ours), "peer": peer, **compare(ours, theirs)}
