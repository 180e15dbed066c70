"""The first losses of both trainers on a GPU against those on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlseq.bench import dqn, seq_training
from rlseq.bench.ddp_equal import SMALLEST_ERROR, relative
from rlseq.bench.measure import Tell
from rlseq.bench.seq_training import Shape
from rlseq.errors import RlseqError

if TYPE_CHECKING:
    from rlseq.dqn.train import DqnTrainer

UPDATES = 20  # later ones tell more of how errors grow than of where they came from
TRANSITIONS = 2_000
FP16_SCALE = 128.0
GPT = Shape(4, 4, 128, 16, 64, UPDATES)
# Relative errors of all losses together. Products are summed in another order on a GPU; in half precision each of them
# is rounded to 8 or 11 bits. On the CPU it is always float32.
TOLERANCES = {"off": 1e-3, "bf16": 3e-2, "fp16": 1e-2}


class Until:
    """Stands in for a session up to a step; nothing is ever due."""

    def __init__(self, step: int, last: int) -> None:
        self.step, self._last = step, last

    @property
    def running(self) -> bool:
        """Whether there is another step to take."""
        return self.step < self._last

    def advance(self, num_steps: int) -> None:
        """Count steps."""
        self.step += num_steps


class Case(NamedTuple):
    """A trainer in a precision, and in which of its ways on a GPU."""

    algorithm: str
    amp: str
    graphs: bool


CASES = [
    *(Case("dqn", amp, graphs) for amp in ("off", "bf16") for graphs in (True, False)),
    *(Case("seq", amp, True) for amp in TOLERANCES),
    Case("seq", "off", False),
]


def measure_equality(tell: Tell, repeats: int, data: Path, device: str) -> dict[str, dict[str, Any]]:
    """Relative errors of the losses of `UPDATES` updates.

    Args:
        tell: takes lines of progress.
        repeats: not used: what is computed is the same every time.
        data: the text.
        device: what is compared with the CPU.

    Raises:
        RlseqError: an error is larger than `TOLERANCES` allow.
    """
    losses = {"dqn": dqn_losses, "seq": lambda *how: seq_losses(data, *how)}
    expected = {name: of("cpu", "off", False) for name, of in losses.items()}
    rows: dict[str, dict[str, Any]] = {}
    for case in CASES:
        found, limit = losses[case.algorithm](device, case.amp, case.graphs), TOLERANCES[case.amp]
        error = relative(found, expected[case.algorithm])
        how = f"{case.algorithm}, amp {case.amp}, {'CUDA graphs' if case.graphs else 'one kernel after the other'}"
        tell(f"{how}: losses {error:.1e} off those of the CPU, at most {limit:g}")
        if not error <= limit:
            raise RlseqError(
                f"{how}: the losses of {UPDATES} updates on {device} are {error:.1e} off those of the CPU in float32, "
                f"and at most {limit:g} are allowed: {found.tolist()}, not {expected[case.algorithm].tolist()}."
            )
        name = f"equal-{case.algorithm}-{case.amp}{'' if case.graphs else '-kernels'}"
        rows[name] = _measurement(
            f"{how}: losses of {UPDATES} updates against those of the CPU in float32", error, limit
        )
    return rows


def _measurement(what: str, error: float, limit: float) -> dict[str, Any]:
    ratio = limit / max(error, SMALLEST_ERROR)
    return {
        "what": what,
        "unit": "error",
        "ours": {"error": error},
        "peer": {"name": "at most", "error": limit},
        "ratio": ratio,
        "ratios": [ratio],
        "spread": [ratio, ratio],
    }


def dqn_losses(device: str, amp: str, graphs: bool) -> np.ndarray:
    """`[UPDATES]` of DQN on transitions that no environment gave."""
    engine = {"device": device, "amp": amp, "graphs": graphs, "gradients": "autograd"}
    trainer = dqn.job_for(2_000, 0, {"engine": engine}).trainer()
    try:
        _fill(trainer)
        rows = trainer.learner.burst(trainer.memory, np.random.default_rng(0), UPDATES)
        return np.concatenate([rows, trainer.learner.read()])[:, 0]
    finally:
        trainer.close()


def _fill(trainer: DqnTrainer) -> None:
    rng, num = np.random.default_rng(0), TRANSITIONS
    obs, next_obs = (rng.normal(size=(num, 4)).astype(np.float32) for _ in range(2))
    discount = np.where(rng.random(num) < 0.1, np.float32(0), np.float32(0.99))
    trainer.replay.add((obs,), rng.integers(0, 2, num), np.ones(num, np.float32), discount, (next_obs,))


def seq_losses(data: Path, device: str, amp: str, graphs: bool) -> np.ndarray:
    """`[UPDATES]` of a small gpt."""
    engine = {"device": device, "amp": amp, "graphs": graphs}
    trainer = seq_training.job_for(data, GPT, {"engine": engine}).trainer()
    scaler = trainer.update_step.scaler
    if scaler.is_enabled():  # so small that no update is skipped: the next one would be of other tokens than the CPU's
        scaler.load_state_dict({**scaler.state_dict(), "scale": FP16_SCALE})
    losses = []
    for step in range(UPDATES):
        trainer.loop(Until(step, step + 1))  # type: ignore[arg-type]
        losses.append(trainer.curves().points.get("train/loss", np.nan))
    return np.array(losses)
