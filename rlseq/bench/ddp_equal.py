"""Two processes with half the batch each against one with the whole: the same gradients, the same weights."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlseq.bench.ddp_processes import Workers
from rlseq.bench.measure import Tell
from rlseq.bench.seq_training import Shape
from rlseq.errors import RlseqError

LARGEST_ERROR = 1e-6
SMALLEST_ERROR = 2.0**-53  # of float64: the ratio of a smaller one, or of none, would say nothing
UPDATES = 100
PROCESSES = 2
GPT = Shape(2, 2, 32, 7, 24, UPDATES)  # seven sequences: the halves are unequal
# Adam, and a norm that cuts: the clipping is that of the whole gradient, or all that follows differs.
CLIPPED: dict[str, Any] = {"name": "adamw", "lr": 1e-3, "weight_decay": 0.1, "clip_norm": 0.25}
Q = {"replay": {"batch_size": 31}, "optim": {"lr": 1e-3, "clip_norm": 0.05}}


class Case(NamedTuple):
    """A training done by one process and by two.

    Attributes:
        row: the measurement that it belongs to.
        do: a key of `rlseq.bench.ddp_worker.REQUESTS`.
        values: options of the training, as nested dicts.
    """

    row: str
    do: str
    values: dict[str, Any]

    @property
    def clip(self) -> float:
        """The largest norm of a gradient."""
        return float(self.values["optim"]["clip_norm"])


CASES: dict[str, Case] = {
    "gpt": Case("equal-seq", "exact_seq", {"optim": {**CLIPPED, "accumulate": 1}}),
    "gpt in 3 parts": Case("equal-seq", "exact_seq", {"optim": {**CLIPPED, "accumulate": 3}}),
    "dqn, closed form": Case("equal-dqn", "exact_dqn", {**Q, "engine": {"gradients": "auto"}}),
    "dqn, autograd": Case("equal-dqn", "exact_dqn", {**Q, "engine": {"gradients": "autograd"}}),
}
WHAT = {
    "equal-seq": f"{PROCESSES} processes against one: a gpt, {GPT.layers} layers, {GPT.width} wide, sequences of "
    "unequal lengths, whole and in 3 parts, clipped",
    "equal-dqn": f"{PROCESSES} processes against one: DQN fed the same transitions, closed form and autograd, clipped",
}


def measure_equality(tell: Tell, repeats: int, data: Path) -> dict[str, dict[str, Any]]:
    """Relative errors of the first gradient and of the weights after `UPDATES` updates, in float64.

    Args:
        tell: takes lines of progress.
        repeats: not used: what is computed is the same every time.
        data: the text.

    Raises:
        RlseqError: an error is larger than allowed, or two processes have different weights.
    """
    errors: dict[str, list[dict[str, float]]] = {row: [] for row in WHAT}
    with (
        tempfile.TemporaryDirectory(prefix="rlseq-bench-") as folder,
        Workers("one process", None) as one,
        Workers(f"{PROCESSES} processes", PROCESSES) as many,
    ):
        for name, case in CASES.items():
            found = {
                "gradient": _error(name, case, 1, [one, many], Path(folder), data)["gradient"],
                "weights": _error(name, case, UPDATES, [one, many], Path(folder), data)["weights"],
            }
            tell(f"{name}: gradient {found['gradient']:.1e} off, weights {found['weights']:.1e} off")
            errors[case.row].append(found)
    return {row: _measurement(row, found) for row, found in errors.items()}


def _error(name: str, case: Case, updates: int, sides: list[Workers], folder: Path, data: Path) -> dict[str, float]:
    """Relative errors of gradient and weights after a number of updates."""
    arrays: list[dict[str, np.ndarray]] = []
    for side in sides:
        path = folder / f"{len(arrays)}.npz"
        answer = side.ask({"do": case.do, **length_of(case, updates, data), "values": case.values, "path": str(path)})
        with np.load(path, allow_pickle=False) as found:
            arrays.append(dict(found))
        norm = float(np.linalg.norm(arrays[-1]["gradient"]))
        check_side(f"{name}, {side.name}, {updates} updates", answer, len(arrays), norm, case.clip)
    one, many = arrays
    errors = {key: relative(many[key], one[key]) for key in ("gradient", "weights")}
    if not max(errors.values()) <= LARGEST_ERROR:
        raise RlseqError(f"{name}: {PROCESSES} processes are {errors} off one after {updates} updates, in float64.")
    return errors


def check_side(what: str, answer: Mapping[str, Any], processes: int, norm: float, clip: float) -> None:
    """Whether a side did what it is to stand for.

    Args:
        what: it is, for messages.
        answer: of `rlseq.bench.ddp_worker`.
        processes: how many should have trained.
        norm: of the gradient that was used.
        clip: the largest allowed.

    Raises:
        RlseqError: it did not.
    """
    if answer["dtype"] != "torch.float64" or answer["processes"] != processes:
        raise RlseqError(f"{what}: not {processes} processes in float64: {dict(answer)}.")
    if not answer["same"]:
        raise RlseqError(f"{what}: the processes have different weights.")
    if not abs(norm / clip - 1) < 1e-3:
        raise RlseqError(f"{what}: the gradient's norm is {norm:g}, so nothing was clipped to {clip:g}.")


def length_of(case: Case, updates: int, data: Path) -> dict[str, Any]:
    """How a request says what to train, and for how long."""
    if case.do == "exact_seq":
        return {"data": str(data), "shape": list(GPT._replace(updates=updates))}
    return {"updates": updates}


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    """Norm of the difference by that of what was expected."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def _measurement(row: str, found: list[dict[str, float]]) -> dict[str, Any]:
    largest = {key: max(one[key] for one in found) for key in ("gradient", "weights")}
    error = max(largest.values())
    ratio = LARGEST_ERROR / max(error, SMALLEST_ERROR)
    return {
        "what": f"{WHAT[row]}: gradient {largest['gradient']:.1e} off, weights after {UPDATES} updates "
        f"{largest['weights']:.1e} off (float64)",
        "unit": "error",
        "ours": {"error": error},
        "peer": {"name": "at most", "error": LARGEST_ERROR},
        "ratio": ratio,
        "ratios": [ratio],
        "spread": [ratio, ratio],
        "errors": largest,
    }
