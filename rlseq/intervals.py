"""How sure a mean over seeds is: Student's t interval."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean over independent runs.

    Attributes:
        n: how many runs.
        half_width: of the 95 % interval of the mean, mean ± half_width; None for one run, which has no interval.
    """

    n: int
    mean: float
    half_width: float | None
    lowest: float
    highest: float


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and 95 % interval (Student's t, n - 1 degrees of freedom) of one number a run; at least one is needed."""
    n = len(values)
    mean = math.fsum(values) / n
    half = None
    if n > 1:
        variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
        half = t_quantile(n - 1) * math.sqrt(variance / n)
    return Estimate(n, mean, half, float(min(values)), float(max(values)))


@functools.cache
def t_quantile(degrees: int) -> float:
    """The t with |T| <= t in 95 % of draws, by bisection of the distribution's closed form.

    Args:
        degrees: of freedom, at least 1.
    """
    low, high = 0.0, math.pi / 2
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return math.tan(middle) * math.sqrt(degrees)
        if _inside(middle, degrees) < CONFIDENCE:
            low = middle
        else:
            high = middle


def _inside(theta: float, degrees: int) -> float:
    """P(|T| <= t) for t = tan(theta) sqrt(degrees): Abramowitz & Stegun, 26.7.3 (odd) and 26.7.4 (even)."""
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = 0.0
    for k in range(2 + odd, degrees + 1, 2):
        total += term
        term *= cosine * cosine * (k - 1) / k
    return 2 / math.pi * (theta + sine * total) if odd else sine * total
