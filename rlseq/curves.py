"""Curves as training wrote them into a run's event file, and what several seeds' curves have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlseq.errors import RlseqError, UsageError, did_you_mean, require
from rlseq.files import explained
from rlseq.intervals import estimate
from rlseq.runs import Run

EVALUATIONS = "eval/"  # what the names of their curves begin with


class Curve(NamedTuple):
    """One curve of one run.

    Attributes:
        steps: `[P]` int64, the training's steps (environment steps, or updates), ascending.
        values: `[P]` float64, finite.
    """

    steps: np.ndarray
    values: np.ndarray


class SeedCurve(NamedTuple):
    """One curve over several runs, at the P steps that all of them have.

    Attributes:
        steps: `[P]` int64.
        mean, lowest, highest: `[P]` float64, over the runs.
        half_width: `[P]` float64, of the mean's 95 % interval; None for one run.
    """

    steps: np.ndarray
    mean: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray
    half_width: np.ndarray | None


def read_curves(run: Run) -> dict[str, Curve]:
    """Every curve of a run by its name; `{}` for a run that has logged nothing.

    What follows a record that was cut off (a training that is writing, or was killed) is not there yet.

    Raises:
        MissingExtra: TensorBoard is not installed.
        RlseqError: the event file cannot be read.
    """
    require("tensorboard", "reading a run's curves")
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    from rlseq.engine.metrics import EVENT_FILE

    path = run.path / EVENT_FILE
    if not path.exists():
        return {}
    with explained(path, "read"), open(path, "rb"):
        pass  # TensorBoard's loader would take a file that it may not open for an empty one
    points: dict[str, dict[int, float]] = {}
    for event in LegacyEventFileLoader(str(path)).Load():
        for value in event.summary.value:
            if value.HasField("simple_value") and np.isfinite(value.simple_value):
                points.setdefault(value.tag, {})[event.step] = value.simple_value
    return {tag: _curve(found) for tag, found in points.items()}


def _curve(points: dict[int, float]) -> Curve:
    steps = sorted(points)
    return Curve(np.array(steps, np.int64), np.array([points[step] for step in steps], np.float64))


def curve_of(run: Run, tag: str) -> Curve:
    """One curve of a run.

    Raises:
        UsageError: the run has curves, but none of this name; those it has are named.
        RlseqError: it has no evaluation yet.
    """
    found = read_curves(run)
    if tag in found:
        return found[tag]
    if not any(name.startswith(EVALUATIONS) for name in found):
        raise RlseqError(
            f"{run.path} has no evaluation yet, so it has no curve to show. Let it train on: the first one comes after "
            "eval.every steps."
        )
    raise UsageError(
        f"--tag {tag}: {run.path} has no such curve.{did_you_mean(tag, found)} It has: {', '.join(found)}."
    )


def over_seeds(curves: Sequence[Curve]) -> SeedCurve:
    """The runs' mean, extremes and interval at the steps that every one of them has.

    Steps that only some runs reached are left out: a mean whose runs change on the way would show a rise or fall that
    none of them had.
    """
    steps = curves[0].steps
    for curve in curves[1:]:
        steps = np.intersect1d(steps, curve.steps)
    values = np.stack([curve.values[np.isin(curve.steps, steps)] for curve in curves])  # [runs, P]
    half = None
    if len(curves) > 1:
        half = np.array([estimate(column).half_width for column in values.T.tolist()], np.float64)
    return SeedCurve(steps, values.mean(0), values.min(0), values.max(0), half)
