"""Mean and standard deviation of what is trained on; the graph takes them off by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# A series whose changes are so small beside its values loses their third digit in float32, which has seven.
SMALLEST_CHANGE = 1e-4


class Scaling(NamedTuple):
    """A model computes `(x - shift) / scale`.

    Attributes:
        shift: the mean of each of F features.
        scale: its standard deviation; 1 where that is 0.
        notes: what the user should know.
    """

    shift: tuple[float, ...]
    scale: tuple[float, ...]
    notes: tuple[str, ...]


def scaling(values: np.ndarray, features: Sequence[str]) -> Scaling:
    """Mean and standard deviation of each feature.

    Args:
        values: `[N, F]` float32 of the training part alone.
        features: names.
    """
    # In double: the squares of what float32 holds fit, and the deviation of equal numbers is exactly 0.
    exact = values.astype(np.float64)
    shift, deviation = exact.mean(0), exact.std(0)
    constant = deviation == 0
    scale = np.where(constant, 1.0, deviation)
    notes = []
    for name, still, mean, spread in zip(features, constant, shift, scale, strict=True):
        if still:
            notes.append(f"the feature {name!r} is {mean:g} everywhere in the training part: nothing is learnt from it")
        elif spread < SMALLEST_CHANGE * abs(mean):
            notes.append(
                f"the feature {name!r} changes by {spread:.2g} around {mean:.6g}, of which float32 keeps few digits: "
                "take a constant off"
            )
    return Scaling(tuple(shift.tolist()), tuple(scale.tolist()), tuple(notes))
