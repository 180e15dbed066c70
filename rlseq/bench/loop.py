"""A training's loop and nothing else, timed: in a temporary run, as `rlseq train` does it, without evaluations."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from rlseq.engine.checkpoint import Arrays, Snapshot
    from rlseq.engine.distributed import World
    from rlseq.engine.trainee import Curves, Evaluation


class LoopTime(NamedTuple):
    """Wall time of a loop, and the session's steps in it."""

    seconds: float
    steps: int


class _UntilEvaluated:
    """The trainer as the session knows it; the evaluation that ends a training only stops the clock."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.step_rate: str = trainer.step_rate
        self.stopped = 0.0

    def curves(self) -> Curves:
        return self._trainer.curves()

    def evaluate(self, should_stop: Callable[[], bool]) -> Evaluation:
        from rlseq.engine.trainee import Evaluation

        wait(self._trainer.device.type)
        self.stopped = time.perf_counter()
        return Evaluation(0.0, {})

    def model(self) -> Arrays:
        return self._trainer.model()

    def snapshot(self) -> Snapshot:
        return self._trainer.snapshot()


def wait(device: str) -> None:
    """Until a device has done all that it was given: `cuda` goes on after a call has returned, `cpu` does not."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def undisturbed(options: Any) -> Any:
    """Options of a training with nothing due before its end."""
    never = options.run.steps + 1
    run = msgspec.structs.replace(options.run, log_every=never, checkpoint_every=never, keep=1)
    return msgspec.structs.replace(options, run=run, eval=msgspec.structs.replace(options.eval, every=never))


def time_loop(algorithm: str, options: Any, trainer: Any, world: World | None = None) -> LoopTime:
    """Train to the end and time the loop.

    Args:
        algorithm: as in `rlseq train ALGORITHM`.
        options: from `undisturbed`.
        trainer: see `rlseq.training.Trainer`; it stays open.
        world: the processes that train together, which then begin at the same time; None: this one alone.
    """
    from rlseq.engine.distributed import ALONE
    from rlseq.engine.session import Session
    from rlseq.runs import Run

    world = world or ALONE
    with (
        tempfile.TemporaryDirectory(prefix="rlseq-bench-") as folder,
        Session(algorithm, Run(Path(folder)), options.run, options.eval, world=world) as session,
    ):
        clock = _UntilEvaluated(trainer)
        session.begin(clock)
        world.sum([0.0])  # wait for the others
        started = time.perf_counter()
        trainer.loop(session)
        return LoopTime(clock.stopped - started, session.step)
