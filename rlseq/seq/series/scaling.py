"""Mean and standard deviation of what is trained on; the graph takes them off by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlseq.errors import UsageError

# A series whose changes are so small beside its values loses their third digit in float32, which has seven.
SMALLEST_CHANGE = 1e-4
# Below 1e-38 float32 runs out of digits, and torch takes a number for zero.
SMALLEST = 1e-35
MULTIPLY = "multiply it by a power of ten"


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


def lost_changes(exact: np.ndarray, names: Sequence[str]) -> dict[str, str]:
    """Columns that change, but not in float32: name -> what they do, and what can be done about it.

    Args:
        exact: `[N, F]` float64.
        names: of the columns.
    """
    found = {}
    for name, low, high in zip(names, exact.min(0), exact.max(0), strict=True):
        if low < high and np.float32(low) == np.float32(high):
            fix = MULTIPLY if max(abs(low), abs(high)) < SMALLEST else "take a constant off"
            found[name] = f"changes by {high - low:.2g} around {low:.6g}, which float32 does not hold apart: {fix}"
    return found


def scaling(values: np.ndarray, features: Sequence[str], lost: Mapping[str, str] | None = None) -> Scaling:
    """Mean and standard deviation of each feature.

    Args:
        values: `[N, F]` float32 of the training part alone.
        features: names.
        lost: from `lost_changes`.

    Raises:
        UsageError: a feature changes by less than float32 can reckon with.
    """
    # In double: the squares of what float32 holds fit, and the deviation of equal numbers is exactly 0.
    exact = values.astype(np.float64)
    shift, deviation = exact.mean(0), exact.std(0)
    constant = deviation == 0
    scale = np.where(constant, 1.0, deviation)
    notes = []
    for name, still, mean, spread in zip(features, constant, shift, scale, strict=True):
        if still and name in (lost or {}):
            notes.append(f"the feature {name!r} {(lost or {})[name]}; as it is, nothing is learnt from it")
        elif still:
            notes.append(f"the feature {name!r} is {mean:g} everywhere in the training part: nothing is learnt from it")
        elif spread < SMALLEST:
            raise UsageError(
                f"the column {name!r} changes by only {spread:.2g}, too little for float32: {MULTIPLY} or leave it out."
            )
        elif spread < SMALLEST_CHANGE * abs(mean):
            notes.append(
                f"the feature {name!r} changes by {spread:.2g} around {mean:.6g}, of which float32 keeps few digits: "
                "take a constant off"
            )
    return Scaling(tuple(shift.tolist()), tuple(scale.tolist()), tuple(notes))
